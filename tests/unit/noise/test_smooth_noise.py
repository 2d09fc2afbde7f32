"""Student-t and Gaussian calibration against direct maximisation, and their draws."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from trafficdp.noise import smooth_gaussian, student_t
from trafficdp.noise.source import SecureNoise, SimulatedNoise


def direct_loss(degrees, alpha, beta):
    """Largest |log ratio| of the densities of t and of t shifted and stretched, on a fine grid."""
    z = np.concatenate([-np.logspace(6, -3, 4000), np.linspace(-60, 60, 24_001), np.logspace(-3, 6, 4000)])
    worst = 0.0
    for c in np.linspace(-beta, beta, 9):
        shift, width = alpha * min(1.0, math.exp(c)), math.exp(c)
        other = (z - shift) / width
        log = (degrees + 1) / 2 * (np.log1p(other**2 / degrees) - np.log1p(z**2 / degrees)) + c
        worst = max(worst, float(np.abs(log).max()))
    return worst


@pytest.mark.parametrize(
    ("degrees", "alpha", "beta"),
    [
        (3, 0.4, 0.1),
        (3, 0.72, 1 / 6),
        (3, 8.6515, 1.0),
        (3, 7.3, 1.0),
        (1, 0.5, 0.2),
        (5, 1.5, 0.05),
        (2.5, 3, 0.4),
    ],
)
def test_student_t_loss_equals_direct_maximisation(degrees, alpha, beta):
    found = student_t.largest_loss(degrees, np.array([alpha]), np.array([beta]))[0]
    direct = direct_loss(degrees, alpha, beta)
    assert direct <= found <= direct + 2e-4


def test_both_ends_must_be_tested():
    alpha, one = np.array([8.6515]), np.array([1.0])
    at_zero = student_t.largest_loss(3, alpha, np.array([0.0]))[0]
    assert at_zero == pytest.approx(6.585, abs=1e-3)
    # at c = beta alone it would pass for epsilon 6
    excess = math.exp(-2) * (1 + 8.6515**2 / 3) + 1
    larger = (excess + math.sqrt(excess**2 - 4 * math.exp(-2))) / 2
    assert 2 * math.log(larger) + 3 == pytest.approx(6.0, abs=1e-4)
    assert student_t.largest_loss(3, alpha, one)[0] > 6.5
    assert student_t.largest_alpha(3, one, np.array([6.0]))[0] < 7.4


def test_alpha_is_rounded_toward_more_noise_and_not_by_much():
    epsilon = np.array([1e-6, 1e-3, 0.1, 1.0, 7.0, 30.0])
    beta = epsilon / 6
    alpha = student_t.largest_alpha(3, beta, epsilon)
    assert np.all(student_t.largest_loss(3, alpha, beta) <= epsilon)
    assert np.all(student_t.largest_loss(3, alpha * (1 + 1e-9), beta) > epsilon * (1 - 1e-9))


def test_the_simple_sufficient_rule_is_never_better():
    epsilon = np.array([0.1, 0.5, 1.0, 2.0])
    simple = (epsilon - 3 * epsilon / 6) * 2 * math.sqrt(3) / 4
    assert np.all(simple < student_t.largest_alpha(3, epsilon / 6, epsilon))


def test_no_alpha_is_found_when_beta_takes_everything():
    assert student_t.largest_alpha(3, np.array([0.5]), np.array([1.0]))[0] == 0
    assert np.isinf(student_t.largest_alpha(3, np.array([0.0]), np.array([np.inf]))[0])


@pytest.mark.parametrize("source", [SimulatedNoise(3), SecureNoise()])
@pytest.mark.parametrize("degrees", [3, 5.5])
def test_student_t_draws_follow_their_law(source, degrees):
    drawn = student_t.draw(degrees, 50_000, source.uniform_below)
    assert stats.kstest(drawn, stats.t(degrees).cdf).pvalue > 1e-6
    # and the test sees 5 % of scale
    assert stats.kstest(drawn * 1.05, stats.t(degrees).cdf).pvalue < 1e-2


def test_gaussian_draws_follow_their_law():
    drawn = student_t.normals(50_000, SimulatedNoise(4).uniform_below)
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-6


@pytest.mark.parametrize("degrees", [2, 3, 4.5, 30])
def test_mean_absolute_is_the_integral(degrees):
    found, _ = integrate.quad(lambda z: 2 * z * stats.t(degrees).pdf(z), 0, np.inf)
    assert student_t.mean_absolute(degrees) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("shift", [-0.1, -0.01, 0.0, 0.01, 0.1])
def test_gaussian_profile_equals_the_integral(epsilon, shift):
    alpha = 0.6
    centre, width = alpha * min(1, math.exp(shift)), math.exp(shift)
    z = np.linspace(-40, 40, 400_001)
    excess = stats.norm.pdf(z) - math.exp(epsilon) * stats.norm.pdf(z, centre, width)
    direct = integrate.trapezoid(np.maximum(excess, 0), z)
    assert smooth_gaussian.privacy_profile(epsilon, alpha, shift) == pytest.approx(direct, abs=1e-7)


def test_gaussian_profile_grows_with_the_shift_and_its_worst_c_is_an_end():
    epsilon, delta = 1.0, 1e-6
    beta = smooth_gaussian.default_beta(epsilon, delta)
    alpha = smooth_gaussian.largest_alpha(epsilon, delta, beta)
    grid = np.linspace(-beta, beta, 2001)
    deltas = [smooth_gaussian.privacy_profile(epsilon, alpha, float(c)) for c in grid]
    assert max(deltas) <= delta
    assert max(deltas) == pytest.approx(deltas[0], rel=1e-12)
    alphas = np.linspace(0.05, 2, 50)
    profile = [smooth_gaussian.privacy_profile(epsilon, float(a), -beta) for a in alphas]
    assert np.all(np.diff(profile) >= 0)


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 40.0])
def test_gaussian_alpha_is_as_large_as_delta_allows(epsilon):
    delta = 1e-6
    beta = smooth_gaussian.default_beta(epsilon, delta)
    assert beta == pytest.approx(epsilon / (8 * math.log(2 / delta)), rel=1e-12)
    alpha = smooth_gaussian.largest_alpha(epsilon, delta, beta)
    assert smooth_gaussian.actual_delta(epsilon, alpha, beta) <= delta
    assert smooth_gaussian.actual_delta(epsilon, alpha * (1 + 1e-6), beta) > delta
