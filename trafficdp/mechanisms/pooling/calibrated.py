"""The calibrated mechanisms ``partial_pooling`` and ``flat``: maps that lean on the whole city."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from trafficdp.arrays import FloatArray
from trafficdp.measurement.laws import EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import Box, Measure, Moments, Priced, Step
from trafficdp.mechanisms.names import FLAT, POOLED
from trafficdp.mechanisms.pooling import estimates as pooling_estimates
from trafficdp.mechanisms.pooling import posterior
from trafficdp.mechanisms.pooling.design import LEVEL, Design
from trafficdp.mechanisms.pooling.whole import BY_POSTERIOR, JointMechanism, calibration
from trafficdp.mechanisms.protocol import require_statistic
from trafficdp.mechanisms.publish import rounding_bias, status_of
from trafficdp.model import OF_MAPS, ContributionBound, Statistic
from trafficdp.privacy.disclosure import Calibration
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.loss import PICO, LossKind, round_up
from trafficdp.sensitive import SensitiveInputs

CITATION = "here; shrinkage toward a common level by James, Stein 1961, and Efron, Morris 1975"


_design = lru_cache(maxsize=2)(Design)
"""Two designs are kept: plan, rehearsal and draw have the same counts, one number a design."""


@dataclass(frozen=True)
class CalibratedPooling(JointMechanism):
    """Partial pooling (``design``, ``estimates``) of all bins, for ``pico`` 10^-12 of ``loss_kind``."""

    kind: ClassVar[str] = POOLED
    citation: ClassVar[str | None] = CITATION
    sensitivity: ClassVar[str] = (
        "a vehicle's whole vector of weighted deviations is clipped to one length, before it is added up"
    )
    composition: ClassVar[str] = (
        "askings for one vector a vehicle each, clipped as a whole: a vehicle loses at most the asking's "
        "share of the budget, less where its numbers' intervals are short, added over askings; the largest "
        "is the guarantee"
    )
    distribution: ClassVar[str] = (
        "a fixed-prior posterior mean of noisy sums over vehicles: the city, its slope on dwell, and cells"
    )
    intervals: ClassVar[str] = BY_POSTERIOR
    estimable: ClassVar[tuple[Statistic, ...]] = OF_MAPS
    trials: ClassVar[Mapping[Statistic, Calibration]] = {
        **dict.fromkeys((Statistic.MEAN, Statistic.VEHICLE_MEAN), calibration(0.974, 0.882, 0.922)),
        Statistic.VARIANCE: calibration(0.962, 0.867, 0.942),
    }
    from_known: ClassVar[bool] = True

    @property
    def design(self) -> Design:
        """What will be measured, and with which noise.

        UsageError for a statistic that partial pooling lacks.
        """
        for each in self.statistics:
            require_statistic(self.kind, each, self.estimable)
        return _design(self.public.counts, self.public.bound, self.loss_kind, self.pico, self.statistics)

    def steps(self) -> tuple[Priced, ...]:
        """Return the measurement steps, each at the largest privacy loss it can have, from public counts.

        Later steps are clipped by bounds that follow from earlier noisy answers, which can only lower a loss.
        """
        return self.design.most_expensive_steps()

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure the private ``values`` with noise and return the estimates of all bins.

        ``interval_level`` is not used: the intervals are tuned to hold in 95 % of places.
        """
        found = pooling_estimates.pooled_estimates(
            self.design, values.contributions, measure, self.public.known
        )
        estimates = {
            each: self.estimate_from_posterior(each, own, self.shared_columns())
            for each, own in found.means.items()
        }
        if found.variance is not None:
            estimates[Statistic.VARIANCE] = self.variance_estimate(found.variance, self.shared_columns())
        return {each: estimates[each] for each in self.statistics}

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error, shape (G,), from public counts and prior guesses.

        It is the usual error in cities that are like the prior, not that of the worst case.
        """
        # the mean absolute value of a normal error
        own = {
            each: pooling_estimates.expected_variances(self.design).error
            if each is Statistic.VARIANCE
            else np.asarray(np.sqrt(2 / np.pi) * pooling_estimates.expected_map_error(self.design, each))
            for each in self.statistics
        }
        return _errors(own, self.statistics, self.public.bound)

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's half width of intervals expected at a usual speed, (G,), before release.

        The published intervals follow the noisy answers instead.
        """
        design, tail, upper = self.design, float(ndtri((1 + interval_level) / 2)), self.public.bound.upper
        found: dict[Statistic, FloatArray] = {}
        for each in self.statistics:
            if each is Statistic.VARIANCE:
                low, high = pooling_estimates.expected_variances(design).ends[posterior.LEVELS[-1]]
                found[each] = (high - low) / 2
            else:
                found[each] = np.minimum(
                    tail * pooling_estimates.expected_map_error(design, each), float(upper)
                )
        return found


@dataclass(frozen=True)
class CalibratedCityWide(JointMechanism):
    """One private number for the whole city, painted on every bin: the yardstick of every map.

    The mean over all records, from one sum with noise for the vehicle that has most of them: its posterior
    mean under the prior that partial pooling has, so that neither is compared with mere noise.
    """

    kind: ClassVar[str] = FLAT
    citation: ClassVar[str | None] = None
    sensitivity: ClassVar[str] = "U M / N (M records of the busiest vehicle among the N of the city)"
    composition: ClassVar[str] = (
        "one sum over the whole city, with noise for the vehicle that has most records in it"
    )
    distribution: ClassVar[str] = (
        "the posterior mean of one noisy mean over all records under a fixed prior, painted on every bin"
    )
    intervals: ClassVar[str] = (
        "as far as a posterior says that places usually lie from one number; told in calibration"
    )
    estimable: ClassVar[tuple[Statistic, ...]] = OF_MAPS
    trials: ClassVar[Mapping[Statistic, Calibration]] = {
        **dict.fromkeys((Statistic.MEAN, Statistic.VEHICLE_MEAN), calibration(0.994, 0.957, 0.776)),
        Statistic.VARIANCE: calibration(0.938, 0.828, 0.66),
    }

    def steps(self) -> tuple[Step, ...]:
        """Return the noisy sums over the whole city: of speeds and, for a variance, of x (U - x) of speeds x.

        In pure epsilon both sums are one step, in rho two.
        """
        return self._steps

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        bound = self.public.bound
        # one number of every vehicle that is anywhere
        counts = self.public.counts
        user = np.flatnonzero(counts.bins_per_user > 0).astype(np.int64)
        one = EntryIndex(user, np.zeros(len(user), dtype=np.int64), counts.users, 1)
        records = np.bincount(counts.user_index, counts.count, counts.users)[user].astype(np.int64)
        paired = Statistic.VARIANCE in self.statistics
        loss, most = self.pico / PICO * (1 - 2.0**-40), int(records.max(initial=0))
        change = most * bound.upper_steps
        if self.loss_kind is LossKind.PURE and paired:
            # from W's scale K times S's on, variances are free
            pair = np.array([change / loss, bound.upper_steps * change / loss]) * (1 + 2.0**-40)
            return (
                Step(Moments(one, records, bound.upper_steps, np.ones(1, dtype=np.bool_)), Laplace(pair)),
            )
        if self.loss_kind is LossKind.PURE:
            return (
                Step(Box(one, records * bound.upper_steps), Laplace(round_up(np.array([change / loss])))),
            )
        ends = [records * bound.upper_steps, records * (bound.upper_steps**2 // 4)][: 1 + paired]
        sd = [round_up(np.array([end.max(initial=0) * np.sqrt(len(ends) / (2 * loss))])) for end in ends]
        return tuple(Step(Box(one, end), Gaussian(noise)) for end, noise in zip(ends, sd, strict=True))

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure the private ``values`` with noise, and publish one number for the city in every bin.

        Intervals say how far bins usually lie from it, by the prior.
        """
        bound, value = self.public.bound, self.numbers(values, measure)
        found: dict[Statistic, Estimate] = {}
        for each in self.statistics:
            if each is Statistic.VARIANCE:
                own = self._spread(value[each], value[Statistic.MEAN])
                found[each] = self.variance_estimate(own, self.shared_columns())
            else:
                noise = _left(float(self._noise[0]), float(bound.upper) / 6)
                mean = pooling_estimates.city_wide_posterior(self._design, value[each], noise)
                one = self.estimate_from_posterior(each, mean, self.shared_columns())
                # it is one number for the city, and says so
                found[each] = replace(one, status=status_of(one.expected_error, each, bound))
        return found

    def numbers(self, values: SensitiveInputs, measure: Measure) -> dict[Statistic, float]:
        """Measure private ``values`` with noise, and return one number for the city for each statistic."""
        contributions = values.contributions
        counts, bound = self.public.counts, self.public.bound
        many, upper, unit = int(counts.count.sum()), float(bound.upper), float(bound.step)
        own = [np.bincount(counts.user_index, contributions.total, counts.users)]
        squares = np.bincount(counts.user_index, contributions.total_of_squares, counts.users)
        own.append(bound.upper_steps * own[0] - squares)
        paired = Statistic.VARIANCE in self.statistics
        given = np.stack(own[: 1 + paired])[:, counts.bins_per_user > 0]
        steps = self._steps
        each_asked = [given] if len(steps) < len(given) else list(given)
        noisy = np.concatenate([*map(measure.measure, steps, each_asked)]).astype(np.float64)
        noise = self._noise
        mean = float(
            np.clip(_drawn_to(noisy[0] * unit / many, noise[0], LEVEL * upper, upper / 6), 0.0, upper)
        )
        value = {Statistic.MEAN: mean, Statistic.VEHICLE_MEAN: mean}
        if paired:
            found = mean * (upper - mean) - noisy[1] * unit**2 / many
            likely = pooling_estimates.VARIANCE_UNIT * upper**2
            found = max(
                _drawn_to(found, noise[1], likely, likely / 2), pooling_estimates.LEAST_VARIANCE * likely
            )
            value[Statistic.VARIANCE] = min(found, mean * (upper - mean))
        return value

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error, shape (G,), from public counts and prior guesses.

        It joins the noise of the city's number and how far bins usually lie from it.
        """
        own = dict.fromkeys(
            (Statistic.MEAN, Statistic.VEHICLE_MEAN), pooling_estimates.city_wide_error(self._design)
        )
        if Statistic.VARIANCE in self.statistics:
            own[Statistic.VARIANCE] = self._usual_spread.error
        return _errors(own, self.statistics, self.public.bound)

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's half width of intervals expected at a usual speed, (G,), before release."""
        upper = float(self.public.bound.upper)
        usual = (
            float(ndtri((1 + interval_level) / 2))
            * np.sqrt(np.pi / 2)
            * pooling_estimates.city_wide_error(self._design)
        )
        found = dict.fromkeys((Statistic.MEAN, Statistic.VEHICLE_MEAN), np.minimum(usual, upper))
        if Statistic.VARIANCE in self.statistics:
            low, high = self._usual_spread.ends[posterior.LEVELS[-1]]
            found[Statistic.VARIANCE] = (high - low) / 2
        return {each: found[each] for each in self.statistics}

    @cached_property
    def _design(self) -> Design:
        """What partial pooling would ask for: how far bins lie from the city is guessed alike."""
        return _design(self.public.counts, self.public.bound, self.loss_kind, self.pico, (Statistic.MEAN,))

    @property
    def _noise(self) -> FloatArray:
        """The variances of noise of the city's numbers."""
        unit, records = float(self.public.bound.step), float(self.public.counts.count.sum())
        laws = [step.law for step in self._steps if isinstance(step.law, Laplace | Gaussian)]
        own = [2 * law.scale**2 if isinstance(law, Laplace) else law.sd**2 for law in laws]
        found = np.concatenate(own) * (unit / records) ** 2
        return np.asarray(found * unit ** (2 * np.arange(len(found))))

    def _spread(self, value: float, mean: float) -> posterior.VariancePosterior:
        """The posterior of variances where one ``value`` is known of them, and one ``mean``."""
        counts, upper = self.public.counts, float(self.public.bound.upper)
        likely = pooling_estimates.VARIANCE_UNIT * upper**2
        # it is one number for the city in few records too
        everywhere = np.full(counts.bins, value)
        return posterior.variance_posterior(
            everywhere,
            np.sqrt(_left(float(self._noise[1]), likely / 2))
            / max(value, pooling_estimates.LEAST_VARIANCE * likely),
            posterior.independent_records(counts),
            np.ones(counts.bins),
            (np.full(counts.bins, mean * (upper - mean)), upper**2 / 4),
            published=everywhere,
        )

    @cached_property
    def _usual_spread(self) -> posterior.VariancePosterior:
        """The same at the usual level."""
        upper = float(self.public.bound.upper)
        return self._spread(pooling_estimates.VARIANCE_UNIT * upper**2, LEVEL * upper)


def _drawn_to(found: float, noise: float, level: float, spread: float) -> float:
    """The posterior mean under a normal prior."""
    return float(level + (found - level) * spread**2 / (spread**2 + noise))


def _left(noise: float, spread: float) -> float:
    """The posterior variance under a normal prior."""
    return noise * spread**2 / (spread**2 + noise)


def _errors(
    own: Mapping[Statistic, FloatArray], statistics: tuple[Statistic, ...], bound: ContributionBound
) -> dict[Statistic, FloatArray]:
    """Expected errors from ``own``: rounding of speeds comes on top."""
    return {
        each: np.minimum(own[each] + rounding_bias(each, bound), each.largest(bound.upper))
        for each in statistics
    }
