"""Algorithm 5 of paper 002: exponential withhold-release with one counter a level.

The counter of level l gets one element of at most ``users`` vehicles, each of which moves it by at most W_l,
so its nodes move by at most W_l (most touches) in all: eps_l-DP with eta_l. The output at t is the
sum of all noisy running sums over the number of samples in them, clipped to [0, u]; u/2 before there are
any. Numbers of elements are public.

Elements are truncated around a centre that is a parameter here: none (W_l = u B_l), a prior from outside
(Algorithm 5 as printed), or private medians with activation times (``full``, Algorithm 6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.levels import LevelPlan
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Centre:
    """Where a level is truncated: at numerator/denominator steps a sample, one numerator a run.

    ``active``: the number of samples after which its elements, waiting until then, enter the counter.
    """

    numerator: IntArray
    denominator: int
    active: int = 0

    @classmethod
    def at(cls, prior: Fraction) -> Centre:
        """Return one centre for all runs, known from the start."""
        return cls(np.array([prior.numerator]), prior.denominator)


def truncate(value: IntArray, size: int, half_width: int, steps: int, centre: Centre) -> IntArray:
    """Return P_l of the sums ``value`` (E,), shape (runs of the centre, E): an interval rounded inward.

    [B mu - D, B mu + D] and [0, u B], both ends whole, so that a changed element moves by at most
    min(u B, 2 D) steps.
    """
    middle = size * centre.numerator
    low = np.maximum(-((half_width * centre.denominator - middle) // centre.denominator), 0)
    high = np.minimum((middle + half_width * centre.denominator) // centre.denominator, steps * size)
    return np.clip(value[None, :], low[:, None], high[:, None])


def levelled_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    centres: Sequence[Centre | None] | None = None,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the released means after ``at`` (K,) samples (0..T), in steps, shape (runs, K).

    ``centres``: one entry a level, None where nothing is truncated.
    """
    scales = plan.scales(tree)

    def path(level: int, fed: IntArray) -> FloatArray:
        return tree.path(fed, plan.users, float(scales[level]), source, runs)

    return means_with_noise(arrivals, plan, path, at, centres)


def means_with_noise(
    arrivals: Arrivals,
    plan: LevelPlan,
    path: Callable[[int, IntArray], FloatArray],
    at: IntArray,
    centres: Sequence[Centre | None] | None = None,
) -> FloatArray:
    """Return the same with any noise: ``path(l, k)`` of level l's first k (K,) elements, shape (runs, K)."""
    elements = arrivals.elements
    sums: FloatArray = np.zeros((1, len(at)))
    contained = np.zeros(len(at), dtype=np.int64)
    for level in range(len(plan.width)):
        mine = elements.level == level
        value = elements.value[mine][None, :]
        centre = centres[level] if centres is not None else None
        size = int(plan.size[level])
        fed = np.searchsorted(elements.sample[mine], at)
        if centre is not None:
            value = truncate(value[0], size, int(plan.half_width[level]), plan.steps, centre)
            fed = np.where(at >= centre.active, fed, 0)
        exact = np.concatenate([np.zeros((len(value), 1), dtype=np.int64), np.cumsum(value, axis=1)], axis=1)
        sums = sums + exact[:, fed] + path(level, fed)
        contained += size * fed
    means = np.where(contained > 0, sums / np.maximum(contained, 1), plan.steps / 2)
    return np.clip(means, 0, plan.steps)
