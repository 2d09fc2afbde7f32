from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.ingest.clean import SATURATION, UnitCheck, clean
from trafficdp.ingest.read import Reading, require_kept_rows
from trafficdp.ingest.report import RULES, Extents, with_few_rows_kept
from trafficdp.ingest.times import Records, text_to_times
from trafficdp.model import NeighbouringRelation, Period, SourceDeclaration, SpeedUnit, UnitPeriod

NOON = "2020-11-28T12:00:00+05:30"
GOOD = f"GJ05,{NOON},21.2,72.8,30"


def centi(result):
    return result.fixes.table.column("speed_centi").to_pylist()


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (f",{NOON},21.2,72.8,30", "missing_vehicle"),
        (f"NULL,{NOON},21.2,72.8,30", "missing_vehicle"),
        ("A,yesterday,21.2,72.8,30", "unreadable_time"),
        (f"A,{NOON},,72.8,30", "missing_position"),
        (f"A,{NOON},21.2,east,30", "missing_position"),
        (f"A,{NOON},NaN,72.8,30", "missing_position"),
        (f"A,{NOON},95,72.8,30", "position_off_globe"),
        (f"A,{NOON},21.2,2000,30", "position_off_globe"),
        (f"A,{NOON},0,0.0,30", "zero_position"),
        (f"A,{NOON},-0.0,0,30", "zero_position"),
        (f"A,{NOON},21.2,0,30", "outside_area"),
        (f"A,{NOON},72.8,21.2,30", "outside_area"),
        (f"A,{NOON},21.2,72.8,", "missing_speed"),
        (f"A,{NOON},21.2,72.8,NA", "missing_speed"),
        (f"A,{NOON},21.2,72.8,fast", "unreadable_speed"),
        (f"A,{NOON},21.2,72.8,nan", "unreadable_speed"),
        (f"A,{NOON},21.2,72.8,inf", "unreadable_speed"),
        (f"A,{NOON},21.2,72.8,255", "sentinel_speed"),
        (f"A,{NOON},21.2,72.8,254.996", "sentinel_speed"),
        ("gj-05,2020-11-28T06:30:00Z,21.3,72.9,99", "duplicate_in_file"),
        (f"A,{NOON},21.2,72.8,30,surplus", "malformed_row"),
        (f"A,{NOON},21.2", "malformed_row"),
    ],
)
def test_a_bad_row_counts_under_its_rule_and_the_good_one_stays(reader, row, rule):
    result = reader.rows(GOOD, row)
    assert result.report.rejected == {rule: 1}
    assert (result.report.rows_in, result.report.rows_kept) == (2, 1)
    assert centi(result) == [3000]


@pytest.mark.parametrize(
    ("speed", "kept"),
    [
        ("-5", -500),
        ("1000", 100_000),
        ("0", 0),
        ("254.98", 25_498),
        ("1e300", SATURATION),
        ("-1e300", -SATURATION),
        ("0.125", 12),
        ("0.375", 38),
    ],
)
def test_no_record_is_dropped_or_clipped_for_its_speed(reader, speed, kept):
    assert centi(reader.rows(f"A,{NOON},21.2,72.8,{speed}")) == [kept]


def test_a_sentinel_is_found_in_the_sources_unit_with_the_error_of_its_conversion(reader):
    sentinels = (Decimal("113.9952"),)
    units = (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
    rows = [f"A{i},{NOON},21.2,72.8,{v}" for i, v in enumerate(["113.9952", "113.99520111", "114.01", "255"])]
    result = reader.rows(*rows, sentinels=sentinels, units=units)
    assert result.report.rejected == {"sentinel_speed": 2}
    assert centi(result) == [11_401, 25_500]


def test_the_first_of_a_repeat_stays_and_rows_keep_their_order(reader):
    rows = [
        f"B,{NOON},21.2,72.8,3",
        f"A,{NOON},21.2,72.8,1",
        f"A,{NOON},21.3,72.8,2",
        f"C,{NOON},21.2,72.8,0",
    ]
    assert centi(reader.rows(*rows)) == [300, 100, 0]


def test_a_row_without_a_speed_does_not_displace_its_repeat_that_has_one(reader):
    result = reader.rows(f"A,{NOON},21.2,72.8,", f"A,{NOON},21.2,72.8,7")
    assert result.report.rejected == {"missing_speed": 1}
    assert centi(result) == [700]


def test_the_unit_follows_the_utc_date_of_the_record(reader):
    units = (
        UnitPeriod(SpeedUnit.MILES_PER_HOUR, last=date(2015, 12, 31)),
        UnitPeriod(SpeedUnit.METRES_PER_SECOND, first=date(2016, 1, 2), last=date(2016, 1, 3)),
    )
    times = [
        "2016-01-01T05:00:00+05:30",  # 2015-12-31 in UTC
        "2016-01-01T06:00:00+05:30",
        "2016-01-02T00:00:00Z",
        "2016-01-03T23:59:59.999999Z",
        "2016-01-04T00:00:00Z",
    ]
    result = reader.rows(*(f"A,{time},21.2,72.8,1" for time in times), units=units)
    assert result.fixes.table.column("speed_unit").to_pylist() == ["mph", "ms", "ms"]
    assert result.report.rejected == {"no_unit_declared": 2}


def test_missing_speeds_are_derived_and_flagged_in_the_declared_unit(reader, stretch):
    rows = [row.removesuffix("None") for row in stretch(4, true=10, said=None)]
    result = reader.rows(*rows, missing_speed="derive")
    assert centi(result) == [3600, 3600, 3600]
    assert result.fixes.table.column("derived").to_pylist() == [True] * 3
    assert result.report.derived == 3
    assert result.report.rejected == {"missing_speed": 1}
    assert result.report.lint == ()


def test_sentinels_are_derived_like_missing_speeds_and_reported_speeds_stay(reader, stretch):
    reported, sentinel = stretch(2, true=10, said=20)[0], stretch(2, true=10, said=255)[1]
    result = reader.rows(reported, sentinel, missing_speed="derive")
    assert centi(result) == [2000, 3600]
    assert result.fixes.table.column("derived").to_pylist() == [False, True]


def test_a_derived_speed_uses_no_other_vehicle(reader):
    rows = ["A,2020-11-28T06:00:00Z,21.2,72.8,", "B,2020-11-28T06:00:10Z,21.3,72.8,"]
    assert reader.rows(*rows, missing_speed="derive").report.rejected == {"missing_speed": 2}


def test_a_source_without_a_speed_column_may_derive(reader, stretch, source):
    rows = [row.rsplit(",", 1)[0] for row in stretch(3, true=10, said=0)]
    columns = {name: column for name, column in source.columns.items() if name != "speed"}
    result = reader.csv("\n".join(["plate,when,lat,lng", *rows]), columns=columns, missing_speed="derive")
    assert centi(result) == [3600, 3600]


def test_spellings_of_a_plate_are_one_vehicle_and_no_plate_is_kept(reader):
    rows = ["gj-05 bx,2020-11-28T06:00:00Z,21.2,72.8,1", "GJ05BX,2020-11-28T07:00:00Z,21.2,72.8,1"]
    result = reader.rows(*rows)
    vehicles = result.fixes.table.column("vehicle").to_pylist()
    assert vehicles[0] == vehicles[1]
    assert len(vehicles[0]) == 32
    assert "GJ05BX" not in repr(result) + repr(result.fixes) + result.report.to_json()


AUTUMN = {"time_zone": "America/Chicago"}
"""On 2016-11-06 the clock of Chicago went back from 2:00 to 1:00."""


def autumn(clocks, vehicle="A", speed="1"):
    return [f"{vehicle},2016-11-06T{clock}:00,21.2,72.8,{speed}" for clock in clocks]


def minutes(result):
    """Minutes after midnight UTC of the rows that were kept."""
    midnight = datetime(2016, 11, 6, tzinfo=UTC).timestamp()
    return [(time / 1e6 - midnight) / 60 for time in result.fixes.table["time_us"].to_pylist()]


def test_the_order_of_a_vehicles_records_tells_the_two_showings_of_an_hour(reader):
    clocks = ["00:50", "01:00", "01:30", "01:59", "01:00", "01:30", "01:30", "01:59", "02:00"]
    result = reader.rows(*autumn(clocks), **AUTUMN)
    assert minutes(result) == [350, 360, 390, 419, 420, 450, 479, 480]
    assert result.report.rejected == {"duplicate_in_file": 1}


UNDECIDED = {
    "one showing": ["00:59", "01:00", "01:59", "02:00"],
    "sorted by the clock": ["01:00", "01:00", "01:30", "01:30"],
    "two rows out of order": ["01:10", "01:20", "01:19", "01:30"],
    "out of order and back": ["01:10", "01:20", "01:19", "01:58", "01:00"],
    "back twice": ["01:00", "01:59", "01:00", "01:59", "01:00"],
    "torn by a later hour": ["01:59", "02:30", "01:00"],
}


@pytest.mark.parametrize("case", UNDECIDED)
def test_where_the_order_does_not_tell_times_of_a_repeated_hour_are_rejected(reader, case):
    clocks = UNDECIDED[case]
    ambiguous = sum(clock.startswith("01") for clock in clocks)
    result = reader.rows(*autumn(clocks), *autumn(["01:40"], "B"), *autumn(["12:00"], "C"), **AUTUMN)
    assert result.report.rejected == {"ambiguous_local_time": ambiguous + 1}
    stated = [row.replace(":00,21", ":00-05:00,21") for row in autumn(["01:10", "01:20"])]
    assert reader.rows(*stated, **AUTUMN).report.rejected == {}


def test_vehicles_are_told_apart_each_by_its_own_records(reader):
    first, second = autumn(["01:50", "01:10"]), autumn(["01:10", "01:50"], "B")
    mixed = [first[0], second[0], first[1], second[1]]
    result = reader.rows(*mixed, **AUTUMN)
    assert result.report.rejected == {"ambiguous_local_time": 2}
    assert minutes(result) == [410, 430]
    assert minutes(reader.rows(*first, **AUTUMN)) == [410, 430]


def test_half_an_hour_may_be_repeated_too(reader):
    """On 2020-04-05 the clock of Lord Howe went back from 2:00 to 1:30."""
    rows = [f"A,2020-04-05T01:{minute}:00,21.2,72.8,1" for minute in ("29", "31", "59", "31", "59")]
    result = reader.rows(*rows, time_zone="Australia/Lord_Howe")
    steps = [b - a for a, b in itertools.pairwise(result.fixes.table["time_us"].to_pylist())]
    assert [step // 60_000_000 for step in steps] == [2, 28, 2, 28]


def test_what_was_told_apart_is_counted_for_the_curator(reader, source):
    path = reader.write("\n".join(["plate,when,lat,lng,v", *autumn(["01:59", "01:00", "02:00"])]))
    reading = Reading(path, replace(source, **AUTUMN), reader.area, reader.key)
    list(reading.parts())
    assert reading.extents.noted["repeated_hour"] == 2


def test_speeds_are_derived_across_the_two_showings_once_they_are_told_apart(reader):
    rows = autumn(["01:58", "01:59", "01:00", "01:01"], speed="")
    result = reader.rows(*rows, missing_speed="derive", **AUTUMN)
    assert result.report.rejected == {"missing_speed": 1}
    assert minutes(result) == [419, 420, 421]


def test_a_time_that_the_clock_skips_has_a_rule_of_its_own(reader):
    rows = ["A,2016-03-13T02:30:00,21.2,72.8,1", "A,2016-03-13T03:00:00,21.2,72.8,1"]
    assert reader.rows(*rows, **AUTUMN).report.rejected == {"skipped_local_time": 1}


@pytest.mark.parametrize("year", ["9999", "0001", "1677", "2262"])
def test_a_year_that_nobody_means_is_outside_the_period(reader, year):
    row = f"A,{year}-06-01T12:00:00Z,21.2,72.8,1"
    assert reader.rows(GOOD, row).report.rejected == {"outside_period": 1}
    assert reader.rows(GOOD, row.replace("Z", ""), **AUTUMN).report.rejected == {"outside_period": 1}
    assert reader.rows(GOOD, row.replace("-06-", "-66-")).report.rejected


row = st.tuples(
    st.sampled_from(["A", "a ", "B", "", "NA", "007"]),
    st.sampled_from(["2020-11-28T06:00:00Z", "2020-11-28T06:00:30+05:30", "never", ""]),
    st.sampled_from(["21.2", "21.3", "0", "", "95", "-21", "nan", "x"]),
    st.sampled_from(["72.8", "72.9", "0", "", "200", "x"]),
    st.sampled_from(["1", "0", "-3", "255", "1e400", "", "nan", "word", "NA"]) | st.floats().map(str),
)


@pytest.mark.slow
@given(st.lists(row, min_size=1, max_size=40), st.sampled_from(["reject", "derive"]))
@settings(max_examples=examples(150))
def test_rows_in_are_rows_kept_and_rows_rejected(area, key, rows, missing_speed):
    source = SourceDeclaration(
        "city", "csv", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),), sentinels=(Decimal(255),)
    )
    vehicle, time, *numbers = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    records = Records.from_text(vehicle, text_to_times(time, "iso8601", None), *numbers)
    cleaned = clean(records, replace(source, missing_speed=missing_speed), area, key, UnitCheck())
    assert set(cleaned.rejected) <= set(RULES)
    assert all(count > 0 for count in cleaned.rejected.values())
    (file,) = cleaned.files
    assert len(rows) == file.kept + sum(file.rejected.values())
    assert file.derived <= file.kept == len(cleaned.fixes)
    pairs = list(
        zip(*(cleaned.fixes.table.column(c).to_pylist() for c in ("vehicle", "time_us")), strict=True)
    )
    assert len(set(pairs)) == len(pairs)


INDIA = Period(date(2020, 11, 28), date(2020, 11, 29), "Asia/Kolkata")


@pytest.mark.parametrize(
    ("time", "kept"),
    [
        ("2020-11-27T23:59:59.999999+05:30", False),
        ("2020-11-28T00:00:00+05:30", True),
        ("2020-11-29T23:59:59.999999+05:30", True),
        ("2020-11-29T18:30:00Z", False),
        ("2062-11-28T12:00:00+05:30", False),
        ("1980-01-06T00:00:00Z", False),
    ],
)
def test_a_day_outside_the_period_has_a_reason_of_its_own(reader, time, kept):
    report = reader.reading(f"A,{time},21.2,72.8,30", f"B,{NOON},21.2,72.8,30", period=INDIA).report
    assert report.rejected == ({} if kept else {"outside_period": 1})
    assert report.rows_kept == 1 + kept
    assert reader.reading(f"A,{time},21.2,72.8,30").report.rejected == {}


def test_the_place_is_looked_at_before_the_day_and_the_day_before_the_speed(reader):
    late = "2062-11-28T12:00:00+05:30"
    rows = [f"A,{late},1.2,72.8,30", f"B,{late},21.2,72.8,", f"C,{late},21.2,72.8,30"]
    assert reader.reading(*rows, period=INDIA).report.rejected == {"outside_area": 1, "outside_period": 2}


def test_a_file_of_other_days_is_no_error_and_little_of_it_is_kept(reader, source):
    report = reader.reading("A,2062-11-28T12:00:00+05:30,21.2,72.8,30", period=INDIA).report
    require_kept_rows(report, source, NeighbouringRelation.REPLACE_USER_VALUES)
    assert with_few_rows_kept([report]) == [report]
    assert report.commonest_reason == "outside_period"


def test_how_far_rows_reach_is_said_of_those_with_a_place_and_a_time_and_of_those_that_are_kept(reader):
    reading = reader.reading(
        "A,2020-11-28T00:10:00+05:30,21.2,72.8,30",
        "B,2020-11-29T12:00:00+05:30,21.0,72.9,30",
        f"C,{NOON},72.7,21.3,30",
        f"D,{NOON},0,0,30",
        f"E,{NOON},99,72.8,30",
        "F,2062-11-29T12:00:00+05:30,21.4,73.0,30",
        "G,never,21.4,73.1,30",
        period=INDIA,
    )
    found = reading.extents
    assert found.kept is not None
    assert found.readable is not None
    assert (found.kept.west, found.kept.south, found.kept.east, found.kept.north) == (72.8, 21.0, 72.9, 21.2)
    sides = (found.readable.west, found.readable.south, found.readable.east, found.readable.north)
    assert sides == (21.3, 21.0, 73.0, 72.7)
    assert (found.readable.first_us, found.kept.first_us) == (1606502400000000,) * 2
    assert found.readable.last_us > found.kept.last_us
    assert found.days == {date(2020, 11, 28), date(2020, 11, 29)}
    assert found.exchanged == 1


def test_nothing_reaches_nowhere(reader):
    assert reader.reading(f"D,{NOON},0,0,30", period=INDIA).extents == Extents()


def test_a_file_in_parts_reaches_as_far_as_in_one(reader, monkeypatch, tmp_path):
    rows = [f"A{i},2020-11-28T12:{i:02}:00+05:30,21.{i},72.8,30" for i in range(50)]
    whole = reader.reading(*rows, period=INDIA).extents
    monkeypatch.setattr("trafficdp.ingest.vehicle_key.ROWS_AT_ONCE", 7)
    reading = Reading(reader.folder / "day.csv", reader.source, reader.area, reader.key, period=INDIA)
    assert len(list(reading.parts(tmp_path))) > 1
    assert reading.extents == whole


def test_no_extent_is_written_into_a_report(reader):
    """An end is the place of one record: what is kept beside the records must not outlive them."""
    report = reader.reading(f"A,{NOON},21.23456,72.8,30", period=INDIA).report
    assert "21.2" not in report.to_json()
