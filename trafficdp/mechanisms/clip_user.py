"""Clip-User: the search, the calibrated mechanism, the accounting.

Clip-User: fewer bins a user, without a larger worst error. Companion of paper 003 (arXiv 2405.06261).

Every bin is released with the same epsilon, so the loss is K epsilon with K the most bins of a user. The
algorithm takes users with K bins, in order, out of the bin where that harms least, as long as no bin's
error exceeds E, the worst error without any clipping; when all are down to K - 1 it goes on, else it takes
the last round back and stops. The error of a bin that drops D of N records, and keeps m* of a user at most,
is that of its mean, worst-case bias (attained) and Laplace scale: U D/N + U m*/((N - D) epsilon). Variances
and vehicle means follow the same choice.

Departures: 003 does not print its pseudo-code, this realises its description; a bin is never emptied,
because releasing a constant is "cheaper" than any data as soon as E >= U/2 (erratum E11). All decisions
read public counts only. Deterministic: users and bins are put in canonical order first, so that their names
do not matter; users in that order, ties by fewer samples, then by bin.

Calibrated ``suppressed``: Laplace noise where some vehicles are left out of some bins (Clip-User).

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

The accounting ``clip_user``: vehicles are left out of bins where that harms least, so the rest costs less.

For some epsilons a bin Clip-User says which pairs to leave out. With what is left, every number may be off by
E t: its bias, and noise as much as that allows. A vehicle then pays Theorem A's sum over its kept bins, which
falls as E grows, so the least E at which nobody pays more than epsilon is found by bisection; the best of all
candidates is taken. Nothing left out is one of them: never worse than ``equal``.

Errors are bounds over all speeds there could be. On Austin's maps this accounting beats blocks only where
both say little (E near U/2, erratum E11): so "best" leaves it aside, and it is carried out when asked for by
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.bounding.arrays import dropped_mean_bias, dropped_variance_bias
from trafficdp.bounding.worst_case import mean_sensitivity
from trafficdp.errors import UsageError, positive
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms.blocks.partition import in_canonical_order
from trafficdp.mechanisms.laplace.accountings import calibrated_within
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.mechanisms.names import CLIP_USER
from trafficdp.mechanisms.protocol import CalibratedMechanism, Columns, PublicFacts, Statement
from trafficdp.mechanisms.publish import clamp_interval, status_of
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.loss import PICO, Loss, PrivacyEvent
from trafficdp.sensitive import SensitiveInputs


@dataclass(frozen=True)
class Suppression:
    """Which (bin, user) pairs stay: ``kept`` (shape (P,)); ``bins_per_user`` is K, the most that remain."""

    kept: BoolArray
    bins_per_user: int


@dataclass(frozen=True)
class Ceiling:
    """The ``error`` E that may not grow: the worst of any bin without clipping, at ``epsilon`` a bin."""

    upper: float
    epsilon: float
    error: float

    def relative_error(self, dropped: IntArray, samples: IntArray, largest: IntArray) -> FloatArray:
        """Return each bin's worst-case error over the allowed ``error``, elementwise; above 1 is too much.

        ``dropped`` and ``samples`` are a bin's dropped and all records, ``largest`` the largest kept count of
        a user.
        """
        return bin_error(dropped, samples, largest, self.upper, self.epsilon) / self.error


def bin_error(
    dropped: IntArray, samples: IntArray, largest: IntArray, upper: float, epsilon: float
) -> FloatArray:
    """Return U D/N + U m/((N - D) epsilon), each bin's bias from dropped records plus its Laplace noise.

    ``dropped`` D of ``samples`` N records are dropped, and ``largest`` m is the largest kept count of a user.
    No noise where nothing is kept.
    """
    kept = samples - dropped
    noise = np.where(kept > 0, mean_sensitivity(largest, np.maximum(kept, 1), upper) / epsilon, 0.0)
    return np.asarray(dropped_mean_bias(dropped, samples, upper) + noise)


def ceiling(counts: Counts, bound: ContributionBound, epsilon: float) -> Ceiling:
    """Return the largest error of any bin without suppression, U m/(N epsilon), which may not grow."""
    positive(epsilon=epsilon)
    upper, none = float(bound.upper), np.zeros(counts.bins, dtype=np.int64)
    errors = bin_error(none, counts.samples_per_bin, counts.largest_count_per_bin, upper, epsilon)
    return Ceiling(upper, epsilon, float(errors.max()))


def clip_user(counts: Counts, bound: ContributionBound, epsilon: float) -> Suppression:
    """Return which (bin, vehicle) pairs Clip-User keeps, from public counts, at ``epsilon`` a bin.

    The loss is then at most ``epsilon`` times the most bins a vehicle keeps. Raises UsageError for an epsilon
    that is not positive.
    """
    ordered = in_canonical_order(counts, bound)
    found = _greedy(ordered.counts, ceiling(ordered.counts, bound, epsilon))
    return Suppression(ordered.to_original_order(found.kept), found.bins_per_user)


def _greedy(counts: Counts, limit: Ceiling) -> Suppression:
    state = _State(counts)
    most = int(counts.bins_per_user.max(initial=0))
    while most > 0:
        before = state.kept.copy()
        for user in np.flatnonzero(state.bins_left == most):
            if not state.drop_cheapest(int(user), limit):
                return Suppression(before, most)
        most -= 1
    return Suppression(state.kept, most)


class _State:
    """Kept pairs, and for every bin what an error needs: samples dropped and the two largest kept counts."""

    def __init__(self, counts: Counts) -> None:
        self._samples = counts.samples_per_bin
        self._count = counts.count
        self._bin = counts.bin_index
        self.kept = np.ones(counts.pairs, dtype=np.bool_)
        self.bins_left = counts.bins_per_user.copy()
        self._dropped = np.zeros(counts.bins, dtype=np.int64)
        # pairs by user, and the pairs of every bin (they lie together)
        order = np.argsort(counts.user_index, kind="stable")
        ends = np.cumsum(counts.bins_per_user)
        self._pairs_of = [
            order[end - size : end] for size, end in zip(counts.bins_per_user, ends, strict=True)
        ]
        self._bin_start = np.searchsorted(self._bin, np.arange(counts.bins + 1))
        self._largest = np.zeros(counts.bins, dtype=np.int64)
        self._second = np.zeros(counts.bins, dtype=np.int64)
        for each in range(counts.bins):
            self._refresh(each)

    def drop_cheapest(self, user: int, limit: Ceiling) -> bool:
        """Drop ``user`` from the bin where that adds least error.

        Return False if every choice breaks ``limit``.
        """
        pairs = self._pairs_of[user]
        pairs = pairs[self.kept[pairs]]
        bins, counts = self._bin[pairs], self._count[pairs]
        dropped = self._dropped[bins] + counts
        largest = np.where(counts == self._largest[bins], self._second[bins], self._largest[bins])
        excess = limit.relative_error(dropped, self._samples[bins], largest)
        excess[dropped >= self._samples[bins]] = np.inf
        best = np.lexsort((bins, counts, excess))[0]
        # a hair of slack: E itself was computed with the same roundings
        if not excess[best] <= 1 + 1e-12:
            return False
        pair = pairs[best]
        self.kept[pair] = False
        self.bins_left[user] -= 1
        self._dropped[bins[best]] += counts[best]
        self._refresh(int(bins[best]))
        return True

    def _refresh(self, each: int) -> None:
        pairs = slice(self._bin_start[each], self._bin_start[each + 1])
        counts = np.sort(self._count[pairs][self.kept[pairs]])
        self._largest[each] = counts[-1] if len(counts) else 0
        self._second[each] = counts[-2] if len(counts) > 1 else 0


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
class SuppressionRule:
    """Which pairs are left out: those of Clip-User at ``epsilon_per_bin`` (0: none).

    ``left_out`` holds their positions once they are known and frozen; None: to be found from the counts.
    """

    epsilon_per_bin: float
    left_out: IntArray | None = None

    def kept(self, counts: Counts, bound: ContributionBound) -> BoolArray:
        """Return a mask of the (bin, vehicle) pairs that stay, shape (P,), from public counts.

        Raises UsageError when the frozen pairs do not fit the counts.
        """
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
    """Laplace noise on sums over the (bin, vehicle) pairs that are kept. See CalibratedMechanism."""

    public: PublicFacts
    noise: CalibratedLaplace
    suppressing: SuppressionRule

    kind = KIND
    composition = COMPOSITION

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics that it estimates, in the order of the enum Statistic."""
        return self.noise.statistics

    @cached_property
    def kept(self) -> BoolArray:
        """A mask of the (bin, vehicle) pairs that stay, (P,); UsageError when they do not fit the counts."""
        return self.suppressing.kept(self.public.counts, self.public.bound)

    @cached_property
    def mechanism_of_kept(self) -> CalibratedLaplace:
        """The Laplace mechanism on the public counts of the kept pairs alone."""
        rest = kept_counts(self.public.counts, self.kept)
        return replace(self.noise, public=replace(self.public, counts=rest))

    def steps(self) -> tuple[Priced, ...]:
        """Return the noisy measurement steps: sums over the kept pairs alone."""
        return self.mechanism_of_kept.steps()

    def event(self) -> PrivacyEvent:
        """Return the privacy event: every vehicle's exact loss over the pairs it is kept in."""
        event = self.mechanism_of_kept.event()
        shrunk = {each: moved * self._by(each).share for each, moved in event.sensitivity.items()}
        return replace(event, mechanism=CLIP_USER, sensitivity=shrunk)

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure the kept pairs' private ``values`` with noise, and return the estimates of all bins."""
        of_kept, own = self.mechanism_of_kept, values.contributions
        kept = replace(
            own,
            counts=of_kept.public.counts,
            total=own.total[self.kept],
            total_of_squares=own.total_of_squares[self.kept],
        )
        found = of_kept.run(replace(values, contributions=kept), measure, interval_level=interval_level)
        return {each: _of_all(one, self._by(each), self.public.bound) for each, one in found.items()}

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, (G,), by noise and bias."""
        kept = self.mechanism_of_kept.expected_errors()
        return {each: self._by(each).error(each, error, self.public.bound) for each, error in kept.items()}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's half width of intervals before they are clamped, in its unit, (G,)."""
        kept = self.mechanism_of_kept.half_widths(interval_level)
        return {each: half * self._by(each).share + self._by(each).bias for each, half in kept.items()}

    def statement(self, statistic: Statistic) -> Statement:
        """Return how ``statistic`` is made noisy, in words and numbers, for the release's manifest."""
        plain, by = self.mechanism_of_kept.statement(statistic), self._by(statistic)
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
        """Return the mechanism as JSON values, with the positions of dropped pairs, for the vault only."""
        left_out = self.suppressing.left_out
        return {
            **self.noise.to_facts(),
            **self.manifest_facts(),
            "left_out": None if left_out is None else left_out.tolist(),
        }

    def manifest_facts(self) -> dict[str, Any]:
        """Return the suppression rule for the manifest; it finds the same pairs again in the same counts."""
        return {"kind": KIND, "rule": RULE, "epsilon_per_bin": self.suppressing.epsilon_per_bin}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: PublicFacts) -> CalibratedSuppression:
        """Return the mechanism that ``to_facts`` wrote, on the same ``public`` facts."""
        left_out = facts["left_out"]
        frozen = None if left_out is None else np.array(left_out, dtype=np.int64)
        suppressing = SuppressionRule(float(facts["epsilon_per_bin"]), frozen)
        return cls(public, CalibratedLaplace.from_facts(facts, public), suppressing)

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: Columns, public: PublicFacts
    ) -> CalibratedSuppression:
        """Rebuild the mechanism of a published release from its manifest and columns.

        Raises UsageError for another suppression rule or a missing column.
        """
        if facts.get("rule") != RULE:
            raise UsageError(
                "unknown rule of leaving out", got=str(facts.get("rule"))[:40], expected=str(RULE)
            )
        suppressing = SuppressionRule(float(facts["epsilon_per_bin"]))
        return cls(public, CalibratedLaplace.from_published({}, columns, public), suppressing)

    def _by(self, statistic: Statistic) -> ImputedNumber:
        rest = self.mechanism_of_kept.public.counts
        return imputation(statistic, self.public.counts, rest, self.public.bound)


@dataclass(frozen=True)
class ImputedNumber:
    """A bin's number from that of its kept records: share * kept + offset, off by ``bias``; shape (G,)."""

    share: FloatArray
    offset: FloatArray
    bias: FloatArray

    def error(self, statistic: Statistic, kept: FloatArray, bound: ContributionBound) -> FloatArray:
        """Return the expected error of the imputed number, (G,), from ``kept``, that of the kept records'
        number.
        """
        return np.minimum(kept * self.share + self.bias, statistic.largest(bound.upper))


def imputation(statistic: Statistic, counts: Counts, kept: Counts, bound: ContributionBound) -> ImputedNumber:
    """Return how a bin's statistic over ``counts`` is estimated from that over its pairs in ``kept``.

    Dropped records, or vehicles, count as the middle of the range for means, and do not count for a variance.
    """
    upper = float(bound.upper)
    if statistic is Statistic.VARIANCE:
        dropped = counts.samples_per_bin - kept.samples_per_bin
        bias = dropped_variance_bias(dropped, counts.samples_per_bin, upper)
        return ImputedNumber(np.ones(counts.bins), np.zeros(counts.bins), bias)
    share = kept.samples_per_bin / counts.samples_per_bin
    if statistic is Statistic.VEHICLE_MEAN:
        share = kept.users_per_bin / counts.users_per_bin
    centre = (1 - share) * upper / 2
    return ImputedNumber(share, centre, centre)


def kept_counts(counts: Counts, kept: BoolArray) -> Counts:
    """Return the public counts of the pairs marked in ``kept`` (P,) alone; every bin must keep one."""
    users = np.bincount(counts.bin_index[kept], minlength=counts.bins)
    return replace(counts, users_per_bin=users, user_index=counts.user_index[kept], count=counts.count[kept])


def _of_all(kept: Estimate, by: ImputedNumber, bound: ContributionBound) -> Estimate:
    """The estimate of all records from ``kept``, that of the kept ones."""
    value = kept.value * by.share + by.offset
    low, high = (end * by.share + by.offset for end in (kept.low, kept.high))
    low, high = clamp_interval(kept.statistic, value, low - by.bias, high + by.bias, float(bound.upper))
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


EPSILONS_PER_BIN = tuple(2.0**power for power in range(-4, 5))
"""What Clip-User is tried at."""
CLOSE = 1e-12


@dataclass(frozen=True)
class _Candidate:
    """One suppression: the epsilon a bin it was found at, the pairs left out, what stays."""

    suppressing: SuppressionRule
    rest: Counts
    by: Mapping[Statistic, ImputedNumber]


@dataclass(frozen=True)
class SuppressionAccounting:
    """Accounting after suppression. ``scales`` are of the noise; the worst relative scale includes bias."""

    counts: Counts
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]

    name = CLIP_USER
    composition = CalibratedSuppression.composition

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute noise at ``epsilon``, shape (G,), in its unit."""
        candidate, error = self._best(epsilon)
        noise = self._noise(candidate, error).expected_noise()
        return {s: kept * candidate.by[s].share for s, kept in noise.items()}

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the largest ratio of noise plus bias to tolerance over bins and statistics, at
        ``epsilon``.
        """
        return self._best(epsilon)[1]

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the least epsilon of any suppression at which ``worst_relative_scale`` is
        ``relative_scale``.
        """
        costs = [self._cost(each, relative_scale) for each in self._candidates]
        return min(costs) if relative_scale > 0 else 0.0

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, at ``epsilon``, shape (G,)."""
        candidate, error = self._best(epsilon)
        kept = self._noise(candidate, error).errors()
        return {s: candidate.by[s].error(s, each, self.bound) for s, each in kept.items()}

    def calibrate(self, loss: Loss) -> CalibratedMechanism:
        """Return the mechanism with noise that can be drawn exactly, and costs at most ``loss``."""
        asked = loss.pico / PICO
        candidate, error = self._best(max(asked, 1 / PICO))
        noise = self._noise(candidate, error)

        def at(epsilon: float) -> CalibratedMechanism:
            drawn = CalibratedLaplace.of(noise.scaled(asked / epsilon))
            return CalibratedSuppression(PublicFacts(self.counts, self.bound), drawn, candidate.suppressing)

        return calibrated_within(at, loss)

    @cached_property
    def _candidates(self) -> tuple[_Candidate, ...]:
        found = [self._candidate(0.0, np.ones(self.counts.pairs, dtype=np.bool_))]
        for epsilon in EPSILONS_PER_BIN:
            found.append(self._candidate(epsilon, clip_user(self.counts, self.bound, epsilon).kept))
        return tuple(found)

    def _candidate(self, epsilon: float, kept: BoolArray) -> _Candidate:
        rest = kept_counts(self.counts, kept)
        by = {each: imputation(each, self.counts, rest, self.bound) for each in self.tolerance}
        return _Candidate(SuppressionRule(epsilon, np.flatnonzero(~kept).astype(np.int64)), rest, by)

    def _noise(self, candidate: _Candidate, error: float) -> LaplaceNoise:
        """Noise of the kept statistics that leaves published numbers off by E t, bias included."""
        room = {
            each: np.maximum(error * self.tolerance[each] - by.bias, 0.0) / by.share
            for each, by in candidate.by.items()
        }
        return LaplaceNoise.cheapest_within(candidate.rest, self.bound, room)

    def _cost(self, candidate: _Candidate, error: float) -> float:
        """The largest loss of any vehicle at E; infinite where a bias leaves no room for noise."""
        return float(self._noise(candidate, error).loss().max(initial=0.0))

    def _best(self, epsilon: float) -> tuple[_Candidate, float]:
        """The candidate with the least E, and that E; on a tie the first."""
        best: tuple[_Candidate, float] | None = None
        for candidate in self._candidates:
            high = 1.0 if best is None else best[1]
            if best is not None and self._cost(candidate, high * (1 - CLOSE)) > epsilon:
                continue
            while self._cost(candidate, high) > epsilon:
                high *= 2
            low = 0.0
            while high - low > CLOSE * high:
                middle = (low + high) / 2
                low, high = (low, middle) if self._cost(candidate, middle) <= epsilon else (middle, high)
            best = candidate, high
        if best is None:
            raise UsageError("there is nothing to release", expected="at least one bin")
        return best
