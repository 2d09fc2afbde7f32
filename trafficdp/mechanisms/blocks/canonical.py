"""An order of items and users that does not depend on how they are numbered, so that no result does.

Colour refinement (Weisfeiler, Lehman 1968): a label starts from what an item or a user is by itself and is
mixed, round by round, with the labels on the other side of its entries. Sums of 64-bit words wrap and
commute, so the labels are the same under every numbering. What still shares a label is, but for contrived
cases, interchangeable, and then the order between them does not matter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.items import Items

IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]
ROUNDS = 4
CHUNK = 1 << 15
"""Entries at a time: words that are mixed stay in the processor's cache."""


def canonical_order(items: Items) -> tuple[IntArray, IntArray]:
    """Return the items in canonical order (I,) and the rank of every user (users,)."""
    owner = items.of_entry
    entry = _mixed(items.cost.view(np.uint64))
    item = _mixed(items.tolerance.view(np.uint64))
    user = np.zeros(items.users, dtype=np.uint64)
    for _ in range(ROUNDS):
        item = _mixed(item + _sums(np.add, entry, user, items.user, owner, items.number))
        user = _mixed(user + _sums(np.bitwise_xor, entry, item, owner, items.user, items.users))
    heavy = np.bincount(items.user, minlength=items.users)
    order = np.lexsort((item, -np.diff(items.start)))
    rank = np.empty(items.users, dtype=np.int64)
    rank[np.lexsort((user, -heavy))] = np.arange(items.users)
    return order.astype(np.int64), rank


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
    result: WordArray = word ^ (word >> np.uint64(31))
    return result
