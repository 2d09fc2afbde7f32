"""Errata of paper 000: what fails when taken literally."""

import numpy as np
import pytest
from scipy import special

from trafficdp.bounding.worst_case import exact_worst_error, worst_case_threshold
from trafficdp.mechanisms.per_statistic.clipping import WorstCaseClipping
from trafficdp.mechanisms.protocol import StatisticRequest
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.rameshwar_2025 import (
    cube_mean,
    simplex_mean,
    simplex_totals,
    vector_threshold,
)


def one_bin(counts):
    m = np.array(counts, dtype=np.int64)
    return m, np.zeros(len(m), dtype=np.int64), 1


class Recorder(SimulatedNoise):
    def discrete_laplace(self, scale):
        self.scale = scale
        return np.zeros(scale.shape, dtype=np.int64)


@pytest.mark.parametrize("d", [2, 3])
def test_a_cube_needs_its_epsilon_shared_by_the_coordinates(d):
    """E12: the interval and noise of d = 1 in each dimension cost d eps in total."""
    counts, steps, epsilon = np.array([5, 4, 3, 2, 1] * 3), 10, 1.0
    noise = Recorder(1)
    ends = []
    for value in (0, steps):
        totals = np.full((15, d), 5) * counts[:, None]
        totals[0] = value * counts[0]
        ends.append(cube_mean(totals, counts, steps, epsilon, noise) * counts.sum())
    moved = np.abs(ends[1] - ends[0])
    assert (moved / noise.scale).sum() <= epsilon * (1 + 1e-12)
    # literally: T of d = 1 and noise T/eps in every coordinate
    m, g, bins = one_bin(counts)
    t = steps * worst_case_threshold(m, g, bins, np.array([epsilon]))[0]
    width = min(t, steps * counts[0])
    assert d * width / (t / epsilon) == pytest.approx(d * epsilon)
    assert vector_threshold(counts, steps, epsilon, d) < t


def test_totals_in_the_simplex_cost_epsilon():
    random = np.random.default_rng(2)
    counts = np.array([6, 3, 3, 2, 1, 1, 1, 1])
    user = np.repeat(np.arange(8), counts)
    steps, epsilon, d = 12, 1.5, 2
    threshold = vector_threshold(counts, steps, epsilon, d)
    assert threshold == 12 * 3
    worst = 0.0
    for _ in range(300):
        x = random.multinomial(steps, [0.5, 0.3, 0.2], len(user))[:, :d]
        x[user == 0] = [[steps, 0], [0, steps], [steps // 2, steps // 2]][random.integers(3)]
        totals = simplex_totals(x, user, counts, threshold, steps)
        assert totals.sum(axis=1).max() <= threshold
        worst = max(worst, int(totals[0].sum()))
    assert worst >= threshold - 6
    noise = Recorder(1)
    found = simplex_mean(x, user, counts, steps, epsilon, noise)
    np.testing.assert_allclose(found, totals.sum(axis=0) / counts.sum())
    assert 2 * threshold / noise.scale[0] <= epsilon


def test_too_few_users_for_a_threshold_release_a_constant():
    counts = np.array([3, 1])
    assert cube_mean(np.array([[9, 9], [3, 3]]), counts, 10, 0.5, SimulatedNoise(1)).tolist() == [5, 5]
    zero = simplex_mean(
        np.ones((4, 2), dtype=np.int64), np.array([0, 0, 0, 1]), counts, 10, 0.5, SimulatedNoise(1)
    )
    assert zero.tolist() == [0, 0]


def test_the_metric_is_never_worse_than_a_constant(counts_of, bound_of):
    """E11: E >= U/2 is met by the constant U/2 without any data."""
    counts, bound = counts_of([[5, 4, 3, 2, 1]]), bound_of(60)
    for epsilon in (1e-6, 0.39, 0.4, 1.0):
        for mechanism in (WorstCaseClipping(), WorstCaseClipping(least_exact_error=True)):
            found = mechanism.expected_error(
                StatisticRequest(counts, bound, Statistic.MEAN, np.array([epsilon]))
            )[0]
            assert found <= 30 * (1 + 1e-12)


@pytest.mark.parametrize("counts", [[5, 4, 3, 2, 1], [7, 7, 7, 1], [2, 2, 2, 2, 2], [9, 1, 1]])
@pytest.mark.parametrize("epsilon", [0.7, 0.9, 1.1, 1.7])
def test_the_printed_multipliers_break_complementary_slackness(counts, epsilon):
    """E13: with lambda = 1/2 where S > 0, else 0, lambda_tau must vanish and does not."""
    m, g, bins = one_bin(counts)
    t = worst_case_threshold(m, g, bins, np.array([epsilon]))[0]
    if t == 0:
        pytest.skip("no threshold: nothing is kept")
    above, equal = int((m > t).sum()), int((m == t).sum())
    printed = 1 / epsilon - above / 2
    assert printed > 0
    # the mended multipliers lie in [0, 1/2] on the users with U m = T
    assert 0 <= printed <= equal / 2


def test_a_dropped_sample_has_no_room_to_give():
    """E14: b <- b - delta from a = b = 0 leaves a > b; a = b = U/2 has less bias and the same width."""
    upper = 1.0
    a, b, delta = 0.0, 0.0, 0.25
    assert a > b - delta
    bias = {c: max(c, upper - c) for c in (a, upper / 2)}
    assert bias[upper / 2] < bias[a]


@pytest.mark.parametrize(("bias", "scale"), [(1 / 30, 4 / 15), (2.0, 1.0), (0.5, 2.0)])
def test_the_exact_error_is_below_the_papers_metric(bias, scale):
    """E28: E|beta + Z| = beta + b e^(-beta/b) < beta + b."""
    z = np.random.default_rng(1).laplace(0, scale, 2_000_000)
    exact = float(exact_worst_error(np.array([bias]), np.array([scale]))[0])
    assert np.abs(bias + z).mean() == pytest.approx(exact, abs=4 * scale / 1_000)
    assert exact < bias + scale - 20 * scale / 1_000


def test_two_coordinates_have_a_heavier_tail_than_one():
    """E25: |Z|_1/b is Gamma(d); beyond ln(1/delta) lies delta (1 + ln(1/delta)) for d = 2, not delta."""
    for delta in (0.1, 0.01, 1e-4):
        beyond = special.gammaincc(2, np.log(1 / delta))
        assert beyond == pytest.approx(delta * (1 + np.log(1 / delta)))
        assert beyond > 3 * delta
