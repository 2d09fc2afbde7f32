"""Every statistic by a mechanism of its own, and what each may be told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Self, TypeVar, cast

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.errors import StoreDamagedError, UsageError, did_you_mean
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms import protocol, publish
from trafficdp.mechanisms.known_error import KnownTerms, law_of_mechanism
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic import arrays, clipping, gaussian, huber, plan, two_stage
from trafficdp.mechanisms.two_moments import KnownTwoMoments, TwoMoments
from trafficdp.model import Counts, Statistic
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.loss import PICO, ZCDP, Loss, LossKind, PrivacyEvent, sum_per_user
from trafficdp.sensitive import SensitiveInputs

# Settings of a mechanism as plain JSON values, and the mechanism with the settings that were written down.
#
# A release and a saved plan write down every setting: what a later version has as its default changes neither
# what they execute nor what `verify` recomputes. Settings are the fields of a mechanism's dataclass but for
# what says which mechanism it is; those of a mechanism that another one wraps stand beside its own. Enums are
# written as their values.


Setting = str | int | float | bool
Settings = Mapping[str, Setting]
IDENTITY = {"name", "citation", "statistics", "kind", "enforced", "idealised"}
"""Fields that say which mechanism it is."""
Known = TypeVar("Known", bound=protocol.Mechanism)


def settings_of(mechanism: object) -> dict[str, Setting]:
    """Return all settings of ``mechanism`` by name, sorted, such as {"cap": "argmax", "gamma": 0.2}."""
    found: dict[str, Setting] = {}
    for each, value in _own(mechanism):
        found.update(settings_of(value) if is_dataclass(value) else {each.name: _plain(value)})
    return dict(sorted(found.items()))


def with_settings(mechanism: Known, settings: Settings) -> Known:
    """Return ``mechanism`` with ``settings`` changed; those that are not named stay as they are.

    Raises UsageError for a setting that the mechanism does not have, or a value that it cannot take.
    """
    unknown = sorted(set(settings) - set(settings_of(mechanism)))
    if unknown:
        raise UsageError(
            f"{mechanism.name} has a setting that this version does not know",
            got=f"{unknown[0]:.40}",
            expected=", ".join(settings_of(mechanism)) or "no settings",
            todo="use the version of trafficdp that wrote it",
        )
    changed = cast("Known", _changed(mechanism, settings))
    if changed.name != mechanism.name:
        raise UsageError(
            f"settings of {mechanism.name} make another mechanism of it",
            got=f"those of {changed.name}",
            expected=f"those of {mechanism.name}",
        )
    return changed


def in_words(settings: Settings) -> str:
    """Return the settings for the manifest, such as "cap argmax, gamma 0.2"."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _own(mechanism: object) -> list[tuple[Field[object], object]]:
    if not is_dataclass(mechanism):
        return []
    return [(each, getattr(mechanism, each.name)) for each in fields(mechanism) if each.name not in IDENTITY]


def _plain(value: object) -> Setting:
    if isinstance(value, Enum):
        return cast("Setting", value.value)
    return cast("Setting", value)


def _changed(mechanism: object, settings: Settings) -> object:
    given: dict[str, object] = {}
    for each, value in _own(mechanism):
        if is_dataclass(value):
            given[each.name] = _changed(value, settings)
        elif each.name in settings:
            given[each.name] = _read(each, value, settings[each.name])
    # whatever has fields of its own is a dataclass, which no protocol can say
    return replace(cast("protocol.Mechanism", mechanism), **given) if given else mechanism  # type: ignore[type-var]


def _read(field: Field[object], now: object, written: Setting) -> object:
    """Return ``written`` as a value of the field, whose value in this version is ``now``."""
    if isinstance(now, Enum):
        if written in [each.value for each in type(now)]:
            return type(now)(written)
    elif isinstance(now, float):
        if type(written) in (int, float) and math.isfinite(float(written)):
            return float(written)
    elif type(written) is type(now):
        return written
    raise UsageError(
        "a setting of a mechanism has a value that this version does not know",
        got=f"{field.name}={written!s:.40}",
        expected=f"a value such as {_plain(now)}",
    )


# Calibrated ``mechanism``: a mechanism of the registry for every statistic, each with a loss of its own.
#
# The loss is an epsilon a bin, or one rho for all bins together: all parts count in one kind. A vehicle's
# losses by the steps of the parts add up, because the same samples enter every part (Theorem A of
# ``privacy.loss.sum_per_user``; in rho, Bun and Steinke 2016, Lemma 2.3).
#
# MECHANISMS lists all of one statistic, with their default settings: one tuple for both kinds of loss. Kinds
# never mix: epsilon and rho add up only by a named conversion (``privacy.conversion``). A store knows those
# of its kind alone, and ``auto`` chooses among a few of them (``AUTO_TRIES``). Contract suite and audits run
# all.


MECHANISMS: tuple[protocol.Mechanism, ...] = (
    Baseline(),
    KnownTwoMoments(arrays.Pooled()),
    KnownTwoMoments(arrays.ArrayAveraging(arrays.Grouping.BEST_FIT)),
    KnownTwoMoments(arrays.ArrayAveraging(arrays.Grouping.WRAP_AROUND)),
    KnownTwoMoments(arrays.Levy(arrays.Grouping.BEST_FIT)),
    KnownTwoMoments(arrays.Levy(arrays.Grouping.WRAP_AROUND)),
    TwoMoments(arrays.Quantile(arrays.QuantileRule.FIXED, arrays.Grouping.BEST_FIT)),
    TwoMoments(arrays.Quantile(arrays.QuantileRule.FIXED, arrays.Grouping.WRAP_AROUND)),
    TwoMoments(arrays.Quantile(arrays.QuantileRule.OPTIMIZED, arrays.Grouping.BEST_FIT)),
    TwoMoments(arrays.Quantile(arrays.QuantileRule.OPTIMIZED, arrays.Grouping.WRAP_AROUND)),
    KnownTwoMoments(huber.Huber()),
    KnownTwoMoments(two_stage.TwoStage()),
    KnownTwoMoments(clipping.WorstCaseClipping()),
    KnownTwoMoments(clipping.WorstCaseClipping(least_exact_error=True)),
    KnownTwoMoments(clipping.AKMV()),
    KnownTwoMoments(gaussian.GaussianTwin()),
    TwoMoments(plan.PlanMechanism(plan.Scaling.PRIVATE)),
    TwoMoments(plan.PlanMechanism(plan.Scaling.PRIVATE, power=1)),
    TwoMoments(plan.PlanMechanism(plan.Scaling.PUBLIC)),
    TwoMoments(plan.PlanMechanism(plan.Scaling.NONE)),
)
"""Names are unique, whatever the kind."""
AUTO_TRIES = {LossKind.PURE: ("baseline", "worst_case_clipping"), LossKind.ZCDP: ("gaussian_twin",)}
"""What ``auto`` looks at beside maps of one piece. No other is the nearest to the truth on Austin's buses."""


def mechanisms_of(kind: LossKind) -> tuple[protocol.Mechanism, ...]:
    """Return the mechanisms whose loss is counted in ``kind``; the first of equally good ones is taken."""
    return tuple(mechanism for mechanism in MECHANISMS if mechanism.kind is kind)


def tried_by_auto(kind: LossKind) -> tuple[protocol.Mechanism, ...]:
    """Return the mechanisms of ``kind`` among which "auto" chooses, beside maps of one piece.

    Of equally good ones the first is taken.
    """
    return tuple(mechanism for mechanism in mechanisms_of(kind) if mechanism.name in AUTO_TRIES[kind])


def mechanism_named(name: str, kind: LossKind) -> protocol.Mechanism:
    """Return the mechanism of this name; raise UsageError when there is none of this ``kind``."""
    known = {mechanism.name: mechanism for mechanism in mechanisms_of(kind)}
    if name in known:
        return known[name]
    # one of another kind exists, but its losses do not add up with these
    elsewhere = any(name == each.name for each in MECHANISMS)
    raise UsageError(
        "unknown mechanism" if kind is LossKind.PURE else "unknown zCDP mechanism",
        got=f"{name}, which counts privacy loss in another kind" if elsewhere else name,
        expected="one of " + ", ".join(known),
        todo=did_you_mean(name, known),
    )


KIND = "mechanism"
ATTEMPTS = 8
UNSPENT = 10**9
"""One part in so many of a rho may be left by rounding."""
COMPOSITION = {
    LossKind.PURE: "every statistic by its mechanism, at the epsilon published for each bin; the loss is "
    "each vehicle's exact own loss by its mechanism, added over bins and statistics; the largest is the "
    "guarantee",
    LossKind.ZCDP: "every statistic by its mechanism, at the rho published for it; the loss is each "
    "vehicle's exact own loss in zero-concentrated differential privacy, added over statistics; the largest "
    "is the guarantee",
}
SENSITIVITY = {
    LossKind.PURE: "the mechanism's own, computed from the counts of each bin; {largest:.6g} {unit} at most",
    LossKind.ZCDP: "every vehicle's own l2 sensitivity over all bins, computed from the counts",
}
SAMPLER = {
    LossKind.PURE: "OpenDP's exact samplers on whole numbers: discrete Laplace, noisy choice, uniform",
    LossKind.ZCDP: "OpenDP make_gaussian on 64-bit integers (exact discrete Gaussian, P(z) prop. to "
    "exp(-z^2/(2 sd^2)))",
}
IDEALISED = (
    "idealised: no exact sampler is known for this noise; it was drawn in floating point from secure "
    "random bits, which --allow-idealised-noise allowed"
)
BY_EPSILON = "that of the mechanism, at the epsilon published for each bin"
EQUAL_NOISE = "discrete Gaussian on exact integers, one standard deviation in all bins"
OTHER_NOISE = "that of the mechanism: private quantiles first, then discrete Gaussian on integers"


@dataclass(frozen=True)
class StatisticMechanism:
    """One statistic: the name of its mechanism, its ``loss`` (see Mechanism), and the mechanism's settings.

    ``settings`` that are left out are those of the registry.
    """

    mechanism: str
    loss: FloatArray
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class PerStatisticMechanism:
    """A calibrated mechanism that releases each statistic by its own mechanism and loss (``parts``).

    ``loss_kind`` is the kind of privacy loss of all parts.
    """

    public: protocol.PublicFacts
    parts: Mapping[Statistic, StatisticMechanism]
    loss_kind: LossKind = LossKind.PURE

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics that it estimates, in the order of the enum Statistic."""
        return tuple(statistic for statistic in Statistic if statistic in self.parts)

    @property
    def composition(self) -> str:
        """How the privacy losses of its steps add up, in words."""
        return COMPOSITION[self.loss_kind]

    @cached_property
    def mechanisms(self) -> dict[Statistic, protocol.Mechanism]:
        """The mechanism of each statistic, with its settings applied; UsageError for an unknown name."""
        return {
            each: with_settings(mechanism_named(part.mechanism, self.loss_kind), part.settings)
            for each, part in self.parts.items()
        }

    def steps(self) -> tuple[Priced, ...]:
        """Return the noisy measurement steps of all statistics, one statistic after another."""
        return tuple(step for each in self.parts for step in self.mechanisms[each].steps(self._request(each)))

    def event(self) -> PrivacyEvent:
        """Return the privacy event: every vehicle's exact loss.

        UsageError for a loss that is out of range.
        """
        return self._promised

    @cached_property
    def _promised(self) -> PrivacyEvent:
        """What follows from counts is worked out once."""
        of_parts = {each: self._event(each) for each in self.statistics}
        losses = np.concatenate([each.loss_per_user for each in of_parts.values()])
        users = self.public.counts.users
        promised = protocol.privacy_event(
            " + ".join(dict.fromkeys(each.mechanism for each in of_parts.values())),
            self.public,
            sum_per_user(losses, np.tile(np.arange(users), len(of_parts)), users),
            {each: self._sensitivity(each) for each in self.statistics},
            kind=self.loss_kind,
        )
        return replace(promised, idealised=any(each.idealised for each in of_parts.values()))

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure the private ``values`` with noise, and return the estimates of all bins, by statistic."""
        samples = values.read_samples()
        counts, bound = self.public.counts, self.public.bound
        if not np.array_equal(samples.counts.count, values.contributions.counts.count):
            raise StoreDamagedError(
                "the samples are not those of the counts", todo="restore the newest backup of the store"
            )
        found: dict[Statistic, Estimate] = {}
        for statistic in self.statistics:
            loss, (law, _) = self.parts[statistic].loss, self._law(statistic, interval_level)
            value = self.mechanisms[statistic].estimate(samples, statistic, loss, measure)
            value = _zero_where_constant(value, statistic, counts)
            noise = {self.loss_kind.quantity: np.broadcast_to(loss, counts.bins)}
            mean = found.get(Statistic.MEAN)
            found[statistic] = publish.publish_estimate(statistic, value, law, noise, bound, mean)
        return found

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, (G,).

        The range if none is proved.
        """
        return {each: self._law(each)[0].error for each in self.statistics}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's half width of intervals before they are clamped, at most the range,
        (G,).
        """
        return {each: self._law(each, interval_level)[0].half_width for each in self.statistics}

    def statement(self, statistic: Statistic) -> protocol.Statement:
        """Return how ``statistic`` is made noisy, in words and numbers, for the release's manifest."""
        mechanism, bound = self.mechanisms[statistic], self.public.bound
        law, basis = self._law(statistic)
        unit = bound.unit.label if statistic.power == 1 else f"({bound.unit.label})^2"
        own = float(self._sensitivity(statistic).max(initial=0.0))
        losses = {each: float(part.loss) for each, part in self.parts.items() if not part.loss.shape} or {
            each: self._event(each).loss.pico for each in self.parts
        }
        distribution = EQUAL_NOISE if isinstance(mechanism, KnownTerms) else OTHER_NOISE
        if self.loss_kind is LossKind.PURE:
            distribution = BY_EPSILON
        if settings := settings_of(mechanism):
            distribution += f"; its settings: {in_words(settings)}"
        return protocol.Statement(
            mechanism=mechanism.name,
            citation=mechanism.citation,
            sensitivity=SENSITIVITY[self.loss_kind].format(largest=own, unit=unit),
            noise_scale=law.scale,
            worst_case_bias=float(law.bias.max(initial=0.0)),
            share=losses[statistic] / sum(losses.values()) if sum(losses.values()) else None,
            distribution=distribution,
            sampler=IDEALISED if mechanism.idealised else SAMPLER[self.loss_kind],
            interval_basis=basis,
            post_processing=protocol.POST_PROCESSING[statistic],
            idealised=mechanism.idealised,
            unenforced=protocol.unenforced_theorems(mechanism, self._request(statistic)),
        )

    def to_facts(self) -> dict[str, Any]:
        """Return the mechanism as JSON values, without its public facts; ``from_facts`` restores it."""
        return {
            "kind": KIND,
            "loss": self.loss_kind.value,
            "parts": {
                each.value: {
                    "mechanism": self.parts[each].mechanism,
                    "settings": settings_of(self.mechanisms[each]),
                    self.loss_kind.quantity: self.parts[each].loss.tolist(),
                }
                for each in self.statistics
            },
        }

    def manifest_facts(self) -> dict[str, Any]:
        """Return mechanism names and settings for the manifest; published columns hold the epsilon or rho."""
        return {
            "kind": KIND,
            "mechanisms": {each.value: self.parts[each].mechanism for each in self.statistics},
            "settings": {
                each.value: [
                    {"name": name, "value": value}
                    for name, value in settings_of(self.mechanisms[each]).items()
                ]
                for each in self.statistics
            },
        }

    @classmethod
    def calibrate(
        cls, facts: protocol.PublicFacts, loss: Loss, parts: Mapping[Statistic, StatisticMechanism]
    ) -> Self:
        """Return the mechanism with the losses of ``parts`` scaled up together to a total of at most
        ``loss``.

        Losses of rho stay in proportion but for rounding, so that one part in UNSPENT may be left. Raises
        UsageError where nothing fits.
        """
        target, best = loss.chargeable.pico, None
        enough = target if loss.kind is LossKind.PURE else target - target // UNSPENT
        most = -1
        for _ in range(ATTEMPTS + 1):
            found = cls(facts, parts, loss.kind)
            lost = found.event().loss.pico
            if most < lost <= target:
                best, most = found, lost
            if lost == 0 or enough <= lost <= target:
                break
            raised = {each: _times(part.loss, target, lost, loss.kind) for each, part in parts.items()}
            parts = {each: replace(part, loss=raised[each]) for each, part in parts.items()}
        if best is None:
            raise too_small(loss)
        return best

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: protocol.PublicFacts) -> PerStatisticMechanism:
        """Return the mechanism that ``to_facts`` wrote, with its settings, on the same ``public`` facts."""
        kind = LossKind(facts["loss"])
        return cls(
            public,
            {
                Statistic(name): StatisticMechanism(
                    str(part["mechanism"]),
                    np.array(part[kind.quantity], dtype=np.float64),
                    part["settings"],
                )
                for name, part in facts["parts"].items()
            },
            kind,
        )

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: protocol.Columns, public: protocol.PublicFacts
    ) -> PerStatisticMechanism:
        """Rebuild the mechanism of a published release, for the bins with published numbers.

        ``facts`` are from the manifest (mechanism names and settings), ``columns`` hold the epsilon or rho of
        each statistic. Raises UsageError unless each statistic has its mechanism, its settings once each, and
        its epsilons or its one rho.
        """
        names, listed = facts["mechanisms"], facts.get("settings", {})
        settings = {name: {each["name"]: each["value"] for each in own} for name, own in listed.items()}
        twice = any(len(own) != len(settings[name]) for name, own in listed.items())
        if twice or settings.keys() != names.keys():
            raise UsageError("settings are not published once, of a statistic with a mechanism")
        kinds = [kind for kind in LossKind if all(kind.quantity in own for own in columns.values())]
        if {Statistic(name) for name in names} != columns.keys() or not kinds:
            raise UsageError("a statistic is published without its mechanism, or its epsilon or rho")
        (kind, *_) = kinds
        losses = {each: np.asarray(own[kind.quantity], dtype=np.float64) for each, own in columns.items()}
        if kind is LossKind.ZCDP:
            if any(len(np.unique(loss)) != 1 for loss in losses.values()):
                raise UsageError("a statistic is published without one rho")
            losses = {each: loss[0] for each, loss in losses.items()}
        parts = {
            each: StatisticMechanism(str(names[each]), np.asarray(losses[each]), settings[each])
            for each in columns
        }
        return cls(public, parts, kind)

    def _request(self, statistic: Statistic) -> protocol.StatisticRequest:
        return protocol.StatisticRequest(
            self.public.counts, self.public.bound, statistic, self.parts[statistic].loss
        )

    def _event(self, statistic: Statistic) -> PrivacyEvent:
        loss, (least, most) = self.parts[statistic].loss, protocol.RANGE[self.loss_kind]
        shape = () if self.loss_kind is LossKind.ZCDP else (self.public.counts.bins,)
        if loss.shape != shape or not bool(np.all((loss >= least) & (loss <= most))):
            quantity = self.loss_kind.quantity
            raise UsageError(
                f"the {quantity} of a statistic is out of range", expected=f"{least:g} to {most:g}"
            )
        return protocol.event_of(self.mechanisms[statistic], self._request(statistic))

    def _sensitivity(self, statistic: Statistic) -> FloatArray:
        return protocol.sensitivity_of(self.mechanisms[statistic], self._request(statistic))

    def _law(self, statistic: Statistic, level: float = 0.5) -> tuple[publish.NumberLaw, str]:
        """How far off numbers may be, and what intervals rest on; only half widths depend on ``level``."""
        if (statistic, level) not in self._laws:
            law, basis = law_of_mechanism(self.mechanisms[statistic], self._request(statistic), level)
            scale, error, half = (
                _zero_where_constant(each, statistic, self.public.counts)
                for each in (law.scale, law.error, law.half_width)
            )
            self._laws[statistic, level] = publish.NumberLaw(scale, error, law.bias, half), basis
        return self._laws[statistic, level]

    @cached_property
    def _laws(self) -> dict[tuple[Statistic, float], tuple[publish.NumberLaw, str]]:
        return {}


def _times(given: FloatArray, target: int, lost: int, kind: LossKind) -> FloatArray:
    """``given`` times target / lost, within what can be given; rho a whole number of 10^-12."""
    most = protocol.RANGE[kind][1]
    if kind is LossKind.PURE:
        return np.minimum(given * (target / lost * (1 - 1e-13)), most)
    raised = ZCDP(min(ZCDP.of(float(given)).pico * target // lost, int(most * PICO)))
    return cast("FloatArray", np.float64(raised.number))


def too_small(loss: Loss) -> UsageError:
    """Return (do not raise) the error that no noise fits so small a ``loss``."""
    quantity = loss.kind.quantity
    return UsageError(f"no noise fits the {quantity}", got=f"{quantity}={loss}", todo="ask for a larger one")


def _zero_where_constant(numbers: FloatArray, statistic: Statistic, counts: Counts) -> FloatArray:
    """Return ``numbers`` (G,) with 0 where the statistic can only be 0: variances of one record."""
    alone = (counts.samples_per_bin == 1) & (statistic is Statistic.VARIANCE)
    return np.where(alone, 0.0, numbers)
