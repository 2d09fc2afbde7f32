"""Continual means when the number of vehicles or samples is not known: start again with twice as many.

Epoch i = 1, 2, ... declares n_i vehicles and m_i samples and has the budget 6 eps/(pi^2 i^2). When a vehicle
too many comes, or a vehicle sends a sample too many, both numbers double (which are public facts; doubling
one alone makes more epochs, and each of them costs more than a number that is too large). The new epoch is
fed all samples from the first on. Every vehicle pays for every epoch, less than eps in all, whatever comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import PureDP
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.full import full_means
from trafficdp.research.george_2022.levels import LevelPlan, doubling_epsilon
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Planner = Callable[[int, int, float], LevelPlan]
"""From most vehicles, most samples and epsilon to the levels of an epoch."""


@dataclass(frozen=True)
class Epoch:
    """Samples ``first`` .. ``last`` (1-based) are answered by a plan of ``users`` and ``samples``."""

    first: int
    last: int
    users: int
    samples: int


def epochs(user: IntArray, users: int, samples: int) -> list[Epoch]:
    """Return the epochs of arrivals ``user`` (T,), starting from ``users`` vehicles of ``samples`` samples.

    A vehicle is known by its first arrival; both numbers may double several times at once.
    """
    found: list[Epoch] = []
    if not len(user):
        return found
    arrivals = relabelled(user, np.zeros(len(user), dtype=np.int64), 1)
    seen = np.maximum.accumulate(arrivals.user) + 1
    most = np.maximum.accumulate(arrivals.rank)
    begin = 0
    while begin < len(user):
        while seen[begin] > users or most[begin] > samples:
            users, samples = 2 * users, 2 * samples
        end = min(int(np.searchsorted(seen, users + 1)), int(np.searchsorted(most, samples + 1)))
        found.append(Epoch(begin + 1, end, users, samples))
        begin = end
    return found


def relabelled(user: IntArray, value: IntArray, steps: int) -> Arrivals:
    """Return the stream with vehicles numbered by first arrival, and declared as it turned out."""
    _, first, which = np.unique(user, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbered = rank[which]
    return Arrivals(numbered, value, len(first), int(np.bincount(numbered).max()), steps)


def doubling_means(
    arrivals: Arrivals,
    epsilon: str | float | Fraction,
    plan: Planner,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    *,
    start: tuple[int, int] = (1, 1),
    tree: Tree = BINARY,
) -> tuple[FloatArray, PureDP]:
    """Return released means after ``at`` (K,) samples (1..T), (runs, K), and what all epochs cost.

    The declared numbers of ``arrivals`` are not looked at; ``start`` are those of the first epoch.
    """
    own = relabelled(arrivals.user, arrivals.value, arrivals.steps)
    result = np.full((runs, len(at)), arrivals.steps / 2)
    spent = PureDP(0)
    for number, epoch in enumerate(epochs(own.user, *start), start=1):
        budget = doubling_epsilon(epsilon, number)
        levels = plan(epoch.users, epoch.samples, float(budget.epsilon))
        part = Arrivals(
            own.user[: epoch.last], own.value[: epoch.last], epoch.users, epoch.samples, own.steps
        )
        inside = (at >= epoch.first) & (at <= epoch.last)
        result[:, inside] = full_means(part, levels, source, runs, at[inside], tree)
        spent = spent + levels.loss(tree)
    return result, spent
