"""Two stages: a private interval, then the mean of vehicle means clipped into it (Winsorised).

Levy et al., "Learning with User-Level Privacy" (2021), as paper 001 (arXiv 2405.13453, appendix G) compares
with it: (1/N) sum n_i clip(y_i, a, b), whose sensitivity is max n_i (b - a)/N. Exact: the interval by the
exact exponential mechanism, the sum on the integer path.

Theorem (REPLACE_USER_VALUES). Stage one: bins of width tau over [0, U], cost c(j) = max(#means below bin j,
#means above), which one vehicle changes by at most 1; drawn with P(j) proportional to exp(-(eps/2) c(j)/2)
it costs eps/2. Stage two: with (a, b) fixed, vehicle i changes the integer sum by at most u_i (b - a);
discrete Laplace of scale 2 max u (b - a)/eps costs it (eps/2) u_i / max u. Where tau reaches U, the interval
is [0, U], nothing is spent on it and stage two gets all of epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.integer_laplace import charge
from trafficdp.mechanisms.laplace.weighted_mean import FINER, SPENT, WeightedMean
from trafficdp.mechanisms.moment import first_moment, share_of_total
from trafficdp.mechanisms.promise import promise
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.worst_case_error import clamped_laplace_error
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import round_up

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TwoStage:
    """The Winsorised mean estimator, over all bins at once.

    tau = sigma sqrt(2 ln(2n/gamma)/m) with m the median count of a bin and sigma = U/2, or the public
    standard deviation ``sigma`` of single speeds; the interval reaches ``reach`` tau to each side.
    """

    gamma: float = 0.2
    reach: float = 1.5
    sigma: float | None = None
    name: str = "two_stage"
    citation: str = (
        "Levy et al., Learning with User-Level Privacy, 2021; compared with in Zhao et al., "
        "arXiv 2405.13453 (paper 001)"
    )
    statistics: tuple[Statistic, ...] = (Statistic.MEAN, Statistic.VEHICLE_MEAN)
    idealised: bool = False

    def width(self, counts: Counts, bound: ContributionBound) -> IntArray:
        """Return tau of every bin in steps, at least 1 and at most U, shape (G,). Public."""
        order = np.lexsort((counts.count, counts.bin_index))
        users = counts.users_per_bin
        first = np.cumsum(users) - users
        median = counts.count[order][first + users // 2]
        sigma = float(bound.upper) / 2 if self.sigma is None else self.sigma
        tau = sigma * np.sqrt(2 * np.log(2 * users / self.gamma) / median)
        steps: IntArray = np.clip(np.ceil(tau / float(bound.step)), 1, bound.steps).astype(np.int64)
        return steps

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism. ``sensitivity`` is that of the widest interval that can be drawn."""
        weighted = self._weighted(counts, bound, statistic)
        width = self.width(counts, bound)
        whole = width >= bound.steps
        choice = np.where(whole, 0.0, epsilon / 2 * SPENT)
        second = np.where(whole, epsilon, epsilon / 2)
        # the interval's length cancels
        weighted.scale(second)
        share = weighted.used / weighted.largest_used[counts.bin_index]
        pair = choice[counts.bin_index] + second[counts.bin_index] * SPENT * share
        widest = np.minimum(2 * self.reach * width, bound.steps) / bound.steps
        sensitivity = np.where(whole, 1.0, widest) * weighted.sensitivity
        loss = charge(counts, round_up(round_up(pair)))
        return promise(self.name, statistic, counts, bound, sensitivity, loss)

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism. Where an interval is drawn, adversarial values can lie far outside it: the range.

        Values that agree to within tau err by ``clean_error``.
        """
        (term,) = self.noise_terms(counts, bound, statistic, epsilon)
        return clamped_laplace_error(term.scale * term.step, term.bias, float(bound.upper))

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms: the whole range is the bias of a bin in which an interval is drawn."""
        weighted = self._weighted(counts, bound, statistic)
        whole = self.width(counts, bound) >= bound.steps
        bias = weighted.bias(weighted.weight) + rounding_bias(statistic, bound)
        return (
            NoiseTerm(
                np.where(whole, weighted.scale(epsilon), 0.0),
                weighted.moment.unit / weighted.total_used,
                np.where(whole, bias, float(bound.upper)),
            ),
        )

    def clean_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """Return the expected noise where all vehicle means lie in the drawn interval, shape (G,)."""
        weighted = self._weighted(counts, bound, statistic)
        width = self.width(counts, bound)
        whole = width >= bound.steps
        share = np.where(whole, 1.0, np.minimum(2 * self.reach * width / bound.steps, 1.0))
        spent = np.where(whole, epsilon, epsilon / 2)
        result: FloatArray = np.minimum(share * weighted.noise_scale(spent), float(bound.upper) / 2)
        return result

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        counts, bound = samples.counts, samples.bound
        weighted = self._weighted(counts, bound, statistic)
        width = self.width(counts, bound)
        whole = width >= bound.steps
        totals = samples.contributions().total
        low, high = self._interval(totals, counts, bound, width, epsilon, noise)
        low, high = np.where(whole, 0, low), np.where(whole, bound.steps, high)
        part = share_of_total(totals, counts.count, weighted.used)
        index = counts.bin_index
        clipped = np.clip(part, weighted.used * low[index], weighted.used * high[index])
        second = np.where(whole, epsilon, epsilon / 2)
        return weighted.released(clipped, weighted.scale(second, high - low), noise)

    def _interval(
        self,
        totals: IntArray,
        counts: Counts,
        bound: ContributionBound,
        width: IntArray,
        epsilon: FloatArray,
        noise: NoiseSource,
    ) -> tuple[IntArray, IntArray]:
        """Draw an interval for every bin; ends are whole steps, the interval never longer than meant."""
        index, bins = counts.bin_index, counts.bins
        candidates = -(-bound.steps // width)
        start = np.concatenate([[0], np.cumsum(candidates)]).astype(np.int64)
        # candidate j holds means in (j tau, (j + 1) tau], the first one 0 as well
        above = -(-totals // (counts.count * width[index])) - 1
        held = np.bincount(start[index] + np.maximum(above, 0), minlength=int(start[-1]))
        upto = np.cumsum(held)
        owner = np.repeat(np.arange(bins), candidates)
        base = np.append(0, upto)[start[:-1]]
        below = upto - held - base[owner]
        cost = np.maximum(below, counts.users_per_bin[owner] - below - held).astype(np.int64)
        scale = np.where(np.isinf(epsilon), 0.0, 4.0 / (epsilon * SPENT))
        drawn = noise.choose(cost, np.ones(len(cost), dtype=np.int64), start, scale)[0] - start[:-1]
        middle = (drawn * width + np.minimum((drawn + 1) * width, bound.steps)) / 2
        low = np.ceil(middle - self.reach * width)
        high = np.floor(middle + self.reach * width)
        lowest = np.clip(low, 0, bound.steps).astype(np.int64)
        return lowest, np.maximum(lowest, np.clip(high, 0, bound.steps).astype(np.int64))

    def _weighted(self, counts: Counts, bound: ContributionBound, statistic: Statistic) -> WeightedMean:
        if statistic not in self.statistics:
            raise UsageError(
                "the mechanism cannot estimate this statistic",
                got=f"{self.name} with {statistic.value}",
                expected="mean or vehicle_mean",
            )
        by_vehicle = np.full(counts.pairs, FINER, dtype=np.int64)
        used = counts.count if statistic is Statistic.MEAN else by_vehicle
        return WeightedMean(counts, first_moment(bound), used)
