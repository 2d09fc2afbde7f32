"""Combinations of the noises of one block: half widths that hold, and bounds of their expected size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from trafficdp.errors import UsageError
from trafficdp.noise.block import (
    combination_absolute,
    combination_absolute_error,
    combination_half_width,
)
from trafficdp.noise.source import SimulatedNoise

RUNS = 30_000


def drawn(half_width, scale, seed=4):
    """Noise of RUNS blocks, shape (RUNS, d)."""
    d = len(half_width)
    noise = SimulatedNoise(seed).block(
        np.tile(half_width, RUNS), np.repeat(np.arange(RUNS), d), np.full(RUNS, scale)
    )
    return noise.reshape(RUNS, d)


CASES = [
    ([1, 1], [1.0, -0.4], 0.7),
    ([500, 20, 100], [0.2, 3.0, -0.5], 9.5),
    ([40] * 8, [1.0, -1.0] * 4, 30.0),
    ([40] * 5, [1.0, 0.1, 0.0, -0.1, 0.2], 30.0),
]


@pytest.mark.parametrize(("half_width", "weight", "scale"), CASES)
@pytest.mark.parametrize("error", [0.5, 0.05, 0.002])
def test_the_half_width_holds_as_often_as_it_says(half_width, weight, scale, error):
    found = drawn(np.array(half_width), scale) @ np.array(weight)
    spread = np.sqrt(np.sum((np.array(half_width) * weight) ** 2) / 3)
    half = combination_half_width(np.array([spread]), np.array([len(weight)]), scale, error)[0]
    missed = int((np.abs(found) > half).sum())
    assert stats.binom.sf(missed - 1, RUNS, error) > 1e-9
    if len(weight) == 8 and error == 0.05:
        # and six tenths of it would be caught
        missed = int((np.abs(found) > 0.6 * half).sum())
        assert stats.binom.sf(missed - 1, RUNS, error) < 1e-9


@pytest.mark.parametrize(("half_width", "weight", "scale"), CASES)
def test_the_expected_size_is_bounded_and_near(half_width, weight, scale):
    found = np.abs(drawn(np.array(half_width), scale) @ np.array(weight))
    parts = np.abs(np.array(half_width) * weight)
    spread = np.array([np.sqrt(np.sum(parts**2) / 3)])
    absolute = combination_absolute(spread, parts.max(keepdims=True))
    size = np.array([len(weight)])
    for limit in (np.inf, float(np.median(found)), 0.3 * found.mean()):
        cut = np.minimum(found, limit)
        bound = combination_absolute_error(absolute, size, scale, np.array([limit]))[0]
        slack = 6 * cut.std() / np.sqrt(RUNS)
        assert cut.mean() - slack <= bound
        if scale > 5:
            assert bound <= 1.35 * cut.mean() + slack


def test_one_noise_alone_has_half_its_largest_and_any_item_may_be_the_pivot():
    one = combination_absolute(np.array([3.0 / np.sqrt(3)]), np.array([3.0]))
    assert one[0] == pytest.approx(1.5, rel=1e-12)
    continuous = combination_absolute_error(one, np.array([4]), 2.0, np.array([np.inf]), lattice=0.0)
    # E|z| = a s (d + 1) / 2
    assert continuous[0] == pytest.approx(1.5 * 2.0 * 5, rel=1e-12)
    random = np.random.default_rng(1)
    for _ in range(20):
        parts = random.uniform(0.01, 1.0, 4)
        spread = np.full(4, np.sqrt(np.sum(parts**2) / 3))
        uniform = np.abs(random.uniform(-1, 1, (100_000, 4)) @ parts).mean()
        assert np.all(combination_absolute(spread, parts) >= uniform - 0.01)


def test_a_wrong_level_is_refused():
    for error in (0.0, 1.0, -0.1):
        with pytest.raises(UsageError, match="out of range"):
            combination_half_width(np.ones(1), np.ones(1, dtype=int), 3.0, error)
