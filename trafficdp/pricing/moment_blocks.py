"""The second opinion on block noise of sums of x and of x (U - x), in whole numbers alone. See ``check``.

A vehicle loses the sum over blocks, divided by s, of the larger of two: the most of one bin's sums together
(the largest of m (d/a + d (K - d)/a') over d, rounded up, plus 1), and the most of one bin's sum of x and of
another bin's sum of x (K - x), each rounded up. Everything is computed anew, in Python integers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.exact import PICO, best_whole, refuse_undercharged, unsound

IntArray = npt.NDArray[np.int64]
CHUNK = 500_000
"""Pairs at a time: Python integers take memory."""


def check_moment_blocks(
    counts: Counts, bound: ContributionBound, lattice: BlockLattice, charged: IntArray
) -> None:
    """Raise AllocationError if some vehicle loses more than ``charged``, or a sum would be bare."""
    if lattice.scale <= 0 or not np.isfinite(lattice.scale):
        raise unsound("block noise without a scale")
    varies = counts.samples_per_bin > 1
    item = {}
    for statistic, needed in ((Statistic.MEAN, varies | True), (Statistic.VARIANCE, varies)):
        mine = np.flatnonzero([each is statistic for each in lattice.statistic])
        if sorted(lattice.bin[mine].tolist()) != np.flatnonzero(needed).tolist():
            raise unsound(f"the {statistic.value} of a bin would have no noise, or be drawn twice")
        item[statistic] = np.full(counts.bins, -1, dtype=np.int64)
        item[statistic][lattice.bin[mine]] = mine
    if int(lattice.half_width.min(initial=1)) < 1:
        raise unsound("a number would have no noise")
    first, second = (item[statistic] for statistic in (Statistic.MEAN, Statistic.VARIANCE))
    block_of: dict[tuple[str, int], int] = {}
    pairs = np.stack([lattice.block[first[varies]], lattice.block[second[varies]]], axis=1)
    for one, two in np.unique(pairs, axis=0).tolist():
        if (
            block_of.setdefault(("first", one), two) != two
            or block_of.setdefault(("second", two), one) != one
        ):
            raise unsound("sums of products in other blocks than their means")
    total = np.zeros(counts.users, dtype=np.int64)
    blocks = int(lattice.block.max(initial=0)) + 1
    group, place = np.unique(
        counts.user_index * blocks + lattice.block[first[counts.bin_index]], return_inverse=True
    )
    alone, other, both = _moment_block_units(counts, bound, lattice, first, second)
    top, at, after = _two_largest(alone, place, len(group))
    own, own_at, own_after = _two_largest(other, place, len(group))
    apart = np.where(at == own_at, np.maximum(top + own_after, after + own), top + own)
    lonely = np.bincount(place, minlength=len(group)) == 1
    most = np.zeros(len(group), dtype=np.int64)
    np.maximum.at(most, place, both)
    np.add.at(total, group // blocks, np.where(lonely, most, np.maximum(most, apart)))
    scale = Fraction(lattice.scale)
    over, under = scale.denominator * PICO, scale.numerator
    refuse_undercharged(int(np.count_nonzero(total.astype(object) * over > charged.astype(object) * under)))


def _moment_block_units(
    counts: Counts, bound: ContributionBound, lattice: BlockLattice, first: IntArray, second: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Units of every pair: its most by the sum of speeds, by that of products, by both of one bin."""
    results: list[list[IntArray]] = [[], [], []]
    for start in range(0, counts.pairs, CHUNK):
        pairs = np.arange(start, min(start + CHUNK, counts.pairs))
        count = counts.count[pairs].astype(object)
        one, two = first[counts.bin_index[pairs]], second[counts.bin_index[pairs]]
        widths, up, down = [], [], []
        for each in (one, two):
            widths.append(lattice.half_width[each].astype(object))
            up.append(np.maximum(lattice.shift[each], 0).astype(object))
            down.append(np.maximum(-lattice.shift[each], 0).astype(object))
        steps = count * 0 + bound.steps
        there = two >= 0
        change = (count * steps, np.where(there, count * (steps * steps // 4), 0))
        most = [-(-(((change[k] << up[k]) >> down[k]) + (down[k] > 0)) // widths[k]) for k in (0, 1)]
        most[1] = np.where(there, most[1], 0)
        # d a' 2^.. + d (K - d) a 2^.. over a a' 2^..: powers of two of both shifts to whole numbers
        linear = (widths[1] << up[0]) << down[1]
        bend = np.where(there, (widths[0] << up[1]) << down[0], 0)
        below = ((widths[0] * widths[1]) << down[0]) << down[1]
        move = best_whole(steps, steps, linear, bend)
        reached = count * (move * linear + move * (steps - move) * bend)
        floors = np.where(down[0] > 0, below // widths[0], 0) + np.where(
            there & (down[1] > 0), below // widths[1], 0
        )
        joint = -(-(reached + floors) // below) + 1
        joint = np.where(there, np.minimum(joint, most[0] + most[1]), most[0])
        for into, values in zip(results, (*most, joint), strict=True):
            into.append(values.astype(np.int64))
    alone, other, both = (np.concatenate(each) for each in results)
    return alone, other, both


def _two_largest(values: IntArray, place: IntArray, groups: int) -> tuple[IntArray, IntArray, IntArray]:
    """The largest value of every group, where it is first found, and the largest of the rest (0 if none)."""
    top, after = np.zeros(groups, dtype=np.int64), np.zeros(groups, dtype=np.int64)
    np.maximum.at(top, place, values)
    at = np.full(groups, len(values), dtype=np.int64)
    hit = np.flatnonzero(values == top[place])
    np.minimum.at(at, place[hit], hit)
    rest = np.flatnonzero(np.arange(len(values)) != at[place])
    np.maximum.at(after, place[rest], values[rest])
    return top, at, after
