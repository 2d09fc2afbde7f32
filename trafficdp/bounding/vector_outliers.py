"""How many vehicles would have to be replaced until their vectors are well concentrated: exact, in R^d.

For a centre c a data set is *good* when every |y_i - c| is at most ``share`` T_i and sum w_i |y_i - c| is at
most ``mean_limit``. Replaced vectors are best put at c, where they add nothing. So the distance of a data set
to the good ones of c is the number of vectors outside their balls, plus the least t such that without the t
largest w_i |y_i - c| of the others the sum is small enough: exact, by sorting. The distance to the good data
sets of all centres of a lattice (``bounding.centre_lattice``) is the least of these. It is a Hamming distance
to a set that does not depend on the data, so that it changes by at most 1 when one vehicle changes.

**Only centres near the Huber minimiser can do.** If k replacements lead to a good data set of c, then the
minimiser lies within (mean_limit + A_k)/W_k of c (``bounding.vector_smooth_sensitivity``). A centre that is
known to cost k1 leaves those within that radius for k = k1 - 1; the others are never enumerated, however many
there are.

Data sets are (n, d); the distance depends on values and is never published.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.centre_lattice import CentreLattice

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

    def costs(centres: FloatArray) -> int:
        return int(_costs(_length(centres[:, None, :] - y), weight, radius, mean_limit).min())

    best = min(limit, costs(lattice.around(minimiser)))
    if best == 0:
        return 0
    # every centre that may still be better is this near, and costs no less than with these distances
    near = float(reach[best - 1])
    shortest = np.maximum(_length(y - minimiser) - near, 0.0)
    if int(_costs(shortest[None], weight, radius, mean_limit)[0]) >= best:
        return best
    centres = lattice.within(minimiser, near)
    step = max(1, CHUNK // len(y))
    return min([best, *(costs(centres[begin : begin + step]) for begin in range(0, len(centres), step))])


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
