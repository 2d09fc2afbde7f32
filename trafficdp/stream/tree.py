"""Noise of running sums from a tree of any arity: the binary mechanism and what beats it in pure epsilon.

A stream of N elements stands at the leaves of trees of arity k; the node of height j and number i covers
elements i k^j + 1 .. (i + 1) k^j. Nodes that are used get independent Laplace noise of one scale eta; the
running sum at t is a signed sum of noisy nodes. With q_0 = t and q_(j+1) = floor((q_j + h)/k), height j gives
nodes k q_(j+1) .. q_j - 1, to be added if q_j > k q_(j+1), or subtracted the other way round.

==========  ===  =====================================================================================
kind        h    nodes
==========  ===  =====================================================================================
PLAIN       0    the digits of t in base k; k = 2 is the binary mechanism (paper 002, Algorithm 1)
SIGNED      k/2  digits from -(k-1)/2 to (k-1)/2, k odd: fewer nodes a sum (Andersson, Pagh, Torkamani 2024)
AVERAGED    0    as PLAIN, every node replaced by the best average of itself and its children's sum
==========  ===  =====================================================================================

*Privacy.* An element changed by W moves every used node that holds it by W, ``nodes_per_element`` nodes: loss
W touches / eta. It is post-processing of noisy nodes. SIGNED uses nodes whose last elements are yet to
come: they cancel, so that the noise alone is drawn ahead. The loss is the same as long as the elements do
not depend on what was published before (a non-adaptive stream): true for records, whose counts and values
no release moves. PLAIN and AVERAGED hold for adaptive streams too.

*Averaging* (Honaker 2015, from below): a node's own variance is 1; its children's sum has k v_(j-1), so
v_j = 1/(1 + 1/(k v_(j-1))), v_0 = 1, and the node's own weight is v_j. It falls to 1 - 1/k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import UsageError, integer_between
from trafficdp.measurement.nodes import Nodes
from trafficdp.noise.source import NoiseSource

ARITIES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 21, 25)


def bit_length(number: IntArray | int) -> IntArray:
    """Return lv(n) = floor(log2 n) + 1, exactly, for whole numbers n >= 1 (0 for 0); any shape."""
    left = np.asarray(number, dtype=np.int64).copy()
    length = np.zeros(left.shape, dtype=np.int64)
    for shift in (32, 16, 8, 4, 2, 1):
        beyond = left >> shift > 0
        length += np.where(beyond, shift, 0)
        left = np.where(beyond, left >> shift, left)
    return length + (left > 0)


class TreeKind(StrEnum):
    """Which nodes a running sum is added up from; defined at the top of the module."""

    PLAIN = "plain"
    SIGNED = "signed"
    AVERAGED = "averaged"


@dataclass(frozen=True)
class Tree:
    """The tree mechanism for running sums with Laplace noise; ``arity`` is k, the children of a node.

    Raises UsageError for an arity below 2, or an even one with SIGNED.
    """

    arity: int = 2
    kind: TreeKind = TreeKind.PLAIN

    def __post_init__(self) -> None:
        integer_between(2, 10_000, arity=self.arity)
        if self.kind is TreeKind.SIGNED and self.arity % 2 == 0:
            raise UsageError(
                "a tree with signed digits has an even arity", got=self.arity, expected="an odd one"
            )

    @property
    def shift(self) -> int:
        """h, which makes node numbers q_(j+1) = floor((q_j + h) / k) at height j + 1 of those at height j.

        For arity k: (k - 1)/2 with signed digits, else 0.
        """
        return (self.arity - 1) // 2 if self.kind is TreeKind.SIGNED else 0

    def heights(self, length: int) -> int:
        """Return how many heights a stream of ``length`` >= 1 elements needs: k = 2 PLAIN gives lv(N)."""
        heights, quotient = 0, length
        while quotient > 0:
            heights += 1
            quotient = (quotient + self.shift) // self.arity
        return heights

    def edges(self, at: IntArray, length: int) -> tuple[list[IntArray], list[IntArray]]:
        """Return the lists of q_j and of k q_(j+1) for every height j, with q_0 = ``at``.

        ``at`` is the number of elements in a sum, 0..``length``; entries have its shape. The nodes of height
        j in the sum have numbers between the two.
        """
        quotient = np.asarray(at, dtype=np.int64)
        ends, starts = [], []
        for _ in range(self.heights(length)):
            above = (quotient + self.shift) // self.arity
            ends.append(quotient)
            starts.append(above * self.arity)
            quotient = above
        return ends, starts

    def nodes_per_element(self, length: int) -> IntArray:
        """Return in how many used nodes each element of a stream of ``length`` N elements is, shape (N,).

        Exact. A PLAIN node is used if it is not its parent's last child and ends by N; a SIGNED one if some t
        <= N has it between q_j and k q_(j+1); an AVERAGED one if the root of a subtree that is used.
        """
        before = np.arange(length, dtype=np.int64)
        total = np.zeros(length, dtype=np.int64)
        # what stands last in the stream decides which nodes are ever reached
        ends, starts = self.edges(np.array(length), length)
        for j, (end, start) in enumerate(zip(ends, starts, strict=True)):
            used = self._used(j, length, int(end), int(start) // self.arity)
            total += used[before // self.arity**j]
        return total

    def variance(self, at: IntArray, length: int) -> FloatArray:
        """Return the variance of the noise in sums of the first ``at`` elements, in the shape of ``at``.

        The unit is the variance of one node's noise.
        """
        ends, starts = self.edges(at, length)
        own = self.own_weights(len(ends))
        total = np.zeros(np.shape(at))
        for j, (end, start) in enumerate(zip(ends, starts, strict=True)):
            total += np.abs(end - start) * own[j]
        return total

    def own_weights(self, heights: int) -> FloatArray:
        """Return the variance v_j of a node at every height, shape (heights,), in units of one node's noise.

        For AVERAGED trees v_j is taken after averaging and is also the node's own weight; for others it is
        1.
        """
        variance = np.ones(heights)
        if self.kind is TreeKind.AVERAGED:
            for j in range(1, heights):
                variance[j] = 1 / (1 + 1 / (self.arity * variance[j - 1]))
        return variance

    def draw_noise(
        self, at: IntArray, length: int, scale: float | FloatArray, source: NoiseSource, runs: int = 1
    ) -> FloatArray:
        """Draw the noise of the running sums of the first ``at`` (K,) elements, shape (runs, K).

        ``scale`` is the Laplace scale eta of every node, or one a height. Each run draws all nodes below the
        last t independently. Noise is in whole numbers unless AVERAGED. Raises UsageError for scales that
        differ in an AVERAGED tree.
        """
        ends, starts = self.edges(at, length)
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), (len(ends),))
        if self.kind is TreeKind.AVERAGED and len(np.unique(scales)) > 1:
            raise UsageError("nodes of different noise are not averaged", expected="one scale")
        own = self.own_weights(len(ends))
        total = np.zeros((runs, len(at)))
        below: FloatArray = np.zeros((runs, 0))
        for j, (end, start) in enumerate(zip(ends, starts, strict=True)):
            size = max(int(end.max(initial=0)), int(start.max(initial=0)))
            node = source.discrete_laplace(np.full(runs * size, scales[j])).reshape(runs, size).astype(float)
            if self.kind is TreeKind.AVERAGED and j > 0:
                children = below[:, : size * self.arity].reshape(runs, size, self.arity).sum(axis=2)
                node = own[j] * node + (1 - own[j]) * children
            running = np.concatenate([np.zeros((runs, 1)), np.cumsum(node, axis=1)], axis=1)
            total += running[:, end] - running[:, start]
            below = node
        return total

    def _used(self, height: int, length: int, last: int, above: int) -> BoolArray:
        """Return which nodes of ``height`` some running sum up to ``length`` uses, as a mask (nodes,).

        ``last`` and ``above`` are q_j and q_(j+1) of the sum of all.
        """
        size = self.arity**height
        nodes = -(-length // size)
        number = np.arange(nodes, dtype=np.int64)
        whole = length // size
        if self.kind is TreeKind.SIGNED:
            child, middle = number % self.arity, self.shift
            # q_j exceeds the node's number at t = (i + 1) k^j - h (k^j - 1)/(k - 1); it is subtracted from
            # the t on at which q_(j+1) first reaches the parent's end
            added = (child < middle) & (number < last)
            return np.asarray(added | ((child > middle) & (number // self.arity < above)))
        if self.kind is TreeKind.AVERAGED:
            return np.asarray(number < whole)
        return np.asarray((number % self.arity != self.arity - 1) & (number < whole))


BINARY = Tree()
"""The binary mechanism."""


def mean_error(tree: Tree, length: int, elements: int = 1) -> float:
    """Return the root mean square error of the sums at t = 1..length, for epsilon 1.

    One element changes by at most 1, and a user has at most ``elements`` of them, anywhere in the stream:
    the noise scale eta is the sum of the ``elements`` largest ``nodes_per_element``.
    """
    largest = np.sort(tree.nodes_per_element(length))[::-1][:elements].sum()
    spread = tree.variance(np.arange(1, length + 1), length).mean()
    return float(largest * np.sqrt(2 * spread))


def best_tree(length: int, elements: int = 1, *, adaptive: bool = False) -> Tree:
    """Return the tree of least root mean square error over a stream of ``length`` elements.

    All of ``ARITIES`` and kinds are compared; ``adaptive`` leaves out SIGNED ones. The first of equals.
    """
    kinds = [TreeKind.PLAIN, TreeKind.AVERAGED, *([] if adaptive else [TreeKind.SIGNED])]
    trees = [Tree(k, kind) for kind in kinds for k in ARITIES if kind is not TreeKind.SIGNED or k % 2]
    return min(trees, key=lambda tree: mean_error(tree, length, elements))


class SignedCounterBank(Nodes):
    """Noisy running sums of many bins from signed trees, to which bins can be added, with a state to save."""

    def counts(self) -> IntArray:
        """Return how many elements every stream holds, shape (bins, levels). Public."""
        return self.count.reshape(self.bins, self.levels).copy()

    def terms(self) -> IntArray:
        """Return how many Laplace draws every sum carries, shape (bins, levels)."""
        _, needed, _ = self._needed()
        terms = needed.sum(axis=(1, 2)).reshape(self.bins, self.levels)
        return np.asarray(terms, dtype=np.int64)

    def grow(self, bins: int, scale: FloatArray) -> None:
        """Append empty bins until there are ``bins``; ``scale`` is the noise scale of the new ones."""
        new = integer_between(0, 2**40, more=bins - self.bins)
        more = SignedCounterBank(new, self.levels, self.arity, self.heights, scale)
        for name in ("count", "total", "parent", "noise", "drawn", "scale"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return copies of all arrays, and ``shape`` = (levels, arity, heights). Holds exact sums."""
        shape = np.array([self.levels, self.arity, self.heights], dtype=np.int64)
        names = ("count", "total", "parent", "noise", "drawn", "scale")
        return {"shape": shape, **{name: getattr(self, name).copy() for name in names}}

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]]) -> SignedCounterBank:
        """Return the bank whose arrays ``state`` returned. Raises UsageError for arrays that do not fit."""
        levels, arity, heights = (int(each) for each in state["shape"])
        streams = len(state["count"])
        slots = (streams, heights, arity - 1)
        fits = state["total"].shape == (streams,) and state["parent"].shape == (streams, heights)
        if streams % levels or not fits or state["noise"].shape != slots or state["drawn"].shape != slots:
            raise UsageError("the arrays of a counter do not fit together", expected="what state() gave")
        scale = np.asarray(state["scale"], dtype=np.float64).reshape(-1, levels)
        bank = cls(streams // levels, levels, arity, heights, scale)
        for name in ("count", "total", "parent", "noise"):
            setattr(bank, name, np.array(state[name], dtype=np.int64))
        bank.drawn = np.array(state["drawn"], dtype=np.bool_)
        return bank
