"""Matrix factors on whole numbers: exact prices, unbiased sums, and what they gain."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import ZCDP
from trafficdp.research.george_2022.factor import (
    BITS,
    BinnedCounter,
    BinnedFactor,
    DenseFactor,
    contiguous_squared_norm,
    gaussian_loss,
    gaussian_sd,
    optimised_factor,
    square_root_coefficients,
    square_root_factor,
    toeplitz_coefficients,
)
from trafficdp.stream.tree import Tree


class Silent:
    def discrete_gaussian(self, sd):
        return np.zeros(sd.shape, dtype=np.int64)


def binned_matrix(factor):
    """K of a binned factor, from what the counter does to unit vectors without noise."""
    n = factor.length
    counter = BinnedCounter(factor, n)
    rows = []
    for t in range(n):
        past = factor.coefficients[t - counter.start]
        unit = np.zeros(n, dtype=np.int64)
        unit[t] = 1
        rows.append(past @ counter.exact + int(factor.coefficients[0]) * unit)
        counter.append(unit, np.zeros(n, dtype=np.int64))
    return np.array(rows)


def test_the_square_root_is_one():
    for n in (1, 2, 5, 40):
        f = square_root_coefficients(n)
        gap = np.subtract.outer(np.arange(n), np.arange(n))
        root = np.where(gap >= 0, f[np.maximum(gap, 0)], 0)
        np.testing.assert_allclose(root @ root, np.tri(n), atol=1e-12)


@pytest.mark.parametrize("elements", [1, 2, 3])
@pytest.mark.parametrize("kind", ["square root", "binned"])
def test_the_price_covers_every_change_at_every_place_and_is_attained(kind, elements):
    n = 9
    dense = square_root_factor(n)
    matrix = dense.matrix if kind == "square root" else binned_matrix(BinnedFactor(n, 0.6))
    worst = 0
    for places in combinations(range(n), elements):
        for signs in product((-1, 1), repeat=elements):
            change = matrix[:, places] @ np.array(signs)
            worst = max(worst, sum(int(each) ** 2 for each in change))
    claimed = dense.squared_norm(elements)
    assert BinnedFactor(n, 0.6).squared_norm(elements) == claimed
    assert worst == claimed if kind == "square root" else worst <= claimed
    assert worst > 0.7 * claimed


def test_norms_are_exact_whole_numbers():
    for n, k in [(1, 1), (7, 3), (50, 50), (300, 17)]:
        f = [int(each) for each in toeplitz_coefficients(n)]
        exact = sum(sum(f[max(0, t - k + 1) : t + 1]) ** 2 for t in range(n))
        assert contiguous_squared_norm(toeplitz_coefficients(n), k) == exact
    assert toeplitz_coefficients(3).tolist() == [2**BITS, 2**BITS // 2, 3 * 2**BITS // 8]


def test_the_optimised_factor_beats_the_square_root_and_no_step_betters_it():
    n = 24
    best, root = optimised_factor(n), square_root_factor(n)
    assert best.mean_squared_error() < 0.98 * root.mean_squared_error()
    random = np.random.default_rng(2)
    for _ in range(30):
        shake = np.tril(random.normal(0, 0.01, (n, n))) * best.matrix.max()
        moved = np.maximum(best.matrix + shake.astype(np.int64) * (best.matrix > 0), 0)
        assert DenseFactor(moved).mean_squared_error() > best.mean_squared_error() * (1 - 1e-5)
    # all columns are as long as the longest: nothing is wasted
    norms = (best.matrix.astype(float) ** 2).sum(axis=0)
    assert norms.min() > 0.998 * norms.max()


def test_sums_are_exact_without_noise():
    value = np.random.default_rng(1).integers(0, 900, 60)
    exact = np.cumsum(value)
    for factor in (square_root_factor(60), optimised_factor(60)):
        np.testing.assert_allclose(factor.release(value, 1.0, Silent()), exact, rtol=1e-9)
    counter = BinnedCounter(BinnedFactor(60, 0.8), 1)
    sums = [counter.append(np.array([x]), np.array([0]))[0] for x in value]
    np.testing.assert_allclose(sums, exact, rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 17, 64])
def test_the_noise_has_the_variance_of_the_decoder(n):
    at, runs = np.arange(n + 1), 4000
    dense, binned = square_root_factor(n), BinnedFactor(n, 0.8)
    inverse = np.cumsum(np.linalg.inv(binned_matrix(binned).astype(float)), axis=0)
    for sums, decoder in ((dense, dense.decoder), (binned, inverse)):
        sd = np.sqrt(sums.squared_norm(1))
        path = sums.path(at, float(sd), SimulatedNoise(3), runs)
        assert not path[:, 0].any()
        expected = sd**2 * (decoder**2).sum(axis=1)
        np.testing.assert_allclose(path[:, 1:].var(axis=0), expected, rtol=0.12)


@pytest.mark.slow
def test_binning_costs_little_error_and_little_memory():
    n = 1024
    factor = BinnedFactor(n, 0.9)
    matrix = binned_matrix(factor)
    root = square_root_factor(n)
    assert (matrix <= root.matrix).all()
    decoder = np.cumsum(np.linalg.inv(matrix.astype(float)), axis=0)
    binned_error = factor.squared_norm(1) * (decoder**2).sum() / n
    assert binned_error < 1.2 * root.mean_squared_error()
    counter = BinnedCounter(BinnedFactor(20_000, 0.9), 1)
    most = 0
    for _ in range(20_000):
        counter.append(np.array([1]), np.array([0]))
        most = max(most, len(counter.start))
    assert most < 80


def test_a_factor_under_zcdp_beats_the_tree_under_zcdp():
    n = 1023
    tree = Tree(2)
    # the same rho: a vehicle moves 10 nodes by 1 in l2
    binary = 10 * tree.variance(np.arange(1, n + 1), n).mean()
    assert square_root_factor(n).mean_squared_error() < binary / 3.5


def test_sd_and_loss_are_exact_to_the_last_place():
    sums = square_root_factor(30)
    rho = ZCDP.of("0.02")
    sd = gaussian_sd(sums, 65, 3, rho)
    assert gaussian_loss(sums, 65, 3, sd) <= rho
    assert gaussian_loss(sums, 65, 3, sd * (1 - 1e-9)) > rho
    assert Fraction(sd) ** 2 >= Fraction(65**2 * sums.squared_norm(3)) / (2 * rho.exact)


def test_a_release_is_decoded_from_exact_noise():
    found = square_root_factor(20).release(np.arange(20), 3.0 * 2**BITS, SecureNoise())
    assert found.shape == (20,)
    assert np.abs(found - np.cumsum(np.arange(20))).max() < 200


@pytest.mark.parametrize(
    "make",
    [
        lambda: DenseFactor(np.array([[1, 1], [0, 1]])),
        lambda: DenseFactor(np.array([[1, 0], [-1, 1]])),
        lambda: DenseFactor(np.array([[1, 0], [1, 0]])),
        lambda: optimised_factor(5).squared_norm(2),
        lambda: square_root_factor(5000),
        lambda: BinnedFactor(10, 1.0),
        lambda: BinnedFactor(3).path(np.array([4]), 1.0, SimulatedNoise(1)),
    ],
)
def test_what_is_no_factor_is_refused(make):
    with pytest.raises(UsageError):
        make()


def test_a_full_binned_counter_takes_no_more():
    counter = BinnedCounter(BinnedFactor(1), 1)
    counter.append(np.array([4]), np.array([0]))
    with pytest.raises(UsageError, match="full"):
        counter.append(np.array([4]), np.array([0]))
