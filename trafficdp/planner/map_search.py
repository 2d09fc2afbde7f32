"""Which map fits: the finest whose intervals are narrow enough at the loss there is. Counts alone.

For the configured slot and every longer one, resolutions are walked from the configured one: finer while the
map still fits with the configured ``min_vehicles``, else coarser until it does. Where a map does not fit, the
least larger ``min_vehicles`` with which it does is looked for: fewer bins never cost a vehicle more, so this
is a binary search over the numbers of vehicles that occur.

"Finest" is the map with the most numbers among those that hold at least half of the records of the study area
and period (``SHARE``); where none does, the one that holds most records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from trafficdp.errors import UsageError
from trafficdp.model import Counts, Grid
from trafficdp.planner.allocation import Allocation, allocate
from trafficdp.planner.precision import Reach, least_loss, precision
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import Loss

SHARE = 0.5
FINEST, COARSEST = 15, 0


@dataclass(frozen=True, slots=True)
class MapOption:
    """One map that was looked at: ``bins`` numbers over ``records`` (a share of all), at ``half_width``.

    ``fits`` says whether the half width is within what was asked; ``loss`` is the least that makes it so
    with these bins (None: none does, or not looked for because it fits).
    """

    grid: Grid
    min_vehicles: int
    bins: int
    records: float
    half_width: float
    fits: bool
    loss: Loss | None


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
