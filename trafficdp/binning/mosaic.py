"""From finest bins to the bins of a mosaic, by cell index: aperture 7, logical containment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import CellArray, parents_of
from trafficdp.errors import UsageError
from trafficdp.model.mosaic import Mosaic, among, resolution_of

IntArray = npt.NDArray[np.int64]


def cells_in_mosaic(mosaic: Mosaic, cell: CellArray, slot: IntArray) -> CellArray:
    """Return the cell of the mosaic that holds each finest bin (its slot stays), shape (n,).

    That is the published ancestor; else the largest ancestor, up to the coarsest resolution, that holds no
    published bin of the slot. So every finest bin is in one bin, and no two bins overlap (for the proof see
    ``planner.adaptive``). Depends on the mosaic and the bin alone, not on what other bins there are.

    Raises UsageError unless all cells are of the finest resolution.
    """
    if len(cell) and not bool(np.all(resolution_of(cell) == mosaic.resolutions[0])):
        raise UsageError("cells are not of the finest resolution", expected=mosaic.resolutions[0])
    published, its_slot = mosaic.cell, mosaic.slot
    its_resolution = resolution_of(published)
    result = cell.copy()
    covered = np.zeros(len(cell), dtype=np.bool_)
    for resolution in mosaic.resolutions:
        ancestor = parents_of(cell, resolution)
        of_this = its_resolution == resolution
        own = among(ancestor, slot, published[of_this], its_slot[of_this])
        result[own] = ancestor[own]
        covered |= own
    for resolution in mosaic.resolutions:
        ancestor = parents_of(cell, resolution)
        inside = its_resolution >= resolution
        holds = among(ancestor, slot, parents_of(published[inside], resolution), its_slot[inside])
        empty = ~covered & ~holds
        result[empty] = ancestor[empty]
    return result
