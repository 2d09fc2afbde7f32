"""Tails of discrete Laplace noise: from a level to the half width of an interval."""

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
    # one unit in the last place up, so that rounding never shortens an interval
    first_excluded = np.maximum(np.ceil(np.nextafter(beyond, np.inf)), 1.0)
    return np.where(scale > 0, first_excluded - 1.0, 0.0)
