"""The parts of paper 003's mechanisms, and the exact privacy of whole ones on tiny data."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from searching import examples

from trafficdp.bounding.arrays import CountCap, IntervalPartition, total_variation_bias
from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.arrays import (
    TENTHS,
    ArrayAveraging,
    ArrayLattice,
    ArrayMeans,
    Grouping,
    Levy,
    Pooled,
    Quantile,
    QuantileRule,
    array_choice,
    array_lattice,
    private_position,
)
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import Statistic
from trafficdp.noise.choice import probabilities
from trafficdp.noise.source import SimulatedNoise
from trafficdp.noise.tail import clamped_laplace_error
from trafficdp.sensitive import Samples

MEAN = Statistic.MEAN


def samples_of(counts, bound, value):
    return Samples(counts, np.asarray(value), np.arange(1, counts.users + 1), bound)


@pytest.mark.parametrize("bias", [0.0, 0.3, 2.0, 5.0, 7.0, 10.0])
@pytest.mark.parametrize("scale", [0.0, 0.01, 0.5, 3.0, 50.0, 1e6])
def test_the_worst_error_is_the_largest_over_all_truths(scale, bias):
    reach = 10.0
    stated = clamped_laplace_error(np.array([scale]), np.array([bias]), reach)[0]

    def error(centre, truth):
        if scale == 0:
            return abs(centre - truth)

        def law(x):
            z = (x - centre) / scale
            return 0.5 * np.exp(z) if z < 0 else 1 - 0.5 * np.exp(-z)

        below = integrate.quad(law, 0, truth, points=[min(centre, truth)], limit=200)[0]
        above = integrate.quad(lambda x: 1 - law(x), truth, reach, points=[max(centre, truth)], limit=200)[0]
        return below + above

    places = np.linspace(0, reach, 41)
    found = max(error(c, t) for c in places for t in (max(c - bias, 0), min(c + bias, reach)))
    assert found <= stated * (1 + 1e-9) + 1e-9
    if bias <= reach / 2:
        assert found == pytest.approx(stated, rel=1e-6, abs=1e-6)


def test_the_worst_error_never_falls_with_noise_or_bias():
    scales, biases = np.geomspace(1e-3, 1e6, 60), np.linspace(0, 10, 60)
    for bias in biases:
        assert np.all(np.diff(clamped_laplace_error(scales, np.full(60, bias), 10.0)) >= -1e-9)
    for scale in scales:
        assert np.all(np.diff(clamped_laplace_error(np.full(60, scale), biases, 10.0)) >= -1e-9)


@pytest.mark.slow
@given(
    y=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    top=st.integers(1, 60),
    data=st.data(),
)
@settings(max_examples=examples(200))
def test_votes_and_costs_are_those_of_the_nearest_midpoint(y, top, data):
    width = data.draw(st.integers(1, top))
    y = np.minimum(y, top)
    partition = IntervalPartition(np.array([top, top]), np.array([top, width]))
    ends = [*range(0, top, width), top]
    twice = [a + b for a, b in pairwise(ends)]
    first = int(partition.start[1])
    assert partition.twice_midpoint[first:].tolist() == twice
    votes = [min(range(len(twice)), key=lambda j, v=v: (abs(2 * v - twice[j]), j)) for v in y]
    in_second = np.ones(len(y), dtype=np.int64)
    assert (partition.votes(y, in_second) - first).tolist() == votes
    expected = [max(sum(q < j for q in votes), sum(q > j for q in votes)) for j in range(len(twice))]
    assert partition.costs(y, in_second)[first:].tolist() == expected


@pytest.mark.parametrize("grouping", list(Grouping))
def test_array_means_and_their_projected_sums_are_those_of_plain_loops(grouping, counts_of, bound_of):
    random = np.random.default_rng(2)
    numbers = random.integers(0, 7, (5, 9)) * random.integers(0, 2, (5, 9))
    numbers[:, 0] = 3
    counts, bound = counts_of(numbers), bound_of(50)
    samples = samples_of(counts, bound, random.integers(0, 51, int(counts.count.sum())))
    lattice = ArrayLattice(grouping.arrays(counts, CountCap.ARGMAX), bound)
    arrays, means = lattice.arrays, ArrayMeans.of(samples, lattice)
    low = random.integers(0, lattice.top // 2)
    high = low + random.integers(0, lattice.top // 2)
    found = means.projected_sum(low, high)
    for bin_ in range(5):
        y = []
        for array in range(arrays.start[bin_], arrays.start[bin_ + 1]):
            inside = [
                samples.value[samples.start[pair] + offset + i]
                for pair, home, offset, count in zip(
                    arrays.piece_pair,
                    arrays.piece_array,
                    arrays.piece_offset,
                    arrays.piece_count,
                    strict=True,
                )
                for i in range(count)
                if home == array
            ]
            exact = sum(inside) * int(arrays.capacity[bin_]) / len(inside)
            y.append(int(np.floor(exact + 0.5)))
        assert sorted(y) == means.y[arrays.start[bin_] : arrays.start[bin_ + 1]].tolist()
        assert found[bin_] == sum(np.clip(y, low[bin_], high[bin_]))


class Recorder(SimulatedNoise):
    """Keeps what was asked of it."""

    def __init__(self):
        super().__init__(1)
        self.asked = []

    def choose(self, cost, weight, start, scale, runs=1):
        self.asked.append((cost, weight, start, scale))
        return super().choose(cost, weight, start, scale, runs)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_cells_on_the_lattice_have_smiths_probabilities(quantile, counts_of, bound_of):
    counts = counts_of([[1, 1, 1, 1], [1, 1, 1, 1]])
    value = [2, 5, 5, 9, 0, 0, 10, 10]
    lattice = ArrayLattice(Grouping.BEST_FIT.arrays(counts, CountCap.ARGMAX), bound_of(10))
    means, noise = ArrayMeans.of(samples_of(counts, bound_of(10), value), lattice), Recorder()
    target = np.full(2, round(TENTHS * quantile * 4))
    choice = array_choice(lattice, np.ones(2, dtype=bool), np.array([1.0, 2.0]), TENTHS)
    drawn = np.array([private_position(means, target, choice, noise) for _ in range(500)])
    law = probabilities(*noise.asked[0])
    for bin_, epsilon in enumerate((1.0, 2.0)):
        values = np.sort(value[4 * bin_ : 4 * bin_ + 4])
        # the continuous mechanism: length of a cell times exp(-eps |i - q n|/2)
        mass = np.diff([0, *values, 10]) * np.exp(-epsilon / 2 * np.abs(np.arange(5) - quantile * 4))
        np.testing.assert_allclose(law[5 * bin_ : 5 * bin_ + 5], mass / mass.sum(), atol=1e-9)
        # positions lie in cells of positive length
        ranks = np.searchsorted(values, drawn[:, bin_], side="right")
        assert set(ranks) <= set(np.flatnonzero(mass))
    assert drawn.min() >= 0
    assert drawn.max() <= 9


def laplace_law(centre, scale, support):
    q = np.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(support - centre)


class Drawn(SimulatedNoise):
    """The part ``part`` is chosen; ``scale`` is that of the noise."""

    def __init__(self, part):
        super().__init__(1)
        self.part = part

    def select_claimed(self, scores, cost, weight, start):
        return np.array([self.part])

    def measure(self, step, values):
        self.scale = step.law.scale
        return super().measure(step, values)


def levy_law(mechanism, counts, bound, epsilon, value, support):
    """Exact joint law of (chosen part, noisy integer)."""
    lattice = array_lattice(counts, bound, mechanism.grouping, mechanism.cap)
    partition, means = mechanism.partition(lattice), ArrayMeans.of(samples_of(counts, bound, value), lattice)
    (choice,) = mechanism.steps_before_sum(StatisticRequest(counts, bound, MEAN, np.array([epsilon])))
    cost = partition.costs(means.y, lattice.arrays.array_bin)
    law = probabilities(cost, np.ones_like(cost), partition.start, choice.scale)
    rows = []
    for part, share in enumerate(law):
        low, high = partition.interval(np.array([part]), mechanism.halves)
        noise = Drawn(part)
        mechanism.estimate(samples_of(counts, bound, value), MEAN, np.array([epsilon]), noise)
        rows.append(share * laplace_law(means.projected_sum(low, high)[0], noise.scale[0], support))
    return np.array(rows)


@pytest.mark.slow
@pytest.mark.parametrize("grouping", list(Grouping))
@pytest.mark.parametrize("halves", [3, 5])
@pytest.mark.parametrize("numbers", [[12, 12, 12], [12, 8, 8, 8]])
def test_the_exact_loss_of_levy_is_within_every_vehicles_own(grouping, halves, numbers, counts_of, bound_of):
    counts, bound, epsilon = counts_of([numbers]), bound_of(4), 1.5
    mechanism = Levy(grouping, gamma=0.9, halves=halves)
    assert mechanism.partition(array_lattice(counts, bound, grouping, mechanism.cap)).parts[0] > 2
    promised = (
        event_of(mechanism, StatisticRequest(counts, bound, MEAN, np.array([epsilon]))).loss_per_user / 1e12
    )
    support = np.arange(-800, 1_200)
    levels = (0, 1, 2, 4)
    laws = {
        chosen: np.log(
            levy_law(mechanism, counts, bound, epsilon, np.repeat(chosen, numbers), support) + 1e-300
        )
        for chosen in product(levels, repeat=len(numbers))
    }
    for user in range(len(numbers)):
        worst = 0.0
        for chosen, law in laws.items():
            for other in levels:
                changed = (*chosen[:user], other, *chosen[user + 1 :])
                worst = max(worst, float((law - laws[changed]).max()))
        assert worst <= promised[user] + 1e-9
        # speeds of all a vehicle's records alike come within a half of it
        assert worst > promised[user] / 2


def quantile_law(mechanism, counts, bound, epsilon, value):
    """Exact joint law of the two cells that are drawn."""
    noise, found = Recorder(), []
    mechanism.estimate(samples_of(counts, bound, value), MEAN, np.array([epsilon]), noise)
    top = array_lattice(counts, bound, mechanism.grouping, mechanism.cap).top
    for cost, weight, start, scale in noise.asked:
        density = np.repeat(probabilities(cost, weight, start, scale) / np.maximum(weight, 1), weight)
        assert len(density) == top[0]
        found.append(density)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("grouping", list(Grouping))
@pytest.mark.parametrize("rule", list(QuantileRule))
@pytest.mark.parametrize("numbers", [[1, 1, 1, 1], [3, 2, 2, 2], [2, 1]])
def test_no_position_tells_more_than_a_quarter_of_epsilon(grouping, rule, numbers, counts_of, bound_of):
    counts, bound, epsilon = counts_of([numbers]), bound_of(6), 2.0
    mechanism = Quantile(rule, grouping)
    levels = (0, 1, 5, 6)
    laws = {
        chosen: [
            np.log(law) for law in quantile_law(mechanism, counts, bound, epsilon, np.repeat(chosen, numbers))
        ]
        for chosen in product(levels, repeat=len(numbers))
    }
    for user in range(len(numbers)):
        for chosen, law in laws.items():
            for other in levels:
                changed = laws[(*chosen[:user], other, *chosen[user + 1 :])]
                for before, after in zip(law, changed, strict=True):
                    assert np.abs(before - after).max() <= epsilon / 4 + 1e-9


def test_where_the_parts_would_be_too_wide_all_of_epsilon_goes_to_the_noise(counts_of, bound_of):
    counts, bound = counts_of([[2, 1, 1]]), bound_of(60)
    plain, levy = (
        event_of(mechanism, StatisticRequest(counts, bound, MEAN, np.array([1.0])))
        for mechanism in (ArrayAveraging(Grouping.BEST_FIT), Levy())
    )
    np.testing.assert_array_equal(plain.loss_per_user, levy.loss_per_user)
    value = samples_of(counts, bound, [10, 20, 30, 40])
    found = [
        mechanism.estimate(value, MEAN, np.array([np.inf]), SimulatedNoise(3))
        for mechanism in (ArrayAveraging(Grouping.BEST_FIT), Levy())
    ]
    np.testing.assert_array_equal(*found)


def test_a_vehicle_whose_samples_are_dropped_pays_nothing(counts_of, bound_of):
    counts, bound = counts_of([[7, 5, 4, 3, 2, 2, 1]]), bound_of(65)
    for mechanism in (
        ArrayAveraging(Grouping.WRAP_AROUND, CountCap.MEDIAN),
        Levy(Grouping.WRAP_AROUND, CountCap.MEDIAN),
        Quantile(QuantileRule.FIXED, Grouping.WRAP_AROUND, CountCap.MEDIAN),
    ):
        loss = event_of(mechanism, StatisticRequest(counts, bound, MEAN, np.array([1.0]))).loss_per_user
        assert loss[6] == 0
        assert np.all(loss[:5] > 0)


def test_the_pooled_cap_keeps_the_first_samples_of_every_vehicle(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 1, 1]]), bound_of(60)
    samples = samples_of(counts, bound, [6, 60, 60, 12, 24, 30])
    median = Pooled(CountCap.MEDIAN)
    exact = np.array([np.inf])
    assert median.estimate(samples, MEAN, exact, SimulatedNoise(1))[0] == pytest.approx(18.0)


def test_array_averaging_states_its_bias_and_noise_exactly_where_it_can(counts_of, bound_of):
    counts, bound = counts_of([[7, 5, 4, 3, 2, 2, 1]]), bound_of(65, "1/1000")
    mechanism = ArrayAveraging(Grouping.BEST_FIT)
    arrays = Grouping.BEST_FIT.arrays(counts, CountCap.ARGMAX)
    bias = total_variation_bias(arrays, 65.0) + rounding_bias(MEAN, bound)
    stated = mechanism.expected_error(StatisticRequest(counts, bound, MEAN, np.array([2.0])))
    np.testing.assert_allclose(stated, clamped_laplace_error(np.array([6.5]), bias, 65.0), atol=2e-3)


def test_sums_that_could_leave_64_bits_are_refused(counts_of, bound_of):
    counts = counts_of([[4_000_000, 4_000_000]])
    with pytest.raises(UsageError, match="64 bits"):
        event_of(ArrayAveraging(), StatisticRequest(counts, bound_of(1_000_000), MEAN, np.array([1.0])))


def test_noise_that_could_not_be_drawn_is_refused_before_anything_is_charged(counts_of, bound_of):
    counts, bound = counts_of([[400, 300, 200]]), bound_of(65, "1/1000")
    for mechanism in (ArrayAveraging(), Levy(), Quantile(), Pooled()):
        with pytest.raises(UsageError, match="cannot be drawn exactly"):
            event_of(mechanism, StatisticRequest(counts, bound, MEAN, np.array([1e-11])))


@pytest.mark.parametrize("wrong", [{"gamma": 0.0}, {"gamma": 1.0}, {"halves": 4}, {"halves": 1}])
def test_settings_of_levy_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError):
        Levy(**wrong)
