"""Errata of paper 003: each test fails on the paper's literal text."""

import numpy as np
import pytest

from trafficdp.bounding.arrays import (
    IntervalPartition,
    argmax_cap,
    array_mean_sensitivity,
    best_fit,
    concentration_width,
    guaranteed_width,
    wrap_around,
)
from trafficdp.mechanisms.per_statistic.arrays import ArrayAveraging, Grouping, Levy, QuantileRule
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.model import Statistic
from trafficdp.noise.choice import probabilities
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import Samples

EPSILON = np.array([1.0])


def largest_loss(before, after):
    return float(np.abs(np.log(before) - np.log(after)).max())


def votes(partition, y):
    return partition.costs(np.array(y), np.zeros(len(y), dtype=np.int64))


def test_e1_wrap_around_has_sensitivity_u_over_k_not_twice_that(counts_of, bound_of):
    counts = counts_of([[7, 5, 4, 3, 2, 2, 1]])
    arrays = wrap_around(counts, argmax_cap(counts))
    assert arrays.influence.tolist() == [2]
    assert array_mean_sensitivity(arrays, 65.0, np.zeros(1), np.full(1, 65.0)).max() == pytest.approx(13)
    wrapped = ArrayAveraging(Grouping.WRAP_AROUND)
    event = event_of(wrapped, StatisticRequest(counts, bound_of(65), Statistic.MEAN, EPSILON))
    assert event.sensitivity[Statistic.MEAN][0] == pytest.approx(13)
    # what is charged is what the smaller noise costs
    assert float(event.loss.exact) == 1.0


def test_e1_u_times_cap_over_the_kept_samples_lies_between_the_two_groupings(counts_of):
    random = np.random.default_rng(4)
    for _ in range(50):
        counts = counts_of([random.integers(1, 30, random.integers(1, 15))])
        cap = argmax_cap(counts)
        kept = np.minimum(counts.count, cap).sum()
        best, wrapped = best_fit(counts, cap).per_bin[0], wrap_around(counts, cap).per_bin[0]
        assert 1 / best <= cap[0] / kept <= 1 / wrapped


def test_e2_a_vote_is_a_place_not_a_distance():
    # all means near the top vote for the top part; their distances to a midpoint are all small
    partition = IntervalPartition(np.array([100]), np.array([10]))
    assert partition.votes(np.array([93, 95, 97]), np.zeros(3, dtype=np.int64)).tolist() == [9, 9, 9]
    assert int(votes(partition, [93, 95, 97]).argmin()) == 9


def test_e3_a_vehicle_in_two_arrays_doubles_the_loss_of_the_papers_exponent(counts_of, bound_of):
    # 13 arrays: two move from below all others to the others' part
    partition = IntervalPartition(np.array([100]), np.array([20]))
    before, after = (votes(partition, [30] * 11 + [moving] * 2) for moving in (10, 30))
    ones = np.ones(5, dtype=np.int64)

    def loss(denominator):
        scale = np.array([denominator / 1.0])
        law = [probabilities(cost, ones, partition.start, scale) for cost in (before, after)]
        return largest_loss(*law)

    # of the total epsilon of 1, the interval may cost a half
    assert loss(4.0) > 0.8
    assert loss(8.0) <= 0.5
    # the mechanism prices by the arrays that are touched: its loss is what was asked for both groupings
    counts = counts_of([[3, 3, 3, 3, 3, 2, 2, 2] * 40])
    for grouping in Grouping:
        event = event_of(
            Levy(grouping), StatisticRequest(counts, bound_of(65, "1/10"), Statistic.MEAN, EPSILON)
        )
        assert float(event.loss.exact) == pytest.approx(1.0, abs=2e-9)


def test_e3_the_choice_is_drawn_with_the_exponent_that_was_priced(counts_of, bound_of):
    asked = []

    class Spy(SimulatedNoise):
        def select_claimed(self, scores, cost, weight, start):
            asked.append(scores.scale)
            return super().select_claimed(scores, cost, weight, start)

    # 300 vehicles fill arrays of 100; three of 67 share two more
    numbers = [100] * 300 + [67] * 3
    counts = counts_of([numbers])
    samples = Samples(counts, np.zeros(sum(numbers), dtype=np.int64), np.arange(303), bound_of(65))
    for grouping, divisor in ((Grouping.BEST_FIT, 4), (Grouping.WRAP_AROUND, 8)):
        Levy(grouping).estimate(samples, Statistic.MEAN, EPSILON, Spy(1))
        assert asked[-1][0] == pytest.approx(divisor, rel=1e-9)
        assert asked[-1][0] >= divisor


def test_e4_arrays_that_are_partly_filled_need_wider_parts():
    fill, of_bin = np.array([10, 10, 1]), np.zeros(3, dtype=np.int64)
    paper = concentration_width(np.array([3]), np.array([10]), 1.0, 0.2)[0]
    ours = guaranteed_width(fill, of_bin, 1, 1.0, 0.2)[0]

    def promise(width):
        return float((2 * np.exp(-2 * fill * width**2)).sum())

    assert promise(paper) > 0.2
    assert promise(ours) == pytest.approx(0.2, rel=1e-9)
    full = guaranteed_width(np.array([10] * 3), of_bin, 1, 1.0, 0.2)[0]
    assert full == pytest.approx(paper, rel=1e-9)


def test_e4_zero_and_a_bound_that_tau_does_not_divide_have_their_parts():
    partition = IntervalPartition(np.array([65]), np.array([10]))
    assert partition.parts.tolist() == [7]
    assert partition.votes(np.array([0, 65]), np.zeros(2, dtype=np.int64)).tolist() == [0, 6]


def test_e5_three_halves_of_tau_hold_the_centre_and_five_hold_all_means():
    # all means within tau of the centre, and yet one is more than 3/2 tau from the chosen midpoint
    tau, centre = 100, 599
    partition = IntervalPartition(np.array([2_000]), np.array([tau]))
    y = [centre - tau] + [centre + tau] * 2
    chosen = int(votes(partition, y).argmin())
    short, wide = (partition.interval(np.array([chosen]), halves) for halves in (3, 5))
    assert short[0][0] <= centre <= short[1][0]
    assert not short[0][0] <= min(y)
    assert wide[0][0] <= min(y) <= max(y) <= wide[1][0]


def test_e6_without_the_half_the_quantile_costs_twice_its_epsilon():
    # moving one value from 0 to 10 makes [0, x) one rank worse and [x, 10] one better
    def loss(epsilon):
        cells = []
        for own in (0, 10):
            mass = np.diff([0, *sorted([own, 1, 1, 1]), 10]) * np.exp(-epsilon / 2 * np.abs(np.arange(5) - 3))
            cells.append(mass / mass.sum())
        below = [np.append(cells[0][1], 0)[0], cells[1][0]]
        return abs(float(np.log(below[0] / below[1])))

    assert loss(2.0) > 1.9
    assert loss(1.0) <= 1.0


def test_e7_two_over_epsilon_is_rounded_up_on_both_sides_and_clamped():
    arrays = np.array([20, 20, 3, 20])
    low, high = QuantileRule.OPTIMIZED.tenths(arrays, np.array([0.75, 1.0, 0.5, np.inf]))
    # ceil(2/0.75) = 3, 2, ranks that cross: the median, none cut off
    assert low.tolist() == [30, 20, 15, 0]
    assert high.tolist() == [170, 180, 15, 200]


def test_e7_the_ceiling_is_exact_for_decimals():
    # 2/0.1 is 20, although 2/(a float near 0.1) may be above it
    low, _ = QuantileRule.OPTIMIZED.tenths(np.array([100] * 3), np.array([0.1, 0.4, 0.8]))
    assert low.tolist() == [200, 50, 30]


def test_e7_the_ceiling_minimises_the_paper_s_objective():
    random = np.random.default_rng(5)
    for epsilon in (0.3, 0.7, 0.75, 1.5):
        means = np.sort(random.uniform(0, 65, 40))

        def cost(a, means=means, epsilon=epsilon):
            return float(np.maximum(a - means, 0).sum() - 2 / epsilon * a)

        rank = int(np.ceil(2 / epsilon))
        assert cost(means[rank - 1]) <= min(cost(a) for a in means) + 1e-9
        assert cost(means[rank - 1]) < cost(means[rank - 2]) - 1e-9


@pytest.mark.parametrize(
    ("numbers", "group", "scaled", "expected"),
    [
        ([2, 2, 4, 3, 4, 5], wrap_around, 2, (4, 9)),
        ([4, 1, 4, 6], best_fit, 2, (4, 7)),
    ],
)
def test_e24_twice_the_vehicles_do_not_make_exactly_twice_the_arrays(
    numbers, group, scaled, expected, counts_of
):
    found = []
    for times in (1, scaled):
        counts = counts_of([np.repeat(numbers, times)])
        cap = argmax_cap(counts)
        assert cap.tolist() == [4]
        found.append(int(group(counts, cap).per_bin[0]))
    assert tuple(found) == expected


def test_e24_best_fit_may_even_make_more_than_twice_as_many(counts_of):
    counts = [3, 7, 2, 2, 9, 6, 9, 9]
    one, two = (
        int(best_fit(counts_of([np.repeat(counts, times)]), np.array([7])).per_bin[0]) for times in (1, 2)
    )
    assert two > 2 * one


def test_e24_wrap_around_never_loses_arrays(counts_of):
    random = np.random.default_rng(6)
    for _ in range(100):
        counts = random.integers(1, 12, random.integers(1, 10))
        cap = np.array([int(random.choice(counts))])
        times = int(random.integers(2, 5))
        one, many = (int(wrap_around(counts_of([np.repeat(counts, k)]), cap).per_bin[0]) for k in (1, times))
        assert many >= times * one
