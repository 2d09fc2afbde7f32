"""Huber's estimator and its smooth sensitivity.

Huber's estimator: its weights, its minimiser, and how far data is from well concentrated.

Weights and thresholds of the Huber estimator: from public counts alone.

Paper 001 (arXiv 2405.13453), theorem 5: a vehicle with many samples weighs more and is allowed less
deviation, both up to m_c samples, so that one vehicle with very many cannot dominate. The paper's own
constants serve its proof only; these are ours. Arrays over pairs have shape (P,), over bins (G,).

The minimiser of a weighted Huber loss, over all bins at once: exact in one dimension, iterated in more.

Paper 001 ("A Huber Loss Minimization Approach to Mean Estimation under User-level Differential Privacy",
arXiv 2405.13453), its equations (8), (11) and appendix A. With y_i the mean of vehicle i, weights w_i that
add up to 1 and thresholds T_i > 0,

    mu0 = argmin_s sum_i w_i phi_i(s),    phi_i(s) = (s - y_i)^2 / 2          if |s - y_i| <= T_i
                                                     T_i |s - y_i| - T_i^2/2  else.

All arrays over (bin, vehicle) pairs have shape (P,), or (P, d), and are sorted by ``bin_index``; every bin
0..bins-1 has at least one pair. The minimiser lies in the convex hull of the y_i, hence in [0, U].

How many vehicles would have to be replaced for a bin to be well concentrated: exact Hamming distances.

Paper 001's "number of outliers". A data set of one bin is *good* when every vehicle mean lies within R_i of
a centre; the distance of the true data to the fixed family of good data sets changes by at most 1 when one
vehicle changes, which is what makes the smooth sensitivity smooth. The paper lets the family depend on the
number of replacements already made, which breaks this (erratum E16; ``bounding.huber``).

Arrays over pairs have shape (P,) and are sorted by ``bin_index``. Distances are cut off at ``limit``: only
whether they lie below it is needed. They depend on values and are never published.

Smooth sensitivity of the Huber estimator, over all bins at once.

Paper 001 (arXiv 2405.13453), lemmas 1 to 4 and definitions 5 and 6, with exact constants and two repairs.
mu0 is the estimator of ``bounding.huber``, ybar = sum w_i y_i the **weighted** mean (erratum E15: with
the average of all samples lemma 8 of the paper is false), Z_i = |y_i - ybar|. W_k is 1 minus the k largest
weights and A_k the sum of the k largest w_i T_i. LS is the most that replacing one vehicle's mean by
anything moves mu0.

* L3 (balanced: L1).  h1 = max w_i (T_i + Z_i)/(1 - w_i) < min(T_i - Z_i)  =>  LS <= h1; for equal weights
  and thresholds Z < (1 - 2/n) T  =>  LS = (T + Z)/(n - 1).
* L4 (balanced: L2).  If k replacements lead to a D* in which any k + 1 replacements move mu0 by less than
  min(T_i - Z_i*), then LS <= 2 max(w_i T_i)/W_k; balanced 2T/(n - k).

*Proof core.* Inside the ball |s - ybar*| <= min(T_i - Z_i*) every vehicle that was not replaced is
quadratic, so the objective's curvature there is at least their weight W; at ybar* the gradient of the
changed objective is at most sum_S w (T + Z*), hence the new minimiser lies within that over W. For L4 and a
vehicle j already replaced, both minimisers lie in the ball, the gradients differ by at most 2 w_j T_j, the
curvature is at least W_k. For a vehicle j still good the gradient changes by at most
w_j (T_j + Z_j* + A/W), and the hypothesis for one replacement more gives A/W <= T_j - Z_j* - 2 T_j w_j/W, so
that the change is at most 2 w_j T_j (W - w_j)/W with curvature W - w_j. QED.

**Good.** For an integer k0 >= 1 a data set is good when Z_i <= theta T_i for all i, with
theta = (T_min W_k0 - A_k0)/(T_min W_k0 + A_k0) > 0 (balanced 1 - 2 k0/n): then L4 holds for every
k <= k0 - 1. Delta is the distance to the good sets, by a threshold that does **not** depend on k (erratum
E16). Here thetas are made smaller by 10^-9 of themselves, so that every condition is strict.

    G(D, k) = min of   U;   h1 if k = 0 and L3 holds;   2 max(w_i T_i)/W_(k + Delta) if k + Delta <= k0 - 1
    S(D)    = max over k of e^(-beta k) G(D, k)

S bounds LS and S(D) <= e^beta S(D') for neighbours: G(D, k) <= G(D', k + 1), because |Delta - Delta'| <= 1
and h1 <= 2 max(wT)/W_1. The minimum of S over several k0 chosen from public numbers is again such a bound.
**S, Delta and anything computed from them stay inside the mechanism: they depend on values.**
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray


def used_count(count: IntArray, bin_index: IntArray, bins: int, cap_ratio: float = 2.0) -> IntArray:
    """Return the samples that each vehicle counts for, min(n, floor(``cap_ratio`` N / vehicles)), at least 1,
    (P,).

    n is the pair's ``count`` and N the bin's total.
    """
    samples = np.bincount(bin_index, weights=count, minlength=bins)
    users = np.maximum(np.bincount(bin_index, minlength=bins), 1)
    cap = np.maximum(np.floor(cap_ratio * samples / users), 1.0).astype(np.int64)
    return np.minimum(count, cap[bin_index])


def normalised(used: IntArray, bin_index: IntArray, bins: int) -> FloatArray:
    """Return each pair's weight: ``used`` (P,) divided by its sum over the bin, shape (P,)."""
    total = np.bincount(bin_index, weights=used, minlength=bins)
    return used / total[bin_index]


def scale_threshold(
    used: IntArray, bin_index: IntArray, bins: int, upper: float, sigma: float, factor: float = 2.0
) -> FloatArray:
    """Return each pair's Huber threshold, factor sigma sqrt(2 ln(40 n) / ``used``), at most U, shape (P,).

    n is the number of vehicles of the bin, ``used`` (P,) the samples that each counts for. ``sigma``, the
    standard deviation of single samples, is declared, never computed from the data, and with ``upper`` = U in
    the result's unit. Public.
    """
    users = np.bincount(bin_index, minlength=bins)[bin_index]
    return np.asarray(np.minimum(upper, factor * sigma * np.sqrt(2 * np.log(40.0 * users) / used)))


def weight_distance(first: FloatArray, second: FloatArray, bin_index: IntArray, bins: int) -> FloatArray:
    """Return the total variation distance of two weightings in every bin, shape (G,), from 0 to 1.

    ``first``, ``second`` and ``bin_index`` have shape (P,). U times this is exactly the worst difference of
    the two weighted means of values in [0, U].
    """
    return np.bincount(bin_index, weights=np.abs(first - second) / 2, minlength=bins).astype(np.float64)


ZERO = 1e-12
"""A gradient below this share of its largest value (sum of w_i T_i) counts as zero."""


def huber_location(
    value: FloatArray, weight: FloatArray, threshold: FloatArray, bin_index: IntArray, bins: int
) -> FloatArray:
    """Return the minimiser of the weighted Huber loss of vehicles' means in every bin, (G,), in their unit.

    ``value``, ``weight`` > 0, ``threshold`` > 0 and ``bin_index`` have shape (P,), one a vehicle of a bin;
    ``bin_index`` is sorted and every bin 0..``bins``-1 occurs in it. No noise: private if ``value`` is. The
    midpoint where the minimum is flat.

    The gradient sum_i w_i clip(s - y_i, -T_i, T_i) is piecewise linear and nondecreasing: its slope grows by
    w_i at y_i - T_i and falls by w_i at y_i + T_i. The 2P breakpoints are sorted bin by bin and the gradient,
    which starts at -sum w_i T_i, is swept to its zero: O(P log P) for all bins together. One Newton step from
    there, exact on the right piece, takes away what the running sums have rounded.
    """
    first_pair = np.searchsorted(bin_index, np.arange(bins))
    total = np.add.reduceat(weight * threshold, first_pair)
    position = np.concatenate([value - threshold, value + threshold])
    owner = np.concatenate([bin_index, bin_index])
    order = np.lexsort((position, owner))
    position, owner = position[order], owner[order]
    slope = np.cumsum(np.concatenate([weight, -weight])[order])
    first = 2 * first_pair
    last = np.append(first[1:], 2 * len(value)) - 1
    # after the last event of a bin its slope is 0 again: what a running sum has there is rounding
    slope -= np.append(0.0, slope[last[:-1]])[owner]
    rise = np.zeros(len(position))
    rise[1:] = slope[:-1] * np.diff(position)
    # every bin starts at -total and ends at +total, so that the running sum never grows
    rise[first] = -total - np.append(0.0, total[:-1])
    gradient = np.cumsum(rise)
    gradient -= (gradient[first] + total)[owner]

    level = (ZERO * total)[owner]
    below = np.add.reduceat(gradient < -level, first, dtype=np.int64)
    above = np.add.reduceat(gradient > level, first, dtype=np.int64)
    left = first + np.clip(below - 1, 0, last - first)
    right = last - np.clip(above - 1, 0, last - first)
    steep = gradient[right] - gradient[left]
    share = np.where(steep > 0, -gradient[left] / np.where(steep > 0, steep, 1.0), 0.5)
    crossing = position[left] + np.clip(share, 0.0, 1.0) * (position[right] - position[left])
    # breakpoints at which the gradient is zero: the flat piece runs from the first to the last of them
    touching = left + 1 < right
    inner = 0.5 * (position[np.minimum(left + 1, last)] + position[np.maximum(right - 1, first)])
    return _newton(np.where(touching, inner, crossing), value, weight, threshold, bin_index, bins)


def _newton(
    near: FloatArray,
    value: FloatArray,
    weight: FloatArray,
    threshold: FloatArray,
    bin_index: IntArray,
    bins: int,
) -> FloatArray:
    """Solve the linear piece that ``near`` lies on, from sums of single bins."""
    offset = value - near[bin_index]
    quadratic = np.abs(offset) <= threshold
    pull = weight * np.clip(offset, -threshold, threshold)
    curvature = np.bincount(bin_index, weights=weight * quadratic, minlength=bins)
    force = np.bincount(bin_index, weights=pull, minlength=bins)
    curved = curvature > ZERO
    step = np.where(curved, force / np.where(curved, curvature, 1.0), 0.0)
    # a vehicle exactly on its threshold may be counted on either side: only a step of rounding is taken
    first_pair = np.searchsorted(bin_index, np.arange(bins))
    reach = np.maximum.reduceat(np.abs(value) + threshold, first_pair)
    return near + np.where(np.abs(step) <= 1e-6 * reach, step, 0.0)


def huber_point(
    value: FloatArray,
    weight: FloatArray,
    threshold: FloatArray,
    bin_index: IntArray,
    bins: int,
    *,
    tolerance: float = 1e-10,
    most_steps: int = 1_000_000,
) -> FloatArray:
    """Return the minimiser of every bin for d-dimensional means, shape (G, d); ``value`` is (P, d), private.

    ``weight``, ``threshold`` and ``bin_index`` are as in ``huber_location``, sorted and without empty bins.
    Weiszfeld's iteration (paper 001, appendix A): s <- sum a_i y_i / sum a_i with
    a_i = w_i min(1, T_i/|s - y_i|), started at the weighted mean. One step is enough where all
    |y_i - ybar| <= T_i. What is returned is an iterate at which the gradient, (sum a_i)(s - next s), is no
    longer than ``tolerance`` (l2, in the values' unit), or that of step ``most_steps``.

    The paper stops when a step is short, which says little of the distance to the minimiser. A short
    gradient does: where the loss has curvature W between them, the distance is at most tolerance/W. And it
    comes: the parabola with curvature sum a_i <= 1 that touches the loss at s lies above it, so that a step
    lowers the loss by |gradient|^2/2 or more, and the loss was at most (sum w_i T_i) times the width of the
    data above its minimum.
    """
    point = _weighted_mean(value, weight, bin_index, bins)
    for _ in range(most_steps):
        distance = np.linalg.norm(value - point[bin_index], axis=1)
        pull = weight * (threshold / np.maximum(distance, threshold))
        moved = _weighted_mean(value, pull, bin_index, bins)
        total = np.bincount(bin_index, weights=pull, minlength=bins)
        open_ = total * np.linalg.norm(point - moved, axis=1) > tolerance
        if not open_.any():
            break
        point = np.where(open_[:, None], moved, point)
    return point


def _weighted_mean(value: FloatArray, weight: FloatArray, bin_index: IntArray, bins: int) -> FloatArray:
    first = np.searchsorted(bin_index, np.arange(bins))
    total = np.add.reduceat(weight, first)
    weighted = np.add.reduceat(value * weight[:, None], first, axis=0)
    return weighted / total[:, None]


MOST_CENTRES = 4_096
"""Centres of a bin; a family on a coarser grid is as valid, only less sharp."""
CHUNK = 4_000_000
"""So many (centre, vehicle) pairs are looked at together."""


def balanced_distance(value: FloatArray, first: IntArray, radius: FloatArray, limit: IntArray) -> IntArray:
    """Return the least number of vehicles to replace until all means lie within R of their mean, at most
    ``limit``.

    Exact, shape (G,); private. ``value`` is sorted by bin, then by value; ``first`` (G,) is where each bin
    starts; ``radius`` is R of every bin, negative where nothing is good. Replaced means may go anywhere.

    Those kept can be chosen consecutive. A window of n - j values from lo to hi can be completed by j free
    ones exactly if some centre s has hi - R <= s <= lo + R and (n - j) |mean - s| <= j R. What j allows, j +
    1 allows as well: binary search over j, all windows by prefix sums, O(n log n) a bin.
    """
    users = np.diff(np.append(first, len(value)))
    owner = np.repeat(np.arange(len(first)), users)
    centred = value - (np.add.reduceat(value, first) / users)[owner]
    prefix = np.append(0.0, np.cumsum(centred))
    low, high = np.zeros(len(first), dtype=np.int64), np.where(radius >= 0, limit, 0)
    while bool((open_ := low < high).any()):
        bins = np.flatnonzero(open_)
        middle = (low[bins] + high[bins]) // 2
        windows = middle + 1
        which = np.repeat(np.arange(len(bins)), windows)
        begin = np.concatenate([[0], np.cumsum(windows)])
        start = first[bins][which] + np.arange(begin[-1]) - begin[which]
        kept = (users[bins] - middle)[which]
        room = radius[bins][which]
        lowest, highest = centred[start], centred[start + kept - 1]
        mean = (prefix[start + kept] - prefix[start]) / kept
        outside = np.maximum(0.0, np.maximum(highest - room - mean, mean - lowest - room))
        fits = (highest - lowest <= 2 * room) & (kept * outside <= middle[which] * room)
        possible = np.logical_or.reduceat(fits, begin[:-1])
        high[bins] = np.where(possible, middle, high[bins])
        low[bins] = np.where(possible, low[bins], middle + 1)
    return np.where(radius >= 0, np.minimum(low, limit), limit)


def centre_grid_distance(
    value: FloatArray,
    weight: FloatArray,
    threshold: FloatArray,
    first: IntArray,
    share: FloatArray,
    slack: float,
    upper: float,
    limit: IntArray,
) -> IntArray:
    """Return the least number of vehicles to replace until data is good for a centre, at most ``limit``,
    (G,).

    Private.

    For a centre c a data set is good when |y_i - c| <= ``share`` T_i for every vehicle and |sum w_i (y_i -
    c)| <= ``slack`` min T; then |y_i - ybar| <= (share + slack) T_i with the *weighted* mean ybar. The
    centres are the multiples of 2 slack min T in [0, upper]: they depend on public numbers alone. Exact for
    each centre: all vehicles outside their interval must be replaced and may then pull by share w_i T_i each
    way; if what the others have together is still too far, those with the largest gain w_i (+-(y_i - c) +
    share T_i) are replaced until it is covered. ``share`` <= 0: nothing is good.
    """
    bins = len(first)
    users = np.diff(np.append(first, len(value)))
    owner = np.repeat(np.arange(bins), users)
    least = np.minimum.reduceat(threshold, first)
    step = np.maximum(2 * slack * least, upper / MOST_CENTRES)
    active = share > 0
    centres = np.where(active, np.ceil(upper / step), 0.0).astype(np.int64) + 1
    radius = share[owner] * threshold

    outside = _ineligible(value, radius, owner, step, centres, users)
    offset = np.cumsum(centres) - centres
    bin_of_centre = np.repeat(np.arange(bins), centres)
    candidate = np.flatnonzero((outside < limit[bin_of_centre]) & active[bin_of_centre])
    distance = limit.copy()
    size = users[bin_of_centre[candidate]]
    part = np.cumsum(size) // CHUNK
    for chunk in np.split(candidate, np.flatnonzero(np.diff(part)) + 1):
        if len(chunk):
            of_bin = bin_of_centre[chunk]
            centre = (chunk - offset[of_bin]) * step[of_bin]
            cost = _replacements(value, weight, radius, first, users, of_bin, centre, slack * least)
            np.minimum.at(distance, of_bin, cost)
    return distance


def _ineligible(
    value: FloatArray,
    radius: FloatArray,
    owner: IntArray,
    step: FloatArray,
    centres: IntArray,
    users: IntArray,
) -> IntArray:
    """Count, for all centres of all bins one after another, the vehicles outside their interval."""
    offset = np.cumsum(centres) - centres
    last = centres[owner] - 1
    low = np.ceil((value - radius) / step[owner])
    high = np.floor((value + radius) / step[owner])
    inside = (high >= low) & (high >= 0) & (low <= last) & (radius > 0)
    begin = (offset[owner] + np.clip(low, 0, last).astype(np.int64))[inside]
    end = (offset[owner] + np.clip(high, 0, last).astype(np.int64))[inside] + 1
    total = int(centres.sum())
    change = np.bincount(begin, minlength=total + 1) - np.bincount(end, minlength=total + 1)
    return np.repeat(users, centres) - np.cumsum(change)[:-1].astype(np.int64)


def _replacements(
    value: FloatArray,
    weight: FloatArray,
    radius: FloatArray,
    first: IntArray,
    users: IntArray,
    of_bin: IntArray,
    centre: FloatArray,
    slack: FloatArray,
) -> IntArray:
    """Return the distance to the good data sets of each given centre, shape (len(centre),)."""
    size = users[of_bin]
    begin = np.cumsum(size) - size
    which = np.repeat(np.arange(len(size)), size)
    pair = first[of_bin][which] + np.arange(len(which)) - begin[which]
    offset = value[pair] - centre[which]
    eligible = np.abs(offset) <= radius[pair]
    pull = np.add.reduceat(np.where(eligible, weight[pair] * offset, 0.0), begin)
    free = np.add.reduceat(np.where(eligible, 0.0, weight[pair] * radius[pair]), begin)
    need = np.abs(pull) - free - slack[of_bin]
    cost = np.add.reduceat(~eligible, begin, dtype=np.int64)

    short = np.flatnonzero(need > 0)
    if len(short):
        chosen = (need > 0)[which] & eligible
        row = np.searchsorted(short, which[chosen])
        towards = np.sign(pull)[which[chosen]]
        gain = weight[pair[chosen]] * (towards * offset[chosen] + radius[pair[chosen]])
        order = np.lexsort((-gain, row))
        gain, row = gain[order], row[order]
        start = np.searchsorted(row, np.arange(len(short)))
        reached = np.cumsum(gain)
        reached -= (reached[start] - gain[start])[row]
        covered = reached >= need[short][row]
        cost[short] += np.add.reduceat(~covered, start, dtype=np.int64) + 1
    return cost


SLACK = 0.05
"""eta: how far, as a share of min T, the weighted mean of a good data set may lie from its centre."""
STRICT = 1 - 1e-9
LEVELS = 64
"""Values of k0 that are tried, spread evenly over those with theta > 0."""


@dataclass(frozen=True)
class HuberParameters:
    """Everything about the estimator that does not depend on values, for bins of vehicles sorted by bin.

    ``weight`` (adds up to 1 in every bin) and ``threshold`` have shape (P,); ``bin_index`` is sorted and
    every bin 0..bins-1 has a pair; ``upper`` is U.
    """

    weight: FloatArray
    threshold: FloatArray
    bin_index: IntArray
    bins: int
    upper: float

    @property
    def first(self) -> IntArray:
        """The position of each bin's first pair, shape (G,)."""
        return np.searchsorted(self.bin_index, np.arange(self.bins)).astype(np.int64)

    @property
    def users(self) -> IntArray:
        """The number of vehicles of each bin, shape (G,)."""
        return np.bincount(self.bin_index, minlength=self.bins).astype(np.int64)

    @property
    def balanced(self) -> BoolArray:
        """Whether all vehicles of a bin have equal weights and equal thresholds, shape (G,)."""
        first = self.first
        equal = np.ones(self.bins, dtype=np.bool_)
        for what in (self.weight, self.threshold):
            equal &= np.maximum.reduceat(what, first) == np.minimum.reduceat(what, first)
        return equal

    def select(self, keep: BoolArray) -> HuberParameters:
        """Return the parameters of the bins where the mask ``keep`` (G,) is true, renumbered."""
        pairs = keep[self.bin_index]
        renumber = np.cumsum(keep, dtype=np.int64) - 1
        return HuberParameters(
            self.weight[pairs],
            self.threshold[pairs],
            renumber[self.bin_index[pairs]],
            int(keep.sum()),
            self.upper,
        )


def smooth_sensitivity(
    value: FloatArray, shape: HuberParameters, beta: FloatArray, *, levels: int = LEVELS
) -> FloatArray:
    """Return the smooth sensitivity of the Huber estimator in every bin, shape (G,).

    At most U and in its unit; private, never publish it. ``value`` (P,) are the private vehicle means in the
    order of ``shape``, ``beta`` (G,) >= 0 the smoothness; ``levels`` how many k0 are tried (at least as many
    as vehicles: all of them). U where no k0 has theta > 0: fewer than 3 vehicles, or one that dominates.
    """
    first = shape.first
    balanced = shape.balanced
    mean = np.bincount(shape.bin_index, weights=shape.weight * value, minlength=shape.bins)
    spread = np.abs(value - mean[shape.bin_index])
    in_order = value[np.lexsort((value, shape.bin_index))]
    largest = np.maximum.reduceat(shape.threshold, first)

    def distance(theta: FloatArray, level: IntArray) -> IntArray:
        result = balanced_distance(in_order, first, np.where(balanced, theta * largest, -1.0), level)
        if not balanced.all():
            share = np.where(balanced, -1.0, theta - SLACK)
            uneven = centre_grid_distance(
                value, shape.weight, shape.threshold, first, share, SLACK * STRICT, shape.upper, level
            )
            result = np.where(balanced, result, uneven)
        return result

    return _smooth(shape, spread, beta, distance, levels)


def typical_smooth_sensitivity(
    shape: HuberParameters, beta: FloatArray, *, relative_distance: float = 0.4, levels: int = LEVELS
) -> FloatArray:
    """Return the smooth sensitivity that typical data would have, (G,), in the unit of the thresholds.

    Typical: every |y - ybar| is ``relative_distance`` thresholds; the default is about what independent
    samples give. Public, a forecast that decides before any value is read whether the method pays; noise on
    real data needs ``smooth_sensitivity``. ``beta`` (G,) >= 0 is the smoothness; ``levels`` is how many k0
    are tried.
    """
    needed = np.where(shape.balanced, relative_distance, relative_distance + 2 * SLACK)

    def distance(theta: FloatArray, level: IntArray) -> IntArray:
        return np.where(theta >= needed, 0, level)

    return _smooth(shape, relative_distance * shape.threshold, beta, distance, levels)


def _smooth(
    shape: HuberParameters,
    spread: FloatArray,
    beta: FloatArray,
    distance: Callable[[FloatArray, IntArray], IntArray],
    levels: int,
) -> FloatArray:
    """Return the least S over the levels of k0; the distance to their good sets comes from ``distance``."""
    first, users, upper = shape.first, shape.users, shape.upper
    weight, threshold, owner = shape.weight, shape.threshold, shape.bin_index
    heaviest = _largest_first(weight, owner)
    leverage = _largest_first(weight * threshold, owner)
    rank = np.arange(len(owner)) - first[owner]
    # W_k and A_k at position first + k, k = 0..n-1
    remaining = 1.0 - (_running(heaviest, first, owner) - heaviest)
    moved = _running(leverage, first, owner) - leverage
    most = leverage[first]
    least_threshold = np.minimum.reduceat(threshold, first)

    room = least_threshold[owner] * remaining
    theta = STRICT * (room - moved) / (room + moved)
    usable = (rank > 0) & (theta > np.where(shape.balanced, 0.0, SLACK)[owner]) & (2 * rank < users[owner])
    largest_k0 = np.add.reduceat(usable, first, dtype=np.int64)

    alone = np.where(
        weight < 1, weight * (threshold + spread) / np.where(weight < 1, 1 - weight, 1.0), np.inf
    )
    one = np.maximum.reduceat(alone, first)
    fits = (one < STRICT * np.minimum.reduceat(threshold - spread, first)) & (largest_k0 >= 1)
    one = np.where(fits, np.minimum(one, upper), upper)

    log_bound = np.log(most)[owner] + np.log(2.0) - np.log(np.maximum(remaining, 1e-300))
    log_bound = np.minimum(log_bound, np.log(upper)) - beta[owner] * rank
    best = np.full(shape.bins, upper)
    for step in range(min(levels, int(largest_k0.max(initial=0))), 0, -1):
        # all of them where they are few, else evenly spread
        level = np.where(largest_k0 <= levels, step, -(-largest_k0 * step // levels))
        # a level whose S cannot be the least is left out: S >= U e^(-beta k0)
        tried = (level >= 1) & (level <= largest_k0) & (upper * np.exp(-beta * level) < best)
        level = np.where(tried, level, 0)
        delta = np.minimum(distance(np.where(tried, theta[first + level], -1.0), level), level)
        here = np.where(delta < level, np.exp(_at(log_bound, first + delta) + beta * delta), upper)
        later = _range_max(log_bound, first + delta + 1, first + level)
        bound = np.maximum(np.minimum(one, here), np.exp(later + beta * delta))
        # from k = k0 - Delta on (at least k = 0, where h1 may still hold) only U is known
        unknown = np.maximum(level - delta, np.where(fits, 1, 0))
        bound = np.maximum(bound, upper * np.exp(-beta * unknown))
        best = np.where(tried, np.minimum(best, bound), best)
    return best


def _at(values: FloatArray, position: IntArray) -> FloatArray:
    return values[np.minimum(position, len(values) - 1)]


def _largest_first(values: FloatArray, owner: IntArray) -> FloatArray:
    return values[np.lexsort((-values, owner))]


def _running(values: FloatArray, first: IntArray, owner: IntArray) -> FloatArray:
    """Return the running sums inside every bin."""
    total = np.cumsum(values)
    return total - (total[first] - values[first])[owner]


def _range_max(values: FloatArray, begin: IntArray, end: IntArray) -> FloatArray:
    """Return max of ``values[begin:end]`` for every range, minus infinity for empty ones."""
    padded = np.append(values, [-np.inf, -np.inf])
    filled = begin < end
    low = np.where(filled, begin, len(values))
    high = np.where(filled, end, len(values) + 1)
    pairs = np.stack([low, high], axis=1).ravel()
    return np.where(filled, np.maximum.reduceat(padded, pairs)[::2], -np.inf)
