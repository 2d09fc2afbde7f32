"""What becomes of a vehicle's rows follows from them alone, whoever else is in the file."""

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

START = np.datetime64("2020-11-28T12:00:00")
WRITTEN = {"MALFORMED": "A1,2020", "NO TIME": ",yesterday,21.2,72.8,30", "NOTHING": ",,,,"}


def rows(vehicle, rng, many):
    """Rows of one vehicle: usual ones, and every way in which a row can be none."""
    seconds = np.sort(rng.integers(0, 7200, many))
    for second in seconds.tolist():
        north, east = 21.2 + rng.uniform(-0.5, 0.5), 72.8 + rng.uniform(-0.5, 0.5)
        speed = rng.choice(["30", "", "255", "fast", "-3", "1e9", "nan"])
        plate = rng.choice([vehicle, vehicle.lower(), f" {vehicle[:1]}-{vehicle[1:]} "])
        time = "someday" if rng.random() < 0.1 else f"{START + np.timedelta64(second, 's')}+05:30"
        yield [plate, time, f"{north:.5f}", f"{east:.5f}", speed]


def of_others(reader, lines, victim, **changes):
    """What is kept of all vehicles but ``victim``, row by row, as text."""
    table = io.StringIO()
    csv.writer(table).writerows([["plate", "when", "lat", "lng", "v"], *lines])
    read = reader.csv(table.getvalue(), **changes).fixes.table.to_pylist()
    own = set(reader.key.pseudonyms(pa.array([victim]), reader.source.namespace).to_pylist())
    return [json.dumps(row, default=repr) for row in read if not own & set(row.values())]


@pytest.mark.parametrize("missing_speed", ["reject", "derive"])
@pytest.mark.parametrize("seed", range(12))
def test_no_vehicle_changes_what_becomes_of_others(reader, seed, missing_speed):
    rng = np.random.default_rng(seed)
    others = [row for vehicle in ("B2", "C3", "D4") for row in rows(vehicle, rng, 25)]
    own = list(rows("A1", rng, int(rng.integers(1, 80))))
    mixed = list(others)
    for row in own:
        mixed.insert(int(rng.integers(0, len(mixed) + 1)), row)
    found = of_others(reader, mixed, "A1", missing_speed=missing_speed)
    assert len(found) > 5
    assert found == of_others(reader, others, "A1", missing_speed=missing_speed)


@pytest.mark.parametrize("row", WRITTEN.values(), ids=list(WRITTEN))
def test_a_row_that_is_none_changes_no_other(reader, row):
    others = list(rows("B2", np.random.default_rng(1), 30))
    assert of_others(reader, [*others, row.split(",")], "A1") == of_others(reader, others, "A1")


def test_an_identifier_that_is_none_is_a_row_and_refuses_no_file(reader):
    """In a column of numbers, too: a fraction names no vehicle, and says nothing of the others."""

    def kept(plates):
        many = len(plates)
        table = pa.table(
            {
                "plate": plates,
                "when": ["2020-11-28T12:00:00+05:30"] * many,
                "lat": [21.2] * many,
                "lng": [72.8] * many,
                "v": [30.0] * many,
            }
        )
        pq.write_table(table, reader.folder / "day.parquet")
        read = reader.file(reader.folder / "day.parquet", format="parquet")
        return read.fixes.table.to_pylist(), read.report.rejected

    without, _ = kept([7.0, 8.0])
    found, rejected = kept([7.0, 8.0, 1.5, float("inf")])
    assert found == without
    assert rejected == {"missing_vehicle": 2}
