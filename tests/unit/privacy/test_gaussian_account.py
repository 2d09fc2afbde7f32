"""The account of discrete Gaussian noise: its factor, composition and delta, all beside brute force."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from trafficdp.errors import UsageError
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.conversion import (
    _DISCRETE,
    _WIDER,
    CONTEXT,
    PI,
    ApproxDP,
    _gaussian_delta,
    _keeps_to,
    approx_to_rho,
    gaussian_to_approx,
    rho_to_approx,
    zcdp_to_approx,
)
from trafficdp.privacy.loss import PICO, ZCDP, PureDP

HIDDEN = NeighbouringRelation.ADD_OR_REMOVE_USER
EPSILONS = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0)


@pytest.mark.parametrize("r", ["0.7", "1", "1.5", "3"])
def test_weights_of_rounding_add_up_to_one_number_but_for_the_stated_factor(r):
    with localcontext(CONTEXT):
        r = Decimal(r)
        bound = Decimal("2.1") * (-2 * (PI * r) ** 2).exp()
        off = []
        for x in (Decimal(each) / 10 for each in range(11)):
            total = sum((-((k - x) ** 2) / (2 * r * r)).exp() for k in range(-60, 62))
            off.append(abs(total / (r * (2 * PI).sqrt()) - 1))
        # at whole numbers it is nearly attained
        assert Decimal("0.95") * bound < max(off) < bound


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.4, 0.5, 0.7])
@pytest.mark.parametrize("z", [0, 3])
def test_rounding_continuous_noise_draws_the_discrete_law_but_for_that_factor(r, z):
    sd, bound = 2.5, 4 * np.exp(-2 * (np.pi * r) ** 2)
    k = np.arange(-40, 41)
    x = np.linspace(z - 40, z + 40, 16_001)[:, None]
    weight = np.exp(-((k - x) ** 2) / (2 * r * r))
    weight /= np.exp(-((np.arange(-45, 46) - x) ** 2) / (2 * r * r)).sum(axis=1, keepdims=True)
    rounded = (stats.norm.pdf(x, z, np.sqrt(sd**2 - r**2)) * weight).sum(axis=0) * (x[1] - x[0])
    near = np.abs(k - z) <= 12
    ratio = discrete(k - z, sd)[near] / rounded[near]
    # what is too much at one x is too little at another: the law itself is much nearer, and yet not the same
    assert 0.01 * bound**2 < np.abs(ratio - 1).max() < bound


def discrete(k, sd):
    every = np.arange(-int(60 * sd), int(60 * sd) + 1)
    return np.exp(-(k.astype(float) ** 2) / (2 * sd**2)) / np.exp(-(every**2) / (2 * sd**2)).sum()


def delta_of(mu, epsilon):
    tail = stats.norm.logsf(epsilon / mu + mu / 2)
    return stats.norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon + tail)


def hockey_stick(here, away, epsilon):
    """Both ways round."""
    return max(np.maximum(one - np.exp(epsilon) * two, 0).sum() for one, two in ((here, away), (away, here)))


@pytest.mark.parametrize(("sd", "move"), [(20, 1), (20, 13), (20, 40), (33.3, 10), (50, 50)])
def test_one_step_costs_no_more_than_the_formula_says_and_hardly_less(sd, move):
    k = np.arange(-int(14 * sd), int(14 * sd) + move)
    here, away = discrete(k - move, sd), discrete(k, sd)
    mu = move / np.sqrt(sd**2 - 9)
    for epsilon in EPSILONS:
        found = hockey_stick(here, away, epsilon)
        assert found <= delta_of(mu, epsilon) * (1 + 1e-9) + 1e-14
        assert found >= 0.9 * delta_of(0.97 * mu, epsilon) - 1e-14


@pytest.mark.parametrize(("sd", "move"), [(20, (3, 4)), (20, (12, 9)), (30, (15, 20))])
def test_two_numbers_at_once_cost_their_length(sd, move):
    k = np.arange(-10 * sd, 10 * sd + 1)
    here = np.outer(*(discrete(k - each, sd) for each in move))
    away = np.outer(*(discrete(k, sd) for _ in move))
    mu = np.hypot(*move) / np.sqrt(sd**2 - 9)
    for epsilon in EPSILONS:
        assert hockey_stick(here, away, epsilon) <= delta_of(mu, epsilon) * (1 + 1e-9) + 1e-13
    assert hockey_stick(here, away, 0.2) > delta_of(0.97 * mu, 0.2)


def test_a_step_that_is_chosen_by_the_one_before_costs_what_both_may():
    """After a high first number a small move under little noise, after a low one a large under much."""
    k = np.arange(-300, 301)
    first, one_move = 20, 6
    high, low = (4, 20), (16, 80)
    here, away = (discrete(k - shift, first) for shift in (one_move, 0))
    rows = []
    for up, own, other in zip(k > 3, here, away, strict=True):
        move, sd = high if up else low
        wide = np.arange(-12 * sd, 12 * sd + 1)
        rows += [(own * discrete(wide - move, sd), other * discrete(wide, sd))]
    here, away = (np.concatenate(each) for each in zip(*rows, strict=True))
    mu = np.sqrt(one_move**2 / (first**2 - 9) + max(move**2 / (sd**2 - 9) for move, sd in (high, low)))
    for epsilon in EPSILONS:
        assert hockey_stick(here, away, epsilon) <= delta_of(mu, epsilon) * (1 + 1e-9) + 1e-13
    assert hockey_stick(here, away, 0.2) > delta_of(0.97 * mu, 0.2)


@pytest.mark.parametrize("rho", [0.0001, 0.028, 0.351, 3.0, 40.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_epsilon_is_where_an_independent_computation_has_it(rho, delta):
    mu = np.sqrt(2 * rho * (1 + 1e-9))
    found = gaussian_to_approx(ZCDP.of(rho), delta)
    if found.pico > 1:
        expected = optimize.brentq(lambda e: delta_of(mu, e) - delta, 0, 400, xtol=1e-13)
        assert float(found.epsilon) == pytest.approx(expected, abs=2e-9)
    assert found.delta == Fraction(str(delta))


def test_what_is_bought_at_a_millionth():
    for epsilon, rho in (("0.25", 0.002106), ("1", 0.028014), ("4", 0.351004), ("10", 1.707796)):
        target = ApproxDP(PureDP.of(epsilon).pico, Fraction(1, 10**6))
        found = approx_to_rho(target, HIDDEN)
        assert float(found.exact) == pytest.approx(rho, abs=6e-7)
        # an eighth more than by Renyi divergences alone
        by_divergences = approx_to_rho(target, NeighbouringRelation.REPLACE_USER_VALUES)
        assert 1.09 < found.exact / by_divergences.exact < 1.18


@pytest.mark.parametrize("epsilon", ["0.001", "1", "16"])
@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(1, 10**12), Fraction(1, 10**300)])
def test_what_is_bought_is_all_that_fits(epsilon, delta):
    target = ApproxDP(PureDP.of(epsilon).pico, delta)
    found = approx_to_rho(target, HIDDEN)
    assert rho_to_approx(found, delta, HIDDEN).pico <= target.pico
    assert rho_to_approx(ZCDP(found.pico + max(1, found.pico // 10**7)), delta, HIDDEN).pico > target.pico


def test_a_delta_that_is_missed_by_the_discrete_noise_alone_is_missed():
    loss = ZCDP.of("0.3")
    with localcontext(CONTEXT):
        mu, epsilon = (2 * Decimal("0.3") * (1 + _WIDER)).sqrt(), 1 - _DISCRETE
        bound = _gaussian_delta(mu, epsilon)
        less, more = (Fraction(bound * (1 + share * _DISCRETE)) for share in (Decimal("0.5"), Decimal("1.5")))
    assert not _keeps_to(loss, PICO, less)
    assert _keeps_to(loss, PICO, more)


def test_the_relation_chooses_the_conversion():
    loss = ZCDP.of("0.3")
    for relation in NeighbouringRelation:
        convert = gaussian_to_approx if relation is HIDDEN else zcdp_to_approx
        assert rho_to_approx(loss, 1e-6, relation) == convert(loss, 1e-6)


def test_what_nothing_fits_is_refused():
    with pytest.raises(UsageError, match="no zCDP budget"):
        approx_to_rho(ApproxDP(0, Fraction(1, 10**300)), HIDDEN)
    for delta in (Fraction(0), Fraction(1)):
        with pytest.raises(UsageError, match="delta"):
            approx_to_rho(ApproxDP(10**12, delta), HIDDEN)
