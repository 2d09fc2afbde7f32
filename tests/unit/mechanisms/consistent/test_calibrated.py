"""Hexagons made consistent with larger ones: what vehicles lose, what is published, intervals that hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from math import ceil

import h3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import Metered
from trafficdp.mechanisms.blocks.calibrated import blocks_of
from trafficdp.mechanisms.blocks.noise import BlockNoise
from trafficdp.mechanisms.consistent.calibrated import CalibratedConsistent
from trafficdp.mechanisms.consistent.parent_search import measure_parents
from trafficdp.mechanisms.consistent.parents import Parents, h3_families
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.model import Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.planner.allocate import allocate
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import CHARGE_STEP, LossKind, PureDP
from trafficdp.sensitive.values import Values

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.0}
BOTH = (MEAN, VEHICLE_MEAN)
TOWN = h3.latlng_to_cell(30.27, -97.74, 5)
CELLS = [
    h3.str_to_int(child)
    for parent in sorted(h3.cell_to_children(TOWN))[:3]
    for child in sorted(h3.cell_to_children(parent))[:3]
]
"""Nine hexagons of resolution 7, three of each of three of resolution 6."""
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 5, 20]), min_size=users, max_size=users).filter(any),
        min_size=2,
        max_size=9,
    )
)
chosen = st.sampled_from([(MEAN,), (VEHICLE_MEAN,), BOTH])


def placed(contributions):
    """The same bins in CELLS."""
    counts = contributions.counts
    cells = np.array(CELLS[: counts.bins], dtype=np.uint64)
    return replace(contributions, counts=replace(counts, cell=cells))


def request_for(bound, epsilon, statistics=(MEAN,), accounting="consistent"):
    tolerance = {s: TOLERANCE[s] for s in statistics}
    return Request(PureDP.of(epsilon), bound, tolerance, 1, 0.95, accounting)


def values_of(contributions):
    def nothing():
        raise AssertionError("single values are not needed")

    return Values(contributions, nothing)


class Recorded(SimulatedNoise):
    """Keeps what was drawn."""

    def block(self, half_width, block, scale):
        self.drawn = super().block(half_width, block, scale)
        return self.drawn


@pytest.fixture
def town(contributions_of, bound_of):
    """Eight hexagons of three parents; one heavy vehicle in a ninth, so that the others have room."""
    random = np.random.default_rng(8)
    values = [
        [random.integers(200, 401, 1 + (3 * place + vehicle) % 4).tolist() for vehicle in range(20)]
        + [random.integers(200, 401, 9).tolist() if place == 8 else []]
        for place in range(8)
    ] + [[random.integers(200, 401, 1).tolist() for _ in range(20)] + [[300] * 400]]
    return placed(contributions_of(values, bound_of(60, "1/10")))


@pytest.mark.slow
@settings(max_examples=12)
@given(tables, chosen, st.sampled_from(["0.3", "2", "40"]))
def test_the_charge_is_kept_metered_and_found_again_from_what_is_published(
    contributions_of, bound_of, table, statistics, epsilon
):
    bound = bound_of(60, "1/10")
    city = placed(contributions_of([[[3] * m for m in row] for row in table], bound))
    allocation = allocate(city.counts, request_for(bound, epsilon, statistics))
    calibrated, charged = allocation.calibrated, allocation.event.loss_per_user
    assert allocation.chosen.name == "consistent"
    assert charged.max() == PureDP.of(epsilon).pico
    facts = json.loads(json.dumps(calibrated.to_facts()))
    assert CalibratedConsistent.from_facts(facts, calibrated.public).to_facts() == calibrated.to_facts()
    meter = Metered(SecureNoise(), charged, LossKind.PURE)
    estimates = calibrated.run(values_of(city), meter, interval_level=0.9)
    # the charge is what was metered, up to its last step
    assert np.all((meter.spent <= charged) & (charged < meter.spent + CHARGE_STEP))
    columns = {statistic: dict(each.noise) for statistic, each in estimates.items()}
    public = json.loads(json.dumps(calibrated.published_facts()))
    again = CalibratedConsistent.from_published(public, columns, calibrated.public)
    np.testing.assert_array_equal(again.event().loss_per_user, charged)
    foreseen = calibrated.expected_errors()
    expected = allocation.chosen.errors(float(PureDP.of(epsilon).epsilon))
    for statistic, each in estimates.items():
        np.testing.assert_array_equal(each.expected_error, foreseen[statistic])
        assert np.all((each.low <= each.value) & (each.value <= each.high))
        statement = calibrated.statement(statistic)
        np.testing.assert_array_equal(statement.noise_scale, each.noise_scale)
        # what was planned is what is said, but for rounding
        slack = 0.02 * statistic.largest(60.0)
        assert np.all(each.expected_error >= expected[statistic] * (1 - 1e-6) - 1e-9)
        assert np.all(each.expected_error <= expected[statistic] + slack)


def test_numbers_are_the_dense_least_squares_of_what_was_drawn(town):
    counts, bound = town.counts, town.bound
    allocation = allocate(counts, request_for(bound, "400"))
    calibrated, source = allocation.calibrated, Recorded(3)
    parents, noise = calibrated.parents, calibrated.noise
    assert parents.number >= 2
    estimate = calibrated.run(values_of(town), source, interval_level=0.95)[MEAN]
    assert np.all((estimate.value > 0) & (estimate.value < 60))
    samples = counts.samples_per_bin
    truth = np.bincount(counts.bin_index, weights=town.total) / samples / 10
    noises = np.zeros(9 + parents.number)
    width = np.zeros(9 + parents.number)
    for place in range(9 + parents.number):
        inside = [place] if place < 9 else np.flatnonzero(parents.of == place - 9)
        step = 0.1 / samples[inside].sum() / 2.0 ** int(noise.shift[place])
        noises[place], width[place] = source.drawn[place] * step, noise.half_width[place] * step
    for parent in range(parents.number):
        mine = np.flatnonzero(parents.of == parent)
        weight = samples[mine] / samples[mine].sum()
        seen = np.append(truth[mine], weight @ truth[mine]) + noises[[*mine, 9 + parent]]
        design = np.vstack([np.eye(len(mine)), weight]) / width[[*mine, 9 + parent], None]
        dense = np.linalg.lstsq(design, seen / width[[*mine, 9 + parent]], rcond=None)[0]
        np.testing.assert_allclose(estimate.value[mine], dense, rtol=1e-9)
        # and their average is the least squares estimate of the parent
        inverse = np.linalg.inv(design.T @ design)
        best = weight @ inverse @ design.T @ (seen / width[[*mine, 9 + parent]])
        assert weight @ estimate.value[mine] == pytest.approx(best, rel=1e-9)
    alone = np.flatnonzero(parents.of < 0)
    np.testing.assert_allclose(estimate.value[alone], truth[alone] + noises[alone], rtol=1e-9)


def noise_of(half_width, scale=7.0):
    """Two families of two bins and a bin alone: blocks (0, 1, parent), (2, 3, parent), (4)."""
    block = np.array([0, 0, 1, 1, 2, 0, 1])
    return BlockNoise(block, np.array(half_width), np.zeros(7, dtype=int), scale)


@pytest.mark.parametrize("half_width", [[1, 1, 1, 1, 1, 1, 1], [3, 1, 2, 2, 1, 1, 3], [2, 5, 4, 4, 3, 1, 2]])
def test_a_vehicle_loses_exactly_what_its_worst_change_of_speeds_does(contributions_of, bound_of, half_width):
    bound = bound_of(3)
    counts = [[1, 1], [2, 1], [0, 1], [1, 1], [1, 0]]
    city = contributions_of([[[0] * m for m in row] for row in counts], bound)
    parents, public = Parents(np.array([0, 0, 1, 1, -1])), PublicFacts(city.counts, bound)
    calibrated = CalibratedConsistent(public, (MEAN,), noise_of(half_width), parents)
    losses = calibrated.event().loss_per_user
    for user in range(2):
        worst = {}
        own = [row[user] for row in counts]
        # all changes of the sums of one vehicle; blocks are independent
        for mine, block in (([0, 1], 0), ([2, 3], 1), ([4], 2)):
            items = [*mine, 5 + block] if block < 2 else mine
            most = 0
            for change in product(*[range(-3 * own[g], 3 * own[g] + 1) for g in mine]):
                moved = [*change, sum(change)] if block < 2 else list(change)
                for at in product(range(-3, 4), repeat=len(items)):
                    here = max(ceil(abs(z) / half_width[i]) for z, i in zip(at, items, strict=True))
                    there = max(
                        ceil(abs(z + d) / half_width[i]) for z, d, i in zip(at, moved, items, strict=True)
                    )
                    most = max(most, there - here)
            worst[block] = most
        exact = sum(worst.values()) / 7.0
        assert losses[user] / 1e12 == pytest.approx(exact, abs=1.1e-9)
        assert losses[user] / 1e12 >= exact - 1e-15


def test_noise_of_other_parents_is_refused(town):
    counts, bound = town.counts, town.bound
    calibrated = allocate(counts, request_for(bound, "2", BOTH)).calibrated
    above = np.arange(len(calibrated.noise.block)) >= 18
    apart = replace(calibrated.noise, block=calibrated.noise.block + 50 * above)
    other = Parents(np.roll(calibrated.parents.of, 1))
    few = replace(town, counts=counts).select(np.arange(9) < 8).counts
    for altered in (
        replace(calibrated, noise=apart),
        replace(calibrated, parents=other),
        replace(calibrated, statistics=(MEAN,)),
        replace(calibrated, public=PublicFacts(few, bound)),
    ):
        with pytest.raises(UsageError, match="parents are not those"):
            altered.event()


def test_variances_are_refused(town):
    for statistics in ((VARIANCE,), (MEAN, VARIANCE)):
        with pytest.raises(UsageError, match="releases no variances"):
            allocate(town.counts, request_for(town.bound, "2", statistics))


def test_altered_files_cost_more_or_are_refused(town):
    counts, bound = town.counts, town.bound
    allocation = allocate(counts, request_for(bound, "2"))
    calibrated, charged = allocation.calibrated, allocation.event.loss_per_user
    estimates = calibrated.run(values_of(town), SimulatedNoise(1), interval_level=0.9)

    def priced(change):
        facts = json.loads(json.dumps(calibrated.published_facts()))
        change(facts["parents"])
        columns = {MEAN: dict(estimates[MEAN].noise)}
        again = CalibratedConsistent.from_published(facts, columns, calibrated.public)
        return again.event().loss_per_user

    def thinner(parents):
        parents["half_width"] = [max(width // 4, 1) for width in parents["half_width"]]

    def finer(parents):
        parents["shift"] = [shift + 2 for shift in parents["shift"]]

    for change in (thinner, finer):
        assert np.any(priced(change) > charged), change.__name__

    def missing(parents):
        parents["half_width"].pop()

    def foreign(parents):
        parents["of"] = [*parents["of"], 0, 0]

    def alone(parents):
        parents["of"] = [number if number == 0 else -1 for number in parents["of"]]
        parents["of"][parents["of"].index(0)] = 1

    def swapped(parents):
        parents["of"] = [1 - number if number in (0, 1) else number for number in parents["of"]]
        parents["of"][0], parents["of"][7] = parents["of"][7], parents["of"][0]

    for change in (missing, foreign, alone, swapped):
        with pytest.raises(UsageError, match="parents"):
            priced(change)


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize(("narrow", "scale"), [(40, 30.0), (700, 30.0), (7, 1.3)])
def test_intervals_hold_as_often_as_they_say(contributions_of, bound_of, narrow, scale, level):
    runs, bound = 5_000, bound_of(6_000, "1/10")
    # three children with 50, 20 and 1 records of two vehicles, far from both ends
    family = [[[30_000] * 25, [30_001] * 25], [[29_000] * 10, [31_000] * 10], [[30_500], []]]
    one = contributions_of(family, bound)
    numbers, pairs = one.counts, one.counts.pairs
    counts = replace(
        numbers,
        cell=np.arange(3 * runs, dtype=np.uint64),
        slot=np.zeros(3 * runs, dtype=np.int64),
        bin_index=(numbers.bin_index + 3 * np.arange(runs)[:, None]).ravel(),
        user_index=np.tile(numbers.user_index, runs),
        count=np.tile(numbers.count, runs),
    )
    city = replace(
        one,
        counts=counts,
        total=np.tile(one.total, runs),
        total_of_squares=np.tile(one.total_of_squares, runs),
    )
    assert pairs * runs == len(city.total)
    of = np.repeat(np.arange(runs), 3)
    block = np.concatenate([of, np.arange(runs)])
    width = np.concatenate([np.tile([700, 280, 14], runs), np.full(runs, narrow)])
    noise = BlockNoise(block, width, np.zeros(4 * runs, dtype=int), scale)
    calibrated = CalibratedConsistent(PublicFacts(counts, bound), (MEAN,), noise, Parents(of))
    estimate = calibrated.run(values_of(city), SimulatedNoise(2), interval_level=level)[MEAN]
    truth = np.tile([3_000.05, 3_000.0, 3_050.0], runs)
    missed = ((estimate.low > truth) | (estimate.high < truth)).reshape(runs, 3).sum(axis=0)
    assert np.all(stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9)
    # errors are bounds
    error = np.abs(estimate.value - truth).reshape(runs, 3)
    slack = 6 * error.std(axis=0) / np.sqrt(runs)
    assert np.all(error.mean(axis=0) - slack <= estimate.expected_error[:3])
    assert np.all(error.mean(axis=0) - slack <= estimate.noise_scale[:3])
    _, around = calibrated.family().law(level)
    if level == 0.95 and scale > 5 and narrow == 40:
        # a precise parent: the large child gets its own interval, and half of it would be caught
        assert around[:3].tolist() == [True, False, False]
        half = (estimate.high - estimate.low)[::3] / 4
        short = int((np.abs(estimate.value - truth)[::3] > half).sum())
        assert stats.binom.sf(short - 1, runs, 1 - level) < 1e-9


def test_a_parent_is_free_where_all_vehicles_but_one_have_room_and_averages_gain(town):
    counts, bound = town.counts, town.bound
    plain = blocks_of(counts, bound, {MEAN: 1.0})
    found = measure_parents(plain, counts, 60.0)
    assert found.growth <= 1.15
    assert np.all(found.gain < 0.9)
    assert found.blocks.factor == pytest.approx(plain.factor * found.growth, rel=1e-12)
    assert found.families == 3
    # the gain is that of draws: averages of raw parents' least squares against plain blocks
    runs = 8_000
    measured = allocate(counts, request_for(bound, "2")).calibrated
    blocks = allocate(counts, request_for(bound, "2", accounting="blocks")).calibrated
    family = measured.family()
    weight = measured.parents.weights(counts.samples_per_bin)
    children = measured.parents.children
    # consistency is linear
    matrix = np.array([family.values(unit) for unit in np.eye(9 + measured.parents.number)]).T
    plain_unit = 0.1 / counts.samples_per_bin / 2.0**blocks.noise.shift
    errors = []
    for noise, unit, linear in (
        (measured.noise, family.raw.unit, matrix),
        (blocks.noise, plain_unit, np.eye(9)),
    ):
        number = int(noise.block.max()) + 1
        drawn = SimulatedNoise(6).block(
            np.tile(noise.half_width, runs),
            (noise.block + number * np.arange(runs)[:, None]).ravel(),
            np.full(number * runs, noise.scale),
        )
        found_errors = drawn.reshape(runs, -1) * unit @ linear.T
        errors.append(np.array([measured.parents.total(weight * each) for each in found_errors[:, children]]))
    ratio = errors[0].std(axis=0) / errors[1].std(axis=0)
    np.testing.assert_allclose(ratio, found.gain, rtol=0.1)


@pytest.mark.slow
@settings(max_examples=30)
@given(tables)
def test_no_vehicle_pays_more_than_the_growth_that_is_said(contributions_of, bound_of, table):
    counts = placed(contributions_of([[[3] * m for m in row] for row in table], bound_of(60))).counts
    plain = blocks_of(counts, bound_of(60), {MEAN: 1.0})
    found = measure_parents(plain, counts, 60.0)
    blocks, parents = found.blocks, found.parents
    assert 1 - 1e-9 <= max(found.growth, 1.0) <= 1.15 * (1 + 1e-6)
    assert blocks.factor <= plain.factor * max(found.growth, 1.0) * (1 + 1e-9)
    assert np.all(found.gain < 1)
    family = h3_families(counts)
    for parent in range(parents.number):
        mine = np.flatnonzero(parents.of == parent)
        assert set(family[mine]) == {family[mine[0]]}
        assert np.array_equal(mine, np.flatnonzero(family == family[mine[0]]))
        block = blocks.block[[*mine, counts.bins + parent]]
        assert len(set(block)) == 1
        assert np.count_nonzero(blocks.block == block[0]) == len(mine) + 1


def test_best_leaves_it_aside(town):
    allocation = allocate(town.counts, request_for(town.bound, "2", accounting="best"))
    assert "consistent" not in {accounting.name for accounting in allocation.accountings}
    assert allocation.calibrated.kind != "consistent"


def test_without_hexagons_that_share_a_parent_it_is_the_accounting_blocks(counts_of, bound_of):
    bound, counts = bound_of(60, "1/10"), counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]])
    consistent = allocate(counts, request_for(bound, "2"))
    plain = allocate(counts, request_for(bound, "2", accounting="blocks"))
    assert consistent.calibrated.parents.number == 0
    np.testing.assert_array_equal(consistent.event.loss_per_user, plain.event.loss_per_user)
    np.testing.assert_array_equal(consistent.errors()[MEAN], plain.errors()[MEAN])
    assert "none of 0 larger hexagons" in consistent.chosen.in_words()
