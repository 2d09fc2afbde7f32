"""Make noisy means of parents and children agree, as free post-processing: exact least squares on trees.

Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of Differentially Private Histograms Through Consistency"
(2010), for weighted means, unequal noise, missing numbers and unequal numbers of children.

A node i has a noisy number z_i = x_i + noise of variance v_i (infinite: none was published). A parent's truth
is the weighted mean of its children's, x_P = sum_c w_c x_c, w_c = N_c/N_P from public counts, over all its
children. Noises of different nodes are uncorrelated.

Theorem. Upward, from the leaves: u_i, s_i are the best estimate of x_i from its own tree and its variance,

    leaf: u = z, s = v;   parent: a = sum_c w_c u_c, r = sum_c w_c^2 s_c, 1/s = 1/r + 1/v, u = s (a/r + z/v).

Downward, from the roots: f = u, t = s at a root, and with k_c = s_c w_c / r

    f_c = u_c + k_c (f_P - a),   t_c = s_c - k_c^2 (r - t_P).

Then f is the generalised least squares solution given all numbers, sum_c w_c f_c = f_P exactly, and t_i is
the variance of f_i. Proof. Given x_P, the trees of the children bring independent estimates u_c of x_c, under
the one constraint sum w_c x_c = x_P: least squares moves each by its share k_c of the gap, and these shares
sum to sum w_c k_c = 1. What is left of s_c when x_P is known is s_c - k_c^2 r; not knowing it adds k_c^2 t_P.
(It is the smoother of a Gaussian tree; least squares depends on variances only, so the noise need not be
Gaussian.) QED. Only the best linear rule is claimed; noises of one l-infinity block are uncorrelated too.

Intervals. f_i = sum_j A_ij z_j with weights from counts and scales alone, unbiased. For independent noises
with E e^(tZ_j) <= 1/(1 - t^2 b_j^2), v_j = 2 b_j^2 (Laplace; discrete Laplace: ``noise.sum_tail``), put
m_i^2 = t_i/2 = sum_j (A_ij b_j)^2. As -ln(1 - x) is superadditive on [0, 1), prod_j 1/(1 - (t A_ij b_j)^2) <=
1/(1 - t^2 m_i^2), so the Chernoff half width of one noise of scale m_i holds for f_i:
``sum_half_width([m_i])``. It or the half width of z_i, whichever is smaller by these public numbers, may be
published around f_i or around z_i; the interval around z_i stays valid whatever number is shown beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.noise.sum_tail import sum_half_width

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """T nodes of any number of trees. ``parent`` (T,): -1 for roots; ``samples`` (T,): N of each node.

    Children's ``samples`` must sum to their parent's: withheld children are nodes too, without a number.
    Raises UsageError when they do not, or ``parent`` runs in a circle.
    """

    parent: IntArray
    samples: IntArray

    def __post_init__(self) -> None:
        inner = np.flatnonzero(self.parent >= 0)
        below = np.zeros(len(self.parent), dtype=np.int64)
        np.add.at(below, self.parent[inner], self.samples[inner])
        has_children = np.zeros(len(self.parent), dtype=np.bool_)
        has_children[self.parent[inner]] = True
        if not np.array_equal(below[has_children], self.samples[has_children]):
            raise UsageError("children do not make up their parent", expected="equal numbers of records")

    def by_depth(self) -> list[IntArray]:
        """Return the nodes of every depth, roots first."""
        found, at = [], np.flatnonzero(self.parent < 0)
        left = len(self.parent) - len(at)
        while len(at):
            found.append(at)
            here = np.zeros(len(self.parent), dtype=np.bool_)
            here[at] = True
            at = np.flatnonzero((self.parent >= 0) & here[self.parent])
            left -= len(at)
        if left:
            raise UsageError("parents run in a circle", expected="trees")
        return found


@dataclass(frozen=True)
class Consistent:
    """``value`` f and ``variance`` t of every node, shape (T,); NaN and infinite where nothing is known."""

    value: FloatArray
    variance: FloatArray


def make_consistent(tree: Tree, value: FloatArray, variance: FloatArray) -> Consistent:
    """Return the best linear estimates from all noisy numbers; see the module.

    ``value`` (T,) must not be clamped: clamp afterwards. ``variance`` (T,) is positive, infinite where
    nothing was published (whatever ``value`` says there). A parent with a child that nothing is known of
    learns nothing from its other children, nor they from it; with several such children neither do these.
    Raises UsageError when a variance is not positive.
    """
    if not bool(np.all(variance > 0)):
        raise UsageError("a variance is not positive", expected="variances above 0, infinite for none")
    number, parent = len(tree.parent), tree.parent
    depths = tree.by_depth()
    own = np.where(np.isfinite(variance), value, 0.0)
    weight = np.where(parent >= 0, tree.samples / np.maximum(tree.samples[parent], 1), 0.0)
    up, spread = own.copy(), variance.astype(np.float64)
    gathered, noise = np.zeros(number), np.full(number, np.inf)
    unknown = np.zeros(number, dtype=np.int64)
    for nodes in reversed(depths[1:]):
        over = parent[nodes]
        silent = ~np.isfinite(spread[nodes])
        unknown += np.bincount(over[silent], minlength=number)
        gathered += np.bincount(
            over, weights=np.where(silent, 0.0, weight[nodes] * up[nodes]), minlength=number
        )
        part = np.where(silent, 0.0, weight[nodes] ** 2 * spread[nodes])
        total = np.bincount(over, weights=part, minlength=number)
        parents = np.unique(over)
        noise[parents] = np.where(unknown[parents] > 0, np.inf, total[parents])
        precision = 1 / noise[parents] + 1 / spread[parents]
        with np.errstate(divide="ignore"):
            together = 1 / precision
        informed = np.isfinite(together)
        mixed = gathered[parents] / noise[parents] + own[parents] / spread[parents]
        up[parents] = np.where(informed, np.where(informed, together, 0.0) * mixed, 0.0)
        spread[parents] = together
    return _downward(tree, depths, weight, up, spread, gathered, noise, unknown)


def _downward(
    tree: Tree,
    depths: list[IntArray],
    weight: FloatArray,
    up: FloatArray,
    spread: FloatArray,
    gathered: FloatArray,
    noise: FloatArray,
    unknown: IntArray,
) -> Consistent:
    parent = tree.parent
    final, left = up.copy(), spread.copy()
    for nodes in depths[1:]:
        over = parent[nodes]
        gap = np.where(np.isfinite(left[over]), final[over], 0.0) - gathered[over]
        known = np.isfinite(noise[over]) & np.isfinite(left[over])
        share = np.where(known, np.where(known, spread[nodes], 0.0) * weight[nodes], 0.0)
        share = share / np.where(known, noise[over], 1.0)
        final[nodes] = up[nodes] + share * np.where(known, gap, 0.0)
        less = np.where(known, noise[over], 0.0) - np.where(known, left[over], 0.0)
        left[nodes] = spread[nodes] - share**2 * less
        # the only silent child of a known parent is what the others leave over
        alone = ~np.isfinite(spread[nodes]) & (unknown[over] == 1) & np.isfinite(left[over])
        spoken = np.bincount(
            over, weights=np.where(np.isfinite(spread[nodes]), weight[nodes] ** 2 * spread[nodes], 0.0)
        )
        rest = nodes[alone]
        final[rest] = gap[alone] / weight[rest]
        left[rest] = (left[over[alone]] + spoken[over[alone]]) / weight[rest] ** 2
    return Consistent(np.where(np.isfinite(left), final, np.nan), left)


def half_widths(variance: FloatArray, error: float) -> FloatArray:
    """Return half widths h with P(|f_i - x_i| > h) <= ``error`` for independent Laplace noises.

    ``variance`` (T,) is that of ``make_consistent``, computed with v_j = 2 b_j^2. The half width is infinite
    where the variance is. Raises UsageError unless 0 < error < 1.
    """
    one = sum_half_width(np.ones(1), error)
    result: FloatArray = np.sqrt(variance / 2) * one * (1 + 1e-12)
    return result
