from itertools import product

import numpy as np
import pytest

from trafficdp.mechanisms.per_statistic.two_stage import exponential_quantile
from trafficdp.noise.choice import probabilities
from trafficdp.noise.source import SimulatedNoise


def integers(*values):
    return np.array(values, dtype=np.int64)


class Law(SimulatedNoise):
    """Records the exact law of a choice."""

    def choose(self, cost, weight, start, scale, runs=1):
        self.cell, self.weight = probabilities(cost, weight, start, scale), weight
        return super().choose(cost, weight, start, scale, runs)


def law(values, rank, scale, high):
    """P(t) for t = 0..high."""
    noise = Law(1)
    exponential_quantile(
        np.sort(integers(*values)),
        integers(0, len(values)),
        integers(0),
        integers(high),
        integers(rank),
        np.array([scale]),
        noise,
    )
    each = np.repeat(noise.cell / np.maximum(noise.weight, 1), noise.weight)
    assert len(each) == high + 1
    return each


@pytest.mark.parametrize("values", [(2, 5, 5, 9), (0, 0, 0), (9, 9), (3,), (0, 9, 9, 4)])
@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_every_position_has_the_probability_of_its_rank_error(values, rank):
    t = np.arange(10)
    rank_error = np.abs((np.array(values)[:, None] < t).sum(axis=0) - rank)
    expected = np.exp(-rank_error / 3.0)
    np.testing.assert_allclose(law(values, rank, 3.0, 9), expected / expected.sum(), rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_its_loss_is_epsilon_and_its_range_too(rank):
    epsilon, loss, spread = 0.8, 0.0, 0.0
    datasets = [np.sort(v) for v in product((0, 2, 4), repeat=3)]
    laws = {tuple(d): np.log(law(d, rank, 2 / epsilon, 4)) for d in datasets}
    for d, other in product(datasets, repeat=2):
        if min((np.sort(p) != np.sort(other)).sum() for p in _replacements(d)) == 0:
            ratio = laws[tuple(d)] - laws[tuple(other)]
            loss, spread = max(loss, np.abs(ratio).max()), max(spread, np.ptp(ratio))
    assert loss <= epsilon
    assert 0.5 * epsilon < spread <= epsilon * (1 + 1e-12)


def _replacements(d):
    for place, value in product(range(len(d)), (0, 2, 4)):
        changed = d.copy()
        changed[place] = value
        yield changed


@pytest.mark.parametrize("seed", range(5))
def test_columns_do_not_disturb_each_other(seed):
    random = np.random.default_rng(seed)
    columns = [np.sort(random.integers(0, 1_000, size)) for size in (7, 0, 31, 1)]
    start = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    rank = np.array([3.0, 0.0, 15.0, 0.0])
    low, high = np.zeros(4, dtype=np.int64), np.full(4, 1_024)
    drawn = exponential_quantile(
        np.concatenate(columns), start, low, high, rank.astype(np.int64), np.full(4, 0.01), SimulatedNoise(1)
    )
    for j, column in enumerate(columns):
        assert (column < drawn[j]).sum() == min(rank[j], len(column))
