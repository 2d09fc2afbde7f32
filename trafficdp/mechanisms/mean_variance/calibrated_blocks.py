"""Calibrated ``moment_blocks``: sums of x in l-infinity blocks, and sums of x (U - x) in the same blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.blocks.estimates import (
    Spread,
    block_columns,
    block_estimate,
    interval_half_width,
    spread_of,
    unclamped,
)
from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.mechanisms.calibrated import Columns, Statement
from trafficdp.mechanisms.laplace.calibrated import largest_sensitivity
from trafficdp.mechanisms.mean_variance.block_lattice import moment_block_loss
from trafficdp.mechanisms.mean_variance.lattice import exact_products, products_per_unit
from trafficdp.mechanisms.pairs import (
    POST_PROCESSING,
    SENSITIVITY,
    VarianceNoise,
    variance_estimate,
)
from trafficdp.mechanisms.promise import ASSUMPTIONS
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.noise import block as block_noise
from trafficdp.noise.block_pair import pair_bounds
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
KIND = NAME = "moment_blocks"
STATISTICS = (Statistic.MEAN, Statistic.VARIANCE)
CITATION = (
    "here; K-norm mechanism by Hardt, Talwar: On the Geometry of Differential Privacy, STOC 2010; the limit "
    "of variances by Bhatia, Davis: A Better Bound on the Variance, 2000"
)
DISTRIBUTION = (
    "mean (U - mean) less the average of x (U - x), both with l-infinity block noise on integers: at most U "
    "times the mean's noise, and that of the products; the noise scale bounds the expected absolute sum"
)
INTERVALS = "proved tail of the sum of two independent block noises, widened by the worst-case bias"
COLUMNS = ("product_block", "product_half_width", "product_shift")
"""What is published of a variance's block noise; the scale is that of the means."""


@dataclass(frozen=True)
class CalibratedMomentBlocks:
    """MEAN are sums of x, VARIANCE sums of x (U - x), as in ``block_lattice``. See Calibrated."""

    lattice: BlockLattice

    kind = KIND
    statistics = STATISTICS

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated."""
        return PrivacyEvent(
            mechanism=NAME,
            statistics=STATISTICS,
            relation=NeighbouringRelation.REPLACE_USER_VALUES,
            unit="vehicle",
            bins=counts.bins,
            sensitivity={s: largest_sensitivity(s, counts, bound) for s in STATISTICS},
            bound=bound,
            assumptions=ASSUMPTIONS,
            loss_per_user=moment_block_loss(counts, bound, self.lattice),
        )

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        contributions, lattice = values.contributions, self.lattice
        counts, bound = contributions.counts, contributions.bound
        blocks = len(np.unique(lattice.block))
        drawn = noise.block(lattice.half_width, lattice.block, np.full(blocks, lattice.scale))
        mean = block_estimate(
            Statistic.MEAN,
            contributions,
            lattice,
            spread_of(Statistic.MEAN, counts, bound, lattice),
            drawn,
            interval_level,
            uninformative_above,
            None,
        )
        products = products_spread(counts, bound, lattice)
        own = block_columns(products, lattice)
        variance = variance_estimate(
            mean,
            unclamped(exact_products(contributions), lattice, products, drawn),
            self._variance_noise(counts, bound),
            self._half_width(counts, bound, interval_level),
            bound,
            uninformative_above,
            {name: own[name.removeprefix("product_")] for name in COLUMNS},
        )
        return {Statistic.MEAN: mean, Statistic.VARIANCE: variance}

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated: they follow from the half widths."""
        spread = spread_of(Statistic.MEAN, counts, bound, self.lattice)
        reach = Statistic.VARIANCE.largest(bound.upper)
        return {
            Statistic.MEAN: spread.error,
            Statistic.VARIANCE: self._variance_noise(counts, bound).error(reach),
        }

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated."""
        spread = spread_of(Statistic.MEAN, counts, bound, self.lattice)
        mean = interval_half_width(Statistic.MEAN, bound, self.lattice, spread, interval_level)
        variance = self._half_width(counts, bound, interval_level)
        return {Statistic.MEAN: mean, Statistic.VARIANCE: variance}

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        if statistic is Statistic.MEAN:
            return CalibratedBlocks((Statistic.MEAN,), self.lattice).statement(statistic, counts, bound)
        noise = self._variance_noise(counts, bound)
        return Statement(
            mechanism=NAME,
            citation=CITATION,
            sensitivity=SENSITIVITY,
            noise_scale=noise.scale,
            worst_case_bias=float(noise.bias.max()),
            share=None,
            distribution=DISTRIBUTION,
            sampler=block_noise.SAMPLER,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING,
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated: whole numbers, and one scale."""
        return {**CalibratedBlocks(STATISTICS, self.lattice).to_facts(), "kind": KIND}

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the columns of block noise, for variances those of the products, say the rest."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedMomentBlocks:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        return cls(CalibratedBlocks.from_facts(facts).lattice)

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedMomentBlocks:
        """Return the calibrated mechanism of the numbered bins; raise UsageError when a column is missing."""
        mean, variance = (columns.get(statistic, {}) for statistic in STATISTICS)
        if "block_scale" not in mean or not set(COLUMNS) <= variance.keys():
            raise UsageError("a statistic is published without its block noise")
        renamed = {name.removeprefix("product_"): variance[name] for name in COLUMNS}
        renamed["block_scale"] = mean["block_scale"]
        known = {Statistic.MEAN: mean, Statistic.VARIANCE: renamed}
        return cls(CalibratedBlocks.from_published(facts, known).lattice)

    def _variance_noise(self, counts: Counts, bound: ContributionBound) -> VarianceNoise:
        scale, _, shift, spread = self._pair(counts, bound, None)
        reach = Statistic.VARIANCE.largest(bound.upper)
        bias = np.where(spread.noisy, rounding_bias(Statistic.VARIANCE, bound) + spread.flooring, 0.0)
        bias = np.where(spread.noisy, bias + self._mean_flooring(counts, bound), 0.0)
        return VarianceNoise(spread.noisy, scale, np.minimum(scale + shift, reach), bias)

    def _half_width(self, counts: Counts, bound: ContributionBound, level: float) -> FloatArray:
        """How far the intervals of variances reach before they are clamped, shape (G,)."""
        _, half, shift, _ = self._pair(counts, bound, level)
        return half + shift + self._variance_noise(counts, bound).bias

    def _mean_flooring(self, counts: Counts, bound: ContributionBound) -> FloatArray:
        """U times the flooring of the mean."""
        return float(bound.upper) * spread_of(Statistic.MEAN, counts, bound, self.lattice).flooring

    def _pair(
        self, counts: Counts, bound: ContributionBound, level: float | None
    ) -> tuple[FloatArray, FloatArray, FloatArray, Spread]:
        """Size, reach at ``level`` and shift of U times the mean's noise with the products'; the products."""
        mean = spread_of(Statistic.MEAN, counts, bound, self.lattice)
        products = products_spread(counts, bound, self.lattice)
        noisy = products.noisy
        size, half, shift = (np.zeros(counts.bins) for _ in range(3))
        if bool(noisy.any()):
            one, two = mean.item[noisy], products.item[noisy]
            first = float(bound.upper) * mean.unit[noisy] * self.lattice.half_width[one]
            second = products.unit[noisy] * self.lattice.half_width[two]
            # a product's block may be smaller, where some variances are constants
            found = pair_bounds(
                self.lattice.sizes[one], first * self.lattice.scale, second * self.lattice.scale, level
            )
            size[noisy], half[noisy] = found
            shift[noisy] = 2 * (first + second)
        return size, half, shift, products


def products_spread(counts: Counts, bound: ContributionBound, lattice: BlockLattice) -> Spread:
    """Return the items of sums of x (U - x) and their steps in the variance's unit, without errors."""
    mine = np.flatnonzero([each is Statistic.VARIANCE for each in lattice.statistic])
    item = np.full(counts.bins, -1, dtype=np.int64)
    item[lattice.bin[mine]] = mine
    noisy, shift = item >= 0, lattice.shift[item]
    unit = np.where(noisy, np.ldexp(1.0, -shift) / products_per_unit(counts, bound), 0.0)
    none = np.zeros(counts.bins)
    return Spread(item, unit, np.where(shift < 0, unit / 2, 0.0), none, none)
