"""Private variances of columns from squared differences of pairs (PLAN, Algorithm 2)."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from trafficdp.mechanisms.plan.coordinate_quantile import exponential_quantiles
from trafficdp.noise.source import NoiseSource

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
OCTAVES = 64.0


def chi_square_factor(group: int) -> float:
    """Return median(chi2_k)/k, k = ``group``: the median of an average of k squared Gaussians of variance 1.

    Exact; the approximation (1 - 2/(9k))^3 of the authors' code is 3.4 % high at k = 1.
    """
    return float(cast(float, gammaincinv(group / 2, 0.5))) * 2 / group


def random_order(size: int, noise: NoiseSource) -> IntArray:
    """Return a random order of ``size`` rows that does not depend on values."""
    return np.argsort(noise.uniform_below(np.full(size, 2**61, dtype=np.int64)), kind="stable")


def pair_variances(x: FloatArray, group: int, noise: NoiseSource) -> FloatArray:
    """Return averages of ``group`` squared half differences (x - x')^2/2 of random pairs of rows.

    Shape (n // (2 group), d). Every row is in at most one of them: replacing a user changes one.
    """
    rows = len(x) // (2 * group) * 2 * group
    shuffled = x[random_order(len(x), noise)[:rows]]
    half = (shuffled[::2] - shuffled[1::2]) ** 2 / 2
    return np.asarray(half.reshape(-1, group, x.shape[1]).mean(axis=1))


def private_variances(
    x: FloatArray, reach: float, rho: float, noise: NoiseSource, *, group: int = 1, gaussian: bool = True
) -> FloatArray:
    """Return the private median of ``pair_variances`` of every column, rho-zCDP a column, shape (d,).

    Entries lie in [-reach, reach], so that a half square is at most (2 reach)^2/2. ``gaussian`` divides
    by ``chi_square_factor``, which makes it a variance if the data are Gaussian; else it stays a median.

    The quantile is drawn on a logarithmic scale from the largest half square down to 2^-64 of it (the paper:
    linear). Any increasing map that is public keeps the privacy; a range of 64 octaves in place of one of
    (2 reach)^2/2 units makes it unlikely that a draw is off by orders of magnitude.
    """
    pairs = pair_variances(x, group, noise)
    top = float(np.log2((2 * reach) ** 2 / 2))
    octaves = np.log2(np.maximum(pairs, 2.0 ** (top - OCTAVES)))
    drawn = exponential_quantiles(octaves, top - OCTAVES, top, len(pairs) // 2, rho, noise)
    found = np.exp2(drawn)
    return found / chi_square_factor(group) if gaussian else found
