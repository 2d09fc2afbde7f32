"""Calibrated ``moments``: sums of x and of x (U - x), so that variances cost little or nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms import publish
from trafficdp.mechanisms.calibrated import Columns, Statement
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.calibrated_lattice import SAMPLER, CalibratedLattice
from trafficdp.mechanisms.laplace.lattice import Lattice
from trafficdp.mechanisms.mean_variance.estimates import POST_PROCESSING, VarianceNoise, variance_estimate
from trafficdp.mechanisms.mean_variance.lattice import (
    exact_products,
    moments_loss_per_user,
    products_per_unit,
)
from trafficdp.mechanisms.promise import ASSUMPTIONS
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.noise.sum_tail import (
    lattice_shift,
    two_noises_error,
    two_noises_half_width,
    two_noises_mean,
)
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
NAME = "moments"
KIND = NAME
CITATION = "here; the limit of variances by Bhatia, Davis: A Better Bound on the Variance, 2000"
SENSITIVITY = (
    "a record that moves by d moves the sum of x by d and the sum of x (U - x) by at most d (U - d); a "
    "vehicle pays for both, at the d that costs most, times its records"
)
DISTRIBUTION = (
    "mean (U - mean) less the average of x (U - x), both with discrete Laplace noise on integers: at most U "
    "times the mean's noise, and that of the products; the noise scale is the expected absolute sum"
)
INTERVALS = "tail of the sum of two discrete Laplace noises, widened by the worst-case bias"
COLUMNS = {"product_scale": "lattice_scale", "product_spacing": "lattice_spacing"}
"""Published columns of the variance, and what a lattice calls them."""


@dataclass(frozen=True)
class CalibratedMoments:
    """Means (and vehicle means) as ``laplace.baseline``, variances from sums of x (U - x). See Calibrated.

    ``lattices`` holds for VARIANCE the noise of these sums.
    """

    lattices: Mapping[Statistic, Lattice]

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """See Calibrated."""
        return tuple(statistic for statistic in Statistic if statistic in self.lattices)

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated: ``price``, added over bins."""
        loss = moments_loss_per_user(counts, bound, self.lattices)
        return PrivacyEvent(
            mechanism=NAME,
            statistics=self.statistics,
            relation=NeighbouringRelation.REPLACE_USER_VALUES,
            unit="vehicle",
            bins=counts.bins,
            sensitivity={s: baseline.largest_sensitivity(s, counts, bound) for s in self.statistics},
            bound=bound,
            assumptions=ASSUMPTIONS,
            loss_per_user=loss,
        )

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        contributions = values.contributions
        counts, bound = contributions.counts, contributions.bound
        found = baseline.release(
            contributions,
            self._means.lattices,
            noise.discrete_laplace,
            interval_level=interval_level,
            uninformative_above=uninformative_above,
        )
        lattice = self.lattices[Statistic.VARIANCE]
        spacing = lattice.spacing.astype(object)
        # Python integers: nothing is rounded before the noise is in
        noisy = exact_products(contributions) // spacing + noise.discrete_laplace(lattice.scale).astype(
            object
        )
        centre = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0)
        products = ((noisy * spacing).astype(np.float64) + centre) / products_per_unit(counts, bound)
        found[Statistic.VARIANCE] = variance_estimate(
            found[Statistic.MEAN],
            products,
            self._variance_noise(counts, bound),
            self._half_width(counts, bound, interval_level),
            bound,
            uninformative_above,
            {"product_scale": lattice.scale, "product_spacing": lattice.spacing},
        )
        return {statistic: found[statistic] for statistic in self.statistics}

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated: they follow from the scales."""
        reach = Statistic.VARIANCE.largest(bound.upper)
        found = self._means.expected_errors(counts, bound)
        found[Statistic.VARIANCE] = self._variance_noise(counts, bound).error(reach)
        return {statistic: found[statistic] for statistic in self.statistics}

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated."""
        found = self._means.half_widths(counts, bound, interval_level)
        found[Statistic.VARIANCE] = self._half_width(counts, bound, interval_level)
        return {statistic: found[statistic] for statistic in self.statistics}

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        if statistic is not Statistic.VARIANCE:
            return self._means.statement(statistic, counts, bound)
        noise = self._variance_noise(counts, bound)
        return Statement(
            mechanism=NAME,
            citation=CITATION,
            sensitivity=SENSITIVITY,
            noise_scale=noise.scale,
            worst_case_bias=float(noise.bias.max()),
            share=None,
            distribution=DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING,
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated."""
        return {**CalibratedLattice(self.lattices).to_facts(), "kind": KIND}

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the lattice columns, for variances those of the products, say the rest."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedMoments:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        return cls(CalibratedLattice.from_facts(facts).lattices)

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedMoments:
        """Return the calibrated mechanism of the numbered bins; raise UsageError when a column is missing."""
        variance = columns.get(Statistic.VARIANCE, {})
        renamed = {COLUMNS[name]: values for name, values in variance.items() if name in COLUMNS}
        return cls(
            dict(CalibratedLattice.from_published(facts, {**columns, Statistic.VARIANCE: renamed}).lattices)
        )

    @property
    def _means(self) -> CalibratedLattice:
        return CalibratedLattice(
            {each: lattice for each, lattice in self.lattices.items() if each is not Statistic.VARIANCE}
        )

    def _steps(
        self, counts: Counts, bound: ContributionBound
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Scales on their lattices and steps in the variance's unit, of U times the mean and of W/N."""
        means, products = self.lattices[Statistic.MEAN], self.lattices[Statistic.VARIANCE]
        varies = counts.samples_per_bin > 1
        first = float(bound.upper) * float(bound.step) / counts.samples_per_bin
        second = products.spacing / products_per_unit(counts, bound)
        return (
            np.where(varies, means.scale, 0.0),
            first,
            np.where(varies, products.scale, 0.0),
            second,
        )

    def _variance_noise(self, counts: Counts, bound: ContributionBound) -> VarianceNoise:
        scale, step, own_scale, own_step = self._steps(counts, bound)
        first, second = scale * step, own_scale * own_step
        reach = Statistic.VARIANCE.largest(bound.upper)
        shift = lattice_shift(scale) * step + lattice_shift(own_scale) * own_step
        varies = counts.samples_per_bin > 1
        flooring = np.where(self.lattices[Statistic.VARIANCE].spacing > 1, own_step / 2, 0.0)
        bias = np.where(varies, publish.rounding_bias(Statistic.VARIANCE, bound) + flooring, 0.0)
        error = np.minimum(two_noises_error(first, second, reach) + shift, reach)
        return VarianceNoise(varies, two_noises_mean(first, second), error, bias)

    def _half_width(self, counts: Counts, bound: ContributionBound, level: float) -> FloatArray:
        """How far the intervals of variances reach before they are clamped, shape (G,)."""
        scale, step, own_scale, own_step = self._steps(counts, bound)
        half = two_noises_half_width(scale * step, own_scale * own_step, 1 - level)
        shift = lattice_shift(scale) * step + lattice_shift(own_scale) * own_step
        return half + shift + self._variance_noise(counts, bound).bias
