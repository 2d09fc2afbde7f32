"""What every mechanism of the registry keeps, whatever it is."""

import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import trafficdp.mechanisms as room
from trafficdp.errors import UsageError
from trafficdp.measurement.measure import Metered
from trafficdp.mechanisms.registry import (
    APPROX_MECHANISMS,
    MECHANISMS,
    PURE_MECHANISMS,
    ZCDP_MECHANISMS,
    pure_mechanism_named,
    zcdp_mechanism_named,
)
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import CHARGE_STEP
from trafficdp.sensitive.samples import Samples


def cases_of(mechanisms):
    found = [
        pytest.param(mechanism, statistic, id=f"{mechanism.name}-{statistic.value}")
        for mechanism in mechanisms
        for statistic in mechanism.statistics
    ]
    return pytest.mark.parametrize(("mechanism", "statistic"), found)


every_case = cases_of(PURE_MECHANISMS)
every_case_by_bin = cases_of((*PURE_MECHANISMS, *APPROX_MECHANISMS))
"""Mechanisms that treat bins by themselves, each at its own epsilon."""
every_case_of_all_kinds = cases_of(MECHANISMS)
UPPER = 60
# one bin that a vehicle dominates, one of equals, one vehicle alone, one record alone
COUNTS = [[9, 3, 2, 1, 1], [2, 2, 2, 2, 2], [0, 4, 0, 0, 0], [0, 0, 0, 0, 1]]


def samples_of(counts, bound, seed=1, constant=None):
    size = int(counts.count.sum())
    random = np.random.default_rng(seed)
    value = random.integers(0, bound.steps + 1, size) if constant is None else np.full(size, constant)
    return Samples(counts, value, np.arange(1, counts.users + 1), bound)


def truth(samples, statistic):
    """The statistic of every bin, from the definition."""
    owner = np.repeat(np.arange(samples.counts.pairs), samples.counts.count)
    of_bin = samples.counts.bin_index[owner]
    found = []
    for bin_ in range(samples.counts.bins):
        inside = of_bin == bin_
        values = samples.value[inside] * float(samples.bound.step)
        if statistic is Statistic.MEAN:
            found.append(values.mean())
        elif statistic is Statistic.VARIANCE:
            found.append(values.var())
        else:
            owners = owner[inside]
            found.append(np.mean([values[owners == one].mean() for one in np.unique(owners)]))
    return np.array(found)


def side_by_side(samples, times):
    """The same bins ``times`` times: one estimate is ``times`` independent ones."""
    one = samples.counts
    again = np.arange(times)[:, None]
    counts = Counts(
        cell=np.arange(1, times * one.bins + 1, dtype=np.uint64),
        slot=np.tile(one.slot, times),
        bin_index=(one.bin_index + again * one.bins).ravel(),
        user_index=np.tile(one.user_index, times),
        count=np.tile(one.count, times),
        users=one.users,
    )
    return Samples(counts, np.tile(samples.value, times), samples.vehicle, samples.bound)


def asked(mechanism, counts, amount):
    """What the mechanism is asked for in its own kind: a rho for all bins, or an epsilon a bin."""
    return amount if mechanism in ZCDP_MECHANISMS else np.full(counts.bins, amount)


def promised(mechanism, counts, bound, statistic, amount):
    """The most that a vehicle loses, in 10^-12 of the mechanism's own kind."""
    given = asked(mechanism, counts, amount)
    if mechanism in APPROX_MECHANISMS:
        return mechanism.guarantee(counts, bound, statistic, given).pico
    return mechanism.event(counts, bound, statistic, given).loss.pico


class Silent(SimulatedNoise):
    """No noise, whatever its scale."""

    def discrete_laplace(self, scale):
        return np.zeros(scale.shape, dtype=np.int64)


@pytest.fixture(scope="module")
def city(counts_of, bound_of):
    return samples_of(counts_of(COUNTS), bound_of(UPPER, "1/10"))


@pytest.fixture(scope="module")
def larger_city(counts_of, bound_of):
    random = np.random.default_rng(9)
    counts = random.geometric(0.2, (6, 40)) * random.integers(0, 2, (6, 40))
    return samples_of(counts_of(counts), bound_of(UPPER, "1/10"))


def test_names_are_unique_and_lead_to_their_mechanism():
    names = [mechanism.name for mechanism in MECHANISMS]
    assert len(set(names)) == len(names)
    for named, known in ((pure_mechanism_named, PURE_MECHANISMS), (zcdp_mechanism_named, ZCDP_MECHANISMS)):
        for mechanism in MECHANISMS:
            if mechanism in known:
                assert named(mechanism.name) is mechanism
            else:
                # kinds never mix
                with pytest.raises(UsageError, match="unknown"):
                    named(mechanism.name)
    for mechanism in MECHANISMS:
        assert mechanism.name == mechanism.name.lower().replace(" ", "_").replace("-", "_")
        assert len(mechanism.citation) > 20
        assert mechanism.statistics
    with pytest.raises(UsageError, match="unknown mechanism"):
        pure_mechanism_named("guess")


def test_every_mechanism_of_the_room_is_listed():
    listed = {type(mechanism) for mechanism in MECHANISMS}
    listed |= {type(mechanism.means) for mechanism in MECHANISMS if hasattr(mechanism, "means")}
    there = set()
    for file in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        module = importlib.import_module(file.name)
        own = [each for _, each in inspect.getmembers(module, inspect.isclass)]
        there |= {
            each
            for each in own
            if each.__module__ == module.__name__
            and hasattr(each, "estimate")
            and hasattr(each, "citation")
            and not getattr(each, "_is_protocol", False)
        }
    assert there == listed


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_its_file_states_theorem_relation_and_sensitivity(mechanism):
    words = inspect.getdoc(sys.modules[type(mechanism).__module__])
    assert "Theorem (REPLACE_USER_VALUES)" in words
    assert re.search(r"sensitivit|chang|moves", words)
    assert inspect.getdoc(type(mechanism))
    for question in ("expected_error", "estimate"):
        assert inspect.getdoc(getattr(type(mechanism), question))


@every_case
def test_the_promise_needs_no_values_and_says_what_it_is(mechanism, statistic, city):
    counts, bound = city.counts, city.bound
    event = mechanism.event(counts, bound, statistic, np.full(counts.bins, 0.7))
    assert event.mechanism == mechanism.name
    assert event.statistics == (statistic,)
    assert event.relation is NeighbouringRelation.REPLACE_USER_VALUES
    assert {assumption.code for assumption in event.assumptions} >= {"counts_public", "declared_bounds"}
    assert event.bins == counts.bins
    assert event.idealised == mechanism.idealised
    assert event.loss_per_user.shape == (counts.users,)
    assert event.loss_per_user.dtype == np.int64
    stated = event.sensitivity[statistic]
    assert stated.shape == (counts.bins,)
    assert np.all(stated >= 0)
    error = mechanism.expected_error(counts, bound, statistic, np.full(counts.bins, 0.7))
    assert error.shape == (counts.bins,)
    assert np.all((error >= 0) & (error <= statistic.largest(UPPER) * (1 + 1e-12)))


@every_case
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 7.3])
def test_one_bin_costs_what_was_asked(mechanism, statistic, epsilon, larger_city):
    for bin_ in range(3):
        counts = larger_city.counts.select(np.arange(larger_city.counts.bins) == bin_)
        event = mechanism.event(counts, larger_city.bound, statistic, np.array([epsilon]))
        # never more, in whole charges of 10^-9
        assert int(event.loss.pico) <= round(epsilon * 1e12) + 1_000
        # a mechanism may decline a bin in public, at no cost
        assert float(event.loss.epsilon) >= epsilon * 0.5 or event.loss.pico == 0
        absent = np.setdiff1d(np.arange(counts.users), counts.user_index)
        assert np.all(event.loss_per_user[absent] == 0)


@every_case
def test_bins_add_up_and_no_vehicle_pays_for_bins_it_was_not_in(mechanism, statistic, larger_city):
    counts, bound = larger_city.counts, larger_city.bound
    epsilon = np.linspace(0.3, 1.2, counts.bins)
    together = mechanism.event(counts, bound, statistic, epsilon).loss_per_user
    apart = np.zeros_like(together)
    for bin_ in range(counts.bins):
        chosen = np.arange(counts.bins) == bin_
        event = mechanism.event(counts.select(chosen), bound, statistic, epsilon[chosen])
        apart += event.loss_per_user
    # apart, every bin is rounded up to a charge
    assert np.all(together <= apart)
    assert np.all(apart - together <= 1_000 * counts.bins)
    visits = np.zeros(counts.users)
    np.add.at(visits, counts.user_index, epsilon[counts.bin_index])
    assert np.all(together <= np.round(visits * 1e12) + 1_000)


@every_case_of_all_kinds
def test_the_expected_error_does_not_rise_with_epsilon(mechanism, statistic, larger_city):
    counts, bound = larger_city.counts, larger_city.bound
    errors = [
        mechanism.expected_error(counts, bound, statistic, asked(mechanism, counts, amount))
        for amount in (0.001, 0.1, 0.3, 1.0, 3.0, 10.0, 1_000.0)
    ]
    assert np.all(errors[-1] <= errors[0] * (1 + 1e-9))
    if not mechanism.idealised:
        for more, less in pairwise(errors):
            assert np.all(less <= more * (1 + 1e-9) + 1e-9)


@pytest.mark.slow
@every_case_by_bin
def test_measured_errors_stay_below_the_expected_one(mechanism, statistic, city):
    runs = 2_000
    extremes = [samples_of(city.counts, city.bound, constant=c) for c in (0, city.bound.steps)]
    halves = replace(city, value=np.where(np.arange(len(city.value)) % 2, 0, city.bound.steps))
    for epsilon in (0.3, 3.0):
        share = np.full(city.counts.bins, epsilon)
        stated = mechanism.expected_error(city.counts, city.bound, statistic, share)
        for samples in (city, halves, *extremes):
            many = side_by_side(samples, runs)
            found = mechanism.estimate(many, statistic, np.tile(share, runs), SimulatedNoise(17))
            error = np.abs(found.reshape(runs, -1) - truth(samples, statistic))
            spread = error.std(axis=0) / np.sqrt(runs)
            assert np.all(error.mean(axis=0) <= stated + 6 * spread + 1e-9)


@every_case_of_all_kinds
def test_estimates_lie_in_the_range_of_the_statistic(mechanism, statistic, city):
    for amount in (0.02, 1.0, 50.0):
        for seed in range(5):
            given = asked(mechanism, city.counts, amount)
            found = mechanism.estimate(city, statistic, given, SimulatedNoise(seed))
            assert found.shape == (city.counts.bins,)
            assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))


@every_case_of_all_kinds
def test_the_same_seed_gives_the_same_output_and_another_another(mechanism, statistic, larger_city):
    share = asked(mechanism, larger_city.counts, 1.0)
    first, again, other = (
        mechanism.estimate(larger_city, statistic, share, SimulatedNoise(seed)) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    lost = promised(mechanism, larger_city.counts, larger_city.bound, statistic, 1.0)
    assert lost == 0 or np.any(first != other)


@every_case_of_all_kinds
def test_infinite_epsilon_leaves_the_clipped_statistic(mechanism, statistic, city):
    share = asked(mechanism, city.counts, np.inf)
    first, again = (mechanism.estimate(city, statistic, share, SimulatedNoise(seed)) for seed in (5, 5))
    np.testing.assert_array_equal(first, again)
    # what remains is off by clipping, grouping and projection, never by more than is stated
    stated = mechanism.expected_error(city.counts, city.bound, statistic, share)
    assert np.all(np.abs(first - truth(city, statistic)) <= stated + 1e-9)


@every_case
def test_vehicles_are_exchangeable(mechanism, statistic, bound_of, counts_of):
    # distinct counts, so that no tie is broken by a vehicle's position
    numbers = np.array([[9, 6, 4, 2, 1], [1, 3, 5, 8, 11]])
    bound = bound_of(UPPER)
    random = np.random.default_rng(8)
    speeds = {(b, u): random.integers(0, UPPER + 1, numbers[b, u]) for b in range(2) for u in range(5)}
    order = np.array([3, 0, 4, 1, 2])

    def build(users):
        counts = counts_of(numbers[:, users])
        value = np.concatenate([speeds[b, u] for b in range(2) for u in users])
        return Samples(counts, value, np.arange(1, 6), bound)

    share = np.full(2, 1.0)
    straight, mixed = build(np.arange(5)), build(order)
    losses = [
        mechanism.event(each.counts, bound, statistic, share).loss_per_user for each in (straight, mixed)
    ]
    np.testing.assert_array_equal(losses[0][order], losses[1])
    estimates = [
        mechanism.estimate(each, statistic, np.full(2, np.inf), SimulatedNoise(6))
        for each in (straight, mixed)
    ]
    np.testing.assert_allclose(*estimates, rtol=1e-12, atol=1e-9)


@every_case
def test_one_vehicle_changes_no_more_than_is_stated(mechanism, statistic, bound_of, counts_of):
    """Without noise the output may move by the stated sensitivity at most: all corners, one bin."""
    bound = bound_of(UPPER)
    if mechanism.name.split("_")[0] in {"levy", "fixed", "optimized", "huber", "two"}:
        pytest.skip("selects from values: without noise the selection itself jumps; see tests/audit")
    clips_by_epsilon = mechanism.name.startswith(("worst_case_clipping", "direct_clipping"))
    for numbers in ([3, 2, 1], [4, 1, 1], [2, 2, 2], [5]):
        counts = counts_of([numbers])
        stated = mechanism.event(counts, bound, statistic, np.array([1.0])).sensitivity[statistic][0]
        size, most = sum(numbers), 0.0
        corners = np.array([[(k >> i) & 1 for i in range(size)] for k in range(2**size)])
        found = np.array(
            [
                mechanism.estimate(
                    Samples(counts, corner * UPPER, np.arange(1, len(numbers) + 1), bound),
                    statistic,
                    # clipping that depends on epsilon is tested at the one that is stated
                    np.array([1.0 if clips_by_epsilon else np.inf]),
                    Silent(1),
                )[0]
                for corner in corners
            ]
        )
        begin = np.concatenate([[0], np.cumsum(numbers)])
        for user in range(len(numbers)):
            others = np.delete(corners, np.arange(begin[user], begin[user + 1]), axis=1)
            _, group = np.unique(others, axis=0, return_inverse=True)
            high, low = np.full(group.max() + 1, -np.inf), np.full(group.max() + 1, np.inf)
            np.maximum.at(high, group, found)
            np.minimum.at(low, group, found)
            most = max(most, float((high - low).max()))
        assert most <= stated * (1 + 1e-9)


@every_case_of_all_kinds
@pytest.mark.parametrize("constant", ["zero", "upper"])
def test_constant_speeds_and_lone_vehicles_are_no_trouble(mechanism, statistic, constant, city):
    value = 0 if constant == "zero" else city.bound.steps
    samples = samples_of(city.counts, city.bound, constant=value)
    for amount in (1e-4, 1.0, 100.0 if mechanism.idealised else 1e4, np.inf):
        given = asked(mechanism, city.counts, amount)
        found = mechanism.estimate(samples, statistic, given, SimulatedNoise(2))
        assert np.all(np.isfinite(found))


@every_case_of_all_kinds
def test_an_empty_map_is_no_trouble(mechanism, statistic, counts_of, bound_of):
    empty = counts_of(np.zeros((0, 3), dtype=np.int64))
    bound, nothing = bound_of(UPPER), asked(mechanism, empty, 1.0)
    assert promised(mechanism, empty, bound, statistic, 1.0) == 0
    if mechanism not in APPROX_MECHANISMS:
        assert mechanism.event(empty, bound, statistic, nothing).loss_per_user.tolist() == [0, 0, 0]
    assert mechanism.expected_error(empty, bound, statistic, nothing).shape == (0,)
    samples = Samples(empty, np.zeros(0, dtype=np.int64), np.arange(3), bound)
    assert mechanism.estimate(samples, statistic, nothing, SimulatedNoise(1)).shape == (0,)


@every_case_of_all_kinds
@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan])
def test_an_epsilon_that_is_not_positive_is_refused(mechanism, statistic, epsilon, city):
    share = asked(mechanism, city.counts, epsilon)
    if mechanism not in ZCDP_MECHANISMS:
        share[:1] = 1.0
    with pytest.raises(UsageError, match=r"epsilon|rho"):
        (getattr(mechanism, "guarantee", None) or mechanism.event)(city.counts, city.bound, statistic, share)
    # numerical warnings on the way to the refusal are no matter
    with np.errstate(all="ignore"), pytest.raises(UsageError):
        mechanism.estimate(city, statistic, share, SimulatedNoise(1))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_statistics_that_are_not_offered_are_refused(mechanism, city):
    share = asked(mechanism, city.counts, 1.0)
    for statistic in set(Statistic) - set(mechanism.statistics):
        with pytest.raises(UsageError, match="statistic"):
            mechanism.event(city.counts, city.bound, statistic, share)
        with pytest.raises(UsageError, match="statistic"):
            mechanism.estimate(city, statistic, share, SimulatedNoise(1))


@every_case_of_all_kinds
def test_exact_mechanisms_draw_from_the_secure_source(mechanism, statistic, city):
    if mechanism.idealised:
        pytest.skip("idealised: never from the secure source without a switch")
    given, source = asked(mechanism, city.counts, 2.0), SecureNoise()
    if not hasattr(mechanism, "steps"):
        found = mechanism.estimate(city, statistic, given, source)
        assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))
        return
    # what is metered is what is charged
    charged = mechanism.event(city.counts, city.bound, statistic, given).loss_per_user
    measure = Metered(source, charged, mechanism.kind)
    found = mechanism.estimate(city, statistic, given, measure)
    assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))
    np.testing.assert_array_equal(-(-measure.spent // CHARGE_STEP) * CHARGE_STEP, charged)
