"""Golden vectors of the sensitivities of one bin, each obtained by two independent computations."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.bounding.arrays import dropped_variance_bias
from trafficdp.bounding.worst_case import mean_sensitivity
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise, largest_sensitivity
from trafficdp.model import Statistic
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
    assert dropped_variance_bias(count, samples, float(upper))[0] == pytest.approx(float(variance), rel=1e-14)
    rest = [m] * ((n - m) // m) + [(n - m) % m]
    counts = counts_of([[m, *rest]])
    bound = bound_of(upper)
    for statistic, value in ((Statistic.MEAN, mean), (Statistic.VARIANCE, variance)):
        assert largest_sensitivity(statistic, counts, bound)[0] == pytest.approx(float(value), rel=1e-14)


def test_the_buses_of_the_paper_have_the_golden_decimals():
    count, samples = np.array([417]), np.array([17166])
    assert mean_sensitivity(count, samples, 65.0)[0] == pytest.approx(1.578994, abs=1e-6)
    assert dropped_variance_bias(count, samples, 65.0)[0] == pytest.approx(100.141348, abs=1e-6)


def test_the_joint_loss_that_is_charged_is_the_golden_one(counts_of, bound_of):
    # means with Laplace noise of scale 10, averages of x (65 - x) with scale 325: c = 1/2, cost 9/8
    counts, bound = counts_of([[9, 1]]), bound_of(65, "1/2")
    ten, half = np.full(1, 10.0), np.full(1, 0.5)
    noise = LaplaceNoise(counts, bound, (Statistic.MEAN, Statistic.VARIANCE), ten, half, ten)
    charged = int(CalibratedLaplace.of(noise).event().loss_per_user[0])
    # d is a whole number of steps: 97 or 98 of 130
    exact = Fraction(9 * 65, 10 * 10) * max(
        Fraction(d, 130) * (1 + 2 - Fraction(2 * d, 130)) for d in (97, 98)
    )
    assert exact * 10**12 <= charged <= exact * 10**12 + 2 * CHARGE_STEP
