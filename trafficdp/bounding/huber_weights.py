"""Weights and thresholds of the Huber estimator: from public counts alone.

Paper 001 (arXiv 2405.13453), theorem 5: a vehicle with many samples weighs more and is allowed less
deviation, both up to m_c samples, so that one vehicle with very many cannot dominate. The paper's own
constants serve its proof only; these are ours. Arrays over pairs have shape (P,), over bins (G,).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def used_count(count: IntArray, bin_index: IntArray, bins: int, cap_ratio: float = 2.0) -> IntArray:
    """Return min(n_i, m_c), m_c = floor(``cap_ratio`` N/n), at least 1: the samples a vehicle counts for."""
    samples = np.bincount(bin_index, weights=count, minlength=bins)
    users = np.maximum(np.bincount(bin_index, minlength=bins), 1)
    cap = np.maximum(np.floor(cap_ratio * samples / users), 1.0).astype(np.int64)
    return np.minimum(count, cap[bin_index])


def normalised(used: IntArray, bin_index: IntArray, bins: int) -> FloatArray:
    """Return w_i = u_i / sum of u_j over the bin."""
    total = np.bincount(bin_index, weights=used, minlength=bins)
    result: FloatArray = used / total[bin_index]
    return result


def scale_threshold(
    used: IntArray, bin_index: IntArray, bins: int, upper: float, sigma: float, factor: float = 2.0
) -> FloatArray:
    """Return T_i = factor sigma sqrt(2 ln(40 n) / u_i), at most U.

    For a public standard deviation ``sigma`` of single samples: declared, never computed from the data.
    """
    users = np.bincount(bin_index, minlength=bins)[bin_index]
    result: FloatArray = np.minimum(upper, factor * sigma * np.sqrt(2 * np.log(40.0 * users) / used))
    return result


def weight_distance(first: FloatArray, second: FloatArray, bin_index: IntArray, bins: int) -> FloatArray:
    """Return the total variation distance of two weightings in every bin, shape (G,).

    U times this is exactly the worst difference of the two weighted means of values in [0, U].
    """
    return np.bincount(bin_index, weights=np.abs(first - second) / 2, minlength=bins).astype(np.float64)
