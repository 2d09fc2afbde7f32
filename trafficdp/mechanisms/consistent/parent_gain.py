"""What consistency with a parent does to the noise of its children: coefficients of exact least squares.

Children c of a parent P and P itself lie in one block: noises z_j = W_j r u_j with a common radius r, W_j the
half width in the statistic's unit, so their variances are in proportion to W_j^2. With w_c = N_c/N_P,
S = sum w_c^2 W_c^2 and agg = sum w_c z_c, generalised least squares (``tree``) gives

    P^ = agg + g (z_P - agg),   g = S / (S + W_P^2),        variance in proportion to S W_P^2/(S + W_P^2),
    c^ = z_c + q_c (z_P - agg), q_c = g W_c^2 w_c / S.

So c^ combines the noises of its family with the coefficients 1 - q_c w_c for itself, -q_c w_j for its sisters
and q_c for the parent; ``noise.block_combination`` bounds such a combination. The variance of no child grows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.consistent.parents import Parents
from trafficdp.noise.block_combination import combination_absolute

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Combination:
    """The consistent children, shape (C,), in the unit of W a radius.

    ``spread`` sqrt(sum_j (A_j W_j)^2 / 3) and ``absolute`` b of ``noise.block_combination``; ``own`` and
    ``pull`` are 1 - q_c w_c and q_c.
    """

    spread: FloatArray
    absolute: FloatArray
    own: FloatArray
    pull: FloatArray


def combine(parents: Parents, samples: IntArray, reach: FloatArray) -> Combination:
    """Return how the noises combine; ``samples`` (G,) are records, ``reach`` (G + P,) the W of all."""
    bins, of, weight = len(parents.of), parents.of[parents.children], parents.weights(samples)
    child, above = reach[parents.children], reach[bins:]
    part = (weight * child) ** 2
    together = parents.total(part)
    share = together / (together + above**2)
    pull = (share / together)[of] * child**2 * weight
    own = 1 - pull * weight
    squares = (own * child) ** 2 + pull**2 * (np.maximum(together[of] - part, 0.0) + above[of] ** 2)
    spread = np.sqrt(squares / 3)
    largest = np.maximum(own * child, pull * above[of])
    return Combination(spread, combination_absolute(spread, largest), own, pull)


def combined_bias(parents: Parents, samples: IntArray, found: Combination, bias: FloatArray) -> FloatArray:
    """Return sum_j |A_j| bias_j of every child, shape (C,); ``bias`` (G + P,)."""
    bins, of, weight = len(parents.of), parents.of[parents.children], parents.weights(samples)
    child, above = bias[parents.children], bias[bins:]
    sisters = np.maximum(parents.total(weight * child)[of] - weight * child, 0.0)
    return np.asarray(found.own * child + found.pull * (sisters + above[of]))
