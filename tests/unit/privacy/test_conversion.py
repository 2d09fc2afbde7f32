from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy import conversion
from trafficdp.privacy.conversion import (
    CONTEXT,
    ApproxDP,
    approx_to_rho,
    density,
    gaussian_to_approx,
    mills_ratio,
    pure_to_zcdp,
    upper_tail,
    zcdp_to_approx,
    zcdp_to_approx_simple,
)
from trafficdp.privacy.loss import ZCDP, PureDP

MILLIONTH = Fraction(1, 10**6)
VALUES = NeighbouringRelation.REPLACE_USER_VALUES


def test_pure_privacy_converts_exactly_and_upward():
    assert pure_to_zcdp(PureDP.of(1)).exact == Fraction(1, 2)
    # 10^-24/2 is far below the smallest unit, and still not free
    assert pure_to_zcdp(PureDP.of("1e-12")).pico == 1


@pytest.mark.parametrize("kind", [ZCDP.of(1), ApproxDP(1, MILLIONTH)])
def test_kinds_of_loss_do_not_add_up(kind):
    with pytest.raises(TypeError):
        kind + PureDP.of(1)
    with pytest.raises(TypeError):
        PureDP.of(1) + kind
    with pytest.raises(TypeError):
        ZCDP.of(1) + ApproxDP(1, MILLIONTH)


def test_losses_of_one_kind_add_up():
    assert ZCDP.of("0.1") + ZCDP.of("0.2") == ZCDP.of("0.3")


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.floats(1e-6, 1e3), st.floats(1e-12, 0.5))
def test_each_conversion_is_sharper_than_the_one_before(rho, delta):
    loss = ZCDP.of(rho)
    simple, tight = zcdp_to_approx_simple(loss, delta), zcdp_to_approx(loss, delta)
    assert gaussian_to_approx(loss, delta).pico <= tight.pico <= simple.pico


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(st.floats(1e-4, 50), st.floats(1e-10, 1e-2))
def test_more_loss_or_less_delta_costs_more_epsilon(rho, delta):
    for convert in (zcdp_to_approx_simple, zcdp_to_approx, gaussian_to_approx):
        here = convert(ZCDP.of(rho), delta).pico
        assert convert(ZCDP.of(rho * 1.01), delta).pico >= here
        assert convert(ZCDP.of(rho), delta * 0.9).pico >= here


@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "16"])
@pytest.mark.parametrize("delta", [MILLIONTH, Fraction(1, 10**12)])
def test_the_budget_is_the_largest_that_fits(epsilon, delta):
    target = ApproxDP(PureDP.of(epsilon).pico, delta)
    budget = approx_to_rho(target, VALUES)
    assert zcdp_to_approx(budget, delta).pico <= target.pico
    assert zcdp_to_approx(ZCDP(budget.pico + max(1, budget.pico // 10**6)), delta).pico > target.pico


@pytest.mark.parametrize("rho", ["0.001", "0.3", "2"])
def test_what_a_loss_costs_buys_that_loss_again(rho):
    loss = ZCDP.of(rho)
    assert approx_to_rho(zcdp_to_approx(loss, MILLIONTH), VALUES).pico >= loss.pico


@pytest.mark.parametrize(("epsilon", "rho"), [("0.5", "0.125"), ("2", "2"), ("3", "4.5")])
def test_rho_grows_with_the_square_of_epsilon(epsilon, rho):
    assert pure_to_zcdp(PureDP.of(epsilon)) == ZCDP.of(rho)


@pytest.mark.parametrize("rho", [0.001, 0.1, 2.0, 50.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.3])
def test_epsilon_is_the_least_over_all_renyi_orders_and_that_of_the_exact_gaussian(rho, delta):
    def at(excess):
        a = 1 + np.exp(excess)
        return a * rho - (np.log(delta) + np.log(a)) / (a - 1) + np.log1p(-1 / a)

    orders = np.linspace(-12, 12, 400_001)
    best = max(float(at(orders).min()), 0.0)
    found = float(zcdp_to_approx(ZCDP.of(rho), delta).epsilon)
    assert best * (1 - 1e-7) - 1e-9 <= found <= best * (1 + 1e-7) + 1e-9
    mu, exact = np.sqrt(2 * rho), float(gaussian_to_approx(ZCDP.of(rho), delta).epsilon)
    if exact > 0:
        near = exact / mu - mu / 2
        attained = norm.sf(near) - np.exp(exact + norm.logsf(near + mu))
        assert attained == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("x", ["-7", "-0.5", "0", "0.5", "3", "5.9", "6.1", "9", "30"])
def test_tails_of_the_normal_law_lie_between_their_bounds(x):
    low, high = upper_tail(Decimal(x))
    assert float(low) == pytest.approx(norm.sf(float(x)), rel=1e-12)
    # as wide as the roundings of the smaller tail need
    assert min(low, 1 - low) * Decimal("3e-60") <= high - low <= low * Decimal("1e-45")
    assert float(density(Decimal(x))) == pytest.approx(norm.pdf(float(x)), rel=1e-12)


@pytest.mark.parametrize("epsilon", ["0", "0.25", "4"])
def test_the_delta_of_a_gaussian_is_bounded_from_above(epsilon):
    """Off by less than what every later digit is rounded by, but never below what is certain."""
    mu, epsilon = Decimal(1), Decimal(epsilon)
    with localcontext(CONTEXT):
        near = epsilon / mu - mu / 2
        certain = upper_tail(near)[0] - density(near) * mills_ratio(near + mu)[1]
        assert certain < conversion._gaussian_delta(mu, epsilon) < certain + Decimal("1e-39")


def test_an_epsilon_of_nothing_is_rounded_up():
    assert conversion._approx(Decimal(0), MILLIONTH).pico == 1


def test_no_loss_costs_nothing():
    assert zcdp_to_approx(ZCDP(0), MILLIONTH).pico == 0
    assert gaussian_to_approx(ZCDP(0), MILLIONTH).pico == 0


def test_extreme_losses_convert_without_overflow():
    huge, tiny = ZCDP.of(1e5), "1e-300"
    assert 1e5 < gaussian_to_approx(huge, tiny).epsilon < zcdp_to_approx(huge, tiny).epsilon < 2e5


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 2, "x", "1e-301", float("nan"), "1e999999999"])
def test_deltas_outside_the_open_interval_are_rejected(delta):
    for convert in (zcdp_to_approx, gaussian_to_approx):
        with pytest.raises(UsageError, match="delta"):
            convert(ZCDP.of(1), delta)


def test_a_budget_that_nothing_fits_is_refused():
    with pytest.raises(UsageError, match="no zCDP budget"):
        approx_to_rho(ApproxDP(0, Fraction(1, 10**300)), VALUES)


@pytest.mark.parametrize("rho", [0, -1, "x", 1e-13, 1e7])
def test_meaningless_rhos_are_rejected(rho):
    with pytest.raises(UsageError, match="rho"):
        ZCDP.of(rho)


def test_losses_print_as_decimals():
    assert str(ZCDP.of("0.125")) == "0.125"
    assert str(ApproxDP(1_500_000_000_000, MILLIONTH)) == "(1.5, 1e-06)"


def test_impossible_approximate_losses_are_rejected():
    with pytest.raises(UsageError, match="out of range"):
        ApproxDP(-1, Fraction(0))
    with pytest.raises(UsageError, match="out of range"):
        ApproxDP(0, Fraction(2))
