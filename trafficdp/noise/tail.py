"""How far off Laplace noise puts a number: the half width of an interval, and the expected error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import in_range


def half_width(scale: npt.NDArray[np.float64], level: float) -> npt.NDArray[np.float64]:
    """Return the least whole h with P(|Z| > h) <= 1 - level, for discrete Laplace Z; 0 for scale 0.

    P(|Z| >= j) = 2 e^(-j/B) / (1 + e^(-1/B)) for j >= 1 (methods: the lattice tail; the formula of
    continuous Laplace would miss up to 1.46 times the error probability at B = 1).
    Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    positive = np.where(scale > 0, scale, 1.0)
    beyond = positive * (np.log(2.0 / (1.0 - level)) - np.log1p(np.exp(-1.0 / positive)))
    # a few units in the last place up, so that rounding never shortens an interval
    first_excluded = np.maximum(np.ceil(beyond * (1 + 2.0**-49)), 1.0)
    return np.where(scale > 0, first_excluded - 1.0, 0.0)


def clamped_laplace_error(
    scale: npt.NDArray[np.float64], bias: npt.NDArray[np.float64], reach: float
) -> npt.NDArray[np.float64]:
    """Return the largest E|clip(f + Z, 0, R) - t| over f, t in [0, R] with |f - t| <= beta.

    Z is Laplace of scale b (shape (G,)), beta the bias, R the ``reach``. For beta <= R/2 exactly

        beta + b (e^(-beta/b) - e^(-R/(2b))),

    else beta, which is more. *Proof.* Convex in t, so take t = f + beta (or its mirror image). With F
    the law of Z the error is int_{-f}^{beta} F + int_beta^{R-f} (1 - F); its derivative in f is
    (e^(-f/b) - e^(-(R-f)/b))/2, so the worst f is R/2, or R - beta if that is less. Integrate. For beta > R/2
    the result, beta + (b/2)(e^(-beta/b) - e^(-(R-beta)/b)), is at most beta. QED.

    With beta = 0 it is b (1 - e^(-R/(2b))); it never exceeds R/2 unless beta does. Never decreases in b
    or beta: b e^(-beta/b) - b e^(-R/(2b)) is the integral of e^(-x/b) over beta..R/2. 0 noise: beta.
    Discrete Laplace of the same scale has no larger expected absolute value (1/sinh(1/B) <= B).
    """
    noisy = np.where(scale > 0, scale, 1.0)
    with np.errstate(under="ignore"):
        noise = noisy * (np.exp(-bias / noisy) * -np.expm1(np.minimum((bias - reach / 2) / noisy, 0.0)))
    return np.minimum(bias + np.where(scale > 0, noise, 0.0), reach)
