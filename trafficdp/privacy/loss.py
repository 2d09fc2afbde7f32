"""Privacy loss of either kind in exact integers: 10^-12 epsilon, or 10^-12 rho.

Every loss that is claimed or charged is an upper bound of the exact one: floating-point steps are each
moved up by one unit in the last place, and the result is rounded up to a whole 10^-12 ("pico").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.model.counts import Assumption, NeighbouringRelation
from trafficdp.model.json_codec import Coded
from trafficdp.model.speed import ContributionBound, Statistic


class LossKind(StrEnum):
    """What a store counts in, for ever: PURE: epsilon; ZCDP: rho of zero-concentrated privacy."""

    quantity: str
    """What a number of the kind is called: epsilon or rho."""
    pico_key: str
    """The field of a charge in the ledger that holds its largest loss."""

    PURE = "pure"
    ZCDP = "zcdp"

    def __init__(self, value: str) -> None:
        self.quantity = "epsilon" if value == "pure" else "rho"
        self.pico_key = f"{self.quantity}_pico"


PICO = 10**12
"""So many of the integers are a loss of 1."""

LARGEST_LOSS = 10**18
"""More than this (an epsilon or a rho of one million) is refused as meaningless."""

CHARGE_STEP = 1_000
"""A user's loss over a whole release is rounded up to this many pico-epsilons (10^-9): a request for
epsilon 6 is then charged as 6, not as 5.999999999999."""


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """A privacy loss as an integer number of 10^-12 of its kind. Adds up and compares with its kind only."""

    kind: ClassVar[LossKind]
    pico: int

    @classmethod
    def of(cls, number: str | float | int | Decimal | Fraction) -> Self:
        """Return the largest loss that does not exceed ``number``, taken as the decimal it is written as.

        Raises UsageError unless it is a number from 10^-12 to one million.
        """
        what = cls.kind.quantity
        if isinstance(number, int | Fraction) and not isinstance(number, bool):
            # beyond the range all the same, and safe to print
            exact = min(max(Fraction(number), Fraction(-1)), Fraction(PICO))
        else:
            text = str(number)
            try:
                # as a fraction, "1e999999999" would fill the memory
                magnitude = 0 if "/" in text else Decimal(text).adjusted()
                exact = Fraction(text) if -30 < magnitude < 20 else Fraction(0 if magnitude < 0 else PICO)
            except (ValueError, ArithmeticError) as error:
                raise UsageError(
                    f"{what} is not a number", got=f"{what}={text:.40}", expected="a number above 0"
                ) from error
        pico = int(exact * PICO)
        if not 0 < pico <= LARGEST_LOSS:
            raise UsageError(
                f"{what} is out of range",
                got=f"{what}={float(exact):.6g}" if isinstance(number, int) else f"{what}={number!s:.40}",
                expected="a number from 10^-12 to 1,000,000",
            )
        return cls(pico)

    @classmethod
    def at_least(cls, exact: Fraction) -> Self:
        """Return the least loss of whole 10^-12 that is no smaller than ``exact``, for claims rounded up.

        Raises UsageError unless it is from 0 to one million.
        """
        pico = -(-exact.numerator * PICO // exact.denominator)
        if not 0 <= pico <= LARGEST_LOSS:
            raise UsageError(
                "privacy loss is too large to account for",
                expected=f"{cls.kind.quantity} of at most one million",
            )
        return cls(pico)

    @property
    def exact(self) -> Fraction:
        """The loss as an exact fraction."""
        return Fraction(self.pico, PICO)

    @property
    def number(self) -> float:
        """The loss as the float that ``of`` reads back as this loss, or the next smaller one."""
        nearest = float(self.exact)
        return nearest if Fraction(str(nearest)) <= self.exact else float(np.nextafter(nearest, 0.0))

    @property
    def chargeable(self) -> Self:
        """The largest loss up to this one that can be charged: a multiple of 10^-9 of epsilon.

        A rho as it is.
        """
        step = CHARGE_STEP if self.kind is LossKind.PURE else 1
        return type(self)(self.pico // step * step)

    def __add__(self, other: Self) -> Self:
        # kinds of loss never add up without a named conversion (privacy.conversion)
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(self.pico + other.pico)

    def __str__(self) -> str:
        return decimal_text(self.pico)


class PureDP(Loss):
    """Epsilon of pure differential privacy."""

    __slots__ = ()
    kind = LossKind.PURE


class ZCDP(Loss):
    """Rho of zero-concentrated differential privacy.

    A release is rho-zCDP when for every pair of neighbours and every order a > 1 the Renyi divergence of its
    outcomes is at most a * rho (Bun, Steinke 2016). Losses of one user add up, chosen adaptively or not.
    """

    __slots__ = ()
    kind = LossKind.ZCDP


LOSSES: dict[LossKind, type[Loss]] = {LossKind.PURE: PureDP, LossKind.ZCDP: ZCDP}
"""The losses of each kind: ``LOSSES[kind](pico)``."""
_LOSS_OF = {kind.quantity: loss_of for kind, loss_of in LOSSES.items()}


def _read_loss(text: str) -> Loss:
    quantity, _, number = str(text).partition(" ")
    return _LOSS_OF[quantity].of(number)


LOSS_TEXT = Coded(lambda loss: f"{loss.kind.quantity} {loss}", _read_loss)
"""A loss as exact text, such as "epsilon 4.5"."""


def rounded_up(loss: float) -> str:
    """Return ``loss`` (above 0) rounded up to three significant digits, as decimal text without exponent."""
    exponent = math.floor(math.log10(loss)) - 2
    steps = math.ceil(loss / 10.0**exponent * (1 - 1e-12))
    text = f"{steps * 10**exponent:d}" if exponent >= 0 else f"{steps / 10**-exponent:.{-exponent}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def decimal_text(pico: int) -> str:
    """Return ``pico`` * 10^-12 as a plain decimal number, exactly: 4500000000000 is "4.5"."""
    whole, rest = divmod(abs(pico), PICO)
    text = f"{whole}.{rest:012d}".rstrip("0").rstrip(".")
    return f"-{text}" if pico < 0 else text


def exact_text(value: Fraction) -> str:
    """Return ``value`` as a plain decimal when it is one of at most 12 digits, else as a ratio "a/b"."""
    scaled = value * 10**12
    if scaled.denominator != 1:
        return f"{value.numerator}/{value.denominator}"
    return decimal_text(int(scaled))


def round_up(value: FloatArray) -> FloatArray:
    """Return the next larger float of every entry of ``value``, a bound on one correctly rounded
    operation.
    """
    return np.nextafter(value, np.inf)


def loss_upper_bound(sensitivity: FloatArray, scale: FloatArray) -> FloatArray:
    """Return floats >= sensitivity / scale (0 where the sensitivity is 0, whatever the scale).

    Infinite where a sensitivity meets no noise: a scale that is 0, negative or not a number.
    """
    noisy = scale > 0
    with np.errstate(over="ignore"):
        bound = np.nextafter(sensitivity / np.where(noisy, scale, 1.0), np.inf)
    return np.where(sensitivity == 0, 0.0, np.where(noisy, bound, np.inf))


def to_pico(loss: FloatArray) -> IntArray:
    """Return ``loss`` (a float epsilon >= 0 that is already an upper bound) as whole 10^-12, rounded up.

    Raises UsageError when a loss exceeds LARGEST_LOSS or is not a number.
    """
    with np.errstate(over="ignore"):
        scaled = np.where(loss == 0, 0.0, np.ceil(np.nextafter(loss * float(PICO), np.inf)))
    if scaled.size and not float(scaled.max()) <= float(LARGEST_LOSS):
        raise UsageError(
            "privacy loss is too large to account for",
            expected="at most one million epsilon in one bin",
            todo="ask for more noise",
        )
    return scaled.astype(np.int64)


def sum_per_user(pico: IntArray, user_index: IntArray, users: int) -> IntArray:
    """Return the exact sum of the privacy losses of every user, shape (users,), in 10^-12 epsilon.

    ``pico`` holds one loss an entry, in the same unit, and ``user_index`` whose it is, in any order.
    Theorem A: let query t have Laplace noise of scale b_t, and let the values of user l move it by at most
    D[t, l]. If sum_t D[t, l] / b_t <= eps_l whatever was answered before, then data sets that differ in the
    values of user l have output densities within a factor e^eps_l, adaptively chosen queries and scales
    included. Losses of one user therefore add, over bins, statistics and releases; different users' never do.

    Raises UsageError for a negative loss and when a user's sum exceeds LARGEST_LOSS.
    """
    if int(pico.min(initial=0)) < 0:
        raise UsageError("a privacy loss cannot be negative")
    # the sum in floats, off by far less than half: whether the one in 64 bits could wrap around
    rough = np.bincount(user_index, weights=pico, minlength=users)
    total = np.zeros(users, dtype=np.int64)
    if float(rough.max(initial=0.0)) <= 2.0 * LARGEST_LOSS:
        np.add.at(total, user_index, pico)
        if int(total.max(initial=0)) <= LARGEST_LOSS:
            return total
    raise UsageError("privacy loss is too large to account for", expected="at most one million epsilon")


# A privacy event: what a mechanism promises, stated without values.


@dataclass(frozen=True)
class PrivacyEvent:
    """One joint release by one mechanism.

    ``loss_per_user`` (10^-12 of the ``kind`` of loss, shape (users,)) is each vehicle's own guarantee;
    ``loss`` is the largest of them. ``sensitivity`` may give, a statistic, that of every bin (shape (G,), the
    largest over its users, in the statistic's unit). ``idealised`` marks noise without an exact sampler.
    """

    mechanism: str
    statistics: tuple[Statistic, ...]
    relation: NeighbouringRelation
    unit: str
    bins: int
    bound: ContributionBound
    assumptions: tuple[Assumption, ...]
    loss_per_user: IntArray
    sensitivity: Mapping[Statistic, FloatArray] = field(default_factory=dict)
    idealised: bool = False
    kind: LossKind = LossKind.PURE

    @property
    def loss(self) -> Loss:
        """The guarantee for every vehicle: the largest of all vehicles' losses."""
        return LOSSES[self.kind](int(self.loss_per_user.max(initial=0)))
