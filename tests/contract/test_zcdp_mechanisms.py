"""What mechanisms that count in rho keep besides: the price to the last digit, whatever the rho."""

from itertools import pairwise

import numpy as np
import pytest

from trafficdp.mechanisms.registry import ZCDP_MECHANISMS
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import ZCDP
from trafficdp.sensitive.samples import Samples

CASES = [
    pytest.param(mechanism, statistic, id=f"{mechanism.name}-{statistic.value}")
    for mechanism in ZCDP_MECHANISMS
    for statistic in mechanism.statistics
]
every_case = pytest.mark.parametrize(("mechanism", "statistic"), CASES)
UPPER = 60
# a bin that a vehicle dominates, one of equals, a vehicle alone, a record alone; the last vehicle is nowhere
COUNTS = [[9, 3, 2, 1, 1, 0], [2, 2, 2, 2, 2, 0], [0, 4, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]]
RHOS = [2e-6, 0.01, 1.0, 7.3, 12345.678901234567, 1e6]


def samples_of(counts, bound, seed=1, constant=None):
    size = int(counts.count.sum())
    random = np.random.default_rng(seed)
    value = random.integers(0, bound.steps + 1, size) if constant is None else np.full(size, constant)
    return Samples(counts, value, np.arange(1, counts.users + 1), bound)


def truth(samples, statistic):
    """The statistic of every bin, from the definition."""
    of_bin = np.repeat(samples.counts.bin_index, samples.counts.count)
    values = [
        samples.value[of_bin == bin_] * float(samples.bound.step) for bin_ in range(samples.counts.bins)
    ]
    return np.array([each.mean() if statistic is Statistic.MEAN else each.var() for each in values])


@pytest.fixture(scope="module")
def city(counts_of, bound_of):
    return samples_of(counts_of(COUNTS), bound_of(UPPER, "1/10"))


@pytest.fixture(scope="module")
def larger_city(counts_of, bound_of):
    random = np.random.default_rng(9)
    counts = random.geometric(0.2, (6, 40)) * random.integers(0, 2, (6, 40))
    counts[0] += 1
    return samples_of(counts_of(counts), bound_of(UPPER, "1/10"))


@every_case
@pytest.mark.parametrize("rho", RHOS)
def test_no_vehicle_pays_more_than_rho_and_one_pays_it(mechanism, statistic, rho, city):
    event = mechanism.event(city.counts, city.bound, statistic, rho)
    assert (event.mechanism, event.statistics) == (mechanism.name, (statistic,))
    assert event.relation is NeighbouringRelation.REPLACE_USER_VALUES
    assert {assumption.code for assumption in event.assumptions} >= {"counts_public", "declared_bounds"}
    assert event.bins == city.counts.bins
    assert not event.idealised
    assert event.loss_per_user.shape == (city.counts.users,)
    assert event.loss_per_user.dtype == np.int64
    # exact: not even one 10^-12 more
    assert event.loss.pico <= ZCDP.of(rho).pico
    assert event.loss.pico >= ZCDP.of(rho).pico * (1 - 1e-5)
    assert event.loss_per_user[-1] == 0
    assert np.all(event.loss_per_user[:-1] > 0)


@every_case
def test_more_rho_never_costs_a_vehicle_less(mechanism, statistic, larger_city):
    losses = [
        mechanism.event(larger_city.counts, larger_city.bound, statistic, rho).loss_per_user for rho in RHOS
    ]
    for less, more in pairwise(losses):
        assert np.all(less <= more)


@every_case
def test_errors_fall_as_rho_grows_and_vanish_for_speeds_alike(mechanism, statistic, counts_of, bound_of):
    counts = counts_of(np.ones((3, 300), dtype=np.int64))
    random = np.random.default_rng(2)
    bound = bound_of(UPPER, "1/10")
    value = np.rint(np.clip(random.normal([[200], [300], [350]], 40, (3, 300)), 0, bound.steps))
    samples = Samples(counts, value.astype(np.int64).ravel(), np.arange(300), bound)
    errors = [
        np.mean(
            [
                np.abs(
                    mechanism.estimate(samples, statistic, rho, SimulatedNoise(s)) - truth(samples, statistic)
                )
                for s in range(8)
            ]
        )
        for rho in (1e-3, 1.0, 1e4)
    ]
    assert errors[0] > 3 * errors[1] > 3 * errors[2]
    # what is left is the bias of clipping a few of 300 vehicles
    assert errors[2] < 0.02 * statistic.largest(UPPER)


@every_case
def test_vehicles_are_exchangeable(mechanism, statistic, bound_of, counts_of):
    counts = np.array([[9, 6, 4, 2, 1], [1, 3, 5, 8, 0]])
    bound, order = bound_of(UPPER), np.array([3, 0, 4, 1, 2])
    random = np.random.default_rng(8)
    speeds = {(b, u): random.integers(0, UPPER + 1, counts[b, u]) for b in range(2) for u in range(5)}

    def build(users):
        value = np.concatenate([speeds[b, u] for b in range(2) for u in users])
        return Samples(counts_of(counts[:, users]), value, np.arange(1, 6), bound)

    straight, mixed = build(np.arange(5)), build(order)
    losses = [mechanism.event(each.counts, bound, statistic, 1.0).loss_per_user for each in (straight, mixed)]
    np.testing.assert_array_equal(losses[0][order], losses[1])
    estimates = [mechanism.estimate(each, statistic, np.inf, SimulatedNoise(6)) for each in (straight, mixed)]
    np.testing.assert_allclose(*estimates, rtol=1e-12, atol=1e-9)


@every_case
@pytest.mark.parametrize("constant", ["zero", "upper"])
@pytest.mark.parametrize("counts", [COUNTS, [[1]], [[5]], [[1, 1]], [[0, 7]]])
def test_constant_speeds_and_lone_vehicles_are_no_trouble(
    mechanism, statistic, constant, counts, counts_of, bound_of
):
    bound = bound_of(UPPER)
    samples = samples_of(counts_of(counts), bound, constant=0 if constant == "zero" else bound.steps)
    for rho in (2e-6, 1.0, 1e6):
        mechanism.event(samples.counts, bound, statistic, rho)
        found = mechanism.estimate(samples, statistic, rho, SimulatedNoise(2))
        assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))
        if statistic is Statistic.VARIANCE:
            assert np.all(found[samples.counts.samples_per_bin == 1] == 0)
