"""IOME: instance-optimal mean estimation by a random rotation and clipping.

Huang, Liang, Yi, "Instance-optimal Mean Estimation Under Differential Privacy", NeurIPS 2021, as run in
paper 004 (arXiv 2306.08745) with 20 halvings. rho-zCDP, replacing one user's vector:

1. Rotate x by (H D)^3, H the Hadamard matrix over sqrt(d) and D random signs (public, not values).
2. Centre: noisy binary search for the median of every coordinate, rho/(4 d) each, within +-u/sqrt(d).
3. Length C: noisy binary search for the rank n - 4 sqrt(d/(2 p2)) - 2 sqrt(T/(2 p1)) of the lengths within
   [0, u], with p1 = 1 % and p2 = 99 % of the other 3/4 of rho.
4. Clip to C, add Gaussian noise for sensitivity 2 C with p2, rotate back.

A rotation in floats is a little off, but in a row by that row alone: it still changes one rank of every
coordinate and of the lengths, and what is added up are whole numbers, clipped after it (``noisy_sum``).
"""

from __future__ import annotations

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.errors import positive
from trafficdp.measurement.sets import Measure
from trafficdp.research.aumuller_2023.plan import binary_search_quantiles, noisy_sum

CENTRE_SHARE = 0.25
LENGTH_SHARE = 0.01
ROUNDS = 3
STEPS = 20
"""T, the halvings of every search."""
COLUMN_CELLS = 1 << 20
"""So many entries are searched at a time."""


def hadamard(x: FloatArray) -> FloatArray:
    """Return the rows of ``x`` (n, d), d a power of 2, times the symmetric orthonormal Hadamard matrix."""
    rows, columns = x.shape
    result, width = x, 1
    while width < columns:
        pairs = result.reshape(rows, columns // (2 * width), 2, width)
        result = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        result = result.reshape(rows, columns)
        width *= 2
    return np.asarray(result / np.sqrt(columns))


def rotate(x: FloatArray, signs: FloatArray) -> FloatArray:
    """Return the rows of ``x`` (n, d) rotated: for each row of ``signs`` (r, d), times those signs, then
    Hadamard.
    """
    for sign in signs:
        x = hadamard(x * sign)
    return x


def rotate_back(x: FloatArray, signs: FloatArray) -> FloatArray:
    """Return the rows of ``x`` (n, d) rotated back: the inverse of ``rotate`` with the same ``signs``."""
    for sign in signs[::-1]:
        x = hadamard(x) * sign
    return x


def iome_mean(
    x: FloatArray, largest_length: float, rho: float, measure: Measure, *, steps: int = STEPS
) -> FloatArray:
    """Return a rho-zCDP estimate of the mean of the rows of ``x`` (n, d), shape (d,).

    ``largest_length`` is the public bound on the rows' l2 length. Columns are padded to a power of 2. Raises
    UsageError unless it and rho are positive.
    """
    positive(largest_length=largest_length)
    positive(rho=rho)
    rows, given = x.shape
    columns = 1 << max(0, (given - 1).bit_length())
    coin = measure.uniform_below(np.full(ROUNDS * columns, 2, dtype=np.int64))
    signs: FloatArray = np.asarray(2.0 * coin - 1).reshape(ROUNDS, columns)
    turned = rotate(np.pad(x, ((0, 0), (0, columns - given))), signs)
    side = largest_length / np.sqrt(columns)
    centre, width = np.zeros(columns), max(1, COLUMN_CELLS // rows)
    for first in range(0, columns, width):
        some = slice(first, first + width)
        centre[some] = binary_search_quantiles(
            turned[:, some], -side, side, rows / 2, CENTRE_SHARE * rho / columns, steps, measure
        )
    turned -= centre
    rest = (1 - CENTRE_SHARE) * rho
    for_length, for_noise = LENGTH_SHARE * rest, (1 - LENGTH_SHARE) * rest
    short = 4 * np.sqrt(columns / (2 * for_noise)) + 2 * np.sqrt(steps / (2 * for_length))
    rank = max(np.floor(rows - short), rows // 2)
    length = np.sqrt(np.einsum("ij,ij->i", turned, turned))[:, None]
    found = binary_search_quantiles(length, 0.0, largest_length, rank, for_length, steps, measure)
    mean = centre + noisy_sum(turned, float(found[0]), for_noise, measure) / rows
    return np.asarray(rotate_back(mean[None], signs)[0, :given])
