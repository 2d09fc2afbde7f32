"""A private quantile of every column of a matrix of reals, on a fine lattice of a declared range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.arrays.private_quantile import binary_search_quantile, exponential_quantile
from trafficdp.noise.source import NoiseSource

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LATTICE_BITS = 60


def exponential_quantiles(
    x: FloatArray, low: float, high: float, rank: int, rho: float, noise: NoiseSource
) -> FloatArray:
    """Return the ``rank``-th smallest of every column of x (shape (n, d)), rho-zCDP a column.

    Exponential mechanism with eps = sqrt(8 rho): scale 2/eps. Reals are floored to one of 2^60 steps.
    """
    whole, start, step = _lattice(x, low, high)
    columns = x.shape[1]
    zero, top = np.zeros(columns, dtype=np.int64), np.full(columns, 2**LATTICE_BITS, dtype=np.int64)
    scale = np.full(columns, 2 / np.sqrt(8 * rho))
    drawn = exponential_quantile(whole, start, zero, top, np.full(columns, rank), scale, noise)
    return np.asarray(low + drawn * step, dtype=np.float64)


def binary_search_quantiles(
    x: FloatArray, low: float, high: float, rank: float, rho: float, steps: int, noise: NoiseSource
) -> FloatArray:
    """Return the middles that ``steps`` noisy halvings lead to, for every column, rho-zCDP a column."""
    whole, start, step = _lattice(x, low, high)
    columns = x.shape[1]
    zero, top = np.zeros(columns, dtype=np.int64), np.full(columns, 2**LATTICE_BITS, dtype=np.int64)
    sd = np.full(columns, np.sqrt(steps / (2 * rho)))
    left, right = binary_search_quantile(whole, start, zero, top, np.full(columns, rank), sd, steps, noise)
    return low + (left + (right - left) / 2) * step


def _lattice(x: FloatArray, low: float, high: float) -> tuple[IntArray, IntArray, float]:
    """Sorted whole numbers of all columns one after another, where they start, and the step."""
    step = (high - low) / 2.0**LATTICE_BITS
    rows, columns = x.shape
    ordered = np.sort(np.ascontiguousarray(x.T), axis=1)
    whole = np.clip(np.floor((ordered - low) / step), 0, 2.0**LATTICE_BITS).astype(np.int64)
    return whole.ravel(), np.arange(columns + 1) * rows, step
