"""Calibrated ``suppressed``: discrete Laplace where some vehicles are left out of some bins (Clip-User)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import POST_PROCESSING, Columns, Statement
from trafficdp.mechanisms.clip_user.clip_user import clip_user
from trafficdp.mechanisms.clip_user.estimates import (
    imputed,
    kept_contributions,
    kept_counts,
    noise_scale,
    published_error,
    suppressed_estimate,
    suppressed_half_width,
)
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.calibrated_lattice import DISTRIBUTION, SAMPLER, CalibratedLattice
from trafficdp.mechanisms.laplace.lattice import Lattice
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
KIND = "suppressed"
NAME = "clip_user"
RULE = 1
"""Number of the rule by which pairs are left out; another rule gets another number."""
CITATION = "Clip-User, arXiv 2405.06261; centre imputation and noise here"
SENSITIVITY = {
    Statistic.MEAN: "U m / N (m records of the vehicle among the N of the bin); 0 where it is left out",
    Statistic.VARIANCE: "U^2 k (n - k) / n^2, k = min(m, floor(n/2)), n records kept; 0 where it is left out",
    Statistic.VEHICLE_MEAN: "U / L (L vehicles in the bin); 0 where it is left out",
}
LEFT_OUT = {
    Statistic.MEAN: "records that are left out count as the middle of the range; ",
    Statistic.VEHICLE_MEAN: "vehicles that are left out count as the middle of the range; ",
    Statistic.VARIANCE: "records that are left out do not count; ",
}
INTERVALS = (
    "exact tail of the discrete Laplace noise, widened by the worst-case bias of rounding and leaving out"
)


@dataclass(frozen=True)
class Suppressing:
    """Which pairs are left out: those of Clip-User at ``epsilon_per_bin`` (0: none).

    ``left_out`` holds their positions once they are known and frozen; None: to be found from the counts.
    """

    epsilon_per_bin: float
    left_out: npt.NDArray[np.int64] | None = None

    def kept(
        self, counts: Counts, bound: ContributionBound, statistics: tuple[Statistic, ...]
    ) -> npt.NDArray[np.bool_]:
        """Return which pairs stay, shape (P,). Raises UsageError when the pairs do not fit the counts."""
        if self.left_out is None and self.epsilon_per_bin <= 0:
            return np.ones(counts.pairs, dtype=np.bool_)
        if self.left_out is None:
            return clip_user(counts, bound, self.epsilon_per_bin, judged(statistics)).kept
        kept = np.ones(counts.pairs, dtype=np.bool_)
        inside = (self.left_out >= 0) & (self.left_out < counts.pairs)
        kept[self.left_out[inside]] = False
        alive = np.bincount(counts.bin_index[kept], minlength=counts.bins)
        if not bool(inside.all()) or not bool(np.all(alive > 0)):
            raise UsageError("what is left out are not pairs of these bins", expected="one kept in every bin")
        return kept


def judged(statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """Return the statistics whose error Clip-User keeps; a vehicle mean is judged as a mean."""
    some = {Statistic.MEAN if each is Statistic.VEHICLE_MEAN else each for each in statistics}
    return tuple(statistic for statistic in Statistic if statistic in some)


@dataclass(frozen=True)
class CalibratedSuppression:
    """``laplace.baseline`` on the kept pairs with the noise of ``lattices``. See Calibrated."""

    lattices: Mapping[Statistic, Lattice]
    suppressing: Suppressing

    kind = KIND

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """See Calibrated."""
        return tuple(statistic for statistic in Statistic if statistic in self.lattices)

    def rest(self, counts: Counts, bound: ContributionBound) -> Counts:
        """Return the counts that stay."""
        return kept_counts(counts, self.suppressing.kept(counts, bound, self.statistics))

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated: Theorem A over the kept pairs (``estimates``)."""
        rest = self.rest(counts, bound)
        event = baseline.event(rest, bound, self.lattices)
        sensitivity = {
            statistic: change * imputed(statistic, counts, rest, bound).share
            for statistic, change in event.sensitivity.items()
        }
        return PrivacyEvent(**{**vars(event), "mechanism": NAME, "sensitivity": sensitivity})

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        everything = values.contributions
        counts, bound = everything.counts, everything.bound
        chosen = kept_contributions(everything, self.suppressing.kept(counts, bound, self.statistics))
        found = baseline.release(
            chosen,
            self.lattices,
            noise.discrete_laplace,
            interval_level=interval_level,
            uninformative_above=uninformative_above,
        )
        return {
            statistic: suppressed_estimate(each, counts, chosen.counts, bound, uninformative_above)
            for statistic, each in found.items()
        }

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated: they follow from scales and biases."""
        rest = self.rest(counts, bound)
        kept = CalibratedLattice(self.lattices).expected_errors(rest, bound)
        return {each: published_error(each, counts, rest, bound, kept[each]) for each in self.statistics}

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated."""
        rest = self.rest(counts, bound)
        return {
            statistic: suppressed_half_width(statistic, counts, rest, bound, lattice, interval_level)
            for statistic, lattice in self.lattices.items()
        }

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        rest, lattice = self.rest(counts, bound), self.lattices[statistic]
        plain = CalibratedLattice(self.lattices).statement(statistic, rest, bound)
        bias = imputed(statistic, counts, rest, bound).bias
        return Statement(
            mechanism=NAME,
            citation=CITATION,
            sensitivity=SENSITIVITY[statistic],
            noise_scale=noise_scale(statistic, counts, rest, bound, lattice),
            worst_case_bias=plain.worst_case_bias + float(bias.max()),
            share=None,
            distribution=DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=INTERVALS,
            post_processing=LEFT_OUT[statistic] + POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated: the pairs that are left out are part of what is frozen, and stay in the vault."""
        left_out = self.suppressing.left_out
        return {
            **CalibratedLattice(self.lattices).to_facts(),
            **self.published_facts(),
            "left_out": None if left_out is None else left_out.tolist(),
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the rule, which finds the same pairs in the counts; the lattice is in columns."""
        return {"kind": KIND, "rule": RULE, "epsilon_per_bin": self.suppressing.epsilon_per_bin}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedSuppression:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        left_out = facts["left_out"]
        frozen = None if left_out is None else np.array(left_out, dtype=np.int64)
        suppressing = Suppressing(float(facts["epsilon_per_bin"]), frozen)
        return cls(CalibratedLattice.from_facts(facts).lattices, suppressing)

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedSuppression:
        """Return that of the numbered bins; raise UsageError for another rule or a missing column."""
        if facts.get("rule") != RULE:
            raise UsageError(
                "unknown rule of leaving out", got=str(facts.get("rule"))[:40], expected=str(RULE)
            )
        suppressing = Suppressing(float(facts["epsilon_per_bin"]))
        return cls(CalibratedLattice.from_published({}, columns).lattices, suppressing)
