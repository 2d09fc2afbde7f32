"""What mechanisms of means share: scales, sums, and the number that is made of them.

From an epsilon a bin to the scale of its noise, in whole steps; infinite epsilons have scale 0.

What most mechanisms measure: sums of a bin's speeds in whole steps q, with what counts say of them.

============  ===========================================  ==================  =======================
sum           of every vehicle in the bin (m records)      in the set          one unit of it, in units
============  ===========================================  ==================  =======================
speeds        S: its steps k = 0..K, K = U/q, added up     0 .. m K            q / N of the mean
vehicle mean  its own mean, rounded to a whole step        0 .. K              q / L of the vehicle mean
products      W: its k (K - k) added up                    ``Moments``         q^2 / N of W / N
============  ===========================================  ==================  =======================

N records and L vehicles are in the bin. The variance is mean (U - mean) - W/N.

What mechanisms of means share: one sum a bin, its noise, and the number that is made of it.

Theorem (REPLACE_USER_VALUES). A vehicle whose part of a bin's sum is in 0..h moves it by at most h, and pays
h/B under discrete Laplace noise of scale B (``measurement.sets``, ``measurement.laws``); its losses add up.

The sum is public but for its values: entries and noise (``NoisySum``) follow from counts. A mechanism that
looks at values first, to choose what is summed, states the dearest sum that can come of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.huber import normalised, weight_distance
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import EntryIndex, Laplace
from trafficdp.measurement.sets import Box, Measure, Moments, Priced, Step
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.protocol import ClaimedSums, StatisticRequest, require_statistic
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.source import LARGEST_SCALE, group_scales
from trafficdp.noise.tail import clamped_laplace_error
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
HEADROOM = 2.0**-38
"""Scales are this much larger than asked, so that losses, each rounded up, stay within what was asked."""


def checked_epsilon(epsilon: FloatArray, counts: Counts) -> FloatArray:
    """Return ``epsilon`` (shape (G,)); raise UsageError unless every bin's is above 0 (infinity allowed)."""
    if epsilon.shape != (counts.bins,) or not bool(np.all(epsilon > 0)):
        raise UsageError("epsilon is not positive", expected="a number above 0 for every bin")
    return epsilon


def laplace_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return scales of discrete Laplace noise, at least sensitivity / epsilon; shapes (G,).

    Grouped to few distinct values by rounding up. Raises UsageError for a scale above LARGEST_SCALE.
    """
    return group_scales(_scale(sensitivity, epsilon, HEADROOM))


def most_expensive_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return scales whose price no ``laplace_scale`` of another sensitivity exceeds, rounding included.

    For charges that are known before the sensitivities that noise will be drawn for. Errors as there.
    """
    return _scale(sensitivity, epsilon, HEADROOM / 2)


def choice_scale(change: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return the scale of an exponential mechanism that costs ``epsilon``: 2 c / epsilon or a little more.

    ``change`` is c, the most that one user changes a score; shapes (G,).
    """
    return np.asarray(2.0 * change / epsilon * (1 + HEADROOM), dtype=np.float64)


def _scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray, headroom: float) -> FloatArray:
    with np.errstate(over="ignore"):
        scale = np.asarray(sensitivity, dtype=np.float64) / epsilon * (1 + headroom)
    if not bool(np.all(scale <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"a scale of {float(np.max(scale)):.3g} steps",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return scale


def support_of(counts: Counts) -> EntryIndex:
    """Return the entries of the sums: one for each (bin, vehicle) pair of ``counts``, P in all."""
    return EntryIndex(counts.user_index, counts.bin_index, counts.users, counts.bins)


def speeds(counts: Counts, bound: ContributionBound) -> Box:
    """Return the clipping set of S, a vehicle's sum of speeds in a bin in steps: 0..K m, m its records."""
    return Box(support_of(counts), counts.count * bound.upper_steps)


def vehicle_means(counts: Counts, bound: ContributionBound) -> Box:
    """Return the clipping set of vehicles' own mean speeds in a bin, in steps: 0..K."""
    return Box(support_of(counts), np.full(counts.pairs, bound.upper_steps, dtype=np.int64))


def speeds_and_products(counts: Counts, bound: ContributionBound) -> Moments:
    """Return the set of (S, W); a bin of one record has no W, since its variance is 0."""
    return Moments(support_of(counts), counts.count, bound.upper_steps, counts.samples_per_bin > 1)


def values_of(statistic: Statistic, contributions: Contributions) -> IntArray:
    """Return what every pair has, shape (P,): S (MEAN), its own mean (VEHICLE_MEAN); else (S, W), (2, P)."""
    counts, total = contributions.counts, contributions.total
    if statistic is Statistic.MEAN:
        return total
    if statistic is Statistic.VEHICLE_MEAN:
        return (2 * total + counts.count) // (2 * counts.count)
    return np.stack([total, contributions.bound.upper_steps * total - contributions.total_of_squares])


def unit(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return the size of one unit of the integer sum in the statistic's unit, shape (G,), from counts.

    With speed step q, N records and L vehicles: q/N for MEAN, q/L for VEHICLE_MEAN, q^2/N for VARIANCE.
    """
    step = float(bound.step)
    if statistic is Statistic.VEHICLE_MEAN:
        return np.asarray(step / counts.users_per_bin)
    power = 2 if statistic is Statistic.VARIANCE else 1
    return np.asarray(step**power / counts.samples_per_bin)


FINER = 64
"""Counts are multiplied by this where vehicles do not count with all their samples: less rounding."""


@dataclass(frozen=True)
class NoisySum:
    """One sum of private integers a bin and its discrete Laplace noise; all arrays have shape (G,).

    The noisy mean is (sum + noise + ``start``) times ``unit``. ``scale`` is the noise scale that is charged
    for and ``drawn`` the one expected in the draw, in units of the sum; they differ only under ``dearest`` of
    ``noisy_sum``. ``bias`` bounds the error of the mean before noise, rounding of speeds included.
    """

    of: Box | ClaimedSums
    scale: FloatArray
    drawn: FloatArray
    unit: FloatArray
    bias: FloatArray
    start: FloatArray

    @property
    def step(self) -> Step:
        """The measurement step: the sums of ``of`` with discrete Laplace noise of ``scale``."""
        return Step(self.of, Laplace(self.scale))

    @property
    def term(self) -> NoiseTerm:
        """The error term of the mean, from public numbers: noise of scale ``drawn``, and ``bias``."""
        return NoiseTerm(self.drawn, self.unit, self.bias)

    def means(self, values: IntArray, measure: Measure, bound: ContributionBound) -> FloatArray:
        """Measure private ``values``, one for each entry of ``of``; return noisy means in [0, U], (G,)."""
        # in floats before anything is added: a noisy sum may be at either end of 64 bits
        noisy = measure.measure(self.step, values).astype(np.float64) + self.start
        return np.clip(noisy * self.unit, 0.0, float(bound.upper))


def noisy_sum(
    of: Box | ClaimedSums,
    epsilon: FloatArray,
    unit: FloatArray,
    bias: FloatArray,
    start: FloatArray | None = None,
    *,
    dearest: bool = False,
) -> NoisySum:
    """Return the sums of ``of`` with discrete Laplace noise that costs ``epsilon`` (G,), from public numbers.

    ``unit``, ``bias`` and ``start`` (G,) are as in ``NoisySum``. With ``dearest`` the scale charged for is
    that of ``most_expensive_scale``.
    """
    begin, most = np.zeros(of.support.coordinates) if start is None else start, largest_move(of)
    drawn = laplace_scale(most, epsilon)
    return NoisySum(of, most_expensive_scale(most, epsilon) if dearest else drawn, drawn, unit, bias, begin)


def largest_move(of: Box | ClaimedSums) -> IntArray:
    """Return the sensitivity of every sum: the most that one vehicle changes it, in its units, shape (C,)."""
    largest = np.zeros(of.support.coordinates, dtype=np.int64)
    np.maximum.at(largest, of.support.coordinate, of.high if isinstance(of, Box) else of.move)
    return largest


class Means:
    """A mechanism of means in pure epsilon: see Mechanism. Name, citation and ``estimate`` are its own.

    ``enforced`` is False where a step is only claimed (``protocol.unenforced``).
    """

    kind = LossKind.PURE
    statistics: tuple[Statistic, ...] = (Statistic.MEAN,)
    idealised: bool = False
    enforced: bool = True

    @property
    def name(self) -> str:
        """Key in the registry."""
        raise NotImplementedError

    def sum_of(self, request: StatisticRequest) -> NoisySum:
        """Return the noisy sum of every bin, from counts; after a private choice, its most expensive case."""
        raise NotImplementedError

    def choices(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the private selections before the sum, such as of a clipping bound; none by default."""
        return ()

    def steps(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return what is measured with noise: first the ``choices``, such as of a clip, then the sum.

        Raises UsageError for an epsilon that is not positive, another statistic, noise that cannot be drawn.
        """
        self._require(request)
        return (*self.choices(request), self.sum_of(request).step)

    def sensitivity(self, request: StatisticRequest) -> FloatArray:
        """Return the most that one vehicle moves a mean before noise, shape (G,)."""
        widest = self.sum_of(request)
        return np.asarray(np.minimum(largest_move(widest.of) * widest.unit, float(request.bound.upper)))

    def noise_terms(self, request: StatisticRequest) -> tuple[NoiseTerm, ...]:
        """Return the terms whose sum bounds the error of each mean before clamping to its range."""
        return (self.sum_of(request).term,)

    def expected_error(self, request: StatisticRequest) -> FloatArray:
        """Return the expected error of bias and noise at the worst truth, a bin."""
        (term,) = self.noise_terms(request)
        return clamped_laplace_error(term.scale * term.step, term.bias, float(request.bound.upper))

    def _require(self, request: StatisticRequest) -> None:
        require_statistic(self.name, request.statistic, self.statistics)
        checked_epsilon(request.loss, request.counts)


@dataclass(frozen=True)
class Weighting:
    """Vehicle i counts for ``used``_i >= 1 whole samples at its own mean, shape (P,): w_i = u_i / sum u.

    The bin's sum is that of floor(u_i S_i / n_i), which vehicle i moves by at most u_i K. u = n gives the
    mean over samples, u = 1 that over vehicles, u = min(n, m_c) the weights of paper 001.
    """

    counts: Counts
    bound: ContributionBound
    used: IntArray

    @property
    def weight(self) -> FloatArray:
        """w, shape (P,)."""
        return normalised(self.used, self.counts.bin_index, self.counts.bins)

    def values(self, total: IntArray) -> IntArray:
        """Return floor(u S / n), shape (P,), of the pairs' sums S: without overflow, S where u = n."""
        count = self.counts.count
        return self.used * (total // count) + self.used * (total % count) // count

    def bias(self, target: FloatArray) -> FloatArray:
        """Return the worst difference to the mean with weights ``target`` (P,), rounding down included."""
        index, bins = self.counts.bin_index, self.counts.bins
        shared = np.bincount(index, weights=self.used != self.counts.count, minlength=bins)
        distance = weight_distance(self.weight, target, index, bins)
        return np.asarray(float(self.bound.upper) * distance + self.unit * shared)

    @property
    def unit(self) -> FloatArray:
        """The size of one step of the sum in the mean's unit: speed step / sum of ``used``, (G,)."""
        total = np.bincount(self.counts.bin_index, self.used, self.counts.bins)
        return np.asarray(float(self.bound.step) / total)

    def noisy(
        self,
        epsilon: FloatArray,
        bias: FloatArray,
        low: IntArray | None = None,
        high: IntArray | None = None,
        *,
        dearest: bool = False,
    ) -> NoisySum:
        """Return the noisy sum; samples are clipped to ``low``..``high`` steps (G,), 0..K when left out."""
        index, bins = self.counts.bin_index, self.counts.bins
        begin = np.zeros(bins, dtype=np.int64) if low is None else low
        end = np.full(bins, self.bound.upper_steps) if high is None else high
        support = support_of(self.counts)
        box = Box(support, self.used * (end - begin)[index])
        start = support.sums(self.used * begin[index]).astype(np.float64)
        return noisy_sum(box, epsilon, self.unit, bias, start, dearest=dearest)


def weighting(counts: Counts, bound: ContributionBound, statistic: Statistic) -> Weighting:
    """Return the weights that define ``statistic``: by records for MEAN, equal per vehicle otherwise."""
    alike = np.full(counts.pairs, FINER, dtype=np.int64)
    return Weighting(counts, bound, counts.count if statistic is Statistic.MEAN else alike)
