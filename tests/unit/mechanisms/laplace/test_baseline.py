from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from trafficdp.mechanisms import publish
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.lattice import Lattice, to_lattice
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
ONES = np.ones(1, dtype=np.int64)


def no_noise(scale):
    return np.zeros(scale.shape, dtype=np.int64)


def test_the_integers_are_the_sums_they_claim_to_be(contributions_of, bound_of):
    city = contributions_of([[[1, 2], [5], []], [[0, 0, 3], [], [9]]], bound_of(9))
    assert baseline.exact_integer(MEAN, city).tolist() == [8, 12]
    assert baseline.exact_integer(VARIANCE, city).tolist() == [3 * 30 - 64, 4 * 90 - 144]
    # vehicle means 1.5 -> 2 and 5; 1 and 9
    assert baseline.exact_integer(VEHICLE_MEAN, city).tolist() == [7, 10]


def test_huge_integers_stay_exact(counts_of, bound_of):
    from trafficdp.sensitive.contributions import Contributions

    counts = counts_of([[4_000_000, 5_000_000]])
    steps = 1_000_000
    city = Contributions(counts, counts.count * steps, counts.count * steps**2, np.arange(2), bound_of(steps))
    assert baseline.exact_integer(VARIANCE, city).tolist() == [0]
    assert baseline.exact_integer(MEAN, city).tolist() == [9 * 10**12]


@pytest.mark.parametrize("statistic", list(Statistic))
@pytest.mark.parametrize("users", [1, 2])
def test_no_change_of_one_vehicle_exceeds_the_stated_sensitivity_and_one_attains_it(
    statistic, users, contributions_of, bound_of
):
    bound = bound_of(3)
    for count, rest in [(1, 1), (2, 1), (1, 3), (3, 1), (2, 2)]:
        others = list(product(range(4), repeat=rest)) if users == 2 else [()]
        own = list(product(range(4), repeat=count))
        integer, city = {}, None
        for theirs in others:
            for mine in own:
                city = contributions_of([[list(mine), list(theirs)]], bound)
                integer[theirs, mine] = baseline.exact_integer(statistic, city)[0]
        most = max(abs(integer[o, a] - integer[o, b]) for o in others for a in own for b in own)
        samples = count + (rest if users == 2 else 0)
        unit = {MEAN: samples, VARIANCE: samples**2, VEHICLE_MEAN: users}[statistic]
        stated = baseline.largest_sensitivity(statistic, city.counts, bound)[0]
        if users == 2 and count < rest and statistic is not VEHICLE_MEAN:
            assert Fraction(most, unit) <= Fraction(stated)
        else:
            assert float(Fraction(most, unit)) == pytest.approx(stated, rel=1e-14)


def test_without_noise_the_statistics_come_out_exactly(contributions_of, bound_of):
    bound = bound_of(30, "1/10")
    city = contributions_of([[[10, 20], [300]], [[7], []]], bound)
    ones = np.ones(2, dtype=np.int64)
    lattices = {s: Lattice(np.full(2, 1e-3), ones) for s in (MEAN, VEHICLE_MEAN)}
    lattices[VARIANCE] = Lattice(np.array([1e-3, 0.0]), ones)
    found = baseline.release(city, lattices, no_noise, interval_level=0.95, uninformative_above=0.125)
    assert list(found) == [MEAN, VARIANCE, VEHICLE_MEAN]
    np.testing.assert_allclose(found[MEAN].value, [11.0, 0.7])
    np.testing.assert_allclose(found[VARIANCE].value, [np.var([1, 2, 30]), 0])
    np.testing.assert_allclose(found[VEHICLE_MEAN].value, [(1.5 + 30) / 2, 0.7])
    assert found[VARIANCE].status.tolist() == ["released", "constant"]
    assert (found[VARIANCE].low[1], found[VARIANCE].high[1]) == (0, 0)
    assert found[VARIANCE].expected_error[1] == 0


@pytest.mark.parametrize("shift", [-(10**9), -50, 0, 50, 10**9])
def test_numbers_and_intervals_stay_in_their_range(shift, contributions_of, bound_of):
    bound = bound_of(30)
    city = contributions_of([[[10, 20], [30]], [[0, 0], [0]], [[0, 30], [30]]], bound)
    lattices = {s: Lattice(np.full(3, 5.0), np.ones(3, dtype=np.int64)) for s in Statistic}
    found = baseline.release(
        city,
        lattices,
        lambda scale: np.full(scale.shape, shift),
        interval_level=0.9,
        uninformative_above=0.125,
    )
    for statistic, estimate in found.items():
        reach = statistic.largest(30.0)
        assert np.all((estimate.low >= 0) & (estimate.high <= reach))
        assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
    mean = found[MEAN].value
    assert np.all(found[VARIANCE].value <= mean * (30 - mean))


@pytest.mark.parametrize("fraction", [0.0, 0.13, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("scale", [0.05, 1.0, 7.0, 60.0, 1e4])
def test_the_expected_error_is_a_bound_at_every_truth_and_attained_in_the_middle(scale, fraction):
    upper, steps = 30.0, 3_000
    truth = round(fraction * steps)
    b = scale * steps / upper
    z = np.arange(-steps, steps + 1)
    law = stats.dlaplace(1 / b)
    inside = np.clip(truth + z, 0, steps)
    weights = law.pmf(z)
    error = np.sum(weights * np.abs(inside - truth))
    error += law.cdf(-steps - 1) * truth + law.sf(steps) * (steps - truth)
    stated = baseline.expected_error(MEAN, np.array([scale]), upper)[0]
    assert error * upper / steps <= stated * (1 + 1e-9)
    if fraction == 0.5:
        assert error * upper / steps == pytest.approx(stated, rel=0.05)


def test_the_expected_error_saturates_at_half_the_range():
    errors = baseline.expected_error(MEAN, np.array([0.0, 1e-9, 1.0, 1e3, 1e300]), 30.0)
    assert errors[0] == 0
    assert np.all(np.diff(errors) >= 0)
    assert errors[-1] == pytest.approx(15)
    assert baseline.expected_error(VARIANCE, np.array([1e300]), 30.0)[0] == pytest.approx(112.5)


def test_the_published_error_includes_rounding_to_the_step(contributions_of, bound_of):
    city = contributions_of([[[1, 2], [3]]], bound_of(30, 10))
    lattices = {s: Lattice(np.array([1e-3]), ONES) for s in Statistic}
    found = baseline.release(city, lattices, no_noise, interval_level=0.95, uninformative_above=0.125)
    assert found[MEAN].expected_error[0] >= 5
    assert found[VEHICLE_MEAN].expected_error[0] >= 10
    assert found[VARIANCE].expected_error[0] >= 30 * 10 / 2 + 25


@pytest.mark.parametrize("step", ["2", "1/50"])
@pytest.mark.parametrize("statistic", list(Statistic))
def test_rounding_moves_a_statistic_by_at_most_its_stated_bias(statistic, step, bound_of):
    """Speeds in m/s are rounded to hundredths, then in km/h to the step: either can be the coarser."""
    random = np.random.default_rng(4)
    bound, width = bound_of(10, step), float(Fraction(step))
    bias, worst = publish.rounding_bias(statistic, bound), 0.0
    for _ in range(3_000):
        sizes = random.integers(1, 4, 2)
        ends = np.concatenate([np.linspace(0, 0.3, 97), np.linspace(2.5, 2.8, 97)])
        reported = [random.choice(ends, size) for size in sizes]
        values = [np.clip(v * 3.6, 0, 10) for v in reported]
        hundredths = [np.clip(np.rint(v * 100) * 0.036, 0, 10) for v in reported]
        rounded = [np.floor(v / width + 0.5) * width for v in hundredths]
        if statistic is VEHICLE_MEAN:
            whole = [np.floor(r.mean() / width + 0.5) * width for r in rounded]
            moved = np.mean(whole) - np.mean([v.mean() for v in values])
        else:
            measure = np.mean if statistic is MEAN else np.var
            moved = measure(np.concatenate(rounded)) - measure(np.concatenate(values))
        worst = max(worst, abs(moved))
    assert bias / 2 < worst <= bias * (1 + 1e-12)


def test_the_event_states_the_whole_promise(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2]]), bound_of(60)
    lattices = {s: to_lattice(s, counts, bound, np.array([50.0, 80.0])) for s in (MEAN, VARIANCE)}
    event = baseline.event(counts, bound, lattices)
    assert event.mechanism == "baseline"
    assert event.relation is NeighbouringRelation.REPLACE_USER_VALUES
    assert event.statistics == (MEAN, VARIANCE)
    assert event.bins == 2
    assert not event.idealised
    assert {assumption.code for assumption in event.assumptions} >= {"counts_public", "validity_public"}
    assert event.loss.pico == event.loss_per_user.max() > 0
    np.testing.assert_allclose(event.sensitivity[MEAN], [45, 30])
    np.testing.assert_allclose(event.sensitivity[VARIANCE], [3600 * 4 / 16, 3600 * 4 / 16])
