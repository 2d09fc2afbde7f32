"""Estimates of bins that some vehicles were left out of: centre imputation, bias in interval and error.

D of the N records of a bin are left out (by public counts), n = N - D are kept. What is released:

===========  ==================================================  ==========================
statistic    number                                              bias at worst, exactly
===========  ==================================================  ==========================
mean         (sum of the kept + D U/2) / N                       U D / (2 N)
vehicle mean (sum of kept vehicles' means + (L - L') U/2) / L    U (L - L') / (2 L)
variance     that of the kept                                    U^2 j (N - j)/N^2, j = min(D, floor(N/2))
===========  ==================================================  ==========================

(Clip-User, arXiv 2405.06261, averages the kept alone: bias U D/N and sensitivity U m/n, both larger.) A
vehicle that is left out of a bin pays nothing for it; a kept one moves the mean by U m/N. Proof: what is left
out does not enter; given the draw of ``laplace.baseline`` on the kept records, all else is arithmetic with
public counts. The bias of a mean is largest when all that is left out is 0, or all is U; that of the
variance: ``bounding.count_cap``. Intervals of the kept statistic, shrunk with it, are widened by the bias,
and so is the expected error, by the triangle inequality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.count_cap import dropped_variance_bias
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.lattice import Lattice, steps_per_unit
from trafficdp.mechanisms.publish import interval, status_of
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Imputed:
    """A bin's number from that of its kept records: share * kept + offset, off by ``bias``; shape (G,)."""

    share: FloatArray
    offset: FloatArray
    bias: FloatArray


def kept_counts(counts: Counts, kept: BoolArray) -> Counts:
    """Return the counts of the pairs where ``kept`` (shape (P,)) is true; every bin must keep one."""
    return Counts(
        cell=counts.cell,
        slot=counts.slot,
        bin_index=counts.bin_index[kept],
        user_index=counts.user_index[kept],
        count=counts.count[kept],
        users=counts.users,
    )


def imputed(statistic: Statistic, counts: Counts, rest: Counts, bound: ContributionBound) -> Imputed:
    """Return how the statistic of all of ``counts`` is estimated from that of ``rest``, its kept pairs."""
    upper = float(bound.upper)
    if statistic is Statistic.VARIANCE:
        dropped = counts.samples_per_bin - rest.samples_per_bin
        bias = dropped_variance_bias(dropped, counts.samples_per_bin, upper)
        return Imputed(np.ones(counts.bins), np.zeros(counts.bins), bias)
    share = (
        rest.samples_per_bin / counts.samples_per_bin
        if statistic is Statistic.MEAN
        else rest.users_per_bin / counts.users_per_bin
    )
    centre = (1 - share) * upper / 2
    return Imputed(share, centre, centre)


def noise_scale(
    statistic: Statistic, counts: Counts, rest: Counts, bound: ContributionBound, lattice: Lattice
) -> FloatArray:
    """Return the Laplace scale of the published number, shape (G,)."""
    scale = lattice.scale * lattice.spacing / steps_per_unit(statistic, rest, bound)
    result: FloatArray = scale * imputed(statistic, counts, rest, bound).share
    return result


def suppressed_error(
    statistic: Statistic, counts: Counts, rest: Counts, bound: ContributionBound, scale: FloatArray
) -> FloatArray:
    """Return the worst-case expected error of the clamped number at Laplace ``scale``, without rounding."""
    by = imputed(statistic, counts, rest, bound)
    noise = baseline.expected_error(statistic, scale / by.share, float(bound.upper)) * by.share
    return np.minimum(noise + by.bias, statistic.largest(bound.upper))


def published_error(
    statistic: Statistic,
    counts: Counts,
    rest: Counts,
    bound: ContributionBound,
    error: FloatArray,
) -> FloatArray:
    """Return the expected error of every bin: ``error`` of the kept, shrunk, and the bias of leaving out."""
    by = imputed(statistic, counts, rest, bound)
    return np.minimum(error * by.share + by.bias, statistic.largest(bound.upper))


def suppressed_half_width(
    statistic: Statistic,
    counts: Counts,
    rest: Counts,
    bound: ContributionBound,
    lattice: Lattice,
    level: float,
) -> FloatArray:
    """Return how far an interval reaches before it is clamped, shape (G,)."""
    by = imputed(statistic, counts, rest, bound)
    half = baseline.interval_half_width(statistic, rest, bound, lattice, level)
    result: FloatArray = half * by.share + by.bias
    return result


def suppressed_estimate(
    kept: Estimate,
    counts: Counts,
    rest: Counts,
    bound: ContributionBound,
    uninformative_above: float,
) -> Estimate:
    """Return the estimate of all records from ``kept``, that of the kept ones."""
    statistic = kept.statistic
    by = imputed(statistic, counts, rest, bound)
    value = kept.value * by.share + by.offset
    low, high = kept.low * by.share + by.offset - by.bias, kept.high * by.share + by.offset + by.bias
    low, high = interval(statistic, value, low, high, float(bound.upper))
    error = published_error(statistic, counts, rest, bound, kept.expected_error)
    return Estimate(
        statistic=statistic,
        value=value,
        low=low,
        high=high,
        noise_scale=kept.noise_scale * by.share,
        expected_error=error,
        status=status_of(error, statistic, bound, uninformative_above),
        noise=kept.noise,
    )


def kept_contributions(contributions: Contributions, kept: BoolArray) -> Contributions:
    """Return the sums of the pairs where ``kept`` is true."""
    return type(contributions)(
        counts=kept_counts(contributions.counts, kept),
        total=contributions.total[kept],
        total_of_squares=contributions.total_of_squares[kept],
        vehicle=contributions.vehicle,
        bound=contributions.bound,
    )
