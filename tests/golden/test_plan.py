"""Golden vectors of PLAN: noise allocation and the masked vectors of all bins."""

import numpy as np
import pytest

from trafficdp.mechanisms.plan.plan import (
    largest_lengths,
    masked_vectors,
    noise_per_bin,
    vector_lengths,
)
from trafficdp.mechanisms.plan.plan_vectors import scaling

SENSITIVITIES = np.array([4.0, 1.0, 0.5, 2.0])
COUNTS = [[3, 1, 0, 2], [1, 1, 1, 1], [0, 2, 2, 0]]  # bins x vehicles
TOTALS = [[30, 20, 0, 60], [10, 25, 30, 25], [0, 50, 70, 0]]
CENTRE, SPREAD = np.array([18.0, 22.0, 30.0]), np.array([4.0, 1.0, 9.0])


def moment(v, p):
    """(sum D^2/v^2)^(p/2) sum v^p: the p-th moment of noise v at a fixed loss, up to a constant."""
    return (SENSITIVITIES**2 / v**2).sum() ** (p / 2) * (v**p).sum()


@pytest.mark.parametrize(("p", "golden"), [(1, 13.742015), (2, 56.25), (3, 243.723140)])
def test_noise_is_allocated_optimally_for_every_norm(p, golden):
    # noise of coordinate j is proportional to 1/s_j
    best = 1 / scaling(SENSITIVITIES, p)
    assert moment(best, p) == pytest.approx(golden, abs=1e-6)
    q = 2 * p / (p + 2)
    assert moment(best, p) == pytest.approx((SENSITIVITIES**q).sum() ** (p / q))
    random = np.random.default_rng(0)
    for _ in range(500):
        assert moment(best * np.exp(random.normal(0, 0.3, 4)), p) >= moment(best, p)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_exponent_of_standard_deviations_is_two_and_not_one(p):
    # E19: Sigma^(-1/(p+2)) is a power of variances
    literal = moment(SENSITIVITIES ** (1 / (p + 2)), p) / moment(1 / scaling(SENSITIVITIES, p), p)
    assert 1.07 < literal < 1.13


@pytest.fixture
def city(counts_of):
    counts = counts_of(COUNTS)
    totals = np.array(TOTALS, dtype=float)[counts.bin_index, counts.user_index]
    return counts, totals


def test_masked_vectors_are_the_golden_ones_and_average_to_the_means(city):
    counts, totals = city
    z = np.zeros((4, 3))
    z[counts.user_index, counts.bin_index] = masked_vectors(counts, totals, CENTRE)
    golden = [[-16, -12, 0], [4 / 3, 3, -10], [0, 8, 10], [16, 3, 0]]
    np.testing.assert_allclose(z, golden, atol=1e-12)
    np.testing.assert_allclose(z.mean(axis=0) + CENTRE, [18 + 1 / 3, 22.5, 30])


def test_lengths_and_noise_are_the_golden_ones(city):
    counts, totals = city
    weight = scaling(SPREAD, 2)
    y = weight[counts.bin_index] * masked_vectors(counts, totals, CENTRE)
    np.testing.assert_allclose(
        vector_lengths(counts, y), [14.422205, 4.533824, 8.666667, 8.544004], atol=5e-7
    )
    np.testing.assert_allclose(noise_per_bin(20.0, 0.5, 4, weight), [20, 10, 30])


def test_no_two_vectors_of_a_vehicle_are_further_apart_than_stated(city):
    counts, _ = city
    weight, upper = scaling(SPREAD, 2), 70.0
    top = counts.count * upper
    y = [weight[counts.bin_index] * masked_vectors(counts, t, CENTRE) for t in (top, 0 * top)]
    np.testing.assert_allclose(vector_lengths(counts, y[0] - y[1]), largest_lengths(counts, weight, upper))
