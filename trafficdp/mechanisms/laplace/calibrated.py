"""``laplace``: discrete Laplace noise on sums of whole numbers, mean and variance by one pair.

# Noise of the averages of bins: what it costs every vehicle, how far off statistics are (``LaplaceNoise``)

==============  =============================================  ==================
average         what one vehicle loses in a bin                its noise
==============  =============================================  ==================
S/N, the mean   U m/(N b) cost(c); cost 1 without W            b
W/N             (``pairs``: both sums together)                c U b
vehicle mean    U/(L b')                                       b'
==============  =============================================  ==================

The variance is mean (U - mean) - W/N, so that its noise is at most U times the mean's and that of W/N. S is
measured in every bin whose mean is asked for, S and W where a variance is that can differ from 0.

# What is drawn (``CalibratedLaplace``, ``sums``)

S of every bin whose mean is asked for, the pair (S, W) of one whose variance is, so that a variance alone
measures S too; sums of vehicles' own means. A W whose scale would be beyond what can be drawn is floored to
multiples of 2^-shift first. A single record has no variance: its bin has no W.

# At the exact user-level sensitivity of every bin (``Baseline``)

Paper 003 ("Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets"), Baseline:
mean_g + Lap(b_g), b_g = U m*_g / (N_g eps), value clipped to [0, U]. We depart from the paper in three ways:
the noise is discrete Laplace on whole numbers (no floating-point leakage); the loss is each vehicle's own;
and a variance is measured by sums of x and of x (U - x), at the ratio that is best for a variance alone.

Theorem (REPLACE_USER_VALUES): ``measurement.sets``, steps added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.bounding.arrays import dropped_variance_bias
from trafficdp.bounding.worst_case import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Laplace
from trafficdp.measurement.sets import Measure, Priced, Step
from trafficdp.mechanisms import means, protocol, publish, two_moments
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.two_moments import best_ratio, relative_price, spread
from trafficdp.model import OF_MAPS, ContributionBound, Counts, Statistic
from trafficdp.noise import tail
from trafficdp.noise.source import LARGEST_SCALE, group_scales
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.loss import LossKind, PrivacyEvent, round_up
from trafficdp.sensitive import Contributions, Samples, SensitiveInputs

Sizes = Mapping[Statistic, float] | Mapping[Statistic, FloatArray]
"""How large the noise of a statistic may be, in its unit: a number, or one a bin (G,)."""


@dataclass(frozen=True, eq=False)
class LaplaceNoise:
    """Scales b (``mean``), b' (``vehicle_mean``) and ratios c (``ratio``) of ``statistics``, shape (G,) each.

    A scale is 0 where nothing is measured, and for a statistic that is not there.
    """

    counts: Counts
    bound: ContributionBound
    statistics: tuple[Statistic, ...]
    mean: FloatArray
    ratio: FloatArray
    vehicle_mean: FloatArray

    @classmethod
    def cheapest_within(cls, counts: Counts, bound: ContributionBound, largest_noise: Sizes) -> LaplaceNoise:
        """Return the cheapest noise whose expected absolute size is at most each statistic's
        ``largest_noise``.
        """
        none = np.zeros(counts.bins)
        mean = none + largest_noise.get(Statistic.MEAN, np.inf)
        second = none + largest_noise.get(Statistic.VARIANCE, np.inf)
        ratio = best_ratio(float(bound.upper), mean, second)
        both = np.minimum(mean, second / (float(bound.upper) * spread(ratio)))
        mean = np.where(has_variance(tuple(largest_noise), counts), both, mean)
        return cls(
            counts,
            bound,
            in_statistic_order(largest_noise),
            np.where(measures_speeds(tuple(largest_noise), counts), mean, 0.0),
            ratio,
            none + largest_noise.get(Statistic.VEHICLE_MEAN, 0.0),
        )

    @classmethod
    def of_sensitivity(cls, counts: Counts, bound: ContributionBound, ratio: Sizes) -> LaplaceNoise:
        """Return noise in proportion to each bin's sensitivity, at which its largest user loses epsilon 1.

        That is by one measurement: mean and variance are one. ``ratio`` are their relative sizes of noise.
        """
        even = cls.cheapest_within(counts, bound, ratio)
        largest = mean_sensitivity(counts.largest_count_per_bin, counts.samples_per_bin, float(bound.upper))
        return replace(
            even,
            mean=np.where(even.mean > 0, largest * even.price, 0.0),
            vehicle_mean=np.where(
                even.vehicle_mean > 0, vehicle_mean_sensitivity(counts.users_per_bin, float(bound.upper)), 0.0
            ),
        )

    @property
    def measures_products(self) -> BoolArray:
        """Whether the sum W of x (U - x), for a variance, is measured in each bin, shape (G,)."""
        return has_variance(self.statistics, self.counts)

    @property
    def price(self) -> FloatArray:
        """The loss of both sums S and W of a bin over that of S alone, at the same scale of S, (G,)."""
        return np.where(self.measures_products, relative_price(self.bound.upper_steps, self.ratio), 1.0)

    def scaled(self, factor: float) -> LaplaceNoise:
        """Return this noise with all scales multiplied by ``factor``."""
        return replace(self, mean=self.mean * factor, vehicle_mean=self.vehicle_mean * factor)

    def pair_loss(self) -> FloatArray:
        """Return the epsilon that each (bin, vehicle) pair adds to its vehicle's loss, in floats, shape (P,).

        Infinite where a number that is asked for and can vary has no noise.
        """
        counts, upper, place = self.counts, float(self.bound.upper), self.counts.bin_index
        measured = measures_speeds(self.statistics, counts)
        with np.errstate(divide="ignore"):
            price = np.where(measured, self.price / self.mean, 0.0)[place]
            loss = mean_sensitivity(counts.count, counts.samples_per_bin[place], upper) * price
            if Statistic.VEHICLE_MEAN in self.statistics:
                users = counts.users_per_bin[place]
                loss = loss + vehicle_mean_sensitivity(users, upper) / self.vehicle_mean[place]
        return np.asarray(loss)

    def loss(self) -> FloatArray:
        """Return every vehicle's loss epsilon, (users,), in floats for planning; charges use whole
        numbers.
        """
        return self.counts.sum_per_user(self.pair_loss())

    def expected_noise(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute noise (of a mean its Laplace scale), shape (G,), in
        its unit.
        """
        of = {
            Statistic.MEAN: self.mean,
            Statistic.VARIANCE: tail.two_noises_mean(*self._of_variances()),
            Statistic.VEHICLE_MEAN: self.vehicle_mean,
        }
        return {statistic: of[statistic] for statistic in self.statistics}

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst truth, clamped, unrounded, (G,)."""
        found: dict[Statistic, FloatArray] = {}
        for statistic, size in self.expected_noise().items():
            max_value = statistic.largest(self.bound.upper)
            if statistic is Statistic.VARIANCE:
                found[statistic] = tail.two_noises_error(*self._of_variances(), max_value)
            else:
                found[statistic] = tail.clamped_laplace_error(size, np.zeros(len(size)), max_value)
        return found

    def _of_variances(self) -> tuple[FloatArray, FloatArray]:
        """Scales of U times the mean and of W/N, 0 where a variance can only be 0."""
        first = np.where(self.measures_products, float(self.bound.upper) * self.mean, 0.0)
        return first, self.ratio * first


def in_statistic_order(by_statistic: Mapping[Statistic, object]) -> tuple[Statistic, ...]:
    """Return the keys of ``by_statistic`` in the order of Statistic."""
    return tuple(statistic for statistic in Statistic if statistic in by_statistic)


def has_variance(statistics: tuple[Statistic, ...], counts: Counts) -> BoolArray:
    """Return which bins have a variance that is asked for and not always 0: those of several records,
    (G,).
    """
    return (counts.samples_per_bin > 1) & (Statistic.VARIANCE in statistics)


def measures_speeds(statistics: tuple[Statistic, ...], counts: Counts) -> BoolArray:
    """Return in which bins the sum of speeds is measured, for a mean or a variance, shape (G,)."""
    return has_variance(statistics, counts) | (Statistic.MEAN in statistics)


MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
KIND = "laplace"
NAME = "baseline"
"""Key of this noise in the registry."""
COMPOSITION = (
    "the loss is each vehicle's exact own loss, sums of x and of x (U - x) of a bin priced together, added "
    "over bins; the largest is the guarantee"
)
SENSITIVITY = {
    MEAN: "U m / N (m records of the vehicle among the N of the bin)",
    VARIANCE: two_moments.SENSITIVITY,
    VEHICLE_MEAN: "U / L (L vehicles in the bin)",
}
COLUMN = {MEAN: "lattice_scale", VEHICLE_MEAN: "lattice_scale", VARIANCE: "product_scale"}
"""Published columns of the scales; a variance without its mean carries the mean's too."""
SHIFT = "product_shift"


@dataclass(frozen=True)
class SumsMechanism:
    """What calibrated mechanisms of ``statistics`` share that add noise to sums of whole numbers.

    A variance is mean (U - mean), by the published mean, less the noisy average of x (U - x).
    """

    public: protocol.PublicFacts
    statistics: tuple[Statistic, ...]

    name: ClassVar[str]
    citation: ClassVar[tuple[str | None, str]]
    """Of means, and of variances, as are the next two."""
    distribution: ClassVar[tuple[str, str]]
    intervals: ClassVar[tuple[str, str]]
    sampler: ClassVar[str]

    def steps(self) -> tuple[Priced, ...]:
        """Return the noisy measurement steps that ``run`` will take, from public facts alone."""
        raise NotImplementedError

    def numbers(self, contributions: Contributions, measure: Measure) -> dict[Statistic, FloatArray]:
        """Measure private ``contributions``; return noisy averages before clamping, (G,) each, MEAN first.

        MEAN: S/N, also where only a variance is asked for; VARIANCE: W/N, of x (U - x). 0 where not measured.
        """
        raise NotImplementedError

    def columns(self, statistic: Statistic) -> dict[str, npt.NDArray[Any]]:
        """Return the published columns that say exactly how the noise of ``statistic`` was drawn, by name."""
        raise NotImplementedError

    def _law(self, statistic: Statistic, level: float | None) -> publish.NumberLaw:
        raise NotImplementedError

    def law(self, statistic: Statistic, level: float | None = None) -> publish.NumberLaw:
        """Return how far off the numbers of ``statistic`` may be; without ``level`` half widths may be 0.

        It follows from counts, and is worked out once for all draws.
        """
        if (statistic, level) not in self._laws:
            self._laws[statistic, level] = self._law(statistic, level)
        return self._laws[statistic, level]

    @cached_property
    def _laws(self) -> dict[tuple[Statistic, float | None], publish.NumberLaw]:
        return {}

    def event(self) -> PrivacyEvent:
        """Return the privacy event: every vehicle's exact loss, from public counts."""
        counts, bound = self.public.counts, self.public.bound
        sensitivity = {each: largest_sensitivity(each, counts, bound) for each in self.statistics}
        loss = protocol.loss_of(self.steps(), counts.users)
        return protocol.privacy_event(self.name, self.public, loss, sensitivity)

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure the private ``values`` with noise, and return the estimates of all bins."""
        bound = self.public.bound
        found: dict[Statistic, Estimate] = {}
        for statistic, value in self.numbers(values.contributions, measure).items():
            law, mean = self.law(statistic, interval_level), None
            if statistic is VARIANCE:
                mean = found[MEAN]
                limit = publish.largest_variance(mean.value, float(bound.upper))
                value = np.where(law.error > 0, limit - value, 0.0)
            columns = self.columns(statistic)
            found[statistic] = publish.publish_estimate(statistic, value, law, columns, bound, mean)
        return {statistic: found[statistic] for statistic in self.statistics}

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, shape (G,), from counts
        and noise.
        """
        return {each: self.law(each).error for each in self.statistics}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's half width of intervals, (G,): the noise's tail and the worst-case bias."""
        return {each: self.law(each, interval_level).half_width for each in self.statistics}

    def statement(self, statistic: Statistic) -> protocol.Statement:
        """Return how ``statistic`` is made noisy, in words and numbers, for the release's manifest."""
        law, pair = self.law(statistic), statistic is VARIANCE
        return protocol.Statement(
            mechanism=self.name,
            citation=self.citation[pair],
            sensitivity=SENSITIVITY[statistic],
            noise_scale=law.scale,
            worst_case_bias=float(law.bias.max()),
            share=None,
            distribution=self.distribution[pair],
            sampler=self.sampler,
            interval_basis=self.intervals[pair],
            post_processing=two_moments.POST_PROCESSING if pair else protocol.POST_PROCESSING[statistic],
        )


@dataclass(frozen=True)
class CalibratedLaplace(SumsMechanism):
    """``scale`` (G,) of the noise of sums S (MEAN), W (VARIANCE) and of vehicle means, in their units.

    0 where nothing is measured. ``shift`` (G,) <= 0 is that of W. See CalibratedMechanism.
    """

    scale: Mapping[Statistic, FloatArray]
    shift: IntArray

    kind = KIND
    composition = COMPOSITION
    name = NAME
    citation = (None, two_moments.CITATION)
    distribution = ("discrete Laplace on whole numbers", two_moments.DISTRIBUTION)
    intervals = (
        "exact tail of the discrete Laplace noise, widened by the worst-case bias",
        two_moments.INTERVALS,
    )
    sampler = "OpenDP make_laplace (discrete Laplace on integers)"

    @classmethod
    def of(cls, noise: LaplaceNoise) -> CalibratedLaplace:
        """Return the mechanism with ``noise`` on sums of whole numbers; scales are rounded up, never down.

        Raises UsageError for scales that are negative, not finite, or too large to be drawn exactly.
        """
        counts, bound = noise.counts, noise.bound
        shift = np.zeros(counts.bins, dtype=np.int64)
        scale = {}
        if MEAN in noise.statistics or VARIANCE in noise.statistics:
            scale[MEAN] = _drawable(_in_units(noise.mean, means.unit(MEAN, counts, bound)), MEAN)
        if VARIANCE in noise.statistics:
            second = round_up(round_up(scale[MEAN] * float(bound.upper_steps)) * noise.ratio)
            second = np.where(noise.measures_products & (scale[MEAN] > 0), second, 0.0)
            excess = np.maximum(0, np.ceil(np.log2(np.maximum(second / (LARGEST_SCALE / 4), 1.0))))
            shift = -excess.astype(np.int64)
            # division by a power of two is exact
            scale[VARIANCE] = _drawable(np.ldexp(second, shift), VARIANCE)
        if VEHICLE_MEAN in noise.statistics:
            own = _in_units(noise.vehicle_mean, means.unit(VEHICLE_MEAN, counts, bound))
            scale[VEHICLE_MEAN] = _drawable(own, VEHICLE_MEAN)
        return cls(protocol.PublicFacts(counts, bound), noise.statistics, scale, shift)

    def steps(self) -> tuple[Priced, ...]:
        """Return the measurement steps: the pairs of sums (S, W), or S alone, and the vehicle means."""
        return tuple(self._steps().values())

    def numbers(self, contributions: Contributions, measure: Measure) -> dict[Statistic, FloatArray]:
        """Measure private ``contributions``; return noisy averages before clamping, (G,) each, MEAN first.

        MEAN: S/N, also where only a variance is asked for; VARIANCE: W/N, of x (U - x). 0 where not measured.
        """
        counts, bound = self.public.counts, self.public.bound
        found = {}
        for statistic, step in self._steps().items():
            if statistic is not VARIANCE:
                drawn = measure.measure(step, means.values_of(statistic, contributions))
                found[statistic] = drawn * means.unit(statistic, counts, bound)
                continue
            measured = measures_speeds(self.statistics, counts)
            drawn = measure.measure(step, means.values_of(statistic, contributions.select(measured)))
            both = np.zeros((2, counts.bins))
            both[:, measured] = drawn.reshape(2, -1)
            # a floored sum is in the middle of its step
            whole = np.ldexp(both[1] + np.where(self.shift < 0, 0.5, 0.0), -self.shift)
            found[MEAN] = both[0] * means.unit(MEAN, counts, bound)
            found[VARIANCE] = whole * means.unit(VARIANCE, counts, bound)
        return found

    def terms(self, statistic: Statistic) -> tuple[NoiseTerm, ...]:
        """Return the Laplace noises in ``statistic``, without bias; in a variance those of U times mean
        and of W/N.
        """
        counts, bound = self.public.counts, self.public.bound
        none = np.zeros(counts.bins)
        if statistic is not VARIANCE:
            return (NoiseTerm(self.scale[statistic], means.unit(statistic, counts, bound), none),)
        varies = has_variance(self.statistics, counts)
        mean = np.where(varies, self.scale[MEAN], 0.0)
        products = np.where(varies, self.scale[VARIANCE], 0.0)
        return (
            NoiseTerm(mean, float(bound.upper) * means.unit(MEAN, counts, bound), none),
            NoiseTerm(products, np.ldexp(means.unit(VARIANCE, counts, bound), -self.shift), none),
        )

    def bias(self, statistic: Statistic) -> FloatArray:
        """Return the most that rounding speeds, and flooring W, change ``statistic``, in its unit, (G,)."""
        counts, bound = self.public.counts, self.public.bound
        rounding = np.full(counts.bins, publish.rounding_bias(statistic, bound))
        if statistic is not VARIANCE:
            return rounding
        step = np.ldexp(means.unit(VARIANCE, counts, bound), -self.shift)
        floored = np.where(self.shift < 0, step / 2, 0.0)
        return np.where(has_variance(self.statistics, counts), rounding + floored, 0.0)

    def to_facts(self) -> dict[str, Any]:
        """Return the mechanism as JSON values, without its public facts; ``from_facts`` restores it."""
        return {
            "kind": KIND,
            "statistics": [statistic.value for statistic in self.statistics],
            "scale": {statistic.value: scale.tolist() for statistic, scale in self.scale.items()},
            "shift": self.shift.tolist(),
        }

    def manifest_facts(self) -> dict[str, Any]:
        """Return {"kind": KIND} for the manifest: scales and shifts are published as columns of the bins."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: protocol.PublicFacts) -> CalibratedLaplace:
        """Return the mechanism from the frozen plan's ``facts`` (see ``to_facts``) and the public facts."""
        return cls(
            public,
            tuple(Statistic(name) for name in facts["statistics"]),
            {Statistic(name): np.array(scale, dtype=np.float64) for name, scale in facts["scale"].items()},
            np.array(facts["shift"], dtype=np.int64),
        )

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: protocol.Columns, public: protocol.PublicFacts
    ) -> CalibratedLaplace:
        """Return the mechanism of a published release from its noise ``columns``; UsageError if one is
        missing.
        """
        statistics = in_statistic_order(columns)
        own = {statistic: columns[statistic].get(COLUMN[statistic]) for statistic in statistics}
        shift = columns[VARIANCE].get(SHIFT) if VARIANCE in columns else None
        if VARIANCE in columns and MEAN not in columns:
            own[MEAN] = columns[VARIANCE].get(COLUMN[MEAN])
        scale = {each: values.astype(np.float64) for each, values in own.items() if values is not None}
        if len(scale) != len(own) or (shift is None) is (VARIANCE in columns):
            raise UsageError("a statistic is published without its noise")
        none = np.zeros(len(next(iter(scale.values()), ())), dtype=np.int64)
        return cls(public, statistics, scale, none if shift is None else shift.astype(np.int64))

    def _steps(self) -> dict[Statistic, Step]:
        """What is measured; under VARIANCE both sums, in the bins where they are."""
        counts, bound = self.public.counts, self.public.bound
        found = {}
        if VARIANCE in self.statistics:
            measured = measures_speeds(self.statistics, counts)
            scale = np.concatenate([self.scale[each][measured] for each in (MEAN, VARIANCE)])
            shift = self.shift[measured]
            of = means.speeds_and_products(counts.select(measured), bound)
            found[VARIANCE] = Step(of, Laplace(scale), np.concatenate([np.zeros_like(shift), shift]))
        elif MEAN in self.statistics:
            found[MEAN] = Step(means.box_of(MEAN, counts, bound), Laplace(self.scale[MEAN]))
        if VEHICLE_MEAN in self.statistics:
            of_vehicles = means.box_of(VEHICLE_MEAN, counts, bound)
            found[VEHICLE_MEAN] = Step(of_vehicles, Laplace(self.scale[VEHICLE_MEAN]))
        return found

    def _law(self, statistic: Statistic, level: float | None) -> publish.NumberLaw:
        terms, bias = self.terms(statistic), self.bias(statistic)
        max_value, half = statistic.largest(self.public.bound.upper), np.zeros(len(bias))
        size = terms[0].scale * terms[0].step
        if statistic is not VARIANCE:
            if level is not None:
                half = tail.half_width(terms[0].scale, level) * terms[0].step + bias
            return publish.NumberLaw(size, tail.clamped_laplace_error(size, bias, max_value), bias, half)
        # how far whole noises may lie above continuous ones, together (``noise.tail``)
        second = terms[1].scale * terms[1].step
        shift = np.asarray(sum(tail.lattice_shift(term.scale) * term.step for term in terms))
        error = np.minimum(tail.two_noises_error(size, second, max_value) + shift, max_value)
        varies = has_variance(self.statistics, self.public.counts)
        error = np.where(varies, np.minimum(error + bias, max_value), 0.0)
        if level is not None:
            half = tail.two_noises_half_width(size, second, 1 - level) + shift + bias
        return publish.NumberLaw(tail.two_noises_mean(size, second), error, bias, half)

    def columns(self, statistic: Statistic) -> dict[str, npt.NDArray[Any]]:
        """Return the published columns of the scales, and of the shift of a variance's product, by name."""
        columns: dict[str, npt.NDArray[Any]] = {COLUMN[statistic]: self.scale[statistic]}
        if statistic is VARIANCE:
            columns[SHIFT] = self.shift
            if MEAN not in self.statistics:
                columns[COLUMN[MEAN]] = self.scale[MEAN]
        return columns


def largest_sensitivity(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return the most that one vehicle changes ``statistic`` in every bin, in its unit, shape (G,)."""
    upper = float(bound.upper)
    largest, samples = counts.largest_count_per_bin, counts.samples_per_bin
    if statistic is VEHICLE_MEAN:
        return vehicle_mean_sensitivity(counts.users_per_bin, upper)
    # what leaving out as many records may do, changing them may
    move = mean_sensitivity if statistic is MEAN else dropped_variance_bias
    return move(largest, samples, upper)


def _in_units(scale: FloatArray, of: FloatArray) -> FloatArray:
    """``scale`` in whole units ``of`` a sum, rounded up, 0 where it is 0."""
    if not bool(np.all(np.isfinite(scale) & (scale >= 0))):
        raise UsageError("a noise scale is not a number of at least 0", expected="finite scales")
    return np.where(scale > 0, round_up(round_up(scale) / of), 0.0)


def _drawable(scale: FloatArray, statistic: Statistic) -> FloatArray:
    """``scale`` in few distinct values; UsageError where it cannot be drawn exactly."""
    grouped = group_scales(scale)
    if not bool(np.all(grouped <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"{statistic.value} with a scale of {float(grouped.max()):.3g} steps",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return grouped


@dataclass(frozen=True)
class Baseline:
    """The Laplace mechanism of every statistic: what a bin's largest vehicle loses is epsilon_g."""

    name = NAME
    citation = (
        "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "
        "Baseline; variance by sums of x and of x (U - x), here"
    )
    statistics = OF_MAPS
    idealised = False
    kind = LossKind.PURE
    enforced = True

    def steps(self, request: protocol.StatisticRequest) -> tuple[Priced, ...]:
        """Return the noisy measurements for ``request``, from public counts."""
        return calibrated_for(request).steps()

    def sensitivity(self, request: protocol.StatisticRequest) -> FloatArray:
        """Return the most that one vehicle's values change each bin's number, in its unit, shape (G,)."""
        return calibrated_for(request).event().sensitivity[request.statistic]

    def expected_error(self, request: protocol.StatisticRequest) -> FloatArray:
        """Return each bin's expected absolute error at the worst values, by noise and rounding, (G,)."""
        return calibrated_for(request).expected_errors()[request.statistic]

    def noise_terms(self, request: protocol.StatisticRequest) -> tuple[NoiseTerm, ...]:
        """Return the noises and the bias that bound the error of each number before it is clamped."""
        calibrated = calibrated_for(request)
        first, *more = calibrated.terms(request.statistic)
        return (replace(first, bias=calibrated.bias(request.statistic)), *more)

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy estimates of ``statistic`` in all bins, clamped to its range; ``samples`` are
        private.
        """
        calibrated = calibrated_for(protocol.StatisticRequest(samples.counts, samples.bound, statistic, loss))
        upper, drawn = float(samples.bound.upper), calibrated.numbers(samples.contributions(), measure)
        if statistic is not VARIANCE:
            return publish.clamp_to_range(statistic, drawn[statistic], upper)
        mean = publish.clamp_to_range(MEAN, drawn[MEAN], upper)
        variance = publish.largest_variance(mean, upper) - drawn[VARIANCE]
        varies = samples.counts.samples_per_bin > 1
        return np.where(varies, publish.clamp_to_range(statistic, variance, upper, mean), 0.0)


def calibrated_for(request: protocol.StatisticRequest) -> CalibratedLaplace:
    """Return the mechanism whose noise costs the largest vehicle of each bin ``request.loss`` (infinite:
    none).

    Raises UsageError for a quantile, and unless every epsilon is above 0 and its noise can be drawn.
    """
    protocol.require_statistic(Baseline.name, request.statistic, Baseline.statistics)
    noise = LaplaceNoise.of_sensitivity(request.counts, request.bound, {request.statistic: 1.0})
    with np.errstate(over="ignore"):
        each = (1 + means.HEADROOM) / means.checked_epsilon(request.loss, request.counts)
    return CalibratedLaplace.of(
        replace(noise, mean=noise.mean * each, vehicle_mean=noise.vehicle_mean * each)
    )
