"""The named conversions between kinds of privacy loss. Nothing else turns one kind into another.

A total in rho becomes (epsilon, delta), both exact (``ApproxDP``), by ``zcdp_to_approx`` where counts are
public, and where nothing about a vehicle is by ``gaussian_to_approx``: all that is charged there is Gaussian
(``measurement.measure``).

Every result is rounded upward: arithmetic in 80-digit decimals, a margin far above their rounding, then
up to a whole 10^-12. Each function converts the total of one user; convert once, after adding up. The upper
tail of the standard normal law has guaranteed bounds (``upper_tail``).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import exp, log, log1p

from trafficdp.errors import UsageError
from trafficdp.model.counts import NeighbouringRelation
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, ZCDP, PureDP, decimal_text

DIGITS = 80
CONTEXT = Context(prec=DIGITS, Emin=-(10**15), Emax=10**15)
"""Decimal's exp, ln and sqrt are correctly rounded: each operation errs by at most 10^-80 relatively."""
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
)
SERIES_UP_TO = 6
LEVELS = 400


def density(x: Decimal) -> Decimal:
    """Return the standard normal density at ``x``, e^(-x^2/2) / sqrt(2 pi)."""
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


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy: epsilon as an integer of 10^-12, delta as a fraction.

    They are not ordered: neither part alone says which is the stronger promise.
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


_MARGIN = Decimal(10) ** -40
LEAST_SD = 10**5
"""Of discrete Gaussian noise that ``gaussian_to_approx`` speaks of: in steps of its whole numbers."""
_WIDER, _DISCRETE = Decimal(10) ** -9, Decimal(10) ** -30


def pure_to_zcdp(loss: PureDP) -> ZCDP:
    """Return eps^2/2: eps-DP implies (eps^2/2)-zCDP (Bun, Steinke 2016, Proposition 1.4)."""
    return ZCDP.at_least(loss.exact**2 / 2)


def zcdp_to_approx_simple(loss: ZCDP, delta: str | float | Decimal | Fraction) -> ApproxDP:
    """Return (rho + 2 sqrt(rho ln(1/delta)), delta) (Bun, Steinke 2016, Proposition 1.3).

    Raises UsageError unless 10^-300 <= delta < 1.
    """
    exact = delta_of(delta)
    with localcontext(CONTEXT):
        rho, log_delta = _decimal(loss.exact), _decimal(exact).ln()
        return _approx(rho + 2 * (-rho * log_delta).sqrt(), exact)


def zcdp_to_approx(loss: ZCDP, delta: str | float | Decimal | Fraction) -> ApproxDP:
    """Return the least epsilon at ``delta`` that rho-zCDP implies by one Renyi order.

    rho-zCDP implies delta = exp((a-1)(a rho - eps)) (1-1/a)^a / (a-1) for every a > 1 (Canonne, Kamath,
    Steinke 2020, Proposition 12), so eps = a rho + (ln(1/delta) - ln a)/(a-1) + ln(1-1/a). Every a gives a
    true promise; the best one is searched in floats and then used exactly. Raises UsageError unless 10^-300
    <= delta < 1.
    """
    exact = delta_of(delta)
    if loss.pico == 0:
        return ApproxDP(0, exact)
    order = _best_order(float(loss.exact), log(exact.denominator) - log(exact.numerator))
    with localcontext(CONTEXT):
        a = 1 + Decimal(order)
        rho, log_delta = _decimal(loss.exact), _decimal(exact).ln()
        epsilon = a * rho - (log_delta + a.ln()) / (a - 1) + (1 - 1 / a).ln()
        tight = _approx(epsilon, exact)
    # the simple formula never wins; the search might stop early
    return min(tight, zcdp_to_approx_simple(loss, exact), key=lambda approx: approx.pico)


def gaussian_to_approx(loss: ZCDP, delta: str | float | Decimal | Fraction) -> ApproxDP:
    """Return the epsilon at ``delta`` when all of ``loss`` is Gaussian noise, continuous or discrete.

    **Theorem.** Every step k, chosen by what was drawn before it, adds independent discrete Gaussian noise of
    sd s_k >= LEAST_SD to sums of whole numbers that one vehicle moves by z_k, |z_k|_2 <= D_k; or continuous
    noise of any sd. If sum D_k^2/(2 s_k^2) <= rho whatever is drawn, and at most 10^40 numbers are, then
    everything computed from them is (eps, delta)-private for delta = (1 + 10^-30) delta_mu(eps - 10^-30),
        mu^2 = 2 rho (1 + 10^-9),    delta_mu(eps) = Q(eps/mu - mu/2) - e^eps Q(eps/mu + mu/2).
    *Proof.* (a) Let R(x) be the whole number k with probability proportional to exp(-(k-x)^2/(2 r^2)), r = 3.
    By Poisson summation these weights add up to r sqrt(2 pi) (1 + 2 sum_(j>=1) exp(-2 pi^2 r^2 j^2)
    cos(2 pi j x)). So R(z + N(0, s^2 - r^2)) is k with the density of N(z, s^2) at k, but for a factor within
    1 +- 2.1 exp(-2 pi^2 r^2); and so, by the same formula with s for r, is the discrete Gaussian around a
    whole number z, but for a smaller one. The ratio of both probabilities is within 1 +- e, with
    e = 4 exp(-2 pi^2 r^2) < 10^-76.
    (b) So a step is, but for that factor, computed from continuous noise of variance s^2 - 9. In units of its
    sd the sums move by m_k, |m_k|^2 <= (D_k^2/s_k^2)(1 + 10^-9), as 9/(s^2 - 9) < 10^-9.
    (c) Add one last continuous step that makes sum |m_k|^2 = mu^2, whatever was drawn. Where the vehicle is
    absent, the log of the ratio of both densities is S - mu^2/2, S = sum m_k.x_k, x_k standard normal given
    the past, m_k fixed by it. E[exp(i t m_k.x_k + t^2 |m_k|^2/2) | past] = 1, so E exp(i t S) =
    exp(-t^2 mu^2/2): S is N(0, mu^2), as for one Gaussian of sensitivity mu, and with the vehicle likewise.
    Its delta is delta_mu (Balle, Wang 2018, Theorem 8). This is the composition of Gaussian differential
    privacy (Dong, Roth, Su 2022), with losses chosen as one goes (Smith, Thakurta 2022).
    (d) 10^40 factors of (a) are within 1 +- h, h < 10^-35: P(E) <= (1+h) (e^(eps') Q(E)/(1-h) +
    delta_mu(eps')); take eps' = eps - 10^-30. QED

    delta_mu falls in eps; with e^eps density(eps/mu + mu/2) = density(eps/mu - mu/2) nothing overflows.
    NOT for any other rho-zCDP mechanism. Raises UsageError unless 10^-300 <= delta < 1.
    """
    exact = delta_of(delta)
    if loss.pico == 0:
        return ApproxDP(0, exact)
    # true of discrete Gaussian noise anyway
    low, high = -1, zcdp_to_approx(loss, exact).pico
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _keeps_to(loss, middle, exact) else (middle, high)
    return ApproxDP(high, exact)


@lru_cache(maxsize=1_024, typed=True)
def rho_to_approx(
    loss: ZCDP, delta: str | float | Decimal | Fraction, relation: NeighbouringRelation
) -> ApproxDP:
    """Return the (epsilon, delta) guarantee of a total ``loss`` of rho, by the best theorem for ``relation``.

    Under ADD_OR_REMOVE_USER all noise is Gaussian (``gaussian_to_approx``); else ``zcdp_to_approx``.
    """
    return (gaussian_to_approx if relation.hides_presence else zcdp_to_approx)(loss, delta)


@lru_cache(maxsize=1_024, typed=True)
def approx_to_rho(target: ApproxDP, relation: NeighbouringRelation) -> ZCDP:
    """Return the largest rho whose ``rho_to_approx`` at the target's delta stays within its epsilon.

    Raises UsageError when delta is 0 or no rho of at least 10^-12 fits.
    """

    def fits(pico: int) -> bool:
        if relation.hides_presence:
            return _keeps_to(ZCDP(pico), target.pico, target.delta)
        return zcdp_to_approx(ZCDP(pico), target.delta).pico <= target.pico

    delta_of(target.delta)
    low, high = 0, LARGEST_LOSS
    if not fits(1):
        raise UsageError(
            "no zCDP budget fits", got=f"(epsilon, delta) = {target}", expected="a larger epsilon or delta"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return ZCDP(low)


def _keeps_to(loss: ZCDP, pico: int, delta: Fraction) -> bool:
    """Whether ``loss``, all of it Gaussian, is within ``pico`` 10^-12 of epsilon at ``delta``."""
    with localcontext(CONTEXT):
        mu, epsilon = (2 * _decimal(loss.exact) * (1 + _WIDER)).sqrt(), Decimal(pico) / PICO - _DISCRETE
        return _gaussian_delta(mu, epsilon) * (1 + _DISCRETE) <= _decimal(delta)


def _gaussian_delta(mu: Decimal, epsilon: Decimal) -> Decimal:
    """Upper bound of delta_mu(eps)."""
    with localcontext(CONTEXT):
        near = epsilon / mu - mu / 2
        return upper_tail(near)[1] - density(near) * mills_ratio(near + mu)[0] * (1 - _MARGIN)


def _best_order(rho: float, log_inverse_delta: float) -> float:
    """a - 1 for the order a that nearly minimises ``zcdp_to_approx``'s epsilon (convex in 1/(a-1))."""

    def epsilon(log_excess: float) -> float:
        excess = exp(log_excess)
        a = 1 + excess
        return a * rho + (log_inverse_delta - log1p(excess)) / excess - log1p(1 / excess)

    low, high = -35.0, 35.0
    grid = [low + (high - low) * i / 280 for i in range(281)]
    best = min(range(281), key=lambda i: epsilon(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 280)]
    for _ in range(80):
        left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
        if epsilon(left) <= epsilon(right):
            high = right
        else:
            low = left
    return exp((low + high) / 2)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _approx(epsilon: Decimal, delta: Fraction) -> ApproxDP:
    """``epsilon`` plus a margin, up to a whole 10^-12."""
    padded = max(epsilon, Decimal(0)) + (abs(epsilon) + 1) * _MARGIN
    return ApproxDP(int((padded * PICO).to_integral_value(rounding="ROUND_CEILING")), delta)
