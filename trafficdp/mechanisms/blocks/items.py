"""What blocks are made of: every bin's mean, or vehicle mean, with the public sensitivities of all users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.bounding.sensitivity import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.errors import UsageError, positive
from trafficdp.model import ContributionBound, Counts, Statistic

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Items:
    """I items, each with the users it can be moved by: entry e says ``user[e]`` moves it by ``cost[e]`` > 0.

    ``start`` (I + 1,) cuts the entries by item; users rise within an item. ``cost`` is D / t: sensitivity
    over tolerance, without unit; ``tolerance`` (I,) is the item's t.
    """

    tolerance: FloatArray
    start: IntArray
    user: IntArray
    cost: FloatArray
    users: int

    @property
    def number(self) -> int:
        """I."""
        return len(self.tolerance)

    @property
    def of_entry(self) -> IntArray:
        """The item of every entry."""
        return np.repeat(np.arange(self.number), np.diff(self.start))

    @cached_property
    def rows(self) -> sparse.csr_matrix:
        """The costs, shape (I, users)."""
        rows = sparse.csr_matrix((self.cost, self.user, self.start), shape=(self.number, self.users))
        # users out of range would be written to memory that is not the matrix's
        rows.check_format()
        return rows

    def among(self, users: npt.NDArray[np.bool_]) -> tuple[Items, IntArray]:
        """Return what ``users`` (users,) move, with these alone, and which items that are.

        Users are numbered anew, in the same order.
        """
        marked = users[self.user]
        before = np.concatenate([[0], np.cumsum(marked)])[self.start]
        there = np.flatnonzero(np.diff(before))
        name = np.cumsum(users) - 1
        return Items(
            self.tolerance[there],
            np.append(before[there], before[-1]),
            name[self.user[marked]],
            self.cost[marked],
            int(np.count_nonzero(users)),
        ), there

    def take(self, order: IntArray, users: IntArray) -> Items:
        """Return the same items in another order and with user u called ``users[u]``."""
        rows = self.rows[order]
        rows = sparse.csr_matrix((rows.data, users[rows.indices], rows.indptr), shape=rows.shape)
        # users rise within an item: there and back takes two passes, a sort many
        rows = rows.tocsc().tocsr()
        return Items(
            self.tolerance[order],
            rows.indptr.astype(np.int64),
            rows.indices.astype(np.int64),
            rows.data,
            self.users,
        )


def items_of(counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]) -> Items:
    """Return the items of all G bins: their means (D = U m / N), then their vehicle means (U / L).

    Those of them that ``tolerance`` holds. Raises UsageError when there is no bin, no statistic or another
    one, or a tolerance is not positive.
    """
    for statistic, allowed in tolerance.items():
        positive(**{f"tolerance of the {statistic.value}": allowed})
    if not tolerance or not counts.bins:
        raise UsageError("there is nothing to release", expected="at least one statistic and one bin")
    if Statistic.VARIANCE in tolerance:
        raise UsageError("blocks are made of means", got="variances", expected="means or vehicle means")
    upper, parts = float(bound.upper), []
    if Statistic.MEAN in tolerance:
        samples = counts.samples_per_bin[counts.bin_index]
        parts.append((Statistic.MEAN, mean_sensitivity(counts.count, samples, upper)))
    if Statistic.VEHICLE_MEAN in tolerance:
        users = counts.users_per_bin[counts.bin_index]
        parts.append((Statistic.VEHICLE_MEAN, vehicle_mean_sensitivity(users, upper)))
    size = np.tile(counts.users_per_bin, len(parts))
    return Items(
        np.repeat([float(tolerance[statistic]) for statistic, _ in parts], counts.bins),
        np.concatenate([[0], np.cumsum(size)]).astype(np.int64),
        counts.user_index if len(parts) == 1 else np.tile(counts.user_index, len(parts)),
        np.concatenate([change / tolerance[statistic] for statistic, change in parts]),
        counts.users,
    )
