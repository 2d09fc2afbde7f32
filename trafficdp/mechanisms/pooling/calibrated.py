"""Maps in one piece: what they share; ``partial_pooling`` and ``flat``, which lean on the whole city."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from trafficdp import model
from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import Box, Measure, Moments, Priced, Step
from trafficdp.mechanisms import protocol
from trafficdp.mechanisms.names import FLAT, POOLED
from trafficdp.mechanisms.pooling import estimates as pooling_estimates
from trafficdp.mechanisms.pooling import posterior
from trafficdp.mechanisms.pooling.design import LEVEL, Design
from trafficdp.mechanisms.publish import rounding_bias, status_of
from trafficdp.privacy.disclosure import Calibration
from trafficdp.privacy.estimate import KNOWN_COLUMNS, BinStatus, Estimate, IntervalKind
from trafficdp.privacy.loss import PICO, Loss, LossKind, PrivacyEvent, round_up
from trafficdp.sensitive import SensitiveInputs

# What maps in one piece share: statistics, a loss, and how both are written, stated and read back.


CITATION = "here; shrinkage toward a common level by James, Stein 1961, and Efron, Morris 1975"
BY_POSTERIOR = "a posterior, by the noisy answers and public facts alone; told in calibration"
TUNED_ON, OTHER_DAYS = "days of buses in Austin", "other days there"
OTHER_CITY = "a day of taxis in San Francisco"


def calibration(other_days: float, worst_map: float | None, other_city: float | None) -> Calibration:
    """Return how often intervals tuned to hold 95 % of places did hold them in trials, in numbers and words.

    The shares held are on other days of the same buses, on the worst of those maps, and in another city.
    """
    held = f"{_percent(other_days)} on {OTHER_DAYS}"
    held += "" if worst_map is None else f" ({_percent(worst_map)} on the worst map)"
    held += "" if other_city is None else f" and {_percent(other_city)} on {OTHER_CITY}"
    return Calibration(
        tuned_on=TUNED_ON,
        level=posterior.LEVELS[-1],
        held_on_other_days=other_days,
        held_on_worst_map=worst_map,
        held_in_other_city=other_city,
        in_words=f"Tuned on {TUNED_ON}, intervals that should hold {_percent(posterior.LEVELS[-1])} of "
        f"places held {held}; no theorem stands behind them.",
    )


def _percent(share: float) -> str:
    """``share`` per cent, rounded down."""
    return f"{math.floor(100 * share + 1e-9)} %"


MEANS = model.Statistic.MEAN, model.Statistic.VEHICLE_MEAN
SAMPLERS = {
    LossKind.PURE: "OpenDP make_laplace (discrete Laplace on integers)",
    LossKind.ZCDP: "OpenDP make_gaussian (discrete Gaussian on integers)",
}


@dataclass(frozen=True)
class JointMechanism:
    """A map of ``statistics`` of all bins at once, for ``pico`` 10^-12 of ``loss_kind``.

    Intervals of statistics that have ``trials`` are calibrated, those of others guaranteed.
    """

    public: protocol.PublicFacts
    statistics: tuple[model.Statistic, ...]
    loss_kind: LossKind
    pico: int

    kind: ClassVar[str]
    estimable: ClassVar[tuple[model.Statistic, ...]]
    relation: ClassVar[model.NeighbouringRelation] = model.NeighbouringRelation.REPLACE_USER_VALUES
    citation: ClassVar[str | None]
    sensitivity: ClassVar[str]
    composition: ClassVar[str]
    distribution: ClassVar[str]
    intervals: ClassVar[str]
    trials: ClassVar[Mapping[model.Statistic, Calibration]] = {}
    from_known: ClassVar[bool] = False
    """Whether known speeds are what it starts from."""

    @classmethod
    def calibrate(cls, facts: protocol.PublicFacts, loss: Loss, request: protocol.JointRequest) -> Self:
        """Return the mechanism for the statistics of ``request``, with the largest chargeable part of
        ``loss``.

        Raises UsageError where it is for another neighbouring relation than that of ``facts``.
        """
        if facts.relation is not cls.relation:
            raise UsageError(
                f"{cls.kind} is for another neighbouring relation",
                got=facts.relation.value,
                expected=cls.relation.value,
            )
        facts = facts if cls.from_known else replace(facts, known=None)
        return cls(facts, request.statistics, loss.kind, loss.chargeable.pico)

    @property
    def known(self) -> tuple[model.Knowledge, ...]:
        """The public sources of the known speeds; empty if there are none."""
        return () if self.public.known is None else self.public.known.sources

    def without_known(self) -> Self:
        """Return this mechanism without known public speeds in its prior."""
        return replace(self, public=replace(self.public, known=None))

    def steps(self) -> tuple[Priced, ...]:
        """Return the measurement steps at their largest possible privacy loss, from public facts."""
        raise NotImplementedError

    def event(self) -> PrivacyEvent:
        """Return the privacy event: the largest possible loss of every vehicle, summed over the steps."""
        lost = protocol.loss_of(self.steps(), self.public.counts.users)
        return protocol.privacy_event(self.kind, self.public, lost, self.statistics, kind=self.loss_kind)

    def estimate_from_posterior(
        self, statistic: model.Statistic, found: posterior.Posterior, noise: Mapping[str, npt.NDArray[Any]]
    ) -> Estimate:
        """Return the estimate of a mean to publish from its posterior, with the noise columns ``noise``.

        A bin is "uninformative" where one number for the city would say as much.
        """
        known, beside = self.public.known, posterior.inner_ends(found.ends)
        low, high = found.ends[posterior.LEVELS[-1]]
        status = np.where(found.informed, BinStatus.RELEASED.value, BinStatus.UNINFORMATIVE.value)
        beside["city"] = np.full(len(found.value), found.city)
        beside |= {"slower_chance": found.slower, "faster_chance": found.faster}
        if known is not None and known.scheduled is not None:
            # which share of the scheduled speeds the means are
            scheduled = known.scheduled / float(self.public.bound.unit.metres_per_second)
            beside["scheduled"] = scheduled
            shares = {"": found.value, "_low": low, "_high": high}
            beside |= {f"of_scheduled{end}": speed / scheduled for end, speed in shares.items()}
        error = found.error + rounding_bias(statistic, self.public.bound)
        return _estimate(statistic, found, error, status.astype(object), noise, beside)

    def variance_estimate(
        self,
        found: posterior.VariancePosterior,
        noise: Mapping[str, npt.NDArray[Any]],
        status: npt.NDArray[np.object_] | None = None,
    ) -> Estimate:
        """Return the estimate of a variance to publish from its posterior, with the noise columns ``noise``.

        ``status`` (G,) are the bins' statuses; None: they follow from the expected errors.
        """
        error = variance_error(found, self.public.bound)
        if status is None:
            status = status_of(error, model.Statistic.VARIANCE, self.public.bound)
        return _estimate(
            model.Statistic.VARIANCE, found, error, status, noise, posterior.inner_ends(found.ends)
        )

    def shared_columns(self) -> dict[str, FloatArray]:
        """Return the columns published beside every statistic, (G,): the whole loss, and the known speeds."""
        return {
            self.loss_kind.quantity: np.full(self.public.counts.bins, self.pico / PICO),
            **known_columns(self.public.known),
        }

    def statement(self, statistic: model.Statistic) -> protocol.Statement:
        """Return how ``statistic`` is made noisy, in words and numbers, for the release's manifest."""
        counts, bound = self.public.counts, self.public.bound
        kind = IntervalKind.CALIBRATED if statistic in self.trials else IntervalKind.GUARANTEED
        return protocol.Statement(
            mechanism=self.kind,
            citation=self.citation,
            sensitivity=self.sensitivity,
            noise_scale=np.full(counts.bins, np.nan),
            worst_case_bias=statistic.largest(bound.upper),
            share=None,
            distribution=self.distribution,
            sampler=SAMPLERS[self.loss_kind],
            interval_basis=self.intervals,
            interval_kind=kind,
            calibration=self.trials.get(statistic),
            post_processing=protocol.POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """Return the mechanism as JSON values, from which ``from_facts`` restores it."""
        known = self.public.known
        facts = {
            "kind": self.kind,
            "loss_kind": self.loss_kind.value,
            "pico": self.pico,
            "statistics": [each.value for each in self.statistics],
        }
        return facts if known is None else {**facts, "known": model.as_json(known)}

    def manifest_facts(self) -> dict[str, Any]:
        """Return ``to_facts`` for the manifest, without the known speeds, which are published as columns."""
        facts, known = self.to_facts(), self.public.known
        if known is not None:
            facts["known"] = model.as_json(known.sources)
        return facts

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: protocol.PublicFacts) -> Self:
        """Return the mechanism that ``to_facts`` wrote, on the same ``public`` facts."""
        statistics = tuple(model.Statistic(each) for each in facts["statistics"])
        known = model.from_json(model.KnownSpeeds, facts["known"]) if facts.get("known") else None
        return cls(replace(public, known=known), statistics, LossKind(facts["loss_kind"]), int(facts["pico"]))

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: protocol.Columns, public: protocol.PublicFacts
    ) -> Self:
        """Return the mechanism of a published release, from its manifest's ``facts`` and its known-speed
        columns.
        """
        if not facts.get("known"):
            return cls.from_facts(facts, public)
        own = columns[model.Statistic(facts["statistics"][0])]
        speed = [own[name].tolist() for name in KNOWN_COLUMNS[: len(facts["known"])]]
        return cls.from_facts({**facts, "known": {"sources": facts["known"], "speed": speed}}, public)


def _estimate(
    statistic: model.Statistic,
    found: posterior.Posterior | posterior.VariancePosterior,
    error: FloatArray,
    status: npt.NDArray[np.object_],
    noise: Mapping[str, npt.NDArray[Any]],
    beside: dict[str, npt.NDArray[Any]],
) -> Estimate:
    low, high = found.ends[posterior.LEVELS[-1]]
    return Estimate(
        statistic=statistic,
        value=found.value,
        low=low,
        high=high,
        noise_scale=np.full(len(found.value), np.nan),
        expected_error=error,
        status=status,
        noise=dict(noise),
        posterior=beside,
    )


def known_columns(known: model.KnownSpeeds | None) -> dict[str, FloatArray]:
    """Return the columns that publish the ``known`` speeds, one for each source, by name.

    Empty without any.
    """
    return {} if known is None else dict(zip(KNOWN_COLUMNS, known.speed, strict=False))


def variance_error(found: posterior.VariancePosterior, bound: model.ContributionBound) -> FloatArray:
    """Return the expected absolute error to publish of each variance: posterior error plus speed rounding,
    (G,).

    At most the largest possible variance.
    """
    most = model.Statistic.VARIANCE.largest(bound.upper)
    return np.asarray(np.minimum(found.error + rounding_bias(model.Statistic.VARIANCE, bound), most))


# Maps that lean on the whole city.


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
    estimable: ClassVar[tuple[model.Statistic, ...]] = model.OF_MAPS
    trials: ClassVar[Mapping[model.Statistic, Calibration]] = {
        **dict.fromkeys(MEANS, calibration(0.974, 0.882, 0.922)),
        model.Statistic.VARIANCE: calibration(0.962, 0.867, 0.942),
    }
    from_known: ClassVar[bool] = True

    @property
    def design(self) -> Design:
        """What will be measured, and with which noise.

        UsageError for a statistic that partial pooling lacks.
        """
        for each in self.statistics:
            protocol.require_statistic(self.kind, each, self.estimable)
        return _design(self.public.counts, self.public.bound, self.loss_kind, self.pico, self.statistics)

    def steps(self) -> tuple[Priced, ...]:
        """Return the measurement steps, each at the largest privacy loss it can have, from public counts.

        Later steps are clipped by bounds that follow from earlier noisy answers, which can only lower a loss.
        """
        return self.design.most_expensive_steps()

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[model.Statistic, Estimate]:
        """Measure the private ``values`` with noise and return the estimates of all bins.

        ``interval_level`` is not used: the intervals are tuned to hold in 95 % of places.
        """
        known, noise = self.public.known, self.shared_columns()
        found = pooling_estimates.pooled_estimates(self.design, values.contributions, measure, known)
        estimates = {
            each: self.estimate_from_posterior(each, own, noise) for each, own in found.means.items()
        }
        if found.variance is not None:
            estimates[model.Statistic.VARIANCE] = self.variance_estimate(found.variance, noise)
        return {each: estimates[each] for each in self.statistics}

    def expected_errors(self) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's expected absolute error, shape (G,), from public counts and prior guesses.

        It is the usual error in cities that are like the prior, not that of the worst case.
        """
        # the mean absolute value of a normal error
        own = {
            each: pooling_estimates.expected_variances(self.design).error
            if each is model.Statistic.VARIANCE
            else np.asarray(np.sqrt(2 / np.pi) * pooling_estimates.expected_map_error(self.design, each))
            for each in self.statistics
        }
        return _errors(own, self.statistics, self.public.bound)

    def half_widths(self, interval_level: float) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's half width of intervals expected at a usual speed, (G,), before release.

        The published intervals follow the noisy answers instead.
        """
        design, tail, upper = self.design, float(ndtri((1 + interval_level) / 2)), self.public.bound.upper
        found: dict[model.Statistic, FloatArray] = {}
        for each in self.statistics:
            if each is model.Statistic.VARIANCE:
                low, high = pooling_estimates.expected_variances(design).ends[posterior.LEVELS[-1]]
                found[each] = (high - low) / 2
            else:
                error = pooling_estimates.expected_map_error(design, each)
                found[each] = np.minimum(tail * error, float(upper))
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
    estimable: ClassVar[tuple[model.Statistic, ...]] = model.OF_MAPS
    trials: ClassVar[Mapping[model.Statistic, Calibration]] = {
        **dict.fromkeys(MEANS, calibration(0.994, 0.957, 0.776)),
        model.Statistic.VARIANCE: calibration(0.938, 0.828, 0.66),
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
        records = counts.sum_per_user(counts.count)[user].astype(np.int64)
        paired = model.Statistic.VARIANCE in self.statistics
        loss, most = self.pico / PICO * (1 - 2.0**-40), int(records.max(initial=0))
        change = most * bound.upper_steps
        if self.loss_kind is LossKind.PURE and paired:
            # from W's scale K times S's on, variances are free
            pair = np.array([change / loss, bound.upper_steps * change / loss]) * (1 + 2.0**-40)
            moments = Moments(one, records, bound.upper_steps, np.ones(1, dtype=np.bool_))
            return (Step(moments, Laplace(pair)),)
        if self.loss_kind is LossKind.PURE:
            scale = round_up(np.array([change / loss]))
            return (Step(Box(one, records * bound.upper_steps), Laplace(scale)),)
        ends = [records * bound.upper_steps, records * (bound.upper_steps**2 // 4)][: 1 + paired]
        sd = [round_up(np.array([end.max(initial=0) * np.sqrt(len(ends) / (2 * loss))])) for end in ends]
        return tuple(Step(Box(one, end), Gaussian(noise)) for end, noise in zip(ends, sd, strict=True))

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[model.Statistic, Estimate]:
        """Measure the private ``values`` with noise, and publish one number for the city in every bin.

        Intervals say how far bins usually lie from it, by the prior.
        """
        bound, value = self.public.bound, self.numbers(values, measure)
        found: dict[model.Statistic, Estimate] = {}
        for each in self.statistics:
            if each is model.Statistic.VARIANCE:
                own = self._spread(value[each], value[model.Statistic.MEAN])
                found[each] = self.variance_estimate(own, self.shared_columns())
            else:
                noise = _left(float(self._noise[0]), float(bound.upper) / 6)
                mean = pooling_estimates.city_wide_posterior(self._design, value[each], noise)
                one = self.estimate_from_posterior(each, mean, self.shared_columns())
                # it is one number for the city, and says so
                found[each] = replace(one, status=status_of(one.expected_error, each, bound))
        return found

    def numbers(self, values: SensitiveInputs, measure: Measure) -> dict[model.Statistic, float]:
        """Measure private ``values`` with noise, and return one number for the city for each statistic."""
        contributions = values.contributions
        counts, bound = self.public.counts, self.public.bound
        many, upper, unit = int(counts.count.sum()), float(bound.upper), float(bound.step)
        own, paired = [counts.sum_per_user(contributions.total)], model.Statistic.VARIANCE in self.statistics
        if paired:
            own.append(bound.upper_steps * own[0] - counts.sum_per_user(contributions.total_of_squares))
        given = np.stack(own)[:, counts.bins_per_user > 0]
        steps = self._steps
        each_asked = [given] if len(steps) < len(given) else list(given)
        noisy = np.concatenate([*map(measure.measure, steps, each_asked)]).astype(np.float64)
        noise = self._noise
        mean = _drawn_to(noisy[0] * unit / many, noise[0], LEVEL * upper, upper / 6)
        mean = float(np.clip(mean, 0.0, upper))
        value = dict.fromkeys(MEANS, mean)
        if paired:
            found = mean * (upper - mean) - noisy[1] * unit**2 / many
            likely = pooling_estimates.VARIANCE_UNIT * upper**2
            found = _drawn_to(found, noise[1], likely, likely / 2)
            found = max(found, pooling_estimates.LEAST_VARIANCE * likely)
            value[model.Statistic.VARIANCE] = min(found, mean * (upper - mean))
        return value

    def expected_errors(self) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's expected absolute error, shape (G,), from public counts and prior guesses.

        It joins the noise of the city's number and how far bins usually lie from it.
        """
        own = dict.fromkeys(MEANS, pooling_estimates.city_wide_error(self._design))
        if model.Statistic.VARIANCE in self.statistics:
            own[model.Statistic.VARIANCE] = self._usual_spread.error
        return _errors(own, self.statistics, self.public.bound)

    def half_widths(self, interval_level: float) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's half width of intervals expected at a usual speed, (G,), before release."""
        upper = float(self.public.bound.upper)
        tail = float(ndtri((1 + interval_level) / 2)) * np.sqrt(np.pi / 2)
        usual = tail * pooling_estimates.city_wide_error(self._design)
        found = dict.fromkeys(MEANS, np.minimum(usual, upper))
        if model.Statistic.VARIANCE in self.statistics:
            low, high = self._usual_spread.ends[posterior.LEVELS[-1]]
            found[model.Statistic.VARIANCE] = (high - low) / 2
        return {each: found[each] for each in self.statistics}

    @cached_property
    def _design(self) -> Design:
        """What partial pooling would ask for: how far bins lie from the city is guessed alike."""
        return _design(
            self.public.counts, self.public.bound, self.loss_kind, self.pico, (model.Statistic.MEAN,)
        )

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
    own: Mapping[model.Statistic, FloatArray],
    statistics: tuple[model.Statistic, ...],
    bound: model.ContributionBound,
) -> dict[model.Statistic, FloatArray]:
    """Expected errors from ``own``: rounding of speeds comes on top."""
    return {
        each: np.minimum(own[each] + rounding_bias(each, bound), each.largest(bound.upper))
        for each in statistics
    }
