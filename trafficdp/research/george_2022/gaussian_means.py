"""Continual means with Gaussian noise from matrix factorisations, under zCDP: Algorithms 2 and 5 with it.

Losses rho add up over levels; the summed variance of the levels is proportional to sum W_l^2/rho_l, least for
rho_l proportional to W_l. For (eps, delta) convert once, by name (``privacy.conversion``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import ZCDP
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.factor import GaussianSums, gaussian_loss, gaussian_sd
from trafficdp.research.george_2022.levelled import means_with_noise
from trafficdp.research.george_2022.levels import LevelPlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def gaussian_naive_means(
    arrivals: Arrivals, rho: ZCDP, sums: GaussianSums, source: NoiseSource, runs: int, at: IntArray
) -> tuple[FloatArray, ZCDP]:
    """Return released means after ``at`` (K,) samples (1..T), (runs, K), and a vehicle's loss, at most rho.

    Every sample is an element, m a vehicle, at any places.
    """
    sd = gaussian_sd(sums, arrivals.steps, arrivals.samples, rho)
    total = np.concatenate([[0], np.cumsum(arrivals.value)])[at]
    noise = sums.path(at, sd, source, runs)
    means = np.clip((total + noise) / at, 0, arrivals.steps)
    return means, gaussian_loss(sums, arrivals.steps, arrivals.samples, sd)


def gaussian_levelled_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    rho: ZCDP,
    sums: GaussianSums,
    source: NoiseSource,
    runs: int,
    at: IntArray,
) -> tuple[FloatArray, ZCDP]:
    """Return the same with withhold-release and one factor a level, whose widths alone ``plan`` gives."""
    share = plan.width / plan.width.sum()
    each = [ZCDP(int(rho.pico * part)) for part in share]
    sd = [gaussian_sd(sums, int(width), 1, part) for width, part in zip(plan.width, each, strict=True)]

    def path(level: int, fed: IntArray) -> FloatArray:
        return sums.path(fed, sd[level], source, runs)

    loss = ZCDP(0)
    for width, spread in zip(plan.width, sd, strict=True):
        loss = loss + gaussian_loss(sums, int(width), 1, spread)
    return means_with_noise(arrivals, plan, path, at), loss
