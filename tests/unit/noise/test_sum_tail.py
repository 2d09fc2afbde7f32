"""Half widths of differences and averages, against exact convolutions of discrete noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.noise.source import SimulatedNoise
from trafficdp.noise.tail import (
    block_sum_half_width,
    lattice_shift,
    one_sided_sum_half_width,
    sum_half_width,
    two_noises_error,
    two_noises_half_width,
    two_noises_mean,
    two_noises_tail,
)

SCALES = st.floats(0.05, 12)
ERRORS = st.sampled_from([0.2, 0.05, 1e-3, 1e-6])


def law(scale, reach):
    """Probabilities of discrete Laplace on -reach..reach."""
    q = np.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1))


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(SCALES, SCALES, st.integers(1, 3), st.integers(1, 3), ERRORS)
def test_a_difference_of_two_lattices_leaves_the_half_width_as_rarely_as_it_says(b, c, s, t, error):
    h = two_noises_half_width(np.array([b * s]), np.array([c * t]), error)[0]
    h += float(lattice_shift(np.array([b]))[0]) * s + float(lattice_shift(np.array([c]))[0]) * t
    reach = int(60 * max(b, c)) + 5
    z = np.arange(-reach, reach + 1)
    apart = np.abs(s * z[:, None] - t * z[None, :]) > h
    assert (law(b, reach)[:, None] * law(c, reach)[None, :])[apart].sum() <= error * (1 + 1e-9)


@settings(max_examples=examples(100))
@given(st.floats(0.01, 200))
def test_discrete_noise_is_at_most_the_shifted_continuous_noise(scale):
    shift = float(lattice_shift(np.array([scale]))[0])
    q = np.exp(-1 / scale)
    j = np.arange(-50, 51)
    discrete = np.where(j >= 1, q ** np.maximum(j, 1), 1 + q - q ** (1 - np.minimum(j, 0))) / (1 + q)
    x = j - shift
    continuous = np.where(x >= 0, np.exp(-np.abs(x) / scale) / 2, 1 - np.exp(-np.abs(x) / scale) / 2)
    assert 0.5 <= shift <= 1
    assert np.all(discrete <= continuous + 1e-12)


def test_a_smaller_shift_would_not_do():
    scale, less = 2.0, float(lattice_shift(np.array([2.0]))[0]) - 1e-3
    q = np.exp(-1 / scale)
    assert 1 - q / (1 + q) > 1 - np.exp(-less / scale) / 2


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, 0.9995), (3.0, 1.0), (1.0, 0.0), (5.0, 4.0)])
def test_the_tail_of_two_noises_is_the_integral_of_their_density(a, b):
    for h in (0.5, 2.0, 8.0):
        x = np.linspace(-60 * a, 60 * a, 600_001)
        inner = np.where(np.abs(h - x) >= 0, 0.5 * np.exp(-np.maximum(h - x, 0) / b), 0) if b else x > h
        upper = np.where(h - x >= 0, inner, 1 - 0.5 * np.exp(np.minimum(h - x, 0) / b)) if b else x > h
        density = np.exp(-np.abs(x) / a) / (2 * a)
        expected = 2 * float(np.trapezoid(density * upper, x))
        got = float(two_noises_tail(np.array([a]), np.array([b]), np.array([h]))[0])
        assert got == pytest.approx(expected, rel=2e-3)
        assert got >= expected * (1 - 1e-4)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, 0.9995), (3.0, 1.0), (1.0, 0.0), (0.0, 5.0)])
@pytest.mark.parametrize("limit", [0.3, 2.0, 200.0])
def test_the_error_of_two_noises_is_the_integral_of_their_tail(a, b, limit):
    one, two = np.array([a]), np.array([b])
    h = np.linspace(0, limit, 40_001)
    tail = two_noises_tail(np.full(h.shape, a), np.full(h.shape, b), h)
    found = two_noises_error(one, two, limit)[0]
    assert found == pytest.approx(float(np.trapezoid(tail, h)), rel=2e-3)
    assert found <= min(limit, two_noises_mean(one, two)[0] * (1 + 2e-3))
    if limit > 100:
        assert found == pytest.approx(two_noises_mean(one, two)[0], rel=2e-3)


@settings(max_examples=examples(40))
@given(SCALES, SCALES, st.floats(0.2, 3))
def test_lattices_have_no_larger_expected_sum_than_continuous_noise(b, c, step):
    reach = int(40 * max(b, c)) + 5
    z = np.arange(-reach, reach + 1)
    chance = law(b, reach)[:, None] * law(c, reach)[None, :]
    found = float((chance * np.abs(z[:, None] + step * z[None, :])).sum())
    assert found <= two_noises_mean(np.array([b]), np.array([step * c]))[0] * (1 + 1e-9)


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(SCALES, SCALES), min_size=1, max_size=3), ERRORS)
def test_sizes_of_noises_leave_the_one_sided_half_width_as_rarely_as_they_say(scales, error):
    first, second = (np.array(each) for each in zip(*scales, strict=True))
    h = one_sided_sum_half_width(first, lattice_shift(first), second, error)
    reach = int(40 * max(first.max(), second.max())) + 5
    total = np.ones(1)
    for b, c in scales:
        folded = law(b, reach)[reach:] * np.where(np.arange(reach + 1) > 0, 2, 1)
        total = np.convolve(np.convolve(total, np.concatenate([np.zeros(reach), folded])), law(c, reach))
    far = np.arange(len(total)) - len(total) // 2 > h
    # both signs
    assert 2 * total[far].sum() <= error * (1 + 1e-9)
    assert one_sided_sum_half_width(np.zeros(2), np.zeros(2), np.zeros(2), error) == 0


def test_the_difference_is_narrower_than_two_intervals_side_by_side():
    one = two_noises_half_width(np.array([1.0]), np.array([0.0]), 0.05 / 2)[0]
    both = two_noises_half_width(np.array([1.0]), np.array([1.0]), 0.05)[0]
    assert both < 0.75 * 2 * one


@settings(max_examples=examples(30))
@given(st.lists(SCALES, min_size=1, max_size=6), ERRORS)
def test_a_sum_leaves_the_half_width_as_rarely_as_it_says(scales, error):
    h = sum_half_width(np.array(scales), error)
    reach = int(40 * max(scales)) + 5
    total = np.ones(1)
    for scale in scales:
        total = np.convolve(total, law(scale, reach))
    far = np.abs(np.arange(len(total)) - len(total) // 2) > h
    assert total[far].sum() <= error * (1 + 1e-9)


def test_an_average_of_many_is_far_narrower_than_one():
    one, many = sum_half_width(np.ones(1), 0.05), sum_half_width(np.full(100, 1 / 100), 0.05)
    assert many < one / 8
    assert many > 2 * np.sqrt(2 / 100)


@pytest.mark.parametrize(
    ("blocks", "each", "scale"), [(1, 1, 30.0), (1, 20, 400.0), (5, 4, 60.0), (30, 1, 30.0)]
)
def test_a_sum_of_block_noise_leaves_the_half_width_as_rarely_as_it_says(blocks, each, scale):
    random = np.random.default_rng(blocks * 100 + each)
    items, runs, error = blocks * each, 2000, 0.1
    width, weight = random.integers(1, 9, items), random.uniform(0.1, 1, items)
    block = np.repeat(np.arange(blocks), each)
    size, scales = np.full(items, each), np.full(items, scale)
    h = block_sum_half_width(weight, width, block, size, scales, error)
    noise = SimulatedNoise(5)
    many = np.concatenate([block + run * blocks for run in range(runs)])
    drawn = noise.block(np.tile(width, runs), many, np.full(runs * blocks, scale))
    sums = (drawn.reshape(runs, items) * weight).sum(axis=1)
    assert (np.abs(sums) > h).mean() <= error
    # not far wider than needed, least of all in large blocks
    assert np.quantile(np.abs(sums), 1 - error) > h / {1: 2.5, 4: 4, 20: 3.2}[each]


def test_no_noise_needs_no_width():
    assert sum_half_width(np.zeros(3), 0.05) == 0
    assert two_noises_half_width(np.zeros(2), np.zeros(2), 0.05).tolist() == [0, 0]
    assert lattice_shift(np.zeros(2)).tolist() == [0, 0]


@pytest.mark.parametrize("error", [0.0, 1.0, -0.1])
def test_an_error_that_is_no_probability_is_refused(error):
    with pytest.raises(UsageError):
        two_noises_half_width(np.ones(1), np.ones(1), error)
    with pytest.raises(UsageError):
        sum_half_width(np.ones(1), error)


@pytest.mark.parametrize("error", [0.2, 1e-3])
def test_the_one_sided_half_width_is_the_least_of_its_bounds(error):
    first, second = np.array([2.0, 5.0]), np.array([3.0, 1.0])

    def bound(share):
        exponent = -np.log1p(-share * first / 5).sum() - np.log1p(-((share * second / 5) ** 2)).sum()
        return 5 * (np.log(2 / error) + exponent) / share

    least = minimize_scalar(bound, bounds=(1e-3, 1 - 1e-6), method="bounded").fun
    h = one_sided_sum_half_width(first, np.zeros(2), second, error)
    assert least * (1 - 1e-6) <= h <= least * (1 + 1e-3)
