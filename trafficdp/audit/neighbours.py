"""Pairs of tiny data sets that differ in one vehicle, chosen to make a mechanism betray it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.sensitive.samples import Samples

COUNTS = ((1, 1, 1, 1, 1, 1), (5, 1, 1, 1), (3, 2, 2, 2))
"""Equal vehicles, one that dominates, and counts for which WrapAround splits a vehicle over two arrays."""


@dataclass(frozen=True)
class Neighbours:
    """Two data sets of one bin, equal but for one vehicle. Synthetic, so they may be printed."""

    label: str
    left: Samples
    right: Samples


def one_bin(values: Sequence[Sequence[int]], bound: ContributionBound) -> Samples:
    """Return one bin whose vehicle l sent ``values[l]`` (whole steps, at least one each)."""
    count = np.array([len(of_user) for of_user in values], dtype=np.int64)
    occupancy = Occupancy(
        cell=np.array([1], dtype=np.uint64),
        slot=np.zeros(1, dtype=np.int64),
        bin_index=np.zeros(len(count), dtype=np.int64),
        user_index=np.arange(len(count)),
        count=count,
        users=len(count),
    )
    flat = np.array([value for of_user in values for value in of_user], dtype=np.int64)
    return Samples(occupancy, flat, np.arange(1, len(count) + 1), bound)


def repeated(samples: Samples, times: int) -> Samples:
    """Return the same bin ``times`` times side by side: one estimate of all is ``times`` draws."""
    one = samples.occupancy
    occupancy = Occupancy(
        cell=np.arange(1, times + 1, dtype=np.uint64),
        slot=np.zeros(times, dtype=np.int64),
        bin_index=np.repeat(np.arange(times), one.pairs),
        user_index=np.tile(one.user_index, times),
        count=np.tile(one.count, times),
        users=one.users,
    )
    return Samples(occupancy, np.tile(samples.value, times), samples.vehicle, samples.bound)


def extreme_neighbours(bound: ContributionBound) -> list[Neighbours]:
    """Return pairs in which the first vehicle's speeds are all 0 in one set and all U in the other.

    For every tuple of COUNTS the other vehicles stand at 0, and once all at U/2; where counts differ, the
    second vehicle changes as well as the first, in pairs of its own.
    """
    pairs = []
    for counts in COUNTS:
        movers = (0,) if len(set(counts)) == 1 else (0, 2)
        for mover in movers:
            for others in (0, bound.steps // 2):
                sides = []
                for own in (0, bound.steps):
                    rows = [[own if i == mover else others] * count for i, count in enumerate(counts)]
                    sides.append(one_bin(rows, bound))
                label = f"counts {counts}, vehicle {mover} moves, others at {others}"
                pairs.append(Neighbours(label, *sides))
    return pairs
