"""Discrete Gaussian noise: exact for releases, its seeded twin for experiments, and its tail.

P(z) proportional to exp(-z^2 / (2 sd^2)) on the integers (Canonne, Kamath, Steinke 2020). An integer
statistic that one user moves by at most D is D^2/(2 sd^2)-zCDP under it (their Theorem 4), and losses of
several such statistics add up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from trafficdp.errors import in_range
from trafficdp.noise.secure import LARGEST_SCALE, noisy, require_scales

SAMPLER = (
    "OpenDP make_gaussian on 64-bit integers (exact discrete Gaussian, P(z) prop. to exp(-z^2/(2 sd^2)))"
)
LARGEST_SD = LARGEST_SCALE
"""Above this a draw could leave 64 bits; the caller coarsens its lattice instead."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def discrete_gaussian(sd: FloatArray, sums: IntArray | None = None) -> IntArray:
    """Return ``sums`` (None: zeros) plus one independent exact draw for every ``sd``; sd 0: none.

    Raises UsageError for an ``sd`` that is negative, infinite, missing or above LARGEST_SD.
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    return noisy(lambda value: make_gaussian(*space, scale=value), sd, sums)


def simulated_discrete_gaussian(random: np.random.Generator, sd: FloatArray) -> IntArray:
    """Return one draw for every entry of ``sd``: the same law, from floats. NOT for releases.

    Rejection from a discrete Laplace of scale t = floor(sd) + 1, accepted with probability
    exp(-(|y|/sd - sd/t)^2 / 2) (Canonne, Kamath, Steinke 2020, Algorithm 3).
    Raises UsageError like ``discrete_gaussian``.
    """
    require_scales(sd)
    flat = sd.ravel()
    noise = np.zeros(flat.shape, dtype=np.int64)
    pending = np.flatnonzero(flat > 0)
    while len(pending):
        spread = flat[pending]
        scale = np.floor(spread) + 1
        success = -np.expm1(-1.0 / scale)
        proposal = random.geometric(success) - random.geometric(success)
        with np.errstate(over="ignore"):
            # not by spread^2, which is 0 where spread is tiny
            off = np.abs(proposal) / spread - spread / scale
            accepted = random.random(len(pending)) < np.exp(-(off**2) / 2)
        noise[pending[accepted]] = proposal[accepted]
        pending = pending[~accepted]
    return noise.reshape(sd.shape)


def gaussian_half_width(sd: FloatArray, level: float) -> FloatArray:
    """Return a whole h with P(|Z| > h) <= 1 - level for discrete Gaussian Z; 0 for sd 0.

    For whole m >= 1, P(Z >= m) <= P(N >= m - 1) with N normal of the same sd (Canonne, Kamath, Steinke
    2020, Proposition 25), so that h = ceil(sd * quantile) will do: at most one above the least such h.
    Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    # a few units in the last place up, so that rounding never shortens an interval
    quantile = -float(ndtri((1.0 - level) / 2)) * (1 + 2.0**-40)
    return np.where(sd > 0, np.ceil(sd * quantile), 0.0)


def gaussian_absolute_error(sd: FloatArray) -> FloatArray:
    """Return sd sqrt(2/pi), at least E|Z| of the discrete Gaussian Z.

    By Poisson summation sum |j| e^(-j^2/(2 sd^2)) = sum over whole k of the transform
    2 sd^2 (1 - 2 x D(x)), x = sqrt(2) pi sd k, D Dawson's function. From sd = 0.21 on, x > 0.925 for all
    k != 0, where the bracket is negative: the sum is at most 2 sd^2, and the normaliser at least
    sd sqrt(2 pi). Below, 2 e^(-1/(2 sd^2)) (1 + 3 e^(-3/(2 sd^2))) is smaller still.
    """
    return np.asarray(sd * np.sqrt(2 / np.pi))
