"""Algorithm 2 of paper 002: every sample into one counter; the output is the running sum over t.

Every vehicle has at most m samples anywhere in a stream of at most N = n m, so it moves nodes by at most u
times the sum of the m largest ``touches``: exact, and somewhat below the paper's m lv(n m). Any tree will do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.scales import laplace_scale
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def naive_price(users: int, samples: int, tree: Tree = BINARY) -> int:
    """Return the most that a vehicle moves all nodes together, in units of u. Exact over arrival orders."""
    touches = np.sort(tree.touches(users * samples))
    return int(touches[-samples:].sum())


def naive_scale(users: int, samples: int, steps: int, epsilon: float, tree: Tree = BINARY) -> float:
    """Return eta = u price / eps, at least."""
    price = np.array([steps * naive_price(users, samples, tree)])
    return float(laplace_scale(price, np.array([epsilon]))[0])


def naive_means(
    arrivals: Arrivals, scale: float, source: NoiseSource, runs: int, at: IntArray, tree: Tree = BINARY
) -> FloatArray:
    """Return the released means after ``at`` (K,) samples (1..T), in steps, clipped, shape (runs, K)."""
    total = np.concatenate([[0], np.cumsum(arrivals.value)])[at]
    noise = tree.path(at, arrivals.users * arrivals.samples, scale, source, runs)
    return np.clip((total + noise) / at, 0, arrivals.steps)
