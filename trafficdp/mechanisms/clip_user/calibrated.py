"""Calibrated ``suppressed``: Laplace noise where some vehicles are left out of some bins (Clip-User).

D of the N records of a bin are left out (by public counts), n = N - D are kept. What is released:

===========  ==================================================  ==========================
statistic    number                                              bias at worst, exactly
===========  ==================================================  ==========================
mean         (sum of the kept + D U/2) / N                       U D / (2 N)
vehicle mean (sum of kept vehicles' means + (L - L') U/2) / L    U (L - L') / (2 L)
variance     that of the kept                                    U^2 j (N - j)/N^2, j = min(D, floor(N/2))
===========  ==================================================  ==========================

(Clip-User, arXiv 2405.06261, averages the kept alone: bias U D/N and sensitivity U m/n, both larger.) A
vehicle that is left out of a bin pays nothing for it; a kept one moves the mean by U m/N. Proof: what is left
out does not enter; given the draw of ``laplace.calibrated`` on the kept records, all else is arithmetic with
public counts. The bias of a mean is largest when all that is left out is 0, or all is U; that of the
variance: ``bounding.arrays``. Intervals of the kept statistic, shrunk with it, are widened by the bias,
and so is the expected error, by the triangle inequality.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import dropped_variance_bias
from trafficdp.errors import UsageError
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms.clip_user.clip_user import clip_user
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.protocol import CLIP_USER, Columns, PublicFacts, Statement
from trafficdp.mechanisms.publish import interval, status_of
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions, SensitiveInputs

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
KIND = "suppressed"
RULE = 2
"""Number of the rule by which pairs are left out; another rule gets another number."""
CITATION = "Clip-User, arXiv 2405.06261; centre imputation and noise here"
COMPOSITION = (
    "vehicles are left out of bins by public counts; the loss is each vehicle's exact own loss over the bins "
    "it is kept in, sums of x and of x (U - x) of a bin priced together; the largest is the guarantee"
)
LEFT_OUT = {
    Statistic.MEAN: "records that are left out count as the middle of the range; ",
    Statistic.VEHICLE_MEAN: "vehicles that are left out count as the middle of the range; ",
    Statistic.VARIANCE: "records that are left out do not count; ",
}


@dataclass(frozen=True)
class Suppressing:
    """Which pairs are left out: those of Clip-User at ``epsilon_per_bin`` (0: none).

    ``left_out`` holds their positions once they are known and frozen; None: to be found from the counts.
    """

    epsilon_per_bin: float
    left_out: npt.NDArray[np.int64] | None = None

    def kept(self, counts: Counts, bound: ContributionBound) -> BoolArray:
        """Return which pairs stay, shape (P,). Raises UsageError when the pairs do not fit the counts."""
        kept = np.ones(counts.pairs, dtype=np.bool_)
        if self.left_out is None:
            return clip_user(counts, bound, self.epsilon_per_bin).kept if self.epsilon_per_bin > 0 else kept
        inside = (self.left_out >= 0) & (self.left_out < counts.pairs)
        kept[self.left_out[inside]] = False
        alive = np.bincount(counts.bin_index[kept], minlength=counts.bins)
        if not bool(inside.all()) or not bool(np.all(alive > 0)):
            raise UsageError("what is left out are not pairs of these bins", expected="one kept in every bin")
        return kept


@dataclass(frozen=True)
class CalibratedSuppression:
    """``noise`` is drawn on the pairs that are kept. See CalibratedMechanism."""

    public: PublicFacts
    noise: CalibratedLaplace
    suppressing: Suppressing

    kind = KIND
    composition = COMPOSITION

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What it estimates, in the order of Statistic."""
        return self.noise.statistics

    @cached_property
    def kept(self) -> BoolArray:
        """Which pairs stay, shape (P,); raises UsageError when what is left out does not fit the counts."""
        return self.suppressing.kept(*self.public.both)

    @cached_property
    def of_kept(self) -> CalibratedLaplace:
        """The noise, on the counts of the kept pairs."""
        return replace(
            self.noise, public=replace(self.public, counts=kept_counts(self.public.counts, self.kept))
        )

    def steps(self) -> tuple[Priced, ...]:
        """Return what will be measured."""
        return self.of_kept.steps()

    def event(self) -> PrivacyEvent:
        """Return every vehicle's exact loss: that of the kept pairs."""
        event = self.of_kept.event()
        shrunk = {each: moved * self._by(each).share for each, moved in event.sensitivity.items()}
        return replace(event, mechanism=CLIP_USER, sensitivity=shrunk)

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure, and return the estimates of all bins."""
        rest, bound = self.of_kept.public.both
        found = self.of_kept.run(
            replace(values, contributions=_kept_contributions(values.contributions, rest, self.kept)),
            measure,
            interval_level=interval_level,
        )
        return {statistic: _of_all(each, self._by(statistic), bound) for statistic, each in found.items()}

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return the expected errors at the worst truth, which follow from scales and biases."""
        kept = self.of_kept.expected_errors()
        return {each: self._by(each).error(each, error, self.public.bound) for each, error in kept.items()}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return the half widths of intervals before they are clamped."""
        kept = self.of_kept.half_widths(interval_level)
        return {each: half * self._by(each).share + self._by(each).bias for each, half in kept.items()}

    def statement(self, statistic: Statistic) -> Statement:
        """Return what the manifest says of ``statistic``."""
        plain, by = self.of_kept.statement(statistic), self._by(statistic)
        return replace(
            plain,
            mechanism=CLIP_USER,
            citation=CITATION,
            sensitivity=f"{plain.sensitivity}; 0 where it is left out",
            noise_scale=plain.noise_scale * by.share,
            worst_case_bias=plain.worst_case_bias + float(by.bias.max()),
            interval_basis=f"{plain.interval_basis} and that of leaving out",
            post_processing=LEFT_OUT[statistic] + plain.post_processing,
        )

    def to_facts(self) -> dict[str, Any]:
        """Return all but ``public`` as JSON values; the pairs that are left out stay in the vault."""
        left_out = self.suppressing.left_out
        return {
            **self.noise.to_facts(),
            **self.published_facts(),
            "left_out": None if left_out is None else left_out.tolist(),
        }

    def published_facts(self) -> dict[str, Any]:
        """Return the rule, which finds the same pairs in the counts; the noise is in columns."""
        return {"kind": KIND, "rule": RULE, "epsilon_per_bin": self.suppressing.epsilon_per_bin}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: PublicFacts) -> CalibratedSuppression:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        left_out = facts["left_out"]
        frozen = None if left_out is None else np.array(left_out, dtype=np.int64)
        suppressing = Suppressing(float(facts["epsilon_per_bin"]), frozen)
        return cls(public, CalibratedLaplace.from_facts(facts, public), suppressing)

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: Columns, public: PublicFacts
    ) -> CalibratedSuppression:
        """Return that of the numbered bins; raise UsageError for another rule or a missing column."""
        if facts.get("rule") != RULE:
            raise UsageError(
                "unknown rule of leaving out", got=str(facts.get("rule"))[:40], expected=str(RULE)
            )
        suppressing = Suppressing(float(facts["epsilon_per_bin"]))
        return cls(public, CalibratedLaplace.from_published({}, columns, public), suppressing)

    def _by(self, statistic: Statistic) -> Imputed:
        return imputed(statistic, self.public.counts, self.of_kept.public.counts, self.public.bound)


@dataclass(frozen=True)
class Imputed:
    """A bin's number from that of its kept records: share * kept + offset, off by ``bias``; shape (G,)."""

    share: FloatArray
    offset: FloatArray
    bias: FloatArray

    def error(self, statistic: Statistic, kept: FloatArray, bound: ContributionBound) -> FloatArray:
        """Return the expected error of the number, by that of the kept records, at most the range."""
        return np.minimum(kept * self.share + self.bias, statistic.largest(bound.upper))


def imputed(statistic: Statistic, counts: Counts, rest: Counts, bound: ContributionBound) -> Imputed:
    """Return how the statistic of all of ``counts`` is estimated from that of ``rest``, its kept pairs."""
    upper = float(bound.upper)
    if statistic is Statistic.VARIANCE:
        dropped = counts.samples_per_bin - rest.samples_per_bin
        bias = dropped_variance_bias(dropped, counts.samples_per_bin, upper)
        return Imputed(np.ones(counts.bins), np.zeros(counts.bins), bias)
    share = (
        rest.samples_per_bin / counts.samples_per_bin
        if statistic is Statistic.MEAN
        else rest.users_per_bin / counts.users_per_bin
    )
    centre = (1 - share) * upper / 2
    return Imputed(share, centre, centre)


def kept_counts(counts: Counts, kept: BoolArray) -> Counts:
    """Return the counts of the pairs where ``kept`` (shape (P,)) is true; every bin must keep one."""
    return Counts(
        cell=counts.cell,
        slot=counts.slot,
        bin_index=counts.bin_index[kept],
        user_index=counts.user_index[kept],
        count=counts.count[kept],
        users=counts.users,
    )


def _of_all(kept: Estimate, by: Imputed, bound: ContributionBound) -> Estimate:
    """The estimate of all records from ``kept``, that of the kept ones."""
    value = kept.value * by.share + by.offset
    low, high = (end * by.share + by.offset for end in (kept.low, kept.high))
    low, high = interval(kept.statistic, value, low - by.bias, high + by.bias, float(bound.upper))
    error = by.error(kept.statistic, kept.expected_error, bound)
    return replace(
        kept,
        value=value,
        low=low,
        high=high,
        noise_scale=kept.noise_scale * by.share,
        expected_error=error,
        status=status_of(error, kept.statistic, bound),
    )


def _kept_contributions(contributions: Contributions, rest: Counts, kept: BoolArray) -> Contributions:
    return replace(
        contributions,
        counts=rest,
        total=contributions.total[kept],
        total_of_squares=contributions.total_of_squares[kept],
    )
