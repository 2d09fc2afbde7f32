"""A partition of items into blocks that can be changed one item at a time, with every user's load.

A block's row is, for each of its users, the entry with the largest cost (the first of equals); the load of
user l is the sum over blocks of ((d + 1)/2) * (cost of l in the row), d items in the block. The potential
sum_l exp(beta (load_l / reference - 1)) stands for the largest load, the better the larger beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.mechanisms.blocks.items import Items
from trafficdp.model import stable_order

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def loads(items: Items, block: IntArray) -> FloatArray:
    """Return every user's load (epsilon * E, shape (users,)) for ``block`` (I,), from scratch."""
    if not len(items.user):
        return np.zeros(items.users)
    size = np.bincount(block, minlength=int(block.max(initial=0)) + 1)
    shared = (size[block] > 1)[items.of_entry]
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
        slots = items.number + 1
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
        """Recompute all loads from scratch and measure the potential against the largest of them."""
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
        """Move one item where the potential is least, among ``tries`` blocks; return whether it moved.

        A new block of its own is always tried. Blocks that share no user with the item never help.
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
        best: IntArray = blocks[np.argsort(guess, kind="stable")[:tries]].astype(np.int64)
        return best

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
        user = user[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = user[1:] != user[:-1]
        row: IntArray = entries[order[first]]
        return row

    def _weights(self, load: FloatArray) -> FloatArray:
        # a load far above the reference must stay a number: beyond this no move is taken anyway
        weights: FloatArray = np.exp(np.minimum(self._beta * (load / self._reference - 1), 600.0))
        return weights


@dataclass(frozen=True)
class BlockRows:
    """R (user, block) pairs that occur, by user, then block: ``most`` (R,) is the largest amount in each."""

    user: IntArray
    block: IntArray
    most: npt.NDArray[Any]


def block_rows(rows: sparse.csr_matrix, block: IntArray) -> BlockRows:
    """Return the largest entry of ``rows`` (items, users) for every user and ``block`` (items,).

    Two passes over the entries: items in the order of their blocks, then by user.
    """
    order = np.argsort(block, kind="stable")
    by_user = rows[order].tocsc()
    many = np.diff(by_user.indptr)
    of = block[order][by_user.indices]
    new = np.ones(len(of), dtype=np.bool_)
    new[1:] = of[1:] != of[:-1]
    new[by_user.indptr[:-1][many > 0]] = True
    first = np.flatnonzero(new)
    if not len(first):
        return BlockRows(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), by_user.data)
    # how many firsts each user has
    counted = np.searchsorted(first, by_user.indptr)
    user = np.repeat(np.arange(len(many)), np.diff(counted))
    return BlockRows(user, of[first], np.maximum.reduceat(by_user.data, first))
