"""What would pass, who can pay, and how much more a map would need.

What the vehicles of a map can still pay: Tuesday's map charges Tuesday's vehicles, each its own loss.

Every vehicle has its own account, so what is left of it is a ceiling of its own: the loss of vehicle l, not
the largest of the map, must not exceed left_l.

Theorem. Let losses be l_l / B at noise of size B (as on every accounting: they fall in proportion). Under
ceilings c_l = min(epsilon, left_l) the least B at a given shape is max_l l_l / c_l, which is the noise of the
whole map at epsilon' = min(epsilon, min_l left_l L / l_l), L = max_l l_l. And for equal scales (b_g = B t_g)
no other unsuppressed Laplace scales have a smaller largest b_g / t_g: any with b_g <= B t_g cost vehicle l at
least l_l / B, so that B >= l_l / c_l for every l. So individual ceilings need no scales of their own: they
come down to an epsilon' for the map, which is larger than the least remainder wherever the vehicle that has
least left does not lose most.

How many more vehicles or days a map would need, told from the counts that there are.

**Vehicles.** If every vehicle were joined by others that drive just as it does, f in all for each one, every
bin would hold f N records, and U m/(f N) is what a vehicle moves a mean: losses fall by f at the same noise.
So f = (epsilon needed) / (epsilon there is), and its root where losses are rho, which fall by the square.
Exact for means; a variance falls by about as much.

**Days.** More days of the *same* vehicles, driven in the same way, bring nothing: m and N grow together and
U m/N stays (a vehicle is protected over the whole period, not a day). Days help as far as other vehicles
drive then, and new bins or slots cost more. So the effect of days is not assumed but measured: what does the
map need on the first half of the days, what on all of them? If epsilon falls from e_h on h days to e_d on d,
and goes on like (days)^-p with p = log(e_h / e_d) / log(d / h), then d (e_d / epsilon)^(1/p) days do.

What would pass where a request is refused: coarser cells, longer slots, more epsilon, a larger fleet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from trafficdp.binning.slots import hours_of_day
from trafficdp.errors import UsageError
from trafficdp.mechanisms.protocol import AUTO, POOLED
from trafficdp.mechanisms.registry import JOINT_MECHANISMS
from trafficdp.mechanisms.separate.calibrated import PerStatisticMechanism
from trafficdp.mechanisms.simulated.cities import SimulatedCity, cities_of
from trafficdp.model import Counts, Grid, Period
from trafficdp.planner.allocate import MOST_RECORDS, allocate
from trafficdp.planner.allocation import Allocation, UtilityVerdict, assess_utility, rule_of
from trafficdp.planner.request import Affordable, Request, Suggestions
from trafficdp.privacy.loss import CHARGE_STEP, LARGEST_LOSS, PICO, Loss, LossKind, rounded_up
from trafficdp.privacy.refusal_rule import RefusalRule

IntArray = npt.NDArray[np.int64]
ATTEMPTS = 20


def affordable(
    allocation: Allocation, left: IntArray, allocate_at: Callable[[Loss], Allocation]
) -> Affordable:
    """Return who can pay ``allocation``. ``left`` (users,) is what each may still lose, in 10^-12.

    ``allocate_at`` plans the same map at a smaller loss: what is returned was planned and fits all.
    """
    cost = allocation.event.loss_per_user
    paying = cost > 0
    short, empty = paying & (cost > left), paying & (left < CHARGE_STEP)
    visited = np.zeros(allocation.counts.bins, dtype=np.bool_)
    visited[allocation.counts.bin_index[empty[allocation.counts.user_index]]] = True
    return Affordable(
        paying=int(np.count_nonzero(paying)),
        short=int(np.count_nonzero(short)),
        empty=int(np.count_nonzero(empty)),
        loss=_payable(allocation, left, allocate_at),
        bins_without_empty=int(np.count_nonzero(~visited)),
    )


def _payable(
    allocation: Allocation, left: IntArray, allocate_at: Callable[[Loss], Allocation]
) -> Loss | None:
    asked = allocation.request.loss
    pico = asked.pico
    for _ in range(ATTEMPTS):
        cost = allocation.event.loss_per_user
        paying = cost > 0
        if not bool(np.any(cost[paying] > left[paying])):
            return allocation.request.loss
        share = float(np.min(left[paying] / cost[paying]))
        # a little less: every loss is rounded up to a charge step
        pico = min(int(pico * share), pico - CHARGE_STEP) // CHARGE_STEP * CHARGE_STEP
        if pico < CHARGE_STEP:
            return None
        try:
            allocation = allocate_at(type(asked)(pico))
        except UsageError:
            return None
    return None


SLOWEST = 0.05
"""Below this exponent days are said not to help."""
FARTHEST = 100.0
"""Beyond this many times the days there are, no number is foretold."""


@dataclass(frozen=True, slots=True)
class Growth:
    """``vehicles`` (a factor) and ``days`` (in all) at which ``needed`` would fall to ``allowed``.

    ``half_days`` and ``half_needed`` are what ``days`` was foretold from: None in a period of one day, or
    when the first half of it holds no map. ``days`` is None when days do not help, or not within reach.
    """

    needed: Loss
    allowed: Loss
    vehicles: float
    days_there: int
    half_days: int | None
    half_needed: Loss | None
    days: int | None


def growth(grid: Grid, needed: Loss, allowed: Loss, needed_on: Callable[[Grid], Loss | None]) -> Growth:
    """Return how far the counts would have to grow for ``allowed`` to do what takes ``needed`` now.

    ``needed_on`` gives the loss that the same map needs on another grid (here: on fewer days), None
    when none does.
    """
    days = (grid.period.last - grid.period.first).days + 1
    half = None if days < 2 else (days + 1) // 2
    half_needed = None if half is None else needed_on(_first_days(grid, half))
    return Growth(
        needed=needed,
        allowed=allowed,
        vehicles=(needed.pico / allowed.pico) ** (1 if needed.kind is LossKind.PURE else 1 / 2),
        days_there=days,
        half_days=None if half_needed is None else half,
        half_needed=half_needed,
        days=None
        if half is None or half_needed is None
        else days_until(half, half_needed, days, needed, allowed),
    )


def days_until(half: int, half_needed: Loss, days: int, needed: Loss, allowed: Loss) -> int | None:
    """Return d (e_d / epsilon)^(1/p) in whole days, None when p is below SLOWEST or it is too far off."""
    if needed <= allowed:
        return days
    p = math.log(half_needed.pico / needed.pico) / math.log(days / half)
    if p < SLOWEST:
        return None
    factor = (needed.pico / allowed.pico) ** (1 / p)
    return math.ceil(days * factor * (1 - 1e-12)) if factor <= FARTHEST else None


def _first_days(grid: Grid, days: int) -> Grid:
    period = grid.period
    last = period.first + timedelta(days=days - 1)
    return replace(grid, period=Period(period.first, last, period.time_zone))


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
