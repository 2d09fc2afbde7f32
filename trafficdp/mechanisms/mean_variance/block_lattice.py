"""Sums of x and of x (U - x) in l-infinity blocks on integers: one scale, and every vehicle's exact loss.

A block of bins draws the noise of its sums S_g together, and, independently, that of its sums W_g together
(``price``). Both are as in ``blocks.lattice``: integers times 2^shift, half widths a_g and
a'_g, one scale s for all. A vehicle that moves S_g by X_g and W_g by Y_g has in this pair of blocks the
exponent

    (max_g ceil(|X_g| / a_g) + max_h ceil(|Y_h| / a'_h)) / s.

**Theorem.** It is at most 1/s times the largest, over bins g and h of the block, m_g its records in bin g, of

    g != h:  ceil(m_g K / a_g) + ceil(m_h floor(K/2) ceil(K/2) / a'_h),   K = U/q,
    g = h:   ceil(m_g max over d = 0..K of (d / a_g + d (K - d) / a'_g)) + 1.

*Proof.* The two maxima are attained in some bins. If these differ, each sum moves at most as far as it can.
If not, |X|/a + |Y|/a' is at most m times one record's most (``moments_price``), and ceil(x) + ceil(y) <=
ceil(x + y) + 1. QED. A negative shift floors, which adds one step to a change. Without the rounding all these
are attained, since bins hold different records. So with a'_g = c K a_g the second sums cost (1 + c)^2/(4 c)
times the first alone in a block of one bin, and at most 1 + 1/(4 c) times in a larger one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.moments import record_price
from trafficdp.mechanisms.blocks.lattice import BlockLattice, loss_of_units, shifted
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.stable_order import number_pairs, stable_order
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import round_up

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]


def items_by_bin(lattice: BlockLattice, statistic: Statistic, varies: npt.NDArray[np.bool_]) -> IntArray:
    """Return the item of ``statistic`` of every bin, shape (G,), -1 where nothing can vary.

    Raises UsageError unless every bin of ``varies`` has exactly one item, and no other has any.
    """
    mine = np.flatnonzero([each is statistic for each in lattice.statistic])
    count = np.bincount(lattice.bin[mine], minlength=len(varies))
    if len(count) != len(varies) or bool(np.any(count != varies)):
        raise UsageError(
            "the blocks are not those of the bins",
            got=f"noise for {int(np.count_nonzero(count))} numbers ({statistic.value})",
            expected=f"one for each of {int(varies.sum())} that can vary",
        )
    item = np.full(len(varies), -1, dtype=np.int64)
    item[lattice.bin[mine]] = mine
    return item


def moment_block_loss(counts: Counts, bound: ContributionBound, lattice: BlockLattice) -> IntArray:
    """Return every vehicle's exact loss in pico-epsilons, up to a whole charge step, shape (users,).

    The items are MEAN (sums of x) and VARIANCE (sums of x (U - x)). From counts and the lattice alone. Raises
    UsageError when a number would have no noise, or sums of x (U - x) share no block where those of x do.
    """
    return loss_of_units(moment_block_units(counts, bound, lattice), lattice)


def moment_block_units(counts: Counts, bound: ContributionBound, lattice: BlockLattice) -> IntArray:
    """Return what every vehicle pays in units of 1/s, the theorem's added over blocks, shape (users,)."""
    if int(lattice.half_width.min(initial=1)) < 1:
        raise UsageError("block noise is out of range", expected="half widths of at least 1")
    varies = counts.samples_per_bin > 1
    first = items_by_bin(lattice, Statistic.MEAN, np.ones(counts.bins, dtype=np.bool_))
    second = items_by_bin(lattice, Statistic.VARIANCE, varies)
    _same_blocks(lattice.block[first[varies]], lattice.block[second[varies]])
    place, count, steps = counts.bin_index, counts.count, bound.steps
    one, two, with_two = first[place], second[place], varies[place]
    alone = _units(count * steps, one, lattice)
    other = np.zeros(counts.pairs, dtype=np.int64)
    largest = count * (steps // 2) * (steps - steps // 2)
    other[with_two] = _units(largest[with_two], two[with_two], lattice)
    both = np.where(with_two, _together(counts, bound, lattice, first, second), alone)
    blocks, block = np.unique(lattice.block[first], return_inverse=True)
    group, user, which = number_pairs(block[place], counts.user_index, len(blocks), counts.users)
    most = np.zeros(len(group), dtype=np.int64)
    np.maximum.at(most, which, np.minimum(both, alone + other))
    top, at, next_top = largest_two(alone, which, len(group))
    own, own_at, next_own = largest_two(other, which, len(group))
    apart = np.where(at != own_at, top + own, np.maximum(top + next_own, next_top + own))
    alone_there = np.bincount(which, minlength=len(group)) == 1
    most = np.where(alone_there, most, np.maximum(most, apart))
    total = np.zeros(counts.users, dtype=np.int64)
    np.add.at(total, user, most)
    return total


def largest_two(values: Numbers, group: IntArray, groups: int) -> tuple[Numbers, IntArray, Numbers]:
    """Return the largest value of every group, where it is, and the second largest (0 in a group of one)."""
    if not groups:
        return values[:0], np.zeros(0, dtype=np.int64), values[:0]
    order = stable_order(group, groups)
    many = np.bincount(group, minlength=groups)
    start = np.cumsum(many) - many
    sorted_values = values[order]
    top = np.maximum.reduceat(sorted_values, start)
    places = np.flatnonzero(sorted_values == np.repeat(top, many))
    # the first of equals
    places = places[np.searchsorted(places, start)]
    at = order[places].astype(np.int64)
    sorted_values[places] = sorted_values.min()
    return top, at, np.where(many > 1, np.maximum.reduceat(sorted_values, start), 0)


def _same_blocks(first: IntArray, second: IntArray) -> None:
    """Raise UsageError unless the numbers of blocks say the same partition."""
    pairs = len(np.unique(np.stack([first, second]), axis=1).T)
    if not pairs == len(np.unique(first)) == len(np.unique(second)):
        raise UsageError("sums of products are not drawn in the blocks of their means")


def _units(change: IntArray, item: IntArray, lattice: BlockLattice) -> IntArray:
    return -(-shifted(change, lattice.shift[item]) // lattice.half_width[item])


def _together(
    counts: Counts, bound: ContributionBound, lattice: BlockLattice, first: IntArray, second: IntArray
) -> IntArray:
    """The theorem's g = h for every pair, shape (P,); where no variance varies it is not asked for."""
    width, shift = lattice.half_width.astype(np.float64), lattice.shift
    # powers of two are exact; without a second item its scale is infinite
    one = np.ldexp(width[first], -shift[first])
    two = np.where(second >= 0, np.ldexp(width[second], -shift[second]), np.inf)
    floored = (shift[first] < 0) / width[first] + ((second >= 0) & (shift[second] < 0)) / width[second]
    price = record_price(bound.steps, one, two)
    place = counts.bin_index
    units = round_up(round_up(counts.count * price[place]) + round_up(floored)[place] * (floored > 0)[place])
    if float(units.max(initial=0.0)) >= 2.0**60:
        raise UsageError("a change does not fit 64 bits", todo="choose a larger speed_step")
    return np.ceil(units).astype(np.int64) + 1
