"""Pairs of tiny data sets that differ in one vehicle, chosen to make a mechanism betray it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trafficdp.model import ContributionBound, Counts
from trafficdp.sensitive import Samples

COUNTS = ((1, 1, 1, 1, 1, 1), (5, 1, 1, 1), (3, 2, 2, 2))
"""Equal vehicles, one that dominates, and counts for which WrapAround splits a vehicle over two arrays."""


@dataclass(frozen=True)
class Neighbours:
    """Two data sets of one bin, equal but for one vehicle. Synthetic, so they may be printed."""

    label: str
    left: Samples
    right: Samples


def one_bin(values: Sequence[Sequence[int]], bound: ContributionBound) -> Samples:
    """Return a data set of one bin, in which vehicle l sends the speeds ``values[l]``.

    Speeds are whole steps of ``bound``, at least one for each vehicle.
    """
    count = np.array([len(of_user) for of_user in values], dtype=np.int64)
    counts = Counts(
        cell=np.array([1], dtype=np.uint64),
        slot=np.zeros(1, dtype=np.int64),
        users_per_bin=np.array([len(count)], dtype=np.int64),
        user_index=np.arange(len(count)),
        count=count,
        users=len(count),
    )
    flat = np.array([value for of_user in values for value in of_user], dtype=np.int64)
    return Samples(counts, flat, np.arange(1, len(count) + 1), bound)


def extreme_neighbours(bound: ContributionBound) -> list[Neighbours]:
    """Return pairs in which the first vehicle's speeds are all 0 in one set and all U in the other.

    For every tuple of COUNTS the other vehicles stand at 0, and once all at U/2; where counts differ, the
    second vehicle changes as well as the first, in pairs of its own. Two more pairs are for mechanisms that
    look at ranks: a few values near one end come closer to the target rank, all others go further from it.
    """
    pairs = []
    for counts in COUNTS:
        for mover in (0,) if len(set(counts)) == 1 else (0, 2):
            for others in (0, bound.upper_steps // 2):
                sides = []
                for own in (0, bound.upper_steps):
                    rows = [[own if i == mover else others] * count for i, count in enumerate(counts)]
                    sides.append(one_bin(rows, bound))
                label = f"counts {counts}, vehicle {mover} moves, others at {others}"
                pairs.append(Neighbours(label, *sides))
    low, high = bound.upper_steps // 5, bound.upper_steps - max(1, bound.upper_steps // 16)
    for label, places in (("at U/5", [low] * 3), ("at 0, near U and at U", [0, high, bound.upper_steps])):
        sides = [one_bin([[own], *([place] for place in places)], bound) for own in (0, bound.upper_steps)]
        pairs.append(Neighbours(f"one vehicle moves, three stand {label}", *sides))
    return pairs


def slow_mechanism_neighbours(bound: ContributionBound) -> list[Neighbours]:
    """Return two of ``extreme_neighbours``, for mechanisms that must run once for every draw.

    These pairs show most of the loss of PLAN in 500 draws each.
    """
    every = extreme_neighbours(bound)
    return [every[3], every[10]]


def ranked_neighbours(bound: ContributionBound) -> list[Neighbours]:
    """Return pairs for which a choice by ranks (exponential mechanism) shows nearly all of its privacy loss.

    All vehicles but the first stand at one speed near 0; the first goes from below that speed to above.
    Then all candidates below are a rank further from the target and all above a rank nearer, so that the
    few candidates below become rarer by nearly the whole loss. The numbers of vehicles are those at which
    the target ranks of AKMV and of both quantiles lie between the two ranks. Pairs that reach up to U test
    the mean; pairs up to 5/8 of U also test squared distances from U/2.
    """
    pairs = []
    for users in (4, 6, 12):
        for place in (bound.upper_steps // 16, bound.upper_steps // 8, bound.upper_steps // 4):
            for end in (bound.upper_steps, bound.upper_steps * 5 // 8):
                sides = [one_bin([[own]] + [[place]] * (users - 1), bound) for own in (0, end)]
                label = f"one of {users} vehicles moves from 0 to {end}, the others stand at {place}"
                pairs.append(Neighbours(label, *sides))
    return pairs


def agreeing_neighbours(
    bound: ContributionBound, users: int = 120, records: int = 1, *, more: int = 0
) -> list[Neighbours]:
    """Return pairs of data sets in which all of ``users`` vehicles agree but the first.

    Each vehicle has ``records`` records, every second one ``more`` besides. For mechanisms that treat bins of
    many vehicles in another way: the first vehicle stands at 0 or at U, or somewhat below the others and
    somewhat above. In the last pair half of the vehicles, or all but one of that half, stand at 0, and the
    others at U.
    """
    most, middle = bound.upper_steps, bound.upper_steps // 2
    moves = [
        (middle - far, middle + far, [middle] * (users - 1), f"one of them {label} from the others")
        for far, label in ((middle, "far"), (most // 4, "between"), (most // 8, "near"))
    ]
    ends = [0] * (users // 2 - 1) + [most] * (users - users // 2)
    moves.append((0, most, ends, "half of them at 0, half at U"))
    count = [records + more * (number % 2) for number in range(users)]
    pairs = []
    for low, high, others, label in moves:
        places = ([own, *others] for own in (low, high))
        sides = (
            one_bin([[place] * many for place, many in zip(each, count, strict=True)], bound)
            for each in places
        )
        pairs.append(Neighbours(f"{users} vehicles, {label}", *sides))
    return pairs
