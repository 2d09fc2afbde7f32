from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.read import READERS, choose_source, read_file, require_kept_rows, wrong_unit
from trafficdp.ingest.report import Extent, FileReport, extent_in_words
from trafficdp.model import FORMATS, NeighbouringRelation, SourceDeclaration, SpeedUnit, StudyArea, UnitPeriod

MS, MPH = SpeedUnit.METRES_PER_SECOND, SpeedUnit.MILES_PER_HOUR


def test_there_is_a_reader_for_every_format():
    assert set(READERS) == set(FORMATS)


def test_the_first_source_whose_pattern_matches_the_name_is_chosen(source):
    old = replace(source, name="old", files=("2015-*.csv", "2015-*.csv.gz"))
    new = replace(source, name="new", files=("201?-*.csv.gz",))
    assert choose_source(Path("2015-old/2015-03-07.csv.gz"), [old, new]).name == "old"
    assert choose_source(Path("2015-old/2016-03-07.csv.gz"), [old, new]).name == "new"


def test_a_file_that_no_source_reads_is_refused_with_the_patterns(source, tmp_path):
    there = tmp_path / "2015.csv"
    there.touch()
    declared = [replace(source, name="a", files=("x*", "y*")), replace(source, name="b", files=("z?",))]
    with pytest.raises(DataError, match=r"reads 2015\.csv; .* a: x\*, y\*; b: z\?"):
        choose_source(there, declared)
    with pytest.raises(DataError, match="at least one declared source"):
        choose_source(there, [])
    with pytest.raises(DataError, match=r"there is no file .*2016\.csv; correct its name"):
        choose_source(tmp_path / "2016.csv", declared)


def test_an_unknown_format_is_refused(reader):
    with pytest.raises(ConfigError, match="unknown format"):
        reader.rows("A", format="shapefile")


def test_the_report_names_the_file_and_its_source_and_the_digest_is_under_the_key(reader, key):
    result = reader.rows("A1,2020-11-28T12:00:00+05:30,21.2,72.8,30")
    content = (reader.folder / "day.csv").read_bytes()
    assert result.report.file == "day.csv"
    plain = hashlib.sha256(content).hexdigest()
    assert result.digest == key.digest(plain) != plain
    assert plain not in result.report.to_json()
    assert result.report.source == "city"


def test_reading_twice_gives_the_same(reader):
    row = "A1,2020-11-28T12:00:00+05:30,21.2,72.8,30"
    first, second = reader.rows(row), reader.rows(row)
    assert first.fixes.table.equals(second.fixes.table)
    assert first.report == second.report


# The real feeds: README of the folder that TRAFFICDP_REAL_DATA names.

AUSTIN = {
    "2015-03-07": (44_564, {"duplicate_in_file": 139}),
    "2015-03-08": (12_354, {"duplicate_in_file": 6}),
    "2015-03-18": (19_690, {"zero_position": 53}),
    "2015-03-19": (18_131, {}),
    "2016-11-24": (24_490, {}),
    "2016-11-25": (32_038, {}),
    "2016-11-26": (33_140, {}),
    "2016-11-27": (25_420, {}),
    "2017-03-16": (36_271, {"zero_position": 2, "sentinel_speed": 8}),
    "2017-03-21": (45_386, {"zero_position": 3, "sentinel_speed": 5, "duplicate_in_file": 1}),
}


@pytest.fixture(scope="module")
def feeds() -> Path:
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        pytest.skip("TRAFFICDP_REAL_DATA is not set: it names the folder of the real feeds")
    return Path(folder)


@pytest.fixture
def austin() -> SourceDeclaration:
    return SourceDeclaration(
        name="capmetro",
        format="csv",
        files=("*.csv.gz",),
        units=(UnitPeriod(MPH, last=date(2015, 12, 31)), UnitPeriod(MS, first=date(2016, 1, 1))),
        columns={
            "vehicle": "vehicle_id",
            "time": "timestamp",
            "latitude": "latitude",
            "longitude": "longitude",
            "speed": "speed",
        },
        sentinels=(Decimal("113.9952"),),
    )


AUSTIN_AREA = StudyArea.from_bbox(-98.2, 29.9, -97.3, 30.8)


@pytest.mark.real
@pytest.mark.parametrize("day", AUSTIN)
def test_austin_is_read_as_it_lies_there(feeds, austin, key, day):
    report = read_file(feeds / "capmetro" / f"{day}.csv.gz", austin, AUSTIN_AREA, key).report
    assert (report.rows_in, report.rejected) == AUSTIN[day]
    assert [finding.verdict for finding in report.lint] == ["pass"]


@pytest.mark.real
@pytest.mark.parametrize("day", AUSTIN)
def test_austin_in_the_wrong_unit_is_told(feeds, austin, key, day):
    wrong, right = ("m/s", "mph") if day.startswith("2015") else ("mph", "m/s")
    units = (UnitPeriod(MS if wrong == "m/s" else MPH),)
    path, source = feeds / "capmetro" / f"{day}.csv.gz", replace(austin, units=units)
    (finding,) = read_file(path, source, AUSTIN_AREA, key).report.lint
    assert (finding.verdict, finding.fitting_unit.label) == ("wrong", right)
    said = wrong_unit(path.name, source.name, finding)
    assert said.startswith(f"speeds of {day}.csv.gz do not look like {wrong}, ")
    assert said.endswith(f"; {right} would fit")


@pytest.mark.real
def test_washington_is_read_as_it_lies_there(feeds, key):
    source = SourceDeclaration("wmata", "gtfs_rt_csv", ("*",), (UnitPeriod(MS),))
    area = StudyArea.from_bbox(-77.3, 38.7, -76.8, 39.1)
    result = read_file(feeds / "wmata/vehicle_positions_2026-02-16.csv.gz", source, area, key)
    assert (result.report.rows_in, result.report.rows_kept) == (20_777, 20_777)
    assert len(result.fixes.table.column("vehicle").unique()) == 31
    assert [finding.verdict for finding in result.report.lint] == ["pass"]


def report(**rejected):
    kept = rejected.pop("kept", 0)
    return FileReport("a.csv", "city", kept + sum(rejected.values()), kept, rejected)


def refused(facts, source, **changes):
    with pytest.raises(DataError) as caught:
        require_kept_rows(facts, replace(source, **changes), NeighbouringRelation.REPLACE_USER_VALUES)
    return str(caught.value)


def test_a_file_of_which_no_row_is_kept_is_refused_with_the_commonest_reason_and_its_column(source):
    said = refused(report(outside_area=3, missing_speed=2), source)
    assert "no row of a.csv can be kept; got 0 of 5 rows; most often outside_area, columns lat, lng" in said
    assert "column v: there is no speed" in refused(report(missing_speed=4, outside_area=3), source)
    assert "most often malformed_row: the row has" in refused(report(malformed_row=1), source)
    points = {"vehicle": "plate", "time": "when", "geometry": "place", "speed": "v"}
    assert "missing_position, column place" in refused(report(missing_position=1), source, columns=points)


def test_a_refusal_says_of_which_days_the_rows_are(source):
    days, relation = "2025-09-13", NeighbouringRelation.REPLACE_USER_VALUES
    with pytest.raises(DataError, match=r"declares \(the rows are of 2025-09-13\)"):
        require_kept_rows(report(outside_period=3, missing_speed=1), source, relation, days)
    with pytest.raises(DataError) as caught:
        require_kept_rows(report(outside_area=3), source, relation, days)
    assert days not in str(caught.value)
    extent = Extent(72.7001, 21, 72.7049, 21.5, 1_606_600_000_000_000, 1_606_600_000_000_000)
    assert extent_in_words(extent, "Asia/Kolkata") == {
        "longitude": "72.70",
        "latitude": "21.00 to 21.50",
        "days": "2020-11-29",
    }


def test_speeds_of_snapshots_are_found_in_files_read_together(source):
    assert 'set missing_speed = "derive"' in refused(report(missing_speed=1), source)
    said = refused(report(missing_speed=1), source, missing_speed="derive")
    assert "ingest those of a day together" in said


def test_too_few_kept_rows_are_refused_only_below_min_kept(source):
    facts = report(kept=3, zero_position=2)
    said = refused(facts, source, min_kept=Fraction(61, 100))
    assert "too few rows of a.csv can be kept; got 3 of 5 rows; most often zero_position" in said
    assert "expected a share of 0.61 at least" in said
    for share in (Fraction(0), Fraction(3, 5)):
        accepted = replace(source, min_kept=share)
        require_kept_rows(facts, accepted, NeighbouringRelation.REPLACE_USER_VALUES)


def test_rows_that_repeat_one_that_is_kept_and_files_without_rows_are_no_reason(source):
    everything = replace(source, min_kept=Fraction(1))
    for facts in (report(kept=1, duplicate_in_file=9), report()):
        require_kept_rows(facts, everything, NeighbouringRelation.REPLACE_USER_VALUES)
    refused(report(kept=1, ambiguous_local_time=1), everything)


TELEMETRY = {"format": "mds", "columns": {}}
HEAD = "plate,when,lat,lng,v"
NO_ROWS = pa.table({name: pa.array([], pa.string()) for name in HEAD.split(",")})


@pytest.mark.parametrize(
    ("content", "rejected", "changes"),
    [
        (HEAD, {}, {}),
        (f"{HEAD}\n", {}, {}),
        (f"{HEAD}\nA1\nB,C,D,E,F,G\n", {"malformed_row": 2}, {}),
        (f"{HEAD}\nA1,never,21.2,72.8,30\n", {"unreadable_time": 1}, {}),
        ('{"telemetry": []}', {}, TELEMETRY),
        ('[{"device_id": "a"}]', {"unreadable_time": 1}, TELEMETRY),
        (NO_ROWS, {}, {}),
    ],
)
def test_rows_are_no_reason_where_nothing_about_a_vehicle_is_public(reader, content, rejected, changes):
    given = reader.write(content) if isinstance(content, str) else content
    with pytest.raises(DataError):
        reader.file(given, **changes)
    found = reader.file(given, refuse_by_rows=False, **changes)
    assert found.report.rejected == rejected
    assert len(found.fixes) == 0


def test_a_table_without_rows_hides_none_of_the_next(reader):
    package = {"resources": [{"name": "vehicle_locations", "path": ["a.csv", "b.csv"]}]}
    head = "vehicle_id,event_timestamp,latitude,longitude,speed\n"
    reader.write(head, "a.csv")
    reader.write(f"{head}A1,2020-11-28T12:00:00Z,21.2,72.8,3\n", "b.csv")
    path = reader.write(json.dumps(package), "package.json")
    assert len(reader.file(path, refuse_by_rows=False, format="tides", columns={}).fixes) == 1


def test_a_parquet_file_without_rows_is_one_where_nothing_about_a_vehicle_is_public(reader, tmp_path):
    path = tmp_path / "day.parquet"
    pyarrow.parquet.write_table(NO_ROWS, path)
    assert reader.file(path, refuse_by_rows=False, format="parquet").report.rows_in == 0


def test_a_relation_whose_counts_are_no_public_fact_refuses_nothing_by_them(source):
    everything = replace(source, min_kept=Fraction(1))
    require_kept_rows(report(outside_area=3), everything, NeighbouringRelation.ADD_OR_REMOVE_USER)
