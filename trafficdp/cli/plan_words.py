"""A plan for people: tables, and sentences that say what the numbers mean."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import numpy as np

from trafficdp.cli.options import Output
from trafficdp.mechanisms.names import BASELINE
from trafficdp.mechanisms.protocol import Accounting
from trafficdp.mechanisms.simulated_cities import MOST_WORSE, percent
from trafficdp.model import Schema, SlotKind, Statistic, as_json
from trafficdp.planner.allocation import KNOWLEDGE_BRINGS, WidthGoal
from trafficdp.planner.request import AdaptiveMap
from trafficdp.planner.suggest import DataNeeded
from trafficdp.privacy.estimate import RefusalRule
from trafficdp.privacy.loss import Loss, LossKind
from trafficdp.release.results import Answer, Plan
from trafficdp.research.full_comparison import FullCurves

MEANING = {
    "basic": "every bin to every vehicle",
    "grid_count": "the bins of the busiest vehicle",
    "exact": "each vehicle's own loss",
    "equal": "own loss, equal noise in all bins",
    "blocks": "own loss, bins share draws of noise",
    "clip_user": "the bins that Clip-User leaves (K)",
    "suppression": "the fewest bins of any suppression found",
    "suppressed": "own loss after the best suppression",
    "joint": "narrower ranges, scales to match",
    "gaussian": "Gaussian noise, (epsilon, 10^-6)",
}


def show(output: Output, result: Plan, facts: dict[str, object]) -> None:
    """Print the plan for people."""
    if result.affordable.short:
        _show_shortage(output, result)
    if result.answer is not None:
        _show_answer(output, result, result.answer)
    if result.allocation.accountings:
        _show_accountings(output, result, facts)
    if result.adaptive is not None:
        _show_adaptive(output, result, result.adaptive)
    _show_meaning(output, result, facts)
    _show_price(output, result)
    _show_verdict(output, result)


def _show_answer(output: Output, result: Plan, answer: Answer) -> None:
    unit, quantity = result.unit, result.loss.kind.quantity
    which = "the median bin" if answer.goal is WidthGoal.MEDIAN else "every bin"
    asked = f"{result.in_display_unit(answer.half_width):.4g} {unit}"
    if answer.chosen is None:
        every = f"no {quantity}" if answer.every_loss is None else f"{quantity} {answer.every_loss}"
        median = f"no {quantity}" if answer.median_loss is None else f"{quantity} {answer.median_loss}"
        output.say(f"A half width of {asked} takes {median} for the median bin, {every} for every bin.")
        output.say(f"Planned here: {which}.")
    else:
        output.table(
            f"Maps at {quantity} {result.allocation.request.loss}, half width asked: {asked} in {which}",
            ["resolution", "slot", "vehicles", "bins", "records", "half width", "fits", "would take"],
            [
                [
                    "zones" if option.grid.resolution is None else option.grid.resolution,
                    option.grid.slot_kind.value,
                    option.min_vehicles,
                    option.bins,
                    f"{option.records:.0%}",
                    f"{result.in_display_unit(option.half_width):.3g}",
                    "chosen" if option is answer.chosen else "yes" if option.fits else "no",
                    "" if option.loss is None else f"{quantity} {option.loss}",
                ]
                for option in answer.options
            ],
        )
        chosen = answer.chosen
        resolution = chosen.grid.resolution
        places = "the zones" if resolution is None else f"resolution = {resolution}"
        output.say(
            f"The finest that fits: {places}, "
            f'slot = "{chosen.grid.slot_kind.value}", min_vehicles = {chosen.min_vehicles}. '
            f"It holds {chosen.records:.0%} of the records. (Finest: most bins, among maps that hold half of "
            "the records.) Write it into [map] to release it."
        )
        if answer.growth_of_configured is not None:
            _show_growth(output, "The configured map", answer.growth_of_configured, quantity)
    output.say("")


def _show_accountings(output: Output, result: Plan, facts: dict[str, object]) -> None:
    request = result.allocation.request
    accountings, columns = facts["accountings"], ("accounting", "epsilon", "worst_error", "mean_error")
    rows = [
        [*(each[column] for column in columns), MEANING[each["accounting"]]]
        for each in (accountings if isinstance(accountings, list) else [])
    ]
    output.table(
        f"{len(rows)} ways to account for one release ({request.main.words}, {result.unit})",
        ["accounting", "epsilon", "worst error", "mean error", "charges"],
        rows,
        prose=("charges",),
    )
    output.say("epsilon: how much each way would have to spend to be as exact as the best one")
    output.say(
        f"errors: how far off each way would be with epsilon {request.loss}, in the worst bin and on average"
    )
    output.say("")


def _show_adaptive(output: Output, result: Plan, chosen: AdaptiveMap) -> None:
    width = float(chosen.mosaic.half_width)
    output.table(
        f"Hexagons whose intervals are within {result.in_display_unit(width, Statistic.MEAN):.4g} "
        f"{result.display_unit.label} on each side",
        ["resolution", "slot", "numbers", "records"],
        [
            [level.resolution, level.slot_kind.value, level.bins, f"{level.coverage:.1%}"]
            for level in chosen.levels
        ],
    )
    output.say(f"They hold {chosen.coverage:.1%} of the records; the others are withheld.")
    share = chosen.value / chosen.bound if chosen.bound > 0 else 1.0
    output.say(
        "No choice of hexagons with noise of their own is worth more."
        if share >= 1 - 1e-9
        else f"This is at least {share:.0%} of what any choice of hexagons with noise of their own is worth."
    )
    output.say("")


def show_full(output: Output, result: Plan, full: FullCurves) -> None:
    """Print how every accounting does at the planned noise (or what is nearest to it)."""
    noise = float(
        result.allocation.chosen_accounting.scales(float(result.allocation.request.loss.exact))[
            Statistic.MEAN
        ].max()
    )
    at = min(full.comparisons, key=lambda each: abs(each.error - noise))
    rows = [
        [curve.name, dict(curve.points)[at.error], MEANING[curve.name]]
        for curve in full.curves
        if at.error in dict(curve.points)
    ]
    output.table(
        f"Every accounting for a map of the means alone, all at the worst error "
        f"{result.in_display_unit(at.error, Statistic.MEAN):.4g} {result.display_unit.label}",
        ["accounting", "epsilon", "charges"],
        rows,
        prose=("charges",),
    )
    proof = (
        "no bound on suppression was computed (too many pairs, or too little time)"
        if at.least_bins is None
        else f"proved: no suppression leaves the busiest vehicle fewer than {at.least_bins} bins "
        f"(found: {at.best_bins}, Clip-User: {at.clip_user_bins}, without: {at.bins_per_user})"
    )
    output.say(f"{proof}; no blocks need less than epsilon {at.blocks_bound:.4g}.")
    if not full.complete:
        output.say("The time was up before all points of the curves were computed: give more seconds.")
    output.say("")


def one_slot_sentence(slot_kind: SlotKind, noun: str) -> str:
    """Return the sentence that a map has one number for the whole period, not one for each slot.

    ``slot_kind`` is the kind of slot that was asked for, ``noun`` the word for places: "hexagon" or "zone".
    """
    slots = slot_kind.value.replace("_", " ")
    return (
        f"The map shows no times: every {noun} has one number for the whole period and none by {slots}, "
        "though that is the slot asked for."
    )


def _show_meaning(output: Output, result: Plan, facts: dict[str, object]) -> None:
    allocation = result.allocation
    for source in allocation.known:
        output.say(
            f"The map starts from {source.in_words}, at no cost: that took {KNOWLEDGE_BRINGS[source.kind]}. "
            "Errors that are foretold leave it out."
        )
    if result.slot_not_measured is not None:
        output.say(
            f"{one_slot_sentence(result.slot_not_measured, result.grid.noun)} "
            "Priced questions measure times: "
            "`trafficdp sql` with SELECT WITH DIFFERENTIAL_PRIVACY ... GROUP BY slot."
        )
    request = allocation.request
    statistic, unit, name = request.main, result.unit, request.main.words
    errors, precision = allocation.errors()[statistic], result.precision
    shown = result.in_display_unit
    worst, typical = f"{shown(errors.max()):.3g}", f"{shown(errors.mean()):.3g}"
    scale = f"on a scale from 0 to {shown(statistic.largest(request.bound.upper)):.4g} {unit}"
    level, median = percent(request.interval_level), f"{shown(precision.median):.3g} {unit}"
    if allocation.fleets:
        output.say(
            f"In plain words: where a {result.grid.noun} has a number, its {name} is expected to be "
            f"{typical} {unit} off on average, {scale}. Its {level} interval is expected to reach {median} "
            "to either side."
        )
        _show_fleets(output, result)
        return
    place = _bin(result)
    output.say(
        f"In plain words: the published {name} of a {place} is expected to be {typical} {unit} off on average"
        + ("" if worst == typical else f", {worst} {unit} in the worst {place}")
        + f", {scale}."
        + ("" if place == result.grid.noun else f" (A {place} is a {result.grid.noun} in one time slot.)")
    )
    output.say(
        f"Its {level} interval will reach {median} to either side in the median {place}, "
        f"{shown(precision.worst):.3g} {unit} in the widest."
    )
    withheld = int((~allocation.keep).sum())
    output.say(
        f"{allocation.counts.bins} {place}s get a number; {withheld} are withheld, because fewer than "
        f"{request.min_vehicles} vehicles drove there."
    )
    says = allocation.skill[statistic].expected_numbers
    rest = allocation.counts.bins - says
    output.say(
        f"In simulated cities {says} of these numbers are informative; for {rest} the noise is too large, "
        "and they will be marked as uninformative."
        if rest
        else f"In simulated cities all {says} of these numbers are informative."
    )
    if not allocation.accountings:
        output.say(f"Mechanism: {allocation.event.mechanism}.")
    else:
        output.say(
            f"The noise is {facts['at_worst_error']:.4g} {unit} in size, on average, by accounting "
            f"{allocation.chosen_accounting.name}. Equal Laplace noise of means is never below "
            f"{result.in_display_unit(allocation.equal_scale_bound):.4g} {unit} here."
        )
    if request.mechanism and set(request.mechanism.values()) != {BASELINE}:
        output.say(f"Why: {allocation.reason}.")
    for each, skill in allocation.skill.items():
        output.say(f"Error of the {each.value.replace('_', ' ')}: {skill.in_words()}.")


def _show_fleets(output: Output, result: Plan) -> None:
    allocation, unit = result.allocation, result.unit
    request, skill = allocation.request, allocation.skill[Statistic.MEAN]
    hexagons = "hexagons" if result.grid.zones is None else "hexagons as large as the average zone"
    output.say(
        f"Nothing in the store was looked at. These are the errors in simulated cities as large as this one "
        f"with {request.fleet:,} vehicles ({request.fleet_by}), in {hexagons} that at least 5 of them visit."
    )
    bins, says = allocation.counts.bins, skill.expected_numbers
    places = f"{bins} {result.grid.noun}s of the study area are expected to have a number"
    rest = "; the others will be marked as uninformative."
    output.say(f"About {says} of the {places}{rest}" if says < bins else f"All {places}.")
    output.say(f"Error of the mean: {skill.in_words()}.")
    output.table(
        f"Errors by the size of the fleet, beside those of one city-wide average ({unit})",
        ["vehicles", "numbers", "error", "of the average", "smaller by", "larger in"],
        [
            [
                f"{n:,}",
                s.expected_numbers,
                *(result.in_display_unit(float(each.mean())) for each in (s.error, s.flat)),
                percent(s.expected),
                f"{percent(s.worse)} of draws",
            ]
            for n, s in allocation.fleets.items()
        ],
    )
    for name, error in allocation.count_errors.items():
        output.say(
            f"The number of {name} in a {result.grid.noun} is about {error:.2g} off; counting takes "
            f"{request.counts_percent} % of the loss."
        )


def _show_price(output: Output, result: Plan) -> None:
    loss, left, able = result.loss, result.budget_left, result.affordable
    quantity = loss.kind.quantity
    hidden = result.allocation.request.relation.hides_presence
    output.say(
        f"All vehicles share one budget. The release costs {quantity} {loss}; the budget has {left} left."
        if hidden
        else f"The release costs a vehicle at most {quantity} {loss}; every vehicle on this map has at least "
        f"{quantity} {left} left."
    )
    if result.in_epsilon is not None:
        output.say(
            f"That is epsilon {result.in_epsilon.epsilon} at delta {result.in_epsilon.delta}, and with all "
            f"releases before it epsilon {result.in_epsilon.of_sum}."
        )
    if result.asked is not None:
        most = "all that is left" if hidden else "the most that all can pay"
        output.say(f"It is planned for that, {most}, not for {result.asked} as asked.")
    if not able.short and result.earlier_release is None:
        output.say(
            f"After it, {quantity} {result.left_after} is left."
            if hidden
            else f"After it, every vehicle has at least {quantity} {result.left_after} left."
        )
    if result.earlier_release is not None:
        output.say(
            f"Release {result.earlier_release} is this same map of the same data: `trafficdp release` shows "
            "it again and charges nothing."
        )


def _show_shortage(output: Output, result: Plan) -> None:
    able, quantity = result.affordable, result.loss.kind.quantity
    refused = "`trafficdp release` would refuse it, with exit code 3."
    if result.allocation.request.relation.hides_presence:
        output.say(
            f"The budget does not allow this. The budget that all vehicles share has {quantity} "
            f"{result.budget_left} left, less than the map costs. {refused}"
        )
        if able.loss is not None:
            output.say(f"It can pay {quantity} {able.loss}: add --within-budget.")
        output.say("")
        return
    have = "has" if able.short == 1 else "have"
    output.say(
        f"The budget does not allow this. {able.short} of the {able.paying} vehicles that it charges {have} "
        f"less left than it costs. {refused}"
    )
    if able.loss is not None:
        output.say(f"All of them can pay {quantity} {able.loss}: add --within-budget.")
    else:
        output.say(
            f"{able.empty} of them {'has' if able.empty == 1 else 'have'} nothing left. No such vehicle "
            f"visits {able.bins_without_empty} of the {result.allocation.counts.bins} {_bin(result)}s."
        )
    output.say("")


def _show_verdict(output: Output, result: Plan) -> None:
    verdict, left = result.verdict, result.budget_left
    of, unit = verdict.statistic, verdict.statistic.unit(result.display_unit)
    value, limit = result.in_display_unit(verdict.value, of), result.in_display_unit(verdict.threshold, of)
    if verdict.yardstick:
        judged = "it is the city-wide average that other maps are compared with"
    elif verdict.rule is RefusalRule.SKILL:
        judged = (
            f"the expected error of the {of.words} is {value:.3g} {unit}; at most {limit:.3g} {unit} is "
            "allowed (90 % of the error of one city-wide average). In simulated cities the map is less "
            f"accurate than that average in {percent(verdict.worse)} of draws; {percent(MOST_WORSE)} is "
            "allowed"
        )
    else:
        judged = (
            f"the interval of the {of.words} in the median {_bin(result)} spans {value:.3g} {unit}, and the "
            f"whole range is {limit:.3g} {unit}"
        )
    if verdict.refused:
        output.say(f"It would be REFUSED: {judged}.")
    else:
        may = "With enough budget it could" if result.affordable.short else "It may"
        output.say(f"{may} be released: {judged}.")
    if result.suggestions is not None:
        words = result.suggestions.in_words()
        output.say(f"{words[0].upper()}{words[1:]}.")
        needed = result.suggestions.epsilon
        if needed is not None and needed > float(left.exact):
            output.say(f"(Epsilon {needed:.3g} is more than is left: epsilon {left}.)")
    if result.growth is not None:
        _show_growth(output, "This map", result.growth, result.loss.kind.quantity)


def _show_growth(output: Output, what: str, found: DataNeeded, quantity: str) -> None:
    times = max(found.vehicles, 1.1)
    output.say(
        f"{what} needs {quantity} {found.needed}; it has {quantity} {found.allowed}. That is enough with "
        f"{times:.2g} times as many vehicles, if the new ones drive where and as often as these do."
    )
    if found.half_needed is None:
        return
    measured = (
        f"(the first {found.half_days} of {found.days_there} days need {quantity} {found.half_needed}, "
        f"all of them {quantity} {found.needed})"
    )
    if found.days is not None:
        output.say(
            f"It is also enough with about {found.days} days of data, if each new day helps as much as the "
            f"days so far {measured}."
        )
    else:
        output.say(
            "More days of the same vehicles help little or not at all, because a vehicle is protected over "
            f"all of its days together {measured}."
        )


def _bin(result: Plan) -> str:
    """Return the noun for what has one number: the place with one slot, "bin" with several."""
    return result.grid.noun if result.grid.slot_kind is SlotKind.WHOLE_PERIOD else "bin"


# A plan as plain JSON values: plan.schema.json. Here is also what a text or a number may be that a command
# prints as JSON; schemas follow from it (`make docs`).

LossText = Annotated[str, Schema(pattern=r"^[0-9]+(\.[0-9]+)?$", description="exact decimal text")]
MechanismName = Annotated[str, Schema(pattern="^[a-z0-9_]+$")]
Size = Annotated[float, Schema(minimum=0)]
Words = Annotated[str, Schema(minLength=1)]


def loss_facts(loss: Loss) -> dict[str, str | None]:
    """Return ``loss`` as decimal text under epsilon or rho, whichever it is, and None under the other."""
    return {kind.quantity: str(loss) if loss.kind is kind else None for kind in LossKind}


def plan_facts(result: Plan, full: FullCurves | None = None) -> dict[str, object]:
    """Return the plan as plain JSON values; ``full`` is every accounting, where it was computed."""
    allocation, able = result.allocation, result.affordable
    request, verdict, found = allocation.request, result.verdict, result.in_epsilon
    hidden = request.relation.hides_presence
    statistic, best = request.main, allocation.best
    epsilon, noise, accountings = float(request.loss.exact), None, []
    if best is not None:
        scale = best.worst_relative_scale(epsilon, request.tolerance)
        noise = result.in_display_unit(float(best.scales(epsilon)[statistic].max()))
        accountings = [
            _accounting_facts(each, result, statistic, scale, noise) for each in allocation.accountings
        ]
    return {
        **loss_facts(request.loss),
        "loss": str(allocation.loss),
        "in_epsilon": found
        and {"epsilon": str(found.epsilon), "delta": found.delta, "epsilon_of_sum": str(found.of_sum)},
        "chosen": allocation.event.mechanism if best is None else best.name,
        "reason": allocation.reason,
        "statistic": statistic.value,
        "unit": result.display_unit.value,
        "map": {
            "resolution": result.grid.resolution,
            "slot": result.grid.slot_kind.value,
            "slot_not_measured": result.slot_not_measured and result.slot_not_measured.value,
            "min_vehicles": request.min_vehicles,
        },
        "bins": allocation.counts.bins,
        "bins_withheld": int((~allocation.keep).sum()),
        "numbers_expected": allocation.skill[statistic].expected_numbers,
        "interval": {
            "level": request.interval_level,
            "median_half_width": result.in_display_unit(result.precision.median),
            "worst_half_width": result.in_display_unit(result.precision.worst),
        },
        "skill": {each.value: as_json(skill) for each, skill in result.skill.items()},
        "fleet": _fleet_facts(result) if allocation.fleets else None,
        "refused": verdict.refused,
        "judged_by": verdict.rule.value,
        "judged_for": verdict.statistic.value,
        "value": result.in_display_unit(verdict.value, verdict.statistic),
        "threshold": result.in_display_unit(verdict.threshold, verdict.statistic),
        "at_worst_error": noise,
        "floor": None if best is None else result.in_display_unit(allocation.equal_scale_bound),
        "suggestions": None
        if result.suggestions is None
        else {
            "epsilon": result.suggestions.epsilon,
            "resolution": result.suggestions.resolution,
            "slot": result.suggestions.slot_kind.value if result.suggestions.slot_kind else None,
            "fleet": result.suggestions.fleet,
        },
        "budget_left": str(result.budget_left),
        "left_after": str(result.left_after),
        "earlier": result.earlier_release,
        "known": [asdict(each) for each in allocation.known],
        "affordable": {
            "vehicles_charged": None if hidden else able.paying,
            "vehicles_short": None if hidden else able.short,
            "vehicles_with_nothing_left": None if hidden else able.empty,
            "loss": _text(able.loss),
            "bins_without_those": None if hidden else able.bins_without_empty,
        },
        "growth": None if result.growth is None else _growth_facts(result.growth),
        "answer": None if result.answer is None else _answer_facts(result, result.answer),
        "adaptive": None if result.adaptive is None else _adaptive_facts(result, result.adaptive),
        "accountings": accountings,
        "full_comparison": None if full is None else _full_facts(result, full),
    }


def _fleet_facts(result: Plan) -> dict[str, object]:
    request, factor = result.allocation.request, result.in_display_unit(1.0)
    others = [
        {"vehicles": vehicles, **as_json(skill.stated(factor)), "numbers_expected": skill.expected_numbers}
        for vehicles, skill in result.allocation.fleets.items()
    ]
    return {"vehicles": request.fleet, "known": request.fleet_by, "others": others}


def _accounting_facts(
    accounting: Accounting, result: Plan, statistic: Statistic, scale: float, noise: float
) -> dict[str, object]:
    request = result.allocation.request
    errors = accounting.errors(float(request.loss.exact))
    return {
        "accounting": accounting.name,
        "epsilon": accounting.epsilon_at(scale, request.tolerance),
        "at_worst_error": noise,
        "worst_error": result.in_display_unit(float(errors[statistic].max())),
        "mean_error": result.in_display_unit(float(errors[statistic].mean())),
        "by_statistic": {
            each.value: {
                "worst_error": result.in_display_unit(float(error.max()), each),
                "mean_error": result.in_display_unit(float(np.mean(error)), each),
            }
            for each, error in errors.items()
        },
    }


def _growth_facts(found: DataNeeded) -> dict[str, object]:
    return {
        "loss_needed": str(found.needed),
        "loss_there_is": str(found.allowed),
        "times_as_many_vehicles": found.vehicles,
        "days_there_are": found.days_there,
        "days_measured": found.half_days,
        "loss_needed_then": _text(found.half_needed),
        "days_needed": found.days,
    }


def _adaptive_facts(result: Plan, chosen: AdaptiveMap) -> dict[str, object]:
    return {
        "max_half_width": result.in_display_unit(float(chosen.mosaic.half_width), Statistic.MEAN),
        "coverage": chosen.coverage,
        "worth": chosen.value,
        "most_worth_with_noise_of_its_own": chosen.bound,
        "levels": [
            {
                "resolution": level.resolution,
                "slot": level.slot_kind.value,
                "bins": level.bins,
                "coverage": level.coverage,
            }
            for level in chosen.levels
        ],
    }


def _answer_facts(result: Plan, answer: Answer) -> dict[str, object]:
    growth = answer.growth_of_configured
    return {
        "max_half_width": result.in_display_unit(answer.half_width),
        "in_bins": answer.goal.value,
        "loss_for_the_median_bin": _text(answer.median_loss),
        "loss_for_every_bin": _text(answer.every_loss),
        "maps": [
            {
                "resolution": option.grid.resolution,
                "slot": option.grid.slot_kind.value,
                "min_vehicles": option.min_vehicles,
                "bins": option.bins,
                "share_of_records": option.records,
                "half_width": result.in_display_unit(option.half_width),
                "fits": option.fits,
                "loss_needed": _text(option.loss),
                "chosen": option is answer.chosen,
            }
            for option in answer.options
        ],
        "growth_of_the_configured_map": None if growth is None else _growth_facts(growth),
    }


def _full_facts(result: Plan, full: FullCurves) -> dict[str, object]:
    shown = partial(result.in_display_unit, statistic=Statistic.MEAN)
    return {
        "statistic": Statistic.MEAN.value,
        "complete": full.complete,
        "curves": [
            {
                "accounting": curve.name,
                "points": [{"worst_error": shown(error), "epsilon": each} for error, each in curve.points],
            }
            for curve in full.curves
        ],
        "proofs": [
            {
                "worst_error": shown(each.error),
                "epsilon_per_bin": each.epsilon_per_bin,
                "bins_of_the_busiest": each.bins_per_user,
                "clip_user_bins": each.clip_user_bins,
                "best_bins": each.best_bins,
                "least_bins": each.least_bins,
                "blocks_bound": each.blocks_bound,
            }
            for each in full.comparisons
        ],
    }


def _text(loss: Loss | None) -> str | None:
    return None if loss is None else str(loss)
