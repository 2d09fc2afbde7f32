"""Algorithm 7 of paper 002: a private median of array means, by the exponential mechanism over J parts.

Samples of a level stand in arrays of B_l, at most B_l a vehicle, vehicles one after another; [0, u] is cut
into J equal parts, every array votes for the part of its mean, and part j is drawn with probability
proportional to exp(-eps c(j)/(2 c)), c(j) the larger of the votes below and above it, c the arrays that a
vehicle may touch. The cost moves by at most c, so the draw is eps-DP. Its centre is (2 j + 1) u/(2 J).

*Aligned arrays.* With vehicles one after another in any order a vehicle may straddle two arrays: c = 2. Take
instead the first r = 2^floor(log2 min(M, B_l)) samples of a vehicle with M, vehicles in descending order
of r. Sizes are powers of two that fall, so each piece starts at a multiple of its own size and never
straddles: c = 1, and half as many arrays are enough. As r > min(M, B)/2, half as many arrays are there as
soon as the paper's (up to one array): aligned medians wait no longer.

Which samples stand where, and when there are enough, depends on public arrivals alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.interval import IntervalPartition
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.stream.tree import bit_length

IntArray = npt.NDArray[np.int64]


def collectable(arrivals: Arrivals, size: int, *, aligned: bool) -> IntArray:
    """Return how many samples the arrays of B = ``size`` could take after every arrival, shape (T,).

    The sum over vehicles of min(M, B), or of the powers of two in them when ``aligned``.
    """
    rank = arrivals.rank
    if not aligned:
        return np.cumsum(rank <= size).astype(np.int64)
    whole = (rank & (rank - 1)) == 0
    gain = np.where(whole & (rank <= size), np.maximum(rank // 2, 1), 0)
    return np.cumsum(gain).astype(np.int64)


def activation(arrivals: Arrivals, size: int, arrays: int, *, aligned: bool) -> int:
    """Return the first t (samples so far) at which ``arrays`` arrays of B samples are full; T + 1 if never.

    Line 9 of Algorithm 6: the sum over vehicles of min(M, B) is at least B k.
    """
    return int(np.searchsorted(collectable(arrivals, size, aligned=aligned), size * arrays)) + 1


def array_sums(arrivals: Arrivals, until: int, size: int, arrays: int, *, aligned: bool) -> IntArray:
    """Return the sums of the first ``arrays`` arrays from the first ``until`` samples, shape (k,)."""
    user, rank = arrivals.user[:until], arrivals.rank[:until]
    have = np.minimum(np.bincount(user, minlength=arrivals.users), size)
    if aligned:
        have = np.where(have > 0, np.left_shift(1, np.maximum(bit_length(have) - 1, 0)), 0)
    kept = np.flatnonzero(rank <= have[user])
    by_size = -have[user[kept]] if aligned else np.zeros(len(kept), dtype=np.int64)
    order = kept[np.lexsort((rank[kept], user[kept], by_size))]
    return np.asarray(arrivals.value[order][: arrays * size].reshape(arrays, size).sum(axis=1))


def private_part(
    sums: IntArray, size: int, steps: int, parts: int, scale: float, source: NoiseSource, runs: int = 1
) -> IntArray:
    """Return drawn parts 0..J-1, shape (runs,); ``scale`` 2 c/eps of the exponential mechanism.

    Means are compared as whole numbers: sum x J against multiples of B u, ties to the lower part.
    """
    cut = IntervalPartition(np.array([size * steps * parts]), np.array([size * steps]))
    cost = cut.costs(sums * parts, np.zeros(len(sums), dtype=np.int64))
    one = np.ones(parts, dtype=np.int64)
    return source.choose(cost, one, cut.start, np.array([scale]), runs)[:, 0]
