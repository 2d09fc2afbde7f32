"""Calibrated ``mechanism``: a mechanism of the registry for every statistic, each with an epsilon a bin.

Loss: a vehicle's losses by the events of the parts, added (basic composition over statistics: the same
samples enter every part). Each part's own loss is exact where its mechanism proves more than "epsilon[g]
for every visitor", and bins add (Theorem A).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import POST_PROCESSING, Columns, Statement
from trafficdp.mechanisms.known_error import ErrorFacts, error_facts
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.publish import Drawn
from trafficdp.mechanisms.registry import pure_mechanism_named
from trafficdp.mechanisms.separate.numbers import (
    in_order,
    mechanisms_from_published,
    numbers_of,
    published_mechanisms,
    samples_of,
    with_words,
    zero_where_constant,
)
from trafficdp.mechanisms.settings import Settings, settings_of, with_settings
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import sum_per_user
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
KIND = "mechanism"
LARGEST_EPSILON = 1e9
SENSITIVITY = "the mechanism's own, computed from the counts of each bin; {largest:.6g} {unit} at most"
EXACT = "OpenDP's exact samplers on whole numbers: discrete Laplace, noisy choice, uniform"
IDEALISED = (
    "idealised: no exact sampler is known for this noise; it was drawn in floating point from secure "
    "random bits, which --allow-idealised-noise allowed"
)


@dataclass(frozen=True)
class Part:
    """One statistic: the name of its mechanism, ``epsilon`` a bin, shape (G,), and the mechanism's settings.

    ``settings`` that are left out are those of the registry.
    """

    mechanism: str
    epsilon: FloatArray
    settings: Settings = field(default_factory=dict)

    @cached_property
    def named(self) -> Mechanism:
        """The mechanism with these settings; raise UsageError for one that it does not know."""
        return with_settings(pure_mechanism_named(self.mechanism), self.settings)


@dataclass(frozen=True)
class CalibratedSeparately:
    """See Calibrated. ``parts`` has one entry a statistic."""

    parts: Mapping[Statistic, Part]

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """See Calibrated."""
        return in_order(self.parts)

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated. Raises UsageError for an epsilon that is not finite, or too much loss."""
        events = []
        for statistic in self.statistics:
            part = self.parts[statistic]
            if part.epsilon.shape != (counts.bins,) or not bool(
                np.all((part.epsilon > 0) & (part.epsilon <= LARGEST_EPSILON))
            ):
                raise UsageError(
                    "an epsilon of a bin is out of range", expected="one above 0 and finite for every bin"
                )
            events.append(part.named.event(counts, bound, statistic, part.epsilon))
        first = events[0]
        losses = np.concatenate([event.loss_per_user for event in events])
        loss = sum_per_user(losses, np.tile(np.arange(counts.users), len(events)), counts.users)
        return PrivacyEvent(
            mechanism=" + ".join(dict.fromkeys(event.mechanism for event in events)),
            statistics=self.statistics,
            relation=first.relation,
            unit=first.unit,
            bins=counts.bins,
            sensitivity={s: e.sensitivity[s] for s, e in zip(self.statistics, events, strict=True)},
            bound=bound,
            assumptions=first.assumptions,
            loss_per_user=loss,
            idealised=any(event.idealised for event in events),
        )

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated: intervals as proved in ``mechanisms.known_error``."""
        samples = samples_of(values)
        counts, bound = samples.counts, samples.bound
        halves = self.half_widths(counts, bound, interval_level)
        drawn: dict[Statistic, Drawn] = {}
        for statistic in self.statistics:
            part = self.parts[statistic]
            drawn[statistic] = Drawn(
                value=part.named.estimate(samples, statistic, part.epsilon, noise),
                half_width=halves[statistic],
                noise_scale=self._noise_scale(statistic, counts, bound),
                expected_error=self.expected_error(statistic, counts, bound),
                noise={"epsilon": part.epsilon},
            )
        return numbers_of(drawn, counts, bound, uninformative_above)

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated."""
        return {each: self.expected_error(each, counts, bound) for each in self.statistics}

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated: at most the range."""
        found: dict[Statistic, FloatArray] = {}
        for statistic in self.statistics:
            facts = self._facts(statistic, counts, bound, interval_level)
            found[statistic] = zero_where_constant(facts.half_width, statistic, counts)
        return found

    def expected_error(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
        """Return the worst case over values of the mean absolute error, shape (G,)."""
        part = self.parts[statistic]
        error = part.named.expected_error(counts, bound, statistic, part.epsilon)
        return zero_where_constant(error, statistic, counts)

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        part = self.parts[statistic]
        mechanism = part.named
        # the basis does not depend on the level
        facts = self._facts(statistic, counts, bound, 0.5)
        event = mechanism.event(counts, bound, statistic, part.epsilon)
        unit = bound.unit.label if statistic.power == 1 else f"({bound.unit.label})^2"
        own = float(event.sensitivity[statistic].max(initial=0.0))
        losses = [
            each.named.event(counts, bound, s, each.epsilon).loss.pico for s, each in self.parts.items()
        ]
        return Statement(
            mechanism=mechanism.name,
            citation=mechanism.citation,
            sensitivity=SENSITIVITY.format(largest=own, unit=unit),
            noise_scale=self._noise_scale(statistic, counts, bound),
            worst_case_bias=float(facts.worst_case_bias.max(initial=0.0)),
            share=event.loss.pico / sum(losses) if sum(losses) else None,
            distribution="that of the mechanism, at the epsilon published for each bin"
            + with_words(mechanism),
            sampler=IDEALISED if mechanism.idealised else EXACT,
            interval_basis=facts.basis,
            post_processing=POST_PROCESSING[statistic],
            idealised=mechanism.idealised,
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated."""
        return {
            "kind": KIND,
            "parts": {
                statistic.value: {
                    "mechanism": self.parts[statistic].mechanism,
                    "settings": settings_of(self.parts[statistic].named),
                    "epsilon": self.parts[statistic].epsilon.tolist(),
                }
                for statistic in self.statistics
            },
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the column ``epsilon`` says the rest."""
        return {"kind": KIND, **published_mechanisms(self.parts)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedSeparately:
        """Return the calibrated mechanism that ``to_facts`` wrote, with its settings."""
        return cls(
            {
                Statistic(name): Part(
                    part["mechanism"],
                    np.array(part["epsilon"], dtype=np.float64),
                    part["settings"],
                )
                for name, part in facts["parts"].items()
            }
        )

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedSeparately:
        """Return that of the numbered bins; raise UsageError when mechanism or epsilon is missing."""
        known = mechanisms_from_published(facts)
        if known.keys() != columns.keys() or not all("epsilon" in own for own in columns.values()):
            raise UsageError("a statistic is published without its mechanism or its epsilon")
        return cls(
            {
                statistic: Part(known[statistic][0], own["epsilon"], known[statistic][1])
                for statistic, own in columns.items()
            }
        )

    def _noise_scale(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
        # the noise does not depend on the level of the intervals
        facts = self._facts(statistic, counts, bound, 0.5)
        return zero_where_constant(facts.noise_scale, statistic, counts)

    def _facts(
        self, statistic: Statistic, counts: Counts, bound: ContributionBound, level: float
    ) -> ErrorFacts:
        part = self.parts[statistic]
        return error_facts(part.named, counts, bound, statistic, part.epsilon, level)
