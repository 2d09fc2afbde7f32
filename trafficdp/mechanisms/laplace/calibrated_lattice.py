"""Calibrated ``lattice``: discrete Laplace on exact integers, mean and variance of a bin priced jointly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.calibrated import POST_PROCESSING, Columns, Statement
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.lattice import Lattice, steps_per_unit
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
KIND = "lattice"
SENSITIVITY = {
    Statistic.MEAN: "U m / N (m records of the vehicle among the N of the bin)",
    Statistic.VARIANCE: "U^2 k (N - k) / N^2, k = min(m, floor(N/2))",
    Statistic.VEHICLE_MEAN: "U / L (L vehicles in the bin)",
}
DISTRIBUTION = "discrete Laplace on integer multiples of a lattice spacing"
SAMPLER = "OpenDP make_laplace (discrete Laplace on integers)"
INTERVALS = "exact tail of the discrete Laplace noise, widened by the worst-case bias"


@dataclass(frozen=True)
class CalibratedLattice:
    """``baseline`` with the noise of ``lattices``. See Calibrated."""

    lattices: Mapping[Statistic, Lattice]

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """See Calibrated."""
        return tuple(statistic for statistic in Statistic if statistic in self.lattices)

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated: Theorem A, mean and variance jointly."""
        return baseline.event(counts, bound, self.lattices)

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        return baseline.release(
            values.contributions,
            self.lattices,
            noise.discrete_laplace,
            interval_level=interval_level,
            uninformative_above=uninformative_above,
        )

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated: those of clamped Laplace noise, and the worst-case bias."""
        return {
            statistic: baseline.published_error(statistic, counts, bound, self.lattices[statistic])
            for statistic in self.statistics
        }

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated: the lattice tail and the worst-case bias."""
        return {
            statistic: baseline.interval_half_width(
                statistic, counts, bound, self.lattices[statistic], interval_level
            )
            for statistic in self.statistics
        }

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        lattice = self.lattices[statistic]
        per_unit = steps_per_unit(statistic, counts, bound)
        coarse = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0) / per_unit
        return Statement(
            mechanism=baseline.NAME,
            citation=None,
            sensitivity=SENSITIVITY[statistic],
            noise_scale=self._noise_scale(statistic, counts, bound),
            worst_case_bias=publish.rounding_bias(statistic, bound) + float(coarse.max()),
            share=None,
            distribution=DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated."""
        return {
            "kind": KIND,
            "lattices": {
                statistic.value: {"scale": lattice.scale.tolist(), "spacing": lattice.spacing.tolist()}
                for statistic, lattice in self.lattices.items()
            },
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the columns ``lattice_scale`` and ``lattice_spacing`` say the rest."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedLattice:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        return cls(
            {
                Statistic(name): Lattice(
                    np.array(lattice["scale"], dtype=np.float64), np.array(lattice["spacing"], dtype=np.int64)
                )
                for name, lattice in facts["lattices"].items()
            }
        )

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedLattice:
        """Return the calibrated mechanism of the numbered bins; raise UsageError when a column is missing."""
        lattices = {
            statistic: Lattice(
                own["lattice_scale"].astype(np.float64), own["lattice_spacing"].astype(np.int64)
            )
            for statistic, own in columns.items()
            if {"lattice_scale", "lattice_spacing"} <= own.keys()
        }
        if len(lattices) != len(columns):
            raise UsageError("a statistic is published without its lattice")
        return cls(lattices)

    def _noise_scale(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
        lattice = self.lattices[statistic]
        per_unit = steps_per_unit(statistic, counts, bound)
        scale: FloatArray = lattice.scale * lattice.spacing / per_unit
        return scale
