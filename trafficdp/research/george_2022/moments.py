"""Variance beside the mean: a second stream that costs nothing if its noise is u times the first's.

Let x in 0..u be a sample and y = x (u - x), in 0..u^2/4. One sample in nodes of scale e_1 (sums of x) and e_2
(sums of y) costs, a node, exactly (``measurement.sets``)

    max over d in 0..u of  d/e_1 + d (u - d)/e_2.

It is concave in d with its top at (u + e_2/e_1)/2. For e_2 >= u e_1 the largest d = u wins, where y does not
move: the price is u/e_1, that of the mean alone. Sums over a vehicle's samples and nodes add. (The pair
(x, x^2), each at half of the budget, would cost twice as much for the same noise on the mean.)

With N samples the variance is v = m (u - m) - (sum y)/N, m = (sum x)/N; released values are clipped to
m in [0, u] and v in [0, m (u - m)] (Bhatia and Davis).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import PICO, PureDP, round_up
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.levels import LevelPlan
from trafficdp.research.george_2022.withhold import WithholdRelease
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def second_scale(steps: int, first: FloatArray) -> FloatArray:
    """Return u e_1, rounded up: the least scale of the second stream at which it is free."""
    return round_up(steps * first)


def moments_loss(plan: LevelPlan, tree: Tree = BINARY) -> PureDP:
    """Return what ``levelled_moments`` costs a vehicle, rounded up: equal to the means' ``plan.loss``."""
    price = int(tree.touches(plan.users).max())
    total = Fraction(0)
    first = plan.scales(tree)
    for size, one, two in zip(plan.size, first, second_scale(plan.steps, first), strict=True):
        total += int(size) * price * record_price(plan.steps, float(one), float(two))
    return PureDP(-(-total.numerator * PICO // total.denominator))


def record_price(steps: int, first: float, second: float) -> Fraction:
    """Return what one sample costs, exactly: ``steps`` u, scales ``first`` e_1 and ``second`` e_2."""
    one, two = Fraction(first), Fraction(second)
    top = (steps + two / one) / 2
    near = {min(steps, int(top)), min(steps, int(top) + 1)}
    return max(Fraction(d) / one + Fraction(d * (steps - d)) / two for d in near)


def levelled_moments(
    arrivals: Arrivals, plan: LevelPlan, source: NoiseSource, runs: int, at: IntArray, tree: Tree = BINARY
) -> tuple[FloatArray, FloatArray]:
    """Return released means (steps) and variances (steps^2) after ``at`` (K,) samples, each (runs, K).

    One counter a level and moment, nothing truncated. Before there is an element: u/2 and u^2/8.
    Raises UsageError for a plan that truncates.
    """
    if bool(plan.truncated.any()) or bool(np.any(plan.median_epsilon > 0)):
        raise UsageError(
            "variances cannot be had from truncated elements",
            expected="a plan without medians and without a prior",
        )
    u = plan.steps
    both = np.stack([arrivals.value, arrivals.value * (u - arrivals.value)], axis=1)
    elements = WithholdRelease(arrivals.users, columns=2).append(arrivals.user, both)
    first = plan.scales(tree)
    scales = np.stack([first, second_scale(u, first)], axis=1)
    sums = np.zeros((2, runs, len(at)))
    contained = np.zeros(len(at), dtype=np.int64)
    for level in range(len(plan.width)):
        mine = elements.level == level
        fed = np.searchsorted(elements.sample[mine], at)
        contained += int(plan.size[level]) * fed
        for moment in range(2):
            exact = np.concatenate([[0], np.cumsum(elements.value[mine, moment])])[fed]
            noise = tree.path(fed, plan.users, float(scales[level, moment]), source, runs)
            sums[moment] += exact + noise
    there = contained > 0
    mean = np.clip(np.where(there, sums[0] / np.maximum(contained, 1), u / 2), 0, u)
    least = mean * (u - mean)
    variance = np.clip(least - sums[1] / np.maximum(contained, 1), 0, least)
    return mean, np.where(there, variance, u**2 / 8)
