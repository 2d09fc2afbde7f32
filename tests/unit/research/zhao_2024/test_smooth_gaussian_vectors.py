"""Noise of vectors for smooth sensitivities: calibration against direct maximisation, and draws."""

import math

import numpy as np
import pytest
from scipy import stats

from trafficdp.noise import smooth_gaussian, student_t
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.research.zhao_2024 import huber_vectors


def direct_loss(degrees, alpha, beta, dimensions):
    """Largest |log ratio| over points along and across the shift, all c of a grid."""
    along = np.concatenate([-np.logspace(4, -2, 150), np.linspace(-30, 30, 601), np.logspace(-2, 4, 150)])
    across = np.concatenate([[0.0], np.logspace(-2, 4, 60)])
    z, r = np.meshgrid(along, across)
    worst = 0.0
    for c in np.linspace(-beta, beta, 9):
        other = ((z - alpha * min(1.0, math.exp(c))) ** 2 + r**2) * math.exp(-2 * c)
        power = (degrees + dimensions) / 2
        log = power * (np.log1p(other / degrees) - np.log1p((z**2 + r**2) / degrees)) + dimensions * c
        worst = max(worst, float(np.abs(log).max()))
    return worst


CASES = [
    (4, 0.5634, 1 / 8, 2),
    (3, 0.4, 0.3, 2),
    (10, 0.3, 0.05, 8),
    (3, 0.7, 1 / 6, 8),
    (9, 6.0, 1.0, 4),
    (5, 2, 0, 3),
]


@pytest.mark.parametrize(("degrees", "alpha", "beta", "dimensions"), CASES)
def test_student_t_loss_of_vectors_equals_direct_maximisation(degrees, alpha, beta, dimensions):
    found = student_t.largest_loss(degrees, np.array([alpha]), np.array([beta]), dimensions)[0]
    direct = direct_loss(degrees, alpha, beta, dimensions)
    assert direct <= found <= direct * 1.002


@pytest.mark.parametrize(("degrees", "alpha", "beta", "dimensions"), CASES)
def test_between_its_ends_the_loss_is_no_larger(degrees, alpha, beta, dimensions):
    ends = student_t.largest_loss(degrees, np.array([alpha]), np.array([beta]), dimensions)[0]
    between = student_t.largest_loss(degrees, np.full(50, alpha), np.linspace(0, beta, 50), dimensions)
    assert between.max() <= ends


def test_the_scalar_alpha_loses_more_than_epsilon_in_several_dimensions():
    epsilon = beta = np.array([1.0])
    alpha = student_t.largest_alpha(3, beta / 6, epsilon)
    for dimensions, loss in ((2, 1.0), (4, 1.4), (8, 2.4)):
        assert student_t.largest_loss(3, alpha, beta / 6, dimensions)[0] > loss * epsilon[0]


@pytest.mark.parametrize("dimensions", [1, 2, 5, 8])
def test_alpha_of_vectors_is_rounded_toward_more_noise_and_not_by_much(dimensions):
    epsilon = np.array([1e-3, 0.1, 1.0, 7.0])
    degrees = dimensions + 2
    beta = epsilon / (2 * degrees)
    alpha = student_t.largest_alpha(degrees, beta, epsilon, dimensions)
    assert np.all(student_t.largest_loss(degrees, alpha, beta, dimensions) <= epsilon)
    assert np.all(
        student_t.largest_loss(degrees, alpha * (1 + 1e-9), beta, dimensions) > epsilon * (1 - 1e-9)
    )


def test_no_alpha_is_found_when_beta_takes_everything_in_d_dimensions():
    # max(d, nu) beta: 8/6 of epsilon, although 3/6 would do on the line
    assert student_t.largest_alpha(3, np.array([1 / 6]), np.array([1.0]), 8)[0] == 0
    assert student_t.largest_alpha(3, np.array([1 / 6]), np.array([1.0]), 1)[0] > 0.7


@pytest.mark.parametrize("source", [SimulatedNoise(3), SecureNoise()])
@pytest.mark.parametrize(("degrees", "dimensions"), [(4, 2), (10, 8), (3, 1)])
def test_vectors_follow_the_multivariate_law(source, degrees, dimensions):
    z = student_t.draw_vectors(degrees, 20_000, dimensions, source.uniform_below)
    assert z.shape == (20_000, dimensions)
    square = (z**2).sum(axis=1) / dimensions
    law = stats.f(dimensions, degrees)
    assert stats.kstest(square, law.cdf).pvalue > 1e-9
    assert stats.kstest(square * 1.1**2, law.cdf).pvalue < 1e-9  # a tenth of scale is seen
    for direction in (np.eye(dimensions)[-1], np.ones(dimensions) / math.sqrt(dimensions)):
        assert stats.kstest(z @ direction, stats.t(degrees).cdf).pvalue > 1e-9


@pytest.mark.parametrize(("degrees", "dimensions"), [(4, 2), (10, 8), (3, 1)])
def test_mean_length_is_that_of_the_law(degrees, dimensions):
    law = stats.f(dimensions, degrees)
    expected = math.sqrt(dimensions) * law.expect(np.sqrt)
    assert student_t.mean_absolute(degrees, dimensions) == pytest.approx(expected, rel=1e-6)


def by_noncentral_chi_square(epsilon, alpha, c, dimensions):
    """H_d without any quadrature: the best event is the inside or the outside of a ball."""
    shift, q = alpha * min(1.0, math.exp(c)), math.exp(-2 * c)
    centre = q * shift / (q - 1)
    square = (epsilon - dimensions * c - q * shift**2 / 2 + (q * shift) ** 2 / (2 * (q - 1))) * 2 / (q - 1)
    p = stats.ncx2(dimensions, centre**2)
    other = stats.ncx2(dimensions, (shift - centre) ** 2 * q)
    if q < 1:
        return p.cdf(square) - math.exp(epsilon) * other.cdf(square * q)
    return p.sf(square) - math.exp(epsilon) * other.sf(square * q)


@pytest.mark.parametrize("dimensions", [2, 3, 8])
@pytest.mark.parametrize("c", [-0.1, -0.02, 0.02, 0.1])
def test_gaussian_profile_of_vectors_equals_noncentral_chi_squares(dimensions, c):
    for epsilon in (0.5, 1.0, 2.0):
        expected = by_noncentral_chi_square(epsilon, 0.6, c, dimensions)
        found = huber_vectors.privacy_profile(np.array([epsilon]), 0.6, np.array([c]), dimensions)
        assert found[0] == pytest.approx(expected, rel=2e-6, abs=1e-13)


def test_gaussian_profile_of_one_dimension_is_the_scalar_one():
    for c in (-0.1, -0.01, 0.0, 0.01, 0.1):
        found = huber_vectors.privacy_profile(np.array([1.0]), 0.6, np.array([c]), 1)
        assert found[0] == pytest.approx(smooth_gaussian.privacy_profile(1.0, 0.6, c), rel=1e-9)


def test_without_stretching_dimensions_do_not_matter():
    profile = [huber_vectors.privacy_profile(np.ones(1), 0.6, np.zeros(1), d)[0] for d in (1, 2, 8)]
    assert profile == pytest.approx([profile[0]] * 3, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [1, 2, 8])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.5, 1e-5)])
def test_gaussian_alpha_of_vectors_is_safe_for_every_c_and_nearly_the_largest(epsilon, delta, dimensions):
    beta = smooth_gaussian.default_beta(epsilon, delta, dimensions)
    alpha = huber_vectors.largest_alpha(epsilon, delta, beta, dimensions)
    c = np.linspace(-beta, beta, 1001)

    def actual(alpha):
        profile = huber_vectors.privacy_profile(np.full(1001, epsilon), alpha, c, dimensions)
        return float(profile.max())

    assert 0 < actual(alpha) <= huber_vectors.delta_bound(epsilon, alpha, beta, dimensions) <= delta
    assert actual(alpha * 1.002) > delta


def test_the_scalar_gaussian_alpha_is_not_enough_for_vectors_at_the_same_beta():
    epsilon, delta = 1.0, 1e-6
    beta = 4 * smooth_gaussian.default_beta(epsilon, delta)
    alpha = smooth_gaussian.largest_alpha(epsilon, delta, beta)
    assert huber_vectors.delta_bound(epsilon, alpha, beta, 1) < 1.02 * delta
    assert huber_vectors.privacy_profile(np.ones(1), alpha, np.array([-beta]), 8)[0] > 1.5 * delta
