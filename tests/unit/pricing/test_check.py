"""The second opinion agrees with every sound plan to the last unit, and catches what is not one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import AllocationError
from trafficdp.mechanisms.blocks.blocks import best_blocks
from trafficdp.mechanisms.blocks.lattice import block_loss_per_user, to_block_lattice
from trafficdp.model.statistic import Statistic
from trafficdp.pricing import check
from trafficdp.privacy.loss import CHARGE_STEP, PureDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 40.0, VEHICLE_MEAN: 1.5}
tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 5, 30]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=6,
    )
)
chosen = st.sets(st.sampled_from(list(Statistic)), min_size=1).map(lambda some: sorted(some))


@pytest.mark.slow
@settings(max_examples=80)
@given(tables, chosen, st.sampled_from(["0.01", "1", "7.3"]))
def test_block_charges_pass_and_one_step_less_does_not(counts_of, bound_of, table, statistics, epsilon):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    blocks = best_blocks(counts, bound, {s: TOLERANCE[s] for s in statistics}, effort=50)
    if not blocks.items.number:
        return
    lattice = to_block_lattice(blocks, counts, bound, PureDP.of(epsilon))
    charged = block_loss_per_user(counts, bound, lattice)
    check.check_blocks(counts, bound, tuple(statistics), lattice, charged)
    for user in np.flatnonzero(charged > 0).tolist():
        less = charged.copy()
        less[user] -= CHARGE_STEP
        with pytest.raises(AllocationError, match="1 vehicles would lose more"):
            check.check_blocks(counts, bound, tuple(statistics), lattice, less)


def test_wrong_blocks_are_caught(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]]), bound_of(60, "1/10")
    blocks = best_blocks(counts, bound, {MEAN: 1.0, VARIANCE: 40.0})
    lattice = to_block_lattice(blocks, counts, bound, PureDP.of(2))
    charged = block_loss_per_user(counts, bound, lattice)

    def refused(words, **changes):
        with pytest.raises(AllocationError, match=words):
            check.check_blocks(counts, bound, (MEAN, VARIANCE), replace(lattice, **changes), charged)

    refused("would lose more", half_width=lattice.half_width // 2)
    refused("would lose more", scale=lattice.scale * 0.999)
    refused("would lose more", shift=lattice.shift + 1)
    refused("would lose more", block=np.arange(len(lattice.block)))
    refused("without a scale", scale=0.0)
    refused("no noise", half_width=lattice.half_width * 0)
    refused("drawn twice", bin=np.zeros_like(lattice.bin))
    last = slice(0, -1)
    refused(
        "no noise",
        statistic=lattice.statistic[last],
        bin=lattice.bin[last],
        block=lattice.block[last],
        half_width=lattice.half_width[last],
        shift=lattice.shift[last],
    )


def test_chunks_do_not_matter(counts_of, bound_of, monkeypatch):
    random = np.random.default_rng(4)
    counts = counts_of(random.poisson(1.0, (30, 20)) + np.eye(30, 20, dtype=int))
    bound = bound_of(60, "1/10")
    blocks = best_blocks(counts, bound, TOLERANCE, effort=20)
    lattice = to_block_lattice(blocks, counts, bound, PureDP.of(3))
    exact = block_loss_per_user(counts, bound, lattice)
    for size in (7, 10**6):
        monkeypatch.setattr(check, "CHUNK", size)
        check.check_blocks(counts, bound, tuple(Statistic), lattice, exact)
        with pytest.raises(AllocationError):
            check.check_blocks(counts, bound, tuple(Statistic), lattice, exact - CHARGE_STEP)
