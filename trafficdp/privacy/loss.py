"""Privacy loss in exact integers of 10^-12 epsilon.

Every loss that is claimed or charged is an upper bound of the exact one: floating-point steps are each
moved up by one unit in the last place, and the result is rounded up to a whole pico-epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError

PICO = 10**12
"""Pico-epsilons in one epsilon."""

LARGEST_LOSS = 10**18
"""More than this many pico-epsilons (one million epsilon) is refused as meaningless."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class PureDP:
    """Pure epsilon-differential privacy: the loss as an integer number of 10^-12 epsilon."""

    pico: int

    @classmethod
    def of(cls, epsilon: str | float | int | Decimal | Fraction) -> PureDP:
        """Return the largest loss that does not exceed ``epsilon``, read as the decimal it is written as.

        Raises UsageError unless epsilon is a finite number above 0 and at most one million.
        """
        try:
            exact = epsilon if isinstance(epsilon, Fraction) else Fraction(str(epsilon))
        except (ValueError, ZeroDivisionError) as error:
            raise UsageError(
                "epsilon is not a number", got=f"epsilon={epsilon!r}", expected="a number above 0"
            ) from error
        pico = int(exact * PICO)
        if not 0 < pico <= LARGEST_LOSS:
            raise UsageError(
                "epsilon is out of range",
                got=f"epsilon={epsilon!r}",
                expected="a number above 0 and at most 1,000,000",
            )
        return cls(pico)

    @property
    def epsilon(self) -> Fraction:
        """The loss as an exact fraction."""
        return Fraction(self.pico, PICO)

    def __add__(self, other: PureDP) -> PureDP:
        # kinds of loss never add up without a named conversion
        if not isinstance(other, PureDP):
            return NotImplemented
        return PureDP(self.pico + other.pico)

    def __str__(self) -> str:
        return decimal_text(self.pico)


def decimal_text(pico: int) -> str:
    """Return ``pico`` * 10^-12 as a plain decimal number, exactly: 4500000000000 is "4.5"."""
    return format(Decimal(pico).scaleb(-12).normalize(), "f")


def round_up(value: FloatArray) -> FloatArray:
    """Return the next larger floats: at least the exact result of one correctly rounded operation."""
    return np.nextafter(value, np.inf)


def loss_upper_bound(sensitivity: FloatArray, scale: FloatArray) -> FloatArray:
    """Return floats >= sensitivity / scale (0 where the sensitivity is 0, whatever the scale)."""
    safe = np.where(sensitivity == 0, 1.0, scale)
    return np.where(sensitivity == 0, 0.0, round_up(sensitivity / safe))


def to_pico(loss: FloatArray) -> IntArray:
    """Return whole pico-epsilons, at least ``loss`` (a float epsilon >= 0 that is already an upper bound).

    Raises UsageError when a loss exceeds LARGEST_LOSS or is not a number.
    """
    scaled = np.where(loss == 0, 0.0, np.ceil(round_up(loss * float(PICO))))
    if scaled.size and not float(scaled.max()) <= float(LARGEST_LOSS):
        raise UsageError(
            "privacy loss is too large to account for",
            expected="at most one million epsilon in one bin",
            todo="ask for more noise",
        )
    return scaled.astype(np.int64)


def sum_per_user(pico: IntArray, user_index: IntArray, users: int) -> IntArray:
    """Return for every user the exact sum of its losses (basic composition; Theorem A)."""
    total = np.zeros(users, dtype=np.int64)
    np.add.at(total, user_index, pico)
    if users and (int(total.max(initial=0)) > LARGEST_LOSS or int(total.min(initial=0)) < 0):
        raise UsageError("privacy loss is too large to account for", expected="at most one million epsilon")
    return total
