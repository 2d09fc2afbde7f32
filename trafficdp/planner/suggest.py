"""What would pass where a request is refused: coarser cells, longer slots, more epsilon, a larger fleet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from trafficdp.binning.slots import hours_of_day
from trafficdp.errors import UsageError
from trafficdp.mechanisms.protocol import AUTO, POOLED
from trafficdp.mechanisms.registry import JOINT_MECHANISMS
from trafficdp.mechanisms.separate.calibrated import PerStatisticMechanism
from trafficdp.mechanisms.simulated.cities import SimulatedCity, cities_of
from trafficdp.model import Counts, Grid
from trafficdp.planner.allocate import MOST_RECORDS, allocate
from trafficdp.planner.allocation import Allocation, UtilityVerdict, assess_utility, rule_of
from trafficdp.planner.findings import Suggestions
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, Loss, LossKind, rounded_up
from trafficdp.privacy.refusal_rule import RefusalRule

COARSEST = 4
"""Hexagons of resolution 3 and coarser hold whole cities."""
MOST = 1_000.0
"""Up to so many times an epsilon that is refused, or a fleet, one that passes is looked for."""
STEP, FINE_STEP = 1.05, 1.01
"""The least of them is known to this factor: simulated cities tell no more."""
AHEAD = 4
"""Steps from where one draw a city says that it may pass to where it mostly does."""


class Maps:
    """Whether maps of ``counts`` on ``grid`` pass, at any loss: all in the same cities, made once.

    Where "auto" chooses, one of the maps it chooses from is looked at alone: where that passes, auto has a
    map that does.
    """

    def __init__(self, counts: Counts, grid: Grid, request: Request) -> None:
        self._counts, self._hour = counts, hours_of_day(grid, counts.slot)
        self._request = _alone(request)
        self._cities: list[SimulatedCity] = []

    def likely(self, loss: Loss) -> bool:
        """Return whether the map at ``loss`` seems to pass, by one draw a city."""
        verdict = self._judged(loss, once=True)
        return verdict is not None and not verdict.hopeless

    def passes(self, loss: Loss) -> bool:
        """Return whether the map at ``loss`` passes, judged as it would be when it is released."""
        verdict = self._judged(loss, once=False)
        return verdict is not None and not verdict.refused

    def least(self) -> Loss | None:
        """Return a loss near the least that passes, of three digits in epsilon; None where none does."""
        fine = self._request.answer or self._request.by_rank
        most = LARGEST_LOSS / self._request.loss.pico
        times = _least(
            lambda times: self.likely(self._more(times)),
            lambda times: self.passes(self._more(times)),
            most=most if self._request.kind is LossKind.PURE else math.sqrt(most),
            step=FINE_STEP if fine else STEP,
        )
        return None if times is None else self._more(times)

    def _more(self, times: float) -> Loss:
        """The loss, for so many times the noise's inverse."""
        asked = self._request.loss
        if asked.kind is LossKind.PURE:
            return type(asked).of(rounded_up(min(float(asked.exact) * times, LARGEST_LOSS / PICO)))
        return type(asked)(round(asked.pico * times**2))

    def _judged(self, loss: Loss, *, once: bool) -> UtilityVerdict | None:
        try:
            found = allocate(self._counts, replace(self._request, loss=loss), self._hour, thorough=not once)
        except UsageError:
            # no bin, or noise that cannot be drawn
            return None
        return assess_utility(replace(found, cities=self._cities_of(found), once=once))

    def _cities_of(self, found: Allocation) -> list[SimulatedCity]:
        counts, request = found.counts, found.request
        if rule_of(found) is not RefusalRule.SKILL or request.relation.hides_presence:
            return []
        if isinstance(found.calibrated, PerStatisticMechanism) and int(counts.count.sum()) > MOST_RECORDS:
            # these cities would keep every record in memory
            return []
        if not self._cities:
            self._cities = list(cities_of(counts, request.bound, found.hour))
        return self._cities


def suggest(
    grid: Grid,
    request: Request,
    counts_of: Callable[[Grid], Counts],
    guess_of: Callable[[Grid], Counts],
    epsilon_of: Callable[[Loss], float],
) -> Suggestions:
    """Return what would pass. ``counts_of`` gives the public counts of any grid; no value is read.

    ``guess_of`` gives nearly these at once: only where they are likely to pass are the exact ones asked for.
    ``epsilon_of`` says a loss as the epsilon that is asked for.
    """
    here, hidden = counts_of(grid), request.relation.hides_presence

    def passes(candidate: Grid) -> bool:
        near = Maps((counts_of if hidden else guess_of)(candidate), candidate, request)
        return near.likely(request.loss) and Maps(counts_of(candidate), candidate, request).passes(
            request.loss
        )

    def larger(times: float) -> Request:
        return replace(request, fleet=_two_digits_up(request.fleet * times))

    def enough(times: float) -> bool:
        return Maps(here, grid, larger(times)).passes(request.loss)

    # zones have no resolution, and nothing that is coarser
    coarser = (grid.at(each) for each in range((grid.resolution or 0) - 1, COARSEST - 1, -1))
    longer = (replace(grid, slot_kind=kind) for kind in grid.slot_kind.longer if not hidden)
    by_resolution = next((candidate for candidate in coarser if passes(candidate)), None)
    by_slot = next((candidate for candidate in longer if passes(candidate)), None)
    loss = Maps(here, grid, request).least()
    fleet = _least(enough, enough) if hidden else None
    return Suggestions(
        epsilon=None if loss is None else float(rounded_up(epsilon_of(loss))),
        resolution=None if by_resolution is None else by_resolution.resolution,
        slot_kind=None if by_slot is None else by_slot.slot_kind,
        fleet=None if fleet is None else larger(fleet).fleet,
        flat=not (hidden or request.answer),
    )


def _alone(request: Request) -> Request:
    """Return ``request``, where "auto" chooses with one of the maps that it chooses from named."""
    if AUTO not in request.named:
        return request
    poolable = set(request.tolerance) <= {*JOINT_MECHANISMS[POOLED].estimable}
    if request.named == {AUTO} and request.simulate and poolable:
        return replace(request, mechanism=dict.fromkeys(request.tolerance, POOLED))
    return request.with_proved_intervals() if request.free_to_choose else request


def _least(
    likely: Callable[[float], bool],
    passes: Callable[[float], bool],
    *,
    most: float = MOST,
    step: float = STEP,
) -> float | None:
    """Return a factor near the least, in steps from 1 to ``most``, that passes; None when none does.

    It begins where one is ``likely`` to, which is a little too low, and goes up, farther and farther.
    """
    top = int(math.log(min(most, MOST)) / math.log(step))
    if not likely(step**top):
        return None
    place = _first(lambda each: likely(step**each), 0, top)
    failed, ahead = place - 1, AHEAD
    while not passes(step**place):
        if place == top:
            return None
        failed, place, ahead = place, min(place + ahead, top), 2 * ahead
    return step ** _first(lambda each: passes(step**each), failed + 1, place)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first whole number from ``low`` on at which it ``holds``, as it does at ``high``."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _two_digits_up(number: float) -> int:
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return int(-(-number // unit)) * unit
