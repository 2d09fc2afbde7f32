"""A second opinion before a charge: every vehicle's loss from counts and noise, in whole numbers alone.

Nothing here shares code with what plans or charges (``mechanisms.laplace.lattice``,
``mechanisms.blocks.lattice``): sensitivities are computed anew as integers, scales are taken as the exact
fractions that their floats are, and a loss is compared with its charge without rounding.

**blocks**: the sum over blocks of the largest ceil(D 2^shift / a), divided by s; D the change of the item.
**moment_blocks** have a file of their own, ``moment_blocks``.

**consistent**: the same, where a parent p is the mean of a bin G + p: D is K times the vehicle's records in
all bins of p.

**mechanism**: ``mechanisms``; none yet of what counts in rho.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.mechanisms.calibrated import Calibrated
from trafficdp.mechanisms.clip_user.calibrated import CalibratedSuppression
from trafficdp.mechanisms.consistent.calibrated import CalibratedConsistent
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.mean_variance.calibrated_blocks import CalibratedMomentBlocks
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.exact import (
    PICO,
    refuse_undercharged,
    require_covered,
    unsound,
)
from trafficdp.pricing.mechanisms import pure_losses
from trafficdp.pricing.moment_blocks import check_moment_blocks
from trafficdp.pricing.moves import integer_moves
from trafficdp.pricing.steps import check_steps
from trafficdp.privacy.loss_kind import LossKind

IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]
CHUNK = 500_000
"""Pairs at a time: Python integers take memory."""


def check_calibrated(
    calibrated: Calibrated, counts: Counts, bound: ContributionBound, charged: IntArray
) -> None:
    """Raise AllocationError if some vehicle loses more than ``charged`` (10^-12, shape (users,)).

    Also for a kind of calibrated mechanism without a price of its own here.
    """
    if isinstance(calibrated, CalibratedLaplace | CalibratedSuppression):
        check_steps(calibrated.steps(counts, bound), charged)
    elif isinstance(calibrated, CalibratedMomentBlocks):
        check_moment_blocks(counts, bound, calibrated.lattice, charged)
    elif isinstance(calibrated, CalibratedBlocks):
        check_blocks(counts, bound, calibrated.statistics, calibrated.lattice, charged)
    elif isinstance(calibrated, CalibratedConsistent):
        check_blocks(counts, bound, calibrated.statistics, calibrated.lattice, charged, calibrated.parents.of)
    elif isinstance(calibrated, CalibratedSeparately):
        require_covered(
            lambda: [
                losses
                for statistic, part in calibrated.parts.items()
                if calibrated.loss_kind is LossKind.PURE
                for losses in pure_losses(
                    calibrated.mechanisms[statistic], counts, bound, statistic, part.loss
                )
            ],
            charged,
        )
    else:
        raise unsound(f"a calibrated mechanism of kind {calibrated.kind}, which has no second price")


def check_blocks(
    counts: Counts,
    bound: ContributionBound,
    statistics: tuple[Statistic, ...],
    lattice: BlockLattice,
    charged: IntArray,
    parent: IntArray | None = None,
) -> None:
    """Raise AllocationError if some vehicle loses more than ``charged``, or a number would be bare.

    ``parent`` (G,) is the number of every bin's parent, -1 for none; parent p is the mean of a bin G + p.
    """
    if lattice.scale <= 0 or not np.isfinite(lattice.scale):
        raise unsound("block noise without a scale")
    blocks = int(lattice.block.max(initial=0)) + 1
    keys: list[IntArray] = []
    units: list[IntArray] = []
    above = np.zeros(len(lattice.bin), dtype=np.bool_)
    if parent is not None:
        above = lattice.bin >= counts.bins
        keys, units = _of_parents(counts, bound, lattice, np.flatnonzero(above), parent, blocks)
    for statistic in statistics:
        mine = np.flatnonzero([each is statistic for each in lattice.statistic] & ~above)
        item_of = np.full(counts.bins, -1, dtype=np.int64)
        item_of[lattice.bin[mine]] = mine
        if len(np.unique(lattice.bin[mine])) != len(mine):
            raise unsound(f"the {statistic.value} of a bin would be drawn twice")
        for start in range(0, counts.pairs, CHUNK):
            pairs = np.arange(start, min(start + CHUNK, counts.pairs))
            change = integer_moves(statistic, bound, counts, pairs)
            pairs, change = pairs[change > 0], change[change > 0]
            item = item_of[counts.bin_index[pairs]]
            if int(item.min(initial=0)) < 0 or int(lattice.half_width[item].min(initial=1)) < 1:
                raise unsound(f"the {statistic.value} of a bin would have no noise")
            units.append(_units(lattice, item, change))
            keys.append(counts.user_index[pairs] * blocks + lattice.block[item])
    if not keys:
        return
    group, place = np.unique(np.concatenate(keys), return_inverse=True)
    most = np.zeros(len(group), dtype=np.int64)
    np.maximum.at(most, place, np.concatenate(units))
    total = np.zeros(counts.users, dtype=np.int64)
    np.add.at(total, group // blocks, most)
    scale = Fraction(lattice.scale)
    over, under = scale.denominator * PICO, scale.numerator
    refuse_undercharged(int(np.count_nonzero(total.astype(object) * over > charged.astype(object) * under)))


def _of_parents(
    counts: Counts,
    bound: ContributionBound,
    lattice: BlockLattice,
    items: IntArray,
    parent: IntArray,
    blocks: int,
) -> tuple[list[IntArray], list[IntArray]]:
    """Keys (user and block) and units of the parents, whose items are ``items``."""
    number = int(parent.max(initial=-1)) + 1
    if len(parent) != counts.bins or int(parent.min(initial=-1)) < -1:
        raise unsound("parents of other bins")
    item_of = dict(zip((lattice.bin[items] - counts.bins).tolist(), items.tolist(), strict=True))
    means = all(lattice.statistic[item] is Statistic.MEAN for item in items.tolist())
    if not means or len(items) != number or sorted(item_of) != list(range(number)):
        raise unsound("the mean over a parent would be drawn twice or not at all")
    pairs = np.flatnonzero(parent[counts.bin_index] >= 0)
    where = (counts.user_index[pairs], parent[counts.bin_index[pairs]])
    # what is there twice is added up
    records = sparse.coo_array((counts.count[pairs], where), shape=(counts.users, number)).tocsr().tocoo()
    user = records.row.astype(np.int64)
    item = np.array([item_of[each] for each in range(number)], dtype=np.int64)[records.col]
    if int(lattice.half_width[item].min(initial=1)) < 1:
        raise unsound("the mean over a parent would have no noise")
    change = records.data.astype(object) * bound.steps
    return [user * blocks + lattice.block[item]], [_units(lattice, item, change)]


def _units(lattice: BlockLattice, item: IntArray, change: ObjectArray) -> IntArray:
    """ceil(D 2^shift / a), where flooring may add one."""
    width = lattice.half_width[item].astype(object)
    finer, coarser = (np.maximum(sign * lattice.shift[item], 0).astype(object) for sign in (1, -1))
    moved = ((change << finer) >> coarser) + (coarser > 0)
    result: IntArray = (-(-moved // width)).astype(np.int64)
    return result
