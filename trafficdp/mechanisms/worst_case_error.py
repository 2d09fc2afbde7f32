"""Expected absolute error of a clipped noisy number at the worst truth, from bias and scale alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def clamped_laplace_error(scale: FloatArray, bias: FloatArray, reach: float) -> FloatArray:
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
