"""`trafficdp ingest` and the unit linter, on simulated buses and on the real feeds."""

import os
import re
from pathlib import Path

import pytest
from vienna import configuration, declaring

AUSTIN = declaring(
    """\
[[source]]
name = "capmetro"
format = "csv"
files = ["20??-??-??.csv.gz"]
speed_unit = [{ unit = "mph", to = "2015-12-31" }, { unit = "m/s", from = "2016-01-01" }]

[source.columns]
vehicle = "vehicle_id"
time = "timestamp"
latitude = "latitude"
longitude = "longitude"
speed = "speed"
""",
    "Austin",
    "America/Chicago",
    [-98.2, 29.9, -97.3, 30.8],
    "2015-03-07",
    "2017-03-21",
)
WASHINGTON = declaring(
    """\
[[source]]
name = "wmata"
format = "gtfs_rt_csv"
files = ["vehicle_positions_*.csv.gz"]
""",
    "Washington",
    "America/New_York",
    [-77.3, 38.7, -76.8, 39.1],
    "2026-02-16",
    "2026-02-16",
)
KEPT = {
    "2015-03-07.csv.gz": (44_564, 44_425, {"duplicate_in_file": 139}),
    "2015-03-08.csv.gz": (12_354, 12_348, {"duplicate_in_file": 6}),
    "2015-03-18.csv.gz": (19_690, 19_637, {"zero_position": 53}),
    "2015-03-19.csv.gz": (18_131, 18_131, {}),
    "2016-11-24.csv.gz": (24_490, 24_490, {}),
    "2016-11-25.csv.gz": (32_038, 32_038, {}),
    "2016-11-26.csv.gz": (33_140, 33_140, {}),
    "2016-11-27.csv.gz": (25_420, 25_420, {}),
    "2017-03-16.csv.gz": (36_271, 36_269, {"zero_position": 2}),
    "2017-03-21.csv.gz": (45_386, 45_382, {"zero_position": 3, "duplicate_in_file": 1}),
}


def in_mph(rows):
    """The same rows with speeds in miles an hour."""
    split = [row.rsplit(",", 1) for row in rows]
    return [f"{front},{float(speed) / 0.44704:.2f}" for front, speed in split]


def test_speeds_in_mph_declared_as_m_s_are_told_with_the_unit_that_fits(empty, feed, command):
    name = empty.write("mph.csv", in_mph(feed("2026-03-02")))
    for flags in (("--dry-run",), ()):
        result = command("ingest", *flags, name)
        assert result.code == 0
        assert "speeds of mph.csv do not look like m/s, as source buses declares" in result.err
        assert "mph would fit" in result.err
        assert "takes the file back" in result.err
    assert command("--json", "status").json["records"] == 2400


def test_the_true_declaration_passes(empty, feed, command):
    name = empty.write("mph.csv", in_mph(feed("2026-03-02")))
    empty.change('speed_unit = "m/s"\ncol', 'speed_unit = "mph"\ncol')
    (report,) = command("--json", "ingest", name).json["files"]
    assert (report["rows_in"], report["rows_kept"], report["new"]) == (2400, 2400, 2400)
    (unit,) = report["units"]
    assert (unit["unit"], unit["verdict"]) == ("mph", "pass")
    assert unit["median_ratio"] == pytest.approx(1, abs=0.02)


def test_a_file_that_was_read_before_is_said_to_be(filled, command):
    plain = command("ingest", "day1.csv.gz").out
    assert "day1.csv.gz: read before; the records of then stay as they are\n" in plain
    filled.change('files = ["*.csv", "*.csv.gz"]', 'files = ["*.csv", "*.csv.gz"]\nsentinels = [255]')
    result = command("--json", "ingest", "day1.csv.gz")
    (told,) = result.json["files"]
    assert (told["new"], told["read_before"], told["declared_otherwise"]) == (0, True, True)
    assert "read before, under another declaration of its source;" in command("ingest", "day1.csv.gz").out


def test_what_a_file_brought_is_taken_back_and_what_is_said_of_it(filled, command, refusal):
    filled.write("late.csv", ["W-1,2026-03-02T23:00:00Z,48.2,16.3,5"])
    assert command("ingest", "late.csv").code == 0
    said = command("ingest", "--undo", "elsewhere/day1.csv.gz").out
    assert "day1.csv.gz: taken back; the data has a new name\n" in said
    assert "for the curator's eyes, outside the privacy guarantee: it had brought 2,400 records\n" in said
    assert "read after it: day2.csv.gz, late.csv; records that are in day1.csv.gz too were left out" in said
    result = command("--json", "ingest", "--undo", "late.csv").json
    assert result["undone"] == [{"file": "late.csv", "records": 1, "read_later": []}]
    assert command("--json", "status").json["records"] == 2400
    assert "no file of this name is in the store; got late.csv" in refusal(2, "ingest", "--undo", "late.csv")
    for more in (["--dry-run"], ["--engine", "reduced"]):
        assert "has no other option" in refusal(2, "ingest", "--undo", *more, "day2.csv.gz")


def test_another_study_area_is_refused(filled, refusal):
    filled.change("16.20, 48.10, 16.60, 48.30", "16.20, 48.10, 16.60, 48.31")
    assert "the study area is not the one this store was filled under" in refusal(4, "ingest", "day1.csv.gz")


def test_the_table_adds_up_and_a_dry_run_shows_the_mapping(empty, command):
    said = command("ingest", "--dry-run", "day1.csv.gz", "day2.csv.gz").out
    assert "vehicle <- bus" in said
    assert "m/s" in said
    assert said.count("2,400") == 4
    assert "outside the privacy guarantee" in said
    assert "dry run: nothing was written; next: the same without --dry-run" in said
    assert command("--json", "status").json["records"] == 0
    assert "next: `trafficdp plan`" in command("ingest", "day1.csv.gz").out


def test_a_file_of_which_too_few_rows_are_kept_is_exit_4_and_registered_nowhere(empty, command, refusal):
    away = empty.write("away.csv", ["W-1,2026-03-02T06:00:00Z,40.2,16.3,5"])
    half = empty.write("half.csv", [f"W-1,2026-03-02T06:00:00Z,{lat},16.3,5" for lat in (48.2, 40.2)])
    before = empty.dump()
    for flags in ((), ("--dry-run",)):
        message = refusal(4, "ingest", *flags, half, away)
        assert "no row of away.csv can be kept; got 0 of 1 rows; most often outside_area" in message
        assert "columns lat, lng" in message
        assert "40.2" not in message
    assert empty.dump() == before
    assert command("ingest", half).code == 0
    empty.change("[[source]]", "[[source]]\nmin_kept = 0.51")
    other = empty.write("other.csv", [f"W-2,2026-03-02T06:00:00Z,{lat},16.3,5" for lat in (48.2, 40.2)])
    assert "too few rows of other.csv can be kept" in refusal(4, "ingest", "--dry-run", other)
    again = empty.write("again.csv", ["W-1,2026-03-02T06:00:00Z,48.2,16.3,7"])
    (report,) = command("--json", "ingest", again).json["files"]
    assert (report["rows_kept"], report["new"]) == (1, 0)


HIDDEN = configuration(12, "resolution = 6\nfleet = 800").replace("min_vehicles = 3\n", "")
HIDDEN = HIDDEN.replace("replace_user_values", "add_or_remove_user").replace("epsilon_per_vehicle", "epsilon")
"""Small City where nothing about a vehicle is public."""


def exchanged(rows):
    """The same rows with latitude and longitude in each other's column."""
    split = [row.split(",") for row in rows]
    return [",".join([bus, at, longitude, latitude, speed]) for bus, at, latitude, longitude, speed in split]


def row_of(table, name):
    """The cells of a printed row."""
    (line,) = [line for line in table.splitlines() if line.lstrip().startswith(name)]
    return re.split(r"\s{2,}", line.strip())


def test_what_was_kept_is_shown_beside_what_is_declared(city, write_rows, command):
    city(HIDDEN)
    result = command("ingest", write_rows("a.csv"))
    assert result.err == ""
    assert "outside the privacy guarantee" in result.out
    assert row_of(result.out, "longitude") == ["longitude", "16.2 to 16.6", *["16.30 to 16.39"] * 2]
    days = ["2026-03-02 to 2026-03-03", "2026-03-02", "2026-03-02"]
    assert row_of(result.out, "from day to day") == ["from day to day", *days]
    assert row_of(result.out, "number of days") == ["number of days", "2", "1"]
    (facts,) = command("--json", "ingest", "--dry-run", "a.csv").json["files"]
    assert facts["rows_kept_extent"] == facts["rows_in_extent"]
    assert facts["rows_kept_extent"]["longitude"] == "16.30 to 16.39"
    assert (facts["rows_kept_extent"]["days"], facts["days_kept"], facts["exchanged"]) == ("2026-03-02", 1, 0)


def test_exchanged_columns_are_said_loudly_and_change_no_exit_code(city, feed, write_rows, command):
    city(HIDDEN)
    write_rows("a.csv", exchanged(feed("2026-03-02")))
    for flags in (("--dry-run",), ()):
        result = command("ingest", *flags, "a.csv")
        assert result.code == 0
        assert "WARNING: only 0 of 2,400 rows of a.csv were kept, most often outside_area" in result.err
        assert "2,400 would lie in the study area with latitude and longitude exchanged" in result.err
        assert row_of(result.out, "latitude") == ["latitude", "48.1 to 48.3", "16.30 to 16.39", "none"]
    assert "WARNING" in command("--json", "ingest", "a.csv").err


def test_days_outside_the_period_are_said_loudly(city, feed, write_rows, command):
    city(HIDDEN)
    result = command(
        "ingest", write_rows("a.csv", [row.replace("2026", "2062") for row in feed("2026-03-02")])
    )
    assert result.code == 0
    assert "only 0 of 2,400 rows of a.csv were kept, most often outside_period: the day lies" in result.err
    days = ["2026-03-02 to 2026-03-03", "2062-03-02", "none"]
    assert row_of(result.out, "from day to day") == ["from day to day", *days]


def with_speeds(rows, speeds):
    """The same rows with other speeds, one after the other."""
    return [f"{row.rsplit(',', 1)[0]},{speeds[at % len(speeds)]}" for at, row in enumerate(rows)]


ODD_SPEEDS = {
    "every reported speed is 0: these are no speeds": ["0"],
    "every reported speed is under a thousandth of its unit": ["0", "1e-5", "2e-5"],
    "1,200 reported speeds are 65535": ["5", "65535"],
    "write sentinels = [-1] into source buses": ["5", "-1"],
    'missing_speed = "derive" in source buses works it out': ["", "5"],
}


@pytest.mark.parametrize("says", ODD_SPEEDS)
def test_odd_speeds_are_said_and_change_no_exit_code(city, feed, write_rows, command, says):
    city(HIDDEN)
    result = command("ingest", write_rows("a.csv", with_speeds(feed("2026-03-02"), ODD_SPEEDS[says])))
    assert result.code == 0
    assert [said for said in ODD_SPEEDS if said in result.err] == [says]


def test_usual_speeds_are_not_odd(city, feed, write_rows, command):
    city(HIDDEN)
    result = command("ingest", write_rows("a.csv", feed("2026-03-02")))
    assert not [said for said in (*ODD_SPEEDS, "over 1 km from") if said in result.err]


def test_identifiers_that_are_several_vehicles_are_said(city, feed, write_rows, command):
    city(HIDDEN)
    rows = feed("2026-03-02")
    elsewhere = [",".join([*row.split(",")[:2], "48.12", *row.split(",")[3:]]) for row in rows[:50]]
    result = command("ingest", write_rows("a.csv", [*rows, *elsewhere]))
    assert result.code == 0
    assert "rows are over 1 km from where their vehicle was 10 s before" in result.err
    assert "columns.operator" in result.err


def test_odd_files_of_a_source_are_said_once(city, feed, write_rows, command):
    city(HIDDEN)
    rows = with_speeds(feed("2026-03-02"), ["0"])
    names = [write_rows(f"{part}.csv", rows[part::3]) for part in range(3)]
    said = command("ingest", *names).err
    assert said.count("every reported speed is 0") == 1
    assert "3 files of source buses: every" in said


def test_one_time_on_all_rows_is_said(city, feed, write_rows, command):
    city(HIDDEN)
    rows = [
        ",".join([f"W-{at}", "2026-03-02T06:00:00Z", *row.split(",")[2:]])
        for at, row in enumerate(feed("2026-03-02"))
    ]
    assert "all rows of 1 file have one time" in command("ingest", write_rows("a.csv", rows[:50])).err
    assert "have one time" not in command("ingest", write_rows("b.csv", feed("2026-03-02"))).err


def test_a_file_that_lacks_speeds_names_the_option(empty, feed, refusal):
    said = refusal(4, "ingest", empty.write("a.csv", with_speeds(feed("2026-03-02"), [""])))
    assert 'set missing_speed = "derive" in source buses' in said


def test_whether_half_of_the_rows_is_little(city, feed, write_rows, command):
    city(HIDDEN)
    rows = feed("2026-03-02")
    assert "WARNING" not in command("ingest", write_rows("a.csv", [*rows[:9], *exchanged(rows[:9])])).err
    assert "WARNING" in command("ingest", write_rows("b.csv", [*rows[:8], *exchanged(rows[:9])])).err


@pytest.fixture
def write_rows(feed):
    """Write a file of Small City, into the working directory; return its name."""

    def write_rows(name, rows=None):
        Path(name).write_text("\n".join(["bus,at,lat,lng,v", *(rows or feed("2026-03-02")), ""]))
        return name

    return write_rows


@pytest.fixture
def real():
    """The folder of the real feeds."""
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        pytest.skip("TRAFFICDP_REAL_DATA names no folder with the real feeds")
    return Path(folder)


@pytest.fixture
def city(tmp_path, monkeypatch, command):
    """``city(config)``: an empty store under that configuration."""
    monkeypatch.chdir(tmp_path)

    def city(config):
        (tmp_path / "trafficdp.toml").write_text(config)
        assert command("--quiet", "init").code == 0

    return city


@pytest.mark.real
def test_the_ten_days_of_austin_pass_in_one_command_as_they_lie_there(real, city, command):
    city(AUSTIN)
    result = command("--json", "ingest", *sorted((real / "capmetro").glob("*.csv.gz")))
    assert (result.code, result.err) == (0, "")
    files = {each["file"]: each for each in result.json["files"]}
    found = {
        name: (each["rows_in"], each["rows_kept"], {rule: n for rule, n in each["rejected"].items() if n})
        for name, each in files.items()
    }
    assert found == KEPT
    assert sum(each["rows_in"] for each in files.values()) == 291_484
    assert sum(each["new"] for each in files.values()) == 291_280
    assert {unit["verdict"] for each in files.values() for unit in each["units"]} == {"pass"}
    assert {name: each["units"][0]["unit"] for name, each in files.items()} == {
        name: "mph" if name.startswith("2015") else "ms" for name in KEPT
    }
    status = command("--json", "status").json
    assert (status["records"], status["vehicles"], status["files"]) == (291_280, 456, 10)


@pytest.mark.real
def test_washington_passes_as_it_lies_there(real, city, command):
    city(WASHINGTON)
    result = command("--json", "ingest", real / "wmata" / "vehicle_positions_2026-02-16.csv.gz")
    assert (result.code, result.err) == (0, "")
    (each,) = result.json["files"]
    assert each["rows_in"] == 20_777
    assert each["rows_kept"] + sum(each["rejected"].values()) == 20_777
    assert each["rows_kept"] == each["new"] == 20_777
    assert [(unit["unit"], unit["verdict"]) for unit in each["units"]] == [("ms", "pass")]
    assert command("--json", "status").json["vehicles"] == 31


def test_many_files_that_are_read_together_are_one_line(empty, command):
    """A day of snapshots; which file holds what is in ``--json``."""
    empty.change('speed_unit = "m/s"\ncol', 'speed_unit = "m/s"\nmissing_speed = "derive"\ncol')
    names = [
        empty.write(f"s{at:02}.csv", [f"B1,2026-03-02T06:00:{at:02}+01:00,48.2,16.4{at:02},"])
        for at in range(0, 60, 2)
    ]
    said = command("ingest", *names).out
    assert "30 files of source buses" in said
    assert "s02.csv" not in said
    again = command("ingest", *names).out
    assert again.count("read before") == 1
    files = command("--json", "ingest", *names).json["files"]
    assert [each["file"] for each in files] == names
    assert [each["rows_kept"] for each in files] == [0] + [1] * 29
