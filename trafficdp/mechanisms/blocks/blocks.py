"""Which statistics share one draw of noise, found by merging blocks in rounds.

Merge blocks in rounds: many disjoint merges at a time, those that lower the largest loads most.

A round prices every user by w_l = exp(beta (load_l / largest - 1)), finds the pairs of blocks that may gain
(by one sparse product over the users that matter most), computes the exact gain of merging at these prices

    c_a w M_a + c_b w M_b - ((d_a + d_b + 1)/2) w max(M_a, M_b),   c = (d + 1)/2,

and carries out the best, each only if the potential sum_l w_l really falls. So the statistics of a bin, the
hours of a cell and neighbouring cells find one another through the users they share, without a map and
without a dense matrix.

l-infinity blocks: which statistics share one draw of noise, so that a user pays their maximum, once.

A block B of d statistics gets the noise z_i = s_i r u_i with one r ~ Gamma(d + 1) and u_i uniform on
[-1, 1]. Its density is proportional to exp(-max_i |z_i| / s_i), so a user pays max_{i in B} D_i / s_i where
separate noises cost the sum; E|z_i| = s_i (d + 1)/2 (K-norm mechanism of Hardt, Talwar 2010 for a box).
With the same expected error E t_i for every item, s_i = 2 E t_i / (d_B + 1), the total loss is

    epsilon = max_l (1/E) sum_B ((d_B + 1)/2) max_{i in B} D_{i,l} / t_i,

and for a given partition no other s_i are better, because losses fall as s_i grow. The partition is found
by trying all of a few items, else by merging in rounds, then moving single items under a rising beta, then
from shaken copies of the best;
``bound`` proves how much any partition could still gain. Work is counted, never timed, and users and
bins are put in canonical order first: the same counts give the same blocks, however they are numbered.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import integer_between, positive
from trafficdp.mechanisms.blocks import partition as blocks_partition
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.block import mean_within

OVERLAPS = 8_000_000
"""Most (block, block, user) triples that one round looks at to find partners."""
PARTNERS = 12
"""Pairs whose gain is computed exactly, a block."""
SLICE = 200_000
"""Triples that are multiplied at once: what comes of them stays in the processor's cache."""
CHUNK = 20_000
"""Pairs of blocks priced at once."""


def merge_rounds(items: blocks_partition.Items, beta: float, share: float) -> IntArray:
    """Return a block number (0, 1, ...) for each of I items, found by merging blocks in rounds, shape (I,).

    At most ``share`` of the blocks merge in a round; a larger ``beta`` weighs the users with most loss more.
    """
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

    def __init__(self, items: blocks_partition.Items) -> None:
        self._users = items.users
        self._entries, self._used = len(items.user), items.size
        room = self._entries + self._entries // 2 + 16
        self._cost, self._user = np.empty(room), np.empty(room, dtype=np.int32)
        self._cost[: self._entries], self._user[: self._entries] = items.cost, items.user
        self._start = items.start.astype(np.int64)
        self._block = np.arange(items.size)
        self.size = np.ones(items.size)
        self.alive = items.size

    @property
    def rows(self) -> sparse.csr_matrix:
        """The largest cost of every user in every block that there ever was, sparse, (blocks, users)."""
        parts = self._cost[: self._entries], self._user[: self._entries], self._start
        return sparse.csr_matrix(parts, shape=(len(self._start) - 1, self._users), copy=False)

    def partition(self) -> IntArray:
        """Return the block of each item, numbered 0, 1, ... without gaps, shape (I,)."""
        return np.unique(self._block, return_inverse=True)[1].astype(np.int64)

    def merge(self, first: IntArray, second: IntArray) -> None:
        """Merge block ``first[k]`` with block ``second[k]`` for every k, in place."""
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
    return np.asarray((size[first] + 1) / 2 * paid[first] + (size[second] + 1) / 2 * paid[second] - together)


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


SMALL = 8
"""Items up to which all partitions are tried."""
MANY = 200_000
"""Entries beyond which light users are left out of the search and small gains are left alone."""
SCREEN = 0.3
"""Of MANY entries those of users above this share of the largest load without blocks are searched."""
GAIN = 0.01
"""Of MANY entries blocks within this share of the bound do, and none are made within twice it."""
EFFORT = 40_000
"""Moves of single items that are tried in all (a city of 1,400 bins: about 20 seconds)."""
LARGE = 5_000
"""Items beyond which merging is the only start; a tenth of it gets finer merging as well."""
PER_ITEM = 200
"""Most moves tried for every item."""
MERGING = (20.0, 0.25)
"""Beta and share of the first start, and the only one without moves."""
BETAS = (20.0, 40.0, 80.0, 160.0, 320.0)
SWEEPS = 4
TRIES = 6
SHAKEN = 0.15
"""Share of the items of the heaviest users that a restart puts into blocks of their own."""


@dataclass(frozen=True)
class Blocks:
    """A partition of the items: ``block`` (I,) numbers them 0.. by first item.

    ``load`` (users,) is every user's epsilon * E, E the error of all items over their tolerance.
    ``lower_bound`` is below the ``factor`` of every partition of these items.
    """

    items: blocks_partition.Items
    block: IntArray
    load: FloatArray
    lower_bound: float

    @property
    def factor(self) -> float:
        """The largest user's load: the privacy loss epsilon times the relative error of all items."""
        return float(self.load.max(initial=0.0))

    @property
    def block_size(self) -> IntArray:
        """The number of items in each item's block, shape (I,)."""
        return np.bincount(self.block)[self.block]

    def half_widths(self, epsilon: float) -> FloatArray:
        """Return the half width of each item's block noise at ``epsilon``, in the statistics' units, (I,).

        It is 2 E t / (d + 1), with E the error relative to the item's tolerance t and d the size of its
        block.
        """
        positive(epsilon=epsilon)
        return 2 * self.factor / epsilon * self.items.tolerance / (self.block_size + 1)


def clamped_block_error(size: IntArray, half_width: FloatArray, value_range: FloatArray) -> FloatArray:
    """Return the largest mean absolute error, over truths in 0..R, of a number with block noise clamped to
    0..R.

    R is ``value_range``, ``half_width`` that of the noise z and ``size`` the number of items in its block.
    It is E min(|z|, R/2).
    """
    within = mean_within(size, value_range / (2 * half_width))
    return np.asarray(np.minimum(half_width * within, value_range / 2))


def best_blocks(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    effort: int = EFFORT,
) -> Blocks:
    """Return the best blocks found for the means or vehicle means named in ``tolerance``, in all bins.

    From public counts. ``effort`` is the number of single-item moves tried (0: merging alone). Never worse
    than no blocks at all. Raises UsageError when there is nothing to release or ``effort`` is not in 0..10^9.
    """
    integer_between(0, 10**9, effort=effort)
    items = blocks_partition.items_of(counts, bound, tolerance)
    many = len(items.user) > MANY
    alone = np.bincount(items.user, weights=items.cost, minlength=items.users)
    largest = float(alone.max(initial=0.0))
    looked_at = alone > SCREEN * largest if many else np.ones(items.users, dtype=np.bool_)
    while True:
        block, least = _search_among(items, looked_at, effort, GAIN if many else 0.0)
        load = blocks_partition.loads(items, block)
        above = load > load[looked_at].max(initial=0.0) * (1 + 1e-12)
        if not bool(above.any()):
            return Blocks(items, block, load, least)
        looked_at |= load > load.max() / 2


def _search_among(
    items: blocks_partition.Items, looked_at: BoolArray, effort: int, gain: float
) -> tuple[IntArray, float]:
    """Return the blocks (I,) that are best for the users that are ``looked_at``, and their lower bound."""
    some, of = items, np.arange(items.size)
    if not looked_at.all():
        some, of = items.restricted_to_users(looked_at)
    order, rank = blocks_partition.canonical_order(some)
    canonical = some.reordered(order, rank)
    least = blocks_partition.lower_bound(canonical)
    # who none of them visits stays alone
    block = np.arange(items.size) + items.size
    block[of[order]] = _search(canonical, effort, least, gain)
    first, number = np.unique(block, return_index=True, return_inverse=True)[1:]
    renumber = np.empty(len(first), dtype=np.int64)
    renumber[np.argsort(first, kind="stable")] = np.arange(len(first))
    return renumber[number], least


def _search(items: blocks_partition.Items, effort: int, bound: float, gain: float) -> IntArray:
    """Return the best blocks found; what is within ``gain`` of the bound is good enough."""
    if items.size <= SMALL:
        return _exhaustive(items)
    alone = np.arange(items.size)
    if gain and _value(items, alone) <= bound * (1 + 2 * gain):
        return alone
    starts = _starts(items) if effort else [merge_rounds(items, *MERGING), alone]
    values = [_value(items, block) for block in starts]
    queue = [starts[at] for at in np.argsort(values, kind="stable")]
    values.sort()
    best, value, turn = queue[0], values[0], 0
    effort = min(effort, PER_ITEM * items.size)
    if gain and effort < items.size:
        # so few moves gain less than one percent: 0.2 of 15,000 items
        effort = 0
    while effort > 0 and value > bound * (1 + max(gain, 1e-12)):
        start = queue[turn] if turn < len(queue) else _shaken(items, best, turn)
        known = values[turn] if turn < len(queue) else _value(items, start)
        found, effort = _improve(items, start, known, BETAS if turn < len(queue) else BETAS[2:], effort)
        after = _value(items, found)
        if after < value * (1 - 1e-12):
            best, value = found, after
        turn += 1
    return np.asarray(best.astype(np.int64))


def _starts(items: blocks_partition.Items) -> list[IntArray]:
    """Partitions to improve, in order of preference on a tie."""
    merged = [MERGING]
    if items.size <= LARGE:
        merged += [(40.0, 0.25)]
    if items.size <= LARGE // 10:
        merged += [(20.0, 0.03), (60.0, 0.03)]
    starts = [merge_rounds(items, beta, share) for beta, share in merged]
    if items.size <= LARGE:
        starts += [np.zeros(items.size, dtype=np.int64), blocks_partition.partition_for_heaviest_user(items)]
    return [*starts, np.arange(items.size)]


def _exhaustive(items: blocks_partition.Items) -> IntArray:
    """The best of all partitions, item by item; loads only grow, so what is no better already is left."""
    table = np.zeros((items.size, items.users))
    table[items.item_of_entry, items.user] = items.cost
    best, value = np.arange(items.size), float(table.sum(axis=0).max())

    def extend(block: list[int], tops: list[FloatArray], sizes: list[int]) -> None:
        nonlocal best, value
        load = sum(((d + 1) / 2 * top for d, top in zip(sizes, tops, strict=True)), np.zeros(items.users))
        if float(load.max()) >= value * (1 - 1e-12):
            return
        if len(block) == items.size:
            best, value = np.array(block), float(load.max())
            return
        row = table[len(block)]
        for each, top in enumerate(tops):
            tops[each], sizes[each] = np.maximum(top, row), sizes[each] + 1
            extend([*block, each], tops, sizes)
            tops[each], sizes[each] = top, sizes[each] - 1
        extend([*block, len(tops)], [*tops, row], [*sizes, 1])

    extend([], [], [])
    return best


def _improve(
    items: blocks_partition.Items, block: IntArray, value: float, betas: tuple[float, ...], effort: int
) -> tuple[IntArray, int]:
    """Move single items under rising beta; return the best partition seen and the effort left.

    ``value`` is the largest load of ``block``.
    """
    partition = blocks_partition.Partition(items, block)
    best = block
    for beta in betas:
        for _ in range(SWEEPS):
            if effort <= 0:
                return best, effort
            partition.set_reference(beta)
            moved = 0
            sweep = _by_weight(items, partition)[:effort]
            effort -= max(1, len(sweep))
            for item in sweep.tolist():
                moved += partition.move(item, TRIES)
            after = float(partition.load.max())
            if after < value:
                best, value = partition.block.copy(), after
            if not moved:
                break
    return best, effort


def _by_weight(items: blocks_partition.Items, partition: blocks_partition.Partition) -> IntArray:
    """Items by what they weigh for the heaviest users; those that weigh nothing are left where they are."""
    weight = np.bincount(items.item_of_entry, partition.weight[items.user] * items.cost, items.size)
    order = np.argsort(-weight, kind="stable").astype(np.int64)
    return np.asarray(order[weight[order] > 1e-4 * weight.max()])


def _shaken(items: blocks_partition.Items, block: IntArray, turn: int) -> IntArray:
    """Put every ``1/SHAKEN``-th item of the heaviest users into a block of its own, others each turn."""
    load = blocks_partition.loads(items, block)
    heavy = load > 0.98 * load.max()
    met = np.zeros(items.size, dtype=np.bool_)
    met[items.item_of_entry[heavy[items.user]]] = True
    chosen = np.flatnonzero(met)
    # a fixed pseudo-random choice: no randomness outside noise/
    word = (chosen.astype(np.uint64) + np.uint64(turn) * np.uint64(0x9E3779B9)) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    chosen = chosen[(word >> np.uint64(40)).astype(np.float64) < SHAKEN * 2.0**24]
    shaken = block.copy()
    shaken[chosen] = block.max() + 1 + np.arange(len(chosen))
    return np.unique(shaken, return_inverse=True)[1]


def _value(items: blocks_partition.Items, block: IntArray) -> float:
    return float(blocks_partition.loads(items, block).max(initial=0.0))
