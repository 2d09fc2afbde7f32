"""From how many vehicles on the Huber mechanism pays: a public rule, so that refusing costs nothing."""

from __future__ import annotations

import numpy as np

from trafficdp.bounding.smooth_sensitivity import HuberShape, clean_smooth_sensitivity
from trafficdp.errors import UsageError
from trafficdp.mechanisms.huber.huber import Huber
from trafficdp.research.zhao_2024.gaussian_huber import GaussianHuber

MOST_VEHICLES = 2**20


def least_vehicles(
    upper: float, threshold: float, epsilon: float, mechanism: Huber | GaussianHuber | None = None
) -> int:
    """Return n_min: from how many equal vehicles on Huber beats Laplace noise U/(n epsilon), if clean.

    The least n with S(n, T, U, Z = 0.4 T) E|xi| / alpha below U/(n epsilon); found by doubling, then
    halving, since the left side falls off faster. About 100/epsilon for T/U = 0.15.
    Raises UsageError where ``threshold`` reaches ``upper`` or MOST_VEHICLES are not enough.
    """
    if not 0 < threshold < upper:
        raise UsageError(
            "the Huber threshold is out of range", got=f"threshold={threshold}", expected="0 < T < U"
        )
    settings = mechanism or Huber()
    one = np.array([epsilon])
    alpha, beta, mean_absolute = settings.calibrated(one)

    def pays(vehicles: int) -> bool:
        shape = HuberShape(
            np.full(vehicles, 1 / vehicles),
            np.full(vehicles, threshold),
            np.zeros(vehicles, dtype=np.int64),
            1,
            upper,
        )
        clean = clean_smooth_sensitivity(shape, beta)[0] * mean_absolute / alpha[0]
        return bool(clean < upper / (vehicles * epsilon))

    high = 4
    while not pays(high):
        high *= 2
        if high > MOST_VEHICLES:
            raise UsageError("no number of vehicles is enough", got=f"epsilon={epsilon}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high
