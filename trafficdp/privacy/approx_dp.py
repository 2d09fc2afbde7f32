"""Approximate differential privacy: (epsilon, delta), both exact."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from trafficdp.errors import UsageError
from trafficdp.privacy.loss import PICO, decimal_text


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy: epsilon as an integer of 10^-12, delta as a fraction.

    Two losses of one user add by basic composition: both parts add. They are not ordered: neither part
    alone says which is the stronger promise.
    Raises UsageError unless pico >= 0 and 0 <= delta <= 1.
    """

    pico: int
    delta: Fraction

    def __post_init__(self) -> None:
        if self.pico < 0 or not 0 <= self.delta <= 1:
            raise UsageError(
                "a privacy loss is out of range",
                got=f"delta={float(self.delta):.6g}",
                expected="epsilon >= 0 and 0 <= delta <= 1",
            )

    @property
    def epsilon(self) -> Fraction:
        """Epsilon as an exact fraction."""
        return Fraction(self.pico, PICO)

    def __add__(self, other: ApproxDP) -> ApproxDP:
        # kinds of loss never add up without a named conversion (privacy.conversion)
        if not isinstance(other, ApproxDP):
            return NotImplemented
        return ApproxDP(self.pico + other.pico, min(Fraction(1), self.delta + other.delta))

    def __str__(self) -> str:
        return f"({decimal_text(self.pico)}, {float(self.delta):.6g})"


def delta_of(delta: str | float | Decimal | Fraction) -> Fraction:
    """Return ``delta`` as the decimal it is written as.

    Raises UsageError unless 10^-300 <= delta < 1.
    """
    try:
        text = str(delta)
        magnitude = 0 if "/" in text else Decimal(text).adjusted()
        exact = Fraction(text) if -301 <= magnitude < 1 else Fraction(0)
    except (ValueError, ArithmeticError):
        exact = Fraction(0)
    if not Fraction(1, 10**300) <= exact < 1:
        raise UsageError(
            "delta is out of range", got=f"delta={delta!s:.40}", expected="a number from 10^-300 to below 1"
        )
    return exact
