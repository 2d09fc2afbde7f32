"""Tails of Laplace noise: from a level to the half width of an interval."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp._validate import in_range


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


def half_width_with_bias(
    scale: npt.NDArray[np.float64], level: float, bias: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return h = b ln(cosh(beta/b) / a), a = 1 - level: the half width for continuous Laplace and a bias.

    P(|beta + Z| > h) = a exactly at the worst bias beta, and h >= beta as long as a <= 1/2; shorter than
    beta + b ln(1/a). The bias for scale 0.
    Raises UsageError unless 1/2 <= level < 1.
    """
    in_range(0.5 - 1e-12, 1, level=level)
    safe = np.where(scale > 0, scale, 1.0)
    ratio = bias / safe
    log_cosh = np.logaddexp(ratio, -ratio) - np.log(2.0)
    exact = safe * (log_cosh - np.log1p(-level))
    return np.where(scale > 0, np.maximum(exact, bias), bias)
