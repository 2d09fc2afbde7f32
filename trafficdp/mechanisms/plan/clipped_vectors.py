"""The noisy sum of vectors clipped to l2 length C, on integers: what PLAN and IOME end with.

Each row is clipped to length C and rounded toward zero to a lattice of C/2^LATTICE_BITS, so that no
whole-number row is longer than 2^LATTICE_BITS: replacing one user moves the sum by at most twice that in l2
(sqrt(2) times where all entries are >= 0, as |y - y'|^2 = |y|^2 + |y'|^2 - 2 y y'). Discrete Gaussian noise
of sd = sensitivity/sqrt(2 rho) makes it rho-zCDP exactly (Canonne, Kamath, Steinke 2020, Theorem 14).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from trafficdp.noise.source import NoiseSource

FloatArray = npt.NDArray[np.float64]
LATTICE_BITS = 30
BLOCK_CELLS = 1 << 16
"""So many entries are worked on at a time: they stay in the processor's cache."""


def clip_to_length(y: FloatArray, length: float) -> FloatArray:
    """Return rows of y (shape (n, d)) scaled to l2 length at most ``length``."""
    norm = np.sqrt(np.einsum("ij,ij->i", y, y))
    factor = np.where(norm > length, length / np.where(norm > 0, norm, 1.0), 1.0)
    return np.asarray(y * factor[:, None])


def noisy_sum(
    y: FloatArray, length: float, rho: float, noise: NoiseSource, *, factor: float = 2.0
) -> FloatArray:
    """Return the sum of the clipped rows of y plus noise, shape (d,); 0 for ``length`` 0.

    ``factor`` is the l2 sensitivity in lengths: 2, or sqrt(2) for entries that are never negative.
    """
    if length <= 0:
        return np.zeros(y.shape[1])
    rows, columns = y.shape
    unit = length / 2.0**LATTICE_BITS
    # a little shorter, so that rounding in floats never makes a row too long: a float sum of d squares is
    # off by a share of d 2^-53 at most, in whatever order they are added
    shrink = (1 - 2.0**-40 - columns * 2.0**-52) / unit
    total = np.zeros(columns, dtype=np.int64)
    for block in row_blocks(rows, columns):
        total += np.trunc(clip_to_length(y[block], length) * shrink).astype(np.int64).sum(axis=0)
    sd = factor * 2.0**LATTICE_BITS / np.sqrt(2 * rho) * (1 + 2.0**-40)
    return np.asarray((total + noise.discrete_gaussian(np.full(columns, sd))) * unit)


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows that together are all, BLOCK_CELLS entries or one row at a time."""
    height = max(1, BLOCK_CELLS // max(columns, 1))
    for first in range(0, rows, height):
        yield slice(first, first + height)
