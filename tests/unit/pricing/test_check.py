"""The second opinion agrees with every sound plan to the last unit, and catches what is not one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import AllocationError
from trafficdp.mechanisms.laplace.lattice import Lattice, loss_per_user, to_lattice
from trafficdp.mechanisms.mean_variance.calibrated import CalibratedMoments
from trafficdp.mechanisms.mean_variance.lattice import moments_loss_per_user, to_product_lattice
from trafficdp.model.statistic import Statistic
from trafficdp.pricing import check
from trafficdp.privacy.loss import CHARGE_STEP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 5, 30]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=6,
    )
)
chosen = st.sets(st.sampled_from(list(Statistic)), min_size=1).map(lambda some: sorted(some))


def exact_loss(counts, bound, lattices, user):
    """The definition: every k is tried, everything is a fraction."""
    total = Fraction(0)
    for pair in np.flatnonzero(counts.user_index == user).tolist():
        place, m = int(counts.bin_index[pair]), int(counts.count[pair])
        n, steps = int(counts.samples_per_bin[place]), bound.steps

        def price(statistic, change, place=place):
            lattice = lattices.get(statistic)
            if lattice is None or not change:
                return Fraction(0)
            spacing = int(lattice.spacing[place])
            own = Fraction(change, spacing) + (1 if spacing > 1 else 0)
            return own / Fraction(float(lattice.scale[place]))

        total += max(
            price(MEAN, steps * k) + price(VARIANCE, steps**2 * k * (n - k)) for k in range(m + 1)
        ) + price(VEHICLE_MEAN, steps)
    return total


def lattices_for(counts, bound, statistics, scale, spacing=1):
    made = {s: to_lattice(s, counts, bound, np.full(counts.bins, scale)) for s in statistics}
    if VARIANCE in made:
        own = made[VARIANCE]
        made[VARIANCE] = Lattice(own.scale / spacing, own.spacing * spacing)
    return made


@settings(max_examples=120)
@given(tables, chosen, st.sampled_from([0.37, 12.0, 333.3]), st.sampled_from([1, 64]))
def test_the_least_charge_that_passes_is_the_exact_loss(
    counts_of, bound_of, table, statistics, scale, spacing
):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    lattices = lattices_for(counts, bound, statistics, scale, spacing)
    # a change that floors to a spacing is charged one more at its largest k: brute force may find less
    exact = [exact_loss(counts, bound, lattices, user) * 10**12 for user in range(counts.users)]
    least = np.array([-(-each.numerator // each.denominator) for each in exact], dtype=np.int64)
    check.check_lattices(counts, bound, lattices, least)
    check.check_lattices(counts, bound, lattices, loss_per_user(counts, bound, lattices))
    for user in np.flatnonzero(least > 0).tolist():
        less = least.copy()
        less[user] -= 1
        with pytest.raises(AllocationError, match="1 vehicles would lose more"):
            check.check_lattices(counts, bound, lattices, less)


def exact_moments_loss(counts, bound, lattices, user):
    """The definition: every d is tried, everything is a fraction."""
    total = Fraction(0)
    for pair in np.flatnonzero(counts.user_index == user).tolist():
        place, m = int(counts.bin_index[pair]), int(counts.count[pair])
        scale = {s: Fraction(float(lattice.scale[place])) for s, lattice in lattices.items()}
        spacing, steps = int(lattices[VARIANCE].spacing[place]), bound.steps
        varies = counts.samples_per_bin[place] > 1
        total += m * max(
            d / scale[MEAN] + (Fraction(d * (steps - d), spacing) / scale[VARIANCE] if varies else 0)
            for d in range(steps + 1)
        )
        total += 1 / scale[VARIANCE] if varies and spacing > 1 else 0
        total += steps / scale[VEHICLE_MEAN] if VEHICLE_MEAN in lattices else 0
    return total


@settings(max_examples=60)
@given(
    tables,
    st.booleans(),
    st.sampled_from([0.37, 12.0, 333.3]),
    st.sampled_from([1, 64]),
    st.sampled_from([0.1, 0.6, 1.0, 4.0]),
)
def test_the_least_charge_of_moments_that_passes_is_the_exact_loss(
    counts_of, bound_of, table, with_vehicles, scale, spacing, ratio
):
    counts, bound = counts_of(table), bound_of(6, "1/10")
    lattices = lattices_for(counts, bound, [MEAN, VEHICLE_MEAN] if with_vehicles else [MEAN], scale)
    products = to_product_lattice(counts, bound, lattices[MEAN], ratio)
    lattices[VARIANCE] = Lattice(products.scale / spacing, products.spacing * spacing)
    exact = [exact_moments_loss(counts, bound, lattices, user) * 10**12 for user in range(counts.users)]
    least = np.array([-(-each.numerator // each.denominator) for each in exact], dtype=np.int64)
    check.check_moments(counts, bound, lattices, least)
    charged = moments_loss_per_user(counts, bound, lattices)
    check.check_moments(counts, bound, lattices, charged)
    # a pico a pair, and the step
    assert np.all(charged <= least + counts.bins_per_user * 2 + least * 1e-13 + CHARGE_STEP)
    for user in np.flatnonzero(least > 0).tolist():
        less = least.copy()
        less[user] -= 1
        with pytest.raises(AllocationError, match="1 vehicles would lose more"):
            check.check_moments(counts, bound, lattices, less)


def test_wrong_moments_are_caught(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]]), bound_of(60, "1/10")
    lattices = lattices_for(counts, bound, [MEAN], 9.0)
    lattices[VARIANCE] = to_product_lattice(counts, bound, lattices[MEAN], 0.6)
    calibrated = CalibratedMoments(lattices)
    charged = calibrated.event(counts, bound).loss_per_user
    check.check_calibrated(calibrated, counts, bound, charged)

    def changed(statistic, scale=1.0, spacing=1):
        own = lattices[statistic]
        return CalibratedMoments({**lattices, statistic: Lattice(own.scale * scale, own.spacing * spacing)})

    for statistic in (MEAN, VARIANCE):
        with pytest.raises(AllocationError, match="would lose more"):
            check.check_calibrated(changed(statistic, 0.9), counts, bound, charged)
        for nothing in (0.0, np.nan, -1.0):
            with pytest.raises(AllocationError, match="no noise"):
                check.check_calibrated(changed(statistic, nothing), counts, bound, charged)
    with pytest.raises(AllocationError, match="sums of speeds on a spacing"):
        check.check_calibrated(changed(MEAN, spacing=2), counts, bound, charged)
    with pytest.raises(AllocationError, match="products without noise"):
        check.check_calibrated(CalibratedMoments({MEAN: lattices[MEAN]}), counts, bound, charged)


def test_wrong_lattices_are_caught(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]]), bound_of(60, "1/10")
    lattices = lattices_for(counts, bound, [MEAN, VARIANCE], 9.0)
    charged = loss_per_user(counts, bound, lattices)

    def with_scale(statistic, place, scale):
        own = lattices[statistic]
        changed = own.scale.copy()
        changed[place] = scale
        return {**lattices, statistic: Lattice(changed, own.spacing)}

    for place in range(3):
        with pytest.raises(AllocationError, match="would lose more"):
            check.check_lattices(counts, bound, with_scale(MEAN, place, 10.0), charged)
    for nothing in (0.0, np.nan, np.inf, -3.0):
        with pytest.raises(AllocationError, match="no noise"):
            check.check_lattices(counts, bound, with_scale(VARIANCE, 1, nothing), charged)
    with pytest.raises(AllocationError, match="would lose more"):
        check.check_lattices(counts, bound_of(60, "1/20"), lattices, charged)


def test_chunks_do_not_matter(counts_of, bound_of, monkeypatch):
    random = np.random.default_rng(4)
    counts = counts_of(random.poisson(1.0, (30, 20)) + np.eye(30, 20, dtype=int))
    bound = bound_of(60, "1/10")
    lattices = lattices_for(counts, bound, list(Statistic), 7.0)
    charged = loss_per_user(counts, bound, lattices)
    for size in (7, 10**6):
        monkeypatch.setattr(check, "CHUNK", size)
        check.check_lattices(counts, bound, lattices, charged)
        with pytest.raises(AllocationError):
            check.check_lattices(counts, bound, lattices, charged - 2 * CHARGE_STEP)
