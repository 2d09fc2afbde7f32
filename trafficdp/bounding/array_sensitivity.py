"""What one user can do to a mean of array means, and how far that mean is from the sample mean.

Estimator f = (1/K) sum_i P_[a,b](Abar_i), Abar_i the mean of the w_i samples in array i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import Arrays

FloatArray = npt.NDArray[np.float64]


def array_mean_sensitivity(arrays: Arrays, upper: float, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return D_l = (1/K) sum_i min(b - a, U r_{l,i} / w_i) of every pair, shape (P,). Exact.

    ``low`` and ``high`` (shape (G,)) are a and b; 0 and U where nothing is projected. The arrays hold
    disjoint samples, so the changes add; in array i the user moves the mean by at most U r/w and the
    projection is 1-Lipschitz with range b - a. Both bounds are attained together: the other samples can
    place the range [c, c + U r/w] of the mean over [a, b], c = clip(a, 0, U - U r/w).
    So WrapAround without projection has max_l D_l = U/K (the paper says 2U/K), BestFit U/Kbar.
    """
    bin_of = arrays.array_bin[arrays.piece_array]
    share = upper * arrays.piece_count / arrays.fill[arrays.piece_array]
    change = np.minimum((high - low)[bin_of], share) / arrays.per_bin[bin_of]
    per_pair = np.bincount(arrays.piece_pair, weights=change, minlength=arrays.counts.pairs)
    return per_pair.astype(np.float64)


def total_variation_bias(arrays: Arrays, upper: float) -> FloatArray:
    """Return the most that f without projection differs from the sample mean, shape (G,). Exact.

    f = sum_s c_s x_s with sum_s c_s = 1, so f - mean = sum_s (c_s - 1/N) x_s is extreme when the samples
    with positive (or negative) weight are U and the others 0: (U/2) sum_s |1/N - c_s|. Here
    c_s = 1/(K w_i) in array i and 0 for dropped samples.
    """
    samples = arrays.counts.samples_per_bin
    spread = np.abs(arrays.fill / samples[arrays.array_bin] - 1 / arrays.per_bin[arrays.array_bin])
    inside = np.bincount(arrays.array_bin, weights=spread, minlength=arrays.counts.bins)
    dropped = (samples - arrays.kept_per_bin) / samples
    return np.asarray(upper / 2 * (inside + dropped), dtype=np.float64)
