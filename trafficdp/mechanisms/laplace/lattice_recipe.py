"""The recipe ``lattice``: discrete Laplace on exact integers, mean and variance of a bin priced jointly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.lattice import Lattice, steps_per_unit
from trafficdp.mechanisms.recipe import POST_PROCESSING, Columns, Statement
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
KIND = "lattice"
SENSITIVITY = {
    Statistic.MEAN: "U m / N (m fixes of the vehicle among the N of the bin)",
    Statistic.VARIANCE: "U^2 k (N - k) / N^2, k = min(m, floor(N/2))",
    Statistic.VEHICLE_MEAN: "U / L (L vehicles in the bin)",
}
DISTRIBUTION = "discrete Laplace on integer multiples of a lattice spacing"
SAMPLER = "OpenDP make_laplace (discrete Laplace on integers)"
INTERVALS = "exact tail of the discrete Laplace noise, widened by the worst-case bias"


@dataclass(frozen=True)
class LatticeRecipe:
    """``baseline`` with the noise of ``lattices``. See Recipe."""

    lattices: Mapping[Statistic, Lattice]

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """See Recipe."""
        return tuple(statistic for statistic in Statistic if statistic in self.lattices)

    def event(self, occupancy: Occupancy, bound: ContributionBound) -> PrivacyEvent:
        """See Recipe: Theorem A, mean and variance jointly."""
        return baseline.event(occupancy, bound, self.lattices)

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Recipe."""
        return baseline.release(
            values.contributions,
            self.lattices,
            noise.discrete_laplace,
            interval_level=interval_level,
            uninformative_above=uninformative_above,
        )

    def expected_errors(self, occupancy: Occupancy, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Recipe: those of clamped Laplace noise, and the worst-case bias."""
        return {
            statistic: baseline.published_error(statistic, occupancy, bound, self.lattices[statistic])
            for statistic in self.statistics
        }

    def half_widths(
        self, occupancy: Occupancy, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Recipe: the lattice tail and the worst-case bias."""
        return {
            statistic: baseline.interval_half_width(
                statistic, occupancy, bound, self.lattices[statistic], interval_level
            )
            for statistic in self.statistics
        }

    def statement(self, statistic: Statistic, occupancy: Occupancy, bound: ContributionBound) -> Statement:
        """See Recipe."""
        lattice = self.lattices[statistic]
        per_unit = steps_per_unit(statistic, occupancy, bound)
        coarse = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0) / per_unit
        return Statement(
            mechanism=baseline.NAME,
            citation=None,
            sensitivity=SENSITIVITY[statistic],
            noise_scale=self._noise_scale(statistic, occupancy, bound),
            worst_case_bias=publish.rounding_bias(statistic, bound) + float(coarse.max()),
            share=None,
            distribution=DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """See Recipe."""
        return {
            "kind": KIND,
            "lattices": {
                statistic.value: {"scale": lattice.scale.tolist(), "spacing": lattice.spacing.tolist()}
                for statistic, lattice in self.lattices.items()
            },
        }

    def published_facts(self) -> dict[str, Any]:
        """See Recipe: the columns ``lattice_scale`` and ``lattice_spacing`` say the rest."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> LatticeRecipe:
        """Return the recipe that ``to_facts`` wrote."""
        return cls(
            {
                Statistic(name): Lattice(
                    np.array(lattice["scale"], dtype=np.float64), np.array(lattice["spacing"], dtype=np.int64)
                )
                for name, lattice in facts["lattices"].items()
            }
        )

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> LatticeRecipe:
        """Return the recipe of the numbered bins; raise UsageError when a column is missing."""
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

    def _noise_scale(
        self, statistic: Statistic, occupancy: Occupancy, bound: ContributionBound
    ) -> FloatArray:
        lattice = self.lattices[statistic]
        per_unit = steps_per_unit(statistic, occupancy, bound)
        scale: FloatArray = lattice.scale * lattice.spacing / per_unit
        return scale
