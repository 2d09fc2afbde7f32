"""What a mechanism is given, so that no vehicle loses more than the total. From counts alone.

One that counts in rho is given all of it, for all bins together. One of pure epsilon is asked for its event
at ``k * shape`` (shape (G,), epsilons a bin), and k is raised until the largest exact loss of a vehicle is
the total. Losses are homogeneous in k but for rounding, and but for
mechanisms whose clipping depends on epsilon: so k is first guessed by proportion, then bracketed. What is
returned never costs more than the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.protocol import RANGE, Mechanism, event_of
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import Loss, LossKind

FloatArray = npt.NDArray[np.float64]
CLOSE = 1e-6
"""A loss within this share of the total is as good as the total."""
ATTEMPTS = 30
BRACKET = 1e-4
"""Where the loss jumps over the total, the search ends when the factor is known this well."""
LARGEST_EPSILON = RANGE[LossKind.PURE][1]


class Split(StrEnum):
    """How bins compare: SAME_EPSILON gives all the same epsilon (the papers' way), EQUAL_NOISE each in
    proportion to its sensitivity, so that all get the same noise.
    """

    SAME_EPSILON = "same_epsilon"
    EQUAL_NOISE = "equal_noise"


@dataclass(frozen=True)
class Fit:
    """What is ``given``, and the event that comes of it; ``event.loss`` is at most the total.

    An epsilon a bin, shape (G,), by ``split``; or one rho, shape (), which nobody splits (None).
    """

    split: Split | None
    given: FloatArray
    event: PrivacyEvent


def fit(
    mechanism: Mechanism,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    split: Split | None,
) -> Fit:
    """Return the largest epsilons of the shape of ``split`` whose exact loss is at most ``total``.

    Raises UsageError for a mechanism of another kind of loss, when nothing fits, and where the mechanism
    cannot draw its noise.
    """
    if mechanism.kind is not total.kind:
        raise UsageError(
            f"an event does not count in {total.kind.quantity}",
            got=mechanism.name,
            todo="convert its loss by name",
        )
    if total.kind is LossKind.ZCDP:
        rho = cast("FloatArray", np.float64(total.number))
        return Fit(None, rho, event_of(mechanism, counts, bound, statistic, rho))
    shape = np.ones(counts.bins)
    if split is Split.EQUAL_NOISE:
        shape = _equal_noise(fit(mechanism, counts, bound, statistic, total, Split.SAME_EPSILON))
    low: tuple[float, Fit] | None = None
    high: float | None = None
    # by the grid count of the papers no vehicle pays more than this
    factor = float(total.exact) / max(1, int(counts.bins_per_user.max(initial=0))) / float(shape.max())
    for _ in range(ATTEMPTS):
        epsilon = np.minimum(factor * shape, LARGEST_EPSILON)
        event = event_of(mechanism, counts, bound, statistic, epsilon)
        loss = event.loss.pico
        if loss <= total.pico:
            low = (factor, Fit(split, epsilon, event))
            if loss >= total.pico * (1 - CLOSE) or bool(np.all(epsilon == LARGEST_EPSILON)):
                break
        else:
            high = factor
        factor = _next(factor, loss, total.pico, None if low is None else low[0], high)
        if low is not None and high is not None and high <= low[0] * (1 + BRACKET):
            break
    if low is None:
        raise UsageError("no epsilon a bin fits the total", got=f"{mechanism.name} at epsilon={total}")
    return low[1]


def _next(factor: float, loss: int, target: int, low: float | None, high: float | None) -> float:
    """Return the next factor to try: by proportion where that stays inside the bracket, else its middle."""
    # a hair less, so that rounding losses up does not spoil it
    proportion = factor * 8 if loss == 0 else factor * (target / loss) * (1 - CLOSE / 8)
    if low is None:
        return min(proportion, factor / 2) if high is not None and proportion >= high else proportion
    if high is None:
        return max(proportion, low * (1 + CLOSE))
    return proportion if low < proportion < high else float(np.sqrt(low * high))


def _equal_noise(same: Fit) -> FloatArray:
    """Return the sensitivities at equal epsilons, relative to the largest; 0 only where nothing varies."""
    (own,) = same.event.sensitivity.values()
    largest = float(own.max(initial=0.0))
    if largest == 0:
        return np.ones_like(own)
    # an epsilon of 0 is none: a bin that cannot vary costs nothing, whatever it is given
    return np.maximum(own / largest, 2.0**-20)
