"""The test of the law has power on both sides, and passes the law itself: the tester tested."""

import numpy as np
import pytest

from trafficdp.noise.source import SimulatedNoise, generator

DRAWS = 100_000
SCALES = [0.3, 1.0, 5.0, 50.0, 1e6, 2.0**54]


def drawn(scale, seed=0):
    return SimulatedNoise(seed).discrete_laplace(np.full(DRAWS, scale))


@pytest.mark.parametrize("scale", SCALES)
def test_the_stated_scale_passes(scale, p_value):
    values = [p_value(drawn(scale, seed), scale) for seed in range(5)]
    assert min(values) > 1e-4


@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_30_percent_off_is_rejected_on_either_side(scale, factor, p_value, reject):
    assert p_value(drawn(scale * factor), scale) < reject
    assert p_value(drawn(scale), scale * factor) < reject


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_other_faults_are_rejected(scale, p_value, reject):
    sound = drawn(scale)
    assert p_value(sound + 1, scale) < reject
    assert p_value(np.abs(sound), scale) < reject
    one_sided_zero = np.where(sound == 0, 1, sound)
    assert p_value(one_sided_zero, scale) < reject
    assert p_value(np.clip(sound, -int(3 * scale), int(3 * scale)), scale) < reject


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_rounded_continuous_noise_is_not_the_discrete_law(scale, p_value, reject):
    rounded = np.rint(generator(1).laplace(0, scale, DRAWS))
    assert p_value(rounded, scale) < reject


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_the_cumulative_law_is_the_sum_of_its_terms(scale, distribution):
    z = np.arange(-400, 401)
    mass = np.exp(-np.abs(z) / scale)
    mass /= mass.sum()
    np.testing.assert_allclose(distribution(scale, z), np.cumsum(mass), atol=1e-12)
