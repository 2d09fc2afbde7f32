"""Smooth sensitivity of the Huber estimator, over all bins at once.

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
import numpy.typing as npt

from trafficdp.bounding.huber import balanced_distance, centre_grid_distance

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
SLACK = 0.05
"""eta: how far, as a share of min T, the weighted mean of a good data set may lie from its centre."""
STRICT = 1 - 1e-9
LEVELS = 64
"""Values of k0 that are tried, spread evenly over those with theta > 0."""


@dataclass(frozen=True)
class HuberShape:
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
        """Position of each bin's first pair, shape (G,)."""
        return np.searchsorted(self.bin_index, np.arange(self.bins)).astype(np.int64)

    @property
    def users(self) -> IntArray:
        """Vehicles of each bin, n, shape (G,)."""
        return np.bincount(self.bin_index, minlength=self.bins).astype(np.int64)

    @property
    def balanced(self) -> BoolArray:
        """Whether all weights and all thresholds of a bin are equal, shape (G,)."""
        first = self.first
        equal = np.ones(self.bins, dtype=np.bool_)
        for what in (self.weight, self.threshold):
            equal &= np.maximum.reduceat(what, first) == np.minimum.reduceat(what, first)
        return equal

    def select(self, keep: BoolArray) -> HuberShape:
        """Return the shape of the bins where ``keep`` (shape (G,)) is true, renumbered."""
        pairs = keep[self.bin_index]
        renumber = np.cumsum(keep, dtype=np.int64) - 1
        return HuberShape(
            self.weight[pairs],
            self.threshold[pairs],
            renumber[self.bin_index[pairs]],
            int(keep.sum()),
            self.upper,
        )


def smooth_sensitivity(
    value: FloatArray, shape: HuberShape, beta: FloatArray, *, levels: int = LEVELS
) -> FloatArray:
    """Return S, at most U, of every bin (G,) for vehicle means ``value`` (P,). Never publish it.

    ``beta`` (shape (G,), at least 0) is the smoothness; ``levels`` how many k0 are tried (at least as many
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


def clean_smooth_sensitivity(
    shape: HuberShape, beta: FloatArray, *, spread: float = 0.4, levels: int = LEVELS
) -> FloatArray:
    """Return S of data with Z_i = ``spread`` T_i for all vehicles and no outlier: public, shape (G,).

    What S will be about where vehicles agree to within ``spread`` of their thresholds; the defaults are
    about what independent samples give. This decides, before any value is read, whether the method pays.
    """
    needed = np.where(shape.balanced, spread, spread + 2 * SLACK)

    def distance(theta: FloatArray, level: IntArray) -> IntArray:
        result: IntArray = np.where(theta >= needed, 0, level)
        return result

    return _smooth(shape, spread * shape.threshold, beta, distance, levels)


def _smooth(
    shape: HuberShape,
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
    result: FloatArray = values[np.minimum(position, len(values) - 1)]
    return result


def _largest_first(values: FloatArray, owner: IntArray) -> FloatArray:
    result: FloatArray = values[np.lexsort((-values, owner))]
    return result


def _running(values: FloatArray, first: IntArray, owner: IntArray) -> FloatArray:
    """Return the running sums inside every bin."""
    total = np.cumsum(values)
    result: FloatArray = total - (total[first] - values[first])[owner]
    return result


def _range_max(values: FloatArray, begin: IntArray, end: IntArray) -> FloatArray:
    """Return max of ``values[begin:end]`` for every range, minus infinity for empty ones."""
    padded = np.append(values, [-np.inf, -np.inf])
    filled = begin < end
    low = np.where(filled, begin, len(values))
    high = np.where(filled, end, len(values) + 1)
    pairs = np.stack([low, high], axis=1).ravel()
    result: FloatArray = np.where(filled, np.maximum.reduceat(padded, pairs)[::2], -np.inf)
    return result
