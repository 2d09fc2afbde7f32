"""The heavy reduction, on one machine: fixes in the vault to per (vehicle, bin) sums.

Records are packed in 64-bit numbers and sorted (``engine.packed``). Where 63 bits do not hold a record,
DuckDB groups them instead, one part of the vehicles after another.
"""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.binning.mosaic import bins_in_mosaic
from trafficdp.engine.duckdb_binned import (
    Files,
    VehiclePart,
    ask_binned,
    binned,
    count_of,
    largest_vehicle,
    spill_folder,
)
from trafficdp.engine.merge import put_together
from trafficdp.engine.packed import Layout, Record, Sums, packed_sums
from trafficdp.errors import DataError
from trafficdp.model import ContributionBound, Counts, Grid, SlotKind
from trafficdp.sensitive.values import Contributions
from trafficdp.store.contribution_cache import Kept, cache_key
from trafficdp.store.statements import store_failures
from trafficdp.store.vault_imports import imported_rows, is_imported

PART_ROWS = 1 << 23
"""Records that DuckDB groups at once, where they do not fit 63 bits."""
_RECURRING = {
    SlotKind.WHOLE_PERIOD: 1,
    SlotKind.HOUR_OF_DAY: 24,
    SlotKind.WEEKDAY_WEEKEND_HOUR: 48,
    SlotKind.WEEKDAY: 7,
}


def reduce_fixes(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    up_to_ingest: int,
    known: Kept | None = None,
) -> Contributions:
    """Return what each vehicle contributes to each bin of ``grid``, over the vault's table ``fixes``.

    Only records of files 1 to ``up_to_ingest``, of the grid's period and of its selection count. What is
    ``known`` of the first files is taken over, and only later ones are read. Positions lie in the study area
    because the vault takes in no others. Equal inputs give equal arrays, whatever the number of threads.
    Users are numbered by rising ``vehicle_id``, over those with a record. Under a mosaic records are binned
    at its finest resolution and the finest bins put together. A store of imported contributions adds those
    up.

    A sum of more than 2^63 - 1 is that number. No error tells of it: where counts are secret, so is whether
    there is one. Where they are public ask ``require_exact_sums``, before anything is charged.

    Raises ConfigError when the step is so fine or so odd a fraction that 64 bits do not hold the exact
    arithmetic, and DataError when positions are impossible.
    """
    if is_imported(connection):
        rows = imported_rows(connection, cache_key(replace(grid, mosaic=None), bound), up_to_ingest)
        return _merged(_of_rows([rows], bound), grid, None)
    ingests = Files(0 if known is None else known.up_to_ingest, up_to_ingest)
    largest, folder = largest_vehicle(connection), spill_folder(connection)
    layout = Layout.of(slots=_most_slots(grid), largest_vehicle=largest, largest_value=bound.steps)
    with (
        store_failures("sorting what vehicles contribute"),
        binned(connection, grid, bound, ingests) as batches,
    ):
        records = (Record(each.cell, each.slot, each.vehicle, each.value) for each in batches)
        sums = packed_sums(records, layout, folder)
    if sums is None:
        finest = _grouped(connection, grid, bound, ingests)
    else:
        finest = _contributions(sums, largest, bound)
    return _merged(finest, grid, known)


def _merged(finest: Contributions, grid: Grid, known: Kept | None) -> Contributions:
    """Return the finest bins put together by the grid's mosaic, and with what is ``known``."""
    found = finest
    if grid.mosaic is not None:
        found = finest.merged(*bins_in_mosaic(grid, finest.counts.cell, finest.counts.slot))
    if known is not None:
        found = put_together(known.contributions, found)
    return found


def require_exact_sums(count: npt.NDArray[np.int64], bound: ContributionBound) -> None:
    """Raise DataError when the largest of public ``count`` allows squares that 64 bits do not hold."""
    if int(count.max(initial=0)) * bound.steps**2 >= 1 << 63:
        raise DataError(
            "too many fixes of one vehicle in one bin",
            expected="fixes times the square of the steps up to the speed bound below 2^63",
            todo="choose a larger speed_step or shorter slots",
        )


def _most_slots(grid: Grid) -> int:
    """Return a number of slots that the grid can hardly have more of; one that has is grouped by DuckDB."""
    if grid.slot_kind is SlotKind.DAY_PART:
        return len(grid.day_parts)
    days = (grid.period.last - grid.period.first).days + 1
    return _RECURRING.get(grid.slot_kind, days if grid.slot_kind is SlotKind.DAY else 25 * days)


def _contributions(sums: Sums, largest_vehicle: int, bound: ContributionBound) -> Contributions:
    there = np.zeros(largest_vehicle + 1, dtype=np.bool_)
    there[sums.vehicle] = True
    vehicles = np.flatnonzero(there).astype(np.int64)
    user = (np.cumsum(there, dtype=np.int64) - 1)[sums.vehicle]
    counts = Counts(sums.cell, sums.slot, sums.bin_index, user, sums.count, len(vehicles))
    return Contributions(counts, sums.total, sums.total_of_squares, vehicles, bound)


def _grouped(
    connection: duckdb.DuckDBPyConnection, grid: Grid, bound: ContributionBound, ingests: Files
) -> Contributions:
    parts = max(1, -(-count_of(connection, ingests) // PART_ROWS))
    return _of_rows(
        [
            ask_binned(connection, grid, bound, ingests, "contributions", VehiclePart(number, parts))
            for number in range(parts)
        ],
        bound,
    )


def _of_rows(tables: list[pa.Table], bound: ContributionBound) -> Contributions:
    """Return the contributions of ``tables``, each one row a (cell, slot, vehicle), in this order."""
    table = pa.concat_tables(tables)
    columns: list[npt.NDArray[np.generic]] = [
        table.column(name).to_numpy()
        for name in ("cell", "slot", "vehicle_id", "fixes", "total", "total_of_squares")
    ]
    if len(tables) > 1:
        order = np.lexsort(columns[2::-1])
        columns = [column[order] for column in columns]
    cell, slot, vehicle, count, total, squares = columns
    return Contributions.from_rows(
        cell=cell.astype(np.uint64, copy=False),
        slot=slot.astype(np.int64, copy=False),
        vehicle=vehicle.astype(np.int64),
        count=count.astype(np.int64, copy=False),
        total=total.astype(np.int64, copy=False),
        total_of_squares=squares.astype(np.int64, copy=False),
        bound=bound,
    )
