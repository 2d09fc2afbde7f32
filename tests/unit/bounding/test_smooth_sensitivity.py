"""Distances against all subsets; S against every neighbour on lattices; the lemmas' constants attained."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from trafficdp.bounding.huber import (
    MOST_CENTRES,
    HuberParameters,
    balanced_distance,
    centre_grid_distance,
    huber_location,
    smooth_sensitivity,
    typical_smooth_sensitivity,
    used_count,
    weight_distance,
)

FAR = 1e4


def location(rows, weight, threshold):
    """Huber estimates of many data sets of the same vehicles, one a row."""
    rows = np.atleast_2d(np.asarray(rows, dtype=float))
    bins, users = rows.shape
    where = np.repeat(np.arange(bins), users)
    return huber_location(rows.ravel(), np.tile(weight, bins), np.tile(threshold, bins), where, bins)


def every_dataset(lattice, users):
    shape = (len(lattice),) * users
    index = np.stack(np.unravel_index(np.arange(len(lattice) ** users), shape), axis=1)
    return np.asarray(lattice, dtype=float)[index]


def smooth_of(rows, weight, threshold, upper, beta, levels=64):
    bins, users = rows.shape
    shape = HuberParameters(
        np.tile(weight, bins), np.tile(threshold, bins), np.repeat(np.arange(bins), users), bins, upper
    )
    return smooth_sensitivity(rows.ravel(), shape, np.full(bins, beta), levels=levels)


def worst_replacement(rows, weight, threshold):
    """Local sensitivity: mu0 is monotone in every value, so the ends decide."""
    centre = location(rows, weight, threshold)
    worst = np.zeros(len(rows))
    for i, end in itertools.product(range(rows.shape[1]), (-FAR, FAR)):
        changed = rows.copy()
        changed[:, i] = end
        worst = np.maximum(worst, np.abs(location(changed, weight, threshold) - centre))
    return worst


def shares(*numbers):
    return np.array(numbers, dtype=float) / sum(numbers)


LATTICES = [
    ([0, 1, 2, 6], np.full(7, 1 / 7), np.full(7, 4.0), 6.0, 0.3),
    ([0, 1, 3, 20], np.full(7, 1 / 7), np.full(7, 4.0), 20.0, 1.0),
    ([0, 1, 30], np.full(9, 1 / 9), np.full(9, 2.0), 30.0, 0.7),
    ([0, 20], np.full(12, 1 / 12), np.full(12, 4.0), 20.0, 0.5),
    ([0, 1, 3, 20], shares(10, 10, 10, 12, 12, 9, 9), np.array([4, 4, 4, 3.5, 3.5, 4.2, 4.5]), 20.0, 1.0),
    ([0, 1, 20], shares(10, 10, 10, 12, 12, 9, 9, 10), np.array([4, 4, 4, 3.5, 3.5, 4.2, 4.5, 4]), 20.0, 0.5),
]


@pytest.mark.slow
@pytest.mark.parametrize(("lattice", "weight", "threshold", "upper", "beta"), LATTICES)
def test_s_bounds_the_local_sensitivity_and_is_smooth_on_whole_lattices(
    lattice, weight, threshold, upper, beta
):
    rows = every_dataset(lattice, len(weight))
    smooth = smooth_of(rows, weight, threshold, upper, beta)
    local = np.minimum(worst_replacement(rows, weight, threshold), upper)
    assert np.all(local <= smooth * (1 + 1e-9))
    assert np.mean(smooth < upper) > 0.1  # the test is not about U alone
    table = smooth.reshape((len(lattice),) * len(weight))
    ratios = [(table.max(axis) / table.min(axis)).max() for axis in range(len(weight))]
    assert max(ratios) <= np.exp(beta) * (1 + 1e-9)
    assert max(ratios) >= np.exp(beta) * (1 - 1e-9)  # attained


def smooth_by_definition(value, weight, threshold, upper, beta):
    """S of one bin, k by k: the least over k0 of max e^(-beta k) G(D, k)."""
    users, strict, slack = len(value), 1 - 1e-9, 0.05
    balanced = len(set(weight)) == len(set(threshold)) == 1
    spread = np.abs(value - weight @ value)
    heavy, leverage = np.sort(weight)[::-1], np.sort(weight * threshold)[::-1]
    alone = np.max(weight * (threshold + spread) / (1 - weight))
    alone = alone if alone < strict * np.min(threshold - spread) else upper
    best = upper
    for k0 in range(1, (users + 1) // 2):
        room, moved = threshold.min() * (1 - heavy[:k0].sum()), leverage[:k0].sum()
        theta = strict * (room - moved) / (room + moved)
        if theta <= (0 if balanced else slack):
            break
        start, limit = np.array([0]), np.array([k0])
        if balanced:
            off = balanced_distance(np.sort(value), start, theta * threshold[:1], limit)[0]
        else:
            share = np.array([theta - slack])
            off = centre_grid_distance(value, weight, threshold, start, share, slack * strict, upper, limit)[
                0
            ]
        worst = [upper if k else alone for k in range(users)]
        for k in range(k0 - off):
            worst[k] = min(worst[k], 2 * leverage[0] / (1 - heavy[: k + off].sum()))
        best = min(best, np.max(np.exp(-beta * np.arange(users)) * worst))
    return best


@pytest.mark.parametrize("beta", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("spread", [(1, 1), (0.7, 1.4)])
def test_s_of_many_vehicles_equals_its_definition(spread, beta):
    random = np.random.default_rng(9)
    for far in ([], [3.0], [3.0, 3.2, -2.5], [8.0, -8.0]):
        weight, threshold = shares(*random.uniform(*spread, 120)), 10 * random.uniform(*spread, 120)
        value = 20 + 1.5 * random.uniform(-1, 1, 120)
        value[: len(far)] += far
        found = smooth_of(value[None], weight, threshold, 40.0, beta, levels=120)[0]
        assert found < 40
        assert found == pytest.approx(smooth_by_definition(value, weight, threshold, 40.0, beta), rel=1e-12)


def is_good(kept, replaced, radius):
    """Whether replaced means can make all lie within ``radius`` of the plain mean: a linear programme."""
    users = len(kept) + replaced
    # unknowns: centre s, sum of replaced offsets r with |r| <= replaced * radius
    a_eq = [[users - replaced, -1.0]]
    found = linprog(
        [0, 0],
        A_eq=a_eq,
        b_eq=[kept.sum()],
        bounds=[(kept.max() - radius, kept.min() + radius), (-replaced * radius, replaced * radius)],
    )
    return found.status == 0


@pytest.mark.slow
def test_balanced_distance_equals_all_subsets():
    random = np.random.default_rng(5)
    for _ in range(60):
        users = int(random.integers(3, 8))
        value = np.sort(random.integers(0, 12, users) + 0.01 * random.random(users))
        radius = float(random.uniform(0.5, 4))
        limit = (users - 1) // 2
        brute = next(
            (
                j
                for j in range(limit)
                if any(
                    is_good(value[list(c)], j, radius)
                    for c in itertools.combinations(range(users), users - j)
                )
            ),
            limit,
        )
        found = balanced_distance(value, np.array([0]), np.array([radius]), np.array([limit]))
        assert found[0] == brute


def test_balanced_distance_of_many_bins_equals_the_window_rule_one_by_one():
    random = np.random.default_rng(6)
    users = random.integers(3, 15, 300)
    first = np.cumsum(users) - users
    where = np.repeat(np.arange(300), users)
    value = random.standard_t(2, len(where)) * 3
    value = value[np.lexsort((value, where))]
    radius, limit = random.uniform(0.5, 6, 300), (users - 1) // 2 + 1
    together = balanced_distance(value, first, radius, limit)
    for g in range(300):
        own = value[first[g] : first[g] + users[g]]
        for j in range(limit[g] + 1):
            kept = users[g] - j
            windows = [own[a : a + kept] for a in range(j + 1)]
            fits = any(
                w[-1] - w[0] <= 2 * radius[g]
                and kept * max(0, w[-1] - radius[g] - w.mean(), w.mean() - w[0] - radius[g]) <= j * radius[g]
                for w in windows
            )
            if fits or j == limit[g]:
                assert together[g] == j
                break


def test_nothing_is_good_within_a_negative_radius():
    found = balanced_distance(np.zeros(9), np.array([0]), np.array([-1.0]), np.array([4]))
    assert found.tolist() == [4]


@pytest.mark.slow
@pytest.mark.parametrize(("upper", "shared"), [(10.0, (0.1, 0.6)), (3.0 * MOST_CENTRES, (0.6, 1.0))])
def test_grid_distance_equals_all_subsets(upper, shared):
    """On a fine grid a centre lies near the mean; on a coarse one those left must be pulled towards it."""
    random = np.random.default_rng(7)
    slack = 0.05
    for _ in range(80):
        users = int(random.integers(3, 7))
        value = random.uniform(2, 8, users)
        weight = shares(*random.uniform(0.5, 2, users))
        threshold = random.uniform(2, 5, users)
        share = float(random.uniform(*shared))
        step = max(2 * slack * threshold.min(), upper / MOST_CENTRES)
        # no value is as far as 15 from one beyond those
        centres = np.arange(int(np.ceil(min(upper, 15.0) / step)) + 1) * step
        brute = users
        for c, j in itertools.product(centres, range(users)):
            for kept in itertools.combinations(range(users), users - j):
                kept = list(kept)
                offset = value[kept] - c
                if j < brute and np.all(np.abs(offset) <= share * threshold[kept]):
                    free = share * (weight @ threshold - weight[kept] @ threshold[kept])
                    if abs(weight[kept] @ offset) <= free + slack * threshold.min():
                        brute = j
        found = centre_grid_distance(
            value, weight, threshold, np.array([0]), np.array([share]), slack, upper, np.array([users])
        )
        assert found[0] == brute


def test_vehicles_at_the_end_of_the_range_are_good_about_the_last_centre():
    value, weight, threshold = np.full(3, 10.0), np.full(3, 1 / 3), np.ones(3)
    shape = value, weight, threshold, np.array([0]), np.array([0.04])
    assert centre_grid_distance(*shape, 0.05, 10.0, np.array([3])).tolist() == [0]


@pytest.mark.parametrize(("slack", "value"), [(0.0625, [2, 4, 6]), (0.25, [18, 20, 22])])
def test_a_vehicle_exactly_at_its_radius_is_good_on_grids_finer_and_coarser_than_a_unit(slack, value):
    weight, threshold = np.full(3, 1 / 3), np.full(3, 4.0)
    found = centre_grid_distance(
        np.array(value, dtype=float),
        weight,
        threshold,
        np.array([0]),
        np.array([0.5]),
        slack,
        40.0,
        np.array([3]),
    )
    assert found.tolist() == [0]


def test_lemma_1_is_attained():
    value, weight, threshold = np.array([9, 10, 10, 10, 10, 10, 10, 11.0]), np.full(8, 1 / 8), np.full(8, 4.0)
    spread = np.abs(value - value.mean()).max()
    assert spread < (1 - 2 / 8) * 4
    assert worst_replacement(value[None], weight, threshold)[0] == pytest.approx((4 + spread) / 7, rel=1e-9)


def test_lemma_2_is_attained():
    # one replacement away from all equal: the outlier jumps from one side to the other
    value, weight, threshold = np.append(np.full(8, 10.0), 500.0), np.full(9, 1 / 9), np.full(9, 4.0)
    assert worst_replacement(value[None], weight, threshold)[0] == pytest.approx(2 * 4 / (9 - 1), rel=1e-9)


def test_lemma_3_is_attained():
    weight, threshold = shares(3, 2, 2, 2, 2, 2), np.array([3, 4, 4, 4, 4, 4.0])
    value = np.full(6, 10.0)
    bound = np.max(weight * threshold / (1 - weight))
    assert bound < threshold.min()
    assert worst_replacement(value[None], weight, threshold)[0] == pytest.approx(bound, rel=1e-9)


def test_lemma_4_is_attained():
    weight, threshold = shares(4, 2, 2, 2, 2, 2, 2, 2, 2), np.full(9, 4.0)
    value = np.append(500.0, np.full(8, 10.0))
    bound = 2 * (weight * threshold).max() / (1 - weight.max())
    assert worst_replacement(value[None], weight, threshold)[0] == pytest.approx(bound, rel=1e-9)


def test_at_equality_the_lemma_fails_and_s_does_not_use_it():
    # two vehicles: Z = 0 = (1 - 2/n) T. The lemma would say (T + Z)/(n - 1) = 10; the flat piece jumps
    weight, threshold = np.full(2, 0.5), np.full(2, 10.0)
    assert location([[0, 100]], weight, threshold)[0] == pytest.approx(50)
    assert smooth_of(np.zeros((1, 2)), weight, threshold, 65.0, 1.0)[0] == 65.0


@pytest.mark.parametrize("users", [1, 2])
def test_too_few_vehicles_have_no_bound_but_the_range(users):
    rows = np.full((1, users), 30.0)
    assert smooth_of(rows, np.full(users, 1 / users), np.full(users, 5.0), 65.0, 0.2)[0] == 65.0


def test_a_dominating_vehicle_leaves_no_bound_but_the_range():
    assert smooth_of(np.full((1, 5), 3.0), shares(9, 1, 1, 1, 1), np.full(5, 5.0), 65.0, 0.2)[0] == 65.0


def test_more_values_of_k0_never_give_more():
    random = np.random.default_rng(8)
    rows = random.normal(30, 3, (20, 60))
    weight, threshold = np.full(60, 1 / 60), np.full(60, 12.0)
    few = smooth_of(rows, weight, threshold, 65.0, 0.3, levels=3)
    all_of_them = smooth_of(rows, weight, threshold, 65.0, 0.3, levels=60)
    assert np.all(all_of_them <= few)
    assert np.any(all_of_them < few)


def test_clean_sensitivity_is_that_of_data_with_that_spread():
    users = 60
    value = 30 + 4 * np.tile([1.0, -1.0], users // 2)
    weight, threshold = np.full(users, 1 / users), np.full(users, 10.0)
    shape = HuberParameters(weight, threshold, np.zeros(users, dtype=np.int64), 1, 65.0)
    beta = np.array([0.3])
    clean = typical_smooth_sensitivity(shape, beta, relative_distance=0.4)
    # real data may be closer to some good set for larger k0
    assert smooth_sensitivity(value, shape, beta)[0] <= clean[0]


def test_bins_are_balanced_where_weights_and_thresholds_are_equal():
    shape = HuberParameters(
        weight=np.array([0.5, 0.5, 0.25, 0.75, 0.5, 0.5]),
        threshold=np.array([3.0, 3.0, 3.0, 3.0, 2.0, 3.0]),
        bin_index=np.array([0, 0, 1, 1, 2, 2]),
        bins=3,
        upper=10.0,
    )
    assert shape.balanced.tolist() == [True, False, False]


def test_the_distance_of_two_weightings_is_how_far_apart_their_means_can_be():
    first, second = np.array([0.5, 0.5, 1.0]), np.array([0.75, 0.25, 1.0])
    assert weight_distance(first, second, np.array([0, 0, 1]), 2).tolist() == [0.25, 0.0]


def test_a_vehicle_counts_for_at_most_twice_its_share():
    assert used_count(np.array([10, 1, 1]), np.zeros(3, dtype=np.int64), 1).tolist() == [8, 1, 1]
