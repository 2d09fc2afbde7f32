"""Calibrated ``laplace``: discrete Laplace noise on sums of whole numbers, mean and variance by one pair.

What is drawn (``sums``): S of every bin whose mean is asked for, the pair (S, W) of one whose variance is, so
that a variance alone measures S too; sums of vehicles' own means. A W whose scale would be beyond what can be
drawn is floored to multiples of 2^-shift first. A single record has no variance: its bin has no W.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.count_cap import dropped_variance_bias
from trafficdp.bounding.sensitivity import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Laplace
from trafficdp.measurement.measure import Measure, Priced, Step, plain
from trafficdp.mechanisms import pairs, publish
from trafficdp.mechanisms.calibrated import POST_PROCESSING, Columns, PublicFacts, Statement, event, loss_of
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.noise import LaplaceNoise, in_order, speeds_measured, varying
from trafficdp.mechanisms.sums import speeds, speeds_and_products, unit, values_of, vehicle_means
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.secure import LARGEST_SCALE, group_scales
from trafficdp.noise.sum_tail import lattice_shift, two_noises_error, two_noises_half_width, two_noises_mean
from trafficdp.noise.tail import clamped_laplace_error, half_width
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import round_up

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions, Values

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
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
    VARIANCE: pairs.SENSITIVITY,
    VEHICLE_MEAN: "U / L (L vehicles in the bin)",
}
DISTRIBUTION = "discrete Laplace on whole numbers"
SAMPLER = "OpenDP make_laplace (discrete Laplace on integers)"
INTERVALS = "exact tail of the discrete Laplace noise, widened by the worst-case bias"
COLUMN = {MEAN: "lattice_scale", VEHICLE_MEAN: "lattice_scale", VARIANCE: "product_scale"}
"""Published columns of the scales; a variance without its mean carries the mean's too."""
SHIFT = "product_shift"


@dataclass(frozen=True)
class CalibratedLaplace:
    """``scale`` (G,) of the noise of sums S (MEAN), W (VARIANCE) and of vehicle means, in their units.

    0 where nothing is measured. ``shift`` (G,) <= 0 is that of W. See Calibrated.
    """

    public: PublicFacts
    statistics: tuple[Statistic, ...]
    scale: Mapping[Statistic, FloatArray]
    shift: IntArray

    kind = KIND
    composition = COMPOSITION

    @classmethod
    def of(cls, noise: LaplaceNoise) -> CalibratedLaplace:
        """Return ``noise`` on whole numbers, never less of it.

        Raises UsageError for scales that are negative or not finite, or too large to be drawn exactly.
        """
        counts, bound = noise.counts, noise.bound
        shift = np.zeros(counts.bins, dtype=np.int64)
        scale = {}
        if MEAN in noise.statistics or VARIANCE in noise.statistics:
            scale[MEAN] = _drawable(_in_units(noise.mean, unit(MEAN, counts, bound)), MEAN)
        if VARIANCE in noise.statistics:
            second = round_up(round_up(scale[MEAN] * float(bound.steps)) * noise.ratio)
            second = np.where(noise.varies & (scale[MEAN] > 0), second, 0.0)
            excess = np.maximum(0, np.ceil(np.log2(np.maximum(second / (LARGEST_SCALE / 4), 1.0))))
            shift = -excess.astype(np.int64)
            # division by a power of two is exact
            scale[VARIANCE] = _drawable(np.ldexp(second, shift), VARIANCE)
        if VEHICLE_MEAN in noise.statistics:
            own = _in_units(noise.vehicle_mean, unit(VEHICLE_MEAN, counts, bound))
            scale[VEHICLE_MEAN] = _drawable(own, VEHICLE_MEAN)
        return cls(PublicFacts(counts, bound), noise.statistics, scale, shift)

    def steps(self) -> tuple[Priced, ...]:
        """See Calibrated: the pairs (S, W), or S alone, and the vehicle means."""
        return tuple(self._steps().values())

    def event(self) -> PrivacyEvent:
        """See Calibrated."""
        sensitivity = {each: largest_sensitivity(each, *self.public.both) for each in self.statistics}
        return event(NAME, self.public, loss_of(self.steps(), self.public.counts.users), sensitivity)

    def numbers(self, contributions: Contributions, measure: Measure) -> dict[Statistic, FloatArray]:
        """Measure, and return what was drawn as averages, unclamped, shape (G,) each, MEAN before VARIANCE.

        MEAN: S/N, also where only a variance is asked for; VARIANCE: W/N; 0 where nothing is measured.
        """
        counts, bound = self.public.both
        found = {}
        for statistic, step in self._steps().items():
            if statistic is not VARIANCE:
                drawn = measure.measure(step, values_of(statistic, contributions))
                found[statistic] = drawn * unit(statistic, counts, bound)
                continue
            measured = speeds_measured(self.statistics, counts)
            drawn = measure.measure(step, values_of(statistic, contributions.select(measured)))
            both = np.zeros((2, counts.bins))
            both[:, measured] = drawn.reshape(2, -1)
            # a floored sum is in the middle of its step
            whole = np.ldexp(both[1] + np.where(self.shift < 0, 0.5, 0.0), -self.shift)
            found[MEAN] = both[0] * unit(MEAN, counts, bound)
            found[VARIANCE] = whole * unit(VARIANCE, counts, bound)
        return found

    def run(self, values: Values, measure: Measure, *, interval_level: float) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        bound = self.public.bound
        found: dict[Statistic, Estimate] = {}
        for statistic, value in self.numbers(values.contributions, measure).items():
            half = self._half_width(statistic, interval_level)
            if statistic is VARIANCE:
                found[statistic] = pairs.variance_estimate(
                    found[MEAN],
                    value,
                    self._variance_noise,
                    half,
                    bound,
                    self._columns(statistic),
                )
                continue
            drawn = publish.Drawn(
                value=value,
                half_width=half,
                noise_scale=self.noise_scale(statistic),
                expected_error=self._error(statistic),
                noise=self._columns(statistic),
            )
            found[statistic] = publish.estimate(statistic, drawn, bound)
        return {statistic: found[statistic] for statistic in self.statistics}

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """See Calibrated: those of clamped Laplace noise, and the worst-case bias."""
        return {each: self._error(each) for each in self.statistics}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """See Calibrated: the tail of the noise, and the worst-case bias."""
        return {each: self._half_width(each, interval_level) for each in self.statistics}

    def statement(self, statistic: Statistic) -> Statement:
        """See Calibrated."""
        pair = statistic is VARIANCE
        return Statement(
            mechanism=NAME,
            citation=pairs.CITATION if pair else None,
            sensitivity=SENSITIVITY[statistic],
            noise_scale=self.noise_scale(statistic),
            worst_case_bias=float(self.bias(statistic).max()),
            share=None,
            distribution=pairs.DISTRIBUTION if pair else DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=pairs.INTERVALS if pair else INTERVALS,
            post_processing=pairs.POST_PROCESSING if pair else POST_PROCESSING[statistic],
        )

    def terms(self, statistic: Statistic) -> tuple[NoiseTerm, ...]:
        """Return the noises of a statistic, without bias; of a variance those of U times its mean and W/N."""
        counts, bound = self.public.both
        none = np.zeros(counts.bins)
        if statistic is not VARIANCE:
            return (NoiseTerm(self.scale[statistic], unit(statistic, counts, bound), none),)
        varies = varying(self.statistics, counts)
        mean = np.where(varies, self.scale[MEAN], 0.0)
        products = np.where(varies, self.scale[VARIANCE], 0.0)
        return (
            NoiseTerm(mean, float(bound.upper) * unit(MEAN, counts, bound), none),
            NoiseTerm(products, np.ldexp(unit(VARIANCE, counts, bound), -self.shift), none),
        )

    def bias(self, statistic: Statistic) -> FloatArray:
        """Return what rounding speeds, and flooring W, move a statistic at most, shape (G,)."""
        counts, bound = self.public.both
        rounding = np.full(counts.bins, publish.rounding_bias(statistic, bound))
        if statistic is not VARIANCE:
            return rounding
        floored = np.where(self.shift < 0, np.ldexp(unit(VARIANCE, counts, bound), -self.shift) / 2, 0.0)
        return np.where(varying(self.statistics, counts), rounding + floored, 0.0)

    def noise_scale(self, statistic: Statistic) -> FloatArray:
        """Return the expected absolute noise, in the statistic's unit: of a mean its scale, shape (G,)."""
        if statistic is VARIANCE:
            return self._variance_noise.scale
        (term,) = self.terms(statistic)
        return term.scale * term.step

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated."""
        return {
            "kind": KIND,
            "statistics": [statistic.value for statistic in self.statistics],
            "scale": {statistic.value: scale.tolist() for statistic, scale in self.scale.items()},
            "shift": self.shift.tolist(),
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the columns of COLUMN and SHIFT say the rest."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: PublicFacts) -> CalibratedLaplace:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        return cls(
            public,
            tuple(Statistic(name) for name in facts["statistics"]),
            {Statistic(name): np.array(scale, dtype=np.float64) for name, scale in facts["scale"].items()},
            np.array(facts["shift"], dtype=np.int64),
        )

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: Columns, public: PublicFacts
    ) -> CalibratedLaplace:
        """Return the calibrated mechanism of the numbered bins; raise UsageError when a column is missing."""
        statistics = in_order(columns)
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
        counts, bound = self.public.both
        found = {}
        if VARIANCE in self.statistics:
            measured = speeds_measured(self.statistics, counts)
            scale = np.concatenate([self.scale[each][measured] for each in (MEAN, VARIANCE)])
            shift = self.shift[measured]
            of = speeds_and_products(counts.select(measured), bound)
            found[VARIANCE] = Step(of, Laplace(scale), np.concatenate([np.zeros_like(shift), shift]))
        elif MEAN in self.statistics:
            found[MEAN] = plain(speeds(counts, bound), Laplace(self.scale[MEAN]))
        if VEHICLE_MEAN in self.statistics:
            found[VEHICLE_MEAN] = plain(vehicle_means(counts, bound), Laplace(self.scale[VEHICLE_MEAN]))
        return found

    def _error(self, statistic: Statistic) -> FloatArray:
        reach, bias = statistic.largest(self.public.bound.upper), self.bias(statistic)
        if statistic is VARIANCE:
            return self._variance_noise.error(reach)
        scale: FloatArray = np.asarray(self.noise_scale(statistic))
        return clamped_laplace_error(scale, bias, reach)

    def _half_width(self, statistic: Statistic, level: float) -> FloatArray:
        terms, bias = self.terms(statistic), self.bias(statistic)
        if statistic is not VARIANCE:
            return half_width(terms[0].scale, level) * terms[0].step + bias
        first, second = (term.scale * term.step for term in terms)
        return two_noises_half_width(first, second, 1 - level) + _shift_of(terms) + bias

    @cached_property
    def _variance_noise(self) -> pairs.VarianceNoise:
        terms, reach = self.terms(VARIANCE), VARIANCE.largest(self.public.bound.upper)
        first, second = (term.scale * term.step for term in terms)
        error = np.minimum(two_noises_error(first, second, reach) + _shift_of(terms), reach)
        bias = self.bias(VARIANCE)
        return pairs.VarianceNoise(
            varying(self.statistics, self.public.counts), two_noises_mean(first, second), error, bias
        )

    def _columns(self, statistic: Statistic) -> dict[str, npt.NDArray[Any]]:
        columns: dict[str, npt.NDArray[Any]] = {COLUMN[statistic]: self.scale[statistic]}
        if statistic is VARIANCE:
            columns[SHIFT] = self.shift
            if MEAN not in self.statistics:
                columns[COLUMN[MEAN]] = self.scale[MEAN]
        return columns


def largest_sensitivity(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return the most that one vehicle moves ``statistic`` in every bin (its unit, shape (G,))."""
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


def _shift_of(terms: tuple[NoiseTerm, ...]) -> FloatArray:
    """How far whole noises may lie above continuous ones, together (``noise.sum_tail``)."""
    return np.asarray(sum(lattice_shift(term.scale) * term.step for term in terms))
