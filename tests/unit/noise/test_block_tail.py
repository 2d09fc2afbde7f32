import numpy as np
import pytest
from scipy import integrate, stats

from trafficdp.errors import UsageError
from trafficdp.noise.block import (
    block_absolute_error,
    block_half_width,
    block_quantile,
    block_tail,
)

GOLDEN = [(1, 2.9957), (2, 4.1130), (4, 6.2338)]


@pytest.mark.parametrize(("d", "h"), GOLDEN)
def test_the_95_percent_half_widths_are_the_golden_ones(d, h):
    assert float(block_quantile(np.array([d]), 0.95)[0]) == pytest.approx(h, abs=5e-5)
    assert float(block_tail(np.array(d), h)) == pytest.approx(0.05, abs=2e-6)


def test_a_block_of_one_is_laplace_noise():
    h = np.linspace(0, 20, 50)
    np.testing.assert_allclose(block_tail(np.ones(50), h), np.exp(-h), rtol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("h", [0.1, 1.0, 5.0, 30.0])
def test_the_tail_is_that_of_a_gamma_radius_times_a_uniform(d, h):
    inside, _ = integrate.quad(lambda r: stats.gamma.pdf(r, d + 1) * (1 - h / r), h, np.inf, epsabs=1e-13)
    assert float(block_tail(np.array(d), h)) == pytest.approx(inside, abs=1e-9)


def law(widths, s, last):
    """P(k) of the lattice radius, to ``last``."""
    k = np.arange(last, dtype=np.float64)
    weight = np.exp(-k / s) * np.prod([2 * a * k + 1 for a in widths], axis=0)
    return k, weight / weight.sum()


def absolute(a, k, probability, limit):
    """E min(|z|, limit) with z uniform on -ak..ak given k."""
    total = 0.0
    for radius, p in zip(k.astype(int), probability, strict=True):
        z = np.abs(np.arange(-a * radius, a * radius + 1))
        total += p * np.minimum(z, limit).mean()
    return total


@pytest.mark.parametrize("widths", [(1,), (3,), (1, 1), (2, 5), (1, 1, 1, 8)])
@pytest.mark.parametrize("s", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_the_lattice_interval_holds_its_level(widths, s, level):
    d, a = len(widths), widths[0]
    k, probability = law(widths, s, int(60 * (d + 1) * (s + 1)))
    j = int(block_half_width(np.array([a]), np.array([d]), np.array([s]), level)[0])
    missed = (probability * np.maximum(2 * (a * k - j), 0) / (2 * a * k + 1)).sum()
    assert missed <= 1 - level
    # at most about two steps of a too wide
    shorter = j - int(2.5 * a) - 1
    if shorter > 0:
        assert (probability * np.maximum(2 * (a * k - shorter), 0) / (2 * a * k + 1)).sum() > 1 - level


@pytest.mark.parametrize("widths", [(1,), (2, 5), (3, 1, 8)])
@pytest.mark.parametrize("limit", [2.0, 20.0, 1e9])
def test_the_absolute_error_is_bounded_within_a_step(widths, limit):
    d, a, s = len(widths), widths[0], 6.0
    k, probability = law(widths, s, 700)
    exact = absolute(a, k, probability, limit)
    bound = float(block_absolute_error(np.array([a]), np.array([d]), np.array([s]), np.array([limit]))[0])
    assert exact <= bound <= exact + 1.6 * a


def test_without_a_limit_the_error_is_half_a_widths_per_statistic():
    found = block_absolute_error(np.full(3, 1000), np.array([1, 2, 9]), np.full(3, 500.0), np.full(3, 1e300))
    np.testing.assert_allclose(found, 1000 + 500_000 * np.array([1, 1.5, 5]), rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, np.nan])
def test_levels_outside_0_and_1_are_rejected(level):
    with pytest.raises(UsageError, match="level"):
        block_quantile(np.array([1]), level)
