"""Samples of a bin in arrays: caps, groupings, what one vehicle can move, the private interval of means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from trafficdp.arrays import FloatArray, IntArray, run_starts
from trafficdp.errors import UsageError
from trafficdp.model.counts import Counts

# Which of its group every entry is: 0, 1, 2, ... in the order in which the entries stand.


def rank_in_sorted(group: IntArray) -> IntArray:
    """Return how many earlier entries of the same group each entry of the sorted ``group`` (n,) has."""
    place = np.arange(len(group))
    return place - np.maximum.accumulate(np.where(run_starts(group), place, 0))


def rank_within(group: IntArray) -> IntArray:
    """Return how many earlier entries of the same group each entry has, in any order, shape (n,)."""
    order = np.argsort(group, kind="stable")
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = rank_in_sorted(group[order])
    return rank


# Samples of a bin in arrays: caps of counts, groupings, and what one vehicle can move.
#
# Samples of a bin grouped into arrays by public counts: which of whose samples stand in which array.
#
# How many samples of one user a bin takes: m_UB by the median or by the argmax rule; the pooled cap.
#
# What one user can do to a mean of array means, and how far that mean is from the sample mean.
#
# Estimator f = (1/K) sum_i P_[a,b](Abar_i), Abar_i the mean of the w_i samples in array i.
#
# BestFit: every user's capped samples into the fullest array with room (paper 003, section III-A).
#
# WrapAround: users' capped samples in a row, cut into full arrays (paper 003, section III-A).


@dataclass(frozen=True)
class Arrays:
    """The kept arrays of all bins, and the pieces that fill them.

    ``capacity`` (shape (G,)) is m_UB, the most samples an array of the bin takes. Array i belongs to bin
    ``array_bin[i]`` (ascending; within a bin in order of creation) and holds ``fill[i]`` >= 1
    samples, w_i. A piece is a run of samples of one (bin, user) pair in one array: ``piece_count`` samples
    of pair ``piece_pair`` (a position in the counts) from its sample ``piece_offset`` on (the order in
    time) in array ``piece_array``. A pair has one or two pieces, or none if its samples were dropped.

    Made from counts alone, so public wherever counts are.
    """

    counts: Counts
    capacity: IntArray
    array_bin: IntArray
    fill: IntArray
    piece_pair: IntArray
    piece_array: IntArray
    piece_offset: IntArray
    piece_count: IntArray

    @cached_property
    def per_bin(self) -> IntArray:
        """The number of arrays kept in each bin, at least 1, shape (G,)."""
        return np.bincount(self.array_bin, minlength=self.counts.bins).astype(np.int64)

    @cached_property
    def start(self) -> IntArray:
        """The position of each bin's first array, and the number of all, shape (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.per_bin)]).astype(np.int64)

    @cached_property
    def touched_per_pair(self) -> IntArray:
        """In how many kept arrays each (bin, vehicle) pair has samples: 0, 1 or 2, shape (P,)."""
        return np.bincount(self.piece_pair, minlength=self.counts.pairs).astype(np.int64)

    @cached_property
    def influence(self) -> IntArray:
        """The most kept arrays that one vehicle can change in each bin, shape (G,): BestFit 1, WrapAround
        1 or 2.
        """
        most = np.zeros(self.counts.bins, dtype=np.int64)
        np.maximum.at(most, self.counts.bin_index, self.touched_per_pair)
        return most

    @cached_property
    def kept_per_bin(self) -> IntArray:
        """The number of samples in kept arrays of each bin, shape (G,)."""
        return np.bincount(self.array_bin, weights=self.fill, minlength=self.counts.bins).astype(np.int64)


def descending(counts: Counts) -> IntArray:
    """Return the positions of the (bin, vehicle) pairs by bin, then count (largest first), then vehicle,
    (P,).
    """
    return np.lexsort((counts.user_index, -counts.count, counts.bin_index)).astype(np.int64)


def capped_counts(counts: Counts, capacity: IntArray) -> IntArray:
    """Return each pair's number of samples, at most ``capacity`` (G,) of its bin, shape (P,).

    Raises UsageError unless 1 <= capacity <= the bin's largest count.
    """
    if not bool(np.all((capacity >= 1) & (capacity <= counts.largest_count_per_bin))):
        raise UsageError(
            "a cap on samples a user is out of range", expected="1 to the largest count of the bin"
        )
    return np.minimum(counts.count, capacity[counts.bin_index])


class CountCap(StrEnum):
    """How m_UB is chosen from the counts of a bin (paper 003, section III-A and equation (10))."""

    MEDIAN = "median"
    ARGMAX = "argmax"

    def of(self, counts: Counts) -> IntArray:
        """Return the most samples of one vehicle in each bin by this rule, (G,); always one of its counts."""
        rule = median_cap if self is CountCap.MEDIAN else argmax_cap
        return rule(counts)


def median_cap(counts: Counts) -> IntArray:
    """Return the median count of every bin's vehicles, the ceil(L/2)-th largest of L, shape (G,)."""
    order = descending(counts)
    users = counts.users_per_bin
    first = np.cumsum(users) - users
    return np.asarray(counts.count[order[first + (users + 1) // 2 - 1]])


def argmax_cap(counts: Counts) -> IntArray:
    """Return, for each bin, the cap m that maximises (sum_l min(m_l, m)) / sqrt(m); the largest of equals.

    From public counts: m_l is the number of records of vehicle l in the bin. Shape (G,).

    Only the distinct counts need to be tried: between two consecutive ones the function is A/s + B s with s =
    sqrt(m), A and B >= 0, which is convex in s and so largest at an end.
    """
    order = descending(counts)
    bin_index = counts.bin_index[order]
    count = counts.count[order]
    users = counts.users_per_bin
    first = np.cumsum(users) - users
    up_to = np.cumsum(count)
    all_in_bin = up_to[first + users - 1]
    # users before and at this position give m each, those after it all they have
    capped_sum = count * (rank_in_sorted(bin_index) + 1) + (all_in_bin[bin_index] - up_to)
    score = capped_sum.astype(np.float64) ** 2 / count
    best = np.maximum.reduceat(score, first)
    place = np.where(score == best[bin_index], np.arange(len(order)), len(order))
    return count[np.minimum.reduceat(place, first)]


def kept_counts(counts: Counts, capacity: IntArray) -> Counts:
    """Return public counts where every pair keeps at most ``capacity`` (G,) samples of its bin, its first
    ones.

    Raises UsageError unless 1 <= capacity <= the bin's largest count.
    """
    return replace(counts, count=capped_counts(counts, capacity))


def dropped_mean_bias(dropped: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return the most that the mean changes when ``dropped`` of ``samples`` speeds are left out: U D / N.

    Exact.
    """
    return upper * dropped / samples


def dropped_variance_bias(dropped: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return the most that the variance changes when ``dropped`` D of ``samples`` N speeds are left out.

    Exact.

    U^2 j (N - j) / N^2 with j = min(D, floor(N/2)). Var = (n/N) V_k + (D/N) V_d + (n D / N^2)(k - d)^2 with n
    = N - D kept. Upward: all kept at 0 and j dropped at U. Downward at most (D/N) U^2 floor(n^2/4)/n^2, which
    is never larger.
    """
    j = np.minimum(dropped, samples // 2).astype(np.float64)
    return upper**2 * j * (samples - j) / samples.astype(np.float64) ** 2


def array_mean_sensitivity(arrays: Arrays, upper: float, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the most that each pair's vehicle changes its bin's mean of array means, shape (P,). Exact.

    It is D_l = (1/K) sum_i min(b - a, U r_{l,i} / w_i). ``low`` and ``high`` (shape (G,)) are a and b; 0 and
    U where nothing is projected. The arrays hold disjoint samples, so the changes add; in array i the user
    moves the mean by at most U r/w and the projection is 1-Lipschitz with range b - a. Both bounds are
    attained together: the other samples can place the range [c, c + U r/w] of the mean over [a, b], c =
    clip(a, 0, U - U r/w). So WrapAround without projection has max_l D_l = U/K (the paper says 2U/K), BestFit
    U/Kbar.
    """
    bin_of = arrays.array_bin[arrays.piece_array]
    share = upper * arrays.piece_count / arrays.fill[arrays.piece_array]
    change = np.minimum((high - low)[bin_of], share) / arrays.per_bin[bin_of]
    per_pair = np.bincount(arrays.piece_pair, weights=change, minlength=arrays.counts.pairs)
    return per_pair.astype(np.float64)


def total_variation_bias(arrays: Arrays, upper: float) -> FloatArray:
    """Return the most that the mean of array means differs from the mean of all samples, shape (G,). Exact.

    Array means are not clamped. f = sum_s c_s x_s with sum_s c_s = 1, so f - mean = sum_s (c_s - 1/N) x_s is
    extreme when the samples with positive (or negative) weight are U and the others 0: (U/2) sum_s |1/N -
    c_s|. Here c_s = 1/(K w_i) in array i and 0 for dropped samples.
    """
    samples = arrays.counts.samples_per_bin
    spread = np.abs(arrays.fill / samples[arrays.array_bin] - 1 / arrays.per_bin[arrays.array_bin])
    inside = np.bincount(arrays.array_bin, weights=spread, minlength=arrays.counts.bins)
    dropped = (samples - arrays.kept_per_bin) / samples
    return np.asarray(upper / 2 * (inside + dropped), dtype=np.float64)


def best_fit(counts: Counts, capacity: IntArray) -> Arrays:
    """Return each bin's records grouped into arrays, every vehicle's in exactly one array, from public
    counts.

    ``capacity`` (G,) m_UB is the most samples of an array.

    User by user in descending count order, all r_l = min(m_l, m_UB) first samples go into the fullest array
    that still has room (the oldest among equals), else into a new one; all Kbar nonempty arrays are kept.
    (Algorithm 1 as printed allocates only K arrays and may write into array K + 1.)

    Users with the same r are placed together, in one vectorised step for all bins: the array with the least
    room >= r has, after one of them, the strictly least room of all, so it is filled until its room is below
    r before the next is touched. So arrays in order of (room, age) take floor(room / r) users each, then new
    ones floor(m_UB / r) each. There are at most as many steps as distinct capped counts. Raises UsageError
    unless 1 <= m_UB <= m* in every bin.
    """
    bins = counts.bins
    capped = capped_counts(counts, capacity)
    order = descending(counts)
    order = order[np.argsort(-capped[order], kind="stable")]
    sizes, group_start = np.unique(-capped[order], return_index=True)
    group_end = np.append(group_start, len(order))[1:]

    room = np.zeros(counts.pairs, dtype=np.int64)
    array_bin = np.zeros(counts.pairs, dtype=np.int64)
    array_of_pair = np.zeros(counts.pairs, dtype=np.int64)
    made = 0
    for size, start, end in zip(-sizes, group_start, group_end, strict=True):
        group = order[start:end]
        bin_of = counts.bin_index[group]
        waiting = np.bincount(bin_of, minlength=bins)

        fitting = np.flatnonzero(room[:made] >= size)
        fitting = fitting[waiting[array_bin[fitting]] > 0]
        fitting = fitting[np.lexsort((fitting, room[fitting], array_bin[fitting]))]
        bin_of_fitting = array_bin[fitting]
        places = room[fitting] // size
        before = np.cumsum(places) - places
        if len(fitting):
            before = before - before[np.arange(len(fitting)) - rank_in_sorted(bin_of_fitting)]
        used = np.clip(waiting[bin_of_fitting] - before, 0, places)
        placed = np.bincount(bin_of_fitting, weights=used, minlength=bins).astype(np.int64)

        rank = rank_in_sorted(bin_of)
        old = rank < placed[bin_of]
        array_of_pair[group[old]] = np.repeat(fitting, used)
        room[fitting] -= used * size

        each = capacity // size
        left = waiting - placed
        opened = np.where(left > 0, -(-left // np.maximum(each, 1)), 0)
        first = made + np.cumsum(opened) - opened
        bin_of_new = bin_of[~old]
        target = first[bin_of_new] + (rank[~old] - placed[bin_of_new]) // each[bin_of_new]
        array_of_pair[group[~old]] = target
        newly = int(opened.sum())
        fresh = np.repeat(np.arange(bins), opened)
        array_bin[made : made + newly] = fresh
        inside = np.bincount(target - made, minlength=newly).astype(np.int64)
        room[made : made + newly] = capacity[fresh] - inside * size
        made += newly

    by_bin = np.argsort(array_bin[:made], kind="stable")
    position = np.empty(made, dtype=np.int64)
    position[by_bin] = np.arange(made)
    sorted_bin = array_bin[:made][by_bin]
    return Arrays(
        counts=counts,
        capacity=capacity,
        array_bin=sorted_bin,
        fill=capacity[sorted_bin] - room[:made][by_bin],
        piece_pair=np.arange(counts.pairs),
        piece_array=position[array_of_pair],
        piece_offset=np.zeros(counts.pairs, dtype=np.int64),
        piece_count=capped,
    )


def wrap_around(counts: Counts, capacity: IntArray) -> Arrays:
    """Return each bin's records cut into full arrays, vehicles one after another, from public counts.

    ``capacity`` (G,) m_UB is the size of an array. The users' r_l = min(m_l, m_UB) first samples stand one
    user after another, in descending count order; the row is cut into arrays of m_UB samples; K = floor(sum
    r_l / m_UB) full ones are kept, the rest is dropped. Since r_l <= m_UB, a user has samples in at most two
    arrays, m_UB together. Raises UsageError unless 1 <= m_UB <= m* in every bin (then K >= 1).
    """
    order = descending(counts)
    bin_index = counts.bin_index[order]
    taken = capped_counts(counts, capacity)[order]
    size = capacity[bin_index]
    per_bin = np.bincount(bin_index, weights=taken, minlength=counts.bins).astype(np.int64)
    arrays = per_bin // capacity
    first_array = np.cumsum(arrays) - arrays

    before = np.cumsum(taken) - taken - (np.cumsum(per_bin) - per_bin)[bin_index]
    first = before // size
    in_first = np.minimum(taken, size - before % size)

    pair = np.concatenate([order, order])
    array = np.concatenate([first, first + 1])
    offset = np.concatenate([np.zeros_like(in_first), in_first])
    count = np.concatenate([in_first, taken - in_first])
    keep = (count > 0) & (array < np.tile(arrays[bin_index], 2))
    pair, array, offset, count = pair[keep], array[keep], offset[keep], count[keep]
    array_bin = np.repeat(np.arange(counts.bins), arrays)
    return Arrays(
        counts=counts,
        capacity=capacity,
        array_bin=array_bin,
        fill=capacity[array_bin],
        piece_pair=pair,
        piece_array=array + first_array[counts.bin_index[pair]],
        piece_offset=offset,
        piece_count=count,
    )


# PrivateInterval without its draw: bins of width tau, votes of the arrays, cost of every midpoint.
#
# Paper 003, section III-C (after Levy et al. 2021). [0, M] is cut at multiples of tau, the last part
# truncated; midpoints T_1..T_J. Every array votes for the midpoint nearest to its mean. The cost of j is the
# larger of the numbers of votes below and above j; a user who changes c_u arrays changes it by at most c_u
# (exactly, where both counts are large). Positions are doubled wherever a midpoint would be a half.


def concentration_width(arrays: IntArray, capacity: IntArray, upper: float, gamma: float) -> FloatArray:
    """Return the paper's width of parts of 0..U, tau = U sqrt(ln(2 K / gamma) / (2 m_UB)), shape (G,).

    In the unit of ``upper`` U; K is ``arrays`` (G,) and m_UB ``capacity`` (G,), both public. By Hoeffding's
    inequality all K means of *full* arrays of independent samples lie within tau of their expectation with
    probability at least 1 - gamma; partly filled ones need ``guaranteed_width``.
    """
    return np.asarray(upper * np.sqrt(np.log(2.0 * arrays / gamma) / (2.0 * capacity)), dtype=np.float64)


def guaranteed_width(
    fill: IntArray, array_bin: IntArray, bins: int, upper: float, gamma: float
) -> FloatArray:
    """Return the least tau with sum_i 2 exp(-2 w_i tau^2 / U^2) <= gamma in every bin, by bisection, (G,).

    In the unit of ``upper`` U; w_i is the public ``fill`` of array i, which is in bin ``array_bin``. The
    (tau, gamma) guarantee for arrays of any fill (erratum E4). tau >= U where arrays are so empty that
    nothing narrower is promised.
    """
    low = np.zeros(bins)
    # one sample alone needs U sqrt(ln(2 K/gamma)/2)
    most = np.bincount(array_bin, minlength=bins)
    high = upper * np.sqrt(np.log(2.0 * np.maximum(most, 1) / gamma) / 2.0)
    for _ in range(60):
        middle = (low + high) / 2
        tails = 2 * np.exp(-2.0 * fill * (middle / upper)[array_bin] ** 2)
        enough = np.bincount(array_bin, weights=tails, minlength=bins) <= gamma
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


@dataclass(frozen=True)
class IntervalPartition:
    """[0, M_g] of every bin cut into parts of width ``width`` (whole lattice units, 1 <= tau <= M).

    Parts of all bins stand one after another: those of bin g in ``start[g]:start[g + 1]``.
    """

    top: IntArray
    width: IntArray

    @cached_property
    def parts(self) -> IntArray:
        """The number of parts of each bin, shape (G,)."""
        return -(-self.top // self.width)

    @cached_property
    def start(self) -> IntArray:
        """The position of each bin's first part, and the number of all, shape (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.parts)]).astype(np.int64)

    @cached_property
    def _bin(self) -> IntArray:
        return np.repeat(np.arange(len(self.top)), self.parts)

    @cached_property
    def twice_midpoint(self) -> IntArray:
        """Twice the midpoint of every part, a whole number of lattice units."""
        j = np.arange(len(self._bin)) - self.start[:-1][self._bin]
        width, top = self.width[self._bin], self.top[self._bin]
        return np.asarray(j * width + np.minimum((j + 1) * width, top), dtype=np.int64)

    def interval(self, part: IntArray, halves: int) -> tuple[IntArray, IntArray]:
        """Return lower and upper end of the interval within ``halves``/2 widths of the midpoint of each
        ``part``.

        ``part`` counts over all bins, any shape; ends are rounded inward and cut to the bin's range.
        """
        width, top = self.width[self._bin[part]], self.top[self._bin[part]]
        middle = self.twice_midpoint[part]
        low = np.maximum(-((halves * width - middle) // 2), 0)
        high = np.minimum((middle + halves * width) // 2, top)
        return low, high

    def votes(self, y: IntArray, y_bin: IntArray) -> IntArray:
        """Return the part whose midpoint is nearest to each number ``y`` of bin ``y_bin``, ties downward.

        Parts are counted over all bins. Private if ``y`` is.
        """
        last = self.parts[y_bin] - 1
        j = np.clip(-(-y // self.width[y_bin]) - 1, 0, last)
        first = self.start[y_bin]
        # the truncated last part has its midpoint further down
        boundary = self.twice_midpoint[first + np.maximum(last - 1, 0)] + self.twice_midpoint[first + last]
        nearer = (j == last - 1) & (4 * y > boundary)
        return first + np.where(nearer, last, j)

    def costs(self, y: IntArray, y_bin: IntArray) -> IntArray:
        """Return each part's cost, the larger number of ``votes`` on either side of it in its bin.

        Private.
        """
        voted = np.bincount(self.votes(y, y_bin), minlength=int(self.start[-1])).astype(np.int64)
        running = np.cumsum(voted)
        before = running - voted
        base = before[self.start[:-1]][self._bin]
        total = np.bincount(y_bin, minlength=len(self.top))[self._bin]
        return np.maximum(before - base, total - (running - base))
