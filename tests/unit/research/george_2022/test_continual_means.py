"""The algorithms of paper 002 end to end: exact without noise, private medians, activation, doubling."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import ZCDP
from trafficdp.research.george_2022.arrivals import (
    ArrivalOrder,
    Arrivals,
    arrival_order,
    best_plan,
    paper_plan,
    prior_plan,
)
from trafficdp.research.george_2022.better_means import (
    RESERVE,
    doubling_means,
    endless_shares,
    epochs,
    gaussian_levelled_means,
    gaussian_naive_means,
    unbounded_means,
)
from trafficdp.research.george_2022.factor import square_root_factor
from trafficdp.research.george_2022.paper_means import (
    Centre,
    activation,
    activations,
    array_sums,
    collectable,
    full_means,
    known_prior_half_width,
    known_prior_means,
    known_prior_scale,
    levelled_means,
    naive_means,
    naive_scale,
    private_part,
    single_means,
    single_scale,
)
from trafficdp.stream.tree import BINARY, Tree, TreeKind

ORDERS = list(ArrivalOrder)


class Silent(SimulatedNoise):
    def discrete_laplace(self, scale):
        return np.zeros(scale.shape, dtype=np.int64)

    def discrete_gaussian(self, sd):
        return np.zeros(sd.shape, dtype=np.int64)


def stream(order, users, samples, steps, seed=1):
    source = SimulatedNoise(seed)
    user = arrival_order(order, users, samples, source)
    value = source.uniform_below(np.full(len(user), steps + 1))
    return Arrivals(user, value, users, samples, steps)


def released_means(arrivals):
    """The mean of what withhold-release has given out, after every arrival."""
    elements = arrivals.elements
    fed = np.searchsorted(elements.sample, np.arange(1, len(arrivals) + 1))
    inside = np.cumsum(2 ** np.maximum(elements.level - 1, 0))
    return (np.cumsum(elements.value) / inside)[fed - 1]


@pytest.mark.parametrize("order", ORDERS)
def test_without_noise_every_algorithm_gives_the_mean_of_what_it_holds(order):
    arrivals = stream(order, 12, 20, 50)
    at = np.arange(1, len(arrivals) + 1)
    naive = naive_means(arrivals, 5.0, Silent(1), 2, at)
    np.testing.assert_allclose(naive, [arrivals.running_mean()] * 2)
    plan = prior_plan(12, 20, 50, 1.0, 0.05, prior=False)
    held = released_means(arrivals)
    np.testing.assert_allclose(levelled_means(arrivals, plan, Silent(1), 1, at)[0], held)
    np.testing.assert_allclose(single_means(arrivals, plan, 5.0, Silent(1), 1, at)[0], held)
    best = best_plan(12, 20, 50, 1.0, 0.05)
    np.testing.assert_allclose(full_means(arrivals, best, Silent(1), 1, at)[0], held)
    rho, factor = ZCDP.of("0.5"), square_root_factor(240)
    found, loss = gaussian_naive_means(arrivals, rho, factor, Silent(1), 1, at)
    np.testing.assert_allclose(found[0], arrivals.running_mean())
    assert rho.pico * (1 - 1e-6) < loss.pico <= rho.pico
    found, loss = gaussian_levelled_means(arrivals, plan, rho, factor, Silent(1), 1, at)
    np.testing.assert_allclose(found[0], held)
    assert rho.pico * (1 - 1e-6) < loss.pico <= rho.pico


def test_the_wishful_algorithm_counts_vehicles_that_are_done():
    arrivals = stream(ArrivalOrder.CONTIGUOUS, 6, 5, 10)
    at = np.array([0, 4, 5, 12, 30])
    half = known_prior_half_width(6, 5, 10, 0.1)
    found = known_prior_means(arrivals, Fraction(9, 2), half, 3.0, Silent(1), 1, at)[0]
    sums = arrivals.value.reshape(6, 5).sum(axis=1)
    np.testing.assert_allclose(found, [4.5, 4.5, sums[0] / 5, sums[:2].sum() / 10, sums.sum() / 30])
    noisy = known_prior_means(
        arrivals, Fraction(5), half, known_prior_scale(6, 5, 10, 1.0, 0.1), SimulatedNoise(1), 9, at
    )
    assert noisy.shape == (9, 5)


def test_a_prior_far_away_truncates():
    arrivals = stream(ArrivalOrder.ROUND_ROBIN, 4, 4096, 10)
    plan = prior_plan(4, 4096, 10, 1.0, 0.05)
    assert plan.truncated.any()
    at = np.array([len(arrivals)])
    centres = [Centre.at(Fraction(9)) if each else None for each in plan.truncated]
    near = [Centre.at(Fraction(5)) if each else None for each in plan.truncated]
    free = levelled_means(arrivals, plan, Silent(1), 1, at)[0, 0]
    assert levelled_means(arrivals, plan, Silent(1), 1, at, near)[0, 0] == free
    assert levelled_means(arrivals, plan, Silent(1), 1, at, centres)[0, 0] > free + 0.5
    assert single_means(arrivals, plan, 1.0, Silent(1), 1, at, Centre.at(Fraction(9)))[0, 0] > free + 0.5


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_arrays_are_full_of_first_samples_and_a_vehicle_touches_few(order, aligned):
    arrivals = stream(order, 9, 30, 100)
    for size in (1, 2, 4, 8):
        arrays = int(collectable(arrivals, size, aligned=aligned)[-1]) // size
        until = activation(arrivals, size, arrays, aligned=aligned)
        assert until <= len(arrivals)
        assert activation(arrivals, size, arrays + 1, aligned=aligned) == len(arrivals) + 1
        base = array_sums(arrivals, until, size, arrays, aligned=aligned)
        assert base.shape == (arrays,)
        touched = []
        for user in range(9):
            moved = arrivals.value + 1000 * ((arrivals.user == user) & (arrivals.rank <= size))
            other = Arrivals(arrivals.user, moved, 9, 30, 5000)
            change = array_sums(other, until, size, arrays, aligned=aligned) - base
            touched.append(np.count_nonzero(change))
            assert change.sum() <= 1000 * size
        assert max(touched) <= (1 if aligned else 2)
    late = Arrivals(arrivals.user, 1000 * (arrivals.rank > 8), 9, 30, 5000)
    arrays = int(collectable(late, 8, aligned=aligned)[-1]) // 8
    assert not array_sums(late, len(late), 8, arrays, aligned=aligned).any()


def test_aligned_medians_do_not_wait_longer():
    for order in ORDERS:
        arrivals = stream(order, 40, 64, 10)
        for size in (2, 8, 32):
            whole = collectable(arrivals, size, aligned=False)
            assert (2 * collectable(arrivals, size, aligned=True) >= whole).all()


def test_the_median_is_the_middle_part_when_it_costs_much_and_any_part_when_little():
    sums = np.repeat([5, 15, 25], [10, 30, 12])
    sure = private_part(sums, 2, 20, 4, 1e-3, SecureNoise(), 50)
    # means 2.5, 7.5, 12.5 of 20 in parts of 5
    assert set(sure.tolist()) == {1}
    unsure = private_part(sums, 2, 20, 4, 1e6, SimulatedNoise(2), 4000)
    np.testing.assert_allclose(np.bincount(unsure) / 4000, 0.25, atol=0.04)


def test_levels_wait_for_their_medians_and_then_all_enters():
    users, samples, steps = 400, 64, 10
    arrivals = stream(ArrivalOrder.ROUND_ROBIN, users, samples, steps)
    # a generous epsilon makes medians cheap
    plan = paper_plan(users, samples, steps, 60.0, 0.05)
    active = activations(arrivals, plan)
    assert active[0] == 0
    assert (np.diff(active[1:]) >= 0).all()
    assert active[-1] <= len(arrivals)
    at = np.arange(0, len(arrivals) + 1, 37)
    found = full_means(arrivals, plan, Silent(3), 1, at)[0]
    assert found[0] == steps / 2
    elements = arrivals.elements
    for t, mean in zip(at[1:], found[1:], strict=True):
        inside = (elements.sample < t) & (active[elements.level] <= t)
        size = 2 ** np.maximum(elements.level[inside] - 1, 0)
        # nothing is truncated: widths are those of the range
        assert mean == pytest.approx(elements.value[inside].sum() / size.sum(), abs=0.02 * steps)


def test_levels_that_never_fill_are_left_out():
    arrivals = stream(ArrivalOrder.ROUND_ROBIN, 30, 16, 10)
    plan = paper_plan(30, 16, 10, 1.0, 0.05)
    assert (activations(arrivals, plan)[1:] == len(arrivals) + 1).all()
    at = np.array([1, len(arrivals)])
    first = arrivals.value[arrivals.rank == 1]
    found = full_means(arrivals, plan, Silent(1), 3, at)
    np.testing.assert_allclose(found[:, -1], first.mean())


def test_a_release_draws_exact_noise_and_exact_medians():
    arrivals = stream(ArrivalOrder.ROUND_ROBIN, 60, 8, 10)
    plan = paper_plan(60, 8, 10, 200.0, 0.05)
    assert (activations(arrivals, plan) <= len(arrivals)).all()
    at = np.array([1, 100, 480])
    for tree in (BINARY, Tree(5, TreeKind.SIGNED), Tree(3, TreeKind.AVERAGED)):
        found = full_means(arrivals, plan, SecureNoise(), 2, at, tree)
        assert np.abs(found[:, -1] - arrivals.value.mean()).max() < 3


def test_epochs_double_what_was_too_small():
    user = np.array([7, 7, 9, 7, 7, 7, 5, 5, 4, 3])
    found = [(each.first, each.last, each.users, each.samples) for each in epochs(user, 1, 1)]
    # vehicles so far: 1 1 2 2 2 2 3 3 4 5; samples of the busiest: 1 2 2 3 4 5 5 5 5 5
    assert found == [(1, 1, 1, 1), (2, 3, 2, 2), (4, 5, 4, 4), (6, 10, 8, 8)]
    assert epochs(user[:0], 1, 1) == []


@pytest.mark.parametrize("order", ORDERS)
def test_doubling_answers_at_all_times_and_stays_within_its_budget(order):
    arrivals = stream(order, 20, 16, 10)
    at = np.arange(1, len(arrivals) + 1)

    def plan(users, samples, epsilon):
        return best_plan(users, samples, 10, epsilon, 0.05)

    found, spent = doubling_means(arrivals, "1", plan, Silent(1), 2, at)
    assert spent.pico < 10**12
    np.testing.assert_allclose(found[0], released_means(arrivals))
    noisy, _ = doubling_means(arrivals, "1", plan, SimulatedNoise(1), 2, at, start=(8, 4))
    assert ((noisy >= 0) & (noisy <= 10)).all()


def test_endless_shares_never_sum_to_more_than_all():
    for guessed, count in [(1, 1), (1, 5000), (5, 3), (7, 5000)]:
        share = endless_shares(np.ones(guessed), count)
        assert len(share) == count
        assert (share > 0).all()
        # the rest is below the integral of 1/x^2
        rest = RESERVE * 0.61 / max(count - guessed, 1)
        assert share.sum() + (rest if count > guessed else 0) <= 1 + 1e-4
    assert endless_shares(np.ones(4), 4).sum() == pytest.approx(1 - RESERVE)


@pytest.mark.parametrize("order", ORDERS)
def test_streams_without_declared_numbers_are_answered_better_than_by_doubling(order):
    arrivals = stream(order, 64, 32, 100)
    at = np.arange(1, len(arrivals) + 1)
    tree = Tree(5, TreeKind.SIGNED)
    exact = unbounded_means(arrivals, 1.0, (8, 4), tree, Silent(1), 1, at)
    np.testing.assert_allclose(exact[0], released_means(arrivals))

    def plan(users, samples, epsilon):
        return best_plan(users, samples, 100, epsilon, 0.05)

    truth = arrivals.running_mean()
    last = slice(len(at) // 2, None)
    ours = unbounded_means(arrivals, 50.0, (8, 4), tree, SimulatedNoise(3), 40, at)
    theirs, _ = doubling_means(arrivals, 50, plan, SimulatedNoise(3), 40, at, start=(8, 4), tree=tree)
    error = [np.abs(found - truth)[:, last].mean() for found in (ours, theirs)]
    assert error[0] < error[1]


@pytest.mark.parametrize("algorithm", ["naive", "single", "levelled"])
def test_the_best_tree_lessens_the_error_of_every_algorithm(algorithm):
    users, samples, steps, epsilon = 200, 32, 100, 20.0
    arrivals = stream(ArrivalOrder.RANDOM, users, samples, steps)
    at = np.arange(1000, len(arrivals) + 1, 100)
    plan = best_plan(users, samples, steps, epsilon, 0.05)
    truth = arrivals.running_mean()[at - 1]

    def error(tree):
        source = SimulatedNoise(2)
        if algorithm == "naive":
            scale = naive_scale(users, samples, steps, epsilon, tree)
            found = naive_means(arrivals, scale, source, 60, at, tree)
        elif algorithm == "single":
            found = single_means(arrivals, plan, single_scale(plan, epsilon, tree), source, 60, at, tree=tree)
        else:
            found = levelled_means(arrivals, plan, source, 60, at, tree=tree)
        return np.abs(found - truth).mean()

    assert error(Tree(13, TreeKind.SIGNED)) < 0.7 * error(BINARY)


@pytest.mark.parametrize(
    ("user", "value", "users", "samples"),
    [
        ([0, 2], [1, 1], 2, 2),
        ([0, 0], [1, 1], 2, 1),
        ([0], [11], 1, 1),
        ([0], [-1], 1, 1),
        ([0], [1, 2], 1, 2),
    ],
)
def test_arrivals_beyond_what_was_declared_are_refused(user, value, users, samples):
    with pytest.raises(UsageError, match="not what was declared"):
        Arrivals(np.array(user), np.array(value), users, samples, 10)


def test_orders_are_what_they_are_called():
    source = SimulatedNoise(1)
    assert arrival_order(ArrivalOrder.ROUND_ROBIN, 2, 3, source).tolist() == [0, 1, 0, 1, 0, 1]
    assert arrival_order(ArrivalOrder.CONTIGUOUS, 2, 3, source).tolist() == [0, 0, 0, 1, 1, 1]
    mixed = arrival_order(ArrivalOrder.RANDOM, 20, 30, source)
    assert np.bincount(mixed).tolist() == [30] * 20
    assert len(set(mixed[:20].tolist())) < 20
    first = arrival_order(ArrivalOrder.DOMINATING, 3, 32, source)
    assert np.bincount(first).tolist() == [32, 2, 2]
    assert not first[:32].any()
