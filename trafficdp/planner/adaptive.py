"""Maps of hexagons of several sizes.

Where coarse and where fine: a map of hexagons of several sizes, every interval as narrow as asked.

The finest bins of the city (cell x slot) are put together, level by level, into larger ones: a cell into its
H3 parent, by the index (``binning.cells.parents_of``). H3 has aperture 7 and children stick out of their
parent a little, so the larger bins are unions of finest bins *by index*: a record belongs to the ancestor of
its finest cell, which near an edge is not always the coarse cell its position lies in. (The drawn hexagon of
a coarse bin is that of its index, off by at most one finest hexagon along its edge.)

Every bin that is published gets equal noise, as much as the half width asked for allows; at that noise
each user pays for each bin it visits, exactly, and may pay epsilon in all. Which bins are published is a
packing in the forest of bins (``planner.packing``), from public counts alone.

Theorem (partition). Every finest bin lies in exactly one bin of the result, and bins of the result are
disjoint: no record is counted in two published numbers of one statistic. Proof. Levels are functions of the
level below, so two bins of any levels are disjoint or one holds the other; no published one holds another
(an antichain). A finest bin in none of them is withheld in its largest ancestor that holds no published bin
(itself, if none other). That ancestor is disjoint from the published ones: it holds none, and lies in none,
because its finest bin does not. Two such ancestors are equal or disjoint: if A held B, B's finest bins would
have chosen A or larger. So published and withheld bins are disjoint and every finest bin is in one.

What is best. A record in a published bin is worth 1, and ``detail`` more for every level below the coarsest:
0 asks for coverage alone (coarse hexagons are always cheaper), large values for fine hexagons in few places.
``bound`` is a certificate: no partition whatever is worth more than that under this accounting.

From counts at the finest resolution to a mosaic: several budgets are tried, the exact loss decides.

``planner.adaptive`` prices every bin by itself. Bins that share vehicles can be drawn in blocks of l-infinity
noise, whose exact loss is less than the sum: so partitions that would be too dear by ``FACTORS`` are tried
too, and kept when the allocation that will be executed has every interval within the width at the epsilon
asked for. Nothing is estimated: half widths are those of the calibrated mechanism itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from trafficdp import errors
from trafficdp.arrays import BoolArray, CellArray, FloatArray, IntArray
from trafficdp.binning.cells import parents_of
from trafficdp.binning.places import longer_slots_of
from trafficdp.mechanisms.blocks.partition import Items, canonical_order
from trafficdp.mechanisms.laplace.calibrated import LaplaceNoise
from trafficdp.mechanisms.names import BASELINE
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import Counts, Grid, Mosaic, SlotKind, Statistic, levels_of
from trafficdp.noise.source import MOST_DISTINCT_SCALES
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import precision
from trafficdp.planner.packing import Forest, Packing, pack
from trafficdp.planner.request import AdaptiveMap, AdaptiveSettings, MapLevel, Request

Level = tuple[CellArray, IntArray]
"""The (cell, slot) that each finest bin belongs to on a level, shape (F,) each."""

MARGIN = 1 / 500
"""Share of the noise kept back where scales may be rounded up by 1/512 (``noise.source.group_scales``)."""


@dataclass(frozen=True)
class AdaptivePartition:
    """B bins of several levels that cut the finest F bins; see the module.

    ``bin_of`` (F,) is the bin that holds each finest bin. ``cell``, ``slot``, ``level`` (0: finest) and
    ``published`` have shape (B,), sorted by cell, slot and level. ``records`` (B,) is how many each holds.
    ``value`` is what the published bins are worth, in records; no partition is worth more than ``bound``.
    """

    bin_of: IntArray
    cell: CellArray
    slot: IntArray
    level: IntArray
    published: BoolArray
    records: IntArray
    value: float
    bound: float

    @property
    def coverage(self) -> float:
        """The share of all records that lie in published bins, 0..1."""
        return int(self.records[self.published].sum()) / max(1, int(self.records.sum()))

    def bins_per_level(self, levels: int) -> IntArray:
        """Return how many bins are published on each of ``levels`` levels, from the finest."""
        return np.bincount(self.level[self.published], minlength=levels).astype(np.int64)


@dataclass(frozen=True)
class PricedBins:
    """All bins that could be published for ``request``, with the losses that they cost, from public counts.

    ``loss`` holds, for each level, the epsilon of every (bin, user) pair at the noise scale that gives the
    half width. It does not depend on the total epsilon.
    """

    request: Request
    settings: AdaptiveSettings
    pool: _CandidateBins
    loss: list[FloatArray]

    @classmethod
    def of(
        cls, fine: Counts, coarser: Sequence[Level], request: Request, settings: AdaptiveSettings
    ) -> PricedBins:
        """Return the bins of all levels with the losses that they would cost vehicles.

        ``fine`` are counts on the finest level; ``coarser`` gives the (cell, slot) that holds each finest bin
        on every coarser level, which must be a function of the level below. Raises UsageError when it is not,
        there is no bin, the mean is not among the statistics, or a number is out of range.
        """
        scale = largest_scale(request, settings.unrounded_half_width)
        errors.integer_between(1, 10**9, min_vehicles=request.min_vehicles)
        if errors.finite(detail=settings.detail) < 0:
            raise errors.UsageError(
                "detail is negative", got=f"detail={settings.detail}", expected="a number of at least 0"
            )
        if not fine.bins:
            raise errors.UsageError("there is nothing to release", expected="at least one bin")
        pool = _CandidateBins.of(fine, coarser)
        # every bin has the scale b N / q on its lattice: many different N are many different scales
        distinct = len(np.unique(np.concatenate([counts.samples_per_bin for counts in pool.counts])))
        scale *= 1 - (MARGIN if distinct > MOST_DISTINCT_SCALES else 0)
        return cls(request, settings, pool, [_losses(counts, request, scale) for counts in pool.counts])

    def partition(self, epsilon: float) -> AdaptivePartition:
        """Return the most valuable partition whose published bins cost no vehicle more than ``epsilon`` >
        0.
        """
        forest, chosen_from = _forest(self, errors.positive(epsilon=epsilon))
        packing = _packed(forest)
        published = np.zeros(len(self.pool.cell), dtype=np.bool_)
        published[chosen_from[packing.chosen]] = True
        return _partition(self.pool, self.pool.counts[0], published, packing)


def largest_scale(request: Request, half_width: float) -> float:
    """Return the largest Laplace scale b of the mean, in its unit, that keeps ``half_width``.

    b = (w - q/2 - E) / ln(1/a) for half width w, speed step q, interval level 1 - a and rounding bias E: the
    half width of lattice noise of scale B = b N/q is at most B ln(1/a) + 1/2 steps, because ln 2 - ln(1 +
    e^(-1/B)) <= 1/(2B). Raises UsageError for a width that rounding alone takes up, or without a mean.
    """
    if Statistic.MEAN not in request.tolerance:
        raise errors.UsageError(
            "a half width needs the mean", got=", ".join(request.tolerance) or "no statistic", expected="mean"
        )
    errors.in_range(0, 1, interval_level=request.interval_level)
    errors.positive(half_width=half_width)
    step = float(request.bound.step)
    room = half_width - step / 2 - rounding_bias(Statistic.MEAN, request.bound)
    if room <= 0:
        raise errors.UsageError(
            "half width is too small for the speed step",
            got=f"half_width={half_width:g}, speed_step={step:g}",
            expected="a half width of more than a step",
        )
    return room / log(1 / (1 - request.interval_level))


@dataclass(frozen=True)
class _CandidateBins:
    """The bins of all levels, numbered level by level from the finest; bins of different levels overlap.

    ``cell``, ``slot`` and ``level`` have one entry a bin. ``of_finest[k]`` (F,) is the number of the bin of
    level k that holds each finest bin; ``counts[k]`` are the counts of level k.
    """

    cell: CellArray
    slot: IntArray
    level: IntArray
    of_finest: list[IntArray]
    counts: list[Counts]

    @classmethod
    def of(cls, fine: Counts, coarser: Sequence[Level]) -> _CandidateBins:
        counts, of_finest, offset = [fine], [np.arange(fine.bins)], fine.bins
        at: IntArray = of_finest[0]
        for cell, slot in coarser:
            if len(cell) != fine.bins or len(slot) != fine.bins:
                raise errors.UsageError("a level does not fit the bins", got=len(cell), expected=fine.bins)
            below = counts[-1]
            own_cell = np.empty(below.bins, dtype=np.uint64)
            own_slot = np.empty(below.bins, dtype=np.int64)
            own_cell[at], own_slot[at] = cell, slot
            if not (np.array_equal(own_cell[at], cell) and np.array_equal(own_slot[at], slot)):
                raise errors.UsageError(
                    "levels are not nested", expected="bins of one bin to stay together on coarser levels"
                )
            merging = below.merged(own_cell, own_slot)
            at = merging.bin_of[at]
            counts.append(merging.counts)
            of_finest.append(at + offset)
            offset += merging.counts.bins
        return cls(
            np.concatenate([each.cell for each in counts]),
            np.concatenate([each.slot for each in counts]),
            np.repeat(np.arange(len(counts)), [each.bins for each in counts]),
            of_finest,
            counts,
        )


def _forest(priced: PricedBins, epsilon: float) -> tuple[Forest, IntArray]:
    """Return the candidates as a forest, and which bin of the pool each is.

    A candidate has at least ``min_vehicles`` vehicles, and costs no user more than ``epsilon`` by itself.
    """
    pool, least, detail = priced.pool, priced.request.min_vehicles, priced.settings.detail
    keep, values, sizes, users, costs = [], [], [], [], []
    top = len(pool.counts) - 1
    for level, (counts, loss) in enumerate(zip(pool.counts, priced.loss, strict=True)):
        # a hair more, so that rounding of the exact charge cannot make the noise wider than asked
        shares = loss / epsilon * (1 + 1e-7)
        heaviest = np.zeros(counts.bins)
        np.maximum.at(heaviest, counts.bin_index, shares)
        fits = (counts.users_per_bin >= least) & (heaviest <= 1)
        pairs = fits[counts.bin_index] & (shares > 0)
        keep.append(fits)
        values.append(counts.samples_per_bin[fits] * (1 + detail * (top - level)))
        sizes.append(np.bincount(counts.bin_index[pairs], minlength=counts.bins)[fits])
        users.append(counts.user_index[pairs])
        costs.append(shares[pairs])
    candidate = np.concatenate(keep)
    number = np.cumsum(candidate) - 1
    chosen_from = np.flatnonzero(candidate)
    items = Items(
        np.concatenate(values).astype(np.float64),
        np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64),
        np.concatenate(users),
        np.concatenate(costs),
        pool.counts[0].users,
    )
    parent = number_of_parent(pool.of_finest, candidate, number)[chosen_from]
    return Forest(items, pool.level[chosen_from], parent), chosen_from


def _losses(counts: Counts, request: Request, scale: float) -> FloatArray:
    """Return the epsilon of every (bin, user) pair of ``counts``, shape (P,).

    The mean has Laplace noise of ``scale``, other statistics in proportion to their tolerances.
    """
    allowed = {s: scale * t / request.tolerance[Statistic.MEAN] for s, t in request.tolerance.items()}
    return LaplaceNoise.cheapest_within(counts, request.bound, allowed).pair_loss()


def number_of_parent(of_finest: Sequence[IntArray], candidate: BoolArray, number: IntArray) -> IntArray:
    """Return the number of the nearest coarser candidate that holds each bin of all levels; -1 for none.

    ``of_finest`` gives, a level, the bin that holds each finest bin; ``candidate`` marks candidate bins and
    ``number`` numbers them.
    """
    parent = np.full(len(candidate), -1, dtype=np.int64)
    above = np.full(len(of_finest[0]), -1, dtype=np.int64)
    for bins in reversed(of_finest):
        parent[bins] = above
        above = np.where(candidate[bins], number[bins], above)
    return parent


def _packed(forest: Forest) -> Packing:
    """Pack in canonical order, so that the result does not depend on how users and bins are numbered."""
    if not forest.size:
        return pack(forest)
    order, rank = canonical_order(forest.items)
    place = np.empty(forest.size + 1, dtype=np.int64)
    place[order] = np.arange(forest.size)
    place[-1] = -1
    items = forest.items.reordered(order, rank)
    packing = pack(Forest(items, forest.level[order], place[forest.parent[order]]))
    chosen = np.zeros(forest.size, dtype=np.bool_)
    chosen[order] = packing.chosen
    return Packing(chosen, packing.value, packing.bound)


def _partition(
    pool: _CandidateBins, fine: Counts, published: BoolArray, packing: Packing
) -> AdaptivePartition:
    holds = published.copy()
    covered = np.zeros(fine.bins, dtype=np.bool_)
    for bins in pool.of_finest:
        covered |= published[bins]
    for bins in pool.of_finest:
        holds[bins[covered]] = True
    held_by = np.full(fine.bins, -1, dtype=np.int64)
    for bins in pool.of_finest:
        # ever larger withheld bins, as long as they hold nothing that is published
        larger = ~covered & ~holds[bins]
        held_by[larger] = bins[larger]
        own = published[bins]
        held_by[own] = bins[own]
    some, bin_of = np.unique(held_by, return_inverse=True)
    order = np.lexsort((pool.level[some], pool.slot[some], pool.cell[some]))
    place = np.empty(len(some), dtype=np.int64)
    place[order] = np.arange(len(some))
    some, bin_of = some[order], place[bin_of]
    records = np.bincount(bin_of, weights=fine.samples_per_bin, minlength=len(some)).astype(np.int64)
    return AdaptivePartition(
        bin_of,
        pool.cell[some],
        pool.slot[some],
        pool.level[some],
        published[some],
        records,
        packing.value,
        packing.bound,
    )


FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5)
"""Budgets tried for a partition, as multiples of epsilon; the first that does not fit ends the search."""
FACTORS_OF_LARGE = (1.0, 2.0)
LARGE = 2_000_000
"""Pairs (finest bin, vehicle) beyond which only a few are tried: a partition then takes seconds."""
ACCOUNTINGS = ("best", "equal", "blocks")
"""Accountings whose noise is as even over bins as an adaptive map needs."""


def choose_mosaic(grid: Grid, fine: Counts, settings: AdaptiveSettings, request: Request) -> AdaptiveMap:
    """Return the map of bins of several resolutions for ``request``, from the counts ``fine`` on ``grid``
    alone.

    ``grid`` is the finest. Where longer slots are allowed, larger cells first and longer slots first are both
    tried. Raises UsageError for an accounting or mechanism with uneven noise or a width that rounding takes
    up, and UninformativeReleaseError when no bin of any resolution can have so narrow an interval.
    """
    _check(request)
    kinds = (grid.slot_kind, *settings.longer)
    found = [
        _along(grid, fine, settings, request, levels_of(settings.resolutions, kinds, cells_first))
        for cells_first in ((True, False) if settings.longer else (True,))
    ]
    fitting = [(way, *best) for way, best in zip((True, False), found, strict=False) if best is not None]
    if not fitting:
        raise errors.UninformativeReleaseError(
            "no hexagon can have so narrow an interval",
            got=f"a half width of {float(settings.half_width):g} {request.bound.unit.label} "
            f"at epsilon {request.loss}",
            todo="ask for a wider one, a larger epsilon, a coarser resolution or longer slots",
        )
    cells_first, best, bound = max(fitting, key=lambda each: (each[1].value, each[0]))
    levels = levels_of(settings.resolutions, kinds, cells_first)
    numbers = best.bins_per_level(len(levels))
    records = np.bincount(best.level[best.published], best.records[best.published], len(levels))
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
    levels: tuple[tuple[int, SlotKind], ...],
) -> tuple[AdaptivePartition, float] | None:
    """Return the partition of ``levels`` that is worth most and keeps to the width, and an upper bound.

    No partition with separate noise in every bin is worth more than the bound. None when no partition keeps
    to the width.
    """
    coarser: list[Level] = [
        (parents_of(fine.cell, resolution), longer_slots_of(grid, fine.slot, kind))
        for resolution, kind in levels[1:]
    ]
    best, bound, priced = None, 0.0, PricedBins.of(fine, coarser, request, settings)
    for factor in FACTORS if fine.pairs <= LARGE else FACTORS_OF_LARGE:
        partition = priced.partition(float(request.loss.exact) * factor)
        if factor == 1:
            bound = partition.bound
        if not partition.published.any():
            continue
        if not _fits(fine, partition, request, settings.unrounded_half_width):
            break
        if best is None or partition.value > best.value:
            best = partition
    return None if best is None else (best, bound)


def _check(request: Request) -> None:
    if request.accounting not in ACCOUNTINGS:
        raise errors.UsageError(
            "an adaptive map needs even noise",
            got=f"accounting={request.accounting!r}",
            expected=", ".join(ACCOUNTINGS),
        )
    others = sorted(set(request.mechanism.values()) - {BASELINE})
    if others:
        raise errors.UsageError(
            "an adaptive map is made by the baseline",
            got=", ".join(others),
            expected=f'mechanism = "{BASELINE}"',
        )


def _fits(fine: Counts, partition: AdaptivePartition, request: Request, width: float) -> bool:
    """Return whether every published bin's interval has a half width of at most ``width``.

    The partition is planned as it would be executed, from the counts of the finest bins ``fine``.
    """
    merged = fine.merged(partition.cell[partition.bin_of], partition.slot[partition.bin_of])
    published = np.zeros(merged.counts.bins, dtype=np.bool_)
    published[merged.bin_of] = partition.published[partition.bin_of]
    return precision(allocate(merged.counts.select(published), request)).worst <= width


def _mosaic(partition: AdaptivePartition, settings: AdaptiveSettings, cells_first: bool) -> Mosaic:
    cell, slot = (each[partition.published].tolist() for each in (partition.cell, partition.slot))
    published = tuple(sorted(zip(cell, slot, strict=True)))
    return Mosaic(settings.resolutions, published, settings.half_width, settings.longer, cells_first)
