"""How many vehicles would have to be replaced until their vectors are well concentrated: exact, in R^d.

For a centre c a data set is *good* when every |y_i - c| is at most ``share`` T_i and sum w_i |y_i - c| is at
most ``mean_limit``. Replaced vectors are best put at c, where they add nothing. So the distance of a data set
to the good ones of c is the number of vectors outside their balls, plus the least t such that without the t
largest w_i |y_i - c| of the others the sum is small enough: exact, by sorting. The distance to the good data
sets of all centres of a lattice (``centre_lattice``) is the least of these. It is a Hamming distance
to a set that does not depend on the data, so that it changes by at most 1 when one vehicle changes.

**Only centres near the Huber minimiser can do.** If k replacements lead to a good data set of c, then the
minimiser lies within (mean_limit + A_k)/W_k of c (``vector_smooth_sensitivity``). A centre that is
known to cost k1 leaves those within that radius for k = k1 - 1; the others are never enumerated, however many
there are. That ball is covered by balls of half its size, and so on (branch and bound): with |y_i - b| less
the ball's size for the distances, the cost of its middle b bounds those of all centres in it from below.

Data sets are (n, d); the distance depends on values and is never published.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.research.zhao_2024.centre_lattice import WIDER, CentreLattice

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CHUNK = 500_000
"""So many (centre, vehicle) pairs are looked at together."""
ROUNDING = 1e-12
"""Sums are taken as covered when this share of the limit is missing."""


def vector_distance(
    y: FloatArray,
    weight: FloatArray,
    radius: FloatArray,
    mean_limit: float,
    lattice: CentreLattice,
    minimiser: FloatArray,
    reach: FloatArray,
    limit: int,
) -> int:
    """Return min(limit, replacements until the data set is good for some centre of the lattice). Exact.

    ``y`` (n, d) are the vehicles' vectors, ``weight`` and ``radius`` = share T_i have shape (n,),
    ``minimiser`` (d,) is near the Huber minimiser, and ``reach[k]`` (shape (limit,), increasing) how far from
    it a centre that costs k can be.
    """

    def cost(centres: FloatArray, size: float) -> IntArray:
        """Return a lower bound of the costs within ``size`` of each centre: the cost itself for 0."""
        found = np.empty(len(centres), dtype=np.int64)
        step = max(1, CHUNK // len(y))
        for begin in range(0, len(centres), step):
            part = slice(begin, begin + step)
            distance = _length(centres[part, None, :] - y)
            shortest = np.maximum(distance - size * WIDER, 0.0)
            found[part] = _costs(shortest, weight, radius, mean_limit)
        return found

    best = min(limit, int(cost(lattice.around(minimiser), 0.0).min()))
    if best == 0:
        return 0
    # every centre that may still be better is this near
    near = float(reach[best - 1])
    if int(cost(minimiser[None], near)[0]) >= best:
        return best
    # finer and finer balls, of which those that cannot hold a better centre are dropped
    balls, size = minimiser[None], near
    while size > 2 * lattice.radius and len(balls):
        coarse = CentreLattice(y.shape[1], size / 2)
        balls = _distinct([coarse.within(ball, 1.5 * size) for ball in balls], lattice.radius)
        size /= 2
        balls = balls[cost(balls, size) < best]
    if not len(balls):
        return best
    centres = _distinct([lattice.within(ball, size) for ball in balls], lattice.radius)
    return min(best, int(cost(centres, 0.0).min(initial=best)))


def _distinct(parts: list[FloatArray], scale: float) -> FloatArray:
    """Return the rows of all parts, each once; rows that differ by rounding alone are the same."""
    rows = np.concatenate(parts)
    _, first = np.unique(np.rint(rows * (1e6 / scale)), axis=0, return_index=True)
    return np.asarray(rows[first])


def _length(vectors: FloatArray) -> FloatArray:
    result: FloatArray = np.sqrt(np.einsum("...k,...k->...", vectors, vectors))
    return result


def _costs(distance: FloatArray, weight: FloatArray, radius: FloatArray, mean_limit: float) -> IntArray:
    """Return the distance to the good data sets of each centre from |y_i - c|, shape (centres, n)."""
    inside = distance <= radius
    outside = np.count_nonzero(~inside, axis=1)
    pull = np.where(inside, weight * distance, 0.0)
    excess = pull.sum(axis=1) - mean_limit * (1 + ROUNDING)
    extra = np.zeros(len(distance), dtype=np.int64)
    short = excess > 0
    if short.any():
        largest = -np.sort(-pull[short], axis=1)
        covered = np.cumsum(largest, axis=1) >= excess[short][:, None]
        extra[short] = np.count_nonzero(~covered, axis=1) + 1
    result: IntArray = (outside + extra).astype(np.int64)
    return result
