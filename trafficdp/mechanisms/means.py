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

The sum is public but for its values: entries and noise (``LaplaceSumQuery``) follow from counts. A mechanism
that looks at values first, to choose what is summed, states the dearest sum that can come of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
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

HEADROOM = 2.0**-38
"""Scales are this much larger than asked, so that losses, each rounded up, stay within what was asked."""


def checked_epsilon(epsilon: FloatArray, counts: Counts) -> FloatArray:
    """Return ``epsilon`` (G,) unchanged.

    Raise UsageError unless every bin's is above 0 (infinity allowed).
    """
    if epsilon.shape != (counts.bins,) or not bool(np.all(epsilon > 0)):
        raise UsageError("epsilon is not positive", expected="a number above 0 for every bin")
    return epsilon


def laplace_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return scales of discrete Laplace noise of loss ``epsilon``: sensitivity / epsilon, or a little more.

    One a bin, shapes (G,); rounded up to few distinct values, so that drawing stays fast. Raises UsageError
    for a scale above LARGEST_SCALE.
    """
    return group_scales(_scale(sensitivity, epsilon, HEADROOM))


def most_expensive_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return Laplace scales to charge for when the noise is drawn for an unknown smaller ``sensitivity``
    later.

    No scale that ``laplace_scale`` returns for the same ``epsilon`` costs more per unit of sensitivity,
    rounding included. Shapes (G,); raises UsageError for a scale above LARGEST_SCALE.
    """
    return _scale(sensitivity, epsilon, HEADROOM / 2)


def choice_scale(change: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return the scale of an exponential mechanism of loss ``epsilon``: 2 change / epsilon or a little more.

    ``change`` is by how much one vehicle changes a score at most; one number a bin, shapes (G,).
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


def support_of(counts: Counts, pairs: slice | IntArray = slice(None)) -> EntryIndex:
    """Return one entry for each (bin, vehicle) pair of the public ``counts``, or for ``pairs`` of them.

    Entries are summed over vehicles by bin.
    """
    user = counts.user_index[pairs].astype(np.int64)
    return EntryIndex(user, counts.bin_index[pairs], counts.users, counts.bins)


def box_of(statistic: Statistic, counts: Counts, bound: ContributionBound) -> Box:
    """Return the set to which what a vehicle adds to a bin's sum is clipped, in whole speed steps.

    For the mean its sum of speeds, 0..K m, K the largest speed in steps and m the vehicle's public number of
    records in the bin; for the vehicle mean its own mean speed, 0..K.
    """
    each = counts.count if statistic is Statistic.MEAN else np.ones(counts.pairs, dtype=np.int64)
    return Box(support_of(counts), each * bound.upper_steps)


def speeds_and_products(counts: Counts, bound: ContributionBound) -> Moments:
    """Return the set of a vehicle's pair of sums in a bin: S of its speeds k, and W of k (K - k), in steps.

    K is the largest speed in steps. A bin of a single record has no W, since its variance is 0.
    """
    return Moments(support_of(counts), counts.count, bound.upper_steps, counts.samples_per_bin > 1)


def values_of(statistic: Statistic, contributions: Contributions) -> IntArray:
    """Return the private whole numbers of every (bin, vehicle) pair that a noisy sum of ``statistic`` adds
    up.

    For MEAN the sum of speeds S, for VEHICLE_MEAN the pair's own rounded mean, shape (P,); for VARIANCE S and
    the sum W of k (K - k), shape (2, P).
    """
    counts, total = contributions.counts, contributions.total
    if statistic is Statistic.MEAN:
        return total
    if statistic is Statistic.VEHICLE_MEAN:
        return (2 * total + counts.count) // (2 * counts.count)
    return np.stack([total, contributions.bound.upper_steps * total - contributions.total_of_squares])


def unit(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return what one unit of a bin's integer sum is in the unit of ``statistic``, (G,), from public counts.

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
class LaplaceSumQuery:
    """The public description of one noisy sum of private integers a bin; all arrays have shape (G,).

    Nothing is drawn until ``means`` is called. The noisy mean is (sum + discrete Laplace noise + ``start``)
    times ``unit``. ``scale`` is the noise scale that is charged for and ``expected_scale`` the one expected
    in the draw, in units of the sum; they differ only under ``worst_case`` of ``laplace_sum_query``. ``bias``
    bounds the error of the mean before noise, rounding of speeds included.
    """

    of: Box | ClaimedSums
    scale: FloatArray
    expected_scale: FloatArray
    unit: FloatArray
    bias: FloatArray
    start: FloatArray

    @property
    def step(self) -> Step:
        """The measurement step: the sums of ``of`` with discrete Laplace noise of ``scale``."""
        return Step(self.of, Laplace(self.scale))

    @property
    def term(self) -> NoiseTerm:
        """The noise and bias that bound the error of each mean, from public numbers: scale
        ``expected_scale``.
        """
        return NoiseTerm(self.expected_scale, self.unit, self.bias)

    def means(self, values: IntArray, measure: Measure, bound: ContributionBound) -> FloatArray:
        """Sum private ``values``, one for each entry of ``of``, with noise.

        Return the bins' means in [0, U], (G,).
        """
        # in floats before anything is added: a noisy sum may be at either end of 64 bits
        noisy = measure.measure(self.step, values).astype(np.float64) + self.start
        return np.clip(noisy * self.unit, 0.0, float(bound.upper))


def laplace_sum_query(
    clip_set: Box | ClaimedSums,
    epsilon: FloatArray,
    unit: FloatArray,
    bias: FloatArray,
    start: FloatArray | None = None,
    *,
    worst_case: bool = False,
) -> LaplaceSumQuery:
    """Return the query for the sums of ``clip_set``, of privacy loss ``epsilon`` (G,); nothing is drawn.

    ``unit``, ``bias`` and ``start`` (G,) are as in ``LaplaceSumQuery``. With ``worst_case`` the scale charged
    for is that of ``most_expensive_scale``: the set is the largest that an earlier private choice can lead
    to.
    """
    begin, most = np.zeros(clip_set.support.coordinates) if start is None else start, largest_move(clip_set)
    drawn = laplace_scale(most, epsilon)
    return LaplaceSumQuery(
        clip_set, most_expensive_scale(most, epsilon) if worst_case else drawn, drawn, unit, bias, begin
    )


def largest_move(clip_set: Box | ClaimedSums) -> IntArray:
    """Return the most that one vehicle's values change each sum of ``clip_set``, in its whole units, (G,).

    From public counts; of a ``Box`` that is its upper end, of ``ClaimedSums`` what its theorem claims.
    """
    largest = np.zeros(clip_set.support.coordinates, dtype=np.int64)
    move = clip_set.high if isinstance(clip_set, Box) else clip_set.move
    np.maximum.at(largest, clip_set.support.coordinate, move)
    return largest


class Means:
    """A mechanism of means in pure epsilon: see Mechanism. Name, citation and ``estimate`` are its own.

    ``enforced`` is False where a step is only claimed (``protocol.unenforced_theorems``).
    """

    kind = LossKind.PURE
    statistics: tuple[Statistic, ...] = (Statistic.MEAN,)
    idealised: bool = False
    enforced: bool = True

    @property
    def name(self) -> str:
        """The mechanism's name in the registry."""
        raise NotImplementedError

    def sum_query(self, request: StatisticRequest) -> LaplaceSumQuery:
        """Return the sum that is measured in every bin, with its noise, from public counts.

        Nothing is drawn. Where a private choice comes first, it is the worst case over the choices.
        """
        raise NotImplementedError

    def steps_before_sum(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the measurement steps that come before the sum, such as the choice of a clipping bound.

        From public counts: nothing is drawn here. None by default.
        """
        return ()

    def steps(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the measurement steps for ``request``, from public counts: ``steps_before_sum``, then the
        sum.

        Raises UsageError for an epsilon that is not positive, another statistic, or noise that cannot be
        drawn.
        """
        self._require(request)
        return (*self.steps_before_sum(request), self.sum_query(request).step)

    def sensitivity(self, request: StatisticRequest) -> FloatArray:
        """Return the most that one vehicle's values change each bin's mean before noise, shape (G,)."""
        widest = self.sum_query(request)
        return np.asarray(np.minimum(largest_move(widest.of) * widest.unit, float(request.bound.upper)))

    def noise_terms(self, request: StatisticRequest) -> tuple[NoiseTerm, ...]:
        """Return the noise and bias that bound the error of each mean before it is clamped to its range."""
        return (self.sum_query(request).term,)

    def expected_error(self, request: StatisticRequest) -> FloatArray:
        """Return each bin's expected absolute error by noise and bias at the worst values, shape (G,)."""
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
        """The weight of each (bin, vehicle) pair's mean in its bin, shape (P,): ``used`` over its sum in
        the bin.
        """
        return normalised(self.used, self.counts.bin_index, self.counts.bins)

    def values(self, total: IntArray) -> IntArray:
        """Return floor(used total / count) of each (bin, vehicle) pair, shape (P,): its weighted whole-number
        value.

        ``total`` (P,) are the private sums of the pairs' speeds in steps.
        """
        count = self.counts.count
        return self.used * (total // count) + self.used * (total % count) // count

    def bias(self, target: FloatArray) -> FloatArray:
        """Return the largest difference of this weighted mean from one with weights ``target`` (P,), (G,).

        In the unit of speed; rounding down to whole steps is included.
        """
        index, bins = self.counts.bin_index, self.counts.bins
        shared = np.bincount(index, weights=self.used != self.counts.count, minlength=bins)
        distance = weight_distance(self.weight, target, index, bins)
        return np.asarray(float(self.bound.upper) * distance + self.unit * shared)

    @property
    def unit(self) -> FloatArray:
        """The size of one step of the sum in the mean's unit: speed step / sum of ``used``, (G,)."""
        total = np.bincount(self.counts.bin_index, self.used, self.counts.bins)
        return np.asarray(float(self.bound.step) / total)

    def sum_query(
        self,
        epsilon: FloatArray,
        bias: FloatArray,
        low: IntArray | None = None,
        high: IntArray | None = None,
        *,
        worst_case: bool = False,
    ) -> LaplaceSumQuery:
        """Return the query for every bin's weighted sum, each vehicle's mean clipped to ``low``..``high``
        steps.

        ``low`` and ``high`` (G,) are 0 and the largest speed when left out; ``epsilon`` and ``bias`` (G,) and
        ``worst_case`` are as for the function ``laplace_sum_query``. Nothing is drawn.
        """
        index, bins = self.counts.bin_index, self.counts.bins
        begin = np.zeros(bins, dtype=np.int64) if low is None else low
        end = np.full(bins, self.bound.upper_steps) if high is None else high
        support = support_of(self.counts)
        box = Box(support, self.used * (end - begin)[index])
        start = support.sums(self.used * begin[index]).astype(np.float64)
        return laplace_sum_query(box, epsilon, self.unit, bias, start, worst_case=worst_case)


def weighting(counts: Counts, bound: ContributionBound, statistic: Statistic) -> Weighting:
    """Return the weights of vehicles' means that make up ``statistic``, from public counts.

    In proportion to its records for MEAN, equal for every vehicle otherwise.
    """
    alike = np.full(counts.pairs, FINER, dtype=np.int64)
    return Weighting(counts, bound, counts.count if statistic is Statistic.MEAN else alike)
