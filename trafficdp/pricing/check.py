"""A second opinion before a charge: every vehicle's loss from counts and noise, in whole numbers alone.

Nothing here shares code with what plans or charges (``mechanisms.laplace.lattice``,
``mechanisms.blocks.lattice``): sensitivities are computed anew as integers, scales are taken as the exact
fractions that their floats are, and a loss is compared with its charge without rounding.

**lattice**: vehicle l loses sum_g L_g, the most over k = 0..m of k K/B + k (N - k) K^2/(c C) [+ 1/C where a
spacing c > 1 floors], plus K/B' for a vehicle mean; K = U/q, B, C, B' the scales. Its increments
K/B + (N - 2 k + 1) K^2/(c C) fall in k, so the best k is the last with one above 0, found by a division.

**moments**: vehicle l loses sum_g m L_g, L_g the most over d = 0..K of d/B + d (K - d)/(c C), plus 1/C where
a spacing c > 1 floors, plus K/B' for a vehicle mean. The best d is found as k is above.

**blocks**: the sum over blocks of the largest ceil(D 2^shift / a), divided by s; D the change of the item.
**moment_blocks** have a file of their own, ``moment_blocks``.

**consistent**: the same, where a parent p is the mean of a bin G + p: D is K times the vehicle's records in
all bins of p.

**mechanism**: ``mechanisms``; none yet of what counts in rho.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.mechanisms.calibrated import Calibrated
from trafficdp.mechanisms.clip_user.calibrated import CalibratedSuppression
from trafficdp.mechanisms.consistent.calibrated import CalibratedConsistent
from trafficdp.mechanisms.laplace.calibrated_lattice import CalibratedLattice
from trafficdp.mechanisms.laplace.lattice import Lattice
from trafficdp.mechanisms.mean_variance.calibrated import CalibratedMoments
from trafficdp.mechanisms.mean_variance.calibrated_blocks import CalibratedMomentBlocks
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.exact import (
    FRACTION_BITS,
    PICO,
    as_ratio,
    best_whole,
    refuse_undercharged,
    require_covered,
    unsound,
)
from trafficdp.pricing.mechanisms import pure_losses
from trafficdp.pricing.moment_blocks import check_moment_blocks
from trafficdp.pricing.moves import integer_moves
from trafficdp.privacy.loss_kind import LossKind

IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]
CHUNK = 500_000
"""Pairs at a time: Python integers take memory."""


@dataclass(frozen=True)
class _Terms:
    """The exact loss of every pair (P,), as ``numerator`` / ``denominator`` of Python integers."""

    numerator: ObjectArray
    denominator: ObjectArray


def check_calibrated(
    calibrated: Calibrated, counts: Counts, bound: ContributionBound, charged: IntArray
) -> None:
    """Raise AllocationError if some vehicle loses more than ``charged`` (10^-12, shape (users,)).

    Also for a kind of calibrated mechanism without a price of its own here.
    """
    if isinstance(calibrated, CalibratedLattice):
        check_lattices(counts, bound, calibrated.lattices, charged)
    elif isinstance(calibrated, CalibratedSuppression):
        check_lattices(calibrated.rest(counts, bound), bound, calibrated.lattices, charged)
    elif isinstance(calibrated, CalibratedMomentBlocks):
        check_moment_blocks(counts, bound, calibrated.lattice, charged)
    elif isinstance(calibrated, CalibratedMoments):
        check_moments(counts, bound, calibrated.lattices, charged)
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


def check_lattices(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice], charged: IntArray
) -> None:
    """Raise AllocationError if some vehicle loses more than ``charged`` (pico-epsilons, shape (users,))."""
    _check_terms(counts, charged, lambda pairs: _lattice_terms(counts, bound, lattices, pairs))


def check_moments(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice], charged: IntArray
) -> None:
    """Raise AllocationError if some vehicle loses more than ``charged``, or a sum would be bare."""
    if not {Statistic.MEAN, Statistic.VARIANCE} <= lattices.keys():
        raise unsound("sums of speeds or of products without noise")
    if int(lattices[Statistic.MEAN].spacing.max(initial=1)) != 1:
        raise unsound("sums of speeds on a spacing")
    _check_terms(counts, charged, lambda pairs: _moment_terms(counts, bound, lattices, pairs))


def _check_terms(counts: Counts, charged: IntArray, terms_of: Callable[[IntArray], _Terms]) -> None:
    """Raise AllocationError if the terms of some vehicle's pairs add up to more than ``charged``."""
    whole, rest = _zeros(counts), _zeros(counts)
    for start in range(0, counts.pairs, CHUNK):
        pairs = np.arange(start, min(start + CHUNK, counts.pairs))
        terms = terms_of(pairs)
        scaled = (terms.numerator * (PICO << FRACTION_BITS)) // terms.denominator
        users = counts.user_index[pairs]
        np.add.at(whole, users, (scaled >> FRACTION_BITS).astype(np.int64))
        np.add.at(rest, users, (scaled & ((1 << FRACTION_BITS) - 1)).astype(np.int64))
    whole += rest >> FRACTION_BITS
    rest &= (1 << FRACTION_BITS) - 1
    # each pair was rounded down by less than one 2^-30
    most = whole + ((rest + counts.bins_per_user) >> FRACTION_BITS) + 1
    refuse_undercharged(int(np.count_nonzero(whole > charged)))
    for user in np.flatnonzero((whole <= charged) & (most > charged)).tolist():
        pairs = np.flatnonzero(counts.user_index == user)
        terms = terms_of(pairs)
        loss = sum(map(Fraction, terms.numerator.tolist(), terms.denominator.tolist()), Fraction(0))
        refuse_undercharged(int(loss * PICO > int(charged[user])))


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


def _lattice_terms(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice], pairs: IntArray
) -> _Terms:
    place = counts.bin_index[pairs]
    count = counts.count[pairs].astype(object)
    samples = counts.samples_per_bin[place].astype(object)
    one = np.ones(len(pairs), dtype=object)
    steps = bound.steps
    # k (linear + (N - k) bend) + floor, each a fraction
    linear, linear_over = one * 0, one
    bend, bend_over = one * 0, one
    extra, extra_over = one * 0, one
    if Statistic.MEAN in lattices:
        scale, over = _exact(lattices[Statistic.MEAN], place, one == 1)
        linear, linear_over = steps * over, scale
    if Statistic.VARIANCE in lattices:
        varies = samples > 1
        scale, over = _exact(lattices[Statistic.VARIANCE], place, varies)
        spacing = lattices[Statistic.VARIANCE].spacing[place].astype(object)
        bend = np.where(varies, steps * steps * over, 0)
        bend_over = scale * spacing
        extra = np.where(varies & (spacing > 1), over, 0)
        extra_over = scale
    best = best_whole(count, samples, linear * bend_over, bend * linear_over)
    numerator = best * (linear * bend_over + (samples - best) * bend * linear_over)
    total, below = numerator, linear_over * bend_over
    total, below = total * extra_over + extra * below, below * extra_over
    if Statistic.VEHICLE_MEAN in lattices:
        scale, over = _exact(lattices[Statistic.VEHICLE_MEAN], place, one == 1)
        total, below = total * scale + steps * over * below, below * scale
    return _Terms(total, below)


def _moment_terms(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice], pairs: IntArray
) -> _Terms:
    place = counts.bin_index[pairs]
    count = counts.count[pairs].astype(object)
    one = np.ones(len(pairs), dtype=object)
    steps = one * bound.steps
    first, first_over = _exact(lattices[Statistic.MEAN], place, one == 1)
    varies = counts.samples_per_bin[place] > 1
    products = lattices[Statistic.VARIANCE]
    second, second_over = _exact(products, place, varies)
    spacing = products.spacing[place].astype(object)
    # d/B and d (K - d)/(c C) over the common denominator below
    linear = first_over * second * spacing
    bend = np.where(varies, second_over * first, 0)
    below = first * second * spacing
    best = best_whole(steps, steps, linear, bend)
    total = count * (best * linear + best * (steps - best) * bend)
    total = total + np.where(varies & (spacing > 1), second_over * first * spacing, 0)
    if Statistic.VEHICLE_MEAN in lattices:
        scale, over = _exact(lattices[Statistic.VEHICLE_MEAN], place, one == 1)
        total, below = total * scale + steps * over * below, below * scale
    return _Terms(total, below)


def _exact(
    lattice: Lattice, place: IntArray, varies: npt.NDArray[np.bool_]
) -> tuple[ObjectArray, ObjectArray]:
    """The scales of the pairs as numerators and denominators; AllocationError where one is missing."""
    scale, spacing = lattice.scale[place], lattice.spacing[place]
    if bool(np.any(varies & ~(np.isfinite(scale) & (scale > 0)))) or int(spacing.min(initial=1)) < 1:
        raise unsound("a number that can vary would have no noise")
    return as_ratio(np.where(varies, scale, 1.0))


def _zeros(counts: Counts) -> IntArray:
    return np.zeros(counts.users, dtype=np.int64)
