"""What paper 003 says about its figures, on data that meet its published numbers.

Data: data/itms_counts (figures 1 and 2) and, as in the paper, independent samples of N(20.66769, 115.135)
projected to [0, 65] for scaled counts (figures 3 and 4). Three epsilons from 0.5 to 2. Errors of mechanisms
that select an interval are means of 2,000 runs, off by about 2 %; so "better" asks for 3 %.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import trafficdp
from trafficdp.bounding.arrays import Arrays, CountCap, argmax_cap, best_fit, median_cap, wrap_around
from trafficdp.bounding.worst_case import exact_worst_error
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic.arrays import (
    ArrayAveraging,
    ArrayLattice,
    ArrayMeans,
    Grouping,
    Levy,
    Pooled,
    Quantile,
    QuantileRule,
)
from trafficdp.mechanisms.protocol import StatisticRequest
from trafficdp.mechanisms.simulated_cities import repeat_bins
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import Samples

DATA = Path(trafficdp.__file__).parents[1] / "data" / "itms_counts"
BOUND = ContributionBound(Fraction(65), Fraction(1, 100), SpeedUnit.KILOMETRES_PER_HOUR)
EPSILONS = np.array([0.5, 1.0, 2.0])
RUNS = 2_000
BETTER = 0.97
BEST, WRAP = Grouping.BEST_FIT, Grouping.WRAP_AROUND


def one_bin(count, value):
    users = len(count)
    counts = Counts(
        cell=np.array([1], dtype=np.uint64),
        slot=np.zeros(1, dtype=np.int64),
        users_per_bin=np.array([users]),
        user_index=np.arange(users),
        count=count,
        users=users,
    )
    return Samples(counts, value, np.arange(1, users + 1), BOUND)


def synthetic(count, seed=20):
    random = np.random.default_rng(seed)
    speed = np.clip(random.normal(20.66769, np.sqrt(115.135), int(count.sum())), 0, 65)
    return one_bin(count, np.rint(speed * 100).astype(np.int64))


def side_by_side(means, times):
    """The array means of so many bins that are all the one of ``means``."""
    one, bound = means.lattice.arrays, means.lattice.bound
    again = np.repeat(np.arange(times), len(one.piece_pair))
    counts = repeat_bins(Samples(one.counts, means.y[:0], np.arange(one.counts.users), bound), times).counts
    arrays = Arrays(
        counts=counts,
        capacity=np.tile(one.capacity, times),
        array_bin=np.repeat(np.arange(times), len(one.fill)),
        fill=np.tile(one.fill, times),
        piece_pair=np.tile(one.piece_pair, times) + again * one.counts.pairs,
        piece_array=np.tile(one.piece_array, times) + again * len(one.fill),
        piece_offset=np.tile(one.piece_offset, times),
        piece_count=np.tile(one.piece_count, times),
    )
    return ArrayMeans(ArrayLattice(arrays, bound), np.tile(means.y, times))


def errors(mechanism, samples, epsilons=EPSILONS, runs=RUNS, seed=0):
    """Mean absolute error at every epsilon: exact where nothing is selected, else of ``runs`` runs."""
    truth = samples.value.mean() / 100
    asked = (samples.counts, BOUND, Statistic.MEAN)
    if not isinstance(mechanism, Levy | Quantile):
        off = mechanism.estimate(samples, Statistic.MEAN, np.array([np.inf]), SimulatedNoise(1))[0] - truth
        terms = [
            mechanism.noise_terms(StatisticRequest(*asked, np.array([epsilon])))[0] for epsilon in epsilons
        ]
        scale = np.array([(term.scale * term.step)[0] for term in terms])
        return exact_worst_error(np.full(len(epsilons), abs(off)), scale)
    lattice = ArrayLattice(mechanism.grouping.arrays(samples.counts, mechanism.cap), BOUND)
    many = side_by_side(ArrayMeans.of(samples, lattice), runs * len(epsilons))
    found = mechanism.estimate_of(many, np.tile(epsilons, runs), SimulatedNoise(seed + 1))
    return np.abs(found - truth).reshape(runs, -1).mean(axis=0)


@pytest.fixture(scope="module")
def buses():
    rows = np.loadtxt(DATA / "values.csv.gz", delimiter=",", skiprows=1, dtype=np.int64)
    return one_bin(np.bincount(rows[:, 0]), rows[:, 1])


def test_the_buses_have_the_published_figures(buses):
    counts = buses.counts
    assert counts.users == 217
    assert (counts.count.min(), counts.count.max(), counts.count.sum()) == (1, 417, 17_166)
    assert median_cap(counts).tolist() == [46]
    cap = argmax_cap(counts)
    assert wrap_around(counts, cap).per_bin.tolist() == [160]
    assert best_fit(counts, cap).per_bin.tolist() == [164]


def test_figure_1_grouping_matters_for_levy_and_quantile_and_hardly_for_array_averaging(buses):
    for build, low, high in (
        (ArrayAveraging, 0.98, 1.06),
        (Levy, 1.10, 1.35),
        (lambda grouping: Quantile(QuantileRule.FIXED, grouping), 1.4, 3.0),
    ):
        ratio = errors(build(WRAP), buses) / errors(build(BEST), buses)
        assert np.all((low < ratio) & (ratio < high)), ratio


def test_figure_2_all_clipping_methods_are_far_below_baseline(buses):
    plain = errors(Baseline(), buses)
    # the paper's Baseline is the scale itself; clamping takes nothing away here
    np.testing.assert_allclose(plain, 65 * 417 / 17_166 / EPSILONS, rtol=0.04)
    for mechanism in (
        ArrayAveraging(BEST),
        ArrayAveraging(BEST, CountCap.MEDIAN),
        Quantile(QuantileRule.FIXED, BEST),
        Quantile(QuantileRule.OPTIMIZED, BEST),
        Pooled(),
    ):
        assert np.all(errors(mechanism, buses) < plain / 3), mechanism
    assert np.all(errors(Levy(BEST), buses) < plain / 2)


def test_figure_3_with_ten_times_the_samples_levy_is_best(buses):
    many = synthetic(10 * buses.counts.count)
    levy = errors(Levy(BEST), many)
    for other in (
        Baseline(),
        ArrayAveraging(BEST),
        ArrayAveraging(BEST, CountCap.MEDIAN),
        Quantile(QuantileRule.FIXED, BEST),
        Quantile(QuantileRule.OPTIMIZED, BEST),
        Pooled(),
    ):
        assert np.all(levy < BETTER * errors(other, many)), other


@pytest.mark.parametrize("times", [2, *(pytest.param(times, marks=pytest.mark.prove) for times in (3, 5))])
def test_figure_4_with_more_users_fixed_quantile_is_best_and_array_averaging_second(buses, times):
    many = synthetic(np.repeat(buses.counts.count, times))
    first, second = errors(Quantile(QuantileRule.FIXED, BEST), many), errors(ArrayAveraging(BEST), many)
    assert np.all(first < BETTER * second)
    for other in (Baseline(), Levy(BEST), Quantile(QuantileRule.OPTIMIZED, BEST)):
        assert np.all(second < BETTER * errors(other, many)), other


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.prove)])
def test_figure_4_holds_on_average_over_cities(buses, times):
    # from about ten times the users on, the noise is so small that in one city the samples that the cap
    # drops decide; over twenty cities the order is the paper's
    epsilons = np.array([0.6, 1.0, 2.0])
    count = np.repeat(buses.counts.count, times)

    def average(mechanism):
        return np.mean(
            [errors(mechanism, synthetic(count, seed), epsilons, 100, seed) for seed in range(20)], axis=0
        )

    first, second = average(Quantile(QuantileRule.FIXED, BEST)), average(ArrayAveraging(BEST))
    assert np.all(first < BETTER * second)
    for other in (Baseline(), Levy(BEST)):
        assert np.all(second < 0.9 * average(other)), other


def test_figure_4_needs_twice_the_users(buses):
    # with the buses as they are, the order at small epsilon is the other way round
    first, second = errors(Quantile(QuantileRule.FIXED, BEST), buses), errors(ArrayAveraging(BEST), buses)
    assert first[0] > second[0]
    assert first[-1] < BETTER * second[-1]


def test_sample_scaling_keeps_the_arrays_and_user_scaling_keeps_the_cap(buses):
    # lemmas IV.1 and (the part that is true, erratum E24) IV.2
    count, cap = buses.counts.count, argmax_cap(buses.counts)
    tenfold = synthetic(10 * count).counts
    assert argmax_cap(tenfold).tolist() == (10 * cap).tolist()
    assert best_fit(tenfold, 10 * cap).per_bin.tolist() == [164]
    assert wrap_around(tenfold, 10 * cap).per_bin.tolist() == [160]
    for times in (2, 5):
        many = synthetic(np.repeat(count, times)).counts
        assert argmax_cap(many).tolist() == cap.tolist()
        assert wrap_around(many, cap).per_bin[0] >= times * 160
