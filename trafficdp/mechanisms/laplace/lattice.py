"""The integer path: each statistic as an integer, its noise scale on that integer, and its exact loss.

============  ===========================  ==========================  =================================
statistic     integer                      change by one vehicle       scale for b in the statistic's unit
============  ===========================  ==========================  =================================
MEAN          S = sum of steps             (U/q) m                     b N / q
VARIANCE      N Q - S^2                    (U/q)^2 k (N - k)           b N^2 / q^2, over the spacing
VEHICLE_MEAN  sum of rounded vehicle means U/q                         b L / q
============  ===========================  ==========================  =================================

U/q is a whole number because the step q divides U and values are clipped before rounding. A variance
whose scale would exceed 2^55 is first floored to multiples of a spacing s: sensitivity floor(D/s) + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.sensitivity import joint_cost
from trafficdp.errors import UsageError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.secure import LARGEST_SCALE, group_scales
from trafficdp.privacy.loss import CHARGE_STEP, loss_upper_bound, round_up, sum_per_user, to_pico

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LARGEST_EXPONENT = 62
"""Spacings are powers of two in 64 bits."""


@dataclass(frozen=True)
class Lattice:
    """Noise of one statistic over G bins: discrete Laplace of ``scale`` on multiples of ``spacing``.

    Scale 0 means that the statistic can only take one value (the variance of one record).
    """

    scale: FloatArray
    spacing: IntArray


def steps_per_unit(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return how many integer steps one unit of the statistic is, shape (G,)."""
    per_unit = np.float64(1 / bound.step)
    if statistic is Statistic.MEAN:
        return (counts.samples_per_bin * per_unit).astype(np.float64)
    if statistic is Statistic.VARIANCE:
        return counts.samples_per_bin.astype(np.float64) ** 2 * per_unit**2
    return (counts.users_per_bin * per_unit).astype(np.float64)


def to_lattice(statistic: Statistic, counts: Counts, bound: ContributionBound, scale: FloatArray) -> Lattice:
    """Return the lattice noise for Laplace scales ``scale`` (statistic's unit, shape (G,)), never less.

    Raises UsageError for scales that are negative or not finite, too large to be drawn exactly (nothing
    may fail after a charge), or for bins whose sum of squares could leave 64 bits.
    """
    if not bool(np.all(np.isfinite(scale) & (scale >= 0))):
        raise UsageError("a noise scale is not a number of at least 0", expected="finite scales")
    lattice = round_up(scale * round_up(steps_per_unit(statistic, counts, bound)))
    spacing = np.ones(counts.bins, dtype=np.int64)
    if statistic is Statistic.VARIANCE:
        check_squares(counts, bound)
        excess = np.maximum(0, np.ceil(np.log2(np.maximum(lattice / (LARGEST_SCALE / 4), 1.0))))
        spacing = np.left_shift(spacing, np.minimum(excess, LARGEST_EXPONENT).astype(np.int64))
        # division by a power of two is exact
        lattice = np.where(counts.samples_per_bin == 1, 0.0, lattice / spacing)
    grouped = group_scales(lattice)
    if not bool(np.all(grouped <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"{statistic.value} with a scale of {float(scale.max()):.3g} {bound.unit.label}",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return Lattice(grouped, spacing)


def check_squares(counts: Counts, bound: ContributionBound) -> None:
    """Raise UsageError for bins whose sum of squares could leave 64 bits."""
    most = int(counts.samples_per_bin.max(initial=0))
    if most * bound.steps**2 > np.iinfo(np.int64).max:
        raise UsageError(
            "sums of squares could leave 64 bits",
            got=f"{most} records in a bin at {bound.steps} steps up to the speed bound",
            todo="choose a larger speed_step",
        )


def loss_per_user(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice]
) -> IntArray:
    """Return every user's loss in pico-epsilons over all bins and statistics, shape (users,).

    Mean and variance of a bin are priced jointly (``joint_cost``); a vehicle mean beside them adds its
    own cost; bins add (Theorem A). Each pair's loss is rounded up to a whole pico-epsilon, each
    user's sum to CHARGE_STEP. Depends on
    public counts and scales only, so that anyone with the counts can check a published release.
    Raises UsageError when a statistic that can vary has no noise, or a spacing is not positive.
    """
    if any(int(lattice.spacing.min(initial=1)) < 1 for lattice in lattices.values()):
        raise UsageError("a lattice spacing is not positive", expected="whole numbers of at least 1")
    loss = np.zeros(counts.pairs)
    if Statistic.VEHICLE_MEAN in lattices:
        scale = lattices[Statistic.VEHICLE_MEAN].scale[counts.bin_index]
        loss = loss_upper_bound(np.full(counts.pairs, float(bound.steps)), scale)
    pair = _moments_loss(counts, bound, lattices)
    total = loss + pair
    # rounding of the sum is covered by one more step up
    pico = to_pico(np.where(total > 0, round_up(total), 0.0))
    total_pico = sum_per_user(pico, counts.user_index, counts.users)
    return -(-total_pico // CHARGE_STEP) * CHARGE_STEP


def _moments_loss(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice]
) -> FloatArray:
    """Upper bounds of the losses of mean and variance together, shape (P,)."""
    zero = np.zeros(counts.pairs)
    samples = counts.samples_per_bin[counts.bin_index]
    linear = quadratic = rounding = zero
    if Statistic.MEAN in lattices:
        scale = lattices[Statistic.MEAN].scale[counts.bin_index]
        linear = loss_upper_bound(np.full(counts.pairs, float(bound.steps)), scale)
    if Statistic.VARIANCE in lattices:
        lattice = lattices[Statistic.VARIANCE]
        scale = lattice.scale[counts.bin_index]
        spacing = lattice.spacing[counts.bin_index]
        # the variance of one record is 0 whatever its speed; every other one must have noise
        varies = samples > 1
        units = np.where(varies, round_up(float(bound.steps) ** 2 / spacing), 0.0)
        quadratic = loss_upper_bound(units, scale)
        # flooring to the spacing may add one step to the change
        rounding = loss_upper_bound(np.where(varies & (spacing > 1), 1.0, 0.0), scale)
    cost = joint_cost(counts.count, samples, linear, quadratic)
    # joint_cost makes four roundings of relative size 2^-53 at most
    return np.where(cost + rounding > 0, round_up(cost * (1 + 2.0**-50) + rounding), 0.0)
