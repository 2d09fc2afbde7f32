"""`trafficdp plan` and `release` in a store that counts in rho."""

from __future__ import annotations

from trafficdp.cli.words.output import Output
from trafficdp.cli.words.plan_numbers import number_facts
from trafficdp.errors import UsageError
from trafficdp.export.files.columns import unit_label
from trafficdp.privacy.loss import PICO, decimal_text
from trafficdp.release.outcomes import ZCDPPlan


def require_rho_only(**given: object) -> None:
    """Raise UsageError for an option that only stores that count in epsilon know, ``name=value``."""
    unknown = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if unknown:
        raise UsageError(
            "this store counts its budget in rho",
            got=", ".join(unknown),
            expected="--rho RHO",
            todo="leave the option out: it is about pure epsilon",
        )


def zcdp_facts(result: ZCDPPlan) -> dict[str, object]:
    """Return the plan as plain JSON values."""
    allocation = result.allocation
    request = allocation.request
    return {
        "rho": str(request.rho),
        "loss_rho": str(result.loss),
        "epsilon": decimal_text(int(result.epsilon * PICO)),
        "delta": result.delta,
        "epsilon_of_sum": decimal_text(int(result.epsilon_of_sum * PICO)),
        "mechanism": {each.value: part.mechanism for each, part in allocation.calibrated.parts.items()},
        **number_facts(result),
        "budget_left_rho": str(result.budget_left),
        "vehicles_short": result.short,
    }


def show_zcdp(output: Output, result: ZCDPPlan) -> None:
    """Print the plan for people."""
    facts = zcdp_facts(result)
    allocation, verdict = result.allocation, result.verdict
    unit = unit_label(verdict.statistic, allocation.request.bound.unit)
    output.say(
        f"Noise: {allocation.event.mechanism}. {facts['bins']} bins get numbers; "
        f"{facts['bins_withheld']} are withheld, with fewer than {allocation.request.min_vehicles} vehicles."
    )
    output.say(
        f"Intervals at {allocation.request.interval_level:.0%} reach {result.precision.median:.3g} {unit} to "
        f"either side in the median bin, {result.precision.worst:.3g} in the widest."
    )
    output.say(
        f"The release costs a vehicle at most rho {result.loss}; every vehicle on this map has at "
        f"least {result.budget_left} left. That is epsilon {facts['epsilon']} at delta {result.delta}, and "
        f"with all releases before it epsilon {facts['epsilon_of_sum']}."
    )
    if result.short:
        output.say(
            f"{result.short} vehicles have less left than it would cost them: `trafficdp release` is "
            "refused, with exit code 3."
        )
    judged = (
        f"the median expected error is {verdict.median_error:.3g} {unit}, the limit {verdict.threshold:.3g}"
    )
    output.say(f"It would be REFUSED: {judged}." if verdict.refused else f"It may be released: {judged}.")
    output.say("Nothing was spent.")
