"""How wide intervals will be, the least loss that makes them as narrow as asked, and the map that then fits.

Half widths are those of the released intervals before they are clamped to the statistic's range; they follow
from counts and the calibrated mechanism alone. Where noise is b = a / epsilon they are close to a' / epsilon
+ c, c the rounding of speeds: so the least loss is found by lines in 1 / epsilon, between brackets.

**Which map fits**: the finest whose intervals are narrow enough at the loss there is. For the configured slot
and every longer one, resolutions are walked from the configured one: finer while the map still fits with the
configured ``min_vehicles``, else coarser until it does. Where a map does not fit, the least larger
``min_vehicles`` with which it does is looked for: fewer bins never cost a vehicle more, so this is a binary
search over the numbers of vehicles that occur. "Finest" is the map with the most numbers among those that
hold at least half of the records of the study area and period (``SHARE``); where none does, the one that
holds most records.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np

from trafficdp.errors import UsageError, positive
from trafficdp.model import ContributionBound, Counts, Grid, Statistic, parse_speed_unit
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import Allocation, Reach, precision
from trafficdp.planner.request import MapOption, Request
from trafficdp.privacy.loss import LARGEST_LOSS, LOSSES, PICO, Loss, LossKind

BY_LINE = 8
"""After so many guesses the search goes on by halving."""
_HALF_WIDTH = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:(?!in every bin)(\D.*?))?\s*(\bin every bin)?\s*")


def half_width_of(
    asked: str | float | None, bound: ContributionBound, statistics: Collection[Statistic]
) -> tuple[float | None, Reach]:
    """Return the half width that is ``asked`` for, in the unit of ``bound``, and in which bins it shall hold.

    "5 km/h", "5 km/h in every bin", a number, or None. Raises UsageError
    for no speed above 0, and for a unit of speed where only a variance is released.
    """
    expected = 'a number above 0, alone or with a unit, such as "5 km/h", or "5 km/h in every bin"'
    if not isinstance(asked, str):
        return asked, Reach.MEDIAN
    found = _HALF_WIDTH.fullmatch(asked)
    if found is None or not (number := Fraction(found[1])):
        raise UsageError("the half width is not a speed", got=f"{asked:.40}", expected=expected)
    reach = Reach.MEDIAN if found[3] is None else Reach.EVERY
    if found[2] is None:
        return float(number), reach
    if {*statistics} == {Statistic.VARIANCE}:
        raise UsageError(
            "a half width of a variance has no unit of speed",
            got=f"{asked:.40}",
            expected=f"a bare number, in ({bound.unit.label})²",
        )
    unit = parse_speed_unit(found[2], where="the half width")
    return float(number * unit.factor_to(bound.unit)), reach


def least_loss(
    allocate_at: Callable[[Loss], Allocation], kind: LossKind, half_width: float, reach: Reach
) -> Loss | None:
    """Return the least loss of three significant digits, 10^-6 to 10^6, with intervals of ``half_width``.

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
            return precision(allocate_at(of(_pico_at(place)))).at(reach)
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
FINEST, COARSEST = 15, 0


def search(
    grid: Grid,
    request: Request,
    half_width: float,
    reach: Reach,
    counts_of: Callable[[Grid], Counts],
    looked_at: Callable[[Grid], None],
) -> list[MapOption]:
    """Return every map that was looked at, at ``request.loss``. ``looked_at`` is told before each."""
    found: list[MapOption] = []

    def look(candidate: Grid) -> bool:
        looked_at(candidate)
        options = list(_options(candidate, request, half_width, reach, counts_of(candidate)))
        found.extend(options)
        return any(option.fits and option.min_vehicles == request.min_vehicles for option in options)

    for kind in (grid.slot_kind, *grid.slot_kind.longer):
        here = replace(grid, slot_kind=kind)
        step = 1 if look(here) else -1
        if here.resolution is None:
            continue
        resolution = here.resolution + step
        while COARSEST <= resolution <= FINEST and look(replace(here, resolution=resolution)) == (step > 0):
            resolution += step
    return found


def finest(options: list[MapOption]) -> MapOption | None:
    """Return the finest map that fits (see the module), None when none does."""
    fitting = [option for option in options if option.fits]
    wide = [option for option in fitting if option.records >= SHARE]
    if wide:
        return max(wide, key=lambda option: (option.bins, option.records, option.grid.resolution or 0))
    return max(fitting, key=lambda option: (option.records, option.bins), default=None)


def nearest(options: list[MapOption]) -> MapOption | None:
    """Return the map that would take the least loss, None when none fits at any."""
    priced = [option for option in options if option.loss is not None]
    return min(priced, key=lambda option: (option.loss, -option.bins), default=None)


def _options(
    grid: Grid, request: Request, half_width: float, reach: Reach, counts: Counts
) -> Iterator[MapOption]:
    """Yield the map of ``grid``, and when it does not fit, that with the least min_vehicles that does."""
    choices = np.unique(counts.users_per_bin)
    choices = choices[choices >= request.min_vehicles]
    if not len(choices):
        return
    records = int(counts.samples_per_bin.sum())

    def planned(min_vehicles: int, asked: Request) -> Allocation | None:
        try:
            return allocate(counts, replace(asked, min_vehicles=min_vehicles))
        except UsageError:
            # so small a loss that its noise cannot be drawn
            return None

    def option(min_vehicles: int) -> MapOption | None:
        made = planned(min_vehicles, request)
        if made is None:
            return None
        width = precision(made).at(reach)
        needed = None
        if width > half_width:
            needed = least_loss(
                lambda loss: allocate(counts, replace(request, loss=loss, min_vehicles=min_vehicles)),
                request.kind,
                half_width,
                reach,
            )
        share = float(made.counts.samples_per_bin.sum()) / records
        bins = made.counts.bins
        return MapOption(grid, min_vehicles, bins, share, width, width <= half_width, needed)

    first = option(request.min_vehicles)
    if first is not None:
        yield first
    if first is not None and first.fits:
        return
    low, high = 0, len(choices)
    while low < high:
        middle = (low + high) // 2
        made = planned(int(choices[middle]), request)
        if made is not None and precision(made).at(reach) <= half_width:
            high = middle
        else:
            low = middle + 1
    if 0 < low < len(choices):
        # every number down to the one before keeps the same bins
        least = option(int(choices[low - 1]) + 1)
        if least is not None:
            yield least
