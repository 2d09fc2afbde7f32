"""The accounting ``moment_blocks``: the accounting ``moments`` with the blocks of a map of means.

The bins' blocks are those found for the means alone. In a block of d both kinds of sums are drawn together,
the first with expected noise E t_mean / r_d a mean, the second with c U times that; psi_d(c) is the size of
both noises over that of the first (``noise.block_pair``), r_d = max(1, U psi_d(c) t_mean / t_var) makes the
worst relative noise E everywhere. With x_g = U m/(N t_mean) a vehicle pays for the pair of blocks
(``block_lattice``)

    (r_d (d + 1)/2 / E) max( max over g of x_g cost(c), max over g != h of (x_g + x_h / (4 c)) ).

c is the best of ``RATIOS``, by counts alone. With every bin its own block this is ``moments``, at its c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.blocks import Blocks, clamped_error
from trafficdp.mechanisms.blocks.lattice import fitted_lattice, whole_steps
from trafficdp.mechanisms.calibrated import CalibratedPure
from trafficdp.mechanisms.laplace.lattice import check_squares, steps_per_unit
from trafficdp.mechanisms.mean_variance.block_lattice import largest_two, moment_block_units
from trafficdp.mechanisms.mean_variance.calibrated_blocks import NAME, CalibratedMomentBlocks
from trafficdp.mechanisms.mean_variance.lattice import products_per_unit
from trafficdp.mechanisms.pairs import relative_price
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.stable_order import number_pairs
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block_pair import pair_mean
from trafficdp.privacy.loss import PICO, PureDP

FloatArray = npt.NDArray[np.float64]
RATIOS = (0.45, 0.5, 0.55, 0.6, 0.65, 0.75, 0.9, 1.0, 1.5, 2.5)


@dataclass(frozen=True)
class MomentBlockAccounting:
    """See Accounting. ``blocks`` are those of the means; ``smaller`` (G,) is 1/r_d, ``psi`` (G,) psi_d(c)."""

    blocks: Blocks
    factor: float
    ratio: float
    upper: float
    varies: npt.NDArray[np.bool_]
    smaller: FloatArray
    psi: FloatArray

    name = NAME

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting."""
        mean = self.factor / epsilon * self.blocks.items.tolerance * self.smaller
        variance = np.where(self.varies, self.upper * self.psi * mean, 0.0)
        return {Statistic.MEAN: mean, Statistic.VARIANCE: variance}

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        scales = self.scales(epsilon)
        return max(float(scales[s].max(initial=0.0)) / tolerance[s] for s in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Accounting: for variances at most the range."""
        scales = self.scales(epsilon)
        size = self.blocks.size
        width = 2 * scales[Statistic.MEAN] / (size + 1)
        mean = clamped_error(size, width, np.full(len(size), self.upper))
        variance = np.minimum(scales[Statistic.VARIANCE], Statistic.VARIANCE.largest(bound.upper))
        return {Statistic.MEAN: mean, Statistic.VARIANCE: variance}

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """See Accounting."""
        check_squares(counts, bound)
        wanted = whole_steps(target) / PICO
        width = 2 * self.scales(wanted)[Statistic.MEAN] / (self.blocks.size + 1)
        products = np.flatnonzero(self.varies)
        second = (self.ratio * self.upper * width * products_per_unit(counts, bound))[products]
        own = np.unique(self.blocks.block[products], return_inverse=True)[1]
        lattice = fitted_lattice(
            (Statistic.MEAN,) * counts.bins + (Statistic.VARIANCE,) * len(products),
            np.concatenate([np.arange(counts.bins), products]),
            np.concatenate([self.blocks.block, self.blocks.block.max() + 1 + own]),
            np.concatenate([width * steps_per_unit(Statistic.MEAN, counts, bound), second]),
            target,
            lambda lattice: moment_block_units(counts, bound, lattice),
        )
        return CalibratedMomentBlocks(lattice)


def moment_block_accounting(
    blocks: Blocks, counts: Counts, bound: ContributionBound, variance: float
) -> MomentBlockAccounting:
    """Return the accounting for the means of ``blocks`` (one item a bin, in their order) and variances.

    ``variance`` is the tolerance of the variances.
    """
    upper, size = float(bound.upper), blocks.size
    allowed = blocks.items.tolerance
    varies = counts.samples_per_bin > 1
    items, sizes = blocks.items, np.bincount(blocks.block)
    group, owner, which = number_pairs(blocks.block[items.of_entry], items.user, len(sizes), items.users)
    top, _, second = largest_two(items.cost, which, len(group))
    d = sizes[group]
    found = []
    for ratio in RATIOS:
        by_size = {each: pair_mean(each, ratio) * 2 / (each + 1) for each in np.unique(size).tolist()}
        psi = np.array([by_size[each] for each in size.tolist()])
        larger = np.maximum(1.0, upper * psi * allowed / variance)
        of_block = np.ones(len(sizes))
        of_block[blocks.block] = larger
        price = np.maximum(
            top * float(relative_price(bound.steps, ratio)), (second > 0) * (top + second / (4 * ratio))
        )
        load = np.bincount(
            owner,
            weights=of_block[group] * (d + 1) / 2 * price,
            minlength=items.users,
        )
        factor = float(load.max(initial=0.0))
        found.append(MomentBlockAccounting(blocks, factor, ratio, upper, varies, 1 / larger, psi))
    return min(found, key=lambda accounting: accounting.factor)
