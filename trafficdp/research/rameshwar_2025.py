"""Worst-case optimal clipping for vectors: samples in the l1 ball's positive part (simplex), or in a cube.

Paper 000 (Rameshwar, Tandon, arXiv 2502.04749), Theorem III.1 for d >= 2: samples x >= 0 with |x|_1 <= U are
scaled to length b_l = min(T/m_l, U), T = U times the ceil(2d/eps)-th largest count (0: release 0). A user's
total is then in the simplex of size T, so that two of them differ by at most 2T in l1, and Laplace noise of
scale 2T/eps a coordinate costs eps. Worst-case l1 error (1/N)(sum (U m_l - T)^+ + 2 d T/eps).

Cube [0, U]^d: the paper's remark "the same interval in each dimension" needs an epsilon for each dimension:
taken literally it costs d eps (erratum E12). With one total eps every coordinate is clipped as for d = 1 at
eps/d: T = U times the ceil(2d/eps)-th largest count, noise of scale d T/eps a coordinate.

Relation REPLACE_USER_VALUES; whole numbers of steps, discrete Laplace noise.
"""

from __future__ import annotations

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.bounding.worst_case import clip_cut, project_to_simplex, worst_case_threshold
from trafficdp.errors import integer_between, positive
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import round_up


def vector_threshold(count: IntArray, upper_steps: int, epsilon: float, dimensions: int) -> int:
    """Return the threshold T, in steps, to which users' totals of vectors are clipped; d is ``dimensions``.

    T = ``upper_steps`` times the ceil(2 d/``epsilon``)-th largest ``count``, 0 where users are fewer.
    ``count`` (L,) are the users' public numbers of samples, ``upper_steps`` is U in steps: the largest l1
    length of a sample (``simplex_mean``, which bounds totals in l1) or coordinate (``cube_mean``, which clips
    each coordinate). Public. Raises UsageError unless epsilon is positive and dimensions at least 2.
    """
    positive(epsilon=epsilon)
    integer_between(2, 2**20, dimensions=dimensions)
    one_bin = np.zeros(len(count), dtype=np.int64)
    found = worst_case_threshold(count, one_bin, 1, np.array([epsilon]), 2 * dimensions)
    return upper_steps * int(found[0])


def simplex_totals(
    x: IntArray, user: IntArray, count: IntArray, threshold: int, upper_steps: int
) -> IntArray:
    """Return every user's total vector in steps, its samples scaled down so that its l1 length is at most
    ``threshold``.

    Shape (L, d); private, no noise. ``x`` (shape (n, d), steps >= 0 with row sums up to ``upper_steps``),
    ``user`` (n,) the index 0..L-1 of who it is from; ``count`` (L,) how many samples each user has.
    """
    limit = np.minimum(threshold / count, float(upper_steps))[user]
    length = x.sum(axis=1)
    scaled = project_to_simplex(x.astype(np.float64), limit)
    # whole steps, never longer; rows that fit stay as they are
    kept = np.where((length <= limit)[:, None], x, np.floor(scaled * (1 - 2.0**-40)).astype(np.int64))
    totals = np.zeros((len(count), x.shape[1]), dtype=np.int64)
    np.add.at(totals, user, kept)
    return totals


def simplex_mean(
    x: IntArray, user: IntArray, count: IntArray, upper_steps: int, epsilon: float, noise: NoiseSource
) -> FloatArray:
    """Return an epsilon-DP mean of the rows of ``x``, in steps, shape (d,).

    Their scaled-down sum with discrete Laplace noise, over the number of samples. ``x`` (n, d) is private,
    each row >= 0 with a sum of at most ``upper_steps``; ``user`` (n,) is the index 0..L-1 of who it is from,
    ``count`` (L,) the users' public numbers of samples. Not clamped; 0 without noise where users are too few
    for a threshold.
    """
    dimensions = x.shape[1]
    threshold = vector_threshold(count, upper_steps, epsilon, dimensions)
    total = simplex_totals(x, user, count, threshold, upper_steps).sum(axis=0)
    scale = float(round_up(np.array([2.0 * threshold / epsilon]))[0]) if threshold else 0.0
    return np.asarray((total + noise.discrete_laplace(np.full(dimensions, scale))) / count.sum())


def cube_mean(
    totals: IntArray, count: IntArray, upper_steps: int, epsilon: float, noise: NoiseSource
) -> FloatArray:
    """Return an epsilon-DP mean in steps, shape (d,), from private ``totals`` (L, d), each in 0..K m_l.

    ``count`` (L,) are the public m_l, ``upper_steps`` K the largest value of a coordinate. The middle, K/2,
    where users are too few for a threshold. Not clamped.
    """
    users, dimensions = totals.shape
    threshold = vector_threshold(count, upper_steps, epsilon, dimensions)
    if threshold == 0:
        return np.full(dimensions, upper_steps / 2)
    one_bin = np.zeros(users, dtype=np.int64)
    cut = clip_cut(count, one_bin, np.array([threshold]), upper_steps)[:, None]
    clipped = np.clip(totals, cut, upper_steps * count[:, None] - cut).sum(axis=0)
    scale = float(round_up(np.array([float(dimensions) * threshold / epsilon]))[0])
    return np.asarray((clipped + noise.discrete_laplace(np.full(dimensions, scale))) / count.sum())
