"""Sums of two marginals of block noise, against Laplace formulas, draws and the exact lattice law."""

from __future__ import annotations

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.block import _rounded, block_tail, pair_bounds, pair_half_width, pair_mean
from trafficdp.noise.tail import two_noises_half_width, two_noises_mean


@pytest.mark.parametrize("ratio", [0.3, 0.5652, 1.0, 2.5])
def test_blocks_of_one_are_laplace_noise(ratio):
    one, two = np.array([1.0]), np.array([ratio])
    exact = float(two_noises_mean(one, two)[0])
    assert exact <= pair_mean(1, ratio) <= exact * 1.003
    for level in (0.5, 0.9, 0.95, 0.9999):
        reach = float(two_noises_half_width(one, two, 1 - level)[0])
        assert reach <= pair_half_width(1, ratio, level) <= reach * 1.02


@pytest.mark.parametrize(("size", "ratio"), [(2, 0.6), (5, 1.0), (17, 0.7)])
def test_sums_are_as_large_and_reach_as_far_as_they_say(size, ratio):
    random, runs = np.random.default_rng(size), 400_000
    x, y = (random.gamma(size + 1, size=runs) * random.uniform(-1, 1, runs) for _ in range(2))
    total = np.abs(x + ratio * y)
    found = pair_mean(size, ratio)
    assert total.mean() * 0.99 <= found <= total.mean() * 1.01
    for level in (0.5, 0.95):
        inside = float((total <= pair_half_width(size, ratio, level)).mean())
        assert level - 0.004 <= inside <= level + 0.02


@pytest.mark.parametrize("ratio", [3.0, 40.0])
def test_either_of_two_blocks_may_be_the_first(ratio):
    assert pair_mean(3, ratio) == pytest.approx(ratio * pair_mean(3, 1 / ratio), rel=1 / 150)


def test_smaller_blocks_and_ratios_reach_less_far():
    for level in (0.5, 0.99):
        by_size = [pair_half_width(size, 0.7, level) for size in (1, 2, 6, 20)]
        by_ratio = [pair_half_width(4, ratio, level) for ratio in (0.4, 0.7, 1.0)]
        assert by_size == sorted(by_size)
        assert by_ratio == sorted(by_ratio)


def test_items_of_one_size_are_bounded_by_their_largest_ratio():
    size, first, second = np.array([3, 3, 1]), np.array([1.0, 2.0, 5.0]), np.array([0.5, 1.4, 5.0])
    mean, reach = pair_bounds(size, first, second, 0.9)
    assert reach.tolist() == [
        pair_half_width(3, 0.7, 0.9),
        2 * pair_half_width(3, 0.7, 0.9),
        5 * pair_half_width(1, 1.0, 0.9),
    ]
    assert mean[0] == pair_mean(3, 0.7)
    assert pair_bounds(size, first, second, None)[1].tolist() == [0, 0, 0]
    for wrong in (0.0, 1.0):
        with pytest.raises(UsageError):
            pair_half_width(3, 0.7, wrong)


@pytest.mark.parametrize("widths", [[1], [3], [1, 5], [2, 2, 7]])
@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_lattice_noise_is_at_most_the_shifted_continuous_noise_for_every_height(widths, scale):
    """P(z > x) <= P(Z + 2 a > x), by the exact law of the lattice."""
    d, k = len(widths), np.arange(400)
    law = np.exp(-k / scale) * np.prod([2.0 * a * k + 1 for a in widths], axis=0)
    law /= law.sum()
    for a in widths:
        x = np.arange(-60 * a, 60 * a + 1)
        # given k, z is uniform on -a k..a k
        above = np.clip(a * k[None, :] - x[:, None], 0, 2 * a * k[None, :] + 1) / (2 * a * k[None, :] + 1)
        discrete = above @ law
        y = (x - 2 * a) / (a * scale)
        tail = block_tail(np.full(x.shape, d), np.abs(y)) / 2
        continuous = np.where(y >= 0, tail, 1 - tail)
        assert np.all(discrete <= continuous + 1e-12)


@pytest.mark.parametrize("factor", [0.4, 1.0])
def test_what_is_rounded_to_multiples_is_a_symmetric_law(factor):
    law = _rounded(3, factor, 0.05, 60.0)
    assert np.array_equal(law, law[::-1])
    assert law.sum() == pytest.approx(1, abs=1e-9)
    # the multiple in the middle is 0
    tail = float(block_tail(np.array([3]), np.array([0.025 / factor]))[0])
    assert law[len(law) // 2] == pytest.approx(1 - tail, rel=1e-9)
