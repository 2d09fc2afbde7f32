"""Clip-User: fewer bins a user, without a larger worst error. Companion of paper 003 (arXiv 2405.06261).

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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import dropped_mean_bias
from trafficdp.bounding.sensitivity import mean_sensitivity
from trafficdp.errors import positive
from trafficdp.mechanisms.blocks.canonical import in_canonical_order
from trafficdp.model import ContributionBound, Counts

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Suppression:
    """Which (bin, user) pairs stay: ``kept`` (shape (P,)); ``bins_per_user`` is K, the most that remain."""

    kept: npt.NDArray[np.bool_]
    bins_per_user: int


@dataclass(frozen=True)
class Ceiling:
    """The ``error`` E that may not grow: the worst of any bin without clipping, at ``epsilon`` a bin."""

    upper: float
    epsilon: float
    error: float

    def excess(self, dropped: IntArray, samples: IntArray, largest: IntArray) -> FloatArray:
        """Return error / E of bins in the given state, each of which keeps a record; > 1 is too much."""
        return bin_error(dropped, samples, largest, self.upper, self.epsilon) / self.error


def bin_error(
    dropped: IntArray, samples: IntArray, largest: IntArray, upper: float, epsilon: float
) -> FloatArray:
    """Return U D/N + U m*/((N - D) epsilon), elementwise: ``largest`` m* is the largest kept count of a user.

    What keeps nothing has no noise.
    """
    kept = samples - dropped
    noise = np.where(kept > 0, mean_sensitivity(largest, np.maximum(kept, 1), upper) / epsilon, 0.0)
    return np.asarray(dropped_mean_bias(dropped, samples, upper) + noise)


def ceiling(counts: Counts, bound: ContributionBound, epsilon: float) -> Ceiling:
    """Return E: the largest U m*/(N epsilon) over bins, nothing dropped."""
    positive(epsilon=epsilon)
    upper, none = float(bound.upper), np.zeros(counts.bins, dtype=np.int64)
    errors = bin_error(none, counts.samples_per_bin, counts.largest_count_per_bin, upper, epsilon)
    return Ceiling(upper, epsilon, float(errors.max()))


def clip_user(counts: Counts, bound: ContributionBound, epsilon: float) -> Suppression:
    """Return the suppression that Clip-User finds at ``epsilon`` a bin.

    The loss is then K * epsilon (or the exact ledger with the kept counts, never more).
    Raises UsageError for an epsilon that is not positive.
    """
    ordered = in_canonical_order(counts, bound)
    found = _greedy(ordered.counts, ceiling(ordered.counts, bound, epsilon))
    return Suppression(ordered.to_given(found.kept), found.bins_per_user)


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
        """Take ``user`` out of the bin where that harms least; False when every choice breaks the limit."""
        pairs = self._pairs_of[user]
        pairs = pairs[self.kept[pairs]]
        bins, counts = self._bin[pairs], self._count[pairs]
        dropped = self._dropped[bins] + counts
        largest = np.where(counts == self._largest[bins], self._second[bins], self._largest[bins])
        excess = limit.excess(dropped, self._samples[bins], largest)
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
