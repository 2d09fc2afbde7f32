"""Where coarse and where fine: a map of hexagons of several sizes, every interval as narrow as asked.

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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError, finite, in_range, integer_between, positive
from trafficdp.mechanisms.blocks.canonical import canonical_order
from trafficdp.mechanisms.blocks.items import Items
from trafficdp.mechanisms.laplace.calibrated import LaplaceNoise
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.secure import MOST_DISTINCT_SCALES
from trafficdp.planner.packing import Forest, Packing, pack
from trafficdp.planner.request import DETAIL

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CellArray = npt.NDArray[np.uint64]
Level = tuple[CellArray, IntArray]
"""The (cell, slot) that each finest bin belongs to on a level, shape (F,) each."""

MARGIN = 1 / 500
"""Share of the noise kept back where scales may be rounded up by 1/512 (``noise.secure.group_scales``)."""


@dataclass(frozen=True)
class Wish:
    """What is asked of the map. ``half_width`` is of the mean's interval, in the unit of ``bound``.

    ``tolerance`` as in Request: other statistics get noise in proportion. ``detail`` see the module.
    """

    bound: ContributionBound
    tolerance: Mapping[Statistic, float]
    epsilon: float
    min_vehicles: int
    half_width: float
    interval_level: float
    detail: float = DETAIL


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
        """Share of all records that lie in published bins."""
        return int(self.records[self.published].sum()) / max(1, int(self.records.sum()))

    def bins_per_level(self, levels: int) -> IntArray:
        """Return how many bins are published on each of ``levels`` levels, from the finest."""
        return np.bincount(self.level[self.published], minlength=levels).astype(np.int64)


def adapt(fine: Counts, coarser: Sequence[Level], wish: Wish) -> AdaptivePartition:
    """Return the partition for ``wish``: finest bins ``fine``, and (cell, slot) of each on coarser levels.

    ``coarser`` goes from the second finest level up; each must be a function of the one below.
    Raises UsageError when it is not, there is no bin, the mean is not among the statistics, or a number is
    out of range.
    """
    return PricedBins.of(fine, coarser, wish).partition(wish.epsilon)


@dataclass(frozen=True)
class PricedBins:
    """All bins that could be published for ``wish``, and what each costs: the same at every epsilon.

    ``loss`` are, a level, the losses of its pairs at the noise of the half width.
    """

    wish: Wish
    pool: _CandidateBins
    loss: list[FloatArray]

    @classmethod
    def of(cls, fine: Counts, coarser: Sequence[Level], wish: Wish) -> PricedBins:
        """Price the bins of all levels; see ``adapt``, which raises the same."""
        scale = largest_scale(wish)
        integer_between(1, 10**9, min_vehicles=wish.min_vehicles)
        if finite(detail=wish.detail) < 0:
            raise UsageError(
                "detail is negative", got=f"detail={wish.detail}", expected="a number of at least 0"
            )
        if not fine.bins:
            raise UsageError("there is nothing to release", expected="at least one bin")
        pool = _CandidateBins.of(fine, coarser)
        # every bin has the scale b N / q on its lattice: many different N are many different scales
        distinct = len(np.unique(np.concatenate([counts.samples_per_bin for counts in pool.counts])))
        scale *= 1 - (MARGIN if distinct > MOST_DISTINCT_SCALES else 0)
        return cls(wish, pool, [_losses(counts, wish, scale) for counts in pool.counts])

    def partition(self, epsilon: float) -> AdaptivePartition:
        """Return the partition whose published bins cost nobody more than ``epsilon`` > 0."""
        forest, chosen_from = _forest(self, positive(epsilon=epsilon))
        packing = _packed(forest)
        published = np.zeros(len(self.pool.cell), dtype=np.bool_)
        published[chosen_from[packing.chosen]] = True
        return _partition(self.pool, self.pool.counts[0], published, packing)


def largest_scale(wish: Wish) -> float:
    """Return the Laplace scale b of the mean (its unit) whose published half width is at most as asked.

    The half width of the lattice noise of scale B = b N/q is at most B ln(1/a) + 1/2 steps, because
    ln 2 - ln(1 + e^(-1/B)) <= 1/(2B); rounding adds at most E (``publish.rounding_bias``). So
    b = (w - q/2 - E) / ln(1/a).
    Raises UsageError for a width that rounding alone takes up, or without a mean.
    """
    if Statistic.MEAN not in wish.tolerance:
        raise UsageError(
            "a half width needs the mean", got=", ".join(wish.tolerance) or "no statistic", expected="mean"
        )
    in_range(0, 1, interval_level=wish.interval_level)
    positive(half_width=wish.half_width)
    step = float(wish.bound.step)
    room = wish.half_width - step / 2 - rounding_bias(Statistic.MEAN, wish.bound)
    if room <= 0:
        raise UsageError(
            "half width is too small for the speed step",
            got=f"half_width={wish.half_width:g}, speed_step={step:g}",
            expected="a half width of more than a step",
        )
    return room / log(1 / (1 - wish.interval_level))


@dataclass(frozen=True)
class _CandidateBins:
    """All bins of all levels, overlapping: those of level k are number ``offset[k]`` on.

    ``of_finest[k]`` (F,) is the bin of each finest one on level k; ``counts`` are their counts.
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
                raise UsageError("a level does not fit the bins", got=len(cell), expected=fine.bins)
            below = counts[-1]
            own_cell = np.empty(below.bins, dtype=np.uint64)
            own_slot = np.empty(below.bins, dtype=np.int64)
            own_cell[at], own_slot[at] = cell, slot
            if not (np.array_equal(own_cell[at], cell) and np.array_equal(own_slot[at], slot)):
                raise UsageError(
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
    """The candidates: bins with enough vehicles, whose own cost no user exceeds; and which bins they are."""
    pool, wish = priced.pool, priced.wish
    keep, values, sizes, users, costs = [], [], [], [], []
    top = len(pool.counts) - 1
    for level, (counts, loss) in enumerate(zip(pool.counts, priced.loss, strict=True)):
        # a hair more, so that rounding of the exact charge cannot make the noise wider than asked
        shares = loss / epsilon * (1 + 1e-7)
        heaviest = np.zeros(counts.bins)
        np.maximum.at(heaviest, counts.bin_index, shares)
        fits = (counts.users_per_bin >= wish.min_vehicles) & (heaviest <= 1)
        pairs = fits[counts.bin_index] & (shares > 0)
        keep.append(fits)
        values.append(counts.samples_per_bin[fits] * (1 + wish.detail * (top - level)))
        sizes.append(np.bincount(counts.bin_index[pairs], minlength=counts.bins)[fits])
        users.append(counts.user_index[pairs])
        costs.append(shares[pairs])
    candidate = np.concatenate(keep)
    number = np.cumsum(candidate) - 1
    chosen_from = np.flatnonzero(candidate)
    return (
        Forest(
            np.concatenate(values).astype(np.float64),
            pool.level[chosen_from],
            number_of_parent(pool.of_finest, candidate, number)[chosen_from],
            np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64),
            np.concatenate(users),
            np.concatenate(costs),
            pool.counts[0].users,
        ),
        chosen_from,
    )


def _losses(counts: Counts, wish: Wish, scale: float) -> FloatArray:
    """What each pair costs its user at the noise of the width, other statistics in proportion."""
    allowed = {s: scale * t / wish.tolerance[Statistic.MEAN] for s, t in wish.tolerance.items()}
    return LaplaceNoise.within(counts, wish.bound, allowed).pair_loss()


def number_of_parent(of_finest: Sequence[IntArray], candidate: BoolArray, number: IntArray) -> IntArray:
    """Return for every bin of the pool the number of the nearest candidate that holds it, -1: none."""
    parent = np.full(len(candidate), -1, dtype=np.int64)
    above = np.full(len(of_finest[0]), -1, dtype=np.int64)
    for bins in reversed(of_finest):
        parent[bins] = above
        above = np.where(candidate[bins], number[bins], above)
    return parent


def _packed(forest: Forest) -> Packing:
    """Pack in canonical order, so that the result does not depend on how users and bins are numbered."""
    if not forest.number:
        return pack(forest)
    items = Items(
        forest.value,
        forest.start,
        forest.user,
        forest.cost,
        forest.users,
    )
    order, rank = canonical_order(items)
    canonical = items.take(order, rank)
    place = np.empty(forest.number + 1, dtype=np.int64)
    place[order] = np.arange(forest.number)
    place[-1] = -1
    packing = pack(
        Forest(
            canonical.tolerance,
            forest.level[order],
            place[forest.parent[order]],
            canonical.start,
            canonical.user,
            canonical.cost,
            forest.users,
        )
    )
    chosen = np.zeros(forest.number, dtype=np.bool_)
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
