"""Exponential withhold-release: which of a vehicle's samples become an element of a stream, and when.

Paper 002, section 3 and Appendix C.1. When a vehicle's count reaches 2^l, one element of level l is
released: l = 0 its first sample, l >= 1 the sum of samples 2^(l-1) + 1 .. 2^l, B_l = 2^(l-1) of
them. Until then they are withheld. Released samples of a vehicle with M are 2^floor(log2 M) >= (M + 1)/2,
so that at any time more than half of all samples have been released. Counts alone decide, so the pattern
is public.

Samples are of (bin, vehicle) pairs here: everything holds for every bin on its own. A pair contributes at
most one element to a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.stream.tree import bit_length

IntArray = npt.NDArray[np.int64]


def level_size(level: IntArray) -> IntArray:
    """Return B_l, the samples in an element of level l: 1 for l = 0, else 2^(l - 1)."""
    return np.left_shift(np.int64(1), np.maximum(np.asarray(level, dtype=np.int64) - 1, 0))


@dataclass(frozen=True)
class Elements:
    """Elements in the order of release, all shape (E,) or (E, C).

    ``sample``: the position in the batch of the sample that completed it; ``pair``; ``level``; ``value``:
    sums of the B_l samples, one column for every column of values.
    """

    sample: IntArray
    pair: IntArray
    level: IntArray
    value: IntArray

    def __len__(self) -> int:
        return len(self.pair)


class WithholdRelease:
    """Counts and withheld sums of every pair. State: ``count`` (P,), ``withheld`` (P, C).

    C columns are handled alike (say, steps and their squares). Pairs are dense indexes 0..P-1; new ones
    may be added at any time with ``grow``.
    """

    def __init__(self, pairs: int, columns: int = 1) -> None:
        self.count = np.zeros(pairs, dtype=np.int64)
        self.withheld = np.zeros((pairs, columns), dtype=np.int64)

    def grow(self, pairs: int) -> None:
        """Add pairs without samples at the end until there are ``pairs``."""
        more = pairs - len(self.count)
        if more < 0:
            raise UsageError(
                "pairs cannot be taken away", got=f"{pairs}", expected=f"{len(self.count)} or more"
            )
        columns = self.withheld.shape[1]
        self.count = np.concatenate([self.count, np.zeros(more, dtype=np.int64)])
        self.withheld = np.concatenate([self.withheld, np.zeros((more, columns), dtype=np.int64)])

    def append(self, pair: IntArray, value: IntArray) -> Elements:
        """Take samples in the given order, ``pair`` (T,), ``value`` (T,) or (T, C); return what they release.

        The same elements come out however a stream is cut into batches. Raises UsageError for pairs out of
        range.
        """
        pair = np.asarray(pair, dtype=np.int64)
        columns = np.asarray(value, dtype=np.int64)
        columns = columns[:, None] if columns.ndim == 1 else columns
        if len(pair) and not (int(pair.min()) >= 0 and int(pair.max()) < len(self.count)):
            raise UsageError("a sample is of no known pair", expected=f"pairs below {len(self.count)}")
        if columns.shape[1] != self.withheld.shape[1]:
            raise UsageError("values have another width than the state", expected=f"{self.withheld.shape[1]}")
        order = np.argsort(pair, kind="stable")
        ordered = pair[order]
        fresh = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]
        first = np.flatnonzero(fresh)
        group = np.cumsum(fresh) - 1
        place = np.arange(len(ordered))
        number = self.count[ordered] + place - first[group] + 1
        running = np.concatenate(
            [np.zeros((1, columns.shape[1]), dtype=np.int64), np.cumsum(columns[order], axis=0)]
        )
        released = np.flatnonzero((number & (number - 1)) == 0)
        # an element holds what was withheld and all samples since the group began, or since the one before it
        again = np.concatenate([[False], group[released[1:]] == group[released[:-1]]])[: len(released)]
        previous = np.concatenate([[0], released[:-1] + 1])[: len(released)]
        since = np.where(again, previous, first[group[released]])
        carried = np.where(again[:, None], 0, self.withheld[ordered[released]])
        total = running[released + 1] - running[since] + carried

        rows = ordered[first]
        ends = np.append(first[1:], len(ordered))
        last = np.full(len(first), -1, dtype=np.int64)
        last[group[released]] = released
        emptied = last >= 0
        rest = running[ends] - running[np.where(emptied, last + 1, first)]
        self.withheld[rows] = rest + np.where(emptied[:, None], 0, self.withheld[rows])
        self.count[rows] += ends - first

        in_time = np.argsort(order[released], kind="stable")
        chosen = released[in_time]
        result = total[in_time]
        flat = result[:, 0] if np.ndim(value) == 1 else result
        return Elements(order[chosen], ordered[chosen], bit_length(number[chosen]) - 1, flat)

    def state(self) -> dict[str, IntArray]:
        """Return copies of the arrays. Holds exact sums: never publish."""
        return {"count": self.count.copy(), "withheld": self.withheld.copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, IntArray]) -> WithholdRelease:
        """Return what ``state`` was taken from."""
        count, withheld = state["count"], state["withheld"]
        if withheld.ndim != 2 or len(count) != len(withheld):
            raise UsageError("arrays of withheld samples do not fit together", expected="what state() gave")
        result = cls(0, withheld.shape[1])
        result.count = np.array(count, dtype=np.int64)
        result.withheld = np.array(withheld, dtype=np.int64)
        return result
