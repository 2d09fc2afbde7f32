"""Make data/sample: three daily feed files of a simulated city, as a city would send them, and its timetable.

The 217 buses of data/itms_counts (the same number of fixes a bus, the same speeds altogether, hence the
published pooled mean and variance) drive over 17 H3 cells of resolution 7 laid over Surat, India: a slow
centre, a fast ring road, an airport road, and two villages that only two or three buses ever reach. Every
record is synthetic; plates begin with XX, which no Indian state uses.

    python data/make_sample.py [OUT_DIR]

writes ``positions-2026-03-03.csv.gz`` and the two days after it, and ``timetable.zip``. The feeds carry the
flaws of real feeds: plates spelt in several ways, fixes sent twice, zero coordinates, missing speeds, a
sentinel, a fix outside the city, a missing plate. Arithmetic is on integers and scatter comes from SHA-256
(see make_itms_counts); H3 is asked for cell centres only, which are rounded to a millionth of a degree, and
to check the result.
"""

from __future__ import annotations

import hashlib
import math
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import h3
from make_itms_counts import bell, counts_descending, gzip_bytes, speeds_ascending

DAYS = ("2026-03-03", "2026-03-04", "2026-03-05")
BURST = 6  # fixes a bus sends while it crosses a cell; then it is silent for some minutes
ROAD = 180_000  # length of road in a cell that buses are seen on, in cm; fits in the cell in any direction
SENTINEL = 25_500  # what a broken speed sensor sends, in 0.01 km/h
STOP = 70_000  # from the middle of a place to its two stops, in cm
UNPUNCTUAL = 30  # by so much per cent at most a place's planned time is off its usual speed
HEADER = "license_plate,observationDateTime,latitude,longitude,speed"


@dataclass(frozen=True)
class Place:
    """A cell, the fixes it should receive, its usual speed in km/h, and its road's direction in 1/1000."""

    cell: str
    fixes: int
    speed: int
    east: int
    north: int


PLACES = {
    "old city": Place("8742d9d69ffffff", 3485, 11, 914, 407),
    "station": Place("8742d98b4ffffff", 2855, 13, 914, 407),
    "market": Place("8742d999affffff", 1600, 14, 70, 998),
    "south quarter": Place("8742d9d6bffffff", 785, 18, 70, 998),
    "east quarter": Place("8742d98b6ffffff", 265, 19, 857, -515),
    "west quarter": Place("8742d9d68ffffff", 385, 19, 914, 407),
    "interchange": Place("8742d98b5ffffff", 3405, 29, -407, 914),
    "ring north-east": Place("8742d999bffffff", 620, 32, -809, 588),
    "ring north": Place("8742d9998ffffff", 400, 33, 998, -70),
    "ring east": Place("8742d98b0ffffff", 1755, 31, 52, 999),
    "ring south-east": Place("8742d98b2ffffff", 300, 33, 515, 857),
    "ring south-south-east": Place("8742d9d4dffffff", 205, 33, 875, 485),
    "ring south": Place("8742d9d4cffffff", 285, 32, 998, 70),
    "airport road": Place("8742d9d6effffff", 300, 26, 914, 407),
    "airport": Place("8742d9d63ffffff", 325, 28, 914, 407),
    "east village": Place("8742d98a2ffffff", 0, 30, 914, 407),
    "north-west village": Place("8742d9990ffffff", 0, 28, 857, -515),
}

# What the lines serve, in the order in which a bus passes.
LINES = (
    ("old city", "station", "interchange"),
    ("interchange", "ring north-east", "ring north"),
    ("interchange", "ring east", "ring south-east"),
    ("old city", "market", "ring north", "ring north-east"),
    ("old city", "south quarter", "ring south-south-east", "ring south"),
    ("old city", "east quarter", "ring south-east", "ring east"),
    ("old city", "west quarter", "airport road", "airport"),
)

# Buses, by rank in descending count, that make one trip to a village: too few for the village to be shown.
DETOURS = {
    118: "east village", 140: "east village", 162: "east village",
    129: "north-west village", 151: "north-west village",
}  # fmt: skip


@dataclass(frozen=True)
class Fix:
    """One record: bus rank, day, second of the day, position in millionths of a degree, place."""

    bus: int
    day: int
    second: int
    latitude: int
    longitude: int
    place: str


def choose(label: str, below: int) -> int:
    """Return an integer in 0..below-1 that is as good as random but the same everywhere."""
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") % below


def bursts_of_buses() -> list[list[tuple[str, int]]]:
    """Return for every bus, most fixes first, its bursts (place, number of fixes) in driving order.

    Buses choose in descending count: the line whose three emptiest places miss most fixes, and for each
    burst the place on the line that misses most. So the buses that report most drive where most is
    reported, as they do, and no bus makes up a large share of any cell. Looks at counts only.
    """
    missing = {name: place.fixes for name, place in PLACES.items()}
    result = []
    for bus, count in enumerate(counts_descending()):
        line = max(LINES, key=lambda names: sum(sorted(missing[name] for name in names)[-3:]))
        taken: dict[str, list[int]] = {name: [] for name in line}
        left = count
        if bus in DETOURS:
            taken[DETOURS[bus]] = [min(BURST, left)]
            left -= taken[DETOURS[bus]][0]
        while left:
            size = min(BURST, left)
            name = max(line, key=lambda name: missing[name])
            taken[name].append(size)
            missing[name] -= size
            left -= size
        result.append(sweep(taken))
    return result


def sweep(taken: dict[str, list[int]]) -> list[tuple[str, int]]:
    """Return the bursts in the order of a bus that drives its line up and down until all are done."""
    order = []
    direction = list(taken)
    while any(taken.values()):
        order += [(name, taken[name].pop()) for name in direction if taken[name]]
        direction.reverse()
    return order


def assign_speeds(bursts: list[list[tuple[str, int]]]) -> dict[tuple[int, int, int], int]:
    """Return the speed in 0.01 km/h of every (bus, burst, fix).

    A fix leans to its place's usual speed, its bus's and its burst's manner and its own chance. Sorted by
    the sum, the k-th fix gets the k-th smallest of the published speeds.
    """
    leaning = {}
    for bus, row in enumerate(bursts):
        for number, (name, size) in enumerate(row):
            common = 100 * PLACES[name].speed + bell(f"bus {bus}") + bell(f"burst {bus} {number}")
            for fix in range(size):
                leaning[bus, number, fix] = common + 2 * bell(f"fix {bus} {number} {fix}")
    order = sorted(leaning, key=lambda key: (leaning[key], key))
    return dict(zip(order, speeds_ascending(), strict=True))


def drive(
    bursts: list[list[tuple[str, int]]], speeds: dict[tuple[int, int, int], int]
) -> list[tuple[Fix, int]]:
    """Return every fix with its speed, placed and timed so that distance over time agrees with speed.

    A bus spreads its bursts over the three days, drives along the road of the cell during a burst (a step
    is the mean of the speeds at its ends times the seconds between), and is silent for 8 to 15 minutes
    before the next.
    """
    centre = {name: h3.cell_to_latlng(place.cell) for name, place in PLACES.items()}
    fixes = []
    for bus, row in enumerate(bursts):
        clock = [6 * 3600 + choose(f"start {bus} {day}", 9 * 3600) for day in range(len(DAYS))]
        for number, (name, size) in enumerate(row):
            label = f"{bus} {number}"
            day = (number * len(DAYS) // len(row) + bus) % len(DAYS)
            along, second = [0], [clock[day]]
            for fix in range(1, size):
                seconds = 15 + choose(f"seconds {label} {fix}", 6)
                pace = speeds[bus, number, fix - 1] + speeds[bus, number, fix]
                along.append(along[-1] + pace * seconds * 10 // 72)
                second.append(second[-1] + seconds)
            clock[day] = second[-1] + 480 + choose(f"pause {label}", 420)

            first = choose(f"first {label}", max(1, ROAD - along[-1])) - ROAD // 2
            towards = 1 - 2 * (number % 2)
            place = PLACES[name]
            for fix in range(size):
                on_road, beside = towards * (first + along[fix]), choose(f"beside {label}", 16_000) - 8_000
                position = position_in(place, centre[name], on_road, beside)
                fixes.append((Fix(bus, day, second[fix], *position, place=name), speeds[bus, number, fix]))
    return fixes


def position_in(place: Place, centre: tuple[float, float], on_road: int, beside: int) -> tuple[int, int]:
    """Return latitude and longitude, in millionths of a degree, so many cm along the road and beside it."""
    east = (on_road * place.east - beside * place.north) // 1000
    north = (on_road * place.north + beside * place.east) // 1000
    latitude, longitude = (round(degrees * 1_000_000) for degrees in centre)
    return latitude + north * 100_000 // 1_111_951, longitude + east * 100_000 // 1_036_739


def timetable() -> dict[str, list[str]]:
    """Return the tables of the operator's static GTFS: every line, both ways, every 20 minutes of every day.

    A bus calls at both ends of a place's road. Between them it is meant to be as fast as is usual there, give
    or take UNPUNCTUAL per cent; on the way to the next place, as fast as in both. Records are not looked at.
    """
    stops = ["stop_id,stop_name,stop_lat,stop_lon"]
    planned, stop = {}, {}
    for number, (name, place) in enumerate(PLACES.items()):
        planned[name] = place.speed * (100 - UNPUNCTUAL + choose(f"planned {name}", 2 * UNPUNCTUAL + 1))
        for end, side in ((-STOP, "A"), (STOP, "B")):
            position = position_in(place, h3.cell_to_latlng(place.cell), end, 0)
            stop[name, side] = f"{number}{side}", position
            stops.append(f"{number}{side},{name.capitalize()} {side},{','.join(map(degrees, position))}")
    routes = ["route_id,agency_id,route_short_name,route_type"]
    trips, often = ["route_id,service_id,trip_id"], ["trip_id,start_time,end_time,headway_secs"]
    times = ["trip_id,arrival_time,departure_time,stop_id,stop_sequence"]
    for number, names in enumerate(LINES, start=1):
        routes.append(f"{number},sample,{number},3")
        there = [(name, side) for name in names for side in "AB"]
        for direction, calls in (("out", there), ("back", there[::-1])):
            trip, second = f"{number}-{direction}", 6 * 3600
            trips.append(f"{number},daily,{trip}")
            often.append(f"{trip},06:00:00,22:00:00,1200")
            for order, call in enumerate(calls):
                before = calls[max(order - 1, 0)]
                north, east = (a - b for a, b in zip(stop[call][1], stop[before][1], strict=True))
                metres = math.isqrt((north * 1_111_951) ** 2 + (east * 1_036_739) ** 2) // 10_000_000
                second += metres * 720 // (planned[call[0]] + planned[before[0]])
                clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
                times.append(f"{trip},{clock},{clock},{stop[call][0]},{order}")
    return {
        "agency.txt": [
            "agency_id,agency_name,agency_url,agency_timezone",
            "sample,Sample City Transport (simulated),https://example.org,Asia/Kolkata",
        ],
        "stops.txt": stops,
        "routes.txt": routes,
        "trips.txt": trips,
        "stop_times.txt": times,
        "frequencies.txt": often,
        "calendar.txt": [
            "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,start_date,end_date",
            "daily,1,1,1,1,1,1,1,20260101,20261231",
        ],
    }


def check(fixes: list[tuple[Fix, int]]) -> None:
    """Raise ValueError unless every fix lies in its cell and on its day."""
    for fix, _ in fixes:
        cell = h3.latlng_to_cell(fix.latitude / 1_000_000, fix.longitude / 1_000_000, 7)
        if cell != PLACES[fix.place].cell or fix.second >= 86_400 - 60:
            raise ValueError(f"a fix left its cell or its day: {fix}, in {cell}")


def plate(bus: int) -> str:
    """Return the bus's plate as it should be written."""
    return f"XX05{'BC'[bus % 2]}{'JKTZ'[bus % 4]}{1000 + 41 * (bus * 100 % 217)}"


def spelt(bus: int, label: str) -> str:
    """Return the bus's plate as the operator wrote it this time: one row in eight is not as it should be."""
    proper = plate(bus)
    state, district, series, number = proper[:2], proper[2:4], proper[4:6], proper[6:]
    spellings = (
        proper.lower(), f"{state} {district} {series} {number}", f"{state}-{district}-{series}-{number}",
        f" {proper} ", f"{state}{district} {series.lower()}-{number}",
    )  # fmt: skip
    chosen = choose(f"spelling {label}", 8 * len(spellings))
    return spellings[chosen] if chosen < len(spellings) else proper


def clock_time(day: int, second: int) -> str:
    """Return the instant in ISO 8601 with the city's offset."""
    return f"{DAYS[day]}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}+05:30"


def degrees(millionths: int) -> str:
    """Return the (positive) angle in degrees with six decimals."""
    return f"{millionths // 1_000_000}.{millionths % 1_000_000:06d}"


def rows_of_day(day: int, fixes: list[tuple[Fix, int]]) -> list[str]:
    """Return the day's rows in the order of time: the fixes, and among them the flaws.

    Whether a flaw stands beside a fix depends on the fix's number in the whole, never on its speed. The
    seconds added are too few to meet the bus's next fix, so only fixes sent twice share their time.
    """
    rows: list[tuple[int, str]] = []

    def add(second: int, name: str, position: tuple[int, int], speed: str) -> None:
        latitude, longitude = position
        when = clock_time(day, second)
        rows.append((second, f"{name},{when},{degrees(latitude)},{degrees(longitude)},{speed}"))

    for number, (fix, speed) in enumerate(fixes):
        if fix.day != day:
            continue
        name, again = spelt(fix.bus, f"{number}"), spelt(fix.bus, f"{number} again")
        position, kmh = (fix.latitude, fix.longitude), f"{speed // 100}.{speed % 100:02d}"
        add(fix.second, name, position, kmh)
        if number % 431 == 17:
            add(fix.second, again, position, kmh)
        if number % 1433 == 50:
            add(fix.second + 7, again, (0, 0), kmh)
        if number % 1201 == 90:
            add(fix.second + 5, again, position, "")
        if number % 1907 == 33:
            add(fix.second + 9, again, position, f"{SENTINEL // 100}.{SENTINEL % 100:02d}")
        if number % 5003 == 70:
            add(fix.second + 3, "NA", position, kmh)
        if number == 8000:
            add(fix.second + 11, again, (21_400_000, 73_050_000), kmh)
    return [row for _, row in sorted(rows)]


def main(out: Path) -> None:
    """Write the three daily files and the timetable into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    bursts = bursts_of_buses()
    fixes = drive(bursts, assign_speeds(bursts))
    check(fixes)
    for day, date in enumerate(DAYS):
        (out / f"positions-{date}.csv.gz").write_bytes(gzip_bytes([HEADER, *rows_of_day(day, fixes)]))
    with zipfile.ZipFile(out / "timetable.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, lines in timetable().items():
            packed = zipfile.ZipInfo(name)
            packed.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(packed, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "sample")
