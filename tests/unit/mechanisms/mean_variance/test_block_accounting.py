"""Mean and variance in blocks of sums of x and of x (U - x): exact price, intervals that hold, two checks."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trafficdp.errors import AllocationError, UsageError
from trafficdp.mechanisms.blocks.accounting import blocks_of
from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.mean_variance.block_accounting import moment_block_accounting
from trafficdp.mechanisms.mean_variance.block_lattice import largest_two, moment_block_units
from trafficdp.mechanisms.mean_variance.calibrated_blocks import CalibratedMomentBlocks
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.pricing.moment_blocks import check_moment_blocks
from trafficdp.privacy.loss import CHARGE_STEP, PureDP
from trafficdp.sensitive.values import Values

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
STEPS = 4
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 6), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


def accounting_for(counts, bound, variance=60.0):
    return moment_block_accounting(blocks_of(counts, bound, {MEAN: 1.0}), counts, bound, variance)


def lattice_of(bins, varying, block, width, own, shift=0, own_shift=0, scale=100.0):
    number = np.unique(np.array(block)[varying], return_inverse=True)[1]
    return BlockLattice(
        statistic=(MEAN,) * bins + (VARIANCE,) * len(varying),
        bin=np.concatenate([np.arange(bins), varying]).astype(np.int64),
        block=np.concatenate([block, max(block) + 1 + number]).astype(np.int64),
        half_width=np.array([*width, *own], dtype=np.int64),
        shift=np.array([shift] * bins + [own_shift] * len(varying), dtype=np.int64),
        scale=scale,
    )


def rounding(counts, lattice):
    """What floats may add to a charge: a unit a block, and the last step."""
    return CHARGE_STEP + counts.bins * (int(10**12 / lattice.scale) + 1)


def estimates_of(calibrated, contributions, noise, level=0.9):
    values = Values(contributions, lambda: None)
    return calibrated.estimates(values, noise, interval_level=level, uninformative_above=0.125)


@pytest.fixture
def city(contributions_of, bound_of):
    """Three bins, four vehicles; one bin with a single record, whose variance can only be 0."""
    values = [
        [[100, 310, 207], [599, 3], [], [18]],
        [[400], [222, 223], [17, 600, 333], []],
        [[], [], [], [123]],
    ]
    return contributions_of(values, bound_of(60, "1/10"))


# the price


@pytest.mark.parametrize("records", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize(
    ("width", "own"), [((3, 5), (7, 9)), ((4, 4), (8, 8)), ((2, 6), (30, 11)), ((9, 2), (3, 3))]
)
def test_a_vehicles_loss_is_the_worst_over_all_pairs_of_its_values(counts_of, bound_of, records, width, own):
    """A block of two bins: the theorem without rounding equals the definition; with it, it is a bound."""

    def sums(values):
        return sum(values), sum(k * (STEPS - k) for k in values)

    each = [[sums(v) for v in product(range(STEPS + 1), repeat=m)] for m in records]
    exact, rounded = Fraction(0), 0
    for here, there in product(product(*each), repeat=2):
        moved = [[abs(a - b) for a, b in zip(x, y, strict=True)] for x, y in zip(here, there, strict=True)]
        first = [Fraction(x, a) for (x, _), a in zip(moved, width, strict=True)]
        second = [Fraction(y, a) for (_, y), a in zip(moved, own, strict=True)]
        exact = max(exact, max(first) + max(second))
        rounded = max(rounded, -(-max(first) // 1) + -(-max(second) // 1))
    alone = [Fraction(m * STEPS, a) for m, a in zip(records, width, strict=True)]
    other = [Fraction(m * STEPS**2 // 4, a) for m, a in zip(records, own, strict=True)]
    joint = [
        m * max(Fraction(d, a) + Fraction(d * (STEPS - d), b) for d in range(STEPS + 1))
        for m, a, b in zip(records, width, own, strict=True)
    ]
    assert exact == max(*joint, alone[0] + other[1], alone[1] + other[0])
    # the second vehicle makes both variances vary
    counts, bound = counts_of([[records[0], 1], [records[1], 1]]), bound_of(STEPS)
    lattice = lattice_of(2, np.arange(2), [0, 0], width, own)
    units = int(moment_block_units(counts, bound, lattice)[0])
    assert rounded <= units <= rounded + 1


def test_vehicles_in_one_bin_of_a_block_do_not_pay_for_two(counts_of, bound_of):
    counts, bound = counts_of([[2, 1], [0, 1]]), bound_of(STEPS)
    lattice = lattice_of(2, np.array([0]), [0, 0], (64, 64), (256,), shift=10, own_shift=10)
    alone, everywhere = moment_block_units(counts, bound, lattice).tolist()
    # c = 1: both sums of one bin cost no more than the first
    assert alone - 2 * STEPS * 2**10 // 64 in (1, 2)
    assert everywhere == STEPS * 2**10 // 64 + 4 * 2**10 // 256
    assert everywhere < alone


@settings(max_examples=40)
@given(tables, st.sampled_from(["0.01", "1", "7.3"]), st.sampled_from([20.0, 60.0, 200.0]))
def test_charges_are_within_the_request_and_both_computations_agree(
    counts_of, contributions_of, bound_of, table, epsilon, variance
):
    bound = bound_of(60, "1/10")
    values = contributions_of([[[1] * m for m in row] for row in table], bound)
    counts = values.counts
    calibrated = accounting_for(counts, bound, variance).calibrate(counts, bound, PureDP.of(epsilon))
    charged = calibrated.event(counts, bound).loss_per_user
    assert charged.max() == PureDP.of(epsilon).pico
    check_moment_blocks(counts, bound, calibrated.lattice, charged)
    for user in np.flatnonzero(charged > 0).tolist():
        less = charged.copy()
        less[user] -= rounding(counts, calibrated.lattice)
        with pytest.raises(AllocationError, match="1 vehicles would lose more"):
            check_moment_blocks(counts, bound, calibrated.lattice, less)
    facts = json.loads(json.dumps(calibrated.to_facts()))
    assert CalibratedMomentBlocks.from_facts(facts).to_facts() == calibrated.to_facts()
    columns = {s: dict(e.noise) for s, e in estimates_of(calibrated, values, SimulatedNoise(1)).items()}
    again = CalibratedMomentBlocks.from_published(calibrated.published_facts(), columns)
    np.testing.assert_array_equal(again.event(counts, bound).loss_per_user, charged)


def test_negative_shifts_are_charged_alike_by_both_computations(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [2, 2, 1], [1, 1, 4]]), bound_of(60, "1/10")
    for shift, own_shift in ((-3, -5), (2, -4), (-1, 6)):
        lattice = lattice_of(
            3, np.arange(3), [0, 0, 1], (50, 70, 60), (9_000, 8_000, 7_000), shift, own_shift
        )
        calibrated = CalibratedMomentBlocks(lattice)
        charged = calibrated.event(counts, bound).loss_per_user
        check_moment_blocks(counts, bound, lattice, charged)
        with pytest.raises(AllocationError, match="3 vehicles would lose more"):
            check_moment_blocks(counts, bound, lattice, charged - rounding(counts, lattice))


def test_wrong_blocks_are_caught_by_both(city):
    counts, bound = city.counts, city.bound
    calibrated = accounting_for(counts, bound).calibrate(counts, bound, PureDP.of(2))
    charged = calibrated.event(counts, bound).loss_per_user
    own = calibrated.lattice

    def wrong(**changed):
        lattice = replace(own, **changed)
        with pytest.raises(AllocationError) as second:
            check_moment_blocks(counts, bound, lattice, charged)
        try:
            losses = CalibratedMomentBlocks(lattice).event(counts, bound).loss_per_user
        except UsageError as first:
            return str(first), str(second.value)
        assert np.any(losses > charged)
        return "", str(second.value)

    assert "lose more" in wrong(half_width=own.half_width // 2)[1]
    assert "lose more" in wrong(scale=own.scale * 0.9)[1]
    assert "lose more" in wrong(shift=own.shift + 1)[1]
    assert "above 0" in wrong(scale=0.0)[0]
    assert "half widths" in wrong(half_width=own.half_width * 0)[0]
    assert "not those of the bins" in wrong(bin=np.roll(own.bin, 1))[0]
    split = own.block.copy()
    split[:3], split[3:] = [0, 0, 1], [2, 3]
    assert "in the blocks of their means" in wrong(block=split)[0]


# what is released


def test_tampered_columns_cost_more_or_are_refused(city):
    counts, bound = city.counts, city.bound
    calibrated = accounting_for(counts, bound).calibrate(counts, bound, PureDP.of(2))
    charged = calibrated.event(counts, bound).loss_per_user

    def priced(statistic, name, change):
        columns = {s: dict(e.noise) for s, e in estimates_of(calibrated, city, SimulatedNoise(1)).items()}
        columns[statistic][name] = change(columns[statistic].pop(name))
        if columns[statistic][name] is None:
            del columns[statistic][name]
        again = CalibratedMomentBlocks.from_published({"kind": "moment_blocks"}, columns)
        return again.event(counts, bound).loss_per_user

    for statistic, name in (
        (MEAN, "half_width"),
        (MEAN, "block_scale"),
        (VARIANCE, "product_half_width"),
    ):
        assert np.any(priced(statistic, name, lambda values: values // 2) > charged), name
        with pytest.raises(UsageError, match="without its block noise"):
            priced(statistic, name, lambda values: None)
    with pytest.raises(UsageError, match="not those of the bins"):
        priced(VARIANCE, "product_block", lambda values: values * 0 - 1)


def test_what_counts_alone_decide_is_what_is_released(city):
    for epsilon in ("0.05", "2", "400"):
        calibrated = accounting_for(city.counts, city.bound).calibrate(
            city.counts, city.bound, PureDP.of(epsilon)
        )
        estimates = estimates_of(calibrated, city, SimulatedNoise(1))
        assert tuple(estimates) == calibrated.statistics
        foreseen = calibrated.expected_errors(city.counts, city.bound)
        widths = calibrated.half_widths(city.counts, city.bound, 0.9)
        for statistic, estimate in estimates.items():
            np.testing.assert_array_equal(estimate.expected_error, foreseen[statistic])
            statement = calibrated.statement(statistic, city.counts, city.bound)
            np.testing.assert_array_equal(statement.noise_scale, estimate.noise_scale)
            assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
            assert np.all(estimate.high - estimate.value <= 2 * widths[statistic] + 1e-9)
        constant = estimates[VARIANCE]
        assert constant.status[2] == "constant"
        found = (constant.value[2], constant.low[2], constant.high[2], constant.noise_scale[2])
        assert found == (0.0, 0.0, 0.0, 0.0)


def test_without_noise_to_speak_of_the_numbers_are_the_statistics(city):
    calibrated = accounting_for(city.counts, city.bound).calibrate(
        city.counts, city.bound, PureDP.of(200_000)
    )
    estimates = estimates_of(calibrated, city, SecureNoise())
    speeds = [[100, 310, 207, 599, 3, 18], [400, 222, 223, 17, 600, 333], [123]]
    np.testing.assert_allclose(estimates[MEAN].value, [np.mean(each) / 10 for each in speeds], atol=0.02)
    np.testing.assert_allclose(estimates[VARIANCE].value, [np.var(each) / 100 for each in speeds], atol=1)


@pytest.mark.parametrize("speeds", [[20] * 8, [0] * 4 + [600] * 4, [300] * 8, [5, 100, 301, 480] * 2])
@pytest.mark.parametrize("size", [1, 3])
def test_intervals_hold_as_often_as_they_say(contributions_of, bound_of, speeds, size):
    bound, runs, level = bound_of(60, "1/10"), 4_000, 0.8
    bins = size * runs
    one = contributions_of([[speeds]], bound)
    counts = replace(
        one.counts,
        cell=np.arange(1, bins + 1, dtype=np.uint64),
        slot=np.zeros(bins, dtype=np.int64),
        bin_index=np.arange(bins),
        user_index=np.zeros(bins, dtype=np.int64),
        count=np.full(bins, 8),
    )
    data = replace(
        one,
        counts=counts,
        total=np.tile(one.total, bins),
        total_of_squares=np.tile(one.total_of_squares, bins),
    )
    block = np.arange(bins) // size
    lattice = lattice_of(
        bins, np.arange(bins), block, [40] * bins, [40 * 360] * bins, shift=4, own_shift=4, scale=9.5
    )
    calibrated = CalibratedMomentBlocks(lattice)
    found = estimates_of(calibrated, data, SimulatedNoise(7), level)[VARIANCE]
    # of every block one bin is looked at, so that the trials are independent
    seen = np.arange(0, bins, size)
    truth = np.var(speeds) / 100
    missed = int(((found.low > truth + 1e-9) | (found.high < truth - 1e-9))[seen].sum())
    assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9
    if speeds[0] == speeds[-1] == 20:
        # U really is the factor near an end: an interval of 0.6 of the width would be caught, on its one side
        narrow = 0.6 * calibrated.half_widths(counts, bound, level)[VARIANCE]
        missed = int((found.value > narrow)[seen].sum())
        assert stats.binom.sf(missed - 1, runs, (1 - level) / 2) < 1e-9


# the accounting


def test_bins_of_other_vehicles_are_what_moments_makes_of_them(counts_of, bound_of):
    counts, bound = (
        counts_of(np.kron(np.eye(4, dtype=int), np.ones((1, 5), dtype=int))),
        bound_of(60, "1/100"),
    )
    wanted = {MEAN: 1.0, VARIANCE: 60.0}
    plain = laplace_accountings(counts, bound, wanted)[-1].worst_relative_scale(1.0, wanted)
    found = accounting_for(counts, bound).worst_relative_scale(1.0, wanted)
    # the best c of a few, and sizes of sums by a bound
    assert plain <= found <= plain * 1.005


def test_bins_of_the_same_vehicles_gain(counts_of, bound_of):
    counts, bound = counts_of(np.ones((6, 9), dtype=int)), bound_of(60, "1/100")
    wanted = {MEAN: 1.0, VARIANCE: 60.0}
    accounting = accounting_for(counts, bound)
    plain = laplace_accountings(counts, bound, wanted)[-1]
    assert accounting.worst_relative_scale(1.0, wanted) < 0.8 * plain.worst_relative_scale(1.0, wanted)
    errors = [accounting.errors(epsilon, bound)[VARIANCE][0] for epsilon in (0.1, 1.0, 10.0, 100.0)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == 900


def test_the_two_largest_of_groups():
    values, group = np.array([3, 9, 4, 9, 7]), np.array([0, 1, 0, 1, 2])
    top, at, second = largest_two(values, group, 3)
    assert top.tolist() == [4, 9, 7]
    assert second.tolist() == [3, 9, 0]
    assert at[0] == 2
    assert at[1] in (1, 3)
