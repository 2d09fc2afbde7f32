"""How many vehicles would have to be replaced for a bin to be well concentrated: exact Hamming distances.

Paper 001's "number of outliers". A data set of one bin is *good* when every vehicle mean lies within R_i of
a centre; the distance of the true data to the fixed family of good data sets changes by at most 1 when one
vehicle changes, which is what makes the smooth sensitivity smooth. The paper lets the family depend on the
number of replacements already made, which breaks this (erratum E16; ``bounding.smooth_sensitivity``).

Arrays over pairs have shape (P,) and are sorted by ``bin_index``. Distances are cut off at ``limit``: only
whether they lie below it is needed. They depend on values and are never published.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MOST_CENTRES = 4_096
"""Centres of a bin; a family on a coarser grid is as valid, only less sharp."""
CHUNK = 4_000_000
"""So many (centre, vehicle) pairs are looked at together."""


def balanced_distance(value: FloatArray, first: IntArray, radius: FloatArray, limit: IntArray) -> IntArray:
    """Return min(limit, least number of replacements after which max |y_i - ybar| <= R), shape (G,). Exact.

    ``value`` is sorted by bin, then by value; ``first`` (G,) is where each bin starts; ``radius`` is R of
    every bin, negative where nothing is good. ybar is the plain mean, and replaced means may go anywhere.

    Those kept can be chosen consecutive. A window of n - j values from lo to hi can be completed by j free
    ones exactly if some centre s has hi - R <= s <= lo + R and (n - j) |mean - s| <= j R. What j allows,
    j + 1 allows as well: binary search over j, all windows by prefix sums, O(n log n) a bin.
    """
    users = np.diff(np.append(first, len(value)))
    owner = np.repeat(np.arange(len(first)), users)
    centred = value - (np.add.reduceat(value, first) / users)[owner]
    prefix = np.append(0.0, np.cumsum(centred))
    low, high = np.zeros(len(first), dtype=np.int64), np.where(radius >= 0, limit, 0)
    while bool((open_ := low < high).any()):
        bins = np.flatnonzero(open_)
        middle = (low[bins] + high[bins]) // 2
        windows = middle + 1
        which = np.repeat(np.arange(len(bins)), windows)
        begin = np.concatenate([[0], np.cumsum(windows)])
        start = first[bins][which] + np.arange(begin[-1]) - begin[which]
        kept = (users[bins] - middle)[which]
        room = radius[bins][which]
        lowest, highest = centred[start], centred[start + kept - 1]
        mean = (prefix[start + kept] - prefix[start]) / kept
        outside = np.maximum(0.0, np.maximum(highest - room - mean, mean - lowest - room))
        fits = (highest - lowest <= 2 * room) & (kept * outside <= middle[which] * room)
        possible = np.logical_or.reduceat(fits, begin[:-1])
        high[bins] = np.where(possible, middle, high[bins])
        low[bins] = np.where(possible, low[bins], middle + 1)
    return np.where(radius >= 0, np.minimum(low, limit), limit)


def centre_grid_distance(
    value: FloatArray,
    weight: FloatArray,
    threshold: FloatArray,
    first: IntArray,
    share: FloatArray,
    slack: float,
    upper: float,
    limit: IntArray,
) -> IntArray:
    """Return min(limit, distance to the good data sets of a fixed grid of centres), shape (G,).

    For a centre c a data set is good when |y_i - c| <= ``share`` T_i for every vehicle and
    |sum w_i (y_i - c)| <= ``slack`` min T; then |y_i - ybar| <= (share + slack) T_i with the *weighted*
    mean ybar. The centres are the multiples of 2 slack min T in [0, upper]: they depend on public numbers
    alone. Exact for each centre: all vehicles outside their interval must be replaced and may then pull by
    share w_i T_i each way; if what the others have together is still too far, those with the largest gain
    w_i (+-(y_i - c) + share T_i) are replaced until it is covered. ``share`` <= 0: nothing is good.
    """
    bins = len(first)
    users = np.diff(np.append(first, len(value)))
    owner = np.repeat(np.arange(bins), users)
    least = np.minimum.reduceat(threshold, first)
    step = np.maximum(2 * slack * least, upper / MOST_CENTRES)
    active = share > 0
    centres = np.where(active, np.ceil(upper / step), 0.0).astype(np.int64) + 1
    radius = share[owner] * threshold

    outside = _ineligible(value, radius, owner, step, centres, users)
    offset = np.cumsum(centres) - centres
    bin_of_centre = np.repeat(np.arange(bins), centres)
    candidate = np.flatnonzero((outside < limit[bin_of_centre]) & active[bin_of_centre])
    distance = limit.copy()
    size = users[bin_of_centre[candidate]]
    part = np.cumsum(size) // CHUNK
    for chunk in np.split(candidate, np.flatnonzero(np.diff(part)) + 1):
        if len(chunk):
            of_bin = bin_of_centre[chunk]
            centre = (chunk - offset[of_bin]) * step[of_bin]
            cost = _replacements(value, weight, radius, first, users, of_bin, centre, slack * least)
            np.minimum.at(distance, of_bin, cost)
    return distance


def _ineligible(
    value: FloatArray,
    radius: FloatArray,
    owner: IntArray,
    step: FloatArray,
    centres: IntArray,
    users: IntArray,
) -> IntArray:
    """Count, for all centres of all bins one after another, the vehicles outside their interval."""
    offset = np.cumsum(centres) - centres
    last = centres[owner] - 1
    low = np.ceil((value - radius) / step[owner])
    high = np.floor((value + radius) / step[owner])
    inside = (high >= low) & (high >= 0) & (low <= last) & (radius > 0)
    begin = (offset[owner] + np.clip(low, 0, last).astype(np.int64))[inside]
    end = (offset[owner] + np.clip(high, 0, last).astype(np.int64))[inside] + 1
    total = int(centres.sum())
    change = np.bincount(begin, minlength=total + 1) - np.bincount(end, minlength=total + 1)
    return np.repeat(users, centres) - np.cumsum(change)[:-1].astype(np.int64)


def _replacements(
    value: FloatArray,
    weight: FloatArray,
    radius: FloatArray,
    first: IntArray,
    users: IntArray,
    of_bin: IntArray,
    centre: FloatArray,
    slack: FloatArray,
) -> IntArray:
    """Return the distance to the good data sets of each given centre, shape (len(centre),)."""
    size = users[of_bin]
    begin = np.cumsum(size) - size
    which = np.repeat(np.arange(len(size)), size)
    pair = first[of_bin][which] + np.arange(len(which)) - begin[which]
    offset = value[pair] - centre[which]
    eligible = np.abs(offset) <= radius[pair]
    pull = np.add.reduceat(np.where(eligible, weight[pair] * offset, 0.0), begin)
    free = np.add.reduceat(np.where(eligible, 0.0, weight[pair] * radius[pair]), begin)
    need = np.abs(pull) - free - slack[of_bin]
    cost = np.add.reduceat(~eligible, begin, dtype=np.int64)

    short = np.flatnonzero(need > 0)
    if len(short):
        chosen = (need > 0)[which] & eligible
        row = np.searchsorted(short, which[chosen])
        towards = np.sign(pull)[which[chosen]]
        gain = weight[pair[chosen]] * (towards * offset[chosen] + radius[pair[chosen]])
        order = np.lexsort((-gain, row))
        gain, row = gain[order], row[order]
        start = np.searchsorted(row, np.arange(len(short)))
        reached = np.cumsum(gain)
        reached -= (reached[start] - gain[start])[row]
        covered = reached >= need[short][row]
        cost[short] += np.add.reduceat(~covered, start, dtype=np.int64) + 1
    return cost
