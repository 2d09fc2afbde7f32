"""A test of draws against the law of discrete Laplace noise, itself tested in test_helper.py."""

import numpy as np
import pytest
from scipy import stats

REJECT = 1e-9
"""Significance at which a law is rejected: a sound sampler fails once in 10^9 runs."""


def cumulative(scale, z):
    """P(Z <= z) for P(z) proportional to exp(-|z| / scale), for whole z."""
    z = np.asarray(z, dtype=np.float64)
    q = np.exp(-1 / scale)
    below = np.exp(-np.maximum(-z, 0) / scale) / (1 + q)
    above = np.exp(-(np.maximum(z, 0) + 1) / scale) / (1 + q)
    return np.where(z < 0, below, 1 - above)


def merged(expected, least):
    """The number of a group for every cell: neighbours gather until ``least`` draws are expected."""
    group, number, gathered = [], 0, 0.0
    for each in expected:
        group.append(number)
        gathered += each
        if gathered >= least:
            number, gathered = number + 1, 0.0
    return np.minimum(group, max(number - 1, 0))


def _p_value(draws, scale, cells=60, least=15):
    """Chi-square p-value of integer draws against discrete Laplace of ``scale``, in quantile cells."""
    share = np.arange(1, cells) / cells
    quantile = np.where(share < 0.5, scale * np.log(2 * share), -scale * np.log(2 * (1 - share)))
    edges = np.unique(np.concatenate([np.floor(quantile), [-2.0, -1.0, 0.0, 1.0]]))
    expected = np.diff(np.concatenate([[0.0], cumulative(scale, edges), [1.0]])) * len(draws)
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(edges) + 1)
    group = merged(expected, least)
    expected, observed = np.bincount(group, expected), np.bincount(group, observed)
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, len(expected) - 1))


@pytest.fixture(scope="session")
def p_value():
    """``p_value(draws, scale)``: how likely draws this far off are under discrete Laplace of ``scale``."""
    return lambda draws, scale: _p_value(np.asarray(draws), scale)


@pytest.fixture(scope="session")
def reject():
    return REJECT


@pytest.fixture(scope="session")
def distribution():
    """``distribution(scale, z)``: P(Z <= z)."""
    return cumulative
