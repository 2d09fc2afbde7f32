"""Private quantiles on an integer lattice, many at once, by exponential mechanism.

``values`` holds whole numbers, sorted within each column: those of column j are
``values[start[j]:start[j + 1]]`` (start of shape (J + 1,)), all within ``low[j]..high[j]``. Replacing one
value of a column changes every rank by at most 1, and the target rank is public: sensitivity 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.noise.protocol import NoiseSource

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def exponential_quantile(
    values: IntArray,
    start: IntArray,
    low: IntArray,
    high: IntArray,
    rank: IntArray,
    scale: FloatArray,
    noise: NoiseSource,
) -> IntArray:
    """Return a whole number in low..high for every column, with P(t) prop. to exp(-|r(t) - rank|/scale).

    r(t) = #{values < t}: Smith's mechanism (2011), which Kaplan et al. (2022) use too, on the lattice. With
    scale 2/eps it is eps-DP and of eps-bounded range, hence eps^2/8-zCDP. (Errata: without the 2 the loss
    is up to 2 eps; and dividing by max(q, 1-q), the sensitivity under adding or removing a value, costs
    up to four times the stated rho under replacement.) Equal values leave no whole number between them, of
    weight exactly 0: no clipping of lengths, which would publish a value that many share.
    """
    sizes = np.diff(start)
    columns = len(sizes)
    owner = np.repeat(np.arange(columns), sizes + 1)
    position = np.arange(len(owner)) - np.repeat(start[:-1] + np.arange(columns), sizes + 1)
    # cell i of a column: the whole numbers above its i-th value, up to the next one
    last, first = position == sizes[owner], position == 0
    source = start[:-1][owner] + position
    if len(values) == 0:
        left, right = low[owner] - 1, high[owner]
    else:
        top = len(values) - 1
        right = np.where(last, high[owner], values[np.minimum(source, top)])
        left = np.where(first, low[owner] - 1, values[np.maximum(source - 1, 0)])
    starts = start + np.arange(columns + 1)
    chosen = noise.choose(np.abs(position - rank[owner]), right - left, starts, scale)[0]
    drawn: IntArray = left[chosen] + 1 + noise.uniform_below(right[chosen] - left[chosen])
    return drawn
