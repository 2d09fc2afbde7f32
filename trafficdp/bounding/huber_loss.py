"""The minimiser of a weighted Huber loss, over all bins at once: exact in one dimension, iterated in more.

Paper 001 ("A Huber Loss Minimization Approach to Mean Estimation under User-level Differential Privacy",
arXiv 2405.13453), its equations (8), (11) and appendix A. With y_i the mean of vehicle i, weights w_i that
add up to 1 and thresholds T_i > 0,

    mu0 = argmin_s sum_i w_i phi_i(s),    phi_i(s) = (s - y_i)^2 / 2          if |s - y_i| <= T_i
                                                     T_i |s - y_i| - T_i^2/2  else.

All arrays over (bin, vehicle) pairs have shape (P,), or (P, d), and are sorted by ``bin_index``; every bin
0..bins-1 has at least one pair. The minimiser lies in the convex hull of the y_i, hence in [0, U].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ZERO = 1e-12
"""A gradient below this share of its largest value (sum of w_i T_i) counts as zero."""


def huber_location(
    value: FloatArray, weight: FloatArray, threshold: FloatArray, bin_index: IntArray, bins: int
) -> FloatArray:
    """Return the minimiser of every bin, shape (G,); the midpoint where the minimum is flat.

    The gradient sum_i w_i clip(s - y_i, -T_i, T_i) is piecewise linear and nondecreasing: its slope grows
    by w_i at y_i - T_i and falls by w_i at y_i + T_i. The 2P breakpoints are sorted bin by bin and the
    gradient, which starts at -sum w_i T_i, is swept to its zero: O(P log P) for all bins together. One
    Newton step from there, exact on the right piece, takes away what the running sums have rounded.
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
    """Return the minimiser of every bin for d-dimensional means, shape (G, d); ``value`` is (P, d).

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
    result: FloatArray = weighted / total[:, None]
    return result
