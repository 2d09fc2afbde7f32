"""Algorithm 5 without declared numbers and without starting again: shares that go on for ever.

``doubling`` pays for every epoch. Here each level l = 0, 1, 2, ... has a share a_l of epsilon, and each
height j = 0, 1, 2, ... of its tree a share b_j of that, so that eta_(l,j) = u B_l/(eps a_l b_j). A vehicle
has at most one element a level, in at most one node a height, so its loss is at most
eps (sum a)(sum b) <= eps, however many vehicles and samples come. Levels and heights up to a guess share
1 - RESERVE; the i-th beyond it has RESERVE 6/(pi^2 i^2). A right guess costs a factor 1/(1 - RESERVE)^2 in
noise, a wrong one is answered all the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import integer_between, positive
from trafficdp.mechanisms.scales import laplace_scale
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.doubling import relabelled
from trafficdp.research.george_2022.levelled import means_with_noise
from trafficdp.research.george_2022.levels import last_level, prior_plan
from trafficdp.research.george_2022.withhold import level_size
from trafficdp.stream.tree import Tree, bit_length

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
RESERVE = 0.2
INVERSE_SQUARES = 0.6079271
"""Less than 6/pi^2."""


def endless_shares(weight: npt.NDArray[np.floating], count: int) -> FloatArray:
    """Return the first ``count`` of shares whose sum over all never exceeds 1.

    ``weight`` (n,) > 0 divides 1 - RESERVE among the guessed ones; decreasing shares follow.
    """
    beyond = np.arange(1, max(count - len(weight), 0) + 1)
    guessed = weight / weight.sum() * (1 - RESERVE)
    return np.concatenate([guessed, RESERVE * INVERSE_SQUARES / beyond**2])[:count]


def unbounded_means(
    arrivals: Arrivals,
    epsilon: float,
    guess: tuple[int, int],
    tree: Tree,
    source: NoiseSource,
    runs: int,
    at: IntArray,
) -> FloatArray:
    """Return released means after ``at`` (K,) samples (0..T), in steps, shape (runs, K).

    ``guess``: vehicles and samples a vehicle. The declared numbers of ``arrivals`` are not looked at.
    Raises UsageError for averaged trees.
    """
    users, samples = (integer_between(1, 2**40, guess=each) for each in guess)
    own = relabelled(arrivals.user, arrivals.value, arrivals.steps)
    levels = int(bit_length(own.samples))
    size = level_size(np.arange(levels))
    share = endless_shares(level_size(np.arange(last_level(samples) + 1)) ** (2 / 3), levels)
    inside = endless_shares(np.ones(tree.heights(users)), tree.heights(own.users))
    scales = laplace_scale(own.steps * size[:, None], positive(epsilon=epsilon) * share[:, None] * inside)
    plan = prior_plan(own.users, own.samples, own.steps, epsilon, 0.5, prior=False)

    def path(level: int, fed: IntArray) -> FloatArray:
        return tree.path(fed, own.users, scales[level], source, runs)

    return means_with_noise(own, plan, path, at)
