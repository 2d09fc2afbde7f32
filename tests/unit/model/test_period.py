from datetime import UTC, date, datetime

import pytest

from trafficdp.errors import ConfigError
from trafficdp.model import Period


def test_a_period_is_whole_local_days():
    period = Period(date(2024, 3, 30), date(2024, 3, 31), "Europe/London")
    assert period.start_utc == datetime(2024, 3, 30, 0, tzinfo=UTC)
    # the clocks went forward on the 31st
    assert period.end_utc == datetime(2024, 3, 31, 23, tzinfo=UTC)


def test_a_period_that_ends_before_it_starts_is_refused():
    with pytest.raises(ConfigError, match="ends before it starts"):
        Period(date(2024, 1, 2), date(2024, 1, 1), "UTC")


@pytest.mark.parametrize(("first", "last"), [(date.min, date(2024, 1, 1)), (date(2024, 1, 1), date.max)])
def test_a_period_that_no_clock_can_express_is_refused(first, last):
    with pytest.raises(ConfigError, match="years 1900 to 2900"):
        Period(first, last, "Asia/Kolkata")


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "UTC+1"])
def test_unknown_time_zones_are_refused(zone):
    with pytest.raises(ConfigError, match="unknown time zone"):
        Period(date(2024, 1, 1), date(2024, 1, 2), zone)
