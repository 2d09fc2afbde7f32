"""Every value of every (vehicle, bin), by the same arithmetic as the sums: fixes in the vault to Samples."""

from __future__ import annotations

import duckdb
import numpy as np

from trafficdp.binning.mosaic import bins_in_mosaic
from trafficdp.engine.duckdb_binned import Files, ask_binned
from trafficdp.model import ContributionBound, Grid
from trafficdp.sensitive.values import Contributions, Samples


def read_samples(
    connection: duckdb.DuckDBPyConnection, grid: Grid, bound: ContributionBound, up_to_ingest: int
) -> Samples:
    """Return the clipped values in steps, ordered by bin (cell, then slot), vehicle and time.

    Fixes, clipping, rounding and the numbering of bins and users are those of ``reduce_fixes``, so that
    ``read_samples(...).contributions()`` equals its result; raises as it does (but for sums, which are not
    taken). Under a mosaic the values of a pair are ordered by finest cell, then time. Memory grows with the
    fixes: 8 bytes each in the result, about ten times that on the way.
    """
    rows = ask_binned(connection, grid, bound, Files(0, up_to_ingest), "samples")
    cell, slot, vehicle, value = (rows[name].to_numpy() for name in ("cell", "slot", "vehicle_id", "value"))
    if grid.mosaic is not None:
        cell, slot = bins_in_mosaic(grid, cell, slot)
        order = np.lexsort((vehicle, slot, cell))
        cell, slot, vehicle, value = cell[order], slot[order], vehicle[order], value[order]
    first = np.ones(len(cell), dtype=np.bool_)
    first[1:] = (cell[1:] != cell[:-1]) | (slot[1:] != slot[:-1]) | (vehicle[1:] != vehicle[:-1])
    place = np.flatnonzero(first)
    nothing = np.zeros(len(place), dtype=np.int64)
    pairs = Contributions.from_rows(
        cell=cell[place],
        slot=slot[place],
        vehicle=vehicle[place],
        count=np.diff(place, append=len(cell)),
        total=nothing,
        total_of_squares=nothing,
        bound=bound,
    )
    return Samples(pairs.counts, value.astype(np.int64), pairs.vehicle, bound)
