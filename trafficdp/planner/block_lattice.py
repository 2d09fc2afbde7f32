"""Blocks on the integer path: whole half widths, one scale, and every user's exact loss.

Each statistic is the integer of ``mechanisms.lattice`` (S, N Q - S^2 or the sum of rounded vehicle means),
times 2^shift (a negative shift floors it to multiples of 2^-shift first), and gets the noise of
``noise.block`` with half width a_i and scale s, the same whole s for all blocks. A user who moves statistic
i by at most the integer D_i pays

    sum over blocks of max_{i in block} ceil(D_i / a_i), divided by s:

a whole number over a whole number, so the charge is computed without any float. Rounding costs at most 1/s a
block and user, and 2^-12 of the half widths: s = 2^20 and a_i >= 2^12 make both negligible, and a large s
keeps the sampler's acceptance near 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp._validate import positive
from trafficdp.bounding.sensitivity import vertex
from trafficdp.errors import UsageError
from trafficdp.mechanisms.lattice import CHARGE_STEP, steps_per_unit
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.planner.blocks import Blocks
from trafficdp.privacy.loss import PICO, PureDP

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
SCALE = 1 << 20
LEAST_HALF_WIDTH = 1 << 12
FARTHEST_BITS = 50
"""a_i s (d + 1) stays below 2^50: 512 scales of it are drawn in 64 bits."""


@dataclass(frozen=True)
class BlockLattice:
    """What drawing and charging block noise needs, shape (I,) each: the item's name and its numbers.

    ``block`` numbers 0.. without gaps; ``half_width`` a_i >= 1; ``shift`` the power of two that multiplies
    the statistic's integer; ``scale`` s is common to all blocks.
    """

    statistic: tuple[Statistic, ...]
    bin: IntArray
    block: IntArray
    half_width: IntArray
    shift: IntArray
    scale: int


def to_block_lattice(
    blocks: Blocks, occupancy: Occupancy, bound: ContributionBound, epsilon: PureDP
) -> BlockLattice:
    """Return noise of at least the planned half widths whose exact loss is at most ``epsilon``.

    Raises UsageError when there is no item or no noise of this size can be drawn exactly.
    """
    if not blocks.items.number:
        raise UsageError("there is nothing to release", expected="at least one item with noise")
    target = epsilon.pico // CHARGE_STEP * CHARGE_STEP
    wanted = positive(epsilon=target / PICO)
    per_unit = np.empty(blocks.items.number)
    names = np.array([statistic.value for statistic in blocks.items.statistic])
    for statistic in set(blocks.items.statistic):
        mine = names == statistic.value
        per_unit[mine] = steps_per_unit(statistic, occupancy, bound)[blocks.items.bin[mine]]
    for _ in range(50):
        lattice = _lattice(blocks, blocks.half_widths(wanted) * per_unit)
        spent = int(block_loss_per_user(occupancy, bound, lattice).max(initial=0))
        if spent <= target:
            return lattice
        wanted *= target / spent * (1 - 1e-9)
    raise UsageError("no noise fits the epsilon", got=f"epsilon={epsilon}", todo="ask for a larger epsilon")


def block_loss_per_user(occupancy: Occupancy, bound: ContributionBound, lattice: BlockLattice) -> IntArray:
    """Return every user's exact loss in pico-epsilons, up to a whole CHARGE_STEP, shape (users,).

    From public counts and the lattice alone, so that anyone with the counts can check a release.
    Raises UsageError when a half width or the scale is not positive, or a statistic that can vary has no
    noise while its bin's other items do.
    """
    if lattice.scale < 1 or int(lattice.half_width.min(initial=1)) < 1:
        raise UsageError("block noise is out of range", expected="half widths and a scale of at least 1")
    keys, units = [], []
    first = np.searchsorted(occupancy.bin_index, np.arange(occupancy.bins + 1))
    for statistic in dict.fromkeys(lattice.statistic):
        items = np.flatnonzero([each is statistic for each in lattice.statistic])
        size = first[lattice.bin[items] + 1] - first[lattice.bin[items]]
        pair = np.repeat(first[lattice.bin[items]] - (np.cumsum(size) - size), size) + np.arange(size.sum())
        item = np.repeat(items, size)
        change = _shifted(_changes(statistic, occupancy, bound, pair), lattice.shift[item])
        units.append(-(-change // lattice.half_width[item]))
        keys.append(lattice.block[item] * occupancy.users + occupancy.user_index[pair])
    key, unit = np.concatenate(keys), np.concatenate(units)
    total = np.zeros(occupancy.users, dtype=np.int64)
    if len(key):
        order = np.argsort(key, kind="stable")
        key, unit = key[order], unit[order]
        start = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        np.add.at(total, key[start] % occupancy.users, np.maximum.reduceat(unit, start))
    whole, rest = np.divmod(total, lattice.scale)
    pico = whole * PICO - (-(rest * PICO) // lattice.scale)
    result: IntArray = -(-pico // CHARGE_STEP) * CHARGE_STEP
    return result


def _changes(
    statistic: Statistic, occupancy: Occupancy, bound: ContributionBound, pair: IntArray
) -> IntArray:
    """The most that a pair moves the statistic's integer."""
    count = occupancy.count[pair]
    if statistic is Statistic.MEAN:
        return count * bound.steps
    if statistic is Statistic.VEHICLE_MEAN:
        return np.full(len(pair), bound.steps, dtype=np.int64)
    samples = occupancy.samples_per_bin[occupancy.bin_index[pair]]
    if float(vertex(count, samples).max(initial=0.0)) * float(bound.steps) ** 2 >= 2.0**62:
        raise UsageError(
            "a vehicle could move a variance by more than 64 bits hold", todo="choose a larger speed_step"
        )
    k = np.minimum(count, samples // 2)
    moved: IntArray = k * (samples - k) * bound.steps**2
    return moved


def _shifted(change: IntArray, shift: IntArray) -> IntArray:
    """D 2^shift; flooring to multiples of 2^-shift may add one step to a change."""
    if float((change * 2.0**shift).max(initial=0.0)) >= 2.0**62:
        raise UsageError("a change does not fit 64 bits", todo="choose a larger speed_step")
    up = np.left_shift(change, np.maximum(shift, 0))
    down = np.right_shift(change, np.maximum(-shift, 0)) + (change > 0)
    return np.where(shift < 0, down, up).astype(np.int64)


def _lattice(blocks: Blocks, width: FloatArray) -> BlockLattice:
    """Round half widths (integer steps of the statistic) up to a_i s / 2^shift."""
    # enough finer steps for a_i >= 2^12, but never so many that a draw could leave 64 bits
    finer = np.ceil(np.log2(LEAST_HALF_WIDTH * SCALE / width))
    most = np.floor(FARTHEST_BITS - 1 - np.log2(blocks.size + 1.0) - np.log2(width))
    shift = np.minimum(np.maximum(finer, 0.0), most)
    half_width = np.ceil(width * 2.0**shift / SCALE * (1 + 2.0**-40))
    if not bool(np.all(np.isfinite(half_width) & (half_width >= 1) & (shift >= -40) & (shift <= 60))):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            todo="ask for another epsilon or a larger speed_step",
        )
    return BlockLattice(
        blocks.items.statistic,
        blocks.items.bin,
        blocks.block,
        half_width.astype(np.int64),
        shift.astype(np.int64),
        SCALE,
    )
