"""Contributions of earlier files and of later ones, put together: sums add up, so a day costs a day."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model import Counts
from trafficdp.sensitive.values import LARGEST_TOTAL, Contributions

IntArray = npt.NDArray[np.int64]


def put_together(earlier: Contributions, later: Contributions) -> Contributions:
    """Return the contributions of all files, of the same grid and bound; no sum is above 2^63 - 1.

    Every (bin, vehicle) is one whole number, rank of its bin times vehicles plus rank of its vehicle, so both
    sides are rising and the later ones are looked up in the earlier ones. Raises UsageError for two bounds.
    """
    if earlier.bound != later.bound:
        raise UsageError("contributions under two speed bounds cannot be put together")
    sides = (earlier, later)
    cell = np.concatenate([each.counts.cell for each in sides])
    slot = np.concatenate([each.counts.slot for each in sides])
    order = np.lexsort((slot, cell))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (cell[order][1:] != cell[order][:-1]) | (slot[order][1:] != slot[order][:-1])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.cumsum(new) - 1
    vehicle = np.union1d(earlier.vehicle, later.vehicle)
    users = len(vehicle)
    old, fresh = (
        bins[each.counts.bin_index] * users + np.searchsorted(vehicle, each.vehicle)[each.counts.user_index]
        for each, bins in zip(sides, np.split(rank, [earlier.counts.bins]), strict=True)
    )
    place = np.searchsorted(old, fresh)
    known = np.zeros(len(fresh), dtype=np.bool_)
    inside = place < len(old)
    known[inside] = old[place[inside]] == fresh[inside]

    def together(of_old: IntArray, of_fresh: IntArray) -> IntArray:
        result = of_old.copy()
        both = of_old[place[known]] + of_fresh[known]
        # two numbers of at least 0 that leave 64 bits wrap below 0
        result[place[known]] = np.where(both < 0, LARGEST_TOTAL, both)
        return np.insert(result, place[~known], of_fresh[~known])

    pair = np.insert(old, place[~known], fresh[~known])
    counts = Counts(
        cell=cell[order][new],
        slot=slot[order][new],
        bin_index=pair // users if users else pair,
        user_index=pair % users if users else pair,
        count=together(earlier.counts.count, later.counts.count),
        users=users,
    )
    return Contributions(
        counts,
        together(earlier.total, later.total),
        together(earlier.total_of_squares, later.total_of_squares),
        vehicle,
        earlier.bound,
    )
