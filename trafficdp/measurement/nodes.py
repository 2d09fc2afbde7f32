"""The verb of a stream: sums are appended to nodes whose noise is drawn once, and kept.

Running sums with signed digits (Andersson, Pagh, Torkamani 2024) for bins x levels at once; level 0 is S,
level 1 is W (``sets``). With arity k odd, h = (k - 1)/2, q_0 = t and q_(j+1) = floor((q_j + h)/k), the
noise of the running sum of t elements is the sum over heights j of the noises of nodes k q_(j+1) .. q_j - 1,
or minus those of nodes q_j .. k q_(j+1) - 1. The exact sum itself is one number; a node's value never needs
to be known, because what lies beyond t cancels.

**Theorem.** All that is ever published is a function of the noisy nodes (values of all used nodes of the
whole stream, plus their noise). An element at position t lies in ``signed_nodes_touched``(t) of them: the
heights at which its node is not the middle child of its parent, at most H for streams of up to (k^H - 1)/2
elements. A vehicle with m records in an element changes each of these nodes' pair of noisy sums at a price of
m p(B, C) (``sets``; B and C the scales of this bank; without a second level K/B). So over the whole stream
it loses the sum of m touched(t) p: its *touches* times p. The elements must not depend on what was published
before: nodes whose last elements are yet to come cancel.

The account of touches is kept with the stream: ``Nodes.append`` ends it before anything is added or drawn if
a vehicle's touches cost more, at the scales that this bank draws with, than it was charged; else it brings
every vehicle's pair into its set, and adds it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import AllocationError, UsageError, integer_between
from trafficdp.measurement.laws import Values
from trafficdp.measurement.sets import Moments
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import PureDP


def signed_nodes_touched(position: IntArray, arity: int, heights: int) -> IntArray:
    """Return in how many used tree nodes the element at 1-based ``position`` is, for a full stream.

    Any shape. The tree has signed digits, odd ``arity`` children a node and ``heights`` levels of nodes. A
    node is used unless it is the middle child of its parent.
    """
    before = np.asarray(position, dtype=np.int64)[..., None] - 1
    child = before // np.power(np.int64(arity), np.arange(heights)) % arity
    return np.asarray((child != (arity - 1) // 2).sum(axis=-1), dtype=np.int64)


def exact_price(steps: int, first: Fraction, second: Fraction | None = None) -> Fraction:
    """Return the exact epsilon of one record in one node: max over d of d / first + d (steps - d) / second.

    ``first`` and ``second`` are the Laplace scales of the sums of x and of x (steps - x), for a speed x of
    0..``steps``; without ``second`` there is only the first sum.
    """
    if second is None:
        return steps / first
    top = (steps + second / first) / 2
    near = {min(steps, int(top)), min(steps, int(top) + 1)}
    return max(d / first + d * (steps - d) / second for d in near)


class Nodes:
    """Noisy running sums of ``bins`` x ``levels`` streams of integers; see the module.

    State, one row a stream, row = bin * levels + level: ``count`` (S,), ``total`` (S,) exact sums, ``scale``
    (S,); ``parent`` (S, H): q_(j+1) when noise was last drawn; ``noise`` and ``drawn`` (S, H, k - 1): those
    of nodes k parent - h .. k parent + h - 1.

    Raises UsageError for sizes out of range, an even arity, or scales that are not finite and above 0.
    """

    def __init__(self, bins: int, levels: int, arity: int, heights: int, scale: FloatArray) -> None:
        integer_between(0, 2**40, bins=bins)
        self.levels = integer_between(1, 2, levels=levels)
        self.arity = integer_between(3, 101, arity=arity)
        self.heights = integer_between(1, 40, heights=heights)
        if arity % 2 == 0 or arity**heights >= 2**62:
            raise UsageError("a tree of this arity and height cannot be made", expected="k odd, k^H < 2^62")
        self.scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), (bins, levels)).reshape(-1).copy()
        if not bool(np.all(np.isfinite(self.scale) & (self.scale > 0))):
            raise UsageError("a noise scale is out of range", expected="finite scales above 0")
        streams = bins * levels
        self.count = np.zeros(streams, dtype=np.int64)
        self.total = np.zeros(streams, dtype=np.int64)
        self.parent = np.zeros((streams, heights), dtype=np.int64)
        self.noise = np.zeros((streams, heights, arity - 1), dtype=np.int64)
        self.drawn = np.zeros((streams, heights, arity - 1), dtype=np.bool_)

    @property
    def bins(self) -> int:
        """The number of bins that have streams here."""
        return len(self.count) // self.levels

    @property
    def length(self) -> int:
        """The largest number of elements of one stream: (arity^heights - 1) / 2."""
        return int((self.arity**self.heights - 1) // 2)

    def append(
        self, bins: IntArray, moments: Moments, values: Values, touched: IntArray, charge: PureDP
    ) -> IntArray:
        """Append one element to the streams of each of ``bins`` (rising): the clipped sums of private
        ``values``.

        ``values`` (2, E) are S and W of the entries of ``moments``, whose coordinates are positions in
        ``bins``; with one level only S is used. ``touched`` (users,) counts the node values that each
        vehicle's records have entered so far; it is returned with those of this element added. Raises, from
        counts and scales alone and before anything is appended, UsageError for bins out of range or a stream
        that would be full, and AllocationError where a vehicle would lose more than ``charge``.
        """
        if bool(np.any(np.diff(np.concatenate([[-1], bins, [self.bins]])) <= 0)):
            raise UsageError("an element is in no stream", expected=f"rising bins below {self.bins}")
        rows = bins[:, None] * self.levels + np.arange(self.levels)
        position = self.count[rows[:, 0]] + 1
        if int(position.max(initial=0)) > self.length:
            raise UsageError(
                "a stream is full", got=f"{self.length} elements", todo="declare a longer stream"
            )
        per_record = signed_nodes_touched(position, self.arity, self.heights)
        touched = touched.copy()
        np.add.at(touched, moments.support.user, moments.count * per_record[moments.support.coordinate])
        scales = [map(Fraction, each) for each in np.unique(self.scale[rows], axis=0).tolist()]
        price = max((exact_price(moments.steps, *each) for each in scales), default=Fraction(0))
        if int(touched.max(initial=0)) * price > charge.exact:
            raise AllocationError(
                "a stream's records would cost a vehicle more than it was charged",
                todo="report it: the stream's account and the noise of its nodes disagree",
            )
        self.total[rows] += moments.sums(values).reshape(2, len(bins))[: self.levels].T
        self.count[rows] += 1
        return touched

    def sums(self, source: NoiseSource) -> IntArray:
        """Return the noisy running sum of every stream up to now, (bins, levels); 0 for an empty stream.

        Each node's noise is drawn from ``source`` once, when it is first needed, and kept for later sums.
        """
        parent, needed, sign = self._needed()
        self.drawn &= (parent == self.parent)[:, :, None]
        self.parent = parent
        row, height, slot = np.nonzero(needed & ~self.drawn)
        self.noise[row, height, slot] = source.discrete_laplace(self.scale[row])
        self.drawn |= needed
        noise = (np.where(needed, self.noise, 0).sum(axis=2) * sign).sum(axis=1)
        return np.asarray((self.total + noise).reshape(self.bins, self.levels), dtype=np.int64)

    def _needed(self) -> tuple[IntArray, BoolArray, IntArray]:
        """q_(j+1) (S, H); which slots the sums need (S, H, k - 1); the sign of their noise (S, H)."""
        half = (self.arity - 1) // 2
        quotient, parents, digits = self.count, [], []
        for _ in range(self.heights):
            above = (quotient + half) // self.arity
            parents.append(above)
            digits.append(quotient - above * self.arity)
            quotient = above
        digit = np.stack(digits, axis=1)
        slot = np.arange(self.arity - 1) - half
        low, high = np.minimum(digit, 0)[:, :, None], np.maximum(digit, 0)[:, :, None]
        return np.stack(parents, axis=1), (slot >= low) & (slot < high), np.sign(digit)
