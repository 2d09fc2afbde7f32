"""How good blocks can be at best: a lower bound that holds for every partition into blocks.

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
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.items import Items
from trafficdp.model import stable_order

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
WORK = 100_000_000
"""Steps (sum of n^2/2 over users) after which no further user is looked at."""


def least_load(costs: FloatArray) -> float:
    """Return C(1) for the costs of one user (any order)."""
    return _best_runs(np.sort(costs)[::-1])[0]


def runs_of_the_heaviest(items: Items) -> IntArray:
    """Return the partition (I,) that is best for the user with the largest total; the rest stays single."""
    total = np.bincount(items.user, weights=items.cost, minlength=items.users)
    entries = np.flatnonzero(items.user == np.argmax(total))
    entries = entries[np.argsort(-items.cost[entries], kind="stable")]
    block = np.arange(items.number) + items.number
    length = _best_runs(items.cost[entries])[1]
    item, at = items.of_entry[entries], 0
    while at < len(item):
        block[item[at : at + length[at]]] = at
        at += length[at]
    result: IntArray = np.unique(block, return_inverse=True)[1].astype(np.int64)
    return result


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
    """Return the largest C over users: no blocks of these items have a smaller epsilon * E."""
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
