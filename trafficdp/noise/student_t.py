"""Student-t noise for smooth sensitivities: pure epsilon-DP, exactly calibrated, for numbers and vectors.

Releasing f(D) + S(D)/alpha xi with xi from Student's t with nu degrees of freedom and S a beta-smooth bound
of the local sensitivity is epsilon-DP when ``largest_loss(nu, alpha, beta) <= epsilon``.

*Proof.* For neighbours |f(D) - f(D')| <= min(S, S') and |ln(S'/S)| <= beta. In units of the noise of D the
other output is shifted by at most alpha min(1, e^c) and stretched by e^c, |c| <= beta. The density of t_nu is
a power -(nu + 1)/2 of the quadratic form 1 + z^2/nu, so the ratio of the two densities is a ratio of
quadratic forms in (z, 1), extreme at the eigenvalues of a 2 x 2 pencil. With q = e^(-2c),
tau = q (1 + alpha^2/nu) + 1 and lambda = (tau + sqrt(tau^2 - 4q))/2 the extreme log-ratio is

    loss(c) = (nu + 1)/2 ln lambda + max(1, nu) c,        0 <= c <= beta (the other sign is its mirror).

ln lambda is a convex function of c (c = -(1/2)[u + ln(e^u - 1) - ln(a e^u - 1)], a = 1 + alpha^2/nu, is
convex and decreasing in u = ln lambda), so the largest loss is at c = 0 **or** at c = beta: both are tested.
QED.
The end c = beta alone is not enough: nu = 3, epsilon = 6, beta = 1 loses 6.585 at c = 0.

**Vectors.** In R^d with the l2 norm the density of the multivariate t_nu is a power -(nu + d)/2 of
1 + |z|^2/nu, and stretching by e^c divides it by e^(dc) more. The quadratic forms in (z, 1) split into the
same 2 x 2 pencil along the shift and, for each direction across it, the eigenvalue q; the pencil's Rayleigh
quotient is q along the shift itself, so that q lies between its eigenvalues, whose product is q. Hence

    loss(c) = (nu + d)/2 ln lambda + max(d, nu) c,        0 <= c <= beta,

d c + (nu + d)/2 ln lambda from the largest eigenvalue, (nu + d)(c + ln(lambda)/2) - d c from the least: again
convex in c, so that again both ends are tested. The exponent and the factor of d = 1 do not do for d > 1.

The variable itself is drawn in floats: mechanisms that use it are idealised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import betaincinv

from trafficdp.arrays import FloatArray, IntArray

UNIFORM_BITS = 53
ROUNDING = 1 + 1e-12
"""The loss is computed with relative errors far below this."""
BISECTIONS = 100


def largest_loss(degrees: float, alpha: FloatArray, beta: FloatArray, dimensions: int = 1) -> FloatArray:
    """Return the largest epsilon of noise S/``alpha`` times a Student-t draw, for a ``beta``-smooth S,
    rounded up.

    ``degrees`` nu; arrays of one shape. For d = ``dimensions`` > 1, S bounds changes in the l2 norm of R^d,
    and the noise is the multivariate t.
    """
    at_zero = _loss(degrees, alpha, np.zeros_like(beta), dimensions)
    return np.maximum(at_zero, _loss(degrees, alpha, beta, dimensions)) * ROUNDING


def _loss(degrees: float, alpha: FloatArray, shift: FloatArray, dimensions: int) -> FloatArray:
    square = alpha**2 / degrees
    q = np.exp(-2 * shift)
    # lambda - 1 is the larger root of z^2 - x z - q alpha^2/nu, x = q (1 + alpha^2/nu) - 1
    x = np.expm1(-2 * shift) + q * square
    root = np.hypot(x, 2 * np.sqrt(q * square))
    with np.errstate(divide="ignore", invalid="ignore"):
        stable = np.where(x >= 0, (x + root) / 2, 2 * q * square / (root - x))
    excess = np.where(square > 0, stable, 0.0)
    power = (degrees + dimensions) / 2
    return power * np.log1p(excess) + max(float(dimensions), degrees) * shift


def largest_alpha(degrees: float, beta: FloatArray, epsilon: FloatArray, dimensions: int = 1) -> FloatArray:
    """Return the largest alpha at which noise S/alpha times Student-t costs at most ``epsilon``, rounded
    down.

    S is ``beta``-smooth. 0 where even that is too much (max(d, nu) beta >= epsilon), infinite where
    ``epsilon`` is. Shapes (n,).
    """
    found = _largest_alpha(degrees, tuple(beta.tolist()), tuple(epsilon.tolist()), dimensions)
    return np.array(found, dtype=np.float64)


# an estimate asks for the same few numbers every time
@lru_cache(maxsize=4)
def _largest_alpha(
    degrees: float, betas: tuple[float, ...], epsilons: tuple[float, ...], dimensions: int
) -> list[float]:
    beta, epsilon = np.array(betas, dtype=np.float64), np.array(epsilons, dtype=np.float64)
    endless = np.isinf(epsilon)
    target = np.where(endless, 1.0, epsilon)
    smooth = np.where(endless, 0.0, beta)
    low = np.zeros_like(target)
    # at c = 0 the loss is (nu + d) asinh(alpha / (2 sqrt nu)): alpha cannot exceed this
    high = 2 * math.sqrt(degrees) * np.sinh(np.minimum(target / (degrees + dimensions), 700.0))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        fits = largest_loss(degrees, middle, smooth, dimensions) <= target
        before = low, high
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
        if np.array_equal(before, (low, high)):
            break
    alpha: list[float] = np.where(endless, np.inf, low).tolist()
    return alpha


def mean_absolute(degrees: float, dimensions: int = 1) -> float:
    """Return the expected absolute value (l2 norm for d > 1) of a Student-t variable with ``degrees`` nu > 1.

    sqrt(nu) Gamma((d + 1)/2) Gamma((nu - 1)/2) / (Gamma(d/2) Gamma(nu/2)); 2 sqrt(3)/pi for d = 1 and nu = 3.
    """
    numerator = math.lgamma((dimensions + 1) / 2) + math.lgamma((degrees - 1) / 2)
    denominator = math.lgamma(dimensions / 2) + math.lgamma(degrees / 2)
    return math.sqrt(degrees) * math.exp(numerator - denominator)


def draw(degrees: float, size: int, uniform_below: Callable[[IntArray], IntArray]) -> FloatArray:
    """Return ``size`` independent Student-t variables; ``uniform_below`` is that of a noise source.

    sqrt(nu (u^(-2/nu) - 1)) cos(2 pi v) of uniforms u and v in (0, 1): Bailey's polar method, any nu > 0.
    Exact for real uniforms, rounded for floats.
    """
    first, second = uniforms(2 * size, uniform_below).reshape(2, size)
    radius = np.sqrt(degrees * np.expm1(-2.0 / degrees * np.log(first)))
    return radius * np.cos(2 * np.pi * second)


def draw_vectors(
    degrees: float, size: int, dimensions: int, uniform_below: Callable[[IntArray], IntArray]
) -> FloatArray:
    """Return ``size`` independent vectors of the multivariate t_nu (identity shape), shape (size, d).

    The direction is that of normal variables (``normals``); nu/(nu + |z|^2) has the law Beta(nu/2, d/2) and
    is drawn by its quantile function, at small values for long vectors, so that their tail is not rounded.
    """
    direction = normals(size * dimensions, uniform_below).reshape(size, dimensions)
    direction /= np.sqrt(np.einsum("ij,ij->i", direction, direction))[:, None]
    share = betaincinv(degrees / 2, dimensions / 2, uniforms(size, uniform_below))
    length = np.sqrt(degrees * (1 - share) / share)
    return direction * length[:, None]


def normals(size: int, uniform_below: Callable[[IntArray], IntArray]) -> FloatArray:
    """Return ``size`` independent standard normal variables (Box and Muller)."""
    first, second = uniforms(2 * size, uniform_below).reshape(2, size)
    return np.asarray(np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second))


def uniforms(size: int, uniform_below: Callable[[IntArray], IntArray]) -> FloatArray:
    """Return ``size`` independent uniforms, the midpoints of 2^53 equal parts of (0, 1)."""
    whole = uniform_below(np.full(size, 2**UNIFORM_BITS, dtype=np.int64))
    return ((whole + 0.5) / 2.0**UNIFORM_BITS).astype(np.float64)
