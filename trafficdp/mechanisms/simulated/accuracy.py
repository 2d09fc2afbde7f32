"""How far a mechanism's estimates are from the truth, on values that may be looked at for evaluation."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from trafficdp._validate import integer_between
from trafficdp.mechanisms.laplace.lattice import exact_integer, steps_per_unit
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
AT_ONCE = 10
"""Runs that are held in memory together."""


@runtime_checkable
class Repeatable(Protocol):
    """A mechanism that makes many independent estimates for little more than one."""

    def estimates(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource, runs: int
    ) -> FloatArray:
        """Return ``runs`` independent estimates, shape (runs, G)."""


def true_statistic(samples: Samples, statistic: Statistic) -> FloatArray:
    """Return the statistic of the clipped samples of every bin, exact up to one rounding, shape (G,)."""
    per_unit = steps_per_unit(statistic, samples.counts, samples.bound)
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
    left = runs
    while left:
        if isinstance(mechanism, Repeatable):
            now = min(left, AT_ONCE)
            found = mechanism.estimates(samples, statistic, epsilon, noise, now)
        else:
            now = 1
            found = mechanism.estimate(samples, statistic, epsilon, noise)[None]
        total += np.abs(found - truth).sum(axis=0)
        left -= now
    return total / runs
