"""From noisy sums to published numbers: means and variances of every bin so far, with intervals.

With N records, X the noisy sum of x and Y that of x (S - x), in steps: mean m = X/N and variance
v = m (S - m) - Y/N, clipped to [0, S] and [0, m (S - m)] (Bhatia and Davis).

*Intervals.* X - sum x is a sum of ``terms`` independent discrete Laplace draws, of either sign: it exceeds
h_X with probability at most 1 - level (``noise.tail``). For the variance, h_X and h_Y are both taken
at 1 - (1 - level)/2; m (S - m) is monotone on either side of S/2, so over [m - h_X/N, m + h_X/N] its
extremes are at the ends or at S/2; the interval is the range of the difference. Rounding of
speeds is added as a bias (``publish.rounding_bias``). All of it holds at every publication by
itself, not at all of them at once.

*Expected error*, worst case over the truth: for the mean that of the clamped sum; m (S - m) moves at most S
times as far as m, so a variance is off by at most S times the mean's error and that of Y/N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms import publish
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.tail import clamped_sum_error, half_width_of_sum
from trafficdp.privacy.estimate import BinStatus, Estimate
from trafficdp.stream.service import MEAN, SQUARE, Allowance, Closed

FloatArray = npt.NDArray[np.float64]


def estimates_of(
    closed: Closed,
    statistics: Sequence[Statistic],
    allowance: Allowance,
    bound: ContributionBound,
    *,
    interval_level: float,
    min_vehicles: int,
) -> dict[Statistic, Estimate]:
    """Return the estimates over all bins of ``closed``, NaN and WITHHELD below ``min_vehicles``.

    ``statistics`` are MEAN, VARIANCE or both.
    """
    makers = {Statistic.MEAN: _mean, Statistic.VARIANCE: _variance}
    keep = closed.vehicles >= min_vehicles
    return {
        statistic: _withheld(makers[statistic](closed, allowance, bound, interval_level), keep)
        for statistic in Statistic
        if statistic in statistics
    }


def _mean(closed: Closed, allowance: Allowance, bound: ContributionBound, level: float) -> Estimate:
    upper, step = float(bound.upper), float(bound.step)
    records = closed.records.astype(np.float64)
    bias = publish.rounding_bias(Statistic.MEAN, bound)
    drawn = publish.Drawn(
        value=closed.sums[:, MEAN] * step / records,
        half_width=_half(allowance.mean_scale, closed, level) * step / records + bias,
        noise_scale=allowance.mean_scale * step / records,
        expected_error=np.minimum(
            _sum_error(allowance.mean_scale, closed, upper / step) * step + bias, upper
        ),
        noise=_noise_columns(allowance.mean_scale, closed),
    )
    return publish.estimate(Statistic.MEAN, drawn, bound)


def _variance(closed: Closed, allowance: Allowance, bound: ContributionBound, level: float) -> Estimate:
    steps, square = float(bound.steps), float(bound.step) ** 2
    reach = Statistic.VARIANCE.largest(float(bound.upper))
    records = closed.records.astype(np.float64)
    bias = publish.rounding_bias(Statistic.VARIANCE, bound)
    both = 1 - (1 - level) / 2
    mean = publish.clamped(Statistic.MEAN, closed.sums[:, MEAN] / records, steps)
    second = publish.clamped(Statistic.VARIANCE, closed.sums[:, SQUARE] / records, steps)
    far = _half(allowance.mean_scale, closed, both) / records
    lowest, highest = np.maximum(mean - far, 0.0), np.minimum(mean + far, steps)
    ends = np.stack([publish.largest_variance(end, steps) for end in (lowest, highest)])
    across = (lowest <= steps / 2) & (steps / 2 <= highest)
    most = np.where(across, steps * steps / 4, ends.max(axis=0))
    off = _half(allowance.square_scale, closed, both) / records
    value = publish.largest_variance(mean, steps) - second
    value = publish.clamped(Statistic.VARIANCE, value, steps, mean) * square
    low = (ends.min(axis=0) - second - off) * square - bias
    high = (most - second + off) * square + bias
    error = _sum_error(allowance.square_scale, closed, steps * steps / 4)
    error = (error + steps * _sum_error(allowance.mean_scale, closed, steps)) * square + bias
    error = np.minimum(error, reach)
    # the variance of one record is 0, whatever its speed
    one = closed.records == 1
    value, low, high, error = (np.where(one, 0.0, each) for each in (value, low, high, error))
    scale = np.where(one, 0.0, allowance.square_scale * square / records)
    low, high = publish.interval(Statistic.VARIANCE, value, low, high, float(bound.upper))
    return Estimate(
        statistic=Statistic.VARIANCE,
        value=value,
        low=low,
        high=high,
        noise_scale=scale,
        expected_error=error,
        status=publish.status_of(error, Statistic.VARIANCE, bound),
        noise=_noise_columns(allowance.square_scale, closed),
    )


def _half(scale: int, closed: Closed, level: float) -> FloatArray:
    return half_width_of_sum(np.full(len(closed.records), float(scale)), closed.terms, level)


def _sum_error(scale: int, closed: Closed, reach: float) -> FloatArray:
    """The expected error of a noisy sum over N, in steps, clamped to [0, reach]; rounding of integers in."""
    records = closed.records.astype(np.float64)
    noise = clamped_sum_error(scale / records, closed.terms, reach)
    return np.minimum(noise + closed.terms / records, reach)


def _noise_columns(scale: int, closed: Closed) -> dict[str, npt.NDArray[np.generic]]:
    """The columns that price a vehicle again: every node's scale, and how many draws the number carries."""
    return {"lattice_scale": np.full(len(closed.records), float(scale)), "noise_terms": closed.terms}


def _withheld(estimate: Estimate, keep: npt.NDArray[np.bool_]) -> Estimate:
    names = ("value", "low", "high", "noise_scale", "expected_error")
    numbers: dict[str, Any] = {name: np.where(keep, getattr(estimate, name), np.nan) for name in names}
    status = np.where(keep, estimate.status, BinStatus.WITHHELD.value).astype(object)
    noise = dict(estimate.noise)
    noise["lattice_scale"] = np.where(keep, noise["lattice_scale"].astype(np.float64), np.nan)
    noise["noise_terms"] = np.where(keep, noise["noise_terms"], 0)
    return replace(estimate, status=status, noise=noise, **numbers)
