"""Algorithms 2 to 7 of paper 002 for continual means.

Algorithm 5 of paper 002: exponential withhold-release with one counter a level.

The counter of level l gets one element of at most ``users`` vehicles, each of which moves it by at most W_l,
so its nodes move by at most W_l (most touches) in all: eps_l-DP with eta_l. The output at t is the
sum of all noisy running sums over the number of samples in them, clipped to [0, u]; u/2 before there are
any. Numbers of elements are public.

Elements are truncated around a centre that is a parameter here: none (W_l = u B_l), a prior from outside
(Algorithm 5 as printed), or private medians with activation times (``full``, Algorithm 6).

Algorithm 2 of paper 002: every sample into one counter; the output is the running sum over t.

Every vehicle has at most m samples anywhere in a stream of at most N = n m, so it moves nodes by at most u
times the sum of the m largest ``nodes_per_element``: exact, and somewhat below the paper's m lv(n m). Any
tree will do.

Algorithm 4 of paper 002: exponential withhold-release into a single counter.

A vehicle has one element of every level 0..L in a stream of at most N = n (L + 1). Moving all by their
widths W_l moves nodes by at most sum W_l touches(t_l), t_0 < t_1 < ... the places of its elements: the
maximum over places is exact (any places can happen), at most lv(N) sum W_l, where the paper has
lv(N) (1 + L) max W.

Algorithm 3 of paper 002: contiguous vehicles and a prior, both wished for.

When a vehicle has sent all of its m samples, their sum, projected onto [m mu - D, m mu + D], enters one
counter of n elements: D = u (sqrt((m/2) ln(2 n/delta)) + sqrt(m)), eta = W lv(n)/eps with
W = min(u m, 2 D). Until the first vehicle is done the prior itself is the output.

Algorithm 7 of paper 002: a private median of array means, by the exponential mechanism over J parts.

Samples of a level stand in arrays of B_l, at most B_l a vehicle, vehicles one after another; [0, u] is cut
into J equal parts, every array votes for the part of its mean, and part j is drawn with probability
proportional to exp(-eps c(j)/(2 c)), c(j) the larger of the votes below and above it, c the arrays that a
vehicle may touch. The cost moves by at most c, so the draw is eps-DP. Its centre is (2 j + 1) u/(2 J).

*Aligned arrays.* With vehicles one after another in any order a vehicle may straddle two arrays: c = 2. Take
instead the first r = 2^floor(log2 min(M, B_l)) samples of a vehicle with M, vehicles in descending order
of r. Sizes are powers of two that fall, so each piece starts at a multiple of its own size and never
straddles: c = 1, and half as many arrays are enough. As r > min(M, B)/2, half as many arrays are there as
soon as the paper's (up to one array): aligned medians wait no longer.

Which samples stand where, and when there are enough, depends on public arrivals alone.

Algorithm 6 of paper 002: one counter a level, truncated around private medians, activated by counts.

A level with a median waits until its arrays are full (public); then the median is drawn once, the elements
that wait are truncated and enter in the order of arrival, and later ones follow. Privacy: medians cost
their eps_med each, counters their eps_l given the medians, and all add up to ``LevelPlan.loss``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.bounding.arrays import IntervalPartition
from trafficdp.errors import in_range
from trafficdp.mechanisms.means import laplace_scale
from trafficdp.noise.source import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals, LevelPlan
from trafficdp.stream.tree import BINARY, Tree, bit_length


@dataclass(frozen=True)
class Centre:
    """Where a level is truncated: at numerator/denominator steps a sample, one numerator a run.

    ``active``: the number of samples after which its elements, waiting until then, enter the counter.
    """

    numerator: IntArray
    denominator: int
    active: int = 0

    @classmethod
    def at(cls, prior: Fraction) -> Centre:
        """Return a centre at the speed ``prior``, in steps, that is known from the start, for all runs."""
        return cls(np.array([prior.numerator]), prior.denominator)


def truncate(value: IntArray, size: int, half_width: int, upper_steps: int, centre: Centre) -> IntArray:
    """Return the sums ``value`` (E,) of ``size`` samples clipped around the centre, (runs of the centre, E).

    To [B mu - D, B mu + D] and [0, u B], both rounded inward, with B = ``size``, D = ``half_width`` and u =
    ``upper_steps``, so that a changed element moves by at most min(u B, 2 D) steps.
    """
    middle = size * centre.numerator
    low = np.maximum(-((half_width * centre.denominator - middle) // centre.denominator), 0)
    high = np.minimum((middle + half_width * centre.denominator) // centre.denominator, upper_steps * size)
    return np.clip(value[None, :], low[:, None], high[:, None])


def levelled_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    centres: Sequence[Centre | None] | None = None,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples (0..T), in steps, shape (runs, K).

    By withhold-release with Laplace noise in a tree a level. ``centres``: one a level, around which its
    elements are clipped; None where they are not.
    """
    scales = plan.scales(tree)

    def path(level: int, fed: IntArray) -> FloatArray:
        return tree.draw_noise(fed, plan.users, float(scales[level]), source, runs)

    return means_with_noise(arrivals, plan, path, at, centres)


def means_with_noise(
    arrivals: Arrivals,
    plan: LevelPlan,
    path: Callable[[int, IntArray], FloatArray],
    at: IntArray,
    centres: Sequence[Centre | None] | None = None,
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples, in steps, (runs, K), with any noise.

    ``path(l, k)`` gives the noise of level l's sum of its first k (K,) elements, shape (runs, K); ``centres``
    as in ``levelled_means``.
    """
    elements = arrivals.elements
    sums: FloatArray = np.zeros((1, len(at)))
    contained = np.zeros(len(at), dtype=np.int64)
    for level in range(len(plan.width)):
        mine = elements.level == level
        value = elements.value[mine][None, :]
        centre = centres[level] if centres is not None else None
        size = int(plan.size[level])
        fed = np.searchsorted(elements.sample[mine], at)
        if centre is not None:
            value = truncate(value[0], size, int(plan.half_width[level]), plan.upper_steps, centre)
            fed = np.where(at >= centre.active, fed, 0)
        exact = np.concatenate([np.zeros((len(value), 1), dtype=np.int64), np.cumsum(value, axis=1)], axis=1)
        sums = sums + exact[:, fed] + path(level, fed)
        contained += size * fed
    return _clipped_means(sums, contained, plan)


def running_sum(value: IntArray, at: IntArray) -> IntArray:
    """Return the sum of the first ``at`` (K,) of the numbers ``value`` (T,), shape (K,)."""
    return np.concatenate([[0], np.cumsum(value)])[at]


def _clipped_means(sums: FloatArray, contained: IntArray, plan: LevelPlan) -> FloatArray:
    """The means of ``contained`` samples with these noisy ``sums``; the middle where there is none."""
    means = np.where(contained > 0, sums / np.maximum(contained, 1), plan.upper_steps / 2)
    return np.clip(means, 0, plan.upper_steps)


def naive_price(users: int, samples: int, tree: Tree = BINARY) -> int:
    """Return the most that a vehicle moves all tree nodes together when every sample is an element, in units
    of u.

    Exact over all orders of arrival.
    """
    touches = np.sort(tree.nodes_per_element(users * samples))
    return int(touches[-samples:].sum())


def naive_scale(users: int, samples: int, upper_steps: int, epsilon: float, tree: Tree = BINARY) -> float:
    """Return the Laplace scale of the nodes for ``naive_means`` at ``epsilon``: upper_steps times
    ``naive_price`` over epsilon.
    """
    price = np.array([upper_steps * naive_price(users, samples, tree)])
    return float(laplace_scale(price, np.array([epsilon]))[0])


def naive_means(
    arrivals: Arrivals, scale: float, source: NoiseSource, runs: int, at: IntArray, tree: Tree = BINARY
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples (1..T), in steps, clamped to the range, (runs, K).

    One tree over all samples with Laplace noise of ``scale`` a node.
    """
    total = running_sum(arrivals.value, at)
    noise = tree.draw_noise(at, arrivals.users * arrivals.samples, scale, source, runs)
    return np.clip((total + noise) / at, 0, arrivals.upper_steps)


def single_price(plan: LevelPlan, tree: Tree = BINARY) -> int:
    """Return the most that a vehicle moves all nodes of one tree over the elements of all levels, in steps.

    Exact over all orders of arrival. Level by level: the best with element l at place t is its width times
    the nodes that hold t, plus the best of l - 1 before t.
    """
    touches = tree.nodes_per_element(plan.users * len(plan.width))
    best = np.zeros(len(touches) + 1, dtype=np.int64)
    lowest = np.iinfo(np.int64).min // 2
    for width in plan.width:
        here = best[:-1] + int(width) * touches
        best = np.concatenate([[lowest], np.maximum.accumulate(here)])
    return int(best[-1])


def single_scale(plan: LevelPlan, epsilon: float, tree: Tree = BINARY) -> float:
    """Return the Laplace scale of the nodes for ``single_means`` at ``epsilon``: ``single_price`` over
    epsilon.
    """
    return float(laplace_scale(np.array([single_price(plan, tree)]), np.array([epsilon]))[0])


def single_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    scale: float,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    centre: Centre | None = None,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples (0..T), in steps, shape (runs, K).

    One tree over the elements of all levels with Laplace noise of ``scale`` a node; ``centre`` as in
    ``truncate``.
    """
    elements = arrivals.elements
    value = elements.value.copy()
    if centre is not None:
        for level in np.flatnonzero(plan.truncated):
            mine = elements.level == level
            size, half = int(plan.size[level]), int(plan.half_width[level])
            value[mine] = truncate(value[mine], size, half, plan.upper_steps, centre)[0]
    fed = np.searchsorted(elements.sample, at)
    contained = running_sum(plan.size[elements.level], fed)
    noise = tree.draw_noise(fed, plan.users * len(plan.width), scale, source, runs)
    return _clipped_means(running_sum(value, fed) + noise, contained, plan)


def known_prior_half_width(users: int, samples: int, upper_steps: int, delta: float) -> int:
    """Return how far a vehicle's sum of ``samples`` samples may lie from its expectation by a known prior, in
    steps.

    u (sqrt(m/2 ln(2 n/delta)) + sqrt(m)), rounded up; u is ``upper_steps``, m ``samples`` and n ``users``.
    """
    spread = np.sqrt(samples / 2 * np.log(2 * users / in_range(0, 1, delta=delta))) + np.sqrt(samples)
    return int(np.ceil(upper_steps * spread))


def known_prior_scale(
    users: int, samples: int, upper_steps: int, epsilon: float, delta: float, tree: Tree = BINARY
) -> float:
    """Return the Laplace scale of the nodes for ``known_prior_means`` at ``epsilon``, in steps, rounded up.

    min(u m, 2 D) times the most tree nodes that hold a vehicle's sum, over epsilon; D is
    ``known_prior_half_width``.
    """
    width = min(upper_steps * samples, 2 * known_prior_half_width(users, samples, upper_steps, delta))
    price = width * int(tree.nodes_per_element(users).max())
    return float(laplace_scale(np.array([price]), np.array([epsilon]))[0])


def known_prior_means(
    arrivals: Arrivals,
    prior: Fraction,
    half_width: int,
    scale: float,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples (0..T), in steps, shape (runs, K).

    Of a vehicle only its whole sum of m samples counts, clipped to within ``half_width`` of m times
    ``prior``.
    """
    m = arrivals.samples
    done = np.flatnonzero(arrivals.rank == m)
    sums = np.zeros(arrivals.users, dtype=np.int64)
    np.add.at(sums, arrivals.user, arrivals.value)
    value = truncate(sums[arrivals.user[done]], m, half_width, arrivals.upper_steps, Centre.at(prior))[0]
    fed = np.searchsorted(done, at)
    noise = tree.draw_noise(fed, arrivals.users, scale, source, runs)
    means = np.where(fed > 0, (running_sum(value, fed) + noise) / np.maximum(m * fed, 1), float(prior))
    return np.clip(means, 0, arrivals.upper_steps)


def collectable(arrivals: Arrivals, size: int, *, aligned: bool) -> IntArray:
    """Return how many samples could be put into arrays of ``size`` after every arrival, shape (T,).

    The sum over vehicles of min(samples so far, size), or, where ``aligned``, of the largest power of two in
    it.
    """
    rank = arrivals.rank
    if not aligned:
        return np.cumsum(rank <= size).astype(np.int64)
    whole = (rank & (rank - 1)) == 0
    gain = np.where(whole & (rank <= size), np.maximum(rank // 2, 1), 0)
    return np.cumsum(gain).astype(np.int64)


def activation(arrivals: Arrivals, size: int, arrays: int, *, aligned: bool) -> int:
    """Return the first number of samples at which ``arrays`` arrays of ``size`` samples are full.

    T + 1 if never. Line 9 of Algorithm 6; ``aligned`` as in ``collectable``. From public facts, not from
    values.
    """
    return int(np.searchsorted(collectable(arrivals, size, aligned=aligned), size * arrays)) + 1


def array_sums(arrivals: Arrivals, until: int, size: int, arrays: int, *, aligned: bool) -> IntArray:
    """Return the private sums of the first ``arrays`` arrays of ``size`` samples, in steps, shape (arrays,).

    From the first ``until`` arrivals; ``aligned`` as in ``collectable``.
    """
    user, rank = arrivals.user[:until], arrivals.rank[:until]
    have = np.minimum(np.bincount(user, minlength=arrivals.users), size)
    if aligned:
        have = np.where(have > 0, np.left_shift(1, np.maximum(bit_length(have) - 1, 0)), 0)
    kept = np.flatnonzero(rank <= have[user])
    by_size = -have[user[kept]] if aligned else np.zeros(len(kept), dtype=np.int64)
    order = kept[np.lexsort((rank[kept], user[kept], by_size))]
    return np.asarray(arrivals.value[order][: arrays * size].reshape(arrays, size).sum(axis=1))


def private_part(
    sums: IntArray, size: int, upper_steps: int, parts: int, scale: float, source: NoiseSource, runs: int = 1
) -> IntArray:
    """Return the part 0..``parts`` - 1 of [0, U] that a private median of array means falls into, (runs,).

    By an exponential mechanism of ``scale``. Means are compared as whole numbers, ties to the lower part.
    """
    cut = IntervalPartition(np.array([size * upper_steps * parts]), np.array([size * upper_steps]))
    cost = cut.costs(sums * parts, np.zeros(len(sums), dtype=np.int64))
    one = np.ones(parts, dtype=np.int64)
    return source.choose(cost, one, cut.start, np.array([scale]), runs)[:, 0]


def activations(arrivals: Arrivals, plan: LevelPlan) -> IntArray:
    """Return after how many samples of the stream each level's private median is selected, shape (L + 1,).

    0 for a level 0..L without a median, T + 1 where all T samples do not fill its arrays. From public facts:
    whose samples came when, not their values.
    """
    aligned = plan.influence == 1
    return np.array(
        [
            activation(arrivals, int(size), int(arrays), aligned=aligned) if epsilon > 0 else 0
            for size, arrays, epsilon in zip(plan.size, plan.arrays, plan.median_epsilon, strict=True)
        ]
    )


def full_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the means released after ``at`` (K,) samples (0..T), in steps, (runs, K), by the whole Algorithm
    6.

    Withhold-release, with elements clipped around private medians.
    """
    scales = plan.median_scales()
    centres: list[Centre | None] = []
    for level, active in enumerate(activations(arrivals, plan)):
        if not plan.median_epsilon[level] > 0:
            centres.append(None)
            continue
        parts, size = int(plan.parts[level]), int(plan.size[level])
        if active > len(arrivals):
            # never used; the level stays empty
            centres.append(Centre(np.zeros(runs, dtype=np.int64), 1, int(active)))
            continue
        sums = array_sums(arrivals, int(active), size, int(plan.arrays[level]), aligned=plan.influence == 1)
        part = private_part(sums, size, plan.upper_steps, parts, float(scales[level]), source, runs)
        centres.append(Centre((2 * part + 1) * plan.upper_steps, 2 * parts, int(active)))
    return levelled_means(arrivals, plan, source, runs, at, centres, tree)
