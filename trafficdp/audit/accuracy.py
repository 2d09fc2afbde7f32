"""How far a mechanism's estimates are from the truth, on values that may be looked at for evaluation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp._validate import integer_between
from trafficdp.mechanisms.baseline import exact_integer
from trafficdp.mechanisms.lattice import steps_per_unit
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]


def true_statistic(samples: Samples, statistic: Statistic) -> FloatArray:
    """Return the statistic of the clipped samples of every bin, exact up to one rounding, shape (G,)."""
    per_unit = steps_per_unit(statistic, samples.occupancy, samples.bound)
    exact: FloatArray = exact_integer(statistic, samples.contributions()).astype(np.float64)
    return np.asarray(exact / per_unit, dtype=np.float64)


def absolute_errors(
    mechanism: Mechanism,
    samples: Samples,
    statistic: Statistic,
    epsilon: FloatArray,
    noise: NoiseSource,
    runs: int,
) -> FloatArray:
    """Return the mean over ``runs`` independent estimates of |estimate - truth|, a bin, shape (G,)."""
    integer_between(1, 10**6, runs=runs)
    truth = true_statistic(samples, statistic)
    total = np.zeros_like(truth)
    for _ in range(runs):
        total += np.abs(mechanism.estimate(samples, statistic, epsilon, noise) - truth)
    return total / runs
