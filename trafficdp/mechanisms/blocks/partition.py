"""Items that a map is made of, an order of them, and their partition into blocks.

What blocks are made of: every bin's mean, or vehicle mean, with the public sensitivities of all users.

An order of items and users that does not depend on how they are numbered, so that no result does.

Colour refinement (Weisfeiler, Lehman 1968): a label starts from what an item or a user is by itself and is
mixed, round by round, with the labels on the other side of its entries. Sums of 64-bit words wrap and
commute, so the labels are the same under every numbering. What still shares a label is, but for contrived
cases, interchangeable, and then the order between them does not matter.

Searches that break ties by position then find the same in counts in this order, up to names, whatever the
names are: those of vehicles follow from the store's secret key, and a price must not.

How good blocks can be at best: a lower bound that holds for every partition into blocks.

Theorem. For the items with costs v_1 >= ... >= v_n > 0 of one user, let
    C(i) = min over d >= 1 of ((d + 1)/2) v_i + C(i + d),   C(n + 1) = 0.
Every partition of all items into blocks has epsilon * E >= C(1), for every user.
Proof. The user's load is the sum over blocks of ((d_B + 1)/2) max of its costs in B, where d_B counts all
items of B; leaving the items out that the user does not visit lowers it. So the load is at least that of a
partition of the n items alone. Take two of its blocks with maxima a >= b and sizes d, e. All items of the
second and some of the first are at most b. Give the e smallest items of their union to the second: its
maximum does not grow, because its own e items are all at most b, and that of the first stays a. Repeating
this, runs of the sorted costs are as good as any partition, and C is their minimum by dynamic programming.

The largest C over any set of users is a bound; users are taken from the heaviest on, within a fixed work.

A partition of items into blocks that can be changed one item at a time, with every user's load.

A block's row is, for each of its users, the entry with the largest cost (the first of equals); the load of
user l is the sum over blocks of ((d + 1)/2) * (cost of l in the row), d items in the block. The potential
sum_l exp(beta (load_l / reference - 1)) stands for the largest load, the better the larger beta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.arrays import BoolArray, FloatArray, IntArray, run_starts
from trafficdp.bounding.worst_case import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.errors import UsageError, positive
from trafficdp.model import ContributionBound, Counts, Statistic, stable_order


@dataclass(frozen=True)
class Items:
    """I items, each with the users it can be moved by: entry e says ``user[e]`` moves it by ``cost[e]`` > 0.

    ``start`` (I + 1,) cuts the entries by item; users rise within an item. ``cost`` is D / t: sensitivity
    over tolerance, without unit; ``tolerance`` (I,) is the item's t.
    """

    tolerance: FloatArray
    start: IntArray
    user: IntArray
    cost: FloatArray
    users: int

    @property
    def size(self) -> int:
        """The number of items."""
        return len(self.tolerance)

    @property
    def item_of_entry(self) -> IntArray:
        """The item (0, 1, ...) of each entry; an entry is one (item, user) pair."""
        return np.repeat(np.arange(self.size), np.diff(self.start))

    @cached_property
    def rows(self) -> sparse.csr_matrix:
        """The costs as a sparse matrix, shape (items, users)."""
        rows = sparse.csr_matrix((self.cost, self.user, self.start), shape=(self.size, self.users))
        # users out of range would be written to memory that is not the matrix's
        rows.check_format()
        return rows

    def restricted_to_users(self, users: BoolArray) -> tuple[Items, IntArray]:
        """Return the items that the marked ``users`` move, with these users' costs alone, and those items'
        positions.

        ``users`` (users,) is a mask; the users kept are numbered anew, in the same order.
        """
        marked = users[self.user]
        before = np.concatenate([[0], np.cumsum(marked)])[self.start]
        there = np.flatnonzero(np.diff(before))
        name = np.cumsum(users) - 1
        return Items(
            self.tolerance[there],
            np.append(before[there], before[-1]),
            name[self.user[marked]],
            self.cost[marked],
            int(np.count_nonzero(users)),
        ), there

    def reordered(self, order: IntArray, users: IntArray) -> Items:
        """Return the items in the order of positions ``order``, with user u renumbered as ``users[u]``."""
        rows = self.rows[order]
        rows = sparse.csr_matrix((rows.data, users[rows.indices], rows.indptr), shape=rows.shape)
        # users rise within an item: there and back takes two passes, a sort many
        rows = rows.tocsc().tocsr()
        return Items(
            self.tolerance[order],
            rows.indptr.astype(np.int64),
            rows.indices.astype(np.int64),
            rows.data,
            self.users,
        )


def items_of(counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]) -> Items:
    """Return one item a bin and statistic of ``tolerance``, with its cost to each user, from public counts.

    The cost is the user's sensitivity over the tolerance: U m / N for means, U / L for vehicle means. Raises
    UsageError when there is no bin, no statistic or another one, or a tolerance is not positive.
    """
    for statistic, allowed in tolerance.items():
        positive(**{f"tolerance of the {statistic.value}": allowed})
    if not tolerance or not counts.bins:
        raise UsageError("there is nothing to release", expected="at least one statistic and one bin")
    if Statistic.VARIANCE in tolerance:
        raise UsageError("blocks are made of means", got="variances", expected="means or vehicle means")
    upper, parts = float(bound.upper), []
    if Statistic.MEAN in tolerance:
        samples = counts.samples_per_bin[counts.bin_index]
        parts.append((Statistic.MEAN, mean_sensitivity(counts.count, samples, upper)))
    if Statistic.VEHICLE_MEAN in tolerance:
        users = counts.users_per_bin[counts.bin_index]
        parts.append((Statistic.VEHICLE_MEAN, vehicle_mean_sensitivity(users, upper)))
    size = np.tile(counts.users_per_bin, len(parts))
    return Items(
        np.repeat([float(tolerance[statistic]) for statistic, _ in parts], counts.bins),
        np.concatenate([[0], np.cumsum(size)]).astype(np.int64),
        np.tile(counts.user_index.astype(np.int64), len(parts)),
        np.concatenate([change / tolerance[statistic] for statistic, change in parts]),
        counts.users,
    )


WordArray = npt.NDArray[np.uint64]
ROUNDS = 4
CHUNK = 1 << 15
"""Entries at a time: words that are mixed stay in the processor's cache."""


def canonical_order(items: Items) -> tuple[IntArray, IntArray]:
    """Return an order of the items (I,) and a rank of every user (users,) that depend on no numbering.

    Those with most entries come first; among equals labels decide that are mixed from costs and tolerances.
    """
    owner = items.item_of_entry
    entry = _mixed(items.cost.view(np.uint64))
    item = _mixed(items.tolerance.view(np.uint64))
    user = np.zeros(items.users, dtype=np.uint64)
    for _ in range(ROUNDS):
        item = _mixed(item + _sums(np.add, entry, user, items.user, owner, items.size))
        user = _mixed(user + _sums(np.bitwise_xor, entry, item, owner, items.user, items.users))
    heavy = np.bincount(items.user, minlength=items.users)
    order = np.lexsort((item, -np.diff(items.start)))
    rank = np.empty(items.users, dtype=np.int64)
    rank[np.lexsort((user, -heavy))] = np.arange(items.users)
    return order.astype(np.int64), rank


@dataclass(frozen=True)
class Ordered:
    """``counts`` in canonical order; its pair p was ``pair[p]`` (P,) before."""

    counts: Counts
    pair: IntArray

    def to_original_order(self, marked: BoolArray) -> BoolArray:
        """Return the mask ``marked`` (P,) of canonical pairs as a mask over the pairs in their original
        order.
        """
        result = np.empty_like(marked)
        result[self.pair] = marked
        return result


def in_canonical_order(counts: Counts, bound: ContributionBound) -> Ordered:
    """Return ``counts`` with bins and vehicles in an order that does not depend on how they were numbered.

    It is that of ``canonical_order``, from public counts and the speed bound U of ``bound``. The result also
    holds which pair of ``counts`` each pair was, so that masks can be put back (``to_original_order``).
    """
    if not counts.bins:
        return Ordered(counts, np.zeros(0, dtype=np.int64))
    # every pair moves its mean: the items are the bins, one each
    bins, rank = canonical_order(items_of(counts, bound, {Statistic.MEAN: 1.0}))
    name = np.empty(counts.bins, dtype=np.int64)
    name[bins] = np.arange(counts.bins)
    bin_index, user_index = name[counts.bin_index], rank[counts.user_index]
    pair = np.lexsort((user_index, bin_index)).astype(np.int64)
    ordered = replace(
        counts,
        cell=counts.cell[bins],
        slot=counts.slot[bins],
        users_per_bin=counts.users_per_bin[bins],
        user_index=user_index[pair],
        count=counts.count[pair],
    )
    return Ordered(ordered, pair)


def _sums(
    join: np.ufunc, entry: WordArray, label: WordArray, across: IntArray, where: IntArray, size: int
) -> WordArray:
    """Every entry joined with the label across it and mixed; their sums by ``where``, 0..``size`` - 1."""
    total = np.zeros(size, dtype=np.uint64)
    for start in range(0, len(entry), CHUNK):
        part = slice(start, start + CHUNK)
        np.add.at(total, where[part], _mixed(join(entry[part], label[across[part]])))
    return total


def _mixed(words: WordArray) -> WordArray:
    """Scramble 64-bit words (the finaliser of splitmix64); arithmetic wraps."""
    word = words + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


WORK = 100_000_000
"""Steps (sum of n^2/2 over users) after which no further user is looked at."""


def least_load(costs: FloatArray) -> float:
    """Return the least load that any blocks of the items can have for one user with these ``costs``, in
    any order.
    """
    return _best_runs(np.sort(costs)[::-1])[0]


def partition_for_heaviest_user(items: Items) -> IntArray:
    """Return the block of each item, (I,), that is best for the user with the largest total cost.

    Items that this user does not move stay alone.
    """
    total = np.bincount(items.user, weights=items.cost, minlength=items.users)
    entries = np.flatnonzero(items.user == np.argmax(total))
    entries = entries[np.argsort(-items.cost[entries], kind="stable")]
    block = np.arange(items.size) + items.size
    length = _best_runs(items.cost[entries])[1]
    item, at = items.item_of_entry[entries], 0
    while at < len(item):
        block[item[at : at + length[at]]] = at
        at += length[at]
    return np.unique(block, return_inverse=True)[1].astype(np.int64)


def _best_runs(v: FloatArray) -> tuple[float, list[int]]:
    """C(1) for falling costs, and for every i the length of the run that starts there."""
    n = len(v)
    sizes = (np.arange(1, n + 1) + 1) / 2
    best = np.zeros(n + 1)
    length = [0] * n
    for i in range(n - 1, -1, -1):
        options = sizes[: n - i] * v[i] + best[i + 1 :]
        d = int(np.argmin(options))
        best[i], length[i] = options[d], d + 1
    return float(best[0]), length


def lower_bound(items: Items, work: int = WORK) -> float:
    """Return a lower bound on the largest load of any partition of the items: the largest ``least_load`` of a
    user.

    After ``work`` steps no further user is looked at.
    """
    order = stable_order(items.user, items.users)
    ends = np.cumsum(np.bincount(items.user, minlength=items.users))
    total = np.bincount(items.user, weights=items.cost, minlength=items.users)
    bound = 0.0
    for user in np.argsort(-total, kind="stable"):
        # one alone can cost no more than every item in a block of its own
        if total[user] <= bound or work < 0:
            break
        entries = order[ends[user - 1] if user else 0 : ends[user]]
        work -= len(entries) ** 2 // 2
        bound = max(bound, least_load(items.cost[entries]))
    return bound


def loads(items: Items, block: IntArray) -> FloatArray:
    """Return every user's load for the partition ``block`` (I,): the sum over blocks of (d + 1)/2 times
    the largest cost in the block of d items, shape (users,).
    """
    if not len(items.user):
        return np.zeros(items.users)
    size = np.bincount(block, minlength=int(block.max(initial=0)) + 1)
    shared = (size[block] > 1)[items.item_of_entry]
    # who is alone in a block pays by itself
    alone = np.bincount(items.user[~shared], weights=items.cost[~shared], minlength=items.users)
    if not bool(np.any(shared)):
        return alone.astype(np.float64)
    together = np.flatnonzero(size[block] > 1)
    paid = block_rows(items.rows[together], block[together])
    joint = np.bincount(paid.user, weights=paid.most * ((size + 1) / 2)[paid.block], minlength=items.users)
    return (alone + joint).astype(np.float64)


class Partition:
    """Items in blocks; ``block`` (I,) and ``load`` (users,) are kept up to date by ``move``.

    ``set_reference`` comes before the first move.
    """

    def __init__(self, items: Items, block: IntArray) -> None:
        self._items = items
        self.block = block.astype(np.int64)
        slots = items.size + 1
        self.size = np.bincount(block, minlength=slots).astype(np.float64)
        self._members: list[list[int]] = [[] for _ in range(slots)]
        for item, each in enumerate(self.block.tolist()):
            self._members[each].append(item)
        self._free = [each for each in range(slots - 1, -1, -1) if not self._members[each]]
        # entries by user, side by side in memory, to find the blocks that an item meets; where each went
        by_user = items.rows.tocsc()
        self._item, self._cost = by_user.indices, by_user.data
        self._first, self._many = by_user.indptr[:-1].astype(np.int64), np.diff(by_user.indptr)
        order = stable_order(items.user, items.users)
        self._place = np.empty_like(order)
        self._place[order] = np.arange(len(order), dtype=order.dtype)
        # is an entry the largest of its user in its block?
        self._top = np.zeros(len(items.user), dtype=np.bool_)
        self._row = [self._row_of(members) for members in self._members]
        self._top[self._place[np.concatenate(self._row)]] = True
        self._seen = np.full(items.users, -1, dtype=np.int64)

    def set_reference(self, beta: float) -> None:
        """Recompute all users' loads and measure the potential to be lowered relative to the largest of
        them.
        """
        tops = np.flatnonzero(self._top)
        cost, owner = self._cost[tops], self.block[self._item[tops]]
        many = np.diff(np.searchsorted(tops, np.append(self._first, len(self._top))))
        user = np.repeat(np.arange(len(many), dtype=np.int32), many)
        paid = cost * (self.size[owner] + 1) / 2
        self.load = np.bincount(user, weights=paid, minlength=len(many)).astype(np.float64)
        self._reference = float(self.load.max(initial=0.0)) or 1.0
        self._beta = beta
        self.weight = self._weights(self.load)
        self._weight_of_row = np.bincount(owner, weights=self.weight[user] * cost, minlength=len(self._row))

    def move(self, item: int, tries: int) -> bool:
        """Move one item to the block, among at most ``tries``, that lowers the potential most.

        Return whether it moved. A new block of its own is always tried.
        """
        here = int(self.block[item])
        alone = len(self._members[here]) == 1
        before = self._row[here]
        self._take(item)
        entries = np.arange(self._items.start[item], self._items.start[item + 1])
        options = self._options(item, entries, here, tries)
        best, change = here, self._change(here, entries)
        for option in options if alone else [*options, self._free[-1]]:
            other = self._change(int(option), entries)
            if other < change - 1e-12 * abs(change):
                best, change = int(option), other
        self._put(item, best, before if best == here else None)
        if best != here and alone:
            self._free.append(here)
        return best != here

    def _options(self, item: int, entries: IntArray, here: int, tries: int) -> IntArray:
        """The most promising blocks, by first order: w (((d + 2)/2) max(M, D) - ((d + 1)/2) M)."""
        items = self._items
        users = items.user[entries]
        weight = self.weight[users]
        active = weight > 1e-5 * float(self.weight.max())
        users, weight, cost = users[active], weight[active], items.cost[entries][active]
        if not len(users):
            return np.zeros(0, dtype=np.int64)
        many = self._many[users]
        met = np.repeat(self._first[users] - (np.cumsum(many) - many), many) + np.arange(many.sum())
        top = np.flatnonzero(self._top[met])
        met, own = met[top], np.repeat(np.arange(len(users)), many)[top]
        shared = np.minimum(self._cost[met], cost[own]) * weight[own]
        overlap = np.bincount(self.block[self._item[met]], weights=shared, minlength=len(self._row))
        blocks = np.flatnonzero(overlap)
        blocks = blocks[blocks != here]
        size = self.size[blocks]
        guess = self._weight_of_row[blocks] / 2 + (size + 2) / 2 * (float(weight @ cost) - overlap[blocks])
        if len(blocks) > tries:
            # the least few, all that are equal to the last of them included, before they are sorted
            few = np.flatnonzero(guess <= np.partition(guess, tries - 1)[tries - 1])
            blocks, guess = blocks[few], guess[few]
        return np.asarray(blocks[np.argsort(guess, kind="stable")[:tries]].astype(np.int64))

    def _change(self, block: int, entries: IntArray) -> float:
        """Change of the potential when an item joins ``block``."""
        row, known = self._joined(block, entries)
        users = self._items.user[row]
        more = (self.size[block] + 2) / 2 * self._items.cost[row]
        more[:known] -= (self.size[block] + 1) / 2 * self._items.cost[self._row[block]]
        return float((self._weights(self.load[users] + more) - self.weight[users]).sum())

    def _joined(self, block: int, entries: IntArray) -> tuple[IntArray, int]:
        """The row of ``block`` with the item's entries in it; users of the old row come first, in order."""
        items, row = self._items, self._row[block]
        users, new = items.user[row], items.user[entries]
        self._seen[users] = row
        held = self._seen[new]
        better = (held < 0) | (items.cost[entries] > items.cost[held])
        self._seen[new[better]] = entries[better]
        joined = np.concatenate([self._seen[users], entries[held < 0]])
        self._seen[users] = -1
        self._seen[new] = -1
        return joined, len(row)

    def _take(self, item: int) -> None:
        here = int(self.block[item])
        self._members[here].remove(item)
        self._replace(here, self._row_of(self._members[here]), -1)

    def _put(self, item: int, block: int, row: IntArray | None) -> None:
        if not self._members[block] and self._free[-1] == block:
            self._free.pop()
        self._members[block].append(item)
        self.block[item] = block
        if row is None:
            entries = np.arange(self._items.start[item], self._items.start[item + 1])
            row = self._joined(block, entries)[0]
        self._replace(block, row, 1)

    def _replace(self, block: int, row: IntArray, joined: int) -> None:
        """Give ``block`` another row and size; loads, weights and marks follow."""
        items, old = self._items, self._row[block]
        size = self.size[block]
        self.load[items.user[old]] -= (size + 1) / 2 * items.cost[old]
        self.load[items.user[row]] += (size + joined + 1) / 2 * items.cost[row]
        touched = np.concatenate([items.user[old], items.user[row]])
        self.weight[touched] = self._weights(self.load[touched])
        self._top[self._place[old]] = False
        self._top[self._place[row]] = True
        self._row[block] = row
        self.size[block] = size + joined
        self._weight_of_row[block] = float(self.weight[items.user[row]] @ items.cost[row])

    def _row_of(self, members: list[int]) -> IntArray:
        if not members:
            return np.zeros(0, dtype=np.int64)
        start = self._items.start
        if len(members) == 1:
            return np.arange(start[members[0]], start[members[0] + 1])
        entries = np.concatenate([np.arange(start[i], start[i + 1]) for i in members])
        user, cost = self._items.user[entries], self._items.cost[entries]
        order = np.lexsort((entries, -cost, user))
        return entries[order[run_starts(user[order])]]

    def _weights(self, load: FloatArray) -> FloatArray:
        # a load far above the reference must stay a number: beyond this no move is taken anyway
        return np.exp(np.minimum(self._beta * (load / self._reference - 1), 600.0))


@dataclass(frozen=True)
class BlockRows:
    """R (user, block) pairs that occur, by user, then block: ``most`` (R,) is the largest amount in each."""

    user: IntArray
    block: IntArray
    most: npt.NDArray[Any]


def block_rows(rows: sparse.csr_matrix, block: IntArray) -> BlockRows:
    """Return the largest entry of ``rows`` (items, users) in every (user, block) pair that occurs.

    ``block`` (items,) is the block number of each item.
    """
    order = np.argsort(block, kind="stable")
    by_user = rows[order].tocsc()
    many = np.diff(by_user.indptr)
    of = block[order][by_user.indices]
    new = run_starts(of)
    new[by_user.indptr[:-1][many > 0]] = True
    first = np.flatnonzero(new)
    if not len(first):
        return BlockRows(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), by_user.data)
    # how many firsts each user has
    counted = np.searchsorted(first, by_user.indptr)
    user = np.repeat(np.arange(len(many)), np.diff(counted))
    return BlockRows(user, of[first], np.maximum.reduceat(by_user.data, first))
