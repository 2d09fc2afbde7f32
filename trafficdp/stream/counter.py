"""Running sums of many streams under the binary mechanism: one bank of integer arrays for bins x levels.

The binary mechanism (paper 002, Algorithm 1; Chan, Shi, Song 2010; Dwork et al. 2010). A *stream* here is
one (bin, level). Its element number t = 1, 2, ... closes the node of height i, the number of trailing
zeros of t, which covers elements t - 2^i + 1 .. t; the running sum is the sum of one noisy node for every
set bit of t. Node values are exact integers; every node that is ever published carries one draw of
discrete Laplace noise, P(z) proportional to exp(-|z|/eta), for good.

*Privacy.* Element t lies in the nodes of those heights j < H for which bit j of t - 1 is 0 (block
number k of height j, t - 1 = k 2^j + rest, is closed as a node only if k is even): ``nodes_touched``, at
most H. If vehicle l changes its elements e in stream s by at most W_e, everything ever published is a
function of nodes that change by at most sum_e W_e ``nodes_touched(t_e, H)`` in l1, so its loss is
    sum over streams of (sum over its elements of W_e * nodes_touched(t_e, H)) / eta_s,
which is exact (attained as H bits fill up) and depends on public arrival positions only. A noise that is
drawn only when a node is first published has the same law as one drawn when the node is closed, because
noises are independent and unpublished ones are seen by nobody.

*How a service uses it.* ``append`` does integer arithmetic only. ``draw`` gives noise to the nodes that
``sums`` needs and that have none yet. ``sums`` never draws. So: append, draw, store the arrays
(``state``, or the rows named by ``append`` and ``draw``) in one transaction, only then publish
``sums()``. After a crash ``from_state`` gives the same sums, and nothing is drawn twice. The number of
elements that a stream can take is 2^H - 1 (``room``); elements past it are the caller's to suppress, by
count, and a price must be reserved before an element is let in: at most W * H / eta, of which the part
above ``nodes_touched`` may be given back once the position is known.
``signed_counter.SignedCounterBank`` has the same interface and less than half of the noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from trafficdp._validate import integer_between
from trafficdp.bounding.rank import rank_within
from trafficdp.errors import UsageError
from trafficdp.noise.source import NoiseSource

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MOST_HEIGHTS = 48


def bit_length(number: IntArray | int) -> IntArray:
    """Return lv(n) = floor(log2 n) + 1, exactly, for whole numbers n >= 1 (0 for 0); any shape."""
    left = np.asarray(number, dtype=np.int64).copy()
    length = np.zeros(left.shape, dtype=np.int64)
    for shift in (32, 16, 8, 4, 2, 1):
        beyond = left >> shift > 0
        length += np.where(beyond, shift, 0)
        left = np.where(beyond, left >> shift, left)
    return length + (left > 0)


def nodes_touched(position: IntArray, heights: int) -> IntArray:
    """Return how many nodes of a stream of 2^heights - 1 elements hold the element at 1-based ``position``.

    The zeros among the ``heights`` lowest bits of position - 1: at most ``heights``, as for position 1.
    """
    before = np.asarray(position, dtype=np.int64) - 1
    bits = (before[..., None] >> np.arange(heights)) & 1
    return np.asarray(heights - bits.sum(axis=-1), dtype=np.int64)


def stream_rows(bin_index: IntArray, level: IntArray, bins: int, levels: int) -> IntArray:
    """Return the row, bin * levels + level, of every element's stream in a bank of ``bins`` x ``levels``.

    Raises UsageError for bins or levels out of range.
    """
    bin_of, level_of = np.asarray(bin_index, dtype=np.int64), np.asarray(level, dtype=np.int64)
    inside = (bin_of >= 0) & (bin_of < bins) & (level_of >= 0) & (level_of < levels)
    if not bool(np.all(inside)):
        raise UsageError(
            "an element is in no stream of the bank", expected=f"bins below {bins} and levels below {levels}"
        )
    return bin_of * levels + level_of


def require_room(elements: int, most: int) -> None:
    """Raise UsageError when a stream would hold more ``elements`` than the ``most`` it can."""
    if elements > most:
        raise UsageError(
            "a stream is full",
            got=f"{elements} elements",
            expected=f"at most {most}",
            todo="suppress elements past room(), or declare a longer stream",
        )


class CounterBank:
    """Noisy running sums of ``bins`` x ``levels`` streams of integers; see the module.

    State, all arrays with one row a stream, row = bin * levels + level:
    ``count`` (S,) elements so far; ``node`` (S, H) exact sums of the nodes of set bits (others 0);
    ``noise`` (S, H) and ``drawn`` (S, H): their noise, once drawn; ``scale`` (S,): eta, on the integers.

    Raises UsageError for sizes out of range or scales that are not finite and above 0.
    """

    def __init__(self, bins: int, levels: int, heights: int, scale: FloatArray) -> None:
        integer_between(0, 2**40, bins=bins)
        self.levels = integer_between(1, 64, levels=levels)
        self.heights = integer_between(1, MOST_HEIGHTS, heights=heights)
        self.scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), (bins, levels)).reshape(-1).copy()
        if not bool(np.all(np.isfinite(self.scale) & (self.scale > 0))):
            raise UsageError("a noise scale is out of range", expected="finite scales above 0")
        streams = bins * levels
        self.count = np.zeros(streams, dtype=np.int64)
        self.node = np.zeros((streams, heights), dtype=np.int64)
        self.noise = np.zeros((streams, heights), dtype=np.int64)
        self.drawn = np.zeros((streams, heights), dtype=np.bool_)

    @property
    def bins(self) -> int:
        """How many bins the bank has."""
        return len(self.count) // self.levels

    def room(self) -> IntArray:
        """Return how many more elements every stream can take, shape (bins, levels)."""
        left = 2**self.heights - 1 - self.count
        return np.asarray(left.reshape(self.bins, self.levels), dtype=np.int64)

    def counts(self) -> IntArray:
        """Return how many elements every stream holds, shape (bins, levels). Public."""
        return self.count.reshape(self.bins, self.levels).copy()

    def positions(self, bin_index: IntArray, level: IntArray) -> IntArray:
        """Return the 1-based positions that these elements would take, shape (E,), were all appended now."""
        stream = stream_rows(bin_index, level, self.bins, self.levels)
        return np.asarray(self.count[stream] + rank_within(stream) + 1, dtype=np.int64)

    def append(self, bin_index: IntArray, level: IntArray, value: IntArray) -> IntArray:
        """Append elements in the given order, all shape (E,); return the rows (streams) that changed.

        O(E log E + rows touched * H), no noise. Raises UsageError, changing nothing, for bins or levels out
        of range or a stream that would exceed its 2^H - 1 elements.
        """
        stream = stream_rows(bin_index, level, self.bins, self.levels)
        if not len(stream):
            return np.zeros(0, dtype=np.int64)
        order = np.argsort(stream, kind="stable")
        ordered = stream[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        rows = ordered[first]
        added = np.diff(np.append(first, len(ordered)))
        before = self.count[rows]
        after = before + added
        require_room(int(after.max()), 2**self.heights - 1)
        running = np.concatenate([[0], np.cumsum(value[order], dtype=np.int64)])
        self._close(rows, first, before, after, running)
        return np.asarray(rows, dtype=np.int64)

    def draw(self, source: NoiseSource) -> IntArray:
        """Draw noise for every node that ``sums`` needs and has none; return the rows that changed."""
        set_bits = (self.count[:, None] >> np.arange(self.heights)) & 1 > 0
        row, height = np.nonzero(set_bits & ~self.drawn)
        if len(row):
            self.noise[row, height] = source.discrete_laplace(self.scale[row])
            self.drawn[row, height] = True
        return np.unique(row).astype(np.int64)

    def sums(self) -> IntArray:
        """Return the noisy running sums, shape (bins, levels); 0 for an empty stream.

        Raises UsageError when a needed node has no noise: ``draw`` comes first.
        """
        set_bits = (self.count[:, None] >> np.arange(self.heights)) & 1 > 0
        if not bool(np.all(self.drawn[set_bits])):
            raise UsageError("a running sum has no noise yet", todo="call draw before sums")
        noisy = np.where(set_bits, self.node + self.noise, 0).sum(axis=1)
        return np.asarray(noisy.reshape(self.bins, self.levels), dtype=np.int64)

    def terms(self) -> IntArray:
        """Return how many Laplace draws every sum carries: the set bits of the count, (bins, levels)."""
        bits = (self.count[:, None] >> np.arange(self.heights)) & 1
        return np.asarray(bits.sum(axis=1).reshape(self.bins, self.levels), dtype=np.int64)

    def grow(self, bins: int, scale: FloatArray) -> None:
        """Add empty bins at the end until there are ``bins``; ``scale`` as in the constructor, of the new."""
        more = CounterBank(integer_between(0, 2**40, more=bins - self.bins), self.levels, self.heights, scale)
        for name in ("count", "node", "noise", "drawn", "scale"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return copies of all arrays, and ``shape`` = (levels, heights). Holds exact sums: never publish."""
        shape = np.array([self.levels, self.heights], dtype=np.int64)
        names = ("count", "node", "noise", "drawn", "scale")
        return {"shape": shape, **{name: getattr(self, name).copy() for name in names}}

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]]) -> CounterBank:
        """Return the bank that ``state`` was taken from. Raises UsageError for arrays that do not fit."""
        levels, heights = (int(each) for each in state["shape"])
        streams = len(state["count"])
        shapes = {name: state[name].shape for name in ("node", "noise", "drawn")}
        if streams % levels or any(each != (streams, heights) for each in shapes.values()):
            raise UsageError("the arrays of a counter do not fit together", expected="what state() gave")
        scale = np.asarray(state["scale"], dtype=np.float64).reshape(-1, levels)
        bank = cls(streams // levels, levels, heights, scale)
        bank.count = np.array(state["count"], dtype=np.int64)
        bank.node = np.array(state["node"], dtype=np.int64)
        bank.noise = np.array(state["noise"], dtype=np.int64)
        bank.drawn = np.array(state["drawn"], dtype=np.bool_)
        return bank

    def _close(
        self, rows: IntArray, first: IntArray, before: IntArray, after: IntArray, running: IntArray
    ) -> None:
        """Set the nodes of the set bits of ``after``; batch elements of a row start at ``first``.

        The node of height j covers (a, a + 2^j], a = after without its bits up to j. If it ends at or before
        the old count, it is there already. Else its sum is P(a + 2^j) - P(a), P the sum of the first
        elements; where a lies before the batch, a is also the old count without its bits up to j, so that
        P(a) is the sum of the old nodes above j.
        """
        old_node, old_noise, old_drawn = self.node[rows], self.noise[rows], self.drawn[rows]
        # sum of old nodes of height >= j
        above = np.concatenate(
            [np.cumsum(old_node[:, ::-1], axis=1)[:, ::-1], np.zeros((len(rows), 1), dtype=np.int64)], axis=1
        )
        total = above[:, 0]
        for j in range(self.heights):
            present = (after >> j) & 1 > 0
            start = (after >> (j + 1)) << (j + 1)
            end = start + (1 << j)
            kept = present & (end <= before)
            fresh = present & ~kept
            last = np.where(fresh, first + end - before, 0)
            upto = total + running[last] - running[first]
            inside = fresh & (start >= before)
            opening = np.where(inside, first + start - before, 0)
            since = np.where(inside, total + running[opening] - running[first], above[:, j + 1])
            self.node[rows, j] = np.where(fresh, upto - since, np.where(kept, old_node[:, j], 0))
            self.noise[rows, j] = np.where(kept, old_noise[:, j], 0)
            self.drawn[rows, j] = kept & old_drawn[:, j]
        self.count[rows] = after
