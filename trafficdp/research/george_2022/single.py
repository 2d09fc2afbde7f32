"""Algorithm 4 of paper 002: exponential withhold-release into a single counter.

A vehicle has one element of every level 0..L in a stream of at most N = n (L + 1). Moving all by their
widths W_l moves nodes by at most sum W_l touches(t_l), t_0 < t_1 < ... the places of its elements: the
maximum over places is exact (any places can happen), at most lv(N) sum W_l, where the paper has
lv(N) (1 + L) max W.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.scales import laplace_scale
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.levelled import Centre, truncate
from trafficdp.research.george_2022.levels import LevelPlan
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def single_price(plan: LevelPlan, tree: Tree = BINARY) -> int:
    """Return the most that a vehicle moves all nodes together, in steps. Exact over arrival orders.

    Level by level: the best with element l at place t is W_l touches(t) plus the best of l - 1 before t.
    """
    touches = tree.touches(plan.users * len(plan.width))
    best = np.zeros(len(touches) + 1, dtype=np.int64)
    lowest = np.iinfo(np.int64).min // 2
    for width in plan.width:
        here = best[:-1] + int(width) * touches
        best = np.concatenate([[lowest], np.maximum.accumulate(here)])
    return int(best[-1])


def single_scale(plan: LevelPlan, epsilon: float, tree: Tree = BINARY) -> float:
    """Return eta = price / eps, at least."""
    return float(laplace_scale(np.array([single_price(plan, tree)]), np.array([epsilon]))[0])


def single_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    scale: float,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    centre: Centre | None = None,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the released means after ``at`` (K,) samples (0..T), in steps, shape (runs, K)."""
    elements = arrivals.elements
    value = elements.value.copy()
    if centre is not None:
        for level in np.flatnonzero(plan.truncated):
            mine = elements.level == level
            size, half = int(plan.size[level]), int(plan.half_width[level])
            value[mine] = truncate(value[mine], size, half, plan.steps, centre)[0]
    fed = np.searchsorted(elements.sample, at)
    exact = np.concatenate([[0], np.cumsum(value)])[fed]
    contained = np.concatenate([[0], np.cumsum(plan.size[elements.level])])[fed]
    noise = tree.path(fed, plan.users * len(plan.width), scale, source, runs)
    means = np.where(contained > 0, (exact + noise) / np.maximum(contained, 1), plan.steps / 2)
    return np.clip(means, 0, plan.steps)
