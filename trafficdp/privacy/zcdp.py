"""Zero-concentrated differential privacy (rho-zCDP), in exact integers of 10^-12 rho.

A release is rho-zCDP when for every pair of neighbours and every order a > 1 the Renyi divergence of its
outcomes is at most a * rho (Bun, Steinke 2016). Losses of one user add up, chosen adaptively or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from trafficdp.errors import UsageError
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, PureDP, decimal_text


@dataclass(frozen=True, slots=True, order=True)
class ZCDP:
    """Rho-zCDP: the loss as an integer number of 10^-12 rho. Adds up with its own kind only."""

    pico: int

    @classmethod
    def of(cls, rho: str | float | int | Decimal | Fraction) -> ZCDP:
        """Return the largest loss that does not exceed ``rho``, read as the decimal it is written as.

        Raises UsageError unless rho is a number from 10^-12 to one million.
        """
        try:
            return cls(PureDP.of(rho).pico)
        except UsageError as error:
            raise UsageError(
                "rho is out of range", got=f"rho={rho!s:.40}", expected="a number from 10^-12 to 1,000,000"
            ) from error

    @classmethod
    def at_least(cls, rho: Fraction) -> ZCDP:
        """Return the least loss that is no smaller than ``rho``: how a claim is rounded.

        Raises UsageError unless 0 <= rho <= one million.
        """
        pico = -(-rho.numerator * PICO // rho.denominator)
        if not 0 <= pico <= LARGEST_LOSS:
            raise UsageError(
                "privacy loss is too large to account for", expected="rho of at most one million"
            )
        return cls(pico)

    @property
    def rho(self) -> Fraction:
        """The loss as an exact fraction."""
        return Fraction(self.pico, PICO)

    @property
    def number(self) -> float:
        """The float that ``of`` reads as this loss, or as the next smaller one that a float can be."""
        nearest = float(self.rho)
        return nearest if Fraction(str(nearest)) <= self.rho else float(np.nextafter(nearest, 0.0))

    def __add__(self, other: ZCDP) -> ZCDP:
        # kinds of loss never add up without a named conversion (privacy.conversion)
        if not isinstance(other, ZCDP):
            return NotImplemented
        return ZCDP(self.pico + other.pico)

    def __str__(self) -> str:
        return decimal_text(self.pico)
