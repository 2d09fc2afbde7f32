"""The two moments of a bin as integers a vehicle: speeds, and squared distances from U/2.

A variance is released by the second-moment route: y = (x - U/2)^2 lies in [0, U^2/4] (a quarter of the range
of x^2); with M2 its mean, Var = M2 - (mean - U/2)^2. For estimates m in [0, U] and M2 with errors e1, e2

    |Var' - Var| <= |e2| + |e1| |m + mean - U| <= |e2| + U |e1|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms import publish
from trafficdp.model.bound import ContributionBound
from trafficdp.model.statistic import Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Moment:
    """What one sample contributes: a whole number of ``unit`` from 0 to ``steps``. Public."""

    steps: int
    unit: float

    @property
    def upper(self) -> float:
        """The largest value, in the statistic's unit."""
        return self.steps * self.unit


def first_moment(bound: ContributionBound) -> Moment:
    """Return speeds: 0 to U in steps of q."""
    return Moment(bound.steps, float(bound.step))


def second_moment(bound: ContributionBound) -> Moment:
    """Return squared distances from U/2: (2k - K)^2 in units of q^2/4, K = U/q."""
    return Moment(bound.steps**2, float(bound.step**2 / 4))


def check_sums(moment: Moment, samples: int) -> None:
    """Raise UsageError when the sum of so many samples could leave 62 bits."""
    if samples * moment.steps >= 2**62:
        raise UsageError(
            "sums of squares could leave 64 bits",
            got=f"weights that add up to {samples} in a bin, {moment.steps} steps a sample",
            todo="choose a larger speed_step",
        )


def first_totals(contributions: Contributions) -> IntArray:
    """Return each pair's sum of the first moment, shape (P,)."""
    return contributions.total


def second_totals(contributions: Contributions) -> IntArray:
    """Return each pair's sum of (2k - K)^2 = 4 Q - 4 K S + m K^2, shape (P,), exact in 64 bits."""
    top = contributions.bound.steps
    total, squares = contributions.total, contributions.total_of_squares
    return 4 * (squares - top * total) + contributions.counts.count * top**2


def share_of_total(total: IntArray, count: IntArray, used: IntArray) -> IntArray:
    """Return floor(used * total / count): the sum of ``used`` samples at the vehicle's own mean.

    In 0..used * steps, without overflow, and equal to ``total`` where all samples are used.
    """
    return used * (total // count) + used * (total % count) // count


def variance_from(mean: FloatArray, second: FloatArray, upper: float) -> FloatArray:
    """Return M2 - (mean - U/2)^2 put into [0, mean (U - mean)] (Bhatia and Davis); shape (G,)."""
    raw = second - (mean - upper / 2) ** 2
    return publish.clamped(Statistic.VARIANCE, raw, upper, mean)
