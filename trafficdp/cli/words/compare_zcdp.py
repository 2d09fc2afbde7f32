"""`trafficdp compare` in a store that counts in rho: every zCDP mechanism on this map, from public counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.cli.words.output import Output
from trafficdp.errors import UsageError
from trafficdp.export.files.columns import unit_label
from trafficdp.mechanisms.promise import event_of
from trafficdp.mechanisms.registry import mechanisms_of
from trafficdp.mechanisms.simulated.trial import SimulatedCities
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.zcdp import ZCDP
from trafficdp.release.outcomes import ZCDPPlan


@dataclass(frozen=True)
class ZCDPOffer:
    """One mechanism for one statistic, with all of rho: errors over the bins, or why it cannot do it.

    ``median_error``, ``worst_error``: of the expected errors at the worst speeds there could be.
    ``simulated_error``: its mean error in the worse of two simulated cities.
    """

    mechanism: str
    statistic: Statistic
    loss: ZCDP | None
    median_error: float | None = None
    worst_error: float | None = None
    simulated_error: float | None = None
    unavailable: str | None = None


def zcdp_comparison(plan: ZCDPPlan, seed: int) -> list[ZCDPOffer]:
    """Return the offers on the bins of ``plan``, tried on simulated speeds of ``seed``."""
    allocation = plan.allocation
    request, counts = allocation.request, allocation.counts
    bound, rho = request.bound, np.array(request.rho.number)
    tries = SimulatedCities(counts, bound, seed)
    found = []
    for statistic in request.tolerance:
        for mechanism in mechanisms_of(LossKind.ZCDP):
            if statistic not in mechanism.statistics:
                continue
            try:
                loss = ZCDP(event_of(mechanism, counts, bound, statistic, rho).loss.pico)
                error = mechanism.expected_error(counts, bound, statistic, rho)
                tried = tries.error(mechanism, statistic, rho)
            except UsageError as refusal:
                found.append(ZCDPOffer(mechanism.name, statistic, None, unavailable=str(refusal)))
                continue
            found.append(
                ZCDPOffer(mechanism.name, statistic, loss, float(np.median(error)), float(error.max()), tried)
            )
    return found


def zcdp_comparison_facts(plan: ZCDPPlan, offers: list[ZCDPOffer], seed: int) -> dict[str, object]:
    """Return the comparison as plain JSON values: compare_zcdp.schema.json."""
    allocation = plan.allocation
    return {
        "rho": str(allocation.request.rho),
        "unit": allocation.request.bound.unit.value,
        "bins": allocation.counts.bins,
        "bins_withheld": int((~allocation.keep).sum()),
        "seed": seed,
        "statistics": [
            {
                "statistic": statistic.value,
                "mechanisms": [
                    {
                        "mechanism": offer.mechanism,
                        "loss_rho": None if offer.loss is None else str(offer.loss),
                        "median_error": offer.median_error,
                        "worst_error": offer.worst_error,
                        "simulated_error": offer.simulated_error,
                        "unavailable": offer.unavailable,
                    }
                    for offer in offers
                    if offer.statistic is statistic
                ],
            }
            for statistic in allocation.request.tolerance
        ],
    }


def show_zcdp_comparison(output: Output, plan: ZCDPPlan, offers: list[ZCDPOffer], seed: int) -> None:
    """Print the comparison for people."""
    allocation = plan.allocation
    request = allocation.request
    for statistic in request.tolerance:
        here = [offer for offer in offers if offer.statistic is statistic]
        output.table(
            f"Expected error of the {statistic.value.replace('_', ' ')}, "
            f"{unit_label(statistic, request.bound.unit)}, at rho {request.rho}",
            ["mechanism", "median", "worst", "simulated"],
            [
                [
                    offer.mechanism,
                    *(
                        "-" if error is None else f"{error:#.4g}"
                        for error in (offer.median_error, offer.worst_error, offer.simulated_error)
                    ),
                ]
                for offer in here
            ],
        )
        for offer in here:
            if offer.unavailable is not None:
                output.say(f"{offer.mechanism} is not available: {offer.unavailable}.")
        output.say("")
    output.say(
        f"Each spends the whole rho on one statistic over {allocation.counts.bins} bins "
        f"({int((~allocation.keep).sum())} are withheld); no vehicle loses more. median, worst: over the "
        "bins, of the expected error at the worst speeds there could be, from public counts: for PLAN "
        "the whole range, since counts prove nothing of them."
    )
    output.say(
        f"simulated: mean error over the bins in the worse of two such cities (seed {seed}); no speed of "
        "this city is read. Nothing was spent."
    )
