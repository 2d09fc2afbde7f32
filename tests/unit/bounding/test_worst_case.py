import numpy as np
import pytest
from scipy import optimize

from trafficdp.bounding.worst_case import (
    clip_cut,
    clipping_rank,
    exact_worst_error,
    kth_largest,
    largest_bias,
    least_error_threshold,
    project_to_simplex,
    worst_case_threshold,
)


def one_bin(counts):
    m = np.array(counts, dtype=np.int64)
    return m, np.zeros(len(m), dtype=np.int64), 1


def theirs(counts, epsilon, upper=1.0):
    """The paper's T/U and beta + b of one bin."""
    m, g, bins = one_bin(counts)
    epsilon = np.array([epsilon])
    t = worst_case_threshold(m, g, bins, epsilon).astype(float)
    return float(t[0]), float((largest_bias(m, g, bins, t, upper) + upper * t / m.sum() / epsilon)[0])


def program(counts, epsilon, upper, d=1):
    """The least worst-case error over free a_l <= b_l of every user (d = 1), or free b_l (d >= 2), by LP.

    d = 1: bias max(sum m a, sum m (U - b))/N; d >= 2: bias sum m (U - b)/N and l1 sensitivity 2 max m b/N.
    """
    m = np.array(counts, dtype=float)
    users, total = len(m), m.sum()
    rows, bounds = [], []
    if d == 1:
        # a_1..a_L, b_1..b_L, bias, sensitivity
        rows = [np.r_[m, np.zeros(users), -total, 0], np.r_[np.zeros(users), -m, -total, 0]]
        limits = [0, -upper * total]
        for i in range(users):
            row = np.zeros(2 * users + 2)
            row[users + i], row[i], row[-1] = m[i] / total, -m[i] / total, -1
            rows.append(row)
            limits.append(0)
        for i in range(users):
            row = np.zeros(2 * users + 2)
            row[i], row[users + i] = 1, -1
            rows.append(row)
            limits.append(0)
        cost = np.r_[np.zeros(2 * users), 1, 1 / epsilon]
        bounds = [(0, upper)] * (2 * users) + [(0, None)] * 2
    else:
        limits = []
        for i in range(users):
            row = np.zeros(users + 1)
            row[i], row[-1] = 2 * m[i] / total, -1
            rows.append(row)
            limits.append(0)
        cost = np.r_[-m / total, d / epsilon]
        bounds = [(0, upper)] * users + [(0, None)]
    found = optimize.linprog(cost, A_ub=np.array(rows), b_ub=limits, bounds=bounds)
    assert found.status == 0
    return found.fun + (upper if d > 1 else 0)


@pytest.mark.parametrize("seed", range(40))
def test_the_threshold_is_optimal_among_all_intervals(seed):
    random = np.random.default_rng(seed)
    counts = random.integers(1, 12, random.integers(1, 9))
    upper = float(random.choice([1, 65]))
    special = [2 / len(counts), 2.0, 1.0, 0.5]
    epsilon = float(random.choice([*special, *random.uniform(0.05, 4, 4)]))
    assert theirs(counts, epsilon, upper)[1] == pytest.approx(program(counts, epsilon, upper), rel=1e-7)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("seed", range(15))
def test_the_threshold_is_optimal_in_the_simplex(seed, d):
    random = np.random.default_rng(seed)
    counts = random.integers(1, 12, random.integers(1, 12))
    epsilon = float(random.choice([2 * d / len(counts), *random.uniform(0.2, 6, 4)]))
    m, g, bins = one_bin(counts)
    t = worst_case_threshold(m, g, bins, np.array([epsilon]), 2 * d)[0]
    ours = (np.maximum(m - t, 0).sum() + 2 * d * t / epsilon) / m.sum()
    assert ours == pytest.approx(program(counts, epsilon, 1.0, d), rel=1e-7)


def test_ranks_are_taken_of_decimals_not_of_their_binary_neighbours():
    assert clipping_rank(np.array([0.1, 0.2, 0.4, 1.0, 2.0, 3.0, np.inf, 1e-30])).tolist() == [
        20,
        10,
        5,
        2,
        1,
        1,
        1,
        2**62,
    ]


def test_the_kth_largest_count_is_found_in_every_bin():
    bin_index = np.array([0, 0, 0, 1, 2, 2])
    count = np.array([3, 9, 5, 4, 1, 1])
    rank = np.array([2, 2, 2])
    assert kth_largest(count, bin_index, 3, rank).tolist() == [5, 0, 1]


@pytest.mark.parametrize("seed", range(30))
def test_the_better_threshold_has_the_least_exact_error(seed):
    random = np.random.default_rng(seed)
    m, g, bins = one_bin(random.integers(1, 30, random.integers(1, 40)))
    epsilon = np.array([float(random.choice([0.05, 0.3, 1.0, 3.0]))])

    def error(t):
        t = np.array([t])
        return float(exact_worst_error(largest_bias(m, g, bins, t, 1.0), t / m.sum() / epsilon)[0])

    best = error(float(least_error_threshold(m, g, bins, epsilon)[0]))
    grid = np.linspace(0, m.max(), 3_001)[1:]
    assert best <= min(map(error, grid)) + 1e-12
    theirs_t, theirs_error = theirs(m, float(epsilon[0]))
    assert best <= theirs_error + 1e-12
    if theirs_t > 0:
        assert best <= error(theirs_t) + 1e-12


def test_bins_do_not_disturb_each_other():
    tables = [[5, 4, 3, 2, 1], [7], [1, 1, 9]]
    m = np.concatenate(tables)
    g = np.repeat([0, 1, 2], [len(t) for t in tables])
    epsilon = np.array([1.0, 0.5, 2.5])
    together = least_error_threshold(m, g, 3, epsilon)
    alone = [least_error_threshold(*one_bin(t), epsilon[[i]])[0] for i, t in enumerate(tables)]
    np.testing.assert_allclose(together, alone)


@pytest.mark.parametrize("threshold", range(1, 14))
def test_no_user_has_more_room_than_the_threshold(threshold):
    m, g, _ = one_bin([1, 2, 3, 4])
    steps = 3
    cut = clip_cut(m, g, np.array([threshold]), steps)
    width = steps * m - 2 * cut
    assert np.all(width <= threshold)
    assert np.all(width >= np.minimum(steps * m, threshold - 1))
    # centred: all zeros and all U are cut alike
    assert np.all(cut >= 0)


def test_the_ends_of_an_interval_are_rounded_inward():
    # U = T = 65, m = 10: [292.5, 357.5]
    cut = clip_cut(np.array([10]), np.array([0]), np.array([65]), 65)
    assert (int(cut[0]), 650 - int(cut[0])) == (293, 357)


def test_averaging_before_clipping_is_never_worse():
    random = np.random.default_rng(3)
    for _ in range(2_000):
        x = random.uniform(0, 1, random.integers(1, 6))
        a, b = np.sort(random.uniform(0, 1, 2))
        first = abs(np.clip(x.sum(), len(x) * a, len(x) * b) - x.sum())
        assert first <= abs(np.clip(x, a, b).sum() - x.sum()) + 1e-12


def test_projection_shortens_only_what_is_too_long():
    x = np.array([[3.0, 1.0], [0.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(
        project_to_simplex(x, np.array([2.0, 0.0, 2.0])), [[1.5, 0.5], [0, 0], [0.5, 0.5]]
    )
