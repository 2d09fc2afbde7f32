"""Choose bins of many sizes that no user pays too much for: a packing in a forest, with a certificate.

Candidate c is worth v_c > 0, costs user l the share a_{c,l} in [0, 1] of what the user may spend, and lies
inside its parent. Chosen may be only candidates none of which lies inside another (an antichain):

    maximise sum_{c chosen} v_c   subject to   sum_{c chosen} a_{c,l} <= 1 for every user l.

Theorem (Lagrange). For any prices p_l >= 0 no choice is worth more than
    D(p) = sum_l p_l + max over antichains A of sum_{c in A} (v_c - sum_l p_l a_{c,l}).
Proof. A choice A within the budgets is worth sum v_c <= sum v_c + sum_l p_l (1 - sum_{c in A} a_{c,l}).
The maximum is the sum over roots of T(root), T(c) = max(0, v_c - p.a_c, sum of T over children): an antichain
of a tree is its root alone or antichains of its children's trees. So each D(p) is an exact certificate, found
in one pass over the levels. Its least value is that of the linear relaxation with one constraint "at most
one" on every path, because the antichains of a forest are the corners of that polytope (its matrix is one of
intervals of a tree, totally unimodular).

The prices are found by the subgradient 1 - sum_{c in A} a_{c,l} with Polyak's steps (Held, Wolfe, Crowder
1974). A choice is made by taking candidates in an order, each if it fits what is left: those of the priced
antichain first, so that choices follow the prices as these come near their best.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.mechanisms.blocks.partition import Items

ROUNDS = 300
"""Most steps of the prices."""
WORK = 400_000_000
"""Entries that all steps and choices may look at: beyond, fewer steps are made. Counted, never timed."""
PATIENCE = 8
"""Steps without a better bound after which steps are halved."""
COST_OF_A_CHOICE = 30
"""How many steps one choice takes as long as."""
AT_ONCE = 500_000
"""Entries of candidates that are decided together: few enough for the processor's cache."""
WHOLE = 1 << 36
"""A budget in whole units; costs are rounded up to them, so that choices are exact."""


@dataclass(frozen=True)
class Forest:
    """C candidate bins, of which each may lie within a larger one, with what they are worth and cost.

    ``items`` are the candidates: an item's tolerance is what it is worth, its cost to a user the share of
    what the user may spend, 0 < cost <= 1. ``level`` (C,) is 0 for the finest; ``parent`` (C,) is the
    candidate of a higher level that holds it, -1 for a root.
    """

    items: Items
    level: IntArray
    parent: IntArray

    @property
    def size(self) -> int:
        """The number of candidates, C."""
        return self.items.size

    @property
    def value(self) -> FloatArray:
        """What each candidate is worth, shape (C,)."""
        return self.items.tolerance

    @cached_property
    def levels(self) -> list[IntArray]:
        """The positions of the candidates of each level, one array a level, from the finest."""
        return [np.flatnonzero(self.level == each) for each in range(int(self.level.max(initial=-1)) + 1)]

    @cached_property
    def constraint_matrix(self) -> sparse.csr_matrix:
        """Whole-number weights of the packing constraints, sparse, (C, users + leaves).

        Columns sum to <= WHOLE. A column for every user holds costs in units of 1/WHOLE, rounded up. One for
        every path from a leaf to its root holds more than half for each candidate on it, so that only one of
        them fits.
        """
        leaf = np.ones(self.size, dtype=np.bool_)
        leaf[self.parent[self.parent >= 0]] = False
        at = np.flatnonzero(leaf)
        path = np.arange(len(at))
        candidate, row = [at], [path]
        while len(at):
            inside = self.parent[at] >= 0
            path, at = path[inside], self.parent[at[inside]]
            candidate.append(at)
            row.append(path)
        entries = np.concatenate(candidate), np.concatenate(row)
        more_than_half = np.full(len(entries[0]), WHOLE // 2 + 1)
        on_path = sparse.csr_matrix((more_than_half, entries), shape=(self.size, int(leaf.sum())))
        costs = self.items.rows
        units = np.maximum(np.ceil(costs.data * WHOLE), 1.0).astype(np.int64)
        of_user = sparse.csr_matrix((units, costs.indices, costs.indptr), shape=costs.shape)
        return sparse.csr_matrix(sparse.hstack([of_user, on_path], format="csr"))


@dataclass(frozen=True)
class Packing:
    """A choice of candidates: ``chosen`` (C,) marks them and ``value`` is their worth.

    No choice is worth more than ``bound``.
    """

    chosen: BoolArray
    value: float
    bound: float


def best_antichain(forest: Forest, gain: FloatArray) -> tuple[float, BoolArray]:
    """Return the largest sum of ``gain`` (C,) over sets of candidates none of which lies within another.

    Also returns that set as a mask, shape (C,). On a tie the coarser candidate is taken.
    """
    below, best = np.zeros(forest.size), np.zeros(forest.size)
    take = (gain > 0).astype(np.bool_)
    for here in forest.levels:
        take[here] &= gain[here] >= below[here]
        best[here] = np.where(take[here], gain[here], below[here])
        inner = here[forest.parent[here] >= 0]
        below += np.bincount(forest.parent[inner], weights=best[inner], minlength=forest.size)
    hidden = np.zeros(forest.size, dtype=np.bool_)
    for here in reversed(forest.levels):
        inner = here[forest.parent[here] >= 0]
        over = forest.parent[inner]
        hidden[inner] = hidden[over] | take[over]
    return float(best[forest.parent < 0].sum()), take & ~hidden


def dual_bound(forest: Forest, prices: FloatArray) -> tuple[float, BoolArray]:
    """Return an upper bound on the value of any choice, by Lagrange multipliers ``prices`` (users,) >= 0.

    It is sum of prices plus the largest sum, over antichains, of value minus priced costs; that antichain is
    returned as well, as a mask (C,).
    """
    total, chosen = best_antichain(forest, forest.value - forest.items.rows @ prices)
    return float(prices.sum()) + total, chosen


def pack(forest: Forest, *, rounds: int = ROUNDS, work: int = WORK) -> Packing:
    """Return the most valuable choice of candidates found within all budgets, and an upper bound on any.

    ``rounds`` is the most subgradient steps, ``work`` the most cost entries that all steps may look at.
    Deterministic: work is counted, not timed.
    """
    best = np.zeros(forest.size, dtype=np.bool_)
    if not forest.size:
        return Packing(best, 0.0, 0.0)
    for scarce in (np.maximum.reduceat, np.add.reduceat):
        order = np.argsort(-forest.value / scarce(forest.items.cost, forest.items.start[:-1]), kind="stable")
        best = _better(forest, best, greedy_antichain(forest, order))
    entries = len(forest.items.cost)
    steps = min(rounds, max(20, work // entries))
    every = max(1, -(-steps * COST_OF_A_CHOICE * entries // work))
    prices, at_best = np.zeros(forest.items.users), np.zeros(forest.items.users)
    bound, length, stale = np.inf, 1.0, 0
    tried: set[bytes] = set()
    by_user = forest.items.rows.T
    for step in range(steps):
        value = float(forest.value[best].sum())
        certificate, chosen = dual_bound(forest, prices)
        if certificate < bound * (1 - 1e-7):
            bound, at_best, stale = certificate, prices, 0
        else:
            stale += 1
        if step % every == every - 1 or step == steps - 1:
            order = _order(forest, prices, chosen)
            digest = hashlib.sha256(order.tobytes()).digest()
            # near the best prices the same order comes again and again, and gives the same choice
            if digest not in tried:
                tried.add(digest)
                best = _better(forest, best, greedy_antichain(forest, order))
        if value >= bound * (1 - 1e-9):
            break
        if stale >= PATIENCE:
            prices, length, stale = at_best, length / 2, 0
            certificate, chosen = dual_bound(forest, prices)
        slope = 1.0 - np.asarray(by_user @ chosen.astype(np.float64))
        slope[(prices <= 0) & (slope > 0)] = 0.0
        square = float(slope @ slope)
        if square <= 0:
            break
        prices = np.maximum(0.0, prices - length * (certificate - value) / square * slope)
    value = float(forest.value[best].sum())
    return Packing(best, value, max(float(bound), value))


def greedy_antichain(forest: Forest, order: IntArray, at_once: int = AT_ONCE) -> BoolArray:
    """Return which candidates are taken if each, in ``order`` (C,), is taken where it still fits.

    A mask (C,). Exactly the result of going one by one, in whole numbers; about ``at_once`` cost entries are
    decided together for speed.
    """
    rows = forest.constraint_matrix[order]
    ends = rows.indptr
    cuts = np.searchsorted(ends, np.arange(0, ends[-1], at_once)).tolist()
    used = np.zeros(rows.shape[1], dtype=np.int64)
    chosen = np.zeros(forest.size, dtype=np.bool_)
    for start, end in itertools.pairwise(np.unique([*cuts, forest.size]).tolist()):
        here = slice(ends[start], ends[end])
        over = np.concatenate([[0], np.cumsum(used[rows.indices[here]] + rows.data[here] > WHOLE)])
        fits = np.flatnonzero(np.diff(over[ends[start : end + 1] - ends[start]]) == 0) + start
        taken = fits[_first_come(rows[fits], used)]
        chosen[order[taken]] = True
        paid = rows[taken]
        np.add.at(used, paid.indices, paid.data)
    return chosen


def _first_come(rows: sparse.csr_matrix, used: IntArray) -> BoolArray:
    """Return which of ``rows`` are taken, in their order, each if it fits beside what is ``used``.

    In every round, an undecided candidate is taken when it fits after all undecided ones before it, and left
    when it does not fit after those taken already; the first undecided one is always decided.
    """
    # by row, and within a row in the order: two passes over the entries, nothing is compared
    by_row = rows.tocsc()
    place, cost, ends = by_row.indices, by_row.data, by_row.indptr.astype(np.int64)
    taken = np.zeros(rows.shape[0], dtype=np.bool_)
    undecided = np.ones(rows.shape[0], dtype=np.bool_)
    while undecided.any():
        crowded, full = np.zeros_like(taken), np.zeros_like(taken)
        crowded[place[_running(ends, cost, used) > WHOLE]] = True
        taken |= undecided & ~crowded
        undecided &= crowded
        paid = np.where(taken[place], cost, 0)
        full[place[_running(ends, paid, used) - paid + cost > WHOLE]] = True
        left = undecided & full
        undecided &= ~left
        stays = ~left[place]
        ends = np.concatenate([[0], np.cumsum(stays)])[ends]
        place, cost = place[stays], cost[stays]
    return taken


def _running(ends: IntArray, amount: IntArray, used: IntArray) -> IntArray:
    """Return, for every entry, ``used`` of its row plus the row's ``amount`` up to and with that entry.

    Entries ``ends[r]:ends[r + 1]`` are those of row r.
    """
    total = np.cumsum(amount)
    before = np.concatenate([[0], total])[ends[:-1]]
    total += np.repeat(used - before, np.diff(ends))
    return total


def _order(forest: Forest, prices: FloatArray, chosen: BoolArray) -> IntArray:
    """Return the order (C,) in which ``greedy_antichain`` tries candidates.

    The ``chosen`` come first, and within either part those with the most value over price.
    """
    price = forest.items.rows @ prices
    worth = forest.value / (price + 1e-9 * (float(price.max()) + 1.0))
    return np.lexsort((-worth, ~chosen))


def _better(forest: Forest, one: BoolArray, other: BoolArray) -> BoolArray:
    return other if forest.value[other].sum() > forest.value[one].sum() else one
