"""Budgets of the levels: what is claimed is what they sum to, and past the paper is better."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from trafficdp.privacy.loss import PICO
from trafficdp.research.george_2022.arrivals import (
    best_plan,
    doubling_epsilon,
    last_level,
    paper_plan,
    prior_plan,
)
from trafficdp.stream.tree import BINARY, Tree, TreeKind

PLANS = [
    paper_plan(1000, 256, 65, 1.0, 0.05),
    paper_plan(20, 1, 10, 0.3, 0.1),
    paper_plan(1000, 4096, 65, 2.0, 0.05),
    best_plan(1000, 256, 65, 1.0, 0.05),
    best_plan(5000, 8192, 65, 3.0, 0.05),
    best_plan(5000, 8192, 65, 3.0, 0.05, aligned=False),
    prior_plan(1000, 256, 65, 1.0, 0.05),
    prior_plan(1000, 256, 65, 1.0, 0.05, prior=False, best_split=True),
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("tree", [BINARY, Tree(13, TreeKind.SIGNED), Tree(5, TreeKind.AVERAGED)])
def test_a_plan_costs_what_it_was_given_and_no_more(plan, tree):
    epsilon = round(float(plan.counter_epsilon.sum() + plan.median_epsilon.sum()), 9)
    claimed = plan.loss(tree).exact
    assert Fraction(epsilon) * (1 - Fraction(1, 10**9)) < claimed <= Fraction(str(epsilon))


def test_levels_are_those_of_powers_of_two():
    assert [last_level(m) for m in (1, 2, 3, 4, 7, 8, 1024)] == [0, 1, 1, 2, 2, 3, 10]
    assert paper_plan(10, 300, 5, 1.0, 0.1).size.tolist() == [1, 1, 2, 4, 8, 16, 32, 64, 128]


def test_widths_never_exceed_the_range_of_a_sum():
    for plan in PLANS:
        assert (plan.width <= plan.upper_steps * plan.size).all()
        assert (plan.width >= 1).all()
        np.testing.assert_array_equal(
            plan.width[~plan.truncated], (plan.upper_steps * plan.size)[~plan.truncated]
        )


def test_the_best_split_is_the_optimum():
    plan = best_plan(1000, 64, 65, 1.0, 0.05)
    width = plan.width.astype(float)

    def variance(shares):
        part = np.exp(shares) / np.exp(shares).sum()
        return np.log(((width / part) ** 2).sum())

    found = minimize(variance, np.zeros(len(width)), tol=1e-12)
    assert np.exp(found.fun) == pytest.approx(((width / plan.counter_epsilon) ** 2).sum(), rel=1e-6)
    equal = prior_plan(1000, 64, 65, 1.0, 0.05, prior=False)
    assert ((width / plan.counter_epsilon) ** 2).sum() < 0.7 * ((width / equal.counter_epsilon) ** 2).sum()


def test_medians_stay_where_they_gain():
    plan = best_plan(5000, 8192, 65, 3.0, 0.05)
    has = plan.median_epsilon > 0
    assert has.any()
    assert not has.all()
    np.testing.assert_array_equal(has, plan.truncated)
    # they wait for no more than half of the vehicles, and are worth what they cost
    assert (2 * plan.arrays <= plan.users).all()
    without = prior_plan(5000, 8192, 65, 3.0, 0.05, prior=False, best_split=True)
    paper = paper_plan(5000, 8192, 65, 3.0, 0.05)
    for other, factor in ((without, 6), (paper, 15)):
        assert (plan.scales() ** 2).sum() * factor < (other.scales() ** 2).sum()
    # too few vehicles for any median at this epsilon
    assert not best_plan(300, 8192, 65, 0.5, 0.05).median_epsilon.any()


def test_all_epochs_of_doubling_together_stay_within_the_budget():
    parts = [doubling_epsilon("1.5", epoch).pico for epoch in range(1, 4000)]
    assert parts[0] == pytest.approx(1.5 * PICO * 6 / np.pi**2, rel=1e-9)
    assert sum(parts) < 1.5 * PICO
    # what is left for the rest: the integral of 1/x^2
    assert sum(parts) + parts[0] / 3999.5 == pytest.approx(1.5 * PICO, rel=1e-7)
