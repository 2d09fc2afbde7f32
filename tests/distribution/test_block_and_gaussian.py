"""Draws of the block and Gaussian samplers, for releases and for simulations, follow the stated laws."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from trafficdp.noise.source import SecureNoise, SimulatedNoise

SOURCES = {"secure": SecureNoise(), "simulated": SimulatedNoise(11)}


def block_law(widths, s, reach):
    """P(z) proportional to exp(-max ceil(|z|/a)/s), the points with |z_g| <= reach a_g."""
    points = list(product(*(range(-reach * a, reach * a + 1) for a in widths)))
    level = np.max([-(-np.abs(np.array(points)[:, g]) // a) for g, a in enumerate(widths)], axis=0)
    k = np.arange(4_000)
    normaliser = (np.prod([2.0 * a * k + 1 for a in widths], axis=0) * np.exp(-k / s)).sum() * (
        1 - np.exp(-1 / s)
    )
    return points, np.exp(-level / s) / normaliser


def p_value_of(draws, widths, s, reach=3, least=25):
    points, probability = block_law(widths, s, reach)
    place = {point: i for i, point in enumerate(points)}
    seen = np.zeros(len(points) + 1)
    for row in map(tuple, draws.tolist()):
        seen[place.get(row, len(points))] += 1
    expected = np.append(probability, 1 - probability.sum()) * len(draws)
    rare = expected < least
    observed, expected = (
        np.append(seen[~rare], seen[rare].sum()),
        np.append(expected[~rare], expected[rare].sum()),
    )
    if expected[-1] < least:
        observed[0], expected[0] = observed[0] + observed[-1], expected[0] + expected[-1]
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("widths", "s"), [((2,), 1.5), ((1, 2), 1.2), ((2, 1, 1), 1.0)])
@pytest.mark.parametrize("n", [7_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_blocks_follow_the_lattice_law_and_no_other(source, widths, s, n, reject):
    # by the noncentral chi-square law 7,000 draws make either wrong verdict rarer than 10^-9
    d = len(widths)
    z = (
        SOURCES[source]
        .block(np.tile(np.array(widths, dtype=np.int64), n), np.repeat(np.arange(n), d), np.full(n, s))
        .reshape(n, d)
    )
    assert p_value_of(z, widths, s) > reject
    assert p_value_of(z, widths, s * 0.85) < reject
    assert p_value_of(z, widths, s * 1.2) < reject
    if d > 1:
        assert p_value_of(z, widths[::-1], s) < reject


def gaussian_p_value(draws, sd):
    edges = np.unique(np.floor(sd * stats.norm.ppf(np.arange(1, 40) / 40)))
    # what is beyond 12 sd is rarer than 10^-30
    z = np.arange(-int(12 * sd + 40), int(12 * sd + 41))
    p = np.exp(-(z**2) / (2 * sd**2))
    p = np.bincount(np.searchsorted(edges, z), p / p.sum(), minlength=len(edges) + 1)
    seen = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    keep = p * len(draws) > 15
    expected = np.append(p[keep], p[~keep].sum()) * len(draws)
    seen = np.append(seen[keep], seen[~keep].sum())
    used = expected > 0
    assert not seen[~used].any()
    return stats.chi2.sf(((seen[used] - expected[used]) ** 2 / expected[used]).sum(), used.sum() - 1)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sd", [0.6, 3.0, 1e5])
@pytest.mark.parametrize("n", [20_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_gaussian_noise_follows_the_discrete_law_and_no_other(source, sd, n, reject):
    # by the noncentral chi-square law 16,000 draws make either wrong verdict rarer than 10^-9
    draws = SOURCES[source].discrete_gaussian(np.full(n, sd))
    assert gaussian_p_value(draws, sd) > reject
    assert gaussian_p_value(draws, sd * 0.9) < reject
    assert gaussian_p_value(draws, sd * 1.1) < reject
