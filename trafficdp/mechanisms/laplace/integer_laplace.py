"""Laplace noise of an epsilon a bin on integer statistics, and what it costs every pair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.counts import Counts
from trafficdp.noise.secure import LARGEST_SCALE, group_scales
from trafficdp.privacy.loss import CHARGE_STEP, loss_upper_bound, sum_per_user, to_pico

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
    """Return scales of discrete Laplace noise, at least sensitivity / epsilon; 0 for infinite epsilon.

    Grouped to few distinct values by rounding up. Raises UsageError for a scale above LARGEST_SCALE.
    """
    return group_scales(least_scale(sensitivity, epsilon))


def least_scale(sensitivity: FloatArray | IntArray, epsilon: FloatArray) -> FloatArray:
    """Return what ``laplace_scale`` is never below, whichever scales are drawn together.

    A loss that is charged before the sensitivities that will be drawn with are known must be by these.
    Raises UsageError for a scale above LARGEST_SCALE.
    """
    with np.errstate(over="ignore"):
        scale = np.asarray(sensitivity, dtype=np.float64) / epsilon * (1 + HEADROOM)
    if not bool(np.all(scale <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"a scale of {float(np.max(scale)):.3g} steps",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    return scale


def choice_scale(influence: IntArray, epsilon: FloatArray) -> FloatArray:
    """Return the scale of an exponential mechanism that costs ``epsilon``: 2 c / epsilon or a little more.

    ``influence`` c is the most that one user changes a cost (shape (G,)). Infinite epsilon: 0.
    """
    return np.asarray(2.0 * influence / epsilon * (1 + HEADROOM), dtype=np.float64)


def choice_loss(influence: IntArray, scale: FloatArray) -> FloatArray:
    """Return an upper bound of 2 c / scale: the loss of every visitor of the bin, shape (G,)."""
    return loss_upper_bound(2.0 * influence.astype(np.float64), scale)


def laplace_loss(sensitivity: IntArray, scale: FloatArray) -> FloatArray:
    """Return an upper bound of sensitivity / scale of every pair, both of shape (P,)."""
    return loss_upper_bound(sensitivity.astype(np.float64), scale)


def charge(counts: Counts, loss: FloatArray) -> IntArray:
    """Return every user's loss in pico-epsilons from those of its pairs (upper bounds, shape (P,)).

    Pairs are rounded up to whole pico-epsilons and a user's sum to CHARGE_STEP; bins hold disjoint
    samples, so a user's losses add (Theorem A of the methods).
    """
    pico = to_pico(loss)
    total = sum_per_user(pico, counts.user_index, counts.users)
    return -(-total // CHARGE_STEP) * CHARGE_STEP
