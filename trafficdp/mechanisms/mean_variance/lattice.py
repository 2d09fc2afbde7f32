"""Sums of x and of x (U - x) as integers, their noise and every vehicle's exact loss (``moments_price``).

============  ==========================  =============================  ==================================
statistic     integer                     change by one vehicle          scale for b in the statistic's unit
============  ==========================  =============================  ==================================
MEAN          S = sum of steps k          m d, d in 0..U/q               b N / q
VARIANCE      W = sum of k (U/q - k)      m d (U/q - d), the same d      b N / q^2, over the spacing
VEHICLE_MEAN  as in ``laplace.lattice``
============  ==========================  =============================  ==================================

The lattice of VARIANCE is that of W: the variance is mean (U - mean) - W/N.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.lattice import LARGEST_EXPONENT, Lattice, check_squares
from trafficdp.mechanisms.mean_variance.price import record_price_bound
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.secure import LARGEST_SCALE, group_scales
from trafficdp.privacy.loss import CHARGE_STEP, loss_upper_bound, round_up, sum_per_user, to_pico

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def exact_products(contributions: Contributions) -> npt.NDArray[np.object_]:
    """Return W = (U/q) S - Q of every bin, Q the sum of squares (Python ints, shape (G,)).

    0 for a single record, whose variance is 0 without it.
    """
    counts = contributions.counts
    # per pair at most m (U/q)^2/4, which ``check_squares`` keeps in 64 bits; sums of a bin too
    pair = contributions.bound.steps * contributions.total - contributions.total_of_squares
    total = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(total, counts.bin_index, pair)
    total[counts.samples_per_bin == 1] = 0
    result: npt.NDArray[np.object_] = total.astype(object)
    return result


def products_per_unit(counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return how many integer steps of W one unit of a variance is, N / q^2, shape (G,)."""
    return np.asarray(counts.samples_per_bin * np.float64(1 / bound.step) ** 2)


def to_product_lattice(counts: Counts, bound: ContributionBound, means: Lattice, ratio: float) -> Lattice:
    """Return noise for W of scale at least ``ratio`` (U/q) B, B the scales of ``means``; none for one record.

    Raises UsageError when a sum could leave 64 bits or a scale is too large to be drawn exactly.
    """
    check_squares(counts, bound)
    lattice = round_up(round_up(means.scale * float(bound.steps)) * ratio)
    excess = np.maximum(0, np.ceil(np.log2(np.maximum(lattice / (LARGEST_SCALE / 4), 1.0))))
    spacing = np.left_shift(
        np.ones(counts.bins, dtype=np.int64), np.minimum(excess, LARGEST_EXPONENT).astype(np.int64)
    )
    # division by a power of two is exact
    grouped = group_scales(np.where(counts.samples_per_bin == 1, 0.0, lattice / spacing))
    if not bool(np.all(grouped <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"sums of products with a scale of {float(lattice.max()):.3g} steps",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return Lattice(grouped, spacing)


def moments_loss_per_user(
    counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice]
) -> IntArray:
    """Return every vehicle's loss in pico-epsilons over all bins and statistics, shape (users,).

    m p(B, C) a bin (``price``), plus 1/C where W is floored to a spacing, plus what a
    vehicle mean costs; each pair rounded up to a pico-epsilon, each vehicle's sum to CHARGE_STEP. From counts
    and scales only. Raises UsageError when mean or variance is missing or would have no noise, when a sum of
    speeds has a spacing, or another spacing is not positive.
    """
    if not {Statistic.MEAN, Statistic.VARIANCE} <= lattices.keys():
        raise UsageError("the moments are not complete", expected="noise for the mean and for the variance")
    means, products = lattices[Statistic.MEAN], lattices[Statistic.VARIANCE]
    if any(int(lattice.spacing.min(initial=1)) < 1 for lattice in lattices.values()):
        raise UsageError("a lattice spacing is not positive", expected="whole numbers of at least 1")
    if int(means.spacing.max(initial=1)) > 1:
        raise UsageError("the sum of speeds has a spacing", expected="a spacing of 1")
    # the variance of one record is 0 whatever its speed; every other one must have noise
    varies = counts.samples_per_bin > 1
    second = np.where(varies, products.scale * products.spacing, np.inf)
    price = record_price_bound(bound.steps, means.scale, np.where(np.isnan(second), 0.0, second))
    flooring = loss_upper_bound(np.where(varies & (products.spacing > 1), 1.0, 0.0), products.scale)
    place = counts.bin_index
    with np.errstate(invalid="ignore"):
        pair = round_up(round_up(counts.count * price[place]) + flooring[place])
    if Statistic.VEHICLE_MEAN in lattices:
        scale = lattices[Statistic.VEHICLE_MEAN].scale[place]
        pair = round_up(pair + loss_upper_bound(np.full(counts.pairs, float(bound.steps)), scale))
    total = sum_per_user(to_pico(pair), counts.user_index, counts.users)
    return -(-total // CHARGE_STEP) * CHARGE_STEP
