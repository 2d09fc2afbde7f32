"""Golden vectors of the conversions from zCDP, and the same numbers by independent computations."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from trafficdp.privacy.conversion import gaussian_to_approx, zcdp_to_approx, zcdp_to_approx_simple
from trafficdp.privacy.loss import ZCDP

GOLDEN = [
    (0.5, 1e-6, 5.756522, 5.221534, 4.886554),
    (0.0625, 1e-5, 1.759035, 1.478116, 1.356467),
    (1, 1e-6, 8.433844, 7.766217, 7.286081),
]


@pytest.mark.parametrize(("rho", "delta", "simple", "tight", "gaussian"), GOLDEN)
def test_the_conversions_are_the_golden_ones(rho, delta, simple, tight, gaussian):
    loss = ZCDP.of(rho)
    for convert, expected in (
        (zcdp_to_approx_simple, simple),
        (zcdp_to_approx, tight),
        (gaussian_to_approx, gaussian),
    ):
        found = convert(loss, delta)
        assert float(found.epsilon) == pytest.approx(expected, abs=5.1e-7)
        assert found.delta == Fraction(str(delta))


@pytest.mark.parametrize(("rho", "delta"), [(row[0], row[1]) for row in GOLDEN] + [(1e-4, 1e-9), (40, 0.01)])
def test_no_renyi_order_promises_less_than_the_tight_conversion(rho, delta):
    excess = np.exp(np.linspace(-12, 12, 200_001))
    a = 1 + excess
    epsilon = a * rho + (np.log(1 / delta) - np.log(a)) / excess + np.log1p(-1 / a)
    found = float(zcdp_to_approx(ZCDP.of(rho), delta).epsilon)
    assert found <= epsilon.min() + 1e-9
    assert found == pytest.approx(epsilon.min(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "delta"), [(0.5, 1e-6), (0.0625, 1e-5), (1, 1e-6), (0.01, 1e-3), (8, 0.1)])
def test_one_gaussian_has_exactly_the_delta_of_its_hockey_stick(rho, delta):
    mu = np.sqrt(2 * rho * (1 + 1e-9))  # which makes room for noise in whole numbers
    epsilon = float(gaussian_to_approx(ZCDP.of(rho), delta).epsilon)
    cut = epsilon / mu + mu / 2  # where the densities of N(mu, 1) and e^eps N(0, 1) cross
    x = np.linspace(cut, cut + 40, 400_001)
    excess = stats.norm.pdf(x, mu) - np.exp(epsilon) * stats.norm.pdf(x)
    assert np.trapezoid(excess, x) == pytest.approx(delta, rel=1e-6)
    outside = optimize.brentq(lambda e: _delta(mu, e) - delta, 0, 100, xtol=1e-12)
    assert epsilon == pytest.approx(outside, abs=1e-8)


def _delta(mu, epsilon):
    return stats.norm.sf(epsilon / mu - mu / 2) - np.exp(epsilon + stats.norm.logsf(epsilon / mu + mu / 2))
