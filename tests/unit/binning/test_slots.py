"""Slots: equal to Python's own time zone arithmetic for every instant."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.binning.places import slot_facts, slots_of
from trafficdp.errors import ConfigError, DataError, UsageError
from trafficdp.model import DEFAULT_DAY_PARTS, DayPart, Period, SlotKind
from trafficdp.privacy.release import SlotFacts

ZONES = [
    "America/Chicago",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # clocks change by 30 minutes
    "Pacific/Apia",  # skipped 2011-12-30
    "Europe/London",
    "America/St_Johns",  # changed clocks at 00:01 until 2011
    "America/Sao_Paulo",  # midnight did not exist on some days
    "Africa/Monrovia",  # offset -00:44:30 until 1972
    "America/Caracas",
    "UTC",
]
CHANGES = {  # UTC instants at which clocks changed
    "America/Chicago": ["2016-03-13T08:00", "2016-11-06T07:00"],
    "Australia/Lord_Howe": ["2016-04-02T15:00", "2016-10-01T15:30"],
    "Pacific/Apia": ["2011-12-30T10:00"],
    "Europe/London": ["2016-03-27T01:00", "2016-10-30T01:00"],
    "America/St_Johns": ["2010-03-14T03:31", "2010-11-07T02:31"],
    "America/Sao_Paulo": ["2018-11-04T03:00", "2018-02-18T02:00"],
    "Africa/Monrovia": ["1972-01-07T00:44:30"],
    "America/Caracas": ["2007-12-09T07:00", "2016-05-01T07:00"],
    "Asia/Kathmandu": ["1985-12-31T18:30"],
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def naive_slot(time_us: int, kind: SlotKind, zone: ZoneInfo, parts: tuple[DayPart, ...]) -> int:
    local = (EPOCH + timedelta(microseconds=time_us)).astimezone(zone)
    match kind:
        case SlotKind.WHOLE_PERIOD:
            return 0
        case SlotKind.HOUR_OF_DAY:
            return local.hour
        case SlotKind.WEEKDAY_WEEKEND_HOUR:
            return local.hour + (24 if local.weekday() >= 5 else 0)
        case SlotKind.WEEKDAY:
            return local.weekday()
        case SlotKind.DAY_PART:
            return next(index for index, part in enumerate(parts) if local.hour in part.hours)
        case SlotKind.DAY:
            return int(datetime.combine(local.date(), time(), zone).timestamp())
        case SlotKind.CALENDAR_HOUR:  # walk back for as long as clocks show this hour at this offset
            second = time_us // 1_000_000
            while True:
                before = datetime.fromtimestamp(second - 1, zone)
                if (before.hour, before.utcoffset()) != (local.hour, local.utcoffset()):
                    return second
                second -= 1


def assert_equal_to_naive(time_us: list[int], kind: SlotKind, zone: str) -> None:
    slots = slots_of(np.array(time_us, dtype=np.int64), kind, zone, DEFAULT_DAY_PARTS)
    assert slots.dtype == np.int64
    expected = [naive_slot(t, kind, ZoneInfo(zone), DEFAULT_DAY_PARTS) for t in time_us]
    assert slots.tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", SlotKind)
@settings(max_examples=examples(40))
@given(
    zone=st.sampled_from(ZONES),
    instants=st.lists(
        st.datetimes(datetime(1970, 1, 1), datetime(2045, 1, 1), timezones=st.just(UTC)),
        min_size=1,
        max_size=4,
    ),
)
def test_slots_equal_astimezone_at_random_instants(
    kind: SlotKind, zone: str, instants: list[datetime]
) -> None:
    assert_equal_to_naive([microseconds(instant) for instant in instants], kind, zone)


@pytest.mark.parametrize("kind", SlotKind)
@pytest.mark.parametrize("zone", CHANGES)
def test_slots_equal_astimezone_around_clock_changes(kind: SlotKind, zone: str) -> None:
    for text in CHANGES[zone]:
        change = microseconds(datetime.fromisoformat(text + "+00:00"))
        near = [-1, 0, 1, -1_000_000, 1_000_000, -60_000_000, 60_000_000, -3_600_000_000, 3_599_999_999]
        wide = [minutes * 60_000_000 + 7 for minutes in range(-180, 180, 13)]
        assert_equal_to_naive([change + step for step in near + wide], kind, zone)


@pytest.mark.parametrize("zone", CHANGES)
def test_the_listed_clock_changes_are_changes(zone: str) -> None:
    for text in CHANGES[zone]:
        change = datetime.fromisoformat(text + "+00:00")
        offsets = [t.astimezone(ZoneInfo(zone)).utcoffset() for t in (change - timedelta(seconds=1), change)]
        assert offsets[0] != offsets[1]


@pytest.mark.parametrize("kind", SlotKind)
@pytest.mark.parametrize("zone", ["Europe/Amsterdam", "Africa/Monrovia", "Asia/Kolkata"])
def test_slots_before_1970_are_exact_too(kind: SlotKind, zone: str) -> None:
    random = np.random.default_rng(5)
    start, end = (microseconds(datetime(year, 1, 1, tzinfo=UTC)) for year in (1900, 1970))
    assert_equal_to_naive(random.integers(start, end, 60).tolist(), kind, zone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SlotKind)
def test_years_of_data_are_sorted_into_slots_at_once(kind: SlotKind) -> None:
    random = np.random.default_rng(6)
    start, end = (microseconds(datetime(year, 1, 1, tzinfo=UTC)) for year in (2010, 2020))
    times = random.integers(start, end, 3000)
    slots = slots_of(times, kind, "America/St_Johns", DEFAULT_DAY_PARTS)
    for index in range(0, 3000, 50):
        assert slots[index] == naive_slot(
            int(times[index]), kind, ZoneInfo("America/St_Johns"), DEFAULT_DAY_PARTS
        )


def test_a_repeated_hour_counts_as_two() -> None:
    first, second = datetime(2016, 11, 6, 6, 30, tzinfo=UTC), datetime(2016, 11, 6, 7, 30, tzinfo=UTC)
    times = np.array([microseconds(first), microseconds(second)])
    assert len(set(slots_of(times, SlotKind.CALENDAR_HOUR, "America/Chicago").tolist())) == 2
    assert slots_of(times, SlotKind.HOUR_OF_DAY, "America/Chicago").tolist() == [1, 1]


def test_no_instants_have_no_slots() -> None:
    assert slots_of(np.empty(0, dtype=np.int64), SlotKind.DAY, "UTC").tolist() == []


def test_unknown_time_zones_are_refused() -> None:
    with pytest.raises(ConfigError, match="time zone"):
        slots_of(np.zeros(1, dtype=np.int64), SlotKind.DAY, "Mars/Olympus")


@pytest.mark.parametrize(
    "instant", [datetime(1899, 12, 31, 23, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)]
)
def test_instants_far_away_are_refused(instant: datetime) -> None:
    with pytest.raises(DataError, match="1900 to 2199"):
        slots_of(np.array([microseconds(instant)]), SlotKind.HOUR_OF_DAY, "UTC")


PERIOD = Period(date(2016, 11, 24), date(2016, 11, 27), "America/Chicago")


def facts_of(kind: SlotKind, number: int, period: Period = PERIOD) -> SlotFacts:
    return slot_facts(np.array([number, number]), kind, period, DEFAULT_DAY_PARTS)[number]


def test_the_whole_period_is_labelled_by_its_days() -> None:
    assert facts_of(SlotKind.WHOLE_PERIOD, 0) == SlotFacts(
        "2016-11-24 to 2016-11-27", "2016-11-24T00:00:00-06:00", "2016-11-28T00:00:00-06:00"
    )
    one_day = Period(date(2016, 11, 24), date(2016, 11, 24), "America/Chicago")
    assert facts_of(SlotKind.WHOLE_PERIOD, 0, one_day).label == "2016-11-24"


@pytest.mark.parametrize(
    ("kind", "number", "label"),
    [
        (SlotKind.HOUR_OF_DAY, 8, "08:00-09:00"),
        (SlotKind.HOUR_OF_DAY, 23, "23:00-24:00"),
        (SlotKind.WEEKDAY_WEEKEND_HOUR, 8, "weekday 08:00-09:00"),
        (SlotKind.WEEKDAY_WEEKEND_HOUR, 32, "weekend 08:00-09:00"),
        (SlotKind.WEEKDAY, 0, "Monday"),
        (SlotKind.DAY_PART, 1, "morning peak (06:00-10:00)"),
        (SlotKind.DAY_PART, 0, "night (22:00-06:00)"),
    ],
)
def test_recurring_slots_have_a_label_and_no_start(kind: SlotKind, number: int, label: str) -> None:
    assert facts_of(kind, number) == SlotFacts(label, None, None)


def test_days_start_and_end_at_local_midnight() -> None:
    midnight = int(datetime(2016, 11, 24, 6, tzinfo=UTC).timestamp())
    assert facts_of(SlotKind.DAY, midnight) == SlotFacts(
        "2016-11-24", "2016-11-24T00:00:00-06:00", "2016-11-25T00:00:00-06:00"
    )


def test_a_day_without_midnight_starts_when_clocks_show_it() -> None:
    period = Period(date(2018, 11, 1), date(2018, 11, 30), "America/Sao_Paulo")
    start = int(datetime(2018, 11, 4, 3, tzinfo=UTC).timestamp())
    assert facts_of(SlotKind.DAY, start, period) == SlotFacts(
        "2018-11-04", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"
    )


def test_calendar_hours_are_labelled_with_their_offset() -> None:
    hour = int(datetime(2016, 11, 24, 14, tzinfo=UTC).timestamp())
    assert facts_of(SlotKind.CALENDAR_HOUR, hour) == SlotFacts(
        "2016-11-24 08:00 -06:00", "2016-11-24T08:00:00-06:00", "2016-11-24T09:00:00-06:00"
    )


def test_both_halves_of_a_repeated_hour_have_their_own_end() -> None:
    period = Period(date(2016, 4, 1), date(2016, 4, 30), "Australia/Lord_Howe")
    first = int(datetime(2016, 4, 2, 14, tzinfo=UTC).timestamp())
    assert facts_of(SlotKind.CALENDAR_HOUR, first, period) == SlotFacts(
        "2016-04-03 01:00 +11:00", "2016-04-03T01:00:00+11:00", "2016-04-03T01:30:00+10:30"
    )
    assert facts_of(SlotKind.CALENDAR_HOUR, first + 3600, period) == SlotFacts(
        "2016-04-03 01:30 +10:30", "2016-04-03T01:30:00+10:30", "2016-04-03T02:00:00+10:30"
    )


@settings(max_examples=examples(60))
@given(
    zone=st.sampled_from(ZONES),
    instant=st.datetimes(datetime(1975, 1, 1), datetime(2045, 1, 1), timezones=st.just(UTC)),
    kind=st.sampled_from([SlotKind.DAY, SlotKind.CALENDAR_HOUR]),
)
def test_every_instant_lies_between_its_slots_start_and_end(
    zone: str, instant: datetime, kind: SlotKind
) -> None:
    slots = slots_of(np.array([microseconds(instant)]), kind, zone)
    period = Period(instant.date(), instant.date(), zone)
    facts = slot_facts(slots, kind, period)[int(slots[0])]
    assert facts.start is not None
    assert facts.end is not None
    start, end = datetime.fromisoformat(facts.start), datetime.fromisoformat(facts.end)
    assert start <= instant < end
    assert start.timestamp() == slots[0]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (SlotKind.WHOLE_PERIOD, 1),
        (SlotKind.HOUR_OF_DAY, 24),
        (SlotKind.HOUR_OF_DAY, -1),
        (SlotKind.WEEKDAY_WEEKEND_HOUR, 48),
        (SlotKind.WEEKDAY, 7),
        (SlotKind.DAY_PART, 5),
        (SlotKind.DAY, 1479967201),
        (SlotKind.CALENDAR_HOUR, 1479967201),
    ],
)
def test_numbers_that_are_no_slots_are_refused(kind: SlotKind, number: int) -> None:
    with pytest.raises(UsageError, match="slot number"):
        facts_of(kind, number)
