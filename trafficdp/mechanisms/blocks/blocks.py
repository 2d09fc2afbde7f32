"""l-infinity blocks: which statistics share one draw of noise, so that a user pays their maximum, once.

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

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaincc

from trafficdp.errors import integer_between, positive
from trafficdp.mechanisms.blocks.bound import lower_bound, runs_of_the_heaviest
from trafficdp.mechanisms.blocks.canonical import canonical_order
from trafficdp.mechanisms.blocks.items import Items, items_of
from trafficdp.mechanisms.blocks.merge import merge_rounds
from trafficdp.mechanisms.blocks.partition import Partition, loads
from trafficdp.model import ContributionBound, Counts, Statistic

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
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

    items: Items
    block: IntArray
    load: FloatArray
    lower_bound: float

    @property
    def factor(self) -> float:
        """epsilon * E: the largest load."""
        return float(self.load.max(initial=0.0))

    @property
    def size(self) -> IntArray:
        """d of each item's block, shape (I,)."""
        result: IntArray = np.bincount(self.block)[self.block]
        return result

    def half_widths(self, epsilon: float) -> FloatArray:
        """Return s_i = 2 E t_i / (d + 1) at ``epsilon``, in the statistics' units, shape (I,)."""
        positive(epsilon=epsilon)
        return 2 * self.factor / epsilon * self.items.tolerance / (self.size + 1)


def clamped_error(size: IntArray, half_width: FloatArray, reach: FloatArray) -> FloatArray:
    """Return E min(|z|, R/2): the largest error, over truths in [0, R], of block noise clamped to [0, R].

    At truth t it is (E min(|z|, t) + E min(|z|, R - t))/2, concave in t and symmetric: largest at R/2. With
    c = R/(2 s): s (c Q(d+1, c) + ((d+1)/2) P(d+2, c) - (c^2/(2d)) Q(d, c)), the integral of the tail.
    """
    d = np.asarray(size, dtype=np.float64)
    c = np.minimum(reach / (2 * half_width), 1e6)
    within = c * gammaincc(d + 1, c) + (d + 1) / 2 * gammainc(d + 2, c) - c**2 / (2 * d) * gammaincc(d, c)
    return np.asarray(np.minimum(half_width * within, reach / 2))


def best_blocks(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    effort: int = EFFORT,
) -> Blocks:
    """Return the best blocks found for the means and vehicle means of ``tolerance``, in all bins.

    ``effort`` is the number of single-item moves tried (0: one merging alone). Never worse than no blocks
    at all. Raises UsageError when there is nothing to release or ``effort`` is not in 0..10^9.
    """
    integer_between(0, 10**9, effort=effort)
    items = items_of(counts, bound, tolerance)
    many = len(items.user) > MANY
    alone = np.bincount(items.user, weights=items.cost, minlength=items.users)
    largest = float(alone.max(initial=0.0))
    looked_at = np.ones(items.users, dtype=np.bool_)
    if many:
        looked_at = alone > SCREEN * largest
    while True:
        block, least = _search_among(items, looked_at, effort, GAIN if many else 0.0)
        load = loads(items, block)
        above = load > load[looked_at].max(initial=0.0) * (1 + 1e-12)
        if not bool(above.any()):
            return Blocks(items, block, load, least)
        looked_at |= load > load.max() / 2


def _search_among(
    items: Items, looked_at: npt.NDArray[np.bool_], effort: int, gain: float
) -> tuple[IntArray, float]:
    """Return the blocks (I,) that are best for the users that are ``looked_at``, and their lower bound."""
    some, of = (items, np.arange(items.number)) if bool(looked_at.all()) else items.among(looked_at)
    order, rank = canonical_order(some)
    canonical = some.take(order, rank)
    least = lower_bound(canonical)
    # who none of them visits stays alone
    block = np.arange(items.number) + items.number
    block[of[order]] = _search(canonical, effort, least, gain)
    first, number = np.unique(block, return_index=True, return_inverse=True)[1:]
    renumber = np.empty(len(first), dtype=np.int64)
    renumber[np.argsort(first, kind="stable")] = np.arange(len(first))
    result: IntArray = renumber[number]
    return result, least


def _search(items: Items, effort: int, bound: float, gain: float) -> IntArray:
    """Return the best blocks found; what is within ``gain`` of the bound is good enough."""
    if items.number <= SMALL:
        return _exhaustive(items)
    alone = np.arange(items.number)
    if gain and _value(items, alone) <= bound * (1 + 2 * gain):
        return alone
    starts = _starts(items) if effort else [merge_rounds(items, *MERGING), alone]
    values = [_value(items, block) for block in starts]
    queue = [starts[at] for at in np.argsort(values, kind="stable")]
    values.sort()
    best, value, turn = queue[0], values[0], 0
    effort = min(effort, PER_ITEM * items.number)
    if gain and effort < items.number:
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
    result: IntArray = best.astype(np.int64)
    return result


def _starts(items: Items) -> list[IntArray]:
    """Partitions to improve, in order of preference on a tie."""
    merged = [MERGING]
    if items.number <= LARGE:
        merged += [(40.0, 0.25)]
    if items.number <= LARGE // 10:
        merged += [(20.0, 0.03), (60.0, 0.03)]
    starts = [merge_rounds(items, beta, share) for beta, share in merged]
    if items.number <= LARGE:
        starts += [np.zeros(items.number, dtype=np.int64), runs_of_the_heaviest(items)]
    return [*starts, np.arange(items.number)]


def _exhaustive(items: Items) -> IntArray:
    """The best of all partitions, item by item; loads only grow, so what is no better already is left."""
    table = np.zeros((items.number, items.users))
    table[items.of_entry, items.user] = items.cost
    best, value = np.arange(items.number), float(table.sum(axis=0).max())

    def extend(block: list[int], tops: list[FloatArray], sizes: list[int]) -> None:
        nonlocal best, value
        load = sum(((d + 1) / 2 * top for d, top in zip(sizes, tops, strict=True)), np.zeros(items.users))
        if float(load.max()) >= value * (1 - 1e-12):
            return
        if len(block) == items.number:
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
    items: Items, block: IntArray, value: float, betas: tuple[float, ...], effort: int
) -> tuple[IntArray, int]:
    """Move single items under rising beta; return the best partition seen and the effort left.

    ``value`` is the largest load of ``block``.
    """
    partition = Partition(items, block)
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


def _by_weight(items: Items, partition: Partition) -> IntArray:
    """Items by what they weigh for the heaviest users; those that weigh nothing are left where they are."""
    weight = np.bincount(
        items.of_entry, weights=partition.weight[items.user] * items.cost, minlength=items.number
    )
    order = np.argsort(-weight, kind="stable").astype(np.int64)
    heavy: IntArray = order[weight[order] > 1e-4 * weight.max()]
    return heavy


def _shaken(items: Items, block: IntArray, turn: int) -> IntArray:
    """Put every ``1/SHAKEN``-th item of the heaviest users into a block of its own, others each turn."""
    load = loads(items, block)
    heavy = load > 0.98 * load.max()
    met = np.zeros(items.number, dtype=np.bool_)
    met[items.of_entry[heavy[items.user]]] = True
    chosen = np.flatnonzero(met)
    # a fixed pseudo-random choice: no randomness outside noise/
    word = (chosen.astype(np.uint64) + np.uint64(turn) * np.uint64(0x9E3779B9)) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    chosen = chosen[(word >> np.uint64(40)).astype(np.float64) < SHAKEN * 2.0**24]
    shaken = block.copy()
    shaken[chosen] = block.max() + 1 + np.arange(len(chosen))
    result: IntArray = np.unique(shaken, return_inverse=True)[1]
    return result


def _value(items: Items, block: IntArray) -> float:
    return float(loads(items, block).max(initial=0.0))
