"""Huber of vectors: privacy on real pairs, an audit that a wrong alpha fails, the line as a special case."""

import math

import numpy as np
import pytest

from trafficdp.audit.lower_bound import lower_bound_from_draws
from trafficdp.bounding.huber import HuberParameters, huber_location, smooth_sensitivity
from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.huber import Huber
from trafficdp.noise import smooth_gaussian, student_t
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.research.zhao_2024 import huber_vectors
from trafficdp.research.zhao_2024.huber_vectors import (
    best_huber_shape,
    centre_and_sensitivity,
    gaussian_huber_vector_mean,
    huber_shape,
    huber_vector_mean,
    typical_vector_error,
)
from trafficdp.research.zhao_2024.vector_smooth_sensitivity import (
    VectorHuberParameters,
    minimiser,
    vector_smooth_sensitivity,
)

OUTLIERS = np.array([18, 19, 19.5, 20, 20, 20.5, 21, 21, 21.5, 22, 22.5, 23, 24, 17, 55, 60])


def equal(users, dimensions, threshold=4.0, radius=20.0):
    return VectorHuberParameters(np.full(users, 1 / users), np.full(users, threshold), dimensions, radius)


def alpha_of(degrees, beta, epsilon, dimensions):
    return float(student_t.largest_alpha(degrees, np.array([beta]), np.array([epsilon]), dimensions)[0])


def test_on_the_line_it_is_the_scalar_estimator():
    shape, where = equal(16, 1, threshold=10.0, radius=65.0), np.zeros(16, dtype=np.int64)
    centre, steep = centre_and_sensitivity(OUTLIERS[:, None], shape, 60.0)
    assert centre[0] == pytest.approx(huber_location(OUTLIERS, shape.weight, shape.threshold, where, 1)[0])
    clean = np.append(OUTLIERS[:-2], [20, 21])
    scalar = HuberParameters(shape.weight, shape.threshold, where, 1, 65.0)
    _, steep = centre_and_sensitivity(clean[:, None], shape, 60.0)
    assert steep == pytest.approx(smooth_sensitivity(clean, scalar, np.array([60.0]))[0], rel=1e-5)
    assert steep == pytest.approx(0.9083333, rel=1e-5)


def test_on_the_line_its_noise_is_the_scalar_noise():
    for epsilon in (0.5, 1.0, 2.0):
        alpha, beta, size = Huber().calibrated(np.array([epsilon]))
        # the defaults of d = 1
        assert beta[0] == epsilon / (2 * 3)
        assert alpha_of(3, float(beta[0]), epsilon, 1) == pytest.approx(float(alpha[0]), rel=1e-9)
        assert student_t.mean_absolute(3, 1) == pytest.approx(size)


@pytest.mark.parametrize(
    ("dimensions", "expected"), [(1, 0.724962), (2, 0.563393), (4, 0.417723), (8, 0.301585)]
)
def test_alphas_of_vectors_at_epsilon_1_are_golden(dimensions, expected):
    degrees = dimensions + 2
    assert expected <= alpha_of(degrees, 1 / (2 * degrees), 1.0, dimensions) < expected + 1e-6


@pytest.mark.slow
def test_no_pair_of_neighbours_loses_more_than_epsilon():
    """The exact largest log-ratio of the two released laws, by the pencil's eigenvalues."""
    random = np.random.default_rng(3)
    worst = 0.0
    for _ in range(40):
        users, epsilon = int(random.integers(8, 60)), float(random.choice([0.5, 2.0, 5.0]))
        shape = equal(users, 2)
        alpha, beta = alpha_of(4, epsilon / 8, epsilon, 2), epsilon / 8
        y = random.normal(0, 0.6, (users, 2))
        y[: random.integers(0, 5)] = random.normal(0, 12, 2)
        z = y.copy()
        z[random.integers(0, 4)] = random.normal(0, 12, 2)
        sides = [centre_and_sensitivity(one, shape, beta) for one in (y, z)]
        shift = np.linalg.norm(sides[0][0] - sides[1][0]) / (sides[0][1] / alpha)
        q = (sides[0][1] / sides[1][1]) ** 2
        pencil = np.array([[q, -q * shift / 2], [-q * shift / 2, 1 + q * shift**2 / 4]])  # nu = 4
        values = np.append(np.linalg.eigvalsh(pencil), q)
        loss = np.abs((4 + 2) / 2 * np.log(values) - math.log(q)).max()
        assert loss <= epsilon * (1 + 1e-9)
        worst = max(worst, loss / epsilon)
    assert worst > 0.5


def audited(dimensions, degrees, alpha, beta, draws):
    """What draws prove on a vehicle that jumps from one side to the other, by the likelihood ratio."""
    shape, noise = equal(300, dimensions), SimulatedNoise(1)
    y = np.zeros((2, 300, dimensions))
    y[:, 0, 0] = (-20, 20)
    sides = [centre_and_sensitivity(one, shape, beta) for one in y]
    drawn = [
        centre + smooth / alpha * student_t.draw_vectors(degrees, draws, dimensions, noise.uniform_below)
        for centre, smooth in sides
    ]

    def ratio(x):
        logs = [np.log(degrees + ((x - c) ** 2).sum(axis=1) / (s / alpha) ** 2) for c, s in sides]
        return logs[1] - logs[0]

    return lower_bound_from_draws(ratio(drawn[0]), ratio(drawn[1]), 1e-9)[0]


@pytest.mark.parametrize(("dimensions", "least"), [(2, 2.0), (4, 1.6)])
def test_draws_stay_below_the_claim_and_not_far(dimensions, least):
    degrees = dimensions + 2
    beta = 3 / (2 * degrees)
    found = audited(dimensions, degrees, alpha_of(degrees, beta, 3.0, dimensions), beta, 60_000)
    assert least < found <= 3


def test_draws_catch_the_scalar_alpha_used_in_eight_dimensions():
    assert audited(8, 3, alpha_of(3, 0.5, 3.0, 1), 0.5, 60_000) > 3.5


def test_a_few_outliers_do_not_move_it():
    random = np.random.default_rng(5)
    y = random.normal([3, -2], 0.5, (600, 2))
    shape, _ = best_huber_shape(np.full(600, 20), 2, 20.0, sigma=0.5 * math.sqrt(20), epsilon=1.0)
    y[:5] = [19, 0]
    released = np.array([huber_vector_mean(y, shape, 1.0, SimulatedNoise(seed)) for seed in range(9)])
    # five outliers pull by T/n each
    assert np.median(np.linalg.norm(released - [3, -2], axis=1)) < 0.15


def test_e15_the_centre_is_the_weighted_mean():
    y = np.array([[0.0, 0.0], [0.5, 0.0], [0.2, 0.1], [0.1, 0.3]])
    weight = np.array([0.4, 0.2, 0.2, 0.2])
    shape = VectorHuberParameters(weight, np.ones(4), 2, 5.0)
    np.testing.assert_allclose(minimiser(y, shape), weight @ y, atol=1e-7)


def test_weights_and_thresholds_come_from_counts():
    count = np.array([100, 10, 10, 10, 10, 4])
    shape = huber_shape(count, 2, 20.0, 1.0, cap_ratio=2.0)
    assert shape.weight.sum() == pytest.approx(1)
    assert shape.weight[0] == pytest.approx(shape.weight[1] * 4.8)  # 48 = 2 N/n
    np.testing.assert_allclose(shape.threshold[1] / shape.threshold[0], math.sqrt(4.8))


@pytest.mark.parametrize("dimensions", [2, 4])
def test_the_public_error_is_about_that_of_normal_vectors(dimensions):
    users, degrees = 600, dimensions + 2
    shape, expected = best_huber_shape(np.full(users, 9), dimensions, 30.0, 3.0, 1.0)
    y = np.random.default_rng(1).normal(0, 1, (users, dimensions))
    _, smooth = centre_and_sensitivity(y, shape, 1 / (2 * degrees))
    alpha = alpha_of(degrees, 1 / (2 * degrees), 1.0, dimensions)
    assert expected / 2 < smooth / alpha * student_t.mean_absolute(degrees, dimensions) < expected * 1.05


def test_student_t_noise_has_the_calibrated_size():
    y, shape = np.zeros((300, 2)), equal(300, 2)
    noise = SimulatedNoise(3)
    drawn = np.array([huber_vector_mean(y, shape, 1.0, noise) for _ in range(100)])
    smooth = vector_smooth_sensitivity(y, shape, np.zeros(2), 1 / 8)
    expected = smooth * student_t.mean_absolute(4, 2) / alpha_of(4, 1 / 8, 1.0, 2)
    assert np.linalg.norm(drawn, axis=1).mean() == pytest.approx(expected, rel=0.3)


def test_narrow_vehicles_beat_noise_for_the_whole_range():
    _, error = best_huber_shape(np.full(1000, 25), 4, 30.0, 5.0, 1.0)
    # l2 noise of the mean of vectors up to 30 long: d 2R/(n epsilon)
    assert error < 4 * 60 / 1000 / 1.5
    few = huber_shape(np.full(20, 25), 4, 30.0, 5.0)
    assert typical_vector_error(few, 1.0) > 4 * 60 / 20


@pytest.mark.slow
def test_gaussian_noise_has_the_calibrated_size():
    users, epsilon, delta = 3000, 1.0, 1e-6
    shape = equal(users, 2)
    y = np.zeros((users, 2))
    noise = SimulatedNoise(3)
    drawn = np.array([gaussian_huber_vector_mean(y, shape, epsilon, delta, noise) for _ in range(30)])
    beta = smooth_gaussian.default_beta(epsilon, delta, 2)
    alpha = huber_vectors.largest_alpha(epsilon, delta, beta, 2)
    smooth = vector_smooth_sensitivity(y, shape, np.zeros(2), beta)
    assert smooth < 0.01
    assert np.sqrt((drawn**2).mean()) == pytest.approx(smooth / alpha, rel=0.4)


def test_a_release_is_never_longer_than_the_range_and_long_vectors_are_clipped():
    shape = equal(6, 3)
    y = np.random.default_rng(1).normal(0, 300, (6, 3))
    for noise in (SecureNoise(), SimulatedNoise(1)):
        for _ in range(20):
            released = huber_vector_mean(y, shape, 0.5, noise)
            assert released.shape == (3,)
            assert np.linalg.norm(released) <= 20 * (1 + 1e-9)


def test_wrong_calls_are_refused_on_public_grounds():
    noise, y = SimulatedNoise(1), np.zeros((8, 2))
    with pytest.raises(UsageError, match="vectors do not fit"):
        huber_vector_mean(y[:5], equal(8, 2), 1.0, noise)
    with pytest.raises(UsageError, match="epsilon is not positive"):
        huber_vector_mean(y, equal(8, 2), 0.0, noise)
    with pytest.raises(UsageError, match="delta is out of range"):
        gaussian_huber_vector_mean(y, equal(8, 2), 1.0, 1.0, noise)
    with pytest.raises(UsageError, match="noise without a mean"):
        huber_vector_mean(y, equal(8, 2), 1.0, noise, degrees=1.0)
    for few in (1, 2):
        with pytest.raises(UsageError, match="no smooth sensitivity"):
            huber_vector_mean(y[:few], equal(few, 2), 1.0, noise)
    with pytest.raises(UsageError, match="sigma is not positive"):
        huber_shape(np.full(8, 3), 2, 20.0, 0.0)
