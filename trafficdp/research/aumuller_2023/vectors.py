"""What all of them measure of a matrix x (shape (n, d)), a user a row: quantiles of columns, clipped sums.

Entries are all that a user has, so that a row is a vector of the waist: one number a column and user
(``measurement.sets``), whether it lies below a threshold (a box), or the whole row, clipped (a ball).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.laws import GRAINS, EntryIndex, Gaussian
from trafficdp.measurement.sets import Ball, Box, Measure, Ranks, plain
from trafficdp.privacy.loss import LossKind

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
TOP = 1 << 60
"""Reals are floored to one of 2^60 steps of their range."""


def exponential_quantiles(
    x: FloatArray, low: float, high: float, rank: int, rho: float, measure: Measure
) -> FloatArray:
    """Return the ``rank``-th smallest of every column of x in low..high, rho-zCDP a column, shape (d,).

    By exponential mechanism, eps = sqrt(8 rho): scale 2/eps.
    """
    columns = x.shape[1]
    scale, ranks = np.full(columns, 2 / np.sqrt(8 * rho)), np.full(columns, rank)
    of = Ranks(entries(x), np.full(columns, TOP), ranks, ranks, scale, LossKind.ZCDP)
    return np.asarray(low + measure.select(of, _whole(x, low, high)) * ((high - low) / TOP))


def binary_search_quantiles(
    x: FloatArray, low: float, high: float, rank: float, rho: float, steps: int, measure: Measure
) -> FloatArray:
    """Return the middles that ``steps`` noisy halvings of low..high lead to, rho-zCDP a column, shape (d,).

    Huang et al. (2021): with c = #{values <= middle} plus Gaussian noise, go left if c > rank, else right.
    Each comparison costs 1/(2 sd^2), so that sd = sqrt(steps/(2 rho)) is rho-zCDP. A rank is missed by at
    most sqrt(steps ln(2 steps/beta)/rho) with probability 1 - beta (the authors' code takes
    sqrt(steps ln(steps/beta)/(2 rho)), which fails with probability 0.35 at beta = 0.1).
    """
    support, whole, columns = entries(x), _whole(x, low, high), x.shape[1]
    sd = np.full(columns, np.sqrt(steps / (2 * rho)))
    below = plain(Box(support, np.ones(x.size, dtype=np.int64)), Gaussian(sd))
    left, right = np.zeros(columns, dtype=np.int64), np.full(columns, TOP)
    for _ in range(steps):
        middle = left + (right - left) // 2
        goes_right = measure.measure(below, whole <= middle[support.coordinate]) <= rank
        left, right = np.where(goes_right, middle, left), np.where(goes_right, right, middle)
    return np.asarray(low + (left + (right - left) / 2) * ((high - low) / TOP))


def noisy_sum(
    y: FloatArray, length: float, rho: float, measure: Measure, *, factor: float = 2.0
) -> FloatArray:
    """Return the sum of the rows of y, clipped to ``length``, plus noise, shape (d,); 0 for ``length`` 0.

    ``factor`` is the l2 sensitivity in lengths: 2, or sqrt(2) for entries that are never negative, as
    |y - y'|^2 = |y|^2 + |y'|^2 - 2 y y'.
    """
    if length <= 0:
        return np.zeros(y.shape[1])
    whole = np.full(y.size, GRAINS, dtype=np.int64)
    ball = Ball(entries(y), 2, length, -whole, whole)
    sd = np.full(y.shape[1], factor * GRAINS / np.sqrt(2 * rho) * (1 + 2.0**-40))
    return np.asarray(measure.measure(plain(ball, Gaussian(sd)), y.T.ravel()) * (ball.bound / GRAINS))


def clip_to_length(y: FloatArray, length: float) -> FloatArray:
    """Return rows of y (shape (n, d)) scaled to l2 length at most ``length``."""
    norm = np.sqrt(np.einsum("ij,ij->i", y, y))
    factor = np.where(norm > length, length / np.where(norm > 0, norm, 1.0), 1.0)
    return np.asarray(y * factor[:, None])


def entries(x: FloatArray) -> EntryIndex:
    """Return the entries of x, column by column: ``x.T``."""
    rows, columns = x.shape
    return EntryIndex(np.tile(np.arange(rows), columns), np.repeat(np.arange(columns), rows), rows, columns)


def _whole(x: FloatArray, low: float, high: float) -> IntArray:
    return np.clip(np.floor((x.T.ravel() - low) / ((high - low) / TOP)), 0, TOP).astype(np.int64)
