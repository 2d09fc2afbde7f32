"""Block noise as it is released: intervals that hold, errors that are bounds, a price anyone can compute."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.blocks import best_blocks
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.blocks.estimates import block_estimates, spread_of
from trafficdp.mechanisms.blocks.lattice import BlockLattice, block_loss_per_user, to_block_lattice
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block_tail import block_quantile
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import PureDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 40.0, VEHICLE_MEAN: 1.5}
STATISTICS = tuple(Statistic)
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 6), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


def calibrated_for(counts, bound, epsilon, statistics=STATISTICS):
    blocks = best_blocks(counts, bound, {s: TOLERANCE[s] for s in statistics}, effort=200)
    return CalibratedBlocks(tuple(statistics), to_block_lattice(blocks, counts, bound, PureDP.of(epsilon)))


def published(estimates):
    return {statistic: dict(estimate.noise) for statistic, estimate in estimates.items()}


def estimates_of(calibrated, contributions, noise, level=0.9):
    return block_estimates(
        contributions,
        calibrated.lattice,
        calibrated.statistics,
        noise.block,
        interval_level=level,
        uninformative_above=0.125,
    )


@pytest.fixture
def city(contributions_of, bound_of):
    """Three bins, four vehicles; one bin with a single record, whose variance can only be 0."""
    values = [
        [[100, 310, 207], [599, 3], [], [18]],
        [[400], [222, 223], [17, 600, 333], []],
        [[], [], [], [123]],
    ]
    return contributions_of(values, bound_of(60, "1/10"))


@pytest.mark.slow
@settings(max_examples=60)
@given(tables, st.sampled_from(["0.01", "1", "7.3"]))
def test_facts_and_published_columns_price_the_release_alike(
    counts_of, contributions_of, bound_of, table, epsilon
):
    bound = bound_of(60, "1/10")
    values = contributions_of([[[1] * m for m in row] for row in table], bound)
    calibrated = calibrated_for(values.counts, bound, epsilon)
    charged = calibrated.event(values.counts, bound).loss_per_user
    assert charged.max() == PureDP.of(epsilon).pico
    facts = json.loads(json.dumps(calibrated.to_facts()))
    assert CalibratedBlocks.from_facts(facts).to_facts() == calibrated.to_facts()
    columns = published(estimates_of(calibrated, values, SimulatedNoise(1)))
    again = CalibratedBlocks.from_published(calibrated.published_facts(), columns)
    np.testing.assert_array_equal(again.event(values.counts, bound).loss_per_user, charged)


def test_tampered_columns_cost_more_or_are_refused(city):
    counts, bound = city.counts, city.bound
    calibrated = calibrated_for(counts, bound, 2)
    charged = calibrated.event(counts, bound).loss_per_user

    def priced(change):
        columns = published(estimates_of(calibrated, city, SimulatedNoise(1)))
        change(columns)
        return CalibratedBlocks.from_published({"kind": "blocks"}, columns).event(counts, bound).loss_per_user

    def halve(columns):
        columns[MEAN]["half_width"] = columns[MEAN]["half_width"] // 2

    def split(columns):
        columns[VARIANCE]["block"] = columns[VARIANCE]["block"] + 50 * (columns[VARIANCE]["block"] >= 0)

    def finer(columns):
        columns[VEHICLE_MEAN]["shift"] = columns[VEHICLE_MEAN]["shift"] + 3

    for change in (halve, split, finer):
        assert np.any(priced(change) > charged), change.__name__

    def bare(columns):
        columns[MEAN]["block"][0] = -1

    def several(columns):
        columns[MEAN]["block_scale"][0] *= 2

    def gone(columns):
        del columns[MEAN]["shift"]

    for change, words in ((bare, "not those of the bins"), (several, "several scales"), (gone, "without")):
        with pytest.raises(UsageError, match=words):
            priced(change)


def test_what_counts_alone_decide_is_what_is_released(city):
    for epsilon in (0.05, 2, 400):
        calibrated = calibrated_for(city.counts, city.bound, epsilon)
        estimates = estimates_of(calibrated, city, SimulatedNoise(1))
        foreseen = calibrated.expected_errors(city.counts, city.bound)
        for statistic, estimate in estimates.items():
            np.testing.assert_array_equal(estimate.expected_error, foreseen[statistic])
            statement = calibrated.statement(statistic, city.counts, city.bound)
            np.testing.assert_array_equal(statement.noise_scale, estimate.noise_scale)
            assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
        constant = estimates[VARIANCE]
        assert constant.status[2] == "constant"
        found = (constant.value[2], constant.low[2], constant.high[2], constant.noise_scale[2])
        assert found == (0.0, 0.0, 0.0, 0.0)


def test_without_noise_to_speak_of_the_numbers_are_the_statistics(city):
    calibrated = calibrated_for(city.counts, city.bound, 200_000)
    estimates = estimates_of(calibrated, city, SecureNoise())
    speeds = [[100, 310, 207, 599, 3, 18], [400, 222, 223, 17, 600, 333], [123]]
    means = [np.mean(each) / 10 for each in speeds]
    np.testing.assert_allclose(estimates[MEAN].value, means, atol=0.02)
    np.testing.assert_allclose(estimates[VARIANCE].value, [np.var(each) / 100 for each in speeds], atol=1)
    by_vehicle = [(20.6 + 30.1 + 1.8) / 3, (40.0 + 22.2 + 31.7) / 3, 12.3]
    np.testing.assert_allclose(estimates[VEHICLE_MEAN].value, by_vehicle, atol=0.1)


def wide_lattice(size, bins, scale, shift=4):
    """``bins`` means in blocks of ``size``, half width 700 at the given shift."""
    return BlockLattice(
        statistic=(MEAN,) * bins,
        bin=np.arange(bins),
        block=np.arange(bins) // size,
        half_width=np.full(bins, 700),
        shift=np.full(bins, shift),
        scale=scale,
    )


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("size", "scale", "shift"), [(1, 1.7, 0), (2, 9.5, 3), (5, 1.2, 0), (12, 40.25, -2)])
def test_intervals_of_blocks_hold_as_often_as_they_say(contributions_of, bound_of, size, scale, shift, level):
    runs = 6_000
    bins = size * runs
    # a speed far from both ends, 100 records of two vehicles
    one = [[30_000] * 50, [30_001] * 50]
    city = contributions_of([one], bound_of(6_000, "1/10"))
    counts = replace(
        city.counts,
        cell=np.arange(bins, dtype=np.uint64),
        slot=np.zeros(bins, dtype=np.int64),
        bin_index=np.repeat(np.arange(bins), 2),
        user_index=np.tile([0, 1], bins),
        count=np.full(2 * bins, 50),
    )
    city = replace(
        city,
        counts=counts,
        total=np.tile(city.total, bins),
        total_of_squares=np.tile(city.total_of_squares, bins),
    )
    lattice = wide_lattice(size, bins, scale, shift)
    # of every block one statistic is looked at, so that the trials are independent
    estimate = block_estimates(
        city, lattice, (MEAN,), SimulatedNoise(3).block, interval_level=level, uninformative_above=0.125
    )[MEAN]
    seen = np.arange(0, bins, size)
    truth = 3_000.05
    rounding = rounding_bias(MEAN, city.bound)
    missed = int(((estimate.low > truth) | (estimate.high < truth))[seen].sum())
    assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9
    if scale > 5:
        # and intervals for two thirds of the noise would be caught
        half = (estimate.high - estimate.low) / 2 * 0.66
        missed = int((np.abs(estimate.value - truth) > half)[seen].sum())
        assert stats.binom.sf(missed - 1, runs, 1 - level) < 1e-9
        # no wider than the lattice and rounding make them
        step = 2.0**-shift / 1_000
        smooth = 700 * scale * block_quantile(np.array([size]), level)[0] * step
        assert estimate.high[0] - estimate.value[0] <= smooth + 701 * step + rounding + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("size", "epsilon"), [(1, 0.5), (2, 3.0), (6, 0.5)])
def test_expected_errors_of_blocks_are_bounds_and_near(bound_of, counts_of, size, epsilon):
    runs, bound = 20_000, bound_of(60, "1/10")
    counts = counts_of([[2, 2]] * size)
    truth = 300 * 4
    blocks = best_blocks(counts, bound, {MEAN: 1.0})
    assert len(set(blocks.block.tolist())) == 1
    lattice = to_block_lattice(blocks, counts, bound, PureDP.of(epsilon))
    spread = spread_of(MEAN, counts, bound, lattice)
    drawn = np.concatenate(
        [
            SimulatedNoise(seed).block(lattice.half_width, lattice.block, np.array([lattice.scale]))
            for seed in range(runs // size)
        ]
    )
    shift = int(lattice.shift[0])
    noisy = np.clip((truth * 2.0**shift + drawn) * spread.unit[0], 0, 60)
    error = np.abs(noisy - 30)
    mean, slack = error.mean(), 6 * error.std() / np.sqrt(len(error) / size)
    noise_error = spread.error[0] - spread.flooring[0] - rounding_bias(MEAN, bound)
    assert mean - slack <= noise_error <= mean + slack


def test_relabelled_vehicles_pay_the_same(counts_of, bound_of):
    random = np.random.default_rng(3)
    table = random.poisson(1.2, (12, 9)) + np.eye(12, 9, dtype=int)
    order = random.permutation(9)
    bound = bound_of(60, "1/10")
    losses = []
    for each in (table, table[:, order]):
        counts = counts_of(each)
        calibrated = calibrated_for(counts, bound, 1, (MEAN, VARIANCE))
        losses.append(block_loss_per_user(counts, bound, calibrated.lattice))
    np.testing.assert_array_equal(losses[0][order], losses[1])
