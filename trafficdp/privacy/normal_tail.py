"""The upper tail of the standard normal law with guaranteed bounds, in 80-digit decimals."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

DIGITS = 80
CONTEXT = Context(prec=DIGITS, Emin=-(10**15), Emax=10**15)
"""Decimal's exp, ln and sqrt are correctly rounded: each operation errs by at most 10^-80 relatively."""
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
)
SERIES_UP_TO = 6
LEVELS = 400


def density(x: Decimal) -> Decimal:
    """Return e^(-x^2/2) / sqrt(2 pi)."""
    with localcontext(CONTEXT):
        return (-x * x / 2).exp() / (2 * PI).sqrt()


def mills_ratio(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return (low, high) around Q(x) / density(x), Q the upper tail of the standard normal, for x >= 0.

    Up to SERIES_UP_TO by Q = 1/2 - density * (x + x^3/3 + x^5/15 + ...), all terms positive: Q(6) is about
    10^-9, so that 9 of the 80 digits cancel. Beyond by Laplace's continued fraction
    1/(x + 1/(x + 2/(x + 3/(x + ...)))), whose convergents lie below and above in turn.
    """
    with localcontext(CONTEXT):
        margin = Decimal(10) ** -60
        if x <= SERIES_UP_TO:
            term = total = x
            divisor = 1
            while term > Decimal(10) ** -(DIGITS + 5):
                divisor += 2
                term = term * x * x / divisor
                total += term
            ratio = Decimal("0.5") / density(x) - total
            return ratio * (1 - margin), ratio * (1 + margin)
        bounds = []
        for levels in (LEVELS, LEVELS + 1):
            tail = x
            for level in range(levels, 0, -1):
                tail = x + level / tail
            bounds.append(1 / tail)
        return min(bounds) * (1 - margin), max(bounds) * (1 + margin)


def upper_tail(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return (low, high) around Q(x) = P(N > x) for a standard normal N."""
    with localcontext(CONTEXT):
        low, high = mills_ratio(abs(x))
        height = density(x)
        margin = Decimal(10) ** -60
        low, high = low * height * (1 - margin), high * height * (1 + margin)
        return (low, high) if x >= 0 else (1 - high, 1 - low)
