"""A replay runs at its speed from when it is first asked."""

import pytest

from trafficdp.errors import UsageError
from trafficdp.stream.horizon import Pace


def test_an_instant_is_due_when_its_share_of_the_time_has_passed():
    now = [100.0]
    pace = Pace(60, lambda: now[0])
    assert pace.due_us(5_000_000) == 5_000_000
    now[0] += 2.5
    assert pace.due_us(5_000_000) == 155_000_000


def test_without_a_speed_all_is_due_and_backwards_nothing_runs():
    assert Pace(0).due_us(7) is None
    for speed in (-1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="cannot run at this speed"):
            Pace(speed)
