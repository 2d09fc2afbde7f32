"""Draws of consistent means on neighbouring data prove no more than is charged, more where parents cheat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trafficdp.audit.lower_bound import distinguish
from trafficdp.mechanisms.blocks.noise import BlockNoise
from trafficdp.mechanisms.consistent.calibrated import CalibratedConsistent
from trafficdp.mechanisms.consistent.parents import Parents
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive.values import Values

MEAN, COPIES = Statistic.MEAN, 20_000


def unread():
    raise AssertionError("single values are not needed")


def copies(contributions):
    """The two bins side by side COPIES times, each with vehicles of its own."""
    one = contributions.counts
    each = np.arange(COPIES)[:, None]
    counts = replace(
        one,
        cell=np.arange(2 * COPIES, dtype=np.uint64),
        slot=np.zeros(2 * COPIES, dtype=np.int64),
        bin_index=(one.bin_index + 2 * each).ravel(),
        user_index=(one.user_index + one.users * each).ravel(),
        count=np.tile(one.count, COPIES),
        users=one.users * COPIES,
    )
    total, squares = (
        np.tile(values, COPIES) for values in (contributions.total, contributions.total_of_squares)
    )
    return replace(
        contributions,
        counts=counts,
        total=total,
        total_of_squares=squares,
        vehicle=np.arange(counts.users),
    )


def calibrated_with(public, parent, scale):
    """Half widths of 40 for the children, ``parent`` for their parents, all in one block a family."""
    of = np.repeat(np.arange(COPIES), 2)
    width = np.concatenate([np.full(2 * COPIES, 40), np.full(COPIES, parent)])
    return CalibratedConsistent(
        public,
        (MEAN,),
        BlockNoise(
            np.concatenate([of, np.arange(COPIES)]), width, np.zeros(3 * COPIES, dtype=np.int64), scale
        ),
        Parents(of),
    )


@pytest.mark.parametrize(("parent", "refuted"), [(40, False), (20, False), (2, True)])
def test_what_draws_prove_is_below_the_charge(contributions_of, bound_of, parent, refuted):
    bound = bound_of(1_000)
    # one vehicle with a record in both bins, beside others in the middle
    sides = [
        copies(contributions_of([[[speed], [500] * 20], [[speed], [500] * 20]], bound))
        for speed in (0, 1_000)
    ]
    public = PublicFacts(sides[0].counts, bound)
    scale = 25.0
    # a parent moves by 2,000, its children by 1,000: a half width of 80 would cost as much as theirs
    charged = calibrated_with(public, max(parent, 20), scale).event().loss_per_user[0] / 1e12
    assert charged == pytest.approx({40: 2.0, 20: 4.0, 2: 4.0}[parent])
    found = []
    for number, side in enumerate(sides):
        estimate = calibrated_with(public, parent, scale).run(
            Values(side, unread), SimulatedNoise(number), interval_level=0.9
        )[MEAN]
        found.append(estimate.value.reshape(COPIES, 2).mean(axis=1))
    proved = distinguish(found[0], found[1], 1e-9, 0.0)[0]
    assert (proved > charged) == refuted
    assert proved > 0.1 * charged
