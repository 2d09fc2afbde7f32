"""Vectors by PLAN and IOME: what is clipped, rotated and searched, and errors where losses are ample."""

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.aumuller_2023.iome import hadamard, iome_mean, rotate, rotate_back
from trafficdp.research.aumuller_2023.plan import (
    binary_search_quantiles,
    clip_to_length,
    noisy_sum,
    pair_variances,
    plan_binary_mean,
    plan_mean,
    private_variances,
)


class Quiet(SimulatedNoise):
    """Keeps the steps and adds nothing."""

    def measure(self, step, values):
        self.step = step
        return step.of.sums(values)


@pytest.mark.parametrize("factor", [2.0, np.sqrt(2)])
def test_clipped_vectors_are_never_too_long_for_their_noise(factor):
    random = np.random.default_rng(4)
    rho, length, ends = 0.3, 2.5, []
    y = random.normal(0, 5, (20, 6))
    y = np.abs(y) if factor < 2 else y
    for _ in range(2):
        noise = Quiet(1)
        ends.append(noisy_sum(y, length, rho, noise, factor=factor))
        y = y.copy()
        y[0] = np.eye(6)[1] * 9 if factor < 2 else -y[0]
    assert np.linalg.norm(ends[1] - ends[0]) * GRAINS / noise.step.of.bound <= noise.step.law.sd[0] * np.sqrt(
        2 * rho
    )
    np.testing.assert_allclose(np.linalg.norm(clip_to_length(y, 1e-3), axis=1), 1e-3)
    assert noisy_sum(y, 0.0, rho, noise).tolist() == [0] * 6


def test_a_rotation_keeps_lengths_and_comes_back():
    random = np.random.default_rng(1)
    x, signs = random.normal(size=(5, 8)), np.sign(random.normal(size=(3, 8)))
    turned = rotate(x, signs)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(x, axis=1))
    np.testing.assert_allclose(rotate_back(turned, signs), x, atol=1e-12)
    np.testing.assert_allclose(hadamard(np.eye(2)), np.array([[1, 1], [1, -1]]) / np.sqrt(2))
    assert hadamard(np.ones((1, 1))).tolist() == [[1.0]]


def test_pairs_use_every_row_once_and_average_in_groups():
    x = np.random.default_rng(1).normal(0, 3, (4_001, 2))
    for group in (1, 4):
        pairs = pair_variances(x, group, SimulatedNoise(2))
        assert pairs.shape == (4_001 // (2 * group), 2)
        np.testing.assert_allclose(pairs.mean(axis=0), [9, 9], rtol=0.15)


@pytest.mark.parametrize("group", [1, 4])
def test_private_variances_are_near_the_true_ones_over_orders_of_magnitude(group):
    sd = np.array([1e-3, 1.0, 40.0, 700.0])
    x = np.random.default_rng(1).normal(0, 1, (20_000, 4)) * sd
    found = private_variances(x, 5_000.0, 0.05, SimulatedNoise(2), group=group)
    np.testing.assert_allclose(np.sqrt(found), sd, rtol=0.1)


def test_vectors_with_ample_privacy_loss_are_estimated_well():
    x = np.random.default_rng(1).normal(7, 2, (4_000, 5))
    noise = SimulatedNoise(3)
    for found in (
        plan_mean(x, 100, 50.0, noise),
        plan_mean(x, 100, 50.0, noise, scaled=False),
        iome_mean(x, 100, 50.0, noise),
    ):
        np.testing.assert_allclose(found, x.mean(axis=0), atol=0.15)
    with pytest.raises(UsageError, match="PLAN needs"):
        plan_mean(x[:2], 100, 1.0, noise)


@pytest.mark.parametrize("scaled", [True, False])
def test_binary_vectors_are_estimated_well(scaled):
    random = np.random.default_rng(2)
    p = np.r_[np.full(8, 0.5), np.full(24, 0.01)]
    x = random.random((4_096, 32)) < p
    found = plan_binary_mean(x, 2.0, SimulatedNoise(1), scaled=scaled)
    assert np.abs(found - x.mean(axis=0)).max() < 0.05


def test_noisy_halvings_lead_to_the_quantile():
    x = np.random.default_rng(1).normal(0, [1.0, 20.0], (4_001, 2))
    found = binary_search_quantiles(x, -100.0, 100.0, 1_000, 1e6, 40, SimulatedNoise(1))
    np.testing.assert_allclose(found, np.sort(x, axis=0)[1_000], atol=0.02)


def test_the_golden_search_ends_between_two_and_three():
    # x = [1, 2, 3, 4, 100], rank 2.5, [0, 128], 7 halvings: l, u = 2, 3, output 2.5
    x = np.array([[1.0], [2.0], [3.0], [4.0], [100.0]])
    assert binary_search_quantiles(x, 0.0, 128.0, 2.5, 1.0, 7, Quiet(1)).tolist() == [2.5]


def test_a_rank_is_missed_by_no_more_than_the_bound_and_more_than_the_papers_codes():
    """E21: sqrt(T ln(2T/beta)/rho) holds with 1 - beta; sqrt(T ln(T/beta)/(2 rho)) does not."""
    rho, beta, runs, n, steps = 0.5, 0.1, 4_000, 1_024, 10
    sd = np.full((steps, runs), np.sqrt(steps / (2 * rho)))
    draws = np.abs(SimulatedNoise(4).discrete_gaussian(sd)).max(axis=0)
    bound = np.sqrt(steps * np.log(2 * steps / beta) / rho)
    theirs = np.sqrt(steps * np.log(steps / beta) / (2 * rho))
    assert np.mean(draws <= bound) > 1 - beta
    assert np.mean(draws > theirs) > beta
    # the error of a search is at most its largest noise
    x = np.tile(np.arange(n, dtype=np.float64)[:, None], (1, 200))
    found = binary_search_quantiles(x, 0.0, float(n), n / 2, rho, steps, SimulatedNoise(4))
    assert np.mean(np.abs(found - n / 2) > bound + 1) <= beta


@pytest.mark.parametrize("columns", [1, 3, 8])
def test_what_is_padded_is_cut_off_again(columns):
    x = np.random.default_rng(1).normal(1, 0.1, (500, columns))
    found = iome_mean(x, 4.0, 1e4, SimulatedNoise(2))
    np.testing.assert_allclose(found, x.mean(axis=0), atol=0.01)
