"""Sums over the last R steps ("the last hour"), with a fresh budget for every R steps.

Steps 1, 2, ... are cut into blocks of R; every block has a tree of its own over its R step totals. Step s
is number r of block c; its window holds steps r + 1 .. R of block c - 1 and 1 .. r of block c, so that with
P_c(r) the noisy sum of the first r steps of block c the answer is

    P_c(r) + P_(c-1)(R) - P_(c-1)(r).

Nodes in both of the last two cancel. Nothing older is kept, and no noise grows with time.

*Privacy.* A record is in one step, hence in one block: moving it by at most u costs u touches/eta,
``touches`` at most H. A vehicle with at most ``records`` records a block loses at most u records H / eta a
block: with eta = u records H / eps, eps for every block it drives in, at most 2 eps for what one window
shows. Blocks add up: the ledger's account of a vehicle is ``loss_per_vehicle``, exact from public counts.
(Elements may not depend on what was published if the tree is signed: ``tree``.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError, integer_between
from trafficdp.mechanisms.scales import laplace_scale
from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import loss_upper_bound, sum_per_user, to_pico
from trafficdp.stream.tree import Tree, TreeKind

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LONGEST = 2_000


@dataclass(frozen=True)
class SlidingWindow:
    """Windows of ``steps`` R steps on trees of one kind. Raises UsageError for AVERAGED trees."""

    steps: int
    tree: Tree

    def __post_init__(self) -> None:
        integer_between(1, LONGEST, steps=self.steps)
        if self.tree.kind is TreeKind.AVERAGED:
            raise UsageError("windows are not made of averaged nodes", expected="a plain or signed tree")

    @cached_property
    def touches(self) -> IntArray:
        """How many nodes hold each step of a block, shape (R,)."""
        return self.tree.touches(self.steps)

    @property
    def price(self) -> int:
        """The most nodes that hold a step."""
        return int(self.touches.max())

    def variance(self) -> FloatArray:
        """Return the variance of a window that ends with step r = 1..R of a block, in units of a node's."""
        at = np.arange(self.steps + 1)
        ends, starts = self.tree.edges(at, self.steps)
        left = np.zeros(self.steps + 1)
        for end, start in zip(ends, starts, strict=True):
            node = np.arange(max(int(end.max()), int(start.max())))
            added = (node >= start[:, None]) & (node < end[:, None])
            taken = (node >= end[:, None]) & (node < start[:, None])
            coefficient = added.astype(np.int64) - taken
            left += ((coefficient[-1] - coefficient) ** 2).sum(axis=1)
        return (self.tree.variance(at, self.steps) + left)[1:]

    def mean_error(self) -> float:
        """Return the root mean square error of a block's windows, epsilon 1, one record a block of u = 1."""
        return float(self.price * np.sqrt(2 * self.variance().mean()))

    def scale(self, records: int, steps: int, epsilon: float) -> float:
        """Return eta = u records H / eps, at least, for up to ``records`` records of 0..``steps`` a block."""
        price = np.array([steps * integer_between(1, 10**9, records=records) * self.price])
        return float(laplace_scale(price, np.array([epsilon]))[0])

    def sums(self, total: IntArray, scale: float, source: NoiseSource, runs: int = 1) -> FloatArray:
        """Return the noisy sum of the last R steps after every step, shape (runs, S); ``total`` (S,) exact.

        Before R steps have passed, of all so far.
        """
        length, size = len(total), self.steps
        blocks = -(-length // size)
        exact = np.concatenate([[0], np.cumsum(total)])
        at = np.arange(1, length + 1)
        window = exact[at] - exact[np.maximum(at - size, 0)]
        whole = np.arange(size + 1)
        # row 0: nothing happened before the first block
        noise = np.zeros((blocks + 1, runs, size + 1))
        for block in range(blocks):
            noise[block + 1] = self.tree.path(whole, size, scale, source, runs)
        own, place = (at - 1) // size, (at - 1) % size + 1
        drawn = noise[own + 1, :, place] + noise[own, :, -1] - noise[own, :, place]
        return np.asarray(window + drawn.T)

    def loss_per_vehicle(
        self, user: IntArray, step: IntArray, steps: int, scale: float, users: int
    ) -> IntArray:
        """Return every vehicle's loss over all blocks in 10^-12 epsilon, shape (users,), rounded up.

        ``user`` and ``step`` (1, 2, ...) of all records, shape (F,): public.
        """
        price = steps * self.touches[(step - 1) % self.steps]
        each = to_pico(loss_upper_bound(price.astype(np.float64), np.full(len(price), scale)))
        return sum_per_user(each, user, users)


def best_window(steps: int) -> SlidingWindow:
    """Return the tree of least root mean square error for windows of ``steps`` steps, among all arities."""
    arities = sorted({*range(2, min(steps, 40) + 2), steps + 1})
    trees = [Tree(arity) for arity in arities if arity >= 2]
    trees += [Tree(arity, TreeKind.SIGNED) for arity in arities if arity % 2]
    return min((SlidingWindow(steps, tree) for tree in trees), key=SlidingWindow.mean_error)
