"""The named conversions between kinds of privacy loss. Nothing else turns one kind into another.

Every result is rounded upward: arithmetic in 80-digit decimals, a margin far above their rounding, then
up to a whole 10^-12. Each function converts the total of one user; convert once, after adding up.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, log, log1p

from trafficdp.errors import UsageError
from trafficdp.privacy.approx_dp import ApproxDP, delta_of
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, ZCDP, PureDP
from trafficdp.privacy.normal_tail import CONTEXT, density, mills_ratio, upper_tail

_MARGIN = Decimal(10) ** -40


def pure_to_zcdp(loss: PureDP) -> ZCDP:
    """Return eps^2/2: eps-DP implies (eps^2/2)-zCDP (Bun, Steinke 2016, Proposition 1.4)."""
    return ZCDP.at_least(loss.epsilon**2 / 2)


def zcdp_to_approx_simple(loss: ZCDP, delta: str | float | Decimal | Fraction) -> ApproxDP:
    """Return (rho + 2 sqrt(rho ln(1/delta)), delta) (Bun, Steinke 2016, Proposition 1.3).

    Raises UsageError unless 10^-300 <= delta < 1.
    """
    exact = delta_of(delta)
    with localcontext(CONTEXT):
        rho, log_delta = _decimal(loss.rho), _decimal(exact).ln()
        return _approx(rho + 2 * (-rho * log_delta).sqrt(), exact)


def zcdp_to_approx(loss: ZCDP, delta: str | float | Decimal | Fraction) -> ApproxDP:
    """Return the least epsilon that rho-zCDP implies at ``delta`` by one Renyi order.

    rho-zCDP implies delta = exp((a-1)(a rho - eps)) (1-1/a)^a / (a-1) for every a > 1 (Canonne, Kamath,
    Steinke 2020, Proposition 12), so
        eps = a rho + (ln(1/delta) - ln a)/(a-1) + ln(1-1/a).
    Every a gives a true promise; the best one is searched in floats and then used exactly.
    Raises UsageError unless 10^-300 <= delta < 1.
    """
    exact = delta_of(delta)
    if loss.pico == 0:
        return ApproxDP(0, exact)
    order = _best_order(float(loss.rho), -_log(exact))
    with localcontext(CONTEXT):
        a = 1 + Decimal(order)
        rho, log_delta = _decimal(loss.rho), _decimal(exact).ln()
        epsilon = a * rho - (log_delta + a.ln()) / (a - 1) + (1 - 1 / a).ln()
        tight = _approx(epsilon, exact)
    # the simple formula never wins; the search might stop early
    return min(tight, zcdp_to_approx_simple(loss, exact), key=lambda approx: approx.pico)


def gaussian_to_approx(loss: ZCDP, delta: str | float | Decimal | Fraction) -> ApproxDP:
    """Return the exact epsilon at ``delta`` when all of ``loss`` is continuous Gaussian noise.

    A Gaussian (adaptively many of them too: their privacy loss is that of one) with sum of squared
    sensitivity over variance mu^2 is (mu^2/2)-zCDP and
        delta(eps) = Q(eps/mu - mu/2) - e^eps Q(eps/mu + mu/2)      (Balle, Wang 2018, Theorem 8),
    decreasing in eps. With e^eps density(eps/mu + mu/2) = density(eps/mu - mu/2) nothing overflows.
    NOT for discrete Gaussian noise, whose delta differs, nor for any other rho-zCDP mechanism.
    Raises UsageError unless 10^-300 <= delta < 1.
    """
    exact = delta_of(delta)
    low, high = -1, zcdp_to_approx(loss, exact).pico
    with localcontext(CONTEXT):
        mu, target = (2 * _decimal(loss.rho)).sqrt(), _decimal(exact)
        if loss.pico == 0:
            return ApproxDP(0, exact)
        while high - low > 1:
            middle = (low + high) // 2
            if _gaussian_delta(mu, Decimal(middle) / PICO) * (1 + _MARGIN) <= target:
                high = middle
            else:
                low = middle
    return ApproxDP(high, exact)


def approx_to_zcdp_budget(target: ApproxDP) -> ZCDP:
    """Return the largest rho whose ``zcdp_to_approx`` at the target's delta stays within its epsilon.

    Raises UsageError when delta is 0 or no rho of at least 10^-12 fits.
    """
    low, high = 0, LARGEST_LOSS
    if zcdp_to_approx(ZCDP(1), target.delta).pico > target.pico:
        raise UsageError(
            "no zCDP budget fits", got=f"(epsilon, delta) = {target}", expected="a larger epsilon or delta"
        )
    while high - low > 1:
        middle = (low + high) // 2
        if zcdp_to_approx(ZCDP(middle), target.delta).pico <= target.pico:
            low = middle
        else:
            high = middle
    return ZCDP(low)


def _gaussian_delta(mu: Decimal, epsilon: Decimal) -> Decimal:
    """Upper bound of delta(eps)."""
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


def _log(value: Fraction) -> float:
    return log(value.numerator) - log(value.denominator)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _approx(epsilon: Decimal, delta: Fraction) -> ApproxDP:
    """``epsilon`` plus a margin, up to a whole 10^-12."""
    padded = max(epsilon, Decimal(0)) + (abs(epsilon) + 1) * _MARGIN
    return ApproxDP(int((padded * PICO).to_integral_value(rounding="ROUND_CEILING")), delta)
