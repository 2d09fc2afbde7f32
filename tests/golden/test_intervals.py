"""Golden vectors of interval half widths, and the lattice tail against its own sum."""

import math

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.tail import half_width

LEVELS = [0.5, 0.9, 0.95, 0.99, 0.999]


def tail(scale, j):
    """P(|Z| >= j), summed term by term."""
    q = math.exp(-1 / scale)
    terms = [q**i for i in range(int(800 * scale) + 10)]
    return 2 * math.fsum(terms[j:]) / (2 * math.fsum(terms) - 1) if j else 1.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scale", [0.05, 0.3, 0.7, 1.0, 2.5, 5.0, 17.3, 50.0])
def test_the_half_width_is_the_least_that_the_exact_tail_allows(scale, level):
    h = int(half_width(np.array([scale]), level)[0])
    assert tail(scale, h + 1) <= 1 - level
    assert h == 0 or tail(scale, h) > 1 - level


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "factor"), [(1.0, 1.46), (5.0, 1.10), (50.0, 1.01)])
def test_the_continuous_formula_would_miss_by_the_golden_factor(scale, factor):
    # the formula's error probability at whole half widths, against the lattice's
    worst = max(tail(scale, j) / math.exp(-j / scale) for j in range(1, int(5 * scale)))
    assert worst == pytest.approx(factor, abs=0.005)


def test_no_noise_has_no_width():
    assert half_width(np.array([0.0, 1.0, 0.0]), 0.95).tolist() == [0.0, 3.0, 0.0]


def test_wide_noise_has_nearly_the_continuous_width():
    scales = np.array([1e6, 2.0**40, 2.0**53])
    np.testing.assert_allclose(half_width(scales, 0.95), scales * math.log(20), rtol=1e-6)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_levels_outside_0_and_1_are_rejected(level):
    with pytest.raises(UsageError, match="level"):
        half_width(np.array([1.0]), level)
