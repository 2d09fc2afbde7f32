"""Whole transcripts under attack: every running sum ever published, on adversarial streams and orders.

The attacker sees all noisy running sums at all times, recovers every noisy node from them and forms the
logarithm of the likelihood ratio of the two neighbours, the strongest statistic there is. Right mechanisms
keep their claim under every arrival order; wrong ones are caught.
"""

import numpy as np
import pytest

from trafficdp.audit.lower_bound import lower_bound_from_draws
from trafficdp.measurement.laws import EntryIndex
from trafficdp.measurement.sets import Moments
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import PureDP
from trafficdp.research.george_2022.arrivals import (
    ArrivalOrder,
    Arrivals,
    arrival_order,
    paper_plan,
    prior_plan,
)
from trafficdp.research.george_2022.paper_means import naive_scale
from trafficdp.stream.tree import BINARY, SignedCounterBank, Tree, TreeKind

RUNS = 100_000
ERROR = 1e-4
STEPS = 10
ORDERS = list(ArrivalOrder)


def pair(order, users, samples):
    """Vehicle 0 sends only 0 in one stream and only U in the other; the rest send the middle."""
    user = arrival_order(order, users, samples, SimulatedNoise(1))
    for own in (0, STEPS):
        yield Arrivals(user, np.where(user == 0, own, STEPS // 2), users, samples, STEPS)


def ratio(left, right, scale, tree, length, source):
    """Log likelihood ratios of draws on the left and on the right stream of elements.

    All sums after t = 1..N are published; their noise is linear in that of the nodes.
    """
    count = len(left)
    at = np.arange(1, count + 1)
    # the change of the published sums, seen as a change of nodes: t closes the node of its lowest bit
    low = at & -at
    shift = np.concatenate([[0], np.cumsum(right - left)])
    change = shift[at] - shift[at - low]
    both = []
    for moved in (0, 1):
        path = (
            np.concatenate([np.zeros((RUNS, 1)), tree.draw_noise(at, length, scale, source, RUNS)], axis=1)
            + moved * shift
        )
        node = path[:, at] - path[:, at - low]
        both.append(((np.abs(node) - np.abs(node - change)) / scale).sum(axis=1))
    return both


def audit(parts):
    """The lower bound on epsilon from the sum of independent log likelihood ratios."""
    left = sum(part[0] for part in parts)
    right = sum(part[1] for part in parts)
    return lower_bound_from_draws(right, left, ERROR)[0]


def levelled_bound(order, plan):
    left, right = pair(order, plan.users, plan.samples)
    source, parts = SimulatedNoise(3), []
    scale = plan.scales()
    for level in range(len(scale)):
        both = [each.elements.value[each.elements.level == level] for each in (left, right)]
        parts.append(ratio(*both, float(scale[level]), BINARY, plan.users, source))
    return audit(parts)


@pytest.mark.parametrize("order", ORDERS)
def test_counters_of_all_levels_keep_their_claim_under_every_order(order):
    plan = prior_plan(3, 4, STEPS, 1.0, 0.1, prior=False, best_split=True)
    assert levelled_bound(order, plan) <= 1.0


def test_most_of_the_claim_is_really_spent():
    plan = prior_plan(1, 4, STEPS, 1.0, 0.1, prior=False)
    assert 0.8 < levelled_bound(ArrivalOrder.CONTIGUOUS, plan) <= 1.0


@pytest.mark.parametrize("order", [ArrivalOrder.CONTIGUOUS, ArrivalOrder.ROUND_ROBIN])
def test_a_budget_for_one_level_too_few_is_caught(order):
    # erratum E18: the counters of 3 levels, 0..L with L = 2, each with a half of their share of epsilon
    claim = 1.0
    literal = paper_plan(3, 4, STEPS, 2 * claim, 0.1, counter_levels=2)
    right = paper_plan(3, 4, STEPS, 2 * claim, 0.1)
    assert levelled_bound(order, literal) > claim
    assert levelled_bound(order, right) <= claim


def naive_bound(order, users, samples, scale):
    left, right = pair(order, users, samples)
    return audit([ratio(left.value, right.value, scale, BINARY, users * samples, SimulatedNoise(5))])


@pytest.mark.parametrize("order", ORDERS)
def test_one_counter_of_all_samples_keeps_its_claim_under_every_order(order):
    assert naive_bound(order, 3, 2, naive_scale(3, 2, STEPS, 1.0)) <= 1.0


def test_noise_for_one_sample_a_vehicle_is_caught():
    wrong = naive_scale(6, 1, STEPS, 1.0)
    assert naive_bound(ArrivalOrder.CONTIGUOUS, 3, 2, wrong) > 1.0


def test_noise_for_one_node_an_element_is_caught():
    assert naive_bound(ArrivalOrder.CONTIGUOUS, 7, 1, float(STEPS)) > 1.0


@pytest.mark.parametrize("forgetful", [False, True])
def test_noise_that_is_drawn_again_at_a_publication_is_caught(forgetful):
    source, sums = SimulatedNoise(7), []
    for own in (0, STEPS):
        bank = SignedCounterBank(RUNS, 1, 7, 1, np.array(1.0 * STEPS))
        every = np.arange(RUNS)
        of = Moments(EntryIndex(every, every, RUNS, RUNS), every * 0 + 1, STEPS, every < 0)
        bank.append(every, of, np.stack([0 * every + own, 0 * every]), 0 * every, PureDP.of(1))
        published = []
        for _ in range(6):
            published.append(bank.sums(source)[:, 0])
            if forgetful:
                bank.drawn[:] = False
        sums.append(np.mean(published, axis=0))
    found, _ = lower_bound_from_draws(sums[1], sums[0], ERROR)
    assert (found > 1.0) == forgetful


@pytest.mark.parametrize("order", ORDERS)
def test_signed_digits_keep_their_claim_at_their_last_answer(order):
    tree, users, samples = Tree(3, TreeKind.SIGNED), 4, 2
    scale = naive_scale(users, samples, STEPS, 1.0, tree)
    length = users * samples
    at = np.arange(1, length + 1)
    left, right = pair(order, users, samples)
    source = SimulatedNoise(2)
    rows = [
        np.cumsum(each.value) + tree.draw_noise(at[: len(each)], length, scale, source, RUNS)
        for each in (left, right)
    ]
    change = np.cumsum(right.value - left.value)
    # the direction in which the sums move, weighed by their variance
    weight = change / tree.variance(at[: len(change)], length)
    assert lower_bound_from_draws(rows[1] @ weight, rows[0] @ weight, ERROR)[0] <= 1.0
