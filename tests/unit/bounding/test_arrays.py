"""Grouping: against the papers' algorithms sample by sample, exact sensitivities, exact bias."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from searching import examples

from trafficdp.bounding.arrays import (
    CountCap,
    argmax_cap,
    array_mean_sensitivity,
    best_fit,
    dropped_mean_bias,
    dropped_variance_bias,
    kept_counts,
    median_cap,
    total_variation_bias,
    wrap_around,
)
from trafficdp.errors import UsageError

COUNTS = st.lists(st.integers(1, 12), min_size=1, max_size=14)
CITY = st.lists(COUNTS, min_size=1, max_size=4)


def city_of(counts_of, bins):
    width = max(map(len, bins))
    return counts_of([row + [0] * (width - len(row)) for row in bins])


def descending(row):
    return sorted(range(len(row)), key=lambda user: (-row[user], user))


def wrapped_by_hand(row, cap):
    line = [(user, i) for user in descending(row) for i in range(min(row[user], cap))]
    return [line[k : k + cap] for k in range(0, len(line) - cap + 1, cap)]


def fitted_by_hand(row, cap):
    arrays = []
    for user in descending(row):
        mine = [(user, i) for i in range(min(row[user], cap))]
        fitting = [array for array in arrays if len(array) + len(mine) <= cap]
        if fitting:
            max(fitting, key=len).extend(mine)
        else:
            arrays.append(mine)
    return arrays


def listed(arrays, bin_):
    found = [[] for _ in arrays.fill]
    for pair, array, offset, count in zip(
        arrays.piece_pair, arrays.piece_array, arrays.piece_offset, arrays.piece_count, strict=True
    ):
        user = int(arrays.counts.user_index[pair])
        found[array] += [(user, i) for i in range(offset, offset + count)]
    part = slice(arrays.start[bin_], arrays.start[bin_ + 1])
    assert [len(array) for array in found[part]] == arrays.fill[part].tolist()
    return [sorted(array) for array in found[part]]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "by_hand"), [(wrap_around, wrapped_by_hand), (best_fit, fitted_by_hand)])
@given(bins=CITY, data=st.data())
@settings(max_examples=examples(150))
def test_all_bins_at_once_are_grouped_as_one_sample_after_another(group, by_hand, counts_of, bins, data):
    caps = [data.draw(st.integers(1, max(row))) for row in bins]
    arrays = group(city_of(counts_of, bins), np.array(caps))
    for bin_, (row, cap) in enumerate(zip(bins, caps, strict=True)):
        assert listed(arrays, bin_) == [sorted(array) for array in by_hand(row, cap)]
        assert arrays.per_bin[bin_] == len(by_hand(row, cap))


@pytest.mark.slow
@given(bins=CITY, data=st.data())
@settings(max_examples=examples(100))
def test_best_fit_makes_no_fewer_arrays_and_touches_one_a_vehicle(counts_of, bins, data):
    caps = np.array([data.draw(st.integers(1, max(row))) for row in bins])
    counts = city_of(counts_of, bins)
    best, wrapped = best_fit(counts, caps), wrap_around(counts, caps)
    kept = kept_counts(counts, caps).samples_per_bin
    assert np.all(best.per_bin >= -(-kept // caps))
    assert np.all(-(-kept // caps) >= wrapped.per_bin)
    assert np.all(wrapped.per_bin >= 1)
    assert np.all(best.touched_per_pair == 1)
    assert wrapped.touched_per_pair.max() <= 2
    assert best.influence.tolist() == [1] * counts.bins
    assert set(wrapped.influence.tolist()) <= {1, 2}


def test_ten_times_as_many_vehicles_are_fitted_in_about_ten_times_as_long(counts_of):
    from time import process_time

    def seconds(vehicles):
        counts = counts_of(np.random.default_rng(1).geometric(0.01, vehicles)[None])
        begin = process_time()
        arrays = best_fit(counts, argmax_cap(counts))
        took = process_time() - begin
        assert arrays.fill.max() <= arrays.capacity[0]
        return took

    seconds(100)
    few, many = (min(seconds(vehicles) for _ in range(3)) for vehicles in (10_000, 100_000))
    assert many < 20 * few


@pytest.mark.parametrize("group", [wrap_around, best_fit])
@pytest.mark.parametrize("cap", [0, 5, -1])
def test_caps_that_no_vehicle_reaches_are_refused(group, cap, counts_of):
    with pytest.raises(UsageError, match="cap on samples"):
        group(counts_of([[4, 2]]), np.array([cap]))


def test_nothing_is_grouped_into_nothing(counts_of):
    empty = counts_of(np.zeros((0, 3), dtype=np.int64))
    for rule in CountCap:
        for group in (wrap_around, best_fit):
            assert len(group(empty, rule.of(empty)).fill) == 0


@given(numbers=st.lists(st.integers(1, 40), min_size=1, max_size=12))
@settings(max_examples=examples(200))
def test_caps_are_found_at_counts_and_beat_every_other_number(counts_of, numbers):
    counts = counts_of([numbers])
    cap = int(argmax_cap(counts)[0])
    assert cap in numbers
    # exact comparison of squares: (sum min)^2 / m
    gain = {m: sum(min(c, m) for c in numbers) ** 2 for m in range(1, max(numbers) + 1)}
    assert all(gain[cap] * m >= gain[m] * cap for m in gain)
    assert all(gain[cap] * m > gain[m] * cap for m in numbers if m > cap)
    median = int(median_cap(counts)[0])
    assert median == sorted(numbers, reverse=True)[-(-len(numbers) // 2) - 1]
    assert 2 * sum(c >= median for c in numbers) >= len(numbers)


def test_of_caps_that_gain_the_same_the_largest_is_taken(counts_of):
    # (1 + 1 + 1)^2 / 1 = 9 = (4 + 1 + 1)^2 / 4
    assert argmax_cap(counts_of([[1, 4, 1]])).tolist() == [4]
    assert argmax_cap(counts_of([[1, 3, 1]])).tolist() == [1]


def brute_force(arrays, levels, low, high):
    """Largest change of sum of projected means by each pair, over all values on the levels."""
    order = {}
    for pair, array, count in zip(arrays.piece_pair, arrays.piece_array, arrays.piece_count, strict=True):
        order.setdefault(int(array), []).append((int(pair), int(count)))
    worst = {}
    for user in range(arrays.counts.pairs):
        change = 0.0
        for array, pieces in order.items():
            own = sum(count for pair, count in pieces if pair == user)
            rest = int(arrays.fill[array]) - own
            if not own:
                continue
            best = 0.0
            for theirs in product(levels, repeat=rest):
                base = sum(theirs)
                means = [
                    np.clip((base + sum(mine)) / int(arrays.fill[array]), low, high)
                    for mine in product(levels, repeat=own)
                ]
                best = max(best, max(means) - min(means))
            change += best
        worst[user] = change / len(arrays.fill)
    return [worst[user] for user in range(arrays.counts.pairs)]


@pytest.mark.parametrize("group", [wrap_around, best_fit])
@pytest.mark.parametrize(
    ("counts", "cap"), [([3, 2, 2, 2], 3), ([2, 1], 2), ([3, 2, 1], 2), ([4], 2), ([2, 2, 1], 2)]
)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.5, 0.75), (0.25, 1.0), (0.0, 0.25)])
def test_sensitivities_equal_brute_force_over_all_values(group, counts, cap, low, high, counts_of):
    arrays = group(counts_of([counts]), np.array([cap]))
    stated = array_mean_sensitivity(arrays, 1.0, np.array([low]), np.array([high]))
    # twelfths place the mean of two or three samples wherever it is needed
    found = brute_force(arrays, np.linspace(0, 1, 13), low, high)
    np.testing.assert_allclose(found, stated, atol=1e-12)


@pytest.mark.parametrize("group", [wrap_around, best_fit])
def test_all_arrays_together_change_as_much_as_each_alone(group, counts_of):
    # full joint enumeration: all values of all vehicles, all replacements of one vehicle's
    counts, cap, levels = [2, 2, 1], 2, (0.0, 0.5, 1.0)
    arrays = group(counts_of([counts]), np.array([cap]))
    for low, high in ((0.0, 1.0), (0.25, 0.75)):
        start = np.concatenate([[0], np.cumsum(counts)])

        def value(samples, low=low, high=high, start=start):
            total = np.zeros(len(arrays.fill))
            for pair, array, offset, count in zip(
                arrays.piece_pair, arrays.piece_array, arrays.piece_offset, arrays.piece_count, strict=True
            ):
                begin = start[pair] + offset
                total[array] += sum(samples[begin : begin + count])
            return float(np.clip(total / arrays.fill, low, high).mean())

        everything = {samples: value(samples) for samples in product(levels, repeat=sum(counts))}
        stated = array_mean_sensitivity(arrays, 1.0, np.array([low]), np.array([high]))
        for user in range(len(counts)):
            groups = {}
            for samples, found in everything.items():
                others = samples[: start[user]] + samples[start[user + 1] :]
                groups.setdefault(others, []).append(found)
            most = max(max(found) - min(found) for found in groups.values())
            assert most == pytest.approx(stated[user], abs=1e-12)


@pytest.mark.parametrize("group", [wrap_around, best_fit])
def test_the_bias_is_what_a_linear_programme_finds(group, counts_of):
    random = np.random.default_rng(3)
    for _ in range(30):
        counts = random.integers(1, 9, random.integers(1, 7))
        cap = int(random.integers(1, counts.max() + 1))
        arrays = group(counts_of([counts]), np.array([cap]))
        weight = np.zeros(counts.sum())
        start = np.concatenate([[0], np.cumsum(counts)])
        for pair, array, offset, count in zip(
            arrays.piece_pair, arrays.piece_array, arrays.piece_offset, arrays.piece_count, strict=True
        ):
            begin = start[pair] + offset
            weight[begin : begin + count] = 1 / (len(arrays.fill) * arrays.fill[array])
        assert weight.sum() == pytest.approx(1)
        most = max(-linprog(sign * (weight - 1 / counts.sum()), bounds=(0, 65)).fun for sign in (1.0, -1.0))
        assert total_variation_bias(arrays, 65.0)[0] == pytest.approx(most, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("samples", range(1, 8))
def test_the_bias_of_dropping_equals_enumeration(samples):
    for dropped in range(samples):
        moved_mean = moved_variance = 0.0
        for values in product((0, 1, 2), repeat=samples):
            everything, kept = np.array(values), np.array(values[dropped:])
            moved_mean = max(moved_mean, abs(everything.mean() - kept.mean()))
            moved_variance = max(moved_variance, abs(everything.var() - kept.var()))
        found = np.array([dropped]), np.array([samples])
        assert dropped_mean_bias(*found, 2.0)[0] == pytest.approx(moved_mean, abs=1e-12)
        assert dropped_variance_bias(*found, 2.0)[0] == pytest.approx(moved_variance, abs=1e-12)
