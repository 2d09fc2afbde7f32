"""From counts at the finest resolution to a mosaic: several budgets are tried, the exact loss decides.

``planner.adaptive`` prices every bin by itself. Bins that share vehicles can be drawn in blocks of l-infinity
noise, whose exact loss is less than the sum: so partitions that would be too dear by ``FACTORS`` are tried
too, and kept when the allocation that will be executed has every interval within the width at the epsilon
asked for. Nothing is estimated: half widths are those of the calibrated mechanism itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trafficdp.binning.cells import parents_of
from trafficdp.binning.mosaic import lengthened
from trafficdp.binning.slots import hours_of_day
from trafficdp.errors import UninformativeReleaseError, UsageError
from trafficdp.mechanisms.protocol import BASELINE
from trafficdp.model import Counts, Grid, Mosaic, SlotKind, levels_of
from trafficdp.planner.adaptive import AdaptivePartition, Level, PricedBins, Wish
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import Allocation, precision
from trafficdp.planner.findings import AdaptiveMap, MapLevel
from trafficdp.planner.request import AdaptiveSettings, Request

FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5)
"""Budgets tried for a partition, as multiples of epsilon; the first that does not fit ends the search."""
FACTORS_OF_LARGE = (1.0, 2.0)
LARGE = 2_000_000
"""Pairs (finest bin, vehicle) beyond which only a few are tried: a partition then takes seconds."""
ACCOUNTINGS = ("best", "equal", "blocks")
"""Accountings whose noise is as even over bins as an adaptive map needs."""


def choose_mosaic(grid: Grid, fine: Counts, settings: AdaptiveSettings, request: Request) -> AdaptiveMap:
    """Return the mosaic for ``request``, from the counts ``fine`` on ``grid``, the finest, alone.

    With longer slots two ways up are tried, larger cells first and longer slots first, and the one that is
    worth more is taken. Raises UsageError for an accounting or mechanism with uneven noise or a width that
    rounding takes up, and UninformativeReleaseError when no bin of any resolution can have so narrow an
    interval.
    """
    _check(request)
    width = float(settings.half_width - settings.rounding)
    wish = Wish(
        request.bound,
        request.tolerance,
        float(request.loss.exact),
        request.min_vehicles,
        width,
        request.interval_level,
        settings.detail,
    )
    kinds = (grid.slot_kind, *settings.longer)
    found = [
        _along(grid, fine, settings, request, wish, levels_of(settings.resolutions, kinds, cells_first))
        for cells_first in ((True, False) if settings.longer else (True,))
    ]
    fitting = [(way, *best) for way, best in zip((True, False), found, strict=False) if best is not None]
    if not fitting:
        raise UninformativeReleaseError(
            "no hexagon can have so narrow an interval",
            got=f"a half width of {float(settings.half_width):g} {request.bound.unit.label} "
            f"at epsilon {request.loss}",
            todo="ask for a wider one, a larger epsilon, a coarser resolution or longer slots",
        )
    cells_first, best, bound = max(fitting, key=lambda each: (each[1].value, each[0]))
    levels = levels_of(settings.resolutions, kinds, cells_first)
    numbers = best.bins_per_level(len(levels))
    records = np.bincount(
        best.level[best.published], weights=best.records[best.published], minlength=len(levels)
    )
    return AdaptiveMap(
        _mosaic(best, settings, cells_first),
        tuple(
            MapLevel(resolution, kind, int(bins), float(share))
            for (resolution, kind), bins, share in zip(
                levels, numbers, records / best.records.sum(), strict=True
            )
        ),
        best.coverage,
        best.value,
        bound,
    )


def _along(
    grid: Grid,
    fine: Counts,
    settings: AdaptiveSettings,
    request: Request,
    wish: Wish,
    levels: tuple[tuple[int, SlotKind], ...],
) -> tuple[AdaptivePartition, float] | None:
    """The best partition of these levels that fits, and the bound at epsilon; None when nothing fits."""
    coarser: list[Level] = [
        (parents_of(fine.cell, resolution), lengthened(grid, fine.slot, kind))
        for resolution, kind in levels[1:]
    ]
    best, bound, priced = None, 0.0, PricedBins.of(fine, coarser, wish)
    for factor in FACTORS if fine.pairs <= LARGE else FACTORS_OF_LARGE:
        partition = priced.partition(wish.epsilon * factor)
        if factor == 1:
            bound = partition.bound
        if not partition.published.any():
            continue
        if not _fits(fine, partition, request, wish.half_width):
            break
        if best is None or partition.value > best.value:
            best = partition
    return None if best is None else (best, bound)


def allocate_on(grid: Grid, counts: Counts, request: Request) -> Allocation:
    """Return ``allocate`` for the bins that ``grid`` lets be published; raises as it does."""
    allowed = grid.may_publish(counts.cell, counts.slot)
    hour = hours_of_day(grid, counts.slot)
    if bool(allowed.all()):
        return allocate(counts, request, hour)
    part = allocate(counts.select(allowed), request, None if hour is None else hour[allowed])
    keep = allowed.copy()
    keep[allowed] = part.keep
    return replace(part, keep=keep)


def _check(request: Request) -> None:
    if request.accounting not in ACCOUNTINGS:
        raise UsageError(
            "an adaptive map needs even noise",
            got=f"accounting={request.accounting!r}",
            expected=", ".join(ACCOUNTINGS),
        )
    others = sorted(set(request.mechanism.values()) - {BASELINE})
    if others:
        raise UsageError(
            "an adaptive map is made by the baseline",
            got=", ".join(others),
            expected=f'mechanism = "{BASELINE}"',
        )


def _fits(fine: Counts, partition: AdaptivePartition, request: Request, width: float) -> bool:
    """Whether every interval of what would be executed is within ``width``."""
    merged = fine.merged(partition.cell[partition.bin_of], partition.slot[partition.bin_of])
    published = np.zeros(merged.counts.bins, dtype=np.bool_)
    published[merged.bin_of] = partition.published[partition.bin_of]
    return precision(allocate(merged.counts.select(published), request)).worst <= width


def _mosaic(partition: AdaptivePartition, settings: AdaptiveSettings, cells_first: bool) -> Mosaic:
    published: Sequence[tuple[int, int]] = sorted(
        zip(
            partition.cell[partition.published].tolist(),
            partition.slot[partition.published].tolist(),
            strict=True,
        )
    )
    return Mosaic(settings.resolutions, tuple(published), settings.half_width, settings.longer, cells_first)
