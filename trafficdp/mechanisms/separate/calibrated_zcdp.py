"""Calibrated ``zcdp_mechanism``: a zCDP mechanism for every statistic, each with a rho for all bins together.

Loss: a vehicle's losses by the events of the parts, added (Renyi divergences of the same vehicle add up,
Bun and Steinke 2016, Lemma 2.3). Each part's own loss follows from counts and its rho alone.
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
from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.known_error import BY_RANGE
from trafficdp.mechanisms.publish import Drawn, rounding_bias
from trafficdp.mechanisms.registry import zcdp_mechanism_named
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
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.gaussian import SAMPLER
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent, compose
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
KIND = "zcdp_mechanism"
LEAST_RHO, LARGEST_RHO = 1e-6, 1e6
"""What one statistic may be given: below, noise could not be drawn in 64 bits."""
BY_TAIL = (
    "tail of the discrete Gaussian noise (Canonne, Kamath, Steinke 2020), widened by the worst-case bias"
)
EQUAL_NOISE = "discrete Gaussian on exact integers, one standard deviation in all bins"
OTHER_NOISE = "that of the mechanism: private quantiles first, then discrete Gaussian on integers"


@dataclass(frozen=True)
class ZCDPPart:
    """One statistic: the name of its mechanism, its ``rho`` for all bins together, and its settings.

    ``settings`` that are left out are those of the registry.
    """

    mechanism: str
    rho: float
    settings: Settings = field(default_factory=dict)

    @cached_property
    def named(self) -> ZCDPMechanism:
        """The mechanism with these settings; raise UsageError for one that it does not know."""
        return with_settings(zcdp_mechanism_named(self.mechanism), self.settings)


@dataclass(frozen=True)
class CalibratedZCDP:
    """See Calibrated. ``parts`` has one entry a statistic."""

    parts: Mapping[Statistic, ZCDPPart]

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """See Calibrated."""
        return in_order(self.parts)

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated. Raises UsageError for a rho that is out of range, or too much loss."""
        events = []
        for statistic in self.statistics:
            part = self.parts[statistic]
            if not LEAST_RHO <= part.rho <= LARGEST_RHO:
                raise UsageError(
                    "the rho of a statistic is out of range",
                    got=f"{part.rho:.6g}",
                    expected=f"{LEAST_RHO:g} to {LARGEST_RHO:g} for each",
                )
            events.append(part.named.event(counts, bound, statistic, part.rho))
        first = events[0]
        return PrivacyEvent(
            mechanism=" + ".join(dict.fromkeys(event.mechanism for event in events)),
            statistics=self.statistics,
            relation=first.relation,
            unit=first.unit,
            bins=counts.bins,
            bound=bound,
            assumptions=first.assumptions,
            loss_per_user=compose(events, counts.users),
            kind=LossKind.ZCDP,
        )

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated: the intervals of ``half_widths``."""
        samples = samples_of(values)
        counts, bound = samples.counts, samples.bound
        halves = self.half_widths(counts, bound, interval_level)
        drawn: dict[Statistic, Drawn] = {}
        for statistic in self.statistics:
            part = self.parts[statistic]
            drawn[statistic] = Drawn(
                value=part.named.estimate(samples, statistic, part.rho, noise),
                half_width=halves[statistic],
                noise_scale=self._noise_scale(statistic, counts, bound),
                expected_error=self.expected_error(statistic, counts, bound),
                noise={"rho": np.full(counts.bins, part.rho)},
            )
        return numbers_of(drawn, counts, bound, uninformative_above)

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated: the whole range where counts prove nothing better (PLAN, IOME)."""
        return {each: self.expected_error(each, counts, bound) for each in self.statistics}

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated: the tail of the Gaussian, at most the range; the range where none is proved."""
        found: dict[Statistic, FloatArray] = {}
        for statistic in self.statistics:
            part, reach = self.parts[statistic], statistic.largest(bound.upper)
            mechanism = part.named
            half = np.full(counts.bins, reach)
            if isinstance(mechanism, GaussianTwin):
                half = mechanism.half_width(counts, bound, statistic, part.rho, interval_level)
            found[statistic] = zero_where_constant(np.minimum(half, reach), statistic, counts)
        return found

    def expected_error(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
        """Return the worst case over values of the mean absolute error, shape (G,), rounding included."""
        part = self.parts[statistic]
        error = part.named.expected_error(counts, bound, statistic, part.rho)
        error = np.minimum(error + rounding_bias(statistic, bound), statistic.largest(bound.upper))
        return zero_where_constant(error, statistic, counts)

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        part = self.parts[statistic]
        mechanism = part.named
        known = isinstance(mechanism, GaussianTwin)
        return Statement(
            mechanism=mechanism.name,
            citation=mechanism.citation,
            sensitivity="every vehicle's own l2 sensitivity over all bins, computed from the counts",
            noise_scale=self._noise_scale(statistic, counts, bound),
            worst_case_bias=rounding_bias(statistic, bound) if known else statistic.largest(bound.upper),
            share=part.rho / sum(each.rho for each in self.parts.values()),
            distribution=(EQUAL_NOISE if known else OTHER_NOISE) + with_words(mechanism),
            sampler=SAMPLER,
            interval_basis=BY_TAIL if known else BY_RANGE,
            post_processing=POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated."""
        return {
            "kind": KIND,
            "parts": {
                statistic.value: {
                    "mechanism": self.parts[statistic].mechanism,
                    "settings": settings_of(self.parts[statistic].named),
                    "rho": self.parts[statistic].rho,
                }
                for statistic in self.statistics
            },
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the column ``rho`` says the rest."""
        return {"kind": KIND, **published_mechanisms(self.parts)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedZCDP:
        """Return what ``to_facts`` wrote, with its settings; see ``CalibratedSeparately``."""
        return cls(
            {
                Statistic(name): ZCDPPart(str(part["mechanism"]), float(part["rho"]), part["settings"])
                for name, part in facts["parts"].items()
            }
        )

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedZCDP:
        """Return that of the numbered bins; raise UsageError unless each statistic has one rho."""
        known = mechanisms_from_published(facts)
        single = all("rho" in own and len(np.unique(own["rho"])) == 1 for own in columns.values())
        if known.keys() != columns.keys() or not single:
            raise UsageError("a statistic is published without its mechanism, or without one rho")
        return cls(
            {
                statistic: ZCDPPart(known[statistic][0], float(own["rho"][0]), known[statistic][1])
                for statistic, own in columns.items()
            }
        )

    def _noise_scale(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
        part = self.parts[statistic]
        mechanism = part.named
        if isinstance(mechanism, GaussianTwin):
            return mechanism.noise_size(counts, bound, statistic, part.rho)
        return np.full(counts.bins, np.nan)
