"""The tail of a sum of Laplace draws: against convolution, and safe on the integers."""

import math

import numpy as np
import pytest
from scipy.signal import fftconvolve

from trafficdp.errors import UsageError
from trafficdp.noise.tail import clamped_sum_error, half_width, half_width_of_sum, stages, tail_of_sum


def lattice_law(scale, terms, reach):
    """The exact law of the sum of ``terms`` discrete Laplace draws on -reach..reach, by convolution."""
    z = np.arange(-reach, reach + 1)
    one = np.exp(-np.abs(z) / scale)
    one /= one.sum()
    law = one
    for _ in range(terms - 1):
        law = np.maximum(fftconvolve(law, one), 0)
        middle = len(law) // 2
        law = law[middle - reach : middle + reach + 1]
    return z, law


@pytest.mark.parametrize("terms", [1, 2, 3, 7, 20])
def test_the_stages_are_a_law(terms):
    assert stages(terms).sum() == pytest.approx(1, abs=1e-12)
    assert stages(terms).min() > 0


def test_one_and_two_terms_have_the_known_tails():
    for h in (0.0, 0.5, 2.0, 9.0):
        assert tail_of_sum(h, 1) == pytest.approx(math.exp(-h), rel=1e-12)
        assert tail_of_sum(h, 2) == pytest.approx((1 + h / 2) * math.exp(-h), rel=1e-12)


def test_the_variance_by_stages_is_two_a_term():
    for terms in (1, 4, 12):
        j = np.arange(1, terms + 1)
        assert (stages(terms) * j * (j + 1)).sum() == pytest.approx(2 * terms, rel=1e-12)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("terms", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_on_the_integers_the_half_width_is_never_too_short(scale, terms, level):
    z, law = lattice_law(scale, terms, 6000)
    (half,) = half_width_of_sum(np.array([scale]), np.array([terms]), level)
    assert law[np.abs(z) > half].sum() <= 1 - level + 1e-12
    if scale >= 5:
        # and hardly longer than need be
        shorter = half - 2 * terms - 0.05 * half
        assert law[np.abs(z) > shorter].sum() > 1 - level


def test_one_term_is_the_exact_lattice_width_and_none_is_nothing():
    scale, terms = np.array([7.0, 7.0]), np.array([1, 0])
    assert half_width_of_sum(scale, terms, 0.95).tolist() == [half_width(scale, 0.95)[0], 0.0]


def test_a_level_outside_0_to_1_is_refused():
    with pytest.raises(UsageError):
        half_width_of_sum(np.ones(1), np.ones(1, dtype=np.int64), 1.0)


@pytest.mark.parametrize("terms", [1, 2, 5])
@pytest.mark.parametrize("scale", [1.0, 4.0, 30.0])
def test_the_clamped_error_is_that_of_the_worst_truth(terms, scale):
    reach = 20.0
    z, law = lattice_law(scale * 50, terms, 60_000)
    errors = [
        (law * np.abs(np.clip(truth + z / 50, 0, reach) - truth)).sum() for truth in np.linspace(0, reach, 9)
    ]
    (worst,) = clamped_sum_error(np.array([scale]), np.array([terms]), reach)
    assert worst == pytest.approx(max(errors), abs=2e-3 * reach)
    assert np.argmax(errors) == 4
    assert worst <= reach / 2


def test_no_noise_is_no_error():
    assert clamped_sum_error(np.array([0.0, 1.0]), np.array([3, 0]), 5.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("terms", [2, 3, 9, 60])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999999])
def test_the_half_width_is_that_of_its_level_to_a_millionth(terms, level):
    scale = 1e12
    (half,) = half_width_of_sum(np.array([scale]), np.array([terms]), level)
    assert 1 - 1e-6 <= tail_of_sum((half - terms) / scale, terms) / (1 - level) <= 1
