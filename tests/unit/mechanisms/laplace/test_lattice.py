from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.lattice import Lattice, loss_per_user, steps_per_unit, to_lattice
from trafficdp.model.statistic import Statistic
from trafficdp.noise.secure import LARGEST_SCALE

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TABLE = [[3, 1, 0], [0, 2, 2], [1, 0, 0]]


@pytest.fixture
def city(counts_of, bound_of):
    return counts_of(TABLE), bound_of(60, "1/10")


def exact_steps(statistic, counts, bound):
    per_bin = counts.users_per_bin if statistic is VEHICLE_MEAN else counts.samples_per_bin
    return [Fraction(int(n)) ** statistic.power / bound.step**statistic.power for n in per_bin]


@pytest.mark.parametrize("step", [1, "1/10", "3/10", "1/7", "1/1000"])
@pytest.mark.parametrize("statistic", list(Statistic))
def test_scales_reach_the_lattice_without_being_rounded_down(statistic, step, counts_of, bound_of):
    random = np.random.default_rng(1)
    counts, bound = counts_of(random.integers(0, 50, (40, 7)) + 1), bound_of(60, step)
    scale = 10.0 ** random.uniform(-6, 3, counts.bins)
    lattice = to_lattice(statistic, counts, bound, scale)
    for b, drawn, spacing, steps in zip(
        scale, lattice.scale, lattice.spacing, exact_steps(statistic, counts, bound), strict=True
    ):
        exact, got = Fraction(float(b)) * steps, Fraction(float(drawn)) * int(spacing)
        # one float operation in 1/step is not directed; the loss is computed from what is drawn
        assert exact * (1 - Fraction(1, 2**52)) <= got <= exact * (1 + Fraction(1, 2**48))


def test_steps_are_counted_in_the_statistics_unit(city):
    assert steps_per_unit(MEAN, *city).tolist() == [40, 40, 10]
    assert steps_per_unit(VARIANCE, *city).tolist() == [1600, 1600, 100]
    assert steps_per_unit(VEHICLE_MEAN, *city).tolist() == [20, 20, 10]


def test_the_variance_of_one_fix_needs_no_noise_and_costs_nothing(city):
    lattice = to_lattice(VARIANCE, *city, np.ones(3))
    assert lattice.scale[2] == 0
    assert np.all(lattice.scale[:2] > 0)
    only_single = Lattice(np.array([1e30, 1e30, 0.0]), np.ones(3, dtype=np.int64))
    # 10^-9 is the least that is charged
    assert loss_per_user(*city, {VARIANCE: only_single}).max() <= 1_000


@pytest.mark.parametrize("statistic", list(Statistic))
@pytest.mark.parametrize("nothing", [0.0, -1.0, np.nan, 5e-324])
def test_a_statistic_that_can_vary_is_never_free(city, statistic, nothing):
    scale = np.full(3, 100.0)
    scale[1] = nothing
    with pytest.raises(UsageError, match="too large to account for"):
        loss_per_user(*city, {statistic: Lattice(scale, np.ones(3, dtype=np.int64))})


@pytest.mark.parametrize("spacing", [0, -1, np.iinfo(np.int64).min])
def test_a_spacing_that_is_not_positive_is_refused(city, spacing):
    lattice = Lattice(np.full(3, 100.0), np.array([1, spacing, 1]))
    with pytest.raises(UsageError, match="spacing"):
        loss_per_user(*city, {VARIANCE: lattice})


@pytest.mark.parametrize("statistic", list(Statistic))
@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_scales_that_are_no_numbers_are_refused(city, statistic, wrong):
    with pytest.raises(UsageError, match="noise scale"):
        to_lattice(statistic, *city, np.array([1.0, wrong, 1.0]))


@pytest.mark.parametrize(("statistic", "scale"), [(MEAN, 1e15), (VEHICLE_MEAN, 1e16), (VARIANCE, 1e33)])
def test_noise_that_could_not_be_drawn_is_refused_before_anything_is_charged(city, statistic, scale):
    with pytest.raises(UsageError, match=r"cannot be drawn exactly.*larger epsilon"):
        to_lattice(statistic, *city, np.full(3, scale))


def test_sums_of_squares_that_could_leave_64_bits_are_refused(counts_of, bound_of):
    fine = bound_of(1_000_000)
    with pytest.raises(UsageError, match="64 bits"):
        to_lattice(VARIANCE, counts_of([[9_000_000, 300_000]]), fine, np.array([1.0]))
    to_lattice(VARIANCE, counts_of([[9_000_000, 200_000]]), fine, np.array([1e9]))
    to_lattice(MEAN, counts_of([[9_000_000, 300_000]]), fine, np.array([1.0]))


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e9])
def test_a_variance_of_huge_bins_is_drawn_on_a_coarser_lattice(counts_of, bound_of, scale):
    counts, bound = counts_of([[40_000_000, 60_000_000], [2, 3]]), bound_of(100, "1/100")
    lattice = to_lattice(VARIANCE, counts, bound, np.full(2, scale))
    assert np.all(lattice.scale <= LARGEST_SCALE)
    assert np.all(lattice.spacing & (lattice.spacing - 1) == 0)
    assert lattice.spacing[0] > 1
    assert lattice.spacing[1] == 1
    k = 40_000_000
    change = bound.steps**2 * k * (10**8 - k)
    spacing = int(lattice.spacing[0])
    exact = Fraction(change // spacing + 1) / Fraction(float(lattice.scale[0]))
    lone = Lattice(lattice.scale[:1], lattice.spacing[:1])
    huge = counts.select(np.array([True, False]))
    charged = Fraction(int(loss_per_user(huge, bound, {VARIANCE: lone})[0]), 10**12)
    assert exact <= charged <= exact * (1 + Fraction(1, 10**9)) + Fraction(2, 10**9)


@pytest.mark.parametrize("spacing", [1, 2, 3, 8])
@pytest.mark.parametrize("change", [0, 1, 2, 3, 7, 8, 9])
def test_flooring_to_a_spacing_adds_at_most_one_step(spacing, change):
    steps = max((start + change) // spacing - start // spacing for start in range(3 * spacing))
    assert steps <= change // spacing + (1 if spacing > 1 else 0)


def test_the_step_that_flooring_may_add_is_paid_for(counts_of, bound_of):
    # N = 4: one record moves N Q - S^2 by 3, three records by 4; on multiples of 3 both by up to 2 steps
    counts, bound = counts_of([[1, 3]]), bound_of(1)
    lattice = Lattice(np.array([10.0]), np.array([3], dtype=np.int64))
    charged = loss_per_user(counts, bound, {VARIANCE: lattice}) / 1e12
    assert np.all(charged >= 0.2)
    np.testing.assert_allclose(charged, [0.1 * (3 / 3 + 1), 0.1 * (4 / 3 + 1)], rtol=1e-7)


def test_more_distinct_scales_than_can_be_drawn_fast_are_rounded_up_together(counts_of, bound_of):
    random = np.random.default_rng(2)
    counts, bound = counts_of(random.integers(1, 9, (6_000, 1))), bound_of(60)
    scale = random.uniform(1, 100, 6_000)
    lattice = to_lattice(MEAN, counts, bound, scale)
    wanted = scale * counts.samples_per_bin
    assert len(np.unique(lattice.scale)) <= 8_000
    assert np.all(lattice.scale >= wanted)
    assert np.all(lattice.scale <= wanted * 1.002)
