"""The reduction equals a naive one over exact fractions, for any fixes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from importlib.resources import files
from math import floor
from pathlib import Path

import duckdb
import h3.api.numpy_int as h3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.binning.places import slots_of
from trafficdp.engine import duckdb_reduce
from trafficdp.engine.duckdb_reduce import Files, reduce_fixes
from trafficdp.errors import DataError, StoreDamagedError
from trafficdp.ingest.read import read_file
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.model import (
    ContributionBound,
    Grid,
    Period,
    SlotKind,
    SourceDeclaration,
    SpeedUnit,
    StudyArea,
    UnitPeriod,
)
from trafficdp.sensitive import Contributions
from trafficdp.store.vault_fixes import CachedContributions

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PERIOD = Period(date(2016, 11, 24), date(2016, 11, 25), "America/Chicago")
AREA = StudyArea.from_bbox(-98.2, 29.9, -97.2, 30.8)
START, END = (second * 1_000_000 for second in PERIOD.utc_seconds)
Row = tuple[int, int, float, float, int, str, bool, int]

KINDS = ["uint64", "int64", "int64", "int32", "int64", "int64", "int64", "int64"]
"""Of cell, slot, bin, vehicle (a position), count, both sums, and the vehicles' numbers."""


def grid_of(kind: SlotKind = SlotKind.HOUR_OF_DAY, resolution: int = 7) -> Grid:
    return Grid(resolution, kind, AREA, PERIOD)


def bound_of(upper: str = "30", step: str = "0.1", unit: SpeedUnit = SpeedUnit.METRES_PER_SECOND):
    return ContributionBound(Fraction(upper), Fraction(step), unit)


def made() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute(files("trafficdp.store").joinpath("sql/tables/vault.sql").read_text())
        yield connection


vault = pytest.fixture(made)
one_vault = pytest.fixture(made, scope="module")
"""Every example of a test fills it anew."""


def insert(connection: duckdb.DuckDBPyConnection, rows: list[Row]) -> None:
    connection.execute("DELETE FROM fixes")
    if rows:
        # one statement for all: a statement a row takes a millisecond each
        columns = ", ".join(f"unnest(${number})" for number in range(1, 9))
        connection.execute(
            f"INSERT INTO fixes SELECT {columns}", [list(column) for column in zip(*rows, strict=True)]
        )


def naive_value(speed_centi: int, unit: str, bound: ContributionBound) -> int:
    speed = Fraction(speed_centi, 100) * SpeedUnit(unit).factor_to(bound.unit)
    clipped = min(max(speed, Fraction(0)), bound.upper)
    return floor(clipped / bound.step + Fraction(1, 2))


def naive(rows: list[Row], grid: Grid, bound: ContributionBound, up_to: int) -> list[tuple[int, ...]]:
    """Rows (cell, slot, vehicle, count, sum, sum of squares), sorted."""
    sums: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for vehicle, time_us, lat, lng, speed, unit, _, ingest in rows:
        if ingest <= up_to and START <= time_us < END:
            cell = int(h3.latlng_to_cell(lat, lng, grid.resolution))
            slot = int(slots_of(np.array([time_us]), grid.slot_kind, PERIOD.time_zone, grid.day_parts)[0])
            value = naive_value(speed, unit, bound)
            held = sums[cell, slot, vehicle]
            for index in range(3):
                held[index] += value**index
    return sorted((*key, *held) for key, held in sums.items())


def as_rows(found: Contributions) -> list[tuple[int, ...]]:
    held = found.counts
    columns = [
        held.cell[held.bin_index],
        held.slot[held.bin_index],
        found.vehicle[held.user_index],
        held.count,
        found.total,
        found.total_of_squares,
    ]
    return list(zip(*(column.tolist() for column in columns), strict=True))


some_rows = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.one_of(
            st.integers(START, END - 1),
            st.sampled_from([START - 1, START, END - 1, END, 0]),
        ),
        st.one_of(st.floats(30.2, 30.3), st.sampled_from([30.25, 29.9, 30.8])),
        st.one_of(st.floats(-97.8, -97.7), st.sampled_from([-97.75, -98.2, -97.2])),
        st.one_of(
            st.integers(-100, 8000), st.sampled_from([-(2**63), 2**63 - 1, 2**62, 0, 3000, 5, 2995, 11399])
        ),
        st.sampled_from(["ms", "kmh", "mph"]),
        st.booleans(),
        st.integers(1, 3),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    rows=some_rows,
    up_to=st.integers(0, 3),
    kind=st.sampled_from(SlotKind),
    resolution=st.sampled_from([5, 7, 9, 12]),
    limits=st.sampled_from([("30", "0.1"), ("65", "0.5"), ("22.352", "0.001"), ("10", "10")]),
    unit=st.sampled_from(SpeedUnit),
)
def test_any_fixes_reduce_to_what_naive_fractions_give(
    one_vault, rows, up_to, kind, resolution, limits, unit
) -> None:
    grid, bound = grid_of(kind, resolution), bound_of(*limits, unit)
    insert(one_vault, rows)
    found = reduce_fixes(one_vault, grid, bound, up_to)
    expected = naive(rows, grid, bound, up_to)
    assert as_rows(found) == expected
    assert found.vehicle.tolist() == sorted({row[2] for row in expected})
    assert found.counts.users == len(found.vehicle)
    assert found.counts.bins == len({row[:2] for row in expected})
    assert found.bound == bound


def random_rows(n: int, seed: int = 1) -> list[Row]:
    random = np.random.default_rng(seed)
    return list(
        zip(
            random.integers(1, 60, n).tolist(),
            random.integers(START, END, n).tolist(),
            random.normal(30.27, 0.05, n).clip(29.9, 30.8).tolist(),
            random.normal(-97.75, 0.05, n).clip(-98.2, -97.2).tolist(),
            random.integers(0, 4000, n).tolist(),
            random.choice(["ms", "kmh", "mph"], n).tolist(),
            [False] * n,
            random.integers(1, 4, n).tolist(),
            strict=True,
        )
    )


@pytest.mark.slow
def test_thousands_of_fixes_reduce_over_many_batches(vault, monkeypatch) -> None:
    monkeypatch.setattr(duckdb_reduce, "BATCH_ROWS", 2048)
    rows = random_rows(6000)
    insert(vault, rows)
    found = reduce_fixes(vault, grid_of(), bound_of(), 2)
    assert as_rows(found) == naive(rows, grid_of(), bound_of(), 2)


def arrays_of(found: Contributions) -> list[np.ndarray]:
    held = found.counts
    return [
        *(held.cell, held.slot, held.bin_index, held.user_index, held.count),
        *(found.total, found.total_of_squares, found.vehicle),
    ]


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(
    rows=some_rows,
    bucket=st.integers(1, 12),
    kind=st.sampled_from(SlotKind),
    step=st.sampled_from(["0.1", "30"]),
)
def test_keys_that_are_sorted_in_buckets_on_disk_give_the_same(
    tmp_path_factory, one_vault, rows, bucket, kind, step
) -> None:
    grid, bound = grid_of(kind), bound_of(step=step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb_reduce, "BUCKET_ROWS", bucket)
        patch.setattr(duckdb_reduce, "_SAMPLED", 1)
        patch.setattr(duckdb_reduce, "BATCH_ROWS", 7)
        one_vault.execute("SET temp_directory = ?", [str(tmp_path_factory.mktemp("spill"))])
        insert(one_vault, rows)
        assert as_rows(reduce_fixes(one_vault, grid, bound, 3)) == naive(rows, grid, bound, 3)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(rows=some_rows, until=st.integers(0, 3), kind=st.sampled_from(SlotKind))
def test_what_is_known_of_the_first_files_is_put_together_with_the_rest(one_vault, rows, until, kind) -> None:
    grid, bound = grid_of(kind), bound_of()
    insert(one_vault, rows)
    known = CachedContributions(reduce_fixes(one_vault, grid, bound, until), until)
    found = arrays_of(reduce_fixes(one_vault, grid, bound, 3, known))
    whole = arrays_of(reduce_fixes(one_vault, grid, bound, 3))
    assert all(np.array_equal(*p) and p[0].dtype == p[1].dtype for p in zip(found, whole, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("part_rows", [100, 10**6])
@pytest.mark.parametrize("why", ["value", "cells", "slots"])
def test_records_beyond_63_bits_are_grouped_by_duckdb_to_the_same(vault, monkeypatch, why, part_rows) -> None:
    rows = random_rows(600)
    insert(vault, rows)
    bound = bound_of()
    expected = arrays_of(reduce_fixes(vault, grid_of(), bound, 2))
    calls = []
    monkeypatch.setattr(duckdb_reduce, "PART_ROWS", part_rows)
    sound = duckdb_reduce.query_binned
    monkeypatch.setattr(
        duckdb_reduce, "query_binned", lambda *arguments: calls.append(arguments) or sound(*arguments)
    )
    if why == "slots":
        monkeypatch.setitem(duckdb_reduce._RECURRING, SlotKind.HOUR_OF_DAY, 8)
    else:
        # cells that occur need 9 bits or so: 4 are left, or none
        used = sum(largest.bit_length() for largest in (23, 59, bound.upper_steps))
        monkeypatch.setattr(duckdb_reduce, "KEY_BITS", used + (4 if why == "cells" else 0))
    found = arrays_of(reduce_fixes(vault, grid_of(), bound, 2))
    assert len(calls) == (1 if part_rows > 600 else 4)
    assert all(
        np.array_equal(*pair) and pair[0].dtype == pair[1].dtype for pair in zip(found, expected, strict=True)
    )


@pytest.mark.slow
def test_nothing_of_the_keys_stays_on_disk(vault, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(duckdb_reduce, "BUCKET_ROWS", 500)
    vault.execute("SET temp_directory = ?", [str(tmp_path)])
    rows = random_rows(6000)
    insert(vault, rows)
    assert as_rows(reduce_fixes(vault, grid_of(), bound_of(), 3)) == naive(rows, grid_of(), bound_of(), 3)
    assert (tmp_path / "reduction").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "reduction").iterdir()) == []


@pytest.mark.slow
def test_threads_and_repetition_change_nothing(vault, monkeypatch) -> None:
    insert(vault, random_rows(4000))
    first = arrays_of(reduce_fixes(vault, grid_of(), bound_of(), 3))
    assert [array.dtype.name for array in first] == KINDS
    for threads, batch in ((1, 2048), (2, 4096), (4, 500_000), (2, 500_000)):
        monkeypatch.setattr(duckdb_reduce, "BATCH_ROWS", batch)
        vault.execute(f"SET threads = {threads}")
        again = arrays_of(reduce_fixes(vault, grid_of(), bound_of(), 3))
        assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))


def test_no_fixes_reduce_to_no_bins(vault) -> None:
    found = reduce_fixes(vault, grid_of(), bound_of(), 9)
    assert (found.counts.bins, found.counts.pairs, found.counts.users) == (0, 0, 0)
    assert [array.dtype.name for array in arrays_of(found)] == KINDS
    assert found.counts.samples_per_bin.shape == (0,)


def test_the_vaults_connection_is_left_as_it_was(vault) -> None:
    def state() -> list[object]:
        return [
            vault.execute("SELECT count(*) FROM duckdb_functions()").fetchall(),
            vault.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall(),
            vault.execute("SELECT view_name FROM duckdb_views() ORDER BY 1").fetchall(),
            vault.execute("SELECT current_setting('threads')").fetchall(),
        ]

    insert(vault, random_rows(100))
    before = state()
    reduce_fixes(vault, grid_of(), bound_of(), 3)
    assert state() == before


def test_a_reduction_sees_what_its_own_transaction_wrote(vault) -> None:
    insert(vault, [])
    vault.execute("BEGIN")
    insert(vault, [(1, START, 30.25, -97.75, 100, "ms", False, 1)])
    assert reduce_fixes(vault, grid_of(), bound_of(), 1).counts.pairs == 1
    vault.execute("ROLLBACK")
    assert reduce_fixes(vault, grid_of(), bound_of(), 1).counts.pairs == 0


def test_impossible_positions_in_the_vault_raise_our_error_without_them(vault) -> None:
    insert(vault, [(1, START, 91.2345, -97.75, 100, "ms", False, 1)])
    with pytest.raises(DataError, match="1 of 1") as caught:
        reduce_fixes(vault, grid_of(), bound_of(), 1)
    assert "2345" not in str(caught.value)
    insert(vault, [(1, START, 30.25, -97.75, 100, "ms", False, 1)])
    assert reduce_fixes(vault, grid_of(), bound_of(), 1).counts.pairs == 1


def test_an_unknown_unit_in_the_vault_is_no_silent_loss(vault) -> None:
    insert(vault, [(1, START, 30.25, -97.75, 100, "knots", False, 1)])
    with pytest.raises(StoreDamagedError, match="unknown speed unit"):
        reduce_fixes(vault, grid_of(), bound_of(), 1)


def test_sums_of_later_files_are_added_and_never_leave_64_bits(vault) -> None:
    insert(vault, [(1, START + i, 30.25, -97.75, 3000, "ms", False, 1 + i) for i in range(2)])
    grid, bound = grid_of(SlotKind.WHOLE_PERIOD), bound_of("30", "0.00003")
    one = reduce_fixes(vault, grid, bound, 1)
    most = (2**63 - 1) // bound.upper_steps**2

    def after(fixes: int) -> Contributions:
        counts = replace(one.counts, count=np.array([fixes]))
        squares = np.array([fixes * bound.upper_steps**2])
        earlier = replace(one, counts=counts, total=squares // bound.upper_steps, total_of_squares=squares)
        return reduce_fixes(vault, grid, bound, 2, CachedContributions(earlier, 1))

    for fixes in (most - 1, most):
        found = after(fixes)
        assert found.counts.count.tolist() == [fixes + 1]
        assert found.total.tolist() == [(fixes + 1) * bound.upper_steps]
        assert found.total_of_squares.tolist() == [min((fixes + 1) * bound.upper_steps**2, 2**63 - 1)]


def test_both_ways_to_add_up_say_the_largest_number_where_64_bits_hold_no_sum() -> None:
    largest = 2**31 - 1
    value = np.array([largest] * 2 + [largest] * 3 + [0] * 4 + [1, 2])
    pair = np.repeat([0, 1, 2, 3], [2, 3, 4, 2])
    expected = [min(int((value[pair == each] ** 2).astype(object).sum()), 2**63 - 1) for each in range(4)]
    assert expected[0] < expected[1] == 2**63 - 1
    by_sorting = duckdb_reduce._summed(pair << 31 | value, 31)
    assert by_sorting[3].tolist() == expected
    assert by_sorting[2].tolist() == np.bincount(pair, value).tolist()
    with duckdb.connect() as scratch:
        binned = pa.table({"cell": pair, "slot": pair, "vehicle_id": pair, "value": value})
        scratch.register("binned", binned)
        query = files("trafficdp.engine").joinpath("sql/contributions.sql").read_text(encoding="utf-8")
        rows = scratch.sql(query).fetchall()
    assert [row[-1] for row in rows] == expected
    # a sum of the speeds themselves, by the same words
    assert [row[-2] for row in rows] == by_sorting[2].tolist()


def test_public_counts_refuse_what_64_bits_might_not_hold_whatever_the_speeds_are() -> None:
    bound = bound_of("30", "0.00003")
    most = (2**63 - 1) // bound.upper_steps**2

    def made(largest: int) -> Contributions:
        one, count = np.array([1, 2]), np.array([1, largest])
        rows = {"slot": one, "vehicle": one, "count": count, "total": one, "total_of_squares": one}
        return Contributions.from_rows(cell=one.astype(np.uint64), bound=bound, **rows)

    made(most).require_exact_sums()
    with pytest.raises(DataError, match="too many fixes"):
        made(most + 1).require_exact_sums()


@pytest.mark.prove(cheap="test_sums_of_later_files_are_added_and_never_leave_64_bits")
def test_millions_of_records_of_one_vehicle_in_one_bin_are_added_up(vault) -> None:
    # 9.3 million fixes of one vehicle in one bin, a million steps each: 9.3e18 > 2^63
    vault.execute(
        "INSERT INTO fixes SELECT 1, ? + i, 30.25, -97.75, 3000, 'ms', FALSE, 1 FROM range(9300000) AS r(i)",
        [START],
    )
    found = reduce_fixes(vault, grid_of(SlotKind.WHOLE_PERIOD), bound_of("30", "0.00003"), 1)
    assert found.counts.count.tolist() == [9_300_000]
    assert found.total.tolist() == [9_300_000 * 10**6]
    assert found.total_of_squares.tolist() == [2**63 - 1]


@pytest.fixture(scope="module")
def feeds() -> Path:
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        pytest.skip("TRAFFICDP_REAL_DATA is not set: it names the folder of the real feeds")
    return Path(folder)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("resolution", [6, 9])
def test_austins_files_reduce_to_what_duckdb_groups(feeds, vault, monkeypatch, tmp_path, resolution) -> None:
    units = (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
    columns = {"vehicle": "vehicle_id", "time": "timestamp"} | {
        name: name for name in ("latitude", "longitude", "speed")
    }
    source = SourceDeclaration("capmetro", "csv", ("*",), units, columns)
    for number, day in enumerate(("2016-11-24", "2016-11-25"), 1):
        fixes = read_file(feeds / f"capmetro/{day}.csv.gz", source, AREA, VehicleKey(bytes(32))).fixes.table
        vehicle = fixes["vehicle"].combine_chunks().dictionary_encode().indices
        vault.register("incoming", fixes.drop_columns("vehicle").append_column("vehicle", vehicle))
        vault.execute(
            "INSERT INTO fixes SELECT vehicle + 1, time_us, latitude, longitude, speed_centi, "
            "speed_unit::VARCHAR, derived, ? FROM incoming",
            [number],
        )
    grid = grid_of(SlotKind.CALENDAR_HOUR, resolution)
    monkeypatch.setattr(duckdb_reduce, "BUCKET_ROWS", 5000)
    vault.execute("SET temp_directory = ?", [str(tmp_path)])
    found = arrays_of(reduce_fixes(vault, grid, bound_of(), 2))
    expected = arrays_of(duckdb_reduce._grouped(vault, grid, bound_of(), Files(0, 2)))
    assert len(found[0]) > 500
    assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
