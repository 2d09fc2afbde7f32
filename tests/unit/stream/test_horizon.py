"""Steps of a stream, and how many of them a bin can be in."""

from datetime import date

import numpy as np
import pytest

from trafficdp.errors import ConfigError
from trafficdp.model import Grid, Period, SlotKind, StudyArea
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import Numbering, pack, unpack


def grid(kind, first=date(2017, 3, 20), last=date(2017, 3, 21), zone="America/Chicago"):
    return Grid(7, kind, StudyArea.from_bbox(-98.3, 29.9, -97.3, 30.7), Period(first, last, zone))


@pytest.mark.parametrize(
    ("kind", "minutes", "elements"),
    [
        (SlotKind.WHOLE_PERIOD, 15, 192),
        (SlotKind.DAY, 15, 96),
        (SlotKind.HOUR_OF_DAY, 15, 8),
        (SlotKind.CALENDAR_HOUR, 15, 4),
        (SlotKind.CALENDAR_HOUR, 25, 4),
        (SlotKind.HOUR_OF_DAY, 180, 2),
        (SlotKind.WEEKDAY_WEEKEND_HOUR, 60, 2),
    ],
)
def test_a_bin_meets_as_many_steps_as_its_slot(kind, minutes, elements):
    assert Horizon.of(grid(kind), minutes, 5).elements == elements


def test_a_day_with_a_clock_change_has_its_own_length():
    spring = Horizon.of(grid(SlotKind.DAY, date(2017, 3, 12), date(2017, 3, 12)), 60, 0)
    assert (spring.steps, spring.elements) == (23, 23)


def test_the_tree_holds_every_element():
    for kind in SlotKind:
        for minutes in (5, 15, 60, 1440):
            horizon = Horizon.of(grid(kind), minutes, 5)
            arity, heights = horizon.tree()
            assert (arity**heights - 1) // 2 >= horizon.elements


def test_more_than_a_million_steps_are_refused():
    with pytest.raises(ConfigError, match="too often"):
        Horizon.of(grid(SlotKind.WHOLE_PERIOD, date(2017, 1, 1), date(2019, 1, 1)), 1, 0)


def test_numbers_are_given_once_and_never_change():
    numbers = Numbering()
    assert numbers.number(np.array([9, 4, 9, 7])).tolist() == [0, 1, 0, 2]
    assert numbers.number(np.array([1, 7, 4])).tolist() == [3, 2, 1]
    assert numbers.find(np.array([5, 1])).tolist() == [-1, 3]
    assert Numbering(numbers.keys).find(np.array([9, 7])).tolist() == [0, 2]
    assert numbers.number(np.zeros(0, dtype=np.int64)).tolist() == []


def test_pairs_come_back_from_their_keys():
    high, low = np.array([0, 5, 2**31 - 1]), np.array([7, 0, 2**31 - 1])
    for packed, given in zip(unpack(pack(high, low)), (high, low), strict=True):
        assert packed.tolist() == given.tolist()
