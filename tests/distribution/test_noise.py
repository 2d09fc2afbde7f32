"""The sampler of releases draws the law that the accounting assumes; so does the one of simulations."""

import numpy as np
import pytest
from scipy import stats

from trafficdp.errors import UsageError
from trafficdp.noise import source
from trafficdp.noise.source import SecureNoise, SimulatedNoise

DRAWS = 20_000
"""By the noncentral chi-square law 5,000 make either wrong verdict on 0.7 and 1.3 times the scale rarer than
10^-9, and twice as many where two samples are compared."""
SCALES = [0.3, 1.0, 5.0, 50.0, 1e6]


@pytest.fixture(scope="module")
def secure_draws():
    return {scale: SecureNoise().discrete_laplace(np.full(DRAWS, scale)) for scale in SCALES}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("more", [1, pytest.param(10, marks=pytest.mark.prove)])
def test_release_noise_follows_the_stated_law_and_no_other(scale, more, p_value, reject):
    draws = SecureNoise().discrete_laplace(np.full(more * DRAWS, scale))
    assert p_value(draws, scale) > reject
    assert p_value(draws, scale * 0.7) < reject
    assert p_value(draws, scale * 1.3) < reject


def test_the_widest_noise_follows_its_law_too(p_value, reject):
    scale = 2.0**54
    draws = SecureNoise().discrete_laplace(np.full(5_000, scale))
    assert p_value(draws, scale) > reject
    assert p_value(draws, scale / 2) < reject
    assert p_value(draws, scale * 2) < reject
    # no lattice coarser than the integers: odd and even alike
    assert stats.binomtest(int((draws & 1).sum()), len(draws), 0.5).pvalue > reject


@pytest.mark.parametrize("scale", SCALES)
def test_simulated_noise_has_the_law_of_release_noise(scale, secure_draws, reject):
    simulated = SimulatedNoise(7).discrete_laplace(np.full(DRAWS, scale))
    edges = np.unique(np.quantile(simulated, np.linspace(0, 1, 40)[1:-1]).astype(np.int64))
    table = [
        np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
        for draws in (simulated, secure_draws[scale])
    ]
    used = np.array(table)[:, np.sum(table, axis=0) > 0]
    assert stats.chi2_contingency(used).pvalue > reject
    wrong = SimulatedNoise(8).discrete_laplace(np.full(DRAWS, scale * 1.3))
    table[0] = np.bincount(np.searchsorted(edges, wrong), minlength=len(edges) + 1)
    assert stats.chi2_contingency(np.array(table)[:, np.sum(table, axis=0) > 0]).pvalue < reject


def test_every_entry_gets_the_noise_of_its_own_scale(p_value, reject):
    scale = np.tile([50.0, 1.0, 0.0, 5.0], 5_000)
    draws = SecureNoise().discrete_laplace(scale)
    assert not draws[scale == 0].any()
    for each in (1.0, 5.0, 50.0):
        assert p_value(draws[scale == each], each) > reject
        assert p_value(draws[scale == each], each * 1.6) < reject


def test_draws_are_independent_of_each_other():
    draws = SecureNoise().discrete_laplace(np.full(50_000, 20.0)).astype(float)
    for lag in (1, 2, 7):
        assert stats.pearsonr(np.sign(draws[:-lag]), np.sign(draws[lag:])).pvalue > 1e-9
    assert not np.array_equal(draws, SecureNoise().discrete_laplace(np.full(50_000, 20.0)))


@pytest.mark.parametrize("draw", [SecureNoise().discrete_laplace, None])
def test_no_noise_where_the_scale_is_0(draw):
    draw = draw or (lambda scale: SimulatedNoise(0).discrete_laplace(scale))
    assert draw(np.zeros(5)).tolist() == [0] * 5
    assert draw(np.zeros(0)).tolist() == []
    assert draw(np.array([0.0, 1e9, 0.0]))[[0, 2]].tolist() == [0, 0]
    assert draw(np.ones(3)).dtype == np.int64


def test_tiny_scales_draw_nothing_but_zeros():
    assert not SecureNoise().discrete_laplace(np.array([5e-324, 1e-300, 1e-3])).any()


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, source.LARGEST_SCALE * 1.01])
def test_scales_that_cannot_be_drawn_are_refused(wrong):
    with pytest.raises(UsageError, match="noise scale is out of range"):
        SecureNoise().discrete_laplace(np.array([1.0, wrong]))


def test_the_largest_scale_can_be_drawn():
    draws = SecureNoise().discrete_laplace(np.full(2_000, source.LARGEST_SCALE))
    assert 0.8 < np.abs(draws / source.LARGEST_SCALE).mean() < 1.2


def test_grouping_never_rounds_a_scale_down():
    random = np.random.default_rng(0)
    scale = 10.0 ** random.uniform(-300, 16, 20_000)
    scale[:100] = 0
    grouped = source.group_scales(scale)
    assert np.all(grouped >= scale)
    assert np.all(grouped <= scale * 1.002)
    assert not grouped[:100].any()
    within = 10.0 ** random.uniform(0, 2, 20_000)
    assert len(np.unique(source.group_scales(within))) < source.MOST_DISTINCT_SCALES


def test_few_scales_are_left_alone():
    scale = np.random.default_rng(0).uniform(1, 2, source.MOST_DISTINCT_SCALES)
    assert source.group_scales(scale) is scale


def test_grouping_of_the_smallest_floats_never_rounds_down():
    scale = np.arange(1, 9_001) * 5e-324
    assert np.all(source.group_scales(scale) >= scale)
