"""Scheduled speeds from a static GTFS: exact on small timetables, clear about files that are none."""

from __future__ import annotations

import hashlib
import zipfile
from datetime import date

import numpy as np
import pytest

from trafficdp.binning.cells import cells_of
from trafficdp.errors import ConfigError
from trafficdp.knowledge.timetable import EARTH_RADIUS, POINTS, read_timetable
from trafficdp.model import DAYS, Grid, Period, SlotKind, StudyArea

DEGREE = np.pi / 180 * EARTH_RADIUS
"""Metres along a meridian."""
AREA = StudyArea.from_bbox(10.0, 50.0, 10.2, 50.2)
SMALL = {
    # A to B lies in one hexagon, B to C crosses many
    "stops.txt": "stop_id,stop_lat,stop_lon\nA,50.1,10.1\nB,50.101,10.1\nC,50.131,10.1\nnowhere,,\n",
    "trips.txt": "route_id,service_id,trip_id\nr,week,day\nr,week,night\nr,sunday,rest\n",
    "calendar.txt": f"service_id,{','.join(DAYS).lower()},start_date,end_date\n"
    "week,1,1,1,1,1,0,0,20240101,20240331\nsunday,0,0,0,0,0,0,1,20240101,20240331\n",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
    "day,08:00:00,08:00:00,A,1\nday,08:01:00,08:02:00,B,2\nday,08:07:00,08:07:00,C,3\n"
    "night,25:10:00,25:10:00,A,1\nnight,25:12:00,25:12:00,B,2\n"
    "rest, 9:59:30, 9:59:30,A,5\nrest,10:00:30,10:00:30,B,10\n",
}
MONDAY, SUNDAY = date(2024, 1, 8), date(2024, 1, 14)


def gtfs(folder, **tables):
    """A .zip of SMALL with some tables (named without ``.txt``) changed, or left out where they are None."""
    path = folder / "city.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (SMALL | {f"{name}.txt": text for name, text in tables.items()}).items():
            if text is not None:
                archive.writestr(name, text)
    return path


def grid_of(first=MONDAY, last=None, slot=SlotKind.WHOLE_PERIOD, resolution=7):
    return Grid(resolution, slot, AREA, Period(first, last or first, "Europe/Berlin"))


def place(latitude, longitude=10.1, resolution=7):
    return cells_of(np.array([latitude]), np.array([longitude]), resolution)


def at(timetable, grid, where, slot):
    speed, metres = timetable.traffic(grid, place(where), np.array([slot]))
    return float(speed[0]), float(metres[0])


def test_a_weekday_has_the_speed_of_its_trips(tmp_path):
    grid = grid_of()
    path = gtfs(tmp_path)
    found = read_timetable(path, grid)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert set(found.hour.tolist()) == {1, 8}, "Monday; what leaves at 25:10 belongs to 1 o'clock"
    points = 50.101 + 0.03 * (np.arange(POINTS) + 0.5) / POINTS
    inside = np.mean(cells_of(points, np.full(POINTS, 10.1), 7) == place(50.1))
    metres = 2 * 0.001 * DEGREE + inside * 0.03 * DEGREE
    # A to B in 60 s by day and 120 s by night, B to C in 300 s after a wait of 60 s that counts as none
    assert at(found, grid, 50.1005, 0) == pytest.approx((metres / (60 + 120 + inside * 300), metres))
    # only the long way passes here, wholly at its own speed
    assert at(found, grid, 50.13, 0)[0] == pytest.approx(0.03 * DEGREE / 300)
    assert found.metres.sum() == pytest.approx(0.032 * DEGREE)


def test_hours_have_their_own_speed_and_else_that_of_the_day(tmp_path):
    grid = grid_of(slot=SlotKind.HOUR_OF_DAY)
    found = read_timetable(gtfs(tmp_path), grid)
    assert at(found, grid, 50.1005, 1) == pytest.approx((0.001 * DEGREE / 120, 0.001 * DEGREE))
    day, _ = at(found, grid, 50.1005, 12)
    assert at(found, grid_of(), 50.1005, 0)[0] == pytest.approx(day)
    assert at(found, grid, 50.1005, 12)[1] == 0
    assert np.isnan(at(found, grid, 50.19, 8)[0])


def test_every_day_of_the_week_counts_as_often_as_the_period_has_it(tmp_path):
    week = read_timetable(gtfs(tmp_path), grid_of(MONDAY, SUNDAY))
    assert week.metres.sum() == pytest.approx((5 * 0.032 + 0.001) * DEGREE)
    grid = grid_of(MONDAY, SUNDAY, SlotKind.WEEKDAY)
    assert at(week, grid, 50.1005, 6) == pytest.approx((0.001 * DEGREE / 60, 0.001 * DEGREE))
    weekend = grid_of(MONDAY, SUNDAY, SlotKind.WEEKDAY_WEEKEND_HOUR)
    assert at(week, weekend, 50.1005, 24 + 9)[1] == pytest.approx(0.001 * DEGREE)
    assert at(week, weekend, 50.1005, 1)[1] == pytest.approx(5 * 0.001 * DEGREE)


def test_slots_that_are_points_in_time_are_those_of_their_day_of_the_week(tmp_path):
    found = read_timetable(gtfs(tmp_path), grid_of(MONDAY, SUNDAY))
    start = grid_of(SUNDAY).period.utc_seconds[0]
    day = grid_of(MONDAY, SUNDAY, SlotKind.DAY)
    assert at(found, day, 50.1005, start) == pytest.approx((0.001 * DEGREE / 60, 0.001 * DEGREE))
    hour = grid_of(MONDAY, SUNDAY, SlotKind.CALENDAR_HOUR)
    assert at(found, hour, 50.1005, start + 9 * 3600)[1] == pytest.approx(0.001 * DEGREE)
    assert at(found, hour, 50.1005, start + 8 * 3600)[1] == 0


def test_dates_that_are_added_and_removed_count(tmp_path):
    dates = "service_id,date,exception_type\nsunday,20240108,1\nweek,20240108,2\n"
    found = read_timetable(gtfs(tmp_path, calendar_dates=dates), grid_of())
    assert found.metres.sum() == pytest.approx(0.001 * DEGREE)
    only = read_timetable(gtfs(tmp_path, calendar=None, calendar_dates=dates), grid_of())
    assert only.metres.sum() == pytest.approx(0.001 * DEGREE)


def test_a_day_that_the_timetable_is_not_for_is_an_average_one(tmp_path):
    # one of the thirteen Mondays of the timetable has no service
    dates = "service_id,date,exception_type\nweek,20240108,2\n"
    found = read_timetable(gtfs(tmp_path, calendar_dates=dates), grid_of(date(2030, 7, 1)))
    assert found.metres.sum() == pytest.approx(12 / 13 * 0.032 * DEGREE)


def test_a_trip_with_frequencies_runs_every_so_often(tmp_path):
    often = "trip_id,start_time,end_time,headway_secs\nday,06:30:00,07:30:00,600\n"
    found = read_timetable(gtfs(tmp_path, frequencies=often), grid_of())
    by_hour = np.bincount(found.hour, found.metres, 168) / DEGREE
    # at half past six to twenty past seven; a bus leaves A at :50 and B at :52
    assert by_hour[[6, 7, 1, 8]] == pytest.approx([3 * 0.031, 3 * 0.031, 0.001, 0])


def test_stops_without_a_time_are_passed_over(tmp_path):
    rows = SMALL["stop_times.txt"].replace("day,08:01:00,08:02:00,B,2", "day,,,B,2")
    found = read_timetable(gtfs(tmp_path, stop_times=rows), grid_of())
    assert at(found, grid_of(), 50.13, 0)[0] == pytest.approx(0.031 * DEGREE / 420)


def test_headers_may_be_quoted_spaced_and_begin_with_a_mark(tmp_path):
    stops = "\ufeff" + SMALL["stops.txt"].replace("stop_id,stop_lat", '"stop_id" , stop_lat').replace(
        "\n", "\r\n"
    )
    same = read_timetable(gtfs(tmp_path, stops=stops), grid_of())
    assert same.metres.sum() == pytest.approx(0.032 * DEGREE)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"stops": None}, "no stops.txt"),
        ({"calendar": None}, "neither calendar.txt nor calendar_dates.txt"),
        ({"trips": "trip_id\nday\n"}, "trips.txt without the column service_id"),
        (
            {"stop_times": SMALL["stop_times.txt"].replace("08:01:00", "8h01")},
            "1 of 5 rows of stop_times.txt",
        ),
        ({"stop_times": SMALL["stop_times.txt"].replace("A,1", "A,first")}, "2 of 5 rows"),
        ({"stops": "stop_id,stop_lat,stop_lon\nA,95,10\nB,50,10\n"}, "nothing runs in the period"),
        (
            {"calendar_dates": "service_id,date,exception_type\nweek,20240108,2\n"},
            "nothing runs in the period",
        ),
    ],
)
def test_a_file_that_is_no_timetable_is_refused_in_words(tmp_path, tables, said):
    with pytest.raises(ConfigError, match=said):
        read_timetable(gtfs(tmp_path, **tables), grid_of())


def test_a_file_that_is_missing_no_zip_or_damaged_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_timetable(tmp_path / "none.zip", grid_of())
    plain = tmp_path / "plain.zip"
    plain.write_text("stop_id\n")
    with pytest.raises(ConfigError, match=r"not static GTFS.*a \.zip"):
        read_timetable(plain, grid_of())
    path = gtfs(tmp_path)
    content = bytearray(path.read_bytes())
    at = content.index(b"stops.txt") + len("stops.txt")
    content[at : at + 20] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged.*stops\.txt"):
        read_timetable(path, grid_of())
