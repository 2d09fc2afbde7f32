from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.ingest.clean import RULES, SATURATION, Extents, clean
from trafficdp.ingest.read import Reading, require_kept_rows
from trafficdp.ingest.times import Records, TextColumns
from trafficdp.ingest.unit_check import UnitCheck
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


def test_the_second_pass_of_a_repeated_hour_is_counted_as_what_it_is(reader):
    rows = [f"A,2016-11-06T01:{minute:02}:00,21.2,72.8,1" for minute in (10, 20, 10, 30)]
    rows += ["A,2016-11-06T03:00:00,21.2,72.8,1"] * 2
    result = reader.rows(*rows, time_zone="America/Chicago")
    assert result.report.rejected == {"ambiguous_local_time": 1, "duplicate_in_file": 1}
    stated = [row.replace(":00,21", ":00-05:00,21") for row in rows]
    assert reader.rows(*stated, time_zone="America/Chicago").report.rejected == {"duplicate_in_file": 2}


def test_no_speed_is_derived_across_the_two_passes_of_a_repeated_hour(reader):
    rows = ["A,2016-11-06T01:59:00,21.2,72.8,", "A,2016-11-06T02:00:00,21.3,72.8,"]
    derive = {"missing_speed": "derive", "time_zone": "America/Chicago"}
    assert reader.rows(*rows, **derive).report.rejected == {"missing_speed": 2}
    plain = [row.replace("11-06", "11-07") for row in rows]
    assert reader.rows(*plain, **derive).report.rejected == {"missing_speed": 1}


row = st.tuples(
    st.sampled_from(["A", "a ", "B", "", "NA", "007"]),
    st.sampled_from(["2020-11-28T06:00:00Z", "2020-11-28T06:00:30+05:30", "never", ""]),
    st.sampled_from(["21.2", "21.3", "0", "", "95", "-21", "nan", "x"]),
    st.sampled_from(["72.8", "72.9", "0", "", "200", "x"]),
    st.sampled_from(["1", "0", "-3", "255", "1e400", "", "nan", "word", "NA"]) | st.floats().map(str),
)


@pytest.mark.slow
@given(st.lists(row, min_size=1, max_size=40), st.sampled_from(["reject", "derive"]), st.integers(0, 5))
@settings(max_examples=150)
def test_rows_in_are_rows_kept_and_rows_rejected(area, key, rows, missing_speed, malformed):
    source = SourceDeclaration(
        "city", "csv", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),), sentinels=(Decimal(255),)
    )
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    names = ("vehicle", "time", "latitude", "longitude", "speed")
    records = Records.from_text(
        TextColumns(**dict(zip(names, columns, strict=True))),
        time_format="iso8601",
        time_zone=None,
        malformed=malformed,
    )
    cleaned = clean(records, replace(source, missing_speed=missing_speed), area, key, UnitCheck())
    assert set(cleaned.rejected) <= set(RULES)
    assert all(count > 0 for count in cleaned.rejected.values())
    assert len(rows) + malformed == len(cleaned.fixes) + sum(cleaned.rejected.values())
    assert cleaned.derived <= len(cleaned.fixes)
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
    assert report.kept_little
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
    reading = Reading(
        reader.folder / "day.csv", reader.source, reader.area, reader.key, scratch=tmp_path, period=INDIA
    )
    assert len(list(reading.parts())) > 1
    assert reading.extents == whole


def test_no_extent_is_written_into_a_report(reader):
    """An end is the place of one record: what is kept beside the records must not outlive them."""
    report = reader.reading(f"A,{NOON},21.23456,72.8,30", period=INDIA).report
    assert "21.2" not in report.to_json()
