"""Whatever is released, what is charged is at least the exact loss, in fractions, and hardly more."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.mechanisms.laplace.accountings import loss
from trafficdp.mechanisms.laplace.lattice import Lattice, loss_per_user, to_lattice
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import CHARGE_STEP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
PICO = 10**12

tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=6,
    )
)
sets = st.sets(st.sampled_from(list(Statistic)), min_size=1).map(lambda chosen: sorted(chosen))
seeds = st.integers(0, 2**32 - 1)


def exact_losses(table, bound, lattices, *, whole_steps=True):
    """Every vehicle's loss as a fraction, by the definition: max over k in 0..m, added over bins."""
    rows = [row for row in table if any(row)]
    losses = [Fraction(0)] * len(rows[0])
    for g, row in enumerate(rows):
        n = sum(row)
        for user, m in enumerate(row):
            if not m:
                continue
            if VEHICLE_MEAN in lattices:
                losses[user] += Fraction(bound.steps) / Fraction(float(lattices[VEHICLE_MEAN].scale[g]))
            costs = []
            for k in range(m + 1):
                cost = Fraction(0)
                if MEAN in lattices:
                    cost += Fraction(bound.steps * k) / Fraction(float(lattices[MEAN].scale[g]))
                if VARIANCE in lattices and n > 1:
                    spacing = int(lattices[VARIANCE].spacing[g])
                    change = Fraction(bound.steps**2 * k * (n - k), spacing)
                    if spacing > 1:
                        change = Fraction(int(change) if whole_steps else change) + 1
                    cost += change / Fraction(float(lattices[VARIANCE].scale[g]))
                costs.append(cost)
            losses[user] += max(costs)
    return losses


def random_scales(statistics, bins, seed):
    random = np.random.default_rng(seed)
    return {s: 10.0 ** random.uniform(-1, 4 + 2 * s.power, bins) for s in statistics}


def lattices_for(counts, bound, scales):
    return {s: to_lattice(s, counts, bound, scale) for s, scale in scales.items()}


@settings(max_examples=150)
@given(table=tables, statistics=sets, step=st.sampled_from(["1", "1/10", "1/7"]), seed=seeds)
def test_the_charge_is_at_least_the_exact_loss_and_hardly_more(
    counts_of, bound_of, table, statistics, step, seed
):
    counts, bound = counts_of(table), bound_of(60, step)
    lattices = lattices_for(counts, bound, random_scales(statistics, counts.bins, seed))
    charged = loss_per_user(counts, bound, lattices)
    for pico, exact, pairs in zip(
        charged.tolist(), exact_losses(table, bound, lattices), counts.bins_per_user.tolist(), strict=True
    ):
        assert Fraction(pico, PICO) >= exact
        assert Fraction(pico, PICO) <= exact * (1 + Fraction(1, 10**9)) + Fraction(pairs + CHARGE_STEP, PICO)
        assert (pico == 0) is (exact == 0)


@settings(max_examples=50)
@given(table=tables, spacing=st.integers(2, 5_000), seed=seeds)
def test_a_coarser_lattice_is_charged_its_extra_step(counts_of, bound_of, table, spacing, seed):
    counts, bound = counts_of(table), bound_of(20)
    random = np.random.default_rng(seed)
    lattice = Lattice(
        10.0 ** random.uniform(0, 6, counts.bins), np.full(counts.bins, spacing, dtype=np.int64)
    )
    charged = loss_per_user(counts, bound, {VARIANCE: lattice}).tolist()
    least = exact_losses(table, bound, {VARIANCE: lattice})
    most = exact_losses(table, bound, {VARIANCE: lattice}, whole_steps=False)
    for pico, low, high, pairs in zip(charged, least, most, counts.bins_per_user.tolist(), strict=True):
        assert Fraction(pico, PICO) >= low
        assert Fraction(pico, PICO) <= high * (1 + Fraction(1, 10**9)) + Fraction(pairs + CHARGE_STEP, PICO)


@settings(max_examples=50)
@given(table=tables, statistics=sets, seed=seeds)
def test_the_planned_loss_is_the_exact_one_in_floats(counts_of, bound_of, table, statistics, seed):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    scales = random_scales(statistics, counts.bins, seed)
    planned = loss(counts, bound, scales)
    charged = loss_per_user(counts, bound, lattices_for(counts, bound, scales)) / PICO
    np.testing.assert_allclose(planned, charged, rtol=1e-9, atol=2 * CHARGE_STEP / PICO)


def relabelled(counts, bins, users):
    """The same city with bin g called ``bins[g]`` and user l called ``users[l]``."""
    new_bin, new_user = bins[counts.bin_index], users[counts.user_index]
    order = np.lexsort((new_user, new_bin))
    back = np.argsort(bins)
    return Counts(
        cell=counts.cell[back],
        slot=counts.slot[back],
        bin_index=new_bin[order],
        user_index=new_user[order],
        count=counts.count[order],
        users=counts.users,
    )


@settings(max_examples=50)
@given(table=tables, statistics=sets, seed=seeds)
def test_names_of_vehicles_and_bins_do_not_matter(counts_of, bound_of, table, statistics, seed):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    random = np.random.default_rng(seed)
    bins, users = random.permutation(counts.bins), random.permutation(counts.users)
    other = relabelled(counts, bins, users)
    scales = random_scales(statistics, counts.bins, seed)
    there = {s: scale[np.argsort(bins)] for s, scale in scales.items()}
    before = loss_per_user(counts, bound, lattices_for(counts, bound, scales))
    after = loss_per_user(other, bound, lattices_for(other, bound, there))
    np.testing.assert_array_equal(after[users], before)


@settings(max_examples=50)
@given(table=tables, statistics=sets, seed=seeds)
def test_a_vehicle_without_records_pays_nothing_and_changes_nothing(
    counts_of, bound_of, table, statistics, seed
):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    with_ghost = counts_of([[row[0], 0, *row[1:]] for row in table])
    scales = random_scales(statistics, counts.bins, seed)
    losses = loss_per_user(counts, bound, lattices_for(counts, bound, scales))
    haunted = loss_per_user(with_ghost, bound, lattices_for(with_ghost, bound, scales))
    assert haunted[1] == 0
    np.testing.assert_array_equal(np.delete(haunted, 1), losses)


@pytest.mark.parametrize("statistic", list(Statistic))
def test_more_noise_never_costs_more(counts_of, bound_of, statistic):
    random = np.random.default_rng(3)
    counts, bound = counts_of(random.integers(0, 6, (12, 6)) + np.eye(12, 6, dtype=int)), bound_of(60)
    scale = 10.0 ** random.uniform(-2, 5, counts.bins)
    losses = [
        loss_per_user(counts, bound, lattices_for(counts, bound, {statistic: scale * more}))
        for more in (1, 1 + 1e-9, 1.5, 1e3)
    ]
    for less, more in pairwise(losses):
        assert np.all(more <= less)


def test_mean_and_variance_together_cost_at_most_their_sum_and_at_least_either(counts_of, bound_of):
    random = np.random.default_rng(9)
    counts, bound = counts_of(random.integers(0, 30, (20, 2)) + 1), bound_of(60)
    scales = {MEAN: np.full(20, 10.0), VARIANCE: np.full(20, 600.0)}
    both = loss_per_user(counts, bound, lattices_for(counts, bound, scales))
    each = [loss_per_user(counts, bound, lattices_for(counts, bound, {s: scales[s]})) for s in scales]
    assert np.all(both <= each[0] + each[1] + CHARGE_STEP)
    assert np.all(both >= np.maximum(*each) - CHARGE_STEP)
    # vehicles that dominate a bin cannot move both as far as either
    assert np.all(both < (each[0] + each[1]) * 0.99)
