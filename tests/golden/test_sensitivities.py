"""Golden vectors of the sensitivities of one bin, each obtained by two independent computations."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.bounding.sensitivity import joint_cost, mean_sensitivity, variance_sensitivity
from trafficdp.mechanisms.laplace.baseline import largest_sensitivity
from trafficdp.mechanisms.laplace.lattice import loss_per_user, to_lattice
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import CHARGE_STEP

VECTORS = [
    # U, m, N, mean, variance
    (65, 3, 10, Fraction(39, 2), Fraction(3549, 4)),
    (65, 6, 10, Fraction(39), Fraction(4225, 4)),
    (65, 6, 11, Fraction(390, 11), Fraction(126750, 121)),
    (65, 1, 1, Fraction(65), Fraction(0)),
    (1, 2, 4, Fraction(1, 2), Fraction(1, 4)),
    (65, 417, 17166, Fraction(9035, 5722), Fraction(3278756325, 32741284)),
]


@pytest.mark.parametrize(("upper", "m", "n", "mean", "variance"), VECTORS)
def test_sensitivities_are_the_golden_ones(upper, m, n, mean, variance, counts_of, bound_of):
    count, samples = np.array([m]), np.array([n])
    assert mean_sensitivity(count, samples, float(upper))[0] == pytest.approx(float(mean), rel=1e-15)
    assert variance_sensitivity(count, samples, float(upper))[0] == pytest.approx(float(variance), rel=1e-14)
    rest = [m] * ((n - m) // m) + [(n - m) % m]
    counts = counts_of([[m, *rest]])
    bound = bound_of(upper)
    for statistic, value in ((Statistic.MEAN, mean), (Statistic.VARIANCE, variance)):
        assert largest_sensitivity(statistic, counts, bound)[0] == pytest.approx(float(value), rel=1e-14)


def test_the_buses_of_the_paper_have_the_golden_decimals():
    count, samples = np.array([417]), np.array([17166])
    assert mean_sensitivity(count, samples, 65.0)[0] == pytest.approx(1.578994, abs=1e-6)
    assert variance_sensitivity(count, samples, 65.0)[0] == pytest.approx(100.141348, abs=1e-6)


def test_the_joint_loss_of_mean_and_variance_is_the_golden_one():
    linear, quadratic = 65 / 10 / 10, 65**2 / 100 / 500
    found = joint_cost(np.array([9]), np.array([10]), np.array([linear]), np.array([quadratic]))[0]
    assert found == pytest.approx(13221 / 2000, rel=1e-15)
    separately = 65 * 0.9 / 10 + float(variance_sensitivity(np.array([9]), np.array([10]), 65.0)[0]) / 500
    assert separately == pytest.approx(637 / 80, rel=1e-15)


def test_the_joint_loss_that_is_charged_is_the_golden_one(counts_of, bound_of):
    counts, bound = counts_of([[9, 1]]), bound_of(65)
    lattices = {
        Statistic.MEAN: to_lattice(Statistic.MEAN, counts, bound, np.array([10.0])),
        Statistic.VARIANCE: to_lattice(Statistic.VARIANCE, counts, bound, np.array([500.0])),
    }
    charged = int(loss_per_user(counts, bound, lattices)[0])
    assert 6_610_500_000_000 <= charged <= 6_610_500_000_000 + 2 * CHARGE_STEP
