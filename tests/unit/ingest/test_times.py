from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import ConfigError
from trafficdp.ingest.times import numeric_to_times, text_to_times, timestamps_to_times


def read(texts, time_format="iso8601", time_zone=None):
    times, readable, *_ = text_to_times(pa.array(texts, pa.string()), time_format, time_zone)
    return [int(time) if ok else None for time, ok in zip(times, readable, strict=True)]


def micro(*parts, zone=UTC, fold=0):
    instant = datetime(*parts, tzinfo=zone, fold=fold)
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_offsets_may_differ_from_row_to_row():
    assert read(["2015-03-07T10:03:34-06:00", "2015-03-08T10:03:34-05:00", "2015-03-07T10:03:34Z"]) == [
        micro(2015, 3, 7, 16, 3, 34),
        micro(2015, 3, 8, 15, 3, 34),
        micro(2015, 3, 7, 10, 3, 34),
    ]


def test_an_offset_wins_over_the_declared_zone():
    assert read(["2015-03-07T10:00:00+05:30"], time_zone="America/Chicago") == [micro(2015, 3, 7, 4, 30)]


def test_naive_times_need_a_declared_zone():
    assert read(["2015-07-07 10:00:00"]) == [None]
    assert read(["2015-07-07 10:00:00"], time_zone="America/Chicago") == [micro(2015, 7, 7, 15)]


def test_a_repeated_hour_is_its_first_and_a_skipped_hour_is_unreadable():
    chicago = ZoneInfo("America/Chicago")
    texts = ["2016-11-06T01:30:00", "2016-03-13T02:30:00", "2016-03-13T03:00:00"]
    assert read(texts, time_zone="America/Chicago") == [
        micro(2016, 11, 6, 1, 30, zone=chicago, fold=0),
        None,
        micro(2016, 3, 13, 3, 0, zone=chicago),
    ]


def test_the_first_of_a_repeated_hour_is_meant_where_winter_is_the_exception():
    dublin = ZoneInfo("Europe/Dublin")
    assert read(["2020-10-25T01:30:00"], time_zone="Europe/Dublin") == [
        micro(2020, 10, 25, 1, 30, zone=dublin)
    ]


@pytest.mark.parametrize(
    "text",
    ["", None, "soon", "2015-03-07", "2015", "2015-13-07T10:00:00Z", "2015-02-30T10:00:00Z", "10:00:00Z",
     "2015-03-07T25:00:00Z", "20150307", "2015-03-07T10:00:00 America/Chicago", "1425722614"],
)  # fmt: skip
def test_what_is_no_date_with_a_time_of_day_is_unreadable(text):
    assert read([text, "2015-03-07T10:00:00Z"], time_zone="UTC") == [None, micro(2015, 3, 7, 10)]


def test_epochs_are_read_with_fractions_and_text_or_number():
    assert read(["1771257515", "1771257515.25", "x", "NaN"], "epoch_s") == [
        1771257515_000000,
        1771257515_250000,
        None,
        None,
    ]
    assert read(["1606555329123"], "epoch_ms") == [1606555329_123000]
    assert read(["1606555329123456"], "epoch_us") == [1606555329_123456]
    times, readable, *_ = numeric_to_times(pa.array([1606555329123, None]), "epoch_ms")
    assert readable.tolist() == [True, False]
    assert times[0] == 1606555329_123000
    assert not numeric_to_times(pa.array([1606555329]), "iso8601")[1].any()


def test_seconds_declared_as_milliseconds_and_the_reverse_are_unreadable():
    assert read(["1771257515"], "epoch_ms") == [None]
    assert read(["1771257515000"], "epoch_s") == [None]
    assert read(["0", "-5", "1e308", "-1e308"], "epoch_s") == [None] * 4


def test_patterns_of_strptime_are_read():
    assert read(["28/11/2020 14:42:09", "2020"], "%d/%m/%Y %H:%M:%S", "Asia/Kolkata") == [
        micro(2020, 11, 28, 9, 12, 9),
        None,
    ]
    assert read(["28/11/2020 14:42:09 +0530"], "%d/%m/%Y %H:%M:%S %z") == [micro(2020, 11, 28, 9, 12, 9)]
    assert read(["28/11/2020 14:42:09"], "%d/%m/%Y %H:%M:%S") == [None]


def test_an_unknown_pattern_and_an_unknown_zone_are_config_errors():
    with pytest.raises(ConfigError, match="time_format"):
        read(["1"], "%Q", "UTC")
    with pytest.raises(ConfigError, match="time zone"):
        read(["2015-03-07T10:00:00"], time_zone="Mars/Olympus")


def test_arrow_timestamps_keep_their_zone_or_take_the_declared_one():
    instant = datetime(2015, 7, 7, 10)
    aware = pa.array([instant, None], pa.timestamp("ns", tz="America/Chicago"))
    naive = pa.array([instant, None], pa.timestamp("s"))
    assert timestamps_to_times(aware, None)[0][0] == micro(2015, 7, 7, 10)
    assert timestamps_to_times(aware, None)[1].tolist() == [True, False]
    assert timestamps_to_times(naive, "America/Chicago")[0][0] == micro(2015, 7, 7, 15)
    assert not timestamps_to_times(naive, None)[1].any()


@pytest.mark.slow
@given(
    st.lists(
        st.datetimes(
            datetime(1700, 1, 1),
            datetime(2200, 1, 1),
            timezones=st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m))),
        )
    )
)
def test_every_instant_survives_its_iso_text(instants):
    expected = [(i - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for i in instants]
    assert read([i.isoformat() for i in instants]) == expected


@pytest.mark.slow
@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from(["America/Chicago", "Europe/Dublin"]),
)
def test_local_times_agree_with_zoneinfo(clock, zone):
    # a clock that shows an hour twice means the first
    there = clock.replace(tzinfo=ZoneInfo(zone), fold=0)
    exists = there.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == clock
    expected = (there - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) if exists else None
    assert read([clock.isoformat()], time_zone=zone) == [expected]


@pytest.mark.slow
@given(
    st.lists(
        st.text(max_size=25)
        | st.from_regex(
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}", fullmatch=True
        )
    )
)
def test_no_text_breaks_the_parser(texts):
    for time_format in ("iso8601", "epoch_s", "epoch_ms", "%d/%m/%Y"):
        assert len(read(texts, time_format, "UTC")) == len(texts)


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Kolkata"])
def test_instants_outside_the_years_1678_to_2261_are_unreadable(zone):
    ends = ["9999-12-31T23:59:59", "2261-12-31T23:59:59", "1678-01-01T00:00:00", "0001-01-01T00:00:00"]
    assert read(ends, time_zone=zone) == [None] * 4
    assert read(["31/12/9999 23:59:59"], "%d/%m/%Y %H:%M:%S", zone) == [None]
    naive = pa.array([datetime(9999, 12, 31, 23, 59, 59), datetime(1, 1, 1)], pa.timestamp("us"))
    assert not timestamps_to_times(naive, zone).readable.any()
    assert read(["2261-12-31T23:59:59-06:00", "1678-01-01T00:00:00+06:00"]) == [None, None]
    assert read(["2261-12-31T23:59:59Z"]) == [micro(2261, 12, 31, 23, 59, 59)]


ODD_TIMES = [
    "2020-11-28T12:00:00Z",
    "2020-11-28T12:00:00.123456789Z",
    "2300-01-01T00:00:00.5Z",
    "1677-09-21T00:12:43.145224192Z",
    "0001-01-02T00:00:00Z",
    "9999-12-31T23:59:59+99:99",
    "20201128T120000,5Z",
    "2020-10-25T02:30:00",
    "now",
    "Today",
    "NaT",
    "1606545000.5",
    "1e0001",
    "9e99",
    "28/11/2020 12:00:00",
    "28/11/2020 12:00:00.123456789",
    "28/11/2300 12:00:00.5",
    "28/11/2020 12:00:00 EST",
    "28/11/2020 12:00:00 +053015.5",
    "28/11/2020\x0012:00:00",
]


@pytest.mark.parametrize(
    "time_format",
    ["iso8601", "epoch_s", "epoch_ms", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S.%f", "%d/%m/%Y %H:%M:%S %z"],
)
def test_what_a_text_says_depends_on_no_other(time_format):
    alone = [read([text], time_format, "Europe/Berlin")[0] for text in ODD_TIMES]
    for first in range(len(ODD_TIMES)):
        turned = ODD_TIMES[first:] + ODD_TIMES[:first]
        assert read(turned, time_format, "Europe/Berlin") == alone[first:] + alone[:first]
    present = [alone[ODD_TIMES.index(word)] for word in ("now", "Today")]
    assert present == [None, None]


def test_times_of_a_repeated_hour_are_marked_where_the_text_has_no_offset():
    texts = ["2016-11-06T00:59:59", "2016-11-06T01:00:00", "2016-11-06T01:59:59", "2016-11-06T02:00:00"]
    column = pa.array([*texts, "2016-11-06T01:30:00-05:00", "2016-03-13T02:30:00", None], pa.string())
    marked = text_to_times(column, "iso8601", "America/Chicago").repeated_hour
    assert marked.tolist() == [False, True, True, False, False, False, False]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.uint64()], ids=str)
def test_texts_of_a_dictionary_are_read_whatever_numbers_it_has(kind):
    texts = pa.array(["2015-03-07T10:03:34Z", "no time"])
    times = text_to_times(
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], kind), texts), "iso8601", None
    )
    assert times.readable.tolist() == [True, False, False, True]
    assert times.time_us[0] == times.time_us[3] == micro(2015, 3, 7, 10, 3, 34)
