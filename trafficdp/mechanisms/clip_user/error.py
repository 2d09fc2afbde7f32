"""What it costs to drop users from a bin: worst-case bias and noise, from counts alone.

Dropping D of N samples and averaging the n = N - D others moves a mean by at most U D/N, and a variance
by at most U^2 j (N - j)/N^2 with j = min(D, floor(N/2)) (companion of paper 003, arXiv 2405.06261; both
bounds are attained). A bin that loses everybody is released as the constant in the middle of the range.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.count_cap import dropped_mean_bias, dropped_variance_bias
from trafficdp.bounding.sensitivity import mean_sensitivity, variance_sensitivity
from trafficdp.model.statistic import Statistic

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def dropping_bias(statistic: Statistic, dropped: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return the worst-case bias of dropping ``dropped`` of ``samples`` (statistic's unit), exactly.

    MEAN: U D / N. VARIANCE: U^2 j (N - j) / N^2, j = min(D, floor(N/2)): the same function as the
    sensitivity to a user with D samples. With nothing kept: half the range (U/2, U^2/8).
    """
    empty = dropped >= samples
    if statistic is Statistic.VARIANCE:
        return np.where(empty, upper**2 / 8, dropped_variance_bias(dropped, samples, upper))
    return np.where(empty, upper / 2, dropped_mean_bias(dropped, samples, upper))


def bin_error(
    statistic: Statistic,
    dropped: IntArray,
    samples: IntArray,
    largest: IntArray,
    upper: float,
    epsilon: float,
) -> FloatArray:
    """Return worst-case bias + Laplace scale of bins that keep N - D samples, epsilon each.

    ``largest`` is the largest kept count of a user. The sum is the paper's error metric.
    """
    kept = samples - dropped
    some = np.maximum(kept, 1)
    sensitivity = variance_sensitivity if statistic is Statistic.VARIANCE else mean_sensitivity
    noise = np.where(kept > 0, sensitivity(largest, some, upper) / epsilon, 0.0)
    return dropping_bias(statistic, dropped, samples, upper) + noise
