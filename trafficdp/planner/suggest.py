"""How wide intervals will be, what would pass, and how much more a map would need."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from functools import cache, partial

import numpy as np

from trafficdp.binning.places import hours_of_day
from trafficdp.errors import UsageError, positive
from trafficdp.mechanisms import names, per_statistic_map, registry, simulated_cities
from trafficdp.model import ContributionBound, Counts, Grid, Period, Statistic, parse_speed_unit
from trafficdp.planner import allocation
from trafficdp.planner.allocate import allocate
from trafficdp.planner.request import MapOption, Request, Suggestions
from trafficdp.privacy.estimate import RefusalRule
from trafficdp.privacy.loss import LARGEST_LOSS, LOSSES, PICO, Loss, LossKind, rounded_up

# How wide intervals will be, the least loss that makes them as narrow as asked, and the map that then fits.
#
# Half widths are those of the released intervals before they are clamped to the statistic's range; they
# follow from counts and the calibrated mechanism alone. Where noise is b = a / epsilon they are close to a' /
# epsilon + c, c the rounding of speeds: so the least loss is found by lines in 1 / epsilon, between brackets.
#
# **Which map fits**: the finest whose intervals are narrow enough at the loss there is. For the configured
# slot and every longer one, resolutions are walked from the configured one: finer while the map still fits
# with the configured ``min_vehicles``, else coarser until it does. Where a map does not fit, the least larger
# ``min_vehicles`` with which it does is looked for: fewer bins never cost a vehicle more, so this is a binary
# search over the numbers of vehicles that occur. "Finest" is the map with the most numbers among those that
# hold at least half of the records of the study area and period (``SHARE``); where none does, the one that
# holds most records.


BY_LINE = 8
"""After so many guesses the search goes on by halving."""
_HALF_WIDTH = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:(?!in every bin)(\D.*?))?\s*(\bin every bin)?\s*")


def half_width_of(
    asked: str | float, bound: ContributionBound, statistics: Collection[Statistic]
) -> tuple[float, allocation.WidthGoal]:
    """Return the requested half width, in the unit of ``bound``, and whether the median bin or every bin
    keeps it.

    ``asked`` is "5 km/h", "5 km/h in every bin", or a number. Raises UsageError for no speed above 0, and for
    a unit of speed where only a variance is released.
    """
    expected = 'a number above 0, alone or with a unit, such as "5 km/h", or "5 km/h in every bin"'
    if not isinstance(asked, str):
        return asked, allocation.WidthGoal.MEDIAN
    found = _HALF_WIDTH.fullmatch(asked)
    if found is None or not (number := Fraction(found[1])):
        raise UsageError("the half width is not a speed", got=f"{asked:.40}", expected=expected)
    goal = allocation.WidthGoal.MEDIAN if found[3] is None else allocation.WidthGoal.EVERY
    if found[2] is None:
        return float(number), goal
    if {*statistics} == {Statistic.VARIANCE}:
        raise UsageError(
            "a half width of a variance has no unit of speed",
            got=f"{asked:.40}",
            expected=f"a bare number, in ({bound.unit.label})²",
        )
    unit = parse_speed_unit(found[2], where="the half width")
    return float(number * unit.factor_to(bound.unit)), goal


def least_loss(
    allocate_at: Callable[[Loss], allocation.Allocation],
    kind: LossKind,
    half_width: float,
    goal: allocation.WidthGoal,
) -> Loss | None:
    """Return the least loss of three digits, 10^-6 to 10^6, at which intervals have at most ``half_width``.

    ``allocate_at`` plans one map at any loss of ``kind``, and alone decides the answer. Where a map chooses
    its mechanism by the loss, widths may rise with it. The answer then is a loss whose intervals are so
    narrow, while those of the next smaller loss, and of half of it, are wider.

    None when none is found: speeds are rounded, or some noise cannot be drawn. Raises UsageError unless
    ``half_width`` is positive.
    """
    positive(half_width=half_width)
    of = LOSSES[kind]

    @cache
    def width(place: int) -> float:
        try:
            return allocation.precision(allocate_at(of(_pico_at(place)))).at(goal)
        except UsageError:
            # too much noise to be drawn exactly
            return math.inf

    found = _boundary(width, half_width, _place_of(PICO), PLACES)
    while 0 < found < PLACES and width(half := _place_of(_pico_at(found) // 2)) <= half_width:
        found = _boundary(width, half_width, half, half)
    return of(_pico_at(found)) if found < PLACES else None


def _boundary(width: Callable[[int], float], half_width: float, start: int, high: int) -> int:
    """Return a place up to ``high`` that is narrow enough, or ``high``, while the place below is not.

    Widths are taken as a line in 1 / loss: the first through 0, the others through the last two.
    """
    low, tried, steps = -1, start, 0
    last = (0.0, 0.0)
    while high - low > 1:
        here = 1 / _pico_at(tried), width(tried)
        low, high = (low, tried) if here[1] <= half_width else (tried, high)
        steps += 1
        tried = (low + high) // 2
        if steps <= BY_LINE and math.isfinite(here[1]):
            tried = min(max(_crossing(last, here, half_width, tried), low + 1), high - 1)
            last = here
    return high


def _crossing(one: tuple[float, float], other: tuple[float, float], half_width: float, otherwise: int) -> int:
    """Return the place where the line through two (1 / loss, width) is ``half_width``."""
    (x, width), rise = other, other[1] - one[1]
    if rise == 0 or x == one[0]:
        return otherwise
    crossing = x + (half_width - width) * (x - one[0]) / rise
    # none: rounding alone is wider
    return _place_of(1 / crossing) if crossing > 1 / LARGEST_LOSS else PLACES


def _pico_at(place: int) -> int:
    """Return the loss of three significant digits that has so many below it, from 10^-6 on, in 10^-12."""
    step: int = 10 ** (place // 900 + 4)
    return (100 + place % 900) * step


def _place_of(pico: float) -> int:
    """Return the place of the least such loss that is at least ``pico``."""
    least = max(math.ceil(pico * (1 - 1e-12)), _pico_at(0))
    digits = len(str(least)) - 3
    step: int = 10**digits
    return 900 * (digits - 4) - 100 - -least // step


PLACES = _place_of(LARGEST_LOSS) + 1
"""How many losses the search has."""
SHARE = 0.5
HIGHEST_RESOLUTION, LOWEST_RESOLUTION = 15, 0


def try_maps(
    grid: Grid,
    request: Request,
    half_width: float,
    goal: allocation.WidthGoal,
    counts_of: Callable[[Grid], Counts],
    on_try: Callable[[Grid], None],
) -> list[MapOption]:
    """Return the maps of coarser or finer cells and longer slots tried for ``half_width``, at the request's
    loss.

    ``counts_of`` gives the public counts of a grid; ``on_try`` is called with each grid before it is
    tried.
    """
    found: list[MapOption] = []

    def look(candidate: Grid) -> bool:
        on_try(candidate)
        options = list(_options(candidate, request, half_width, goal, counts_of(candidate)))
        found.extend(options)
        return any(option.fits and option.min_vehicles == request.min_vehicles for option in options)

    for kind in (grid.slot_kind, *grid.slot_kind.longer_kinds):
        here = replace(grid, slot_kind=kind)
        step = 1 if look(here) else -1
        if here.resolution is None:
            continue
        resolution = here.resolution + step
        while LOWEST_RESOLUTION <= resolution <= HIGHEST_RESOLUTION and look(
            replace(here, resolution=resolution)
        ) == (step > 0):
            resolution += step
    return found


def best_fitting_map(options: list[MapOption]) -> MapOption | None:
    """Return the map with the most numbers among those narrow enough, None when none is.

    Those that hold at least half of the records come first; without any, the one that holds most records.
    """
    fitting = [option for option in options if option.fits]
    wide = [option for option in fitting if option.records >= SHARE]
    if wide:
        return max(wide, key=lambda option: (option.bins, option.records, option.grid.resolution or 0))
    return max(fitting, key=lambda option: (option.records, option.bins), default=None)


def nearest(options: list[MapOption]) -> MapOption | None:
    """Return the map that needs the least loss to be narrow enough, None when none is at any loss."""
    priced = [option for option in options if option.loss is not None]
    return min(priced, key=lambda option: (option.loss, -option.bins), default=None)


def _options(
    grid: Grid, request: Request, half_width: float, goal: allocation.WidthGoal, counts: Counts
) -> Iterator[MapOption]:
    """Yield the map of ``grid``, and if it does not fit also the one with the least min_vehicles that fits.

    A map fits if the half width of the main statistic's interval, in its unit, is at most ``half_width`` in
    the median bin or in every bin, by ``goal``. ``counts`` are those of all bins of ``grid``.
    """
    choices = [each for each in np.unique(counts.users_per_bin).tolist() if each >= request.min_vehicles]
    if not choices:
        return
    records = int(counts.samples_per_bin.sum())

    def planned(asked: Request) -> allocation.Allocation | None:
        try:
            return allocate(counts, asked)
        except UsageError:
            # so small a loss that its noise cannot be drawn
            return None

    def option(min_vehicles: int) -> MapOption | None:
        asked = replace(request, min_vehicles=min_vehicles)
        made = planned(asked)
        if made is None:
            return None
        width = allocation.precision(made).at(goal)
        needed = None
        if width > half_width:
            needed = least_loss(partial(allocate, counts, asked, None), request.loss.kind, half_width, goal)
        share = float(made.counts.samples_per_bin.sum()) / records
        bins = made.counts.bins
        return MapOption(grid, min_vehicles, bins, share, width, width <= half_width, needed)

    first = option(request.min_vehicles)
    if first is not None:
        yield first
    if first is not None and first.fits:
        return

    def fits(min_vehicles: int) -> bool:
        made = planned(replace(request, min_vehicles=min_vehicles))
        return made is not None and allocation.precision(made).at(goal) <= half_width

    place = bisect_left(choices, True, key=fits)
    if 0 < place < len(choices):
        # every number down to the one before keeps the same bins
        least = option(choices[place - 1] + 1)
        if least is not None:
            yield least


# What would pass, and how much more a map would need.
#
# How many more vehicles or days a map would need, told from the counts that there are.
#
# **Vehicles.** If every vehicle were joined by others that drive just as it does, f in all for each one,
# every bin would hold f N records, and U m/(f N) is what a vehicle moves a mean: losses fall by f at the same
# noise. So f = (epsilon needed) / (epsilon there is), and its root where losses are rho, which fall by the
# square. Exact for means; a variance falls by about as much.
#
# **Days.** More days of the *same* vehicles, driven in the same way, bring nothing: m and N grow together and
# U m/N stays (a vehicle is protected over the whole period, not a day). Days help as far as other vehicles
# drive then, and new bins or slots cost more. So the effect of days is not assumed but measured: what does
# the map need on the first half of the days, what on all of them? If epsilon falls from e_h on h days to e_d
# on d, and goes on like (days)^-p with p = log(e_h / e_d) / log(d / h), then d (e_d / epsilon)^(1/p) days do.
#
# What would pass where a request is refused: coarser cells, longer slots, more epsilon, a larger fleet.


SLOWEST = 0.05
"""Below this exponent days are said not to help."""
FARTHEST = 100.0
"""Beyond this many times the days there are, no number is foretold."""


@dataclass(frozen=True, slots=True)
class DataNeeded:
    """How much more data would bring the loss that a map needs from ``needed`` down to ``allowed``.

    ``vehicles`` is the factor by which vehicles would have to grow; ``days`` is the whole period needed, in
    days, instead of ``days_there`` (None: days do not help, or too many are needed). ``days`` was
    extrapolated from the loss ``half_needed`` that the first ``half_days`` of the period need; both are None
    in a period of one day, or when that half holds no map.
    """

    needed: Loss
    allowed: Loss
    vehicles: float
    days_there: int
    half_days: int | None
    half_needed: Loss | None
    days: int | None


def data_needed(
    grid: Grid, needed: Loss, allowed: Loss, needed_on: Callable[[Grid], Loss | None]
) -> DataNeeded:
    """Return how many more vehicles or days would bring the loss ``needed`` down to ``allowed``.

    ``needed_on`` gives the loss that the same map needs on another grid (here the first half of the period),
    None when no loss is enough.
    """
    days = (grid.period.last - grid.period.first).days + 1
    half = None if days < 2 else (days + 1) // 2
    half_needed = None if half is None else needed_on(_first_days(grid, half))
    return DataNeeded(
        needed=needed,
        allowed=allowed,
        vehicles=(needed.pico / allowed.pico) ** (1 if needed.kind is LossKind.PURE else 1 / 2),
        days_there=days,
        half_days=None if half_needed is None else half,
        half_needed=half_needed,
        days=None
        if half is None or half_needed is None
        else days_needed(half, half_needed, days, needed, allowed),
    )


def days_needed(half: int, half_needed: Loss, days: int, needed: Loss, allowed: Loss) -> int | None:
    """Return the period, in whole days, at which the loss ``allowed`` would be enough.

    None if days hardly help. Extrapolated from ``needed`` on all ``days`` and ``half_needed`` on the first
    ``half``: days (needed/allowed)^(1/p), p = ln(half_needed/needed) / ln(days/half). None when p is below
    SLOWEST or the period above FARTHEST times ``days``.
    """
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


MOST_RECORDS = 3_000_000
"""Of more, cities for mechanisms that look at every record would not fit into memory."""
COARSEST_SUGGESTED = 4
"""Hexagons of resolution 3 and coarser hold whole cities."""
MOST = 1_000.0
"""Up to so many times an epsilon that is refused, or a fleet, one that passes is looked for."""
STEP, FINE_STEP = 1.05, 1.01
"""The least of them is known to this factor: simulated cities tell no more."""
AHEAD = 4
"""Steps from where one draw a city says that it may pass to where it mostly does."""


class Maps:
    """Judges whether the map of ``counts`` on ``grid`` passes the refusal rule, at any loss.

    All losses are tried in the same simulated cities, made once. Where "auto" chooses, one of the maps it
    chooses from is judged in its place: if that passes, "auto" has a map that does.
    """

    def __init__(self, counts: Counts, grid: Grid, request: Request) -> None:
        self._counts, self._hour = counts, hours_of_day(grid, counts.slot)
        self._request = _alone(request)
        self._cities: list[simulated_cities.SimulatedCity] = []

    def likely_passes(self, loss: Loss) -> bool:
        """Return whether the map at ``loss`` is probably accurate enough, by one draw in each simulated
        city.
        """
        verdict = self._judged(loss, once=True)
        return verdict is not None and not verdict.ruled_out_quickly

    def passes(self, loss: Loss) -> bool:
        """Return whether the map at ``loss`` is accurate enough to be released, judged as a release is."""
        verdict = self._judged(loss, once=False)
        return verdict is not None and not verdict.refused

    def least_passing_loss(self) -> Loss | None:
        """Return about the least loss, of three digits, at which the map is accurate enough.

        None if there is none.
        """
        fine = self._request.answer or self._request.has_quantiles
        most = LARGEST_LOSS / self._request.loss.pico
        times = _least(
            lambda times: self.likely_passes(self._more(times)),
            lambda times: self.passes(self._more(times)),
            most=most if self._request.loss.kind is LossKind.PURE else math.sqrt(most),
            step=FINE_STEP if fine else STEP,
        )
        return None if times is None else self._more(times)

    def _more(self, times: float) -> Loss:
        """Return the loss at which noise is 1 / ``times`` of that at the request's loss.

        An epsilon is multiplied by ``times``, a rho by its square.
        """
        asked = self._request.loss
        if asked.kind is LossKind.PURE:
            return type(asked).of(rounded_up(min(float(asked.exact) * times, LARGEST_LOSS / PICO)))
        return type(asked)(round(asked.pico * times**2))

    def _judged(self, loss: Loss, *, once: bool) -> allocation.UtilityVerdict | None:
        try:
            found = allocate(self._counts, self._request, self._hour, loss, thorough=not once)
        except UsageError:
            # no bin, or noise that cannot be drawn
            return None
        return allocation.assess_utility(replace(found, cities=self._cities_of(found), once=once))

    def _cities_of(self, found: allocation.Allocation) -> list[simulated_cities.SimulatedCity]:
        counts, request = found.counts, found.request
        if allocation.rule_of(found) is not RefusalRule.SKILL or request.relation.hides_presence:
            return []
        if (
            isinstance(found.calibrated, per_statistic_map.PerStatisticMechanism)
            and int(counts.count.sum()) > MOST_RECORDS
        ):
            # these cities would keep every record in memory
            return []
        if not self._cities:
            self._cities = list(allocation.cities_of_request(request, counts, found.hour))
        return self._cities


def suggest(
    grid: Grid,
    request: Request,
    counts_of: Callable[[Grid], Counts],
    guess_of: Callable[[Grid], Counts],
    epsilon_of: Callable[[Loss], float],
) -> Suggestions:
    """Return, for each setting, the smallest change that makes the map of ``request`` accurate enough.

    ``counts_of`` gives the public counts of any grid, ``guess_of`` approximate ones quickly: the exact counts
    are read only where the approximate ones are likely to pass. ``epsilon_of`` converts a loss to the epsilon
    that is shown. No private value is read.
    """
    here, hidden = counts_of(grid), request.relation.hides_presence

    def passes(candidate: Grid) -> bool:
        near = Maps((counts_of if hidden else guess_of)(candidate), candidate, request)
        return near.likely_passes(request.loss) and Maps(counts_of(candidate), candidate, request).passes(
            request.loss
        )

    def larger(times: float) -> Request:
        return replace(request, fleet=_two_digits_up(request.fleet * times))

    def enough(times: float) -> bool:
        return Maps(here, grid, larger(times)).passes(request.loss)

    # zones have no resolution, and nothing that is coarser
    coarser = (
        grid.with_resolution(each) for each in range((grid.resolution or 0) - 1, COARSEST_SUGGESTED - 1, -1)
    )
    longer = (replace(grid, slot_kind=kind) for kind in grid.slot_kind.longer_kinds if not hidden)
    by_resolution = next((candidate for candidate in coarser if passes(candidate)), None)
    by_slot = next((candidate for candidate in longer if passes(candidate)), None)
    loss = Maps(here, grid, request).least_passing_loss()
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
    if names.AUTO not in request.mechanism_names:
        return request
    poolable = set(request.tolerance) <= {*registry.JOINT_MECHANISMS[names.POOLED].estimable}
    if request.mechanism_names == {names.AUTO} and request.simulate and poolable:
        return replace(request, mechanism=dict.fromkeys(request.tolerance, names.POOLED))
    return request.with_proved_intervals() if request.allows_laplace_baseline else request


def _least(
    likely: Callable[[float], bool],
    passes: Callable[[float], bool],
    *,
    most: float = MOST,
    step: float = STEP,
) -> float | None:
    """Return about the least power of ``step``, from 1 to ``most``, that ``passes``; None if none does.

    The search starts at the least factor that is ``likely``, goes up in growing strides, then bisects; so
    does the search for that factor.
    """
    top = int(math.log(min(most, MOST)) / math.log(step))
    if not likely(step**top):
        return None
    # most refused maps need little more: near places are looked at first
    low, high = 0, 0
    while not likely(step**high):
        low, high = high + 1, min(2 * high + 1, top)
    place = bisect_left(range(high), True, low, key=lambda each: likely(step**each))
    failed, ahead = place - 1, AHEAD
    while not passes(step**place):
        if place == top:
            return None
        failed, place, ahead = place, min(place + ahead, top), 2 * ahead
    return step ** bisect_left(range(place), True, failed + 1, key=lambda each: passes(step**each))


def _two_digits_up(number: float) -> int:
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return int(-(-number // unit)) * unit
