"""EXPLAIN: what questions would cost and say. From public counts and accounts; nothing is spent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trafficdp.model import Counts, SpeedUnit
from trafficdp.privacy.loss import Loss
from trafficdp.release.outcomes import Plan

Line = tuple[str, str, str | None]
"""What, how much, and in which unit (None: no unit)."""


@dataclass(frozen=True)
class PricedPlan:
    """One question with its price: free for ``plan`` None, and where the release ``earlier`` answers it."""

    question: str
    selection: str
    counts: Counts
    plan: Plan | None
    earlier: str | None


@dataclass(frozen=True)
class Explanation:
    """The price of one or more questions. ``rows`` has the columns what, value and unit."""

    rows: pa.Table
    plans: tuple[PricedPlan, ...]

    @property
    def plan(self) -> Plan | None:
        """The plan of the first question; None: it is free."""
        return self.plans[0].plan

    @property
    def earlier(self) -> str | None:
        """The release that answers the first question for nothing."""
        return self.plans[0].earlier


def explained(
    plans: Sequence[PricedPlan], together: Loss | None, analyst_left: Loss | None, display_unit: SpeedUnit
) -> Explanation:
    """Return the explanation of the questions of ``plans``, which cost ``together`` where there are several.

    ``analyst_left`` is what the role that asks may still spend of the vehicle it has spent most of.
    """
    lines: list[Line] = []
    for each in plans:
        plan = each.plan
        known = plan is None or plan.allocation.calibrated.public.of_vehicles is not None
        lines += [("question", each.question, None), ("counts" if known else "records", each.selection, None)]
        if plan is None:
            lines += [("bins", str(each.counts.bins), None), ("cost", "0", "epsilon")]
            lines.append(("why", "counts are public by assumption (counts_public)", None))
        else:
            lines += _priced(plan, each.earlier, display_unit)
    if together is not None:
        lines.append(("cost of all questions together", str(together), together.kind.quantity))
    if analyst_left is not None:
        lines.append(("left for the analyst", str(analyst_left), analyst_left.kind.quantity))
    names = ("what", "value", "unit")
    columns = [pa.array([line[place] for line in lines], pa.string()) for place in range(3)]
    return Explanation(pa.table(columns, names=names), tuple(plans))


def _priced(plan: Plan, earlier: str | None, display_unit: SpeedUnit) -> Iterator[Line]:
    allocation = plan.allocation
    request = allocation.request
    yield "bins with numbers", str(allocation.counts.bins), None
    quantity = request.kind.quantity
    if allocation.calibrated.public.of_vehicles is None:
        yield "loss of every possible vehicle", str(allocation.loss), quantity
    else:
        yield "bins withheld", str(int((~allocation.keep).sum())), None
        yield "vehicles charged", str(int(np.count_nonzero(allocation.event.loss_per_user))), None
        yield "largest loss of a vehicle", str(allocation.loss), quantity
    yield "cost", "0" if earlier else str(allocation.loss), quantity
    if plan.in_epsilon is not None:
        yield f"that is, at delta {plan.in_epsilon.delta}", str(plan.in_epsilon.epsilon), "epsilon"
    if earlier:
        yield "answered before", earlier, None
    yield from _accountings(plan)
    yield from _by_rank(plan) if allocation.spanned else _in_speeds(plan, display_unit)
    for name, error in allocation.count_errors.items():
        yield f"noise of the number of {name}", f"{error:.3g}", name
    shared = request.relation.hides_presence
    left = "left in the account that all vehicles share" if shared else "left for every vehicle"
    yield left, str(plan.budget_left), quantity
    yield "verdict", "says too little: refused" if plan.verdict.refused else "may be answered", None
    if plan.suggestions is not None:
        yield "would pass", plan.suggestions.in_words().replace("--force", "force = TRUE"), None


def _in_speeds(plan: Plan, display_unit: SpeedUnit) -> Iterator[Line]:
    allocation, request = plan.allocation, plan.allocation.request
    widths = allocation.calibrated.half_widths(request.interval_level)
    errors = allocation.errors()
    for statistic in allocation.calibrated.statistics:
        factor = statistic.factor(request.bound.unit, display_unit)
        # an interval that is published lies within the range
        half = np.minimum(widths[statistic], statistic.largest(request.bound.upper) / 2)
        unit, name = statistic.unit(display_unit), statistic.words
        for what, numbers in (("expected error", errors[statistic]), ("half width", half)):
            yield f"median {what} of the {name}", f"{float(np.median(numbers)) * factor:.4g}", unit
            yield f"worst {what} of the {name}", f"{float(np.max(numbers)) * factor:.4g}", unit


def _by_rank(plan: Plan) -> Iterator[Line]:
    for statistic, spanned in plan.allocation.spanned.items():
        for what, share in (("in the median bin", np.median(spanned)), ("in the worst bin", np.max(spanned))):
            name = f"interval of the {statistic.words}, {what}"
            yield name, f"{100 * float(share):.3g}", "% of its vehicles"


def _accountings(plan: Plan) -> Iterator[Line]:
    """What each way of accounting would have to spend for the noise of the chosen one."""
    allocation = plan.allocation
    request = allocation.request
    if request.main not in request.tolerance or not allocation.accountings:
        return
    scale = allocation.chosen.worst_relative_scale(float(request.loss.exact), request.tolerance)
    for accounting in allocation.accountings:
        chosen = " (chosen)" if accounting.name == allocation.chosen.name else ""
        yield (
            f"by accounting {accounting.name}{chosen}",
            f"{accounting.epsilon_at(scale, request.tolerance):.4g}",
            "epsilon",
        )
