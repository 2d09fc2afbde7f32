"""Algorithm 3 of paper 002: contiguous vehicles and a prior, both wished for.

When a vehicle has sent all of its m samples, their sum, projected onto [m mu - D, m mu + D], enters one
counter of n elements: D = u (sqrt((m/2) ln(2 n/delta)) + sqrt(m)), eta = W lv(n)/eps with
W = min(u m, 2 D). Until the first vehicle is done the prior itself is the output.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import in_range
from trafficdp.mechanisms.scales import laplace_scale
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.levelled import Centre, truncate
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def wishful_half_width(users: int, samples: int, steps: int, delta: float) -> int:
    """Return D in whole steps."""
    spread = np.sqrt(samples / 2 * np.log(2 * users / in_range(0, 1, delta=delta))) + np.sqrt(samples)
    return int(np.ceil(steps * spread))


def wishful_scale(
    users: int, samples: int, steps: int, epsilon: float, delta: float, tree: Tree = BINARY
) -> float:
    """Return eta = min(u m, 2 D) (most touches) / eps, at least."""
    width = min(steps * samples, 2 * wishful_half_width(users, samples, steps, delta))
    price = width * int(tree.touches(users).max())
    return float(laplace_scale(np.array([price]), np.array([epsilon]))[0])


def wishful_means(
    arrivals: Arrivals,
    prior: Fraction,
    half_width: int,
    scale: float,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the released means after ``at`` (K,) samples (0..T), in steps, shape (runs, K).

    Vehicles count when they have sent all m samples, in whatever order samples come.
    """
    m = arrivals.samples
    done = np.flatnonzero(arrivals.rank == m)
    sums = np.zeros(arrivals.users, dtype=np.int64)
    np.add.at(sums, arrivals.user, arrivals.value)
    value = truncate(sums[arrivals.user[done]], m, half_width, arrivals.steps, Centre.at(prior))[0]
    fed = np.searchsorted(done, at)
    exact = np.concatenate([[0], np.cumsum(value)])[fed]
    noise = tree.path(fed, arrivals.users, scale, source, runs)
    means = np.where(fed > 0, (exact + noise) / np.maximum(m * fed, 1), float(prior))
    return np.clip(means, 0, arrivals.steps)
