"""Golden vectors of releases of many bins: U = 65, total epsilon 1, rows are bins, columns vehicles."""

import numpy as np
import pytest

from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.model import Statistic

MEAN = Statistic.MEAN
THREE = [[3, 1, 0], [0, 2, 2], [1, 1, 4]]
DIAGONAL = [[10 if row == column else 1 for column in range(4)] for row in range(4)]
FOUR = [[4, 2, 0, 0], [4, 1, 1, 0], [4, 0, 2, 1], [1, 1, 1, 1]]
EIGHT = [[2] * 8, [5, 5, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 9], [1, 1, 0, 0, 0, 0, 0, 0]]


@pytest.fixture
def accountings_of(counts_of, bound_of):
    def build(table):
        return {
            accounting.name: accounting
            for accounting in laplace_accountings(counts_of(table), bound_of(65), {MEAN: 1.0})
        }

    return build


@pytest.mark.parametrize(
    ("table", "grid_count", "effective", "smallest_scale"),
    [(THREE, 3, 2.0, 75.8333), (DIAGONAL, 4, 1.3, 65.0), (FOUR, 4, 4.0, 140.0595)],
)
def test_counts_and_equal_scale_are_the_golden_ones(
    accountings_of, table, grid_count, effective, smallest_scale
):
    accountings = accountings_of(table)
    assert accountings["basic"].factor == len(table)
    assert accountings["grid_count"].factor == grid_count
    assert accountings["exact"].factor == pytest.approx(effective, rel=1e-14)
    equal = accountings["equal"].scales(1.0)[MEAN]
    assert np.ptp(equal) == 0
    assert equal[0] == pytest.approx(smallest_scale, abs=5e-5)


def test_the_losses_of_three_vehicles_are_the_golden_ones(counts_of, bound_of):
    counts, bound = counts_of(THREE), bound_of(65)
    scales = np.array([2.0, 3.0, 1.5])
    expected = [31.597222, 26.180556, 39.722222]
    noise = LaplaceNoise.cheapest_within(counts, bound, {MEAN: scales})
    np.testing.assert_allclose(noise.loss(), expected, atol=5e-7)
    charged = CalibratedLaplace.of(noise).event().loss_per_user
    np.testing.assert_allclose(charged / 1e12, expected, atol=5e-7)


def test_the_sums_of_shares_are_the_golden_ones(counts_of):
    counts = counts_of(THREE)
    share = counts.count / counts.largest_count_per_bin[counts.bin_index]
    np.testing.assert_allclose(counts.sum_per_user(share), [1.25, 19 / 12, 2.0])


def test_the_papers_worst_scale_on_the_diagonal_city_is_the_golden_one(accountings_of):
    assert accountings_of(DIAGONAL)["grid_count"].worst_relative_scale(1.0, {MEAN: 1.0}) == pytest.approx(
        200.0
    )


@pytest.mark.parametrize(
    ("epsilon", "worst", "needed"), [(1.0, 36.5625, 16 / 9), (2.0, 18.28125, 2 * 16 / 9)]
)
def test_eight_vehicles_pay_less_for_the_papers_worst_error(accountings_of, epsilon, worst, needed):
    accountings, tolerance = accountings_of(EIGHT), {MEAN: 1.0}
    # epsilon for every bin is G_1 epsilon in all by the paper's accounting
    assert accountings["grid_count"].factor == 4
    assert accountings["grid_count"].worst_relative_scale(4 * epsilon, tolerance) == pytest.approx(worst)
    assert accountings["exact"].factor == pytest.approx(28 / 9, rel=1e-14)
    assert accountings["exact"].epsilon_at(worst, tolerance) == pytest.approx(28 / 9 * epsilon, rel=1e-14)
    assert accountings["equal"].epsilon_at(worst, tolerance) == pytest.approx(needed, rel=1e-14)
