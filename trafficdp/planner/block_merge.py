"""Merge blocks in rounds: many disjoint merges at a time, those that lower the largest loads most.

A round prices every user by w_l = exp(beta (load_l / largest - 1)), finds the pairs of blocks that may gain
(by one sparse product over the users that matter most), computes the exact gain of merging at these prices

    c_a w M_a + c_b w M_b - ((d_a + d_b + 1)/2) w max(M_a, M_b),   c = (d + 1)/2,

and carries out the best, each only if the potential sum_l w_l really falls. So the statistics of a bin, the
hours of a cell and neighbouring cells find one another through the users they share, without a map and
without a dense matrix.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.planner.items import Items

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
OVERLAPS = 8_000_000
"""Most (block, block, user) triples that one round looks at to find partners."""
PARTNERS = 12
"""Pairs whose gain is computed exactly, a block."""
CHUNK = 20_000
"""Pairs of blocks priced at once."""


def merge_rounds(items: Items, beta: float, share: float) -> IntArray:
    """Return a partition (I,) into blocks 0.., at most ``share`` of the blocks merging in a round."""
    shape = (items.number, items.users)
    rows = sparse.csr_matrix((items.cost, items.user, items.start), shape=shape)
    block = np.arange(items.number)
    size = np.ones(items.number)
    while True:
        first, second = _best_merges(rows, size, beta, share)
        if not len(first):
            return block
        rows, block, size = _merged(rows, block, size, first, second)


def _best_merges(
    rows: sparse.csr_matrix, size: FloatArray, beta: float, share: float
) -> tuple[IntArray, IntArray]:
    load = np.asarray(rows.T @ ((size + 1) / 2))
    largest = float(load.max())
    weight = np.exp(beta * (load / largest - 1))
    active = np.flatnonzero(weight > 1e-4)
    narrow = sparse.csr_matrix(rows[:, active])
    price = weight[active]
    first, second = _alike(narrow, price, size)
    gain = _gains(narrow, price, size, first, second)
    gains = np.flatnonzero(gain > 0)
    order = gains[np.lexsort((second[gains], first[gains], -gain[gains]))]
    return _greedy(rows, size, first[order], second[order], load, largest, beta, share)


def _alike(rows: sparse.csr_matrix, price: FloatArray, size: FloatArray) -> tuple[IntArray, IntArray]:
    """Pairs a < b of blocks whose gain may be positive, at most PARTNERS a block on average.

    w min(M_a, M_b) <= w sqrt(M_a M_b), which a sparse product gives for all pairs at once.
    """
    many = np.diff(rows.tocsc().indptr).astype(np.int64)
    weighty = price * np.asarray(rows.sum(axis=0)).ravel()
    order = np.argsort(-weighty, kind="stable")
    some = np.sort(order[np.cumsum(many[order] ** 2) <= OVERLAPS])
    priced = sparse.csr_matrix(rows[:, some] @ sparse.diags_array(price[some]))
    paid = np.asarray(priced.sum(axis=1)).ravel()
    root = priced.sqrt()
    product = (root @ root.T).tocoo()
    upper = product.row < product.col
    a, b = product.row[upper].astype(np.int64), product.col[upper].astype(np.int64)
    gain = (size[a] + size[b] + 1) / 2 * product.data[upper] - size[b] / 2 * paid[a] - size[a] / 2 * paid[b]
    chosen = np.flatnonzero(gain > 0)
    most = PARTNERS * rows.shape[0]
    if len(chosen) > most:
        chosen = chosen[np.argpartition(-gain[chosen], most)[:most]]
    return a[chosen], b[chosen]


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
    share: float,
) -> tuple[IntArray, IntArray]:
    """Take merges in order while blocks are free and the potential falls."""
    load, taken = load.copy(), np.zeros(rows.shape[0], dtype=np.bool_)
    change = np.zeros(rows.shape[1])
    done: list[int] = []
    most = max(1, int(rows.shape[0] * share))
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
        old, new = (np.exp(beta * (x / largest - 1)).sum() for x in (load[users], after))
        if new < old:
            load[users] = after
            taken[a] = taken[b] = True
            done.append(pair)
            if len(done) >= most:
                break
    return first[done], second[done]


def _merged(
    rows: sparse.csr_matrix, block: IntArray, size: FloatArray, first: IntArray, second: IntArray
) -> tuple[sparse.csr_matrix, IntArray, FloatArray]:
    stays = np.ones(rows.shape[0], dtype=np.bool_)
    stays[first] = stays[second] = False
    renumber = np.cumsum(stays) - 1
    renumber[first] = renumber[second] = np.count_nonzero(stays) + np.arange(len(first))
    joined = rows[first].maximum(rows[second])
    sizes = np.concatenate([size[stays], size[first] + size[second]])
    return sparse.csr_matrix(sparse.vstack([rows[stays], joined])), renumber[block], sizes
