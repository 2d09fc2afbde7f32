"""Samples are the fixes behind the sums, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from importlib.resources import files

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from trafficdp.engine import duckdb_reduce
from trafficdp.engine.duckdb_reduce import read_samples, reduce_fixes
from trafficdp.errors import DataError
from trafficdp.model import Clip, ContributionBound, Grid, Period, SlotKind, SpeedUnit, StudyArea
from trafficdp.store.store_files import in_memory

PERIOD = Period(date(2016, 11, 24), date(2016, 11, 25), "America/Chicago")
START = PERIOD.utc_seconds[0] * 1_000_000
GRID = Grid(7, SlotKind.HOUR_OF_DAY, StudyArea.from_bbox(-98.2, 29.9, -97.2, 30.8), PERIOD)
BOUND = ContributionBound(Fraction(30), Fraction("0.1"), SpeedUnit.METRES_PER_SECOND)
SECOND = 1_000_000


@pytest.fixture
def vault() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute(files("trafficdp.store").joinpath("sql/tables/vault.sql").read_text())
        yield connection


def insert(connection, rows) -> None:
    # one statement for all: a statement a row takes a millisecond each
    columns = ", ".join(f"unnest(${number})" for number in range(1, 9))
    connection.execute(
        f"INSERT INTO fixes SELECT {columns}", [list(column) for column in zip(*rows, strict=True)]
    )


def random_rows(number, seed=5):
    random = np.random.default_rng(seed)
    return [
        (
            int(random.integers(1, 9)),
            # no two fixes of a vehicle at one instant, and not in the order of time
            START + int((i * 7919) % number) * 2 * SECOND,
            float(random.uniform(30.2, 30.3)),
            float(random.uniform(-97.8, -97.7)),
            int(random.integers(-100, 8000)),
            str(random.choice(["ms", "kmh", "mph"])),
            False,
            int(random.integers(1, 4)),
        )
        for i in range(number)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY])
def test_their_sums_are_those_of_the_reduction(vault, kind, monkeypatch) -> None:
    monkeypatch.setattr(duckdb_reduce, "BATCH_ROWS", 2048)
    insert(vault, random_rows(5000))
    grid = Grid(7, kind, GRID.area, PERIOD)
    found, expected = read_samples(vault, grid, BOUND, 2), reduce_fixes(vault, grid, BOUND, 2)
    sums = found.contributions()
    for name in ("cell", "slot", "bin_index", "user_index", "count", "users"):
        np.testing.assert_array_equal(getattr(found.counts, name), getattr(expected.counts, name))
    for name in ("total", "total_of_squares", "vehicle"):
        np.testing.assert_array_equal(getattr(sums, name), getattr(expected, name))
    assert len(found.value) == found.counts.count.sum()
    assert found.value.dtype == np.int64
    assert found.bound == BOUND


def test_nothing_of_them_is_left_where_the_next_question_is_asked(vault) -> None:
    insert(vault, random_rows(50))
    read_samples(vault, GRID, BOUND, 2)
    with in_memory() as found:
        left = found.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert left == []


def test_values_of_a_vehicle_in_a_bin_stand_in_the_order_of_time(vault) -> None:
    at = {0: 100, 3: 400, 1: 200, 2: 300}
    rows = [
        (vehicle, START + i * SECOND, 30.25, -97.75, speed * vehicle, "ms", False, 1)
        for i, speed in at.items()
        for vehicle in (2, 1)
    ]
    insert(vault, rows)
    found = read_samples(vault, GRID, BOUND, 1)
    assert found.counts.count.tolist() == [4, 4]
    assert found.vehicle.tolist() == [1, 2]
    assert found.value.tolist() == [10, 20, 30, 40, 20, 40, 60, 80]


def test_speeds_are_clipped_and_never_dropped(vault) -> None:
    insert(
        vault, [(1, START + i, 30.25, -97.75, speed, "ms", False, 1) for i, speed in enumerate((-5, 9999))]
    )
    assert read_samples(vault, GRID, BOUND, 1).value.tolist() == [0, 300]


def test_only_the_data_version_and_the_period_are_read(vault) -> None:
    rows = [
        (1, START, 30.25, -97.75, 100, "ms", False, 1),
        (1, START + SECOND, 30.25, -97.75, 200, "ms", False, 2),
        (1, START - SECOND, 30.25, -97.75, 300, "ms", False, 1),
    ]
    insert(vault, rows)
    assert read_samples(vault, GRID, BOUND, 1).value.tolist() == [10]


def test_no_fix_gives_no_bin(vault) -> None:
    found = read_samples(vault, GRID, BOUND, 1)
    assert (found.counts.bins, found.counts.pairs, len(found.value)) == (0, 0, 0)


def test_a_position_off_the_globe_is_our_error(vault) -> None:
    insert(vault, [(1, START, 95.0, -97.75, 100, "ms", False, 1)])
    with pytest.raises(DataError):
        read_samples(vault, GRID, BOUND, 1)


def test_nobody_is_shown_by_their_repr(vault) -> None:
    insert(vault, random_rows(20))
    assert "redacted" in repr(read_samples(vault, GRID, BOUND, 3))


@pytest.mark.parametrize("unit", SpeedUnit)
def test_a_batch_clips_every_speed_as_a_stream_does(vault, unit) -> None:
    """Both call one ``Clip``; this is its result after the whole way through the vault."""
    speeds = np.arange(-50, int(BOUND.upper * 100 / unit.factor_to(BOUND.unit)) + 50)
    table = pa.table(
        {
            "vehicle_id": np.ones(len(speeds), dtype=np.int32),
            "time_us": START + np.arange(len(speeds)) * 100_000,
            "latitude": np.full(len(speeds), 30.25),
            "longitude": np.full(len(speeds), -97.75),
            "speed_centi": speeds,
            "speed_unit": [unit.value] * len(speeds),
            "flagged": np.zeros(len(speeds), dtype=np.bool_),
            "ingest_id": np.ones(len(speeds), dtype=np.int32),
        }
    )
    vault.register("many", table)
    vault.execute("INSERT INTO fixes SELECT * FROM many")
    expected = Clip(BOUND).steps_of(table["speed_centi"], table["speed_unit"])
    assert expected[0] == 0
    assert expected[-1] == BOUND.upper_steps
    np.testing.assert_array_equal(read_samples(vault, GRID, BOUND, 1).value, expected)
