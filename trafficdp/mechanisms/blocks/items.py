"""What blocks are made of: every (bin, statistic) with the public sensitivities of all users, sparse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp._validate import positive
from trafficdp.bounding.count_cap import dropped_variance_bias
from trafficdp.bounding.sensitivity import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.errors import UsageError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Items:
    """I items, each with the users it can be moved by: entry e says ``user[e]`` moves it by ``cost[e]`` > 0.

    ``start`` (I + 1,) cuts the entries by item; users rise within an item. ``cost`` is D / t: sensitivity
    over tolerance, without unit. ``statistic`` and ``bin`` (I,) name the item, ``tolerance`` (I,) is its t.
    Statistics that can only be one number (the variance of one record) are no items.
    """

    statistic: tuple[Statistic, ...]
    bin: IntArray
    tolerance: FloatArray
    start: IntArray
    user: IntArray
    cost: FloatArray
    users: int

    @property
    def number(self) -> int:
        """I."""
        return len(self.bin)

    @cached_property
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

    def take(self, order: IntArray, users: IntArray) -> Items:
        """Return the same items in another order and with user u called ``users[u]``."""
        rows = self.rows[order]
        rows = sparse.csr_matrix((rows.data, users[rows.indices], rows.indptr), shape=rows.shape)
        # users rise within an item: there and back takes two passes, a sort many
        rows = rows.tocsc().tocsr()
        return Items(
            tuple(self.statistic[i] for i in order),
            self.bin[order],
            self.tolerance[order],
            rows.indptr.astype(np.int64),
            rows.indices.astype(np.int64),
            rows.data,
            self.users,
        )


def items_of(counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]) -> Items:
    """Return the items for releasing the statistics of ``tolerance`` in all bins, statistic by statistic.

    MEAN: D = U m / N; VARIANCE: U^2 k (N - k) / N^2; VEHICLE_MEAN: U / L. Raises UsageError when there is
    no bin, no statistic, or a tolerance is not positive.
    """
    for statistic, allowed in tolerance.items():
        positive(**{f"tolerance of the {statistic.value}": allowed})
    if not tolerance or not counts.bins:
        raise UsageError("there is nothing to release", expected="at least one statistic and one bin")
    upper = float(bound.upper)
    samples = counts.samples_per_bin[counts.bin_index]
    names: list[Statistic] = []
    bins, tolerances, sizes, users, costs = [], [], [], [], []
    for statistic, allowed in tolerance.items():
        if statistic is Statistic.MEAN:
            change = mean_sensitivity(counts.count, samples, upper)
        elif statistic is Statistic.VARIANCE:
            change = dropped_variance_bias(counts.count, samples, upper)
        else:
            change = vehicle_mean_sensitivity(counts.users_per_bin[counts.bin_index], upper)
        moves = change > 0
        size = np.bincount(counts.bin_index[moves], minlength=counts.bins)
        some = np.flatnonzero(size)
        names += [statistic] * len(some)
        bins.append(some)
        tolerances.append(np.full(len(some), float(allowed)))
        sizes.append(size[some])
        users.append(counts.user_index[moves])
        costs.append(change[moves] / allowed)
    return Items(
        tuple(names),
        np.concatenate(bins).astype(np.int64),
        np.concatenate(tolerances),
        np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64),
        np.concatenate(users).astype(np.int64),
        np.concatenate(costs),
        counts.users,
    )
