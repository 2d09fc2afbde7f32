"""Which released bins have a parent that is measured beside them: the H3 cell one resolution coarser.

A parent's statistic is the mean over the fixes of its released children, so the weights N_c/N_P of the
children add up to 1 and children make up their parent, whatever else lies in its hexagon. Counts and cells
alone decide, so this is public under the counts assumption.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import parents_of
from trafficdp.errors import UsageError
from trafficdp.model.mosaic import resolution_of
from trafficdp.model.occupancy import Occupancy

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Parents:
    """``of`` (G,) is the number 0..P-1 of every bin's parent, -1 where it has none.

    Raises UsageError unless every parent has at least two children.
    """

    of: IntArray

    def __post_init__(self) -> None:
        children = np.bincount(self.of[self.of >= 0])
        if int(self.of.min(initial=-1)) < -1 or int(children.min(initial=2)) < 2:
            raise UsageError(
                "parents are not numbered 0, 1, ... with at least two children each",
                got=f"{len(children)} parents",
            )

    @cached_property
    def number(self) -> int:
        """P."""
        return int(self.of.max(initial=-1)) + 1

    @cached_property
    def children(self) -> IntArray:
        """The bins that have a parent, rising, shape (C,)."""
        return np.flatnonzero(self.of >= 0).astype(np.int64)

    def total(self, values: FloatArray) -> FloatArray:
        """Return the sums over the children of every parent, shape (P,); ``values`` has shape (C,)."""
        return np.asarray(
            np.bincount(self.of[self.children], weights=values, minlength=self.number), dtype=np.float64
        )

    def weights(self, samples: IntArray) -> FloatArray:
        """Return N_c/N_P of every child, shape (C,); ``samples`` (G,) are the fixes of the bins."""
        of, fixes = self.of[self.children], samples[self.children]
        whole = np.zeros(self.number, dtype=np.int64)
        np.add.at(whole, of, fixes)
        return np.asarray(fixes / whole[of])

    def beside(self, occupancy: Occupancy) -> Occupancy:
        """Return the G bins of ``occupancy`` followed by the P parents, with the fixes of their children.

        The cells of parents are 0: nothing that prices or draws looks at them.
        """
        pairs = self.of[occupancy.bin_index] >= 0
        key = self.of[occupancy.bin_index[pairs]] * max(occupancy.users, 1) + occupancy.user_index[pairs]
        distinct, place = np.unique(key, return_inverse=True)
        count = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(count, place, occupancy.count[pairs])
        parent, user = np.divmod(distinct, max(occupancy.users, 1))
        none = np.zeros(self.number, dtype=np.int64)
        return replace(
            occupancy,
            cell=np.concatenate([occupancy.cell, none.astype(np.uint64)]),
            slot=np.concatenate([occupancy.slot, none]),
            bin_index=np.concatenate([occupancy.bin_index, occupancy.bins + parent]),
            user_index=np.concatenate([occupancy.user_index, user]),
            count=np.concatenate([occupancy.count, count]),
        )


def h3_families(occupancy: Occupancy) -> IntArray:
    """Return the number of the (parent cell, slot) that every bin lies in, shape (G,); -1 at resolution 0.

    Parents are numbered by cell, then slot, those of a single bin included. Bins may be of several
    resolutions: each has the parent of its own.
    """
    resolution = resolution_of(occupancy.cell)
    cell = occupancy.cell.copy()
    for each in np.unique(resolution[resolution > 0]).tolist():
        mine = resolution == each
        cell[mine] = parents_of(occupancy.cell[mine], each - 1)
    inner = np.flatnonzero(resolution > 0)
    result = np.full(occupancy.bins, -1, dtype=np.int64)
    order = inner[np.lexsort((occupancy.slot[inner], cell[inner]))]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (cell[order][1:] != cell[order][:-1]) | (
        occupancy.slot[order][1:] != occupancy.slot[order][:-1]
    )
    result[order] = np.cumsum(new) - 1
    return result
