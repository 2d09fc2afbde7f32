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
from trafficdp.audit.lower_bound import ReplayedDraws
from trafficdp.errors import UsageError
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, mechanism_named, mechanisms_of
from trafficdp.mechanisms.protocol import (
    ClaimedNoise,
    ClaimedScores,
    StatisticRequest,
    claimed_steps,
    event_of,
    unenforced_theorems,
)
from trafficdp.mechanisms.simulated_cities import repeat_bins
from trafficdp.model import NeighbouringRelation, Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import CHARGE_STEP, LossKind
from trafficdp.privacy.loss import ZCDP as Rho
from trafficdp.sensitive import Samples

PURE, ZCDP = (mechanisms_of(kind) for kind in (LossKind.PURE, LossKind.ZCDP))


def cases_of(mechanisms):
    found = [
        pytest.param(mechanism, statistic, id=f"{mechanism.name}-{statistic.value}")
        for mechanism in mechanisms
        for statistic in mechanism.statistics
    ]
    return pytest.mark.parametrize(("mechanism", "statistic"), found)


every_case = cases_of(MECHANISMS)
every_pure_case, every_zcdp_case = cases_of(PURE), cases_of(ZCDP)
UPPER = 60
# one bin that a vehicle dominates, one of equals, one vehicle alone, one record alone
COUNTS = [[9, 3, 2, 1, 1], [2, 2, 2, 2, 2], [0, 4, 0, 0, 0], [0, 0, 0, 0, 1]]


def samples_of(counts, bound, seed=1, constant=None):
    size = int(counts.count.sum())
    random = np.random.default_rng(seed)
    value = random.integers(0, bound.upper_steps + 1, size) if constant is None else np.full(size, constant)
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


def asked(mechanism, counts, amount):
    """What the mechanism is asked for in its own kind: a rho for all bins, or an epsilon a bin."""
    return np.array(amount) if mechanism.kind is LossKind.ZCDP else np.full(counts.bins, amount)


def promised(mechanism, counts, bound, statistic, amount):
    """The event at ``amount``, of the mechanism's own kind."""
    return event_of(mechanism, StatisticRequest(counts, bound, statistic, asked(mechanism, counts, amount)))


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
    for mechanism in MECHANISMS:
        for kind in LossKind:
            if mechanism.kind is kind:
                assert mechanism_named(mechanism.name, kind) is mechanism
            else:
                # kinds never mix
                with pytest.raises(UsageError, match="unknown"):
                    mechanism_named(mechanism.name, kind)
    for mechanism in MECHANISMS:
        assert mechanism.name == mechanism.name.lower().replace(" ", "_").replace("-", "_")
        assert len(mechanism.citation) > 20
        assert mechanism.statistics
    with pytest.raises(UsageError, match="unknown mechanism"):
        mechanism_named("guess", LossKind.PURE)


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


@every_pure_case
def test_the_promise_needs_no_values_and_says_what_it_is(mechanism, statistic, city):
    counts, bound = city.counts, city.bound
    event = promised(mechanism, counts, bound, statistic, 0.7)
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
    error = mechanism.expected_error(StatisticRequest(counts, bound, statistic, np.full(counts.bins, 0.7)))
    assert error.shape == (counts.bins,)
    assert np.all((error >= 0) & (error <= statistic.largest(UPPER) * (1 + 1e-12)))


@every_pure_case
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 7.3])
def test_one_bin_costs_what_was_asked(mechanism, statistic, epsilon, larger_city):
    for bin_ in range(3):
        counts = larger_city.counts.select(np.arange(larger_city.counts.bins) == bin_)
        event = promised(mechanism, counts, larger_city.bound, statistic, epsilon)
        # never more, in whole charges of 10^-9
        assert int(event.loss.pico) <= round(epsilon * 1e12) + 1_000
        # a mechanism may decline a bin in public, at no cost
        assert float(event.loss.exact) >= epsilon * 0.5 or event.loss.pico == 0
        absent = np.setdiff1d(np.arange(counts.users), counts.user_index)
        assert np.all(event.loss_per_user[absent] == 0)


@every_pure_case
def test_bins_add_up_and_no_vehicle_pays_for_bins_it_was_not_in(mechanism, statistic, larger_city):
    counts, bound = larger_city.counts, larger_city.bound
    epsilon = np.linspace(0.3, 1.2, counts.bins)
    together = event_of(mechanism, StatisticRequest(counts, bound, statistic, epsilon)).loss_per_user
    apart = np.zeros_like(together)
    for bin_ in range(counts.bins):
        chosen = np.arange(counts.bins) == bin_
        event = event_of(
            mechanism, StatisticRequest(counts.select(chosen), bound, statistic, epsilon[chosen])
        )
        apart += event.loss_per_user
    # apart, every bin is rounded up to a charge
    assert np.all(together <= apart)
    assert np.all(apart - together <= 1_000 * counts.bins)
    visits = np.zeros(counts.users)
    np.add.at(visits, counts.user_index, epsilon[counts.bin_index])
    assert np.all(together <= np.round(visits * 1e12) + 1_000)


@every_case
def test_the_expected_error_does_not_rise_with_epsilon(mechanism, statistic, larger_city):
    counts, bound = larger_city.counts, larger_city.bound
    errors = [
        mechanism.expected_error(StatisticRequest(counts, bound, statistic, asked(mechanism, counts, amount)))
        for amount in (0.001, 0.1, 0.3, 1.0, 3.0, 10.0, 1_000.0)
    ]
    assert np.all(errors[-1] <= errors[0] * (1 + 1e-9))
    if not mechanism.idealised:
        for more, less in pairwise(errors):
            assert np.all(less <= more * (1 + 1e-9) + 1e-9)


@pytest.mark.slow
@every_pure_case
def test_measured_errors_stay_below_the_expected_one(mechanism, statistic, city):
    runs = 2_000
    extremes = [samples_of(city.counts, city.bound, constant=c) for c in (0, city.bound.upper_steps)]
    halves = replace(city, value=np.where(np.arange(len(city.value)) % 2, 0, city.bound.upper_steps))
    for epsilon in (0.3, 3.0):
        share = np.full(city.counts.bins, epsilon)
        stated = mechanism.expected_error(StatisticRequest(city.counts, city.bound, statistic, share))
        for samples in (city, halves, *extremes):
            many = repeat_bins(samples, runs)
            found = mechanism.estimate(many, statistic, np.tile(share, runs), SimulatedNoise(17))
            error = np.abs(found.reshape(runs, -1) - truth(samples, statistic))
            spread = error.std(axis=0) / np.sqrt(runs)
            assert np.all(error.mean(axis=0) <= stated + 6 * spread + 1e-9)


@every_case
def test_estimates_lie_in_the_range_of_the_statistic(mechanism, statistic, city):
    for amount in (0.02, 1.0, 50.0):
        for seed in range(5):
            given = asked(mechanism, city.counts, amount)
            found = mechanism.estimate(city, statistic, given, SimulatedNoise(seed))
            assert found.shape == (city.counts.bins,)
            assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))


class Heard(ReplayedDraws):
    """Noise that tells its laws; with what was ``said``, the same answers again."""

    def __init__(self, said=()):
        super().__init__(SimulatedNoise(4), 1, said)
        self.laws, self.idealised = [], False

    def laplace(self, sums, scale):
        self.laws.append(("laplace", scale))
        return super().laplace(sums, scale)

    def gaussian(self, sums, sd):
        self.laws.append(("gaussian", sd))
        return super().gaussian(sums, sd)

    def choose(self, cost, weight, start, scale, runs=1):
        self.laws.append(("choose", scale))
        return super().choose(cost, weight, start, scale, runs)

    def charge_unverified(self, noise):
        self.idealised = True

    def uniform_below(self, count):
        if self.idealised:
            return SimulatedNoise(9).uniform_below(count)
        return super().uniform_below(count)


def of_many_vehicles(counts_of, bound_of, seed):
    """Bins of 3, 7, 45 and 130 vehicles with 60 records each, so that every mechanism takes every branch."""
    counts = counts_of([[60 * (user < users) for user in range(130)] for users in (3, 7, 45, 130)])
    return samples_of(counts, bound_of(UPPER, "1/4"), seed)


@every_case
def test_what_is_published_and_asked_next_follows_from_what_was_measured_alone(
    mechanism, statistic, counts_of, bound_of
):
    """The same answers give the same estimates on other speeds, and ask for noise of the same laws.

    So no end of an interval, centre or median is an exact one, however many vehicles there are.
    """
    one, other = (of_many_vehicles(counts_of, bound_of, seed) for seed in (5, 6))
    other = replace(other, value=other.value // 3 + 5)
    loss = np.full(4, 2.0) if mechanism.kind is LossKind.PURE else np.array(0.3)
    first = Heard()
    expected = mechanism.estimate(one, statistic, loss, first)
    again = Heard(first.said)
    found = mechanism.estimate(other, statistic, loss, again)
    steps, apart = (
        mechanism.steps(StatisticRequest(one.counts, one.bound, statistic, loss)),
        np.zeros(4, dtype=bool),
    )
    for step in steps:
        if isinstance(step, ClaimedNoise):
            # noise in proportion to what floats say of speeds: tried by tests of its own (``test_huber.py``)
            apart[one.counts.bin_index[step.loss_per_entry > 0]] = True
    assert not apart.all()
    np.testing.assert_array_equal(found[~apart], expected[~apart])
    assert len(first.laws) == len(again.laws) > 0
    for (kind, scale), (other_kind, other_scale) in zip(first.laws, again.laws, strict=True):
        assert kind == other_kind
        np.testing.assert_array_equal(scale, other_scale)
    # what can choose does so here
    if any(isinstance(step, ClaimedScores) for step in steps):
        assert any((scale > 0).all() for kind, scale in first.laws if kind == "choose")


@every_case
def test_the_same_seed_gives_the_same_output_and_another_another(mechanism, statistic, larger_city):
    share = asked(mechanism, larger_city.counts, 1.0)
    first, again, other = (
        mechanism.estimate(larger_city, statistic, share, SimulatedNoise(seed)) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    lost = promised(mechanism, larger_city.counts, larger_city.bound, statistic, 1.0).loss.pico
    assert lost == 0 or np.any(first != other)


@every_case
def test_infinite_epsilon_leaves_the_clipped_statistic(mechanism, statistic, city):
    share = asked(mechanism, city.counts, np.inf)
    first, again = (mechanism.estimate(city, statistic, share, SimulatedNoise(seed)) for seed in (5, 5))
    np.testing.assert_array_equal(first, again)
    # what remains is off by clipping, grouping and projection, never by more than is stated
    stated = mechanism.expected_error(StatisticRequest(city.counts, city.bound, statistic, share))
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

    straight, mixed = build(np.arange(5)), build(order)
    losses = [
        promised(mechanism, each.counts, bound, statistic, 1.0).loss_per_user for each in (straight, mixed)
    ]
    np.testing.assert_array_equal(losses[0][order], losses[1])
    estimates = [
        mechanism.estimate(each, statistic, asked(mechanism, each.counts, np.inf), SimulatedNoise(6))
        for each in (straight, mixed)
    ]
    np.testing.assert_allclose(*estimates, rtol=1e-12, atol=1e-9)


@pytest.mark.slow
@every_pure_case
def test_one_vehicle_changes_no_more_than_is_stated(mechanism, statistic, bound_of, counts_of):
    """Without noise the output may move by the stated sensitivity at most: all corners, one bin."""
    bound = bound_of(UPPER)
    if mechanism.name.split("_")[0] in {"levy", "fixed", "optimized", "huber", "two"}:
        pytest.skip("selects from values: without noise the selection itself jumps; see tests/audit")
    clips_by_epsilon = mechanism.name.startswith("worst_case_clipping")
    for numbers in ([3, 2, 1], [4, 1, 1], [2, 2, 2], [5]):
        counts = counts_of([numbers])
        stated = promised(mechanism, counts, bound, statistic, 1.0).sensitivity[statistic][0]
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


@every_case
@pytest.mark.parametrize("constant", ["zero", "upper"])
def test_constant_speeds_and_lone_vehicles_are_no_trouble(mechanism, statistic, constant, city):
    value = 0 if constant == "zero" else city.bound.upper_steps
    samples = samples_of(city.counts, city.bound, constant=value)
    for amount in (1e-4, 1.0, 100.0 if mechanism.idealised else 1e4, np.inf):
        given = asked(mechanism, city.counts, amount)
        found = mechanism.estimate(samples, statistic, given, SimulatedNoise(2))
        assert np.all(np.isfinite(found))


@every_case
def test_an_empty_map_is_no_trouble(mechanism, statistic, counts_of, bound_of):
    empty = counts_of(np.zeros((0, 3), dtype=np.int64))
    bound, nothing = bound_of(UPPER), asked(mechanism, empty, 1.0)
    assert promised(mechanism, empty, bound, statistic, 1.0).loss_per_user.tolist() == [0, 0, 0]
    assert mechanism.expected_error(StatisticRequest(empty, bound, statistic, nothing)).shape == (0,)
    samples = Samples(empty, np.zeros(0, dtype=np.int64), np.arange(3), bound)
    assert mechanism.estimate(samples, statistic, nothing, SimulatedNoise(1)).shape == (0,)


@every_case
@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan])
def test_an_epsilon_that_is_not_positive_is_refused(mechanism, statistic, epsilon, city):
    share = asked(mechanism, city.counts, epsilon)
    if mechanism.kind is LossKind.PURE:
        share[:1] = 1.0
    with pytest.raises(UsageError, match=r"epsilon|rho"):
        event_of(mechanism, StatisticRequest(city.counts, city.bound, statistic, share))
    # numerical warnings on the way to the refusal are no matter
    with np.errstate(all="ignore"), pytest.raises(UsageError):
        mechanism.estimate(city, statistic, share, SimulatedNoise(1))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_statistics_that_are_not_offered_are_refused(mechanism, city):
    share = asked(mechanism, city.counts, 1.0)
    for statistic in set(Statistic) - set(mechanism.statistics):
        with pytest.raises(UsageError, match="statistic"):
            event_of(mechanism, StatisticRequest(city.counts, city.bound, statistic, share))
        with pytest.raises(UsageError, match="statistic"):
            mechanism.estimate(city, statistic, share, SimulatedNoise(1))


@every_case
def test_what_a_release_meters_is_what_it_is_charged(mechanism, statistic, larger_city):
    counts, bound = larger_city.counts, larger_city.bound
    given = asked(mechanism, counts, 2.0)
    charged = event_of(mechanism, StatisticRequest(counts, bound, statistic, given)).loss_per_user
    measure = PrivacyMeter(SecureNoise(), charged, mechanism.kind)
    if mechanism.idealised:
        pytest.skip("idealised: never from the secure source without a switch")
    found = mechanism.estimate(larger_city, statistic, given, measure)
    assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))
    if mechanism.kind is LossKind.ZCDP:
        # PLAN's clipped vectors may be closer to each other than the dearest
        assert np.all(measure.spent <= charged)
        assert np.all(measure.spent[charged > 0] > charged[charged > 0] * 0.25)
    if mechanism.name == "gaussian_twin":
        assert measure.spent.tolist() == charged.tolist()


RHOS = [2e-6, 0.01, 1.0, 7.3, 12345.678901234567, 1e6]


@every_zcdp_case
@pytest.mark.parametrize("rho", RHOS)
def test_no_vehicle_pays_more_than_rho_and_one_pays_it(mechanism, statistic, rho, city):
    event = promised(mechanism, city.counts, city.bound, statistic, rho)
    # exact: not even one 10^-12 more
    assert Rho.of(rho).pico * (1 - 1e-5) <= event.loss.pico <= Rho.of(rho).pico
    present = city.counts.bins_per_user > 0
    assert np.all((event.loss_per_user > 0) == present)


@every_zcdp_case
def test_more_rho_never_costs_a_vehicle_less(mechanism, statistic, larger_city):
    losses = [
        promised(mechanism, larger_city.counts, larger_city.bound, statistic, rho).loss_per_user
        for rho in RHOS
    ]
    for less, more in pairwise(losses):
        assert np.all(less <= more)


@every_zcdp_case
def test_errors_fall_as_rho_grows_and_vanish_for_speeds_alike(mechanism, statistic, counts_of, bound_of):
    counts = counts_of(np.ones((3, 300), dtype=np.int64))
    random = np.random.default_rng(2)
    bound = bound_of(UPPER, "1/10")
    value = np.rint(np.clip(random.normal([[200], [300], [350]], 40, (3, 300)), 0, bound.upper_steps))
    samples = Samples(counts, value.astype(np.int64).ravel(), np.arange(300), bound)
    exact = truth(samples, statistic)
    errors = [
        np.mean(
            [
                np.abs(mechanism.estimate(samples, statistic, np.array(rho), SimulatedNoise(s)) - exact)
                for s in range(8)
            ]
        )
        for rho in (1e-3, 1.0, 1e4)
    ]
    assert errors[0] > 3 * errors[1] > 3 * errors[2]
    # what is left is the bias of clipping a few of 300 vehicles
    assert errors[2] < 0.02 * statistic.largest(UPPER)


@every_zcdp_case
@pytest.mark.parametrize("constant", ["zero", "upper"])
@pytest.mark.parametrize("counts", [COUNTS, [[1]], [[5]], [[1, 1]], [[0, 7]]])
def test_small_maps_are_no_trouble_whatever_the_rho(
    mechanism, statistic, constant, counts, counts_of, bound_of
):
    bound = bound_of(UPPER)
    samples = samples_of(counts_of(counts), bound, constant=0 if constant == "zero" else bound.upper_steps)
    for rho in (2e-6, 1.0, 1e6):
        found = mechanism.estimate(samples, statistic, np.array(rho), SimulatedNoise(2))
        assert np.all((found >= 0) & (found <= statistic.largest(UPPER)))
        if statistic is Statistic.VARIANCE:
            assert np.all(found[samples.counts.samples_per_bin == 1] == 0)


@every_case
def test_what_is_only_claimed_is_marked_with_its_theorem(mechanism, statistic, larger_city):
    counts, bound = larger_city.counts, larger_city.bound
    given = asked(mechanism, counts, 1.0)
    claim = unenforced_theorems(mechanism, StatisticRequest(counts, bound, statistic, given))
    assert (claim is None) == mechanism.enforced
    assert claim is None or len(claim) > 10
    if mechanism.enforced:
        # no step is a claim
        steps = mechanism.steps(StatisticRequest(counts, bound, statistic, given))
        assert not claimed_steps(steps)


ADAPTIVE = ("akmv", "fixed_quantile", "levy", "optimized_quantile", "two_stage")


@every_pure_case
@pytest.mark.parametrize("seed", range(3))
def test_what_is_metered_is_what_is_charged(mechanism, statistic, seed, counts_of, bound_of):
    """To the last charge where no step follows from an earlier draw, else at most that, for any values."""
    random = np.random.default_rng(seed)
    table = random.geometric(0.1, (7, 30)) * random.integers(0, 2, (7, 30))
    counts, bound = counts_of(table), bound_of(UPPER, "1/10")
    epsilon = np.exp(random.uniform(-3, 2, counts.bins))
    charge = event_of(mechanism, StatisticRequest(counts, bound, statistic, epsilon)).loss_per_user
    for value in (None, 0, bound.upper_steps, "halves"):
        samples = samples_of(counts, bound, seed, None if value == "halves" else value)
        if value == "halves":
            samples = replace(samples, value=random.choice([0, bound.upper_steps], len(samples.value)))
        noise = PrivacyMeter(SecureNoise(), charge, LossKind.PURE)
        mechanism.estimate(samples, statistic, epsilon, noise)
        if mechanism.name.startswith(ADAPTIVE):
            assert np.all(noise.spent <= charge)
        else:
            # each of two moments is rounded up to whole charges
            assert np.all(charge - noise.spent < 2 * CHARGE_STEP)
        assert noise.spent.max() > 0.5 * charge.max()
