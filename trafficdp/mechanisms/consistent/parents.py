"""Which released bins have a parent that is measured beside them: the H3 cell one resolution coarser.

A parent's statistic is the mean over the records of its released children, so the weights N_c/N_P of the
children add up to 1 and children make up their parent, whatever else lies in its hexagon. Counts and cells
alone decide, so this is public under the counts assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import parents_of
from trafficdp.errors import UsageError
from trafficdp.model import Counts, number_pairs, resolution_of

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

    def records(self, samples: IntArray) -> IntArray:
        """Return N_P, shape (P,); ``samples`` (G,) are the records of the bins."""
        whole = np.zeros(self.number, dtype=np.int64)
        np.add.at(whole, self.of[self.children], samples[self.children])
        return whole

    def weights(self, samples: IntArray) -> FloatArray:
        """Return N_c/N_P of every child, shape (C,); ``samples`` (G,) are the records of the bins."""
        return np.asarray(samples[self.children] / self.records(samples)[self.of[self.children]])

    def pairs(self, counts: Counts) -> tuple[IntArray, IntArray, IntArray]:
        """Return parent, user and the place in these of every (bin, user) pair below a parent.

        The different (parent, user) pairs (Q,) by parent, then user; the places by the pairs of ``counts``.
        """
        of = self.of[counts.bin_index]
        below = of >= 0
        return number_pairs(of[below], counts.user_index[below], max(self.number, 1), counts.users)

    def sums(self, counts: Counts, values: IntArray) -> IntArray:
        """Return the sums (Q,) of ``values`` (P,), one a pair of ``counts``, over the bins of a parent."""
        parent, _, place = self.pairs(counts)
        total = np.zeros(len(parent), dtype=np.int64)
        np.add.at(total, place, values[self.of[counts.bin_index] >= 0])
        return total


def h3_families(counts: Counts) -> IntArray:
    """Return the number of the (parent cell, slot) that every bin lies in, shape (G,); -1 at resolution 0.

    Parents are numbered by cell, then slot, those of a single bin included. Bins may be of several
    resolutions: each has the parent of its own.
    """
    resolution = resolution_of(counts.cell)
    cell = counts.cell.copy()
    for each in np.unique(resolution[resolution > 0]).tolist():
        mine = resolution == each
        cell[mine] = parents_of(counts.cell[mine], each - 1)
    inner = np.flatnonzero(resolution > 0)
    result = np.full(counts.bins, -1, dtype=np.int64)
    order = inner[np.lexsort((counts.slot[inner], cell[inner]))]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (cell[order][1:] != cell[order][:-1]) | (counts.slot[order][1:] != counts.slot[order][:-1])
    result[order] = np.cumsum(new) - 1
    return result
