"""Blocks on the integer path: whole half widths, one scale, and every user's exact loss.

Each statistic is the integer of ``laplace.lattice`` (S, N Q - S^2 or the sum of rounded vehicle means),
times 2^shift (a negative shift floors it to multiples of 2^-shift first), and gets the noise of
``noise.block`` with half width a_i and scale s, the same whole s for all blocks. A user who moves statistic
i by at most the integer D_i pays

    sum over blocks of max_{i in block} ceil(D_i / a_i), divided by s:

a whole number of units over a float, which is a fraction as it stands, so the charge is computed exactly. The
a_i are rounded first; s is then the least float at which the heaviest user pays no more than epsilon, so that
a round epsilon is charged as that. Rounding costs at most a unit a block and user and 2^-12 of the half
widths: 2^20 units an epsilon (of 1, or of less) and a_i >= 2^12 make both negligible, and a large s keeps
the sampler's acceptance near 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.blocks import Blocks
from trafficdp.mechanisms.blocks.rows import block_rows
from trafficdp.mechanisms.laplace.integer_change import vertex
from trafficdp.mechanisms.laplace.lattice import steps_per_unit
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import CHARGE_STEP, LARGEST_LOSS, PICO, PureDP

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
UNITS = 1 << 20
"""Units that the heaviest user pays, at least, when epsilon is at most 1."""
LARGEST_START = float(1 << 40)
LEAST_HALF_WIDTH = 1 << 12
FARTHEST_BITS = 50
"""a_i s (d + 1) stays below 2^50: 512 scales of it are drawn in 64 bits."""

PAIRS_AT_ONCE = 100_000


@dataclass(frozen=True)
class BlockLattice:
    """What drawing and charging block noise needs, shape (I,) each: the item's name and its numbers.

    ``block`` numbers 0.. without gaps; ``half_width`` a_i >= 1; ``shift`` the power of two that multiplies
    the statistic's integer; ``scale`` s > 0 is common to all blocks.
    """

    statistic: tuple[Statistic, ...]
    bin: IntArray
    block: IntArray
    half_width: IntArray
    shift: IntArray
    scale: float

    @property
    def sizes(self) -> IntArray:
        """d of each item's block, shape (I,)."""
        result: IntArray = np.bincount(self.block)[self.block]
        return result


_EMPTY = np.zeros(0, dtype=np.int64)
NOTHING = BlockLattice((), _EMPTY, _EMPTY, _EMPTY, _EMPTY, 1.0)
"""Noise for no item at all."""


def to_block_lattice(
    blocks: Blocks, counts: Counts, bound: ContributionBound, epsilon: PureDP
) -> BlockLattice:
    """Return noise of at least the planned half widths whose exact loss is at most ``epsilon``.

    Raises UsageError when there is no item or no noise of this size can be drawn exactly.
    """
    if not blocks.items.number:
        raise UsageError("there is nothing to release", expected="at least one item with noise")
    wanted = whole_steps(epsilon) / PICO
    per_unit = np.empty(blocks.items.number)
    names = np.array([statistic.value for statistic in blocks.items.statistic])
    for statistic in set(blocks.items.statistic):
        mine = names == statistic.value
        per_unit[mine] = steps_per_unit(statistic, counts, bound)[blocks.items.bin[mine]]
    return fitted_lattice(
        blocks.items.statistic,
        blocks.items.bin,
        blocks.block,
        blocks.half_widths(wanted) * per_unit,
        epsilon,
        lambda lattice: _units_per_user(counts, bound, lattice),
    )


def whole_steps(epsilon: PureDP) -> int:
    """Return the largest charge within ``epsilon``, in pico-epsilons; raise UsageError when it is 0."""
    target = epsilon.pico // CHARGE_STEP * CHARGE_STEP
    if target <= 0:
        raise UsageError(
            "no noise fits the epsilon", got=f"epsilon={epsilon}", todo="ask for a larger epsilon"
        )
    return target


def fitted_lattice(
    statistic: tuple[Statistic, ...],
    place: IntArray,
    block: IntArray,
    width: FloatArray,
    epsilon: PureDP,
    units_of: Callable[[BlockLattice], IntArray],
) -> BlockLattice:
    """Return noise of at least the half widths ``width`` (whole steps of the items' integers, shape (I,)).

    ``units_of`` returns what every user pays in units of 1/s; s is the least at which nobody pays more than
    ``epsilon``. Raises UsageError as ``to_block_lattice`` does.
    """
    target = whole_steps(epsilon)
    start = min(UNITS * 2.0 ** max(0, math.ceil(-math.log2(target / PICO))), LARGEST_START)
    lattice = _lattice(statistic, place, block, width, start)
    most = int(units_of(lattice).max(initial=0))
    exact = Fraction(most * PICO, target)
    scale = float(exact)
    while Fraction(scale) < exact:
        scale = math.nextafter(scale, math.inf)
    farthest = float((lattice.half_width * (lattice.sizes + 1.0)).max()) * scale
    if not farthest < 2.0 ** (FARTHEST_BITS + 1):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"epsilon={epsilon}",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return replace(lattice, scale=scale)


def block_loss_per_user(counts: Counts, bound: ContributionBound, lattice: BlockLattice) -> IntArray:
    """Return every user's exact loss in pico-epsilons, up to a whole CHARGE_STEP, shape (users,).

    From public counts and the lattice alone, so that anyone with the counts can check a release.
    Raises UsageError when a half width or the scale is not positive.
    """
    return loss_of_units(_units_per_user(counts, bound, lattice), lattice)


def loss_of_units(units: IntArray, lattice: BlockLattice) -> IntArray:
    """Return whole charge steps of at least ``units`` / s, in pico-epsilons, shape (users,).

    Raises UsageError when the scale is not positive or a loss is out of range.
    """
    if not (math.isfinite(lattice.scale) and lattice.scale > 0):
        raise UsageError("block noise is out of range", expected="a scale above 0")
    scale = Fraction(lattice.scale) * CHARGE_STEP / PICO
    # a few different numbers of units at most a user, in exact integers
    distinct, which = np.unique(units, return_inverse=True)
    steps = [-(-each * scale.denominator // scale.numerator) for each in distinct.tolist()]
    if max(steps, default=0) * CHARGE_STEP > LARGEST_LOSS:
        raise UsageError("privacy loss is too large to account for", expected="at most one million epsilon")
    result: IntArray = np.array(steps, dtype=np.int64)[which] * CHARGE_STEP
    return result


def _units_per_user(counts: Counts, bound: ContributionBound, lattice: BlockLattice) -> IntArray:
    """Return the sum over blocks of max ceil(D_i / a_i) for every user, shape (users,)."""
    if int(lattice.half_width.min(initial=1)) < 1:
        raise UsageError("block noise is out of range", expected="half widths of at least 1")
    total = np.zeros(counts.users, dtype=np.int64)
    if not len(lattice.bin):
        return total
    first = np.searchsorted(counts.bin_index, np.arange(counts.bins + 1))
    size = np.diff(first)[lattice.bin]
    ends = np.concatenate([[0], np.cumsum(size)])
    user, unit = np.empty(ends[-1], dtype=np.int64), np.empty(ends[-1], dtype=np.int64)
    which = np.array([list(Statistic).index(each) for each in lattice.statistic])
    # some items at a time, all of one statistic: what is computed of their pairs stays in the cache
    cuts = np.searchsorted(ends, np.arange(0, ends[-1], PAIRS_AT_ONCE))
    cuts = np.unique(np.concatenate([[0], cuts, np.flatnonzero(np.diff(which)) + 1, [len(which)]]))
    for start, end in itertools.pairwise(cuts.tolist()):
        many, here = size[start:end], slice(ends[start], ends[end])
        pair = np.repeat(first[lattice.bin[start:end]] - ends[start:end], many) + np.arange(
            ends[start], ends[end]
        )
        change = _changes(lattice.statistic[start], counts, bound, pair)
        change = shifted(change, np.repeat(lattice.shift[start:end], many))
        unit[here] = -(-change // np.repeat(lattice.half_width[start:end], many))
        user[here] = counts.user_index[pair]
    rows = sparse.csr_matrix((unit, user, ends), shape=(len(which), counts.users))
    rows.check_format()
    most = block_rows(rows, lattice.block)
    np.add.at(total, most.user, most.most)
    return total


def _changes(statistic: Statistic, counts: Counts, bound: ContributionBound, pair: IntArray) -> IntArray:
    """The most that a pair moves the statistic's integer."""
    count = counts.count[pair]
    if statistic is Statistic.MEAN:
        return count * bound.steps
    if statistic is Statistic.VEHICLE_MEAN:
        return np.full(len(pair), bound.steps, dtype=np.int64)
    samples = counts.samples_per_bin[counts.bin_index[pair]]
    if float(vertex(count, samples).max(initial=0.0)) * float(bound.steps) ** 2 >= 2.0**62:
        raise UsageError(
            "a vehicle could move a variance by more than 64 bits hold", todo="choose a larger speed_step"
        )
    k = np.minimum(count, samples // 2)
    moved: IntArray = k * (samples - k) * bound.steps**2
    return moved


def shifted(change: IntArray, shift: IntArray) -> IntArray:
    """Return D 2^shift; flooring to multiples of 2^-shift may add one step to a change."""
    far = int(np.abs(shift).max(initial=0)) > 62
    if far or float(np.ldexp(change, shift).max(initial=0.0)) >= 2.0**62:
        raise UsageError("a change does not fit 64 bits", todo="choose a larger speed_step")
    up: IntArray = np.left_shift(change, np.maximum(shift, 0))
    if not bool(np.any(shift < 0)):
        return up
    down = np.right_shift(change, np.maximum(-shift, 0)) + (change > 0)
    return np.where(shift < 0, down, up).astype(np.int64)


def _lattice(
    statistic: tuple[Statistic, ...], place: IntArray, block: IntArray, width: FloatArray, scale: float
) -> BlockLattice:
    """Round half widths (integer steps of the statistic) up to a_i s / 2^shift at ``scale``."""
    # enough finer steps for a_i >= 2^12, but never so many that a draw could leave 64 bits
    finer = np.ceil(np.log2(LEAST_HALF_WIDTH * scale / width))
    most = np.floor(FARTHEST_BITS - 1 - np.log2(np.bincount(block)[block] + 1.0) - np.log2(width))
    shift = np.minimum(np.maximum(finer, 0.0), most)
    half_width = np.ceil(width * 2.0**shift / scale * (1 + 2.0**-40))
    if not bool(np.all(np.isfinite(half_width) & (half_width >= 1) & (shift >= -40) & (shift <= 60))):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            todo="ask for another epsilon or a larger speed_step",
        )
    return BlockLattice(
        statistic,
        place,
        block,
        half_width.astype(np.int64),
        shift.astype(np.int64),
        scale,
    )
