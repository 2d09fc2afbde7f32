"""Merge blocks in rounds: many disjoint merges at a time, those that lower the largest loads most.

A round prices every user by w_l = exp(beta (load_l / largest - 1)), finds the pairs of blocks that may gain
(by one sparse product over the users that matter most), computes the exact gain of merging at these prices

    c_a w M_a + c_b w M_b - ((d_a + d_b + 1)/2) w max(M_a, M_b),   c = (d + 1)/2,

and carries out the best, each only if the potential sum_l w_l really falls. So the statistics of a bin, the
hours of a cell and neighbouring cells find one another through the users they share, without a map and
without a dense matrix.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.mechanisms.blocks.items import Items

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
OVERLAPS = 8_000_000
"""Most (block, block, user) triples that one round looks at to find partners."""
PARTNERS = 12
"""Pairs whose gain is computed exactly, a block."""
SLICE = 200_000
"""Triples that are multiplied at once: what comes of them stays in the processor's cache."""
CHUNK = 20_000
"""Pairs of blocks priced at once."""


def merge_rounds(items: Items, beta: float, share: float) -> IntArray:
    """Return a partition (I,) into blocks 0.., at most ``share`` of the blocks merging in a round."""
    pool = _Pool(items)
    while True:
        first, second = _best_merges(pool.rows, pool.size, pool.alive, beta, share)
        if not len(first):
            return pool.partition()
        pool.merge(first, second)


class _Pool:
    """The rows of all blocks there ever were: merged ones are zeroed where they lie, new ones appended.

    So a round touches what it merges and not the whole city. ``alive`` counts the blocks that there are;
    ``rows`` and ``size`` have a line for each that was, in the order of their making. When the room is
    used up the zeroed ones are cleared away.
    """

    def __init__(self, items: Items) -> None:
        self._users = items.users
        self._entries, self._used = len(items.user), items.number
        room = self._entries + self._entries // 2 + 16
        self._cost, self._user = np.empty(room), np.empty(room, dtype=np.int32)
        self._cost[: self._entries], self._user[: self._entries] = items.cost, items.user
        self._start = items.start.astype(np.int64)
        self._block = np.arange(items.number)
        self.size = np.ones(items.number)
        self.alive = items.number

    @property
    def rows(self) -> sparse.csr_matrix:
        """The costs, shape (blocks, users); no copy."""
        parts = self._cost[: self._entries], self._user[: self._entries], self._start
        return sparse.csr_matrix(parts, shape=(len(self._start) - 1, self._users), copy=False)

    def partition(self) -> IntArray:
        """Return the block of every item, 0.. without gaps, in the order of their making."""
        return np.unique(self._block, return_inverse=True)[1].astype(np.int64)

    def merge(self, first: IntArray, second: IntArray) -> None:
        """Join every ``first`` with its ``second``."""
        rows = self.rows
        joined = rows[first].maximum(rows[second])
        for gone in np.concatenate([first, second]).tolist():
            self._cost[self._start[gone] : self._start[gone + 1]] = 0.0
        renumber = np.arange(len(self.size))
        renumber[first] = renumber[second] = len(self.size) + np.arange(len(first))
        self._block = renumber[self._block]
        size = self.size[first] + self.size[second]
        self.size[first] = self.size[second] = 0.0
        self.size = np.concatenate([self.size, size])
        self.alive -= len(first)
        if self._entries + joined.nnz > len(self._cost):
            # a union is no larger than its parts: there is room then
            self._clear()
        end = self._entries + joined.nnz
        self._cost[self._entries : end], self._user[self._entries : end] = joined.data, joined.indices
        self._start = np.concatenate([self._start, self._entries + joined.indptr[1:].astype(np.int64)])
        self._entries = end

    def _clear(self) -> None:
        """Move what is not zero to the front; lines of blocks that are gone stay, empty."""
        there = np.flatnonzero(self._cost[: self._entries])
        owner = np.searchsorted(self._start, there, side="right") - 1
        self._start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(self._start) - 1))])
        self._entries = len(there)
        self._cost[: self._entries] = self._cost[there]
        self._user[: self._entries] = self._user[there]


def _best_merges(
    rows: sparse.csr_matrix, size: FloatArray, alive: int, beta: float, share: float
) -> tuple[IntArray, IntArray]:
    load = np.asarray(rows.T @ ((size + 1) / 2))
    largest = float(load.max())
    weight = np.exp(beta * (load / largest - 1))
    active = np.flatnonzero(weight > 1e-4)
    narrow = sparse.csr_matrix(rows[:, active])
    # blocks that are gone
    narrow.eliminate_zeros()
    price = weight[active]
    first, second = _alike(narrow, price, size, alive)
    gain = _gains(narrow, price, size, first, second)
    gains = np.flatnonzero(gain > 0)
    order = gains[np.lexsort((second[gains], first[gains], -gain[gains]))]
    most = max(1, int(alive * share))
    return _greedy(rows, size, first[order], second[order], load, largest, beta, most)


def _alike(
    rows: sparse.csr_matrix, price: FloatArray, size: FloatArray, alive: int
) -> tuple[IntArray, IntArray]:
    """Pairs a < b of blocks whose gain may be positive, at most PARTNERS a block on average.

    w min(M_a, M_b) <= w sqrt(M_a M_b), which a sparse product gives for all pairs at once.
    """
    many = np.diff(rows.tocsc().indptr).astype(np.int64)
    weighty = price * np.asarray(rows.sum(axis=0)).ravel()
    order = np.argsort(-weighty, kind="stable")
    some = np.sort(order[np.cumsum(many[order] ** 2) <= OVERLAPS])
    priced = sparse.csr_matrix(rows[:, some] @ sparse.diags_array(price[some]))
    paid = np.asarray(priced.sum(axis=1), dtype=np.float64).ravel()
    root = priced.sqrt()
    parts = [_promising(root, paid, size / 2, start, end) for start, end in _slices(root, many[some])]
    a, b, gain = (np.concatenate(each) for each in zip(*parts, strict=True))
    most = PARTNERS * alive
    if len(gain) > most:
        # all that are as good as the last of them included, as they stand: neighbours are priced together
        chosen = gain >= np.partition(gain, len(gain) - most)[len(gain) - most]
        a, b = a[chosen], b[chosen]
    return a.astype(np.int64), b.astype(np.int64)


def _slices(rows: sparse.csr_matrix, many: IntArray) -> list[tuple[int, int]]:
    """Cut the rows into pieces whose products with all rows have about SLICE entries at most."""
    cost = np.concatenate([[0], np.cumsum(many[rows.indices])])[rows.indptr]
    cuts = np.searchsorted(cost, np.arange(0, cost[-1], SLICE))
    ends = np.unique(np.concatenate([[0], cuts, [rows.shape[0]]])).tolist()
    return list(itertools.pairwise(ends))


def _promising(
    root: sparse.csr_matrix, paid: FloatArray, half: FloatArray, start: int, end: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], FloatArray]:
    """Pairs a < b, a in ``start``..``end`` - 1, whose gain may be positive, and what it may be.

    ``half`` is d / 2.
    """
    product = root[start:end] @ root[start:].T
    a = np.repeat(np.arange(end - start, dtype=np.int32), np.diff(product.indptr))
    upper = np.flatnonzero(a < product.indices)
    a, b = a[upper] + np.int32(start), product.indices[upper] + np.int32(start)
    half_a, half_b = half[a], half[b]
    gain = (half_a + half_b + 0.5) * product.data[upper] - half_b * paid[a] - half_a * paid[b]
    some = np.flatnonzero(gain > 0)
    return a[some], b[some], gain[some]


def _gains(
    rows: sparse.csr_matrix, price: FloatArray, size: FloatArray, first: IntArray, second: IntArray
) -> FloatArray:
    paid = np.asarray(rows @ price)
    shared = np.zeros(len(first))
    for at in range(0, len(first), CHUNK):
        part = slice(at, at + CHUNK)
        shared[part] = rows[first[part]].minimum(rows[second[part]]) @ price
    together = (size[first] + size[second] + 1) / 2 * (paid[first] + paid[second] - shared)
    gain: FloatArray = (size[first] + 1) / 2 * paid[first] + (size[second] + 1) / 2 * paid[second] - together
    return gain


def _greedy(
    rows: sparse.csr_matrix,
    size: FloatArray,
    first: IntArray,
    second: IntArray,
    load: FloatArray,
    largest: float,
    beta: float,
    most: int,
) -> tuple[IntArray, IntArray]:
    """Take merges in order while blocks are free and the potential falls."""
    load, taken = load.copy(), np.zeros(rows.shape[0], dtype=np.bool_)
    change = np.zeros(rows.shape[1])
    done: list[int] = []
    for pair, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        if taken[a] or taken[b]:
            continue
        parts = [(slice(rows.indptr[x], rows.indptr[x + 1]), (size[x] + 1) / 2) for x in (a, b)]
        (left, c_left), (right, c_right) = parts
        users = np.unique(np.concatenate([rows.indices[left], rows.indices[right]]))
        change[rows.indices[left]] = rows.data[left]
        change[rows.indices[right]] = np.maximum(change[rows.indices[right]], rows.data[right])
        joined = change[users] * ((size[a] + size[b] + 1) / 2)
        change[users] = 0.0
        change[rows.indices[left]] = c_left * rows.data[left]
        change[rows.indices[right]] += c_right * rows.data[right]
        after = load[users] - change[users] + joined
        change[users] = 0.0
        old, new = (np.exp(np.minimum(beta * (x / largest - 1), 600.0)).sum() for x in (load[users], after))
        if new < old:
            load[users] = after
            taken[a] = taken[b] = True
            done.append(pair)
            if len(done) >= most:
                break
    return first[done], second[done]
