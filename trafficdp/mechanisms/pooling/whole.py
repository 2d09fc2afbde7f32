"""What maps in one piece share: statistics, a loss, and how both are written, stated and read back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from trafficdp import model
from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError
from trafficdp.measurement.sets import Priced
from trafficdp.mechanisms import protocol
from trafficdp.mechanisms.pooling import posterior
from trafficdp.mechanisms.publish import rounding_bias, status_of
from trafficdp.privacy.disclosure import Calibration
from trafficdp.privacy.estimate import KNOWN_COLUMNS, BinStatus, Estimate, IntervalKind
from trafficdp.privacy.loss import PICO, Loss, LossKind, PrivacyEvent

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

    def expected_errors(self) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's expected absolute error, shape (G,), from public facts alone."""
        raise NotImplementedError

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
