"""From a noisy number to a published one: clamp, interval and status, each decided here and nowhere else.

All of it is post-processing of noisy numbers and of public facts. With R the range of the statistic (U, or
U^2/4 of a variance):

* **Clamp.** A number is put into [0, R]; a variance that is published beside a mean is at most
  mean (U - mean) as well (Bhatia and Davis, A Better Bound on the Variance, 2000).
* **Interval.** Around the noisy number after it was clamped to [0, R], which moves it away from no truth, as
  far as the tail of the noise and the worst-case bias; clamped as well. It keeps its own upper end where the
  number follows a mean, because that mean is noisy too; a lower end above the number follows it.
* **Status.** By the expected error that is published, the worst case over the truth of noise *and bias*, less
  the rounding of speeds, which belongs to the step and not to the noise (``status_of``). So the status can be
  checked from the file. It marks single numbers, and refuses nothing: that is ``planner.allocation``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.privacy.estimate import BinStatus, Estimate

StatusArray = npt.NDArray[np.object_]
MOST_SPANNED = 0.5
"""Where an interval is one of ranks, a number says too little that spans more than this share of vehicles."""
USELESS = 0.125
"""A number whose worst-case expected error is more than this share of the range is marked as useless."""


@dataclass(frozen=True)
class NumberLaw:
    """What public facts say of one statistic's numbers, in its unit, shape (G,) each.

    ``scale`` is the expected absolute noise before clamping or a bound of it, of a Laplace draw its scale,
    ``error`` the expected error of the published number, 0 exactly where it can only be one, ``bias`` the
    most that it is off without noise, ``half_width`` how far its interval reaches over noise and bias.
    """

    scale: FloatArray
    error: FloatArray
    bias: FloatArray
    half_width: FloatArray


def clamp_to_range(
    statistic: Statistic, values: FloatArray, upper: float, mean: FloatArray | None = None
) -> FloatArray:
    """Return ``values`` clamped to the statistic's range 0..R.

    R is ``upper`` for means, ``upper``^2/4 for variances. A variance is also at most ``mean`` (U - ``mean``),
    where a mean is given.
    """
    inside: FloatArray = np.clip(values, 0.0, statistic.largest(upper))
    if statistic is not Statistic.VARIANCE or mean is None:
        return inside
    return np.minimum(inside, largest_variance(mean, upper))


def largest_variance(mean: FloatArray, upper: float) -> FloatArray:
    """Return mean (U - mean), the largest variance of speeds in [0, U] with this mean (Bhatia and Davis)."""
    return np.maximum(mean * (upper - mean), 0.0)


def clamp_interval(
    statistic: Statistic, value: FloatArray, low: FloatArray, high: FloatArray, upper: float
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends clamped to the statistic's range, then widened where needed to hold
    ``value``.
    """
    return (
        np.minimum(clamp_to_range(statistic, low, upper), value),
        np.maximum(clamp_to_range(statistic, high, upper), value),
    )


@cache
def rounding_bias(statistic: Statistic, bound: ContributionBound) -> float:
    """Return the most that rounding of speeds changes the statistic, in its unit: E, E + q/2, or U E + E^2.

    Those are for a mean, a vehicle mean and a variance. A speed is rounded twice: to hundredths of its
    source's unit when it is read, then to the step q when it is clipped. So it moves by at most E = q/2 + h,
    h half a hundredth of the largest unit that a source may have (0.005 m/s: a bound does not name its
    sources); clipping in between moves no two speeds apart. Means move by at most E; a vehicle mean is
    rounded to the step once more. Var(x + e) - Var(x) is at most 2 sd(x) sd(e) + Var(e) with sd(x) <= U/2 and
    sd(e) <= E.
    """
    step, upper = bound.step, bound.upper
    most = step / 2 + max(unit.factor_to(bound.unit) for unit in SpeedUnit) / 200
    exact = {
        Statistic.MEAN: most,
        Statistic.VEHICLE_MEAN: most + step / 2,
        Statistic.VARIANCE: upper * most + most * most,
    }
    return float(exact[statistic])


def status_of(error: FloatArray, statistic: Statistic, bound: ContributionBound) -> StatusArray:
    """Return every number's BinStatus by its expected error, shape (G,).

    CONSTANT where the error is 0 (only one number is possible), UNINFORMATIVE where it is more than USELESS
    of the range R and ``rounding_bias`` together, RELEASED else. So the bias of clipping counts like noise: a
    number is useless for how far it may be off, whichever of the two it is.
    """
    status = np.full(error.shape, BinStatus.RELEASED.value, dtype=object)
    status[is_uninformative(error, statistic, bound)] = BinStatus.UNINFORMATIVE.value
    status[error == 0] = BinStatus.CONSTANT.value
    return status


def is_uninformative(error: FloatArray, statistic: Statistic, bound: ContributionBound) -> BoolArray:
    """Return which numbers have too large an expected error to say anything, shape (G,).

    ``error`` (G,) is the expected absolute error in the unit of ``statistic``, public as it is published. The
    limit is USELESS times the statistic's range (U, or U^2/4 for a variance) plus ``rounding_bias``.
    """
    most = USELESS * statistic.largest(bound.upper) + rounding_bias(statistic, bound)
    return np.asarray(error > most)


def rank_uninformative(rank_width: FloatArray) -> BoolArray:
    """Return which quantiles have intervals of ranks that span too many vehicles to say anything, shape (G,).

    ``rank_width`` is an interval's width in ranks as a share of the bin's vehicles; the limit is
    MOST_SPANNED.
    """
    return np.asarray(rank_width > MOST_SPANNED)


def rank_status(rank_width: FloatArray) -> StatusArray:
    """Return the BinStatus of every quantile from the share of vehicles that its interval spans, (G,)."""
    status = np.full(rank_width.shape, BinStatus.RELEASED.value, dtype=object)
    status[rank_uninformative(rank_width)] = BinStatus.UNINFORMATIVE.value
    return status


def bin_status(keep: BoolArray, statuses: Sequence[StatusArray]) -> StatusArray:
    """Return the status of all G bins, from each statistic's statuses over the kept bins.

    WITHHELD where not kept (a mask), UNINFORMATIVE where every statistic is, RELEASED elsewhere.
    """
    useless = np.all([status == BinStatus.UNINFORMATIVE.value for status in statuses], axis=0)
    result = np.full(len(keep), BinStatus.WITHHELD.value, dtype=object)
    result[keep] = BinStatus.RELEASED.value
    result[np.flatnonzero(keep)[useless]] = BinStatus.UNINFORMATIVE.value
    return result


def publish_estimate(
    statistic: Statistic,
    value: FloatArray,
    law: NumberLaw,
    noise: Mapping[str, npt.NDArray[Any]],
    bound: ContributionBound,
    mean: Estimate | None = None,
) -> Estimate:
    """Return noisy numbers ``value`` (G,) as published: clamped to the range, with intervals and statuses.

    ``law`` says how far off they may be, ``noise`` holds the columns that are published with them. For a
    variance, ``mean`` is the published estimate of the mean, if there is one: the value is then at most
    mean (U - mean).
    """
    upper = float(bound.upper)
    centre = clamp_to_range(statistic, value, upper)
    value = clamp_to_range(statistic, value, upper, None if mean is None else mean.value)
    low, high = clamp_interval(statistic, value, centre - law.half_width, centre + law.half_width, upper)
    return Estimate(
        statistic=statistic,
        value=value,
        low=low,
        high=high,
        noise_scale=law.scale,
        expected_error=law.error,
        status=status_of(law.error, statistic, bound),
        noise=dict(noise),
    )
