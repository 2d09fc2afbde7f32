"""Levy: array means projected to an interval that the exponential mechanism found, with Laplace noise.

Paper 003 (Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets),
section III-C and Algorithm 3, after Levy et al., Learning with User-Level Privacy.

Theorem (REPLACE_USER_VALUES). Half of epsilon chooses the interval: midpoint j with P(j) proportional to
exp(-(eps/2) c(j) / (2 c_u)), c_u the most arrays a user of the bin has samples in (public); the cost c moves
by at most c_u (``bounding.interval``), so the draw costs every visitor eps/2. Given the interval, user l
changes the projected sum by at most d_l(v) = sum_i min(v, change_{l,i}), v the interval's width; noise of
scale 2 max_l d_l(v)/eps costs it eps d_l/(2 max d). Widths take few values (``bounding.interval``),
over which the charge takes the worst. Steps add, since the noise may depend on the interval that is drawn.

Departures: exp(-eps c/8), not c/4, where a user can touch two arrays (erratum E3); the vote goes to the
nearest midpoint, not to the distance (E2); exact sensitivities (E1); tau is rounded up and a, b inward to
the array lattice; where tau >= U nothing is selected and all of epsilon goes to the noise. With
``guaranteed`` tau holds its promise for partly filled arrays (E4); ``halves`` = 5 (h = 5/2) contains all
array means that lie within tau of one point, 3 (h = 3/2, the paper's) only that point (E5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp._validate import in_range
from trafficdp.bounding.count_cap import CountCap
from trafficdp.bounding.interval import Partition, guaranteed_width, levy_width
from trafficdp.errors import UsageError
from trafficdp.mechanisms.arrays.array_means import ArrayLattice, ArrayMeans, Grouping, array_lattice
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.integer_laplace import (
    charge,
    checked_epsilon,
    choice_loss,
    choice_scale,
    laplace_loss,
    laplace_scale,
    least_scale,
)
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
END_PARTS = 4
"""Intervals around the first and last few midpoints may be cut by 0 or M; all others are 2 h tau wide."""


@dataclass(frozen=True)
class Levy:
    """``gamma`` is the probability allowed to the arrays to stray further than tau (default 0.2).

    Raises UsageError unless 0 < gamma < 1 and halves is 3 or 5.
    """

    grouping: Grouping = Grouping.BEST_FIT
    cap: CountCap = CountCap.ARGMAX
    gamma: float = 0.2
    halves: int = 3
    guaranteed: bool = False

    statistics = (Statistic.MEAN,)
    idealised = False
    citation = (
        "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "
        "Levy; Levy et al., Learning with User-Level Privacy"
    )

    def __post_init__(self) -> None:
        in_range(0, 1, gamma=self.gamma)
        if self.halves not in (3, 5):
            raise UsageError("halves is unknown", got=f"halves={self.halves}", expected="3 or 5")

    @property
    def name(self) -> str:
        """``levy_best_fit`` or ``levy_wrap_around``."""
        return f"levy_{self.grouping.value}"

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism. The stated sensitivity is that of the widest interval."""
        plan = self._plan(counts, bound, statistic, epsilon)
        lattice, sensitivity = plan.lattice, plan.lattice.sensitivity
        of_noise = np.zeros(counts.pairs)
        widest = np.zeros(counts.bins, dtype=np.int64)
        for part in plan.end_parts():
            low, high = plan.partition.interval(part, self.halves)
            width = np.where(plan.selects, high - low, lattice.top)
            widest = np.maximum(widest, width)
            # which scales are rounded up together depends on all intervals that are drawn
            scale = plan.least_noise_scale(width)
            loss = laplace_loss(sensitivity.per_pair(width), scale[counts.bin_index])
            of_noise = np.maximum(of_noise, loss)
        of_choice = np.where(plan.selects, choice_loss(lattice.arrays.influence, plan.choice_scale), 0.0)
        reached = lattice.arrays.touched_per_pair > 0
        loss = of_noise + np.where(reached, of_choice[counts.bin_index], 0.0)
        stated = sensitivity.largest(widest[None])[0] / lattice.unit
        return promise(self.name, statistic, counts, bound, stated, charge(counts, loss))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism: grouping, projection and noise, at values chosen against the mechanism.

        Projection to [a, b] moves the mean by at most max(a #{A < a}, (U - b) #{A > b})/K, and both
        numbers are at most the cost of the midpoint. The least cost is at most K/2, and the drawn one
        exceeds it by t with probability at most J e^(-t/s), s the scale of the choice: by s (1 + ln J)
        in expectation. So the projection costs at most max(a, U - b) min(1, 1/2 + s (1 + ln J)/K). Values
        that agree are treated far better: simulate.
        """
        plan = self._plan(counts, bound, statistic, epsilon)
        lattice, partition = plan.lattice, plan.partition
        _, first_high = partition.interval(partition.start[:-1], self.halves)
        last_low, _ = partition.interval(partition.start[1:] - 1, self.halves)
        reach = np.maximum(lattice.top - first_high, last_low) / lattice.top * float(bound.upper)
        excess = plan.choice_scale * (1 + np.log(partition.parts)) / lattice.arrays.per_bin
        projection = np.where(plan.selects, reach * np.minimum(1.0, 0.5 + excess), 0.0)
        widest = np.minimum(self.halves * partition.width, lattice.top)
        scale = plan.noise_scale(np.where(plan.selects, widest, lattice.top)[None])[0] / lattice.unit
        upper = float(bound.upper)
        # the error grows by at most 1 a unit of bias, so the expected projection may be added
        return np.minimum(clamped_laplace_error(scale, lattice.bias, upper) + projection, upper)

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms: the whole range is the bias of a bin in which an interval is selected."""
        plan = self._plan(counts, bound, statistic, epsilon)
        scale = plan.noise_scale(plan.lattice.top[None])[0]
        return (
            NoiseTerm(
                np.where(plan.selects, 0.0, scale),
                1 / plan.lattice.unit,
                np.where(plan.selects, float(bound.upper), plan.lattice.bias),
            ),
        )

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
        plan = self._plan(samples.counts, samples.bound, statistic, epsilon)
        lattice = plan.lattice
        means = ArrayMeans.of(samples, lattice)
        low, high = self._intervals(plan, means, noise, runs)
        total = means.projected_sum(low, high)
        scale = plan.noise_scale(high - low)
        drawn = noise.discrete_laplace(scale.ravel()).reshape(scale.shape)
        upper = float(samples.bound.upper)
        result: FloatArray = np.clip((total.astype(np.float64) + drawn) / lattice.unit, 0.0, upper)
        return result

    def _intervals(
        self, plan: _Plan, means: ArrayMeans, noise: NoiseSource, runs: int
    ) -> tuple[IntArray, IntArray]:
        partition = plan.partition
        cost = partition.costs(means.y, plan.lattice.arrays.array_bin)
        equal = np.ones_like(cost)
        drawn = noise.choose(cost, equal, partition.start, plan.choice_scale, runs=runs)
        low, high = partition.interval(drawn, self.halves)
        return np.where(plan.selects, low, 0), np.where(plan.selects, high, plan.lattice.top)

    def _plan(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> _Plan:
        require_statistic(self.name, statistic, self.statistics)
        checked_epsilon(epsilon, counts)
        lattice = array_lattice(counts, bound, self.grouping, self.cap)
        arrays, upper = lattice.arrays, float(bound.upper)
        if self.guaranteed:
            width = guaranteed_width(arrays.fill, arrays.array_bin, counts.bins, upper, self.gamma)
        else:
            width = levy_width(arrays.per_bin, arrays.capacity, upper, self.gamma)
        whole = np.ceil(np.minimum(width / upper, 1.0) * lattice.top).astype(np.int64)
        partition = Partition(lattice.top, np.clip(whole, 1, lattice.top))
        return _Plan(lattice, partition, epsilon)


@dataclass(frozen=True)
class _Plan:
    """Everything that counts decide."""

    lattice: ArrayLattice
    partition: Partition
    epsilon: FloatArray

    @property
    def selects(self) -> npt.NDArray[np.bool_]:
        """Where tau < U, so that an interval is chosen."""
        return self.partition.parts > 1

    @property
    def choice_scale(self) -> FloatArray:
        return choice_scale(self.lattice.arrays.influence, self.epsilon / 2)

    def noise_scale(self, width: IntArray) -> FloatArray:
        """Scale for intervals of ``width`` (runs, G)."""
        return laplace_scale(self.lattice.sensitivity.largest(width), self._share)

    def least_noise_scale(self, width: IntArray) -> FloatArray:
        """The least scale that intervals of ``width`` (G,) may be drawn with."""
        return least_scale(self.lattice.sensitivity.largest(width[None])[0], self._share)

    @property
    def _share(self) -> FloatArray:
        return np.where(self.selects, self.epsilon / 2, self.epsilon)

    def end_parts(self) -> list[IntArray]:
        """Parts of every bin, shape (G,) each, whose intervals have all widths that occur."""
        first, last = self.partition.start[:-1], self.partition.start[1:] - 1
        return [
            *(np.minimum(first + i, last) for i in range(END_PARTS)),
            *(np.maximum(last - i, first) for i in range(END_PARTS)),
        ]
