"""A second opinion before a charge: every vehicle's loss from counts and noise, in whole numbers alone.

Nothing here shares code with what plans or charges (``mechanisms.laplace.lattice``): sensitivities are
computed anew as integers, scales are taken as the exact fractions that their floats are, and a loss is
compared with its charge without rounding.

**lattice**: vehicle l loses sum_g L_g, the most over k = 0..m of k K/B + k (N - k) K^2/(c C) [+ 1/C where a
spacing c > 1 floors], plus K/B' for a vehicle mean; K = U/q, B, C, B' the scales. Its increments
K/B + (N - 2 k + 1) K^2/(c C) fall in k, so the best k is the last with one above 0, found by a division.

**moments**: vehicle l loses sum_g m L_g, L_g the most over d = 0..K of d/B + d (K - d)/(c C), plus 1/C where
a spacing c > 1 floors, plus K/B' for a vehicle mean. The best d is found as k is above.

**blocks**, **consistent**: ``steps``. **mechanism**, **zcdp_mechanism**: ``mechanisms``, ``zcdp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.calibrated import Calibrated
from trafficdp.mechanisms.clip_user.calibrated import CalibratedSuppression
from trafficdp.mechanisms.laplace.calibrated_lattice import CalibratedLattice
from trafficdp.mechanisms.laplace.lattice import Lattice
from trafficdp.mechanisms.mean_variance.calibrated import CalibratedMoments
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately
from trafficdp.mechanisms.separate.calibrated_zcdp import CalibratedZCDP
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
from trafficdp.pricing.steps import check_steps
from trafficdp.pricing.zcdp import zcdp_losses

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
    elif isinstance(calibrated, CalibratedMoments):
        check_moments(counts, bound, calibrated.lattices, charged)
    elif isinstance(calibrated, CalibratedBlocks):
        check_steps(calibrated.steps(counts, bound), charged)
    elif isinstance(calibrated, CalibratedSeparately):
        require_covered(
            lambda: [
                losses
                for statistic, part in calibrated.parts.items()
                for losses in pure_losses(part.named, counts, bound, statistic, part.epsilon)
            ],
            charged,
        )
    elif isinstance(calibrated, CalibratedZCDP):
        require_covered(
            lambda: [
                losses
                for statistic, part in calibrated.parts.items()
                for losses in zcdp_losses(part.named, counts, bound, statistic, part.rho)
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
