"""Losses against charges, to the last unit, where only exact fractions can tell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from trafficdp.errors import AllocationError
from trafficdp.pricing import PICO, Losses, require_covered

VEHICLES = 300


@pytest.fixture
def thirds():
    """Two parts, by which vehicle v loses (v + 1) / 3 + (v + 1) / 7 + (v + 1) 11 / 21: exactly v + 1."""
    user = np.arange(VEHICLES)

    def part(*over: tuple[int, int]) -> Losses:
        top = np.concatenate([(user + 1).astype(object) * above for above, _ in over])
        below = np.concatenate([np.full(VEHICLES, each, dtype=object) for _, each in over])
        return Losses(np.tile(user, len(over)), top, below)

    return lambda: iter([part((1, 3), (1, 7)), part((11, 21))])


@pytest.fixture
def exactly():
    return np.arange(1, VEHICLES + 1) * PICO


def test_a_charge_of_exactly_the_loss_covers_it(thirds, exactly):
    assert require_covered(thirds, exactly) is None


@pytest.mark.parametrize("vehicle", [0, 17, VEHICLES - 1])
def test_a_charge_of_one_unit_less_does_not(thirds, exactly, vehicle):
    exactly[vehicle] -= 1
    with pytest.raises(AllocationError, match="1 vehicles would lose more"):
        require_covered(thirds, exactly)


def test_losses_too_near_to_tell_by_rounding_are_told_apart(exactly):
    """A charge of 1 covers 1 - 10^-40, and not 1 + 10^-40."""
    fine = 10**40
    for more, covered in ((-1, True), (1, False)):
        loss = Losses(np.array([0]), np.array([fine + more], dtype=object), np.array([fine], dtype=object))
        if covered:
            assert require_covered(lambda loss=loss: [loss], exactly[:1]) is None
        else:
            with pytest.raises(AllocationError):
                require_covered(lambda loss=loss: [loss], exactly[:1])


def test_open_vehicles_are_summed_in_one_more_pass(thirds, exactly):
    passes = []

    def counted() -> Iterator[Losses]:
        passes.append(1)
        return thirds()

    require_covered(counted, exactly)
    assert len(passes) == 2
