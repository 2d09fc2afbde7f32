"""Blocks on integers: the charge recomputed with fractions, never above what was asked, hardly below."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.blocks import best_blocks
from trafficdp.mechanisms.blocks.lattice import block_loss_per_user, to_block_lattice
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block import simulated_block
from trafficdp.noise.simulate import discrete_laplace
from trafficdp.privacy.loss import PureDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 40.0, VEHICLE_MEAN: 1.5}
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 6), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


def exact_losses(counts, bound, lattice):
    """The charge by its definition: loops, brute-force changes and fractions."""
    largest: dict[tuple[int, int], int] = {}
    for item, statistic in enumerate(lattice.statistic):
        for pair in range(counts.pairs):
            if counts.bin_index[pair] != lattice.bin[item]:
                continue
            m, n = int(counts.count[pair]), int(counts.samples_per_bin[lattice.bin[item]])
            change = {
                MEAN: bound.steps * m,
                VARIANCE: bound.steps**2 * max(k * (n - k) for k in range(m + 1)),
                VEHICLE_MEAN: bound.steps,
            }[statistic]
            shift = int(lattice.shift[item])
            change = change << shift if shift >= 0 else (change >> -shift) + (change > 0)
            key = (int(lattice.block[item]), int(counts.user_index[pair]))
            largest[key] = max(largest.get(key, 0), -(-change // int(lattice.half_width[item])))
    losses = [Fraction(0)] * counts.users
    for (_, user), units in largest.items():
        losses[user] += Fraction(units) / Fraction(lattice.scale)
    return losses


@settings(max_examples=80)
@given(
    tables,
    st.sampled_from(["0.01", "1", "7.3"]),
    st.sampled_from([(MEAN,), (VARIANCE,), (MEAN, VARIANCE), tuple(Statistic)]),
)
def test_the_charge_is_the_exact_loss_and_at_most_the_epsilon(
    counts_of, bound_of, table, epsilon, statistics
):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    blocks = best_blocks(counts, bound, {s: TOLERANCE[s] for s in statistics}, effort=200)
    if not blocks.items.number:
        return
    asked = PureDP.of(epsilon)
    lattice = to_block_lattice(blocks, counts, bound, asked)
    charged = block_loss_per_user(counts, bound, lattice)
    for pico, exact in zip(charged.tolist(), exact_losses(counts, bound, lattice), strict=True):
        assert exact * 10**12 <= pico < exact * 10**12 + 1001
    # a round epsilon is charged as just that
    assert charged.max() == asked.pico


@pytest.mark.parametrize(
    ("epsilon", "slack"), [("0.000001", 2e-2), ("0.05", 2e-3), ("4", 2e-3), ("100", 2e-3), ("20000", 2e-3)]
)
def test_half_widths_are_as_planned_however_large_epsilon_is(counts_of, bound_of, epsilon, slack):
    random = np.random.default_rng(5)
    counts = counts_of(random.poisson(1.5, (40, 25)) + np.eye(40, 25, dtype=int))
    bound, asked = bound_of(60, "1/10"), PureDP.of(epsilon)
    blocks = best_blocks(counts, bound, {MEAN: 1.0, VARIANCE: 40.0}, effort=100)
    lattice = to_block_lattice(blocks, counts, bound, asked)
    per_unit = np.where(
        [each is MEAN for each in lattice.statistic],
        counts.samples_per_bin[lattice.bin] * 10.0,
        counts.samples_per_bin[lattice.bin] ** 2 * 100.0,
    )
    drawn = lattice.half_width * lattice.scale * 2.0**-lattice.shift / per_unit
    np.testing.assert_allclose(drawn, blocks.half_widths(float(asked.epsilon)), rtol=slack)
    assert np.all(drawn >= blocks.half_widths(float(asked.epsilon)) * (1 - slack))
    assert block_loss_per_user(counts, bound, lattice).max() == asked.pico


def test_a_changed_lattice_is_charged_as_it_is(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]]), bound_of(65)
    blocks = best_blocks(counts, bound, {MEAN: 1.0})
    lattice = to_block_lattice(blocks, counts, bound, PureDP.of(1))
    charged = block_loss_per_user(counts, bound, lattice).max()
    half = block_loss_per_user(counts, bound, replace(lattice, half_width=lattice.half_width // 2)).max()
    assert half == pytest.approx(2 * charged, rel=1e-3)
    for wrong in (replace(lattice, half_width=lattice.half_width * 0), replace(lattice, scale=0.0)):
        with pytest.raises(UsageError, match="out of range"):
            block_loss_per_user(counts, bound, wrong)


def test_what_is_drawn_errs_as_planned(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]]), bound_of(65)
    blocks = best_blocks(counts, bound, {MEAN: 1.0})
    lattice = to_block_lattice(blocks, counts, bound, PureDP.of(1))
    runs, number = 20_000, blocks.items.number
    random = np.random.default_rng(1)
    count = int(lattice.block.max()) + 1
    drawn = simulated_block(
        random,
        np.tile(lattice.half_width, runs),
        (lattice.block + count * np.arange(runs)[:, None]).ravel(),
        np.full(count * runs, float(lattice.scale)),
        lambda scale: discrete_laplace(random, scale),
    ).reshape(runs, number)
    unit = counts.samples_per_bin[lattice.bin] * 2.0**lattice.shift
    error = np.abs(drawn / unit).mean(axis=0)
    # every item's expected absolute noise is E = 65 (golden), its standard error below one percent
    np.testing.assert_allclose(error, 65.0, rtol=0.05)


def test_nothing_to_release_is_refused(counts_of, bound_of):
    blocks = best_blocks(counts_of([[1]]), bound_of(65), {VARIANCE: 1.0})
    with pytest.raises(UsageError, match="nothing to release"):
        to_block_lattice(blocks, counts_of([[1]]), bound_of(65), PureDP.of(1))
