"""Array-Averaging: the mean of the means of arrays of capped samples, with Laplace noise.

Paper 003 (Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets),
section III-B.

Theorem (REPLACE_USER_VALUES). A user changes sum_i y_i by at most d_l = sum_i ceil(M r_{l,i}/w_i) lattice
units (``array_means``), and by exactly that for some values of the others. Discrete Laplace noise of scale
B on the sum therefore costs the user d_l/B, and max_l d_l/B = epsilon for B = max_l d_l/epsilon. Bins
hold disjoint samples, so a user's losses add.

Departures: the sensitivity under WrapAround is U/K, not 2U/K (erratum E1): so the two groupings differ
by K/Kbar only. Noise on integers. m_UB is free to choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.count_cap import CountCap
from trafficdp.mechanisms.arrays.array_means import ArrayLattice, ArrayMeans, Grouping, array_lattice
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.integer_laplace import charge, checked_epsilon, laplace_loss, laplace_scale
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.mechanisms.worst_case_error import clamped_laplace_error
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ArrayAveraging:
    """``grouping`` makes the arrays (default BestFit), ``cap`` the most samples one of them takes."""

    grouping: Grouping = Grouping.BEST_FIT
    cap: CountCap = CountCap.ARGMAX

    statistics = (Statistic.MEAN,)
    idealised = False
    citation = (
        "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "
        "Array-Averaging"
    )

    @property
    def name(self) -> str:
        """``array_averaging_best_fit`` or ``array_averaging_wrap_around``."""
        return f"array_averaging_{self.grouping.value}"

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism: exact personal losses, 0 for a user whose samples are all dropped."""
        lattice = self._lattice(counts, bound, statistic)
        scale = self._scale(lattice, epsilon)
        loss = laplace_loss(lattice.sensitivity.per_pair(lattice.top), scale[counts.bin_index])
        sensitivity = self._largest(lattice) / lattice.unit
        return promise(self.name, statistic, counts, bound, sensitivity, charge(counts, loss))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism: total-variation bias and noise, at the worst truth."""
        (term,) = self.noise_terms(counts, bound, statistic, epsilon)
        return clamped_laplace_error(term.scale * term.step, term.bias, float(bound.upper))

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms."""
        lattice = self._lattice(counts, bound, statistic)
        return (NoiseTerm(self._scale(lattice, epsilon), 1 / lattice.unit, lattice.bias),)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        one: FloatArray = self.estimates(samples, statistic, epsilon, noise, 1)[0]
        return one

    def estimates(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource, runs: int
    ) -> FloatArray:
        """Return ``runs`` independent estimates, shape (runs, G), for experiments."""
        lattice = self._lattice(samples.counts, samples.bound, statistic)
        scale = self._scale(lattice, epsilon)
        zero = np.zeros_like(lattice.top)[None]
        total = ArrayMeans.of(samples, lattice).projected_sum(zero, lattice.top[None])
        drawn = noise.discrete_laplace(np.tile(scale, runs)).reshape(runs, -1)
        upper = float(samples.bound.upper)
        result: FloatArray = np.clip((total.astype(np.float64) + drawn) / lattice.unit, 0.0, upper)
        return result

    def _lattice(self, counts: Counts, bound: ContributionBound, statistic: Statistic) -> ArrayLattice:
        require_statistic(self.name, statistic, self.statistics)
        return array_lattice(counts, bound, self.grouping, self.cap)

    def _scale(self, lattice: ArrayLattice, epsilon: FloatArray) -> FloatArray:
        return laplace_scale(self._largest(lattice), checked_epsilon(epsilon, lattice.arrays.counts))

    def _largest(self, lattice: ArrayLattice) -> IntArray:
        largest: IntArray = lattice.sensitivity.largest(lattice.top[None])[0]
        return largest
