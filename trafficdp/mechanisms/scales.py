"""From an epsilon a bin to the scale of its noise, in whole steps; infinite epsilons have scale 0."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model import Counts
from trafficdp.noise.secure import LARGEST_SCALE, group_scales

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
HEADROOM = 2.0**-38
"""Scales are this much larger than asked, so that losses, each rounded up, stay within what was asked."""


def checked_epsilon(epsilon: FloatArray, counts: Counts) -> FloatArray:
    """Return ``epsilon`` (shape (G,)); raise UsageError unless every bin's is above 0 (infinity allowed)."""
    if epsilon.shape != (counts.bins,) or not bool(np.all(epsilon > 0)):
        raise UsageError("epsilon is not positive", expected="a number above 0 for every bin")
    return epsilon


def laplace_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return scales of discrete Laplace noise, at least sensitivity / epsilon; shapes (G,).

    Grouped to few distinct values by rounding up. Raises UsageError for a scale above LARGEST_SCALE.
    """
    return group_scales(_scale(sensitivity, epsilon, HEADROOM))


def dearest_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return scales whose price no ``laplace_scale`` of another sensitivity exceeds, rounding included.

    For charges that are known before the sensitivities that noise will be drawn for. Errors as there.
    """
    return _scale(sensitivity, epsilon, HEADROOM / 2)


def choice_scale(change: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return the scale of an exponential mechanism that costs ``epsilon``: 2 c / epsilon or a little more.

    ``change`` is c, the most that one user changes a score; shapes (G,).
    """
    return np.asarray(2.0 * change / epsilon * (1 + HEADROOM), dtype=np.float64)


def _scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray, headroom: float) -> FloatArray:
    with np.errstate(over="ignore"):
        scale = np.asarray(sensitivity, dtype=np.float64) / epsilon * (1 + headroom)
    if not bool(np.all(scale <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"a scale of {float(np.max(scale)):.3g} steps",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return scale
