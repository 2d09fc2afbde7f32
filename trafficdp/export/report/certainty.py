"""Intervals that hold all at once, by the law of a published statistic's noise, so that bins compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.export.files.classes import shown_decimals
from trafficdp.mechanisms.publish import largest_variance, rounding_bias
from trafficdp.model import SpeedUnit, Statistic
from trafficdp.noise import tail
from trafficdp.noise.block import block_half_width, pair_bounds
from trafficdp.privacy.estimate import BinStatus, IntervalKind
from trafficdp.privacy.release import Release, outward_down, outward_up

# How a published statistic's noise is distributed, as far as public facts say it: for wider intervals.
#
# A release carries one interval a bin at one level. To compare bins, or two releases, one needs intervals at
# other levels: these follow from the noise's law, whose exact parameters are published beside the numbers.
# All numbers here are in the release's display unit, to the statistic's power; estimates are meant before
# they are clamped to their range; each lies within noise and a bias of the truth.


_LATTICE = "lattice_scale"
_PRODUCTS = ("product_scale", "product_shift")
_PRODUCT_BLOCKS = ("product_block", "product_half_width", "product_shift")
_BLOCKS = ("block_scale", "block", "half_width", "shift")


class _BinLaw:
    """The distribution of the noise in G bins. Fields are arrays of shape (G,), or further laws.

    ``bias`` is the largest |estimate - noise - truth|.
    """

    def select_bins(self, rows: IntArray) -> Self:
        """Return the law of the noise in the bins at the positions ``rows`` alone."""
        own = vars(self).values()
        return type(self)(
            *(each.select_bins(rows) if isinstance(each, _BinLaw) else each[rows] for each in own)
        )


@dataclass(frozen=True)
class LatticeLaw(_BinLaw):
    """Independent noises s Z, with Z discrete Laplace of scale ``lattice_scale`` (B) and ``step`` s."""

    lattice_scale: FloatArray
    step: FloatArray
    bias: FloatArray

    @property
    def scale(self) -> FloatArray:
        """Laplace scale s B of the noise in every bin, shape (G,)."""
        return self.lattice_scale * self.step

    @property
    def shift(self) -> FloatArray:
        """Bound, shape (G,), on how far s Z can exceed continuous Laplace noise of the same scale."""
        return tail.lattice_shift(self.lattice_scale) * self.step

    def half_width(self, error: float) -> FloatArray:
        """Return h, shape (G,), with P(|estimate - truth| > h) <= ``error`` in each bin, bias included."""
        return tail.half_width(self.lattice_scale, 1 - error) * self.step + self.bias

    def average_half_width(self, error: float) -> float:
        """Return h with P(|mean of the noises over all bins| > h) <= ``error``; the bias is left out."""
        return tail.sum_half_width(self.scale / len(self.scale), error)


@dataclass(frozen=True)
class BlockLaw(_BinLaw):
    """Noise drawn for whole blocks of bins, so that bins of a block are not independent (``noise.block``).

    ``block`` is the number of the bin's block, ``width`` a, ``size`` d (items of the block), ``scale`` s,
    and ``step`` the lattice step.
    """

    block: IntArray
    width: IntArray
    size: IntArray
    scale: FloatArray
    step: FloatArray
    bias: FloatArray

    def half_width(self, error: float) -> FloatArray:
        """Return h, shape (G,), with P(|estimate - truth| > h) <= ``error`` in each bin, bias included."""
        if not len(self.width):
            return np.zeros(0)
        return block_half_width(self.width, self.size, self.scale, 1 - error) * self.step + self.bias

    def average_half_width(self, error: float) -> float:
        """Return h with P(|mean of the noises over all bins| > h) <= ``error``; the bias is left out.

        Only for bins that all have noise.
        """
        weight = self.step / len(self.step)
        return tail.block_sum_half_width(weight, self.width, self.block, self.size, self.scale, error)


@dataclass(frozen=True)
class MomentsLaw(_BinLaw):
    """Noise of a variance: at most U |e1| + |e2|, with e1 of the mean and e2 of the products x (U - x).

    ``mean`` is the law of U e1, ``products`` the law of e2 (noise of the average product), both without
    bias. See ``mechanisms.two_moments``.
    """

    mean: LatticeLaw
    products: LatticeLaw
    bias: FloatArray

    def half_width(self, error: float) -> FloatArray:
        """Return h, shape (G,), with P(|estimate - truth| > h) <= ``error`` in each bin, bias included."""
        half = tail.two_noises_half_width(self.mean.scale, self.products.scale, error)
        return half + self.mean.shift + self.products.shift + self.bias

    def average_half_width(self, error: float) -> float:
        """Return h with P(|mean of the noises over all bins| > h) <= ``error``; the bias is left out.

        The part of the noise that comes from the mean may have one sign in all bins.
        """
        number = len(self.bias)
        one_sided = self.mean.scale / number, self.mean.shift / number
        return tail.one_sided_sum_half_width(*one_sided, self.products.scale / number, error)


@dataclass(frozen=True)
class MomentBlockLaw(_BinLaw):
    """Noise of a variance: at most U |e1| + |e2|, each from a block of ``size`` items (``noise.block``).

    ``first`` and ``second`` are the scales a s of U e1 and of e2, 0 where there is no noise; ``shift``
    bounds what the lattices of both add.
    """

    size: IntArray
    first: FloatArray
    second: FloatArray
    shift: FloatArray
    bias: FloatArray

    def half_width(self, error: float) -> FloatArray:
        """Return h, shape (G,), with P(|estimate - truth| > h) <= ``error`` in each bin, bias included."""
        half = np.zeros(len(self.bias))
        noisy = (self.first > 0) & (self.second > 0)
        half[noisy] = pair_bounds(self.size[noisy], self.first[noisy], self.second[noisy], 1 - error)[1]
        return half + self.shift + self.bias

    def average_half_width(self, error: float) -> float:
        """Return h with P(|mean of the noises over all bins| > h) <= ``error``; the bias is left out.

        Every bin gets an equal part of ``error``, and h is the mean of the bins' half widths.
        """
        return float((self.half_width(error / len(self.bias)) - self.bias).mean())


NoiseLaw = LatticeLaw | BlockLaw | MomentsLaw | MomentBlockLaw


def law_of(release: Release, statistic: Statistic) -> NoiseLaw | None:
    """Return the distribution of the noise of ``statistic`` over all bins, in the display unit.

    None where the release does not publish it. Bins that are withheld or need no noise have none in the law.
    """
    noise = release.estimates[statistic].noise
    if noise.keys() >= {*_PRODUCTS}:
        return _moments_law(release, statistic)
    if _LATTICE in noise:
        return _lattice_law(release, statistic)
    if noise.keys() >= {*_PRODUCT_BLOCKS}:
        return _moment_block_law(release, statistic)
    return _block_law(release, statistic) if noise.keys() >= {*_BLOCKS} else None


def difference_half_width(first: NoiseLaw, second: NoiseLaw, error: float) -> FloatArray:
    """Return h, shape (G,), with P(|estimate - estimate' - (truth - truth')| > h) <= ``error`` in each bin.

    The noises of the two releases are independent. Two LatticeLaw are bounded jointly (``noise.tail``);
    otherwise each release gets half the error.
    """
    if isinstance(first, LatticeLaw) and isinstance(second, LatticeLaw):
        half = tail.two_noises_half_width(first.scale, second.scale, error)
        return half + first.shift + second.shift + first.bias + second.bias
    return first.half_width(error / 2) + second.half_width(error / 2)


def average_half_width(laws: Sequence[NoiseLaw], error: float) -> float:
    """Return h with P(|sum of the mean errors of all ``laws``| > h) <= ``error``.

    A mean error is the mean of estimate - truth over the bins of a law; it may be added or subtracted, and
    the bias is included. Laws are independent: LatticeLaws are bounded jointly, else each gets an equal part
    of ``error``.
    """
    bias = float(sum(law.bias.mean() for law in laws))
    lattices = [law for law in laws if isinstance(law, LatticeLaw)]
    if len(lattices) == len(laws):
        scales = np.concatenate([law.scale / len(law.scale) for law in lattices])
        return tail.sum_half_width(scales, error) + bias
    return sum(law.average_half_width(error / len(laws)) for law in laws) + bias


def _lattice_law(release: Release, statistic: Statistic) -> LatticeLaw:
    estimate, factor = release.estimates[statistic], release.request.factor(statistic)
    scale = np.nan_to_num(np.asarray(estimate.noise[_LATTICE], dtype=np.float64))
    noisy = scale > 0
    step = np.where(noisy, estimate.noise_scale * factor / np.where(noisy, scale, 1.0), 0.0)
    bias = np.full(len(scale), rounding_bias(statistic, release.request.bound) * factor)
    return LatticeLaw(np.where(noisy, scale, 0.0), step, bias)


def _moments_law(release: Release, statistic: Statistic) -> MomentsLaw:
    estimate, factor = release.estimates[statistic], release.request.factor(statistic)
    upper, step = float(release.request.bound.upper), float(release.request.bound.step)
    # a variance without its mean carries the mean's scale
    of_mean = estimate.noise if _LATTICE in estimate.noise else release.estimates[Statistic.MEAN].noise
    mean = np.nan_to_num(np.asarray(of_mean[_LATTICE], dtype=np.float64))
    scale = np.nan_to_num(np.asarray(estimate.noise["product_scale"], dtype=np.float64))
    shift = np.asarray(estimate.noise["product_shift"], dtype=np.int64)
    noisy, none = scale > 0, np.zeros(len(scale))
    # a step of U times the mean is U q/N, of the average of products q^2/N over 2^shift; the published noise
    # scale is the expected absolute value of both
    product = np.ldexp(np.full(len(scale), step), -shift)
    both = tail.two_noises_mean(upper * mean, product * scale)
    one = np.where(noisy, estimate.noise_scale * factor / np.where(noisy, both, 1.0), 0.0)
    bias = np.where(noisy, rounding_bias(statistic, release.request.bound) * factor, 0.0)
    return MomentsLaw(
        LatticeLaw(np.where(noisy, mean, 0.0), one * upper, none),
        LatticeLaw(np.where(noisy, scale, 0.0), one * product, none),
        # a floored sum is published at the middle of its step
        bias + np.where(shift < 0, one * product / 2, 0.0),
    )


def _moment_block_law(release: Release, statistic: Statistic) -> MomentBlockLaw:
    noise = release.estimates[statistic].noise
    unit = release.request.bound.unit.factor_to(release.request.display_unit)
    mean = _block_law(release, Statistic.MEAN)
    block, width, shift = (np.asarray(noise[name], dtype=np.int64) for name in _PRODUCT_BLOCKS)
    noisy = block >= 0
    mean_shift = np.asarray(release.estimates[Statistic.MEAN].noise["shift"], dtype=np.int64)
    # a step of the mean is 2^-shift q/N, of the average of products 2^-shift q^2/N
    step = np.where(
        noisy, np.ldexp(mean.step, mean_shift - shift) * float(release.request.bound.step * unit), 0.0
    )
    upper = float(release.request.bound.upper * unit)
    first = np.where(noisy, upper * mean.step * mean.width, 0.0)
    second = step * width
    bias = rounding_bias(statistic, release.request.bound) * release.request.factor(statistic)
    floored = np.where(shift < 0, step / 2, 0.0) + np.where(mean_shift < 0, upper * mean.step / 2, 0.0)
    return MomentBlockLaw(
        mean.size,
        first * mean.scale,
        second * mean.scale,
        np.asarray(2 * (first + second), dtype=np.float64),
        np.where(noisy, bias + floored, 0.0),
    )


def _block_law(release: Release, statistic: Statistic) -> BlockLaw:
    estimate = release.estimates[statistic]
    block = np.asarray(estimate.noise["block"], dtype=np.int64)
    noises = [each.noise for each in release.estimates.values()]
    everything = np.concatenate([noise["block"] for noise in noises if "block" in noise])
    sizes = np.bincount(everything[everything >= 0].astype(np.int64), minlength=1)
    noisy = block >= 0
    size = np.where(noisy, sizes[np.where(noisy, block, 0)], 1)
    width = np.where(noisy, np.asarray(estimate.noise["half_width"], dtype=np.int64), 1)
    scale = np.where(noisy, np.asarray(estimate.noise["block_scale"], dtype=np.float64), 1.0)
    # the published noise scale is the expected absolute noise, a s (d + 1)/2 lattice steps
    factor = release.request.factor(statistic)
    step = np.where(noisy, estimate.noise_scale * factor / (width * scale * (size + 1) / 2), 0.0)
    floored = np.asarray(estimate.noise["shift"], dtype=np.int64) < 0
    bias = rounding_bias(statistic, release.request.bound) * factor + np.where(floored, step / 2, 0.0)
    return BlockLaw(block, width, size, scale, step, bias)


# Intervals that hold all at once, so that bins can be compared with one another.
#
# **Theorem (Bonferroni).** Let bin i of K compared bins have an interval that misses its truth with
# probability at most e_i, and let the e_i add up to at most a. Then with probability at least 1 - a every
# interval holds its truth; on that event *every* statement that follows from the intervals is true, however
# many are made and however they were chosen by looking at the numbers: bin i is slower than bin j if
# high_i < low_j. Which bins are compared is decided by their status, hence by public counts alone. No
# independence is used. The truth is the sample statistic of the clipped speeds in the data.
#
# From the release's interval at level 1 - a0 to error e < a0: both ends move outward by h(e) - h(a0), h the
# law's half width. That is sound where an end was clamped to [0, R] too, since the truth lies there; and
# where a variance was cut to mean (U - mean), since the published interval takes the cut downward only.
#
# **Average.** For independent noises the average of n truths lies within ``sum_half_width`` (plus the average
# bias) of the average of the n unclamped estimates r_i. Of those only bounds are known: r_i = v_i inside the
# range, r_i <= 0 where v_i = 0, r_i >= v_i where v_i is at its upper limit. An end of the average's interval
# that would need an unknown r_i falls back on the average of the simultaneous intervals. Block noise, whose
# items are independent only given their block, has a bound of its own there.
#
# **Calibrated intervals** follow from no law and from no theorem. They are compared as they are: of all pairs
# of bins whose intervals are disjoint at most 5 % may stand the wrong way round, in each variation of
# simulated cities (``simulation.city.VARIATIONS``), which a test measures. Nothing is told of their average.
# A posterior says more: the chance to be slower, or faster, than the city (``city_chances``).
#
# A variance is shown as standard deviation: the root of an interval's ends holds the root of what it holds,
# and keeps the order. Its average is the root of the average variance.
#
# All ends are rounded outward to the decimals that are shown before anything is compared, so that a claim can
# be checked by eye.


@dataclass(frozen=True)
class SimultaneousIntervals:
    """Values and simultaneous intervals of K compared bins, shape (K,) each, in the display unit.

    ``rows`` are the positions of the bins in the release. A variance is given as standard deviation.
    """

    rows: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Interval:
    """One number with its interval, low <= value <= high."""

    value: float
    low: float
    high: float

    @property
    def digits(self) -> int:
        """How many decimals of ``value`` are meaningful, given the width of the interval."""
        return int(shown_decimals(np.asarray(self.low), np.asarray(self.high)))


def compared_rows(release: Release, statistic: Statistic) -> IntArray:
    """Return the positions, shape (K,), of the bins that are compared: those with status RELEASED.

    Withheld, constant and uninformative bins are left out.
    """
    return np.flatnonzero(release.estimates[statistic].status == BinStatus.RELEASED.value)


def is_calibrated(release: Release, statistic: Statistic) -> bool:
    """Return whether the intervals of ``statistic`` were calibrated in trials and rest on no theorem."""
    return release.mechanism_stated(statistic).interval_kind == IntervalKind.CALIBRATED


@dataclass(frozen=True)
class CityChances:
    """Posterior chances that compared bins are slower, or faster, than the city by a fifth of its speed.

    ``rows`` (K,) are the bins' positions in the release; ``likely`` has their values with 80 % intervals;
    ``city`` is the city's speed, in the display unit; ``slower`` and ``faster`` (K,) are the chances, 0 to
    1.
    """

    likely: SimultaneousIntervals
    city: float
    slower: FloatArray
    faster: FloatArray


def city_chances(release: Release, statistic: Statistic) -> CityChances | None:
    """Return the posterior chances of all compared bins; None without a posterior or without such bins."""
    estimate, rows = release.estimates[statistic], compared_rows(release, statistic)
    found, factor = estimate.posterior, release.request.factor(statistic)
    if "slower_chance" not in found or not len(rows):
        return None
    digits = decimals(release.request.display_unit)
    low, high = (found[name][rows] * factor for name in ("low_80", "high_80"))
    value = estimate.value[rows] * factor
    likely = SimultaneousIntervals(rows, value, outward_down(low, digits), outward_up(high, digits))
    city = float(found["city"][rows[0]]) * factor
    return CityChances(likely, city, found["slower_chance"][rows], found["faster_chance"][rows])


def simultaneous_intervals(
    release: Release, statistic: Statistic, error: float
) -> SimultaneousIntervals | None:
    """Return intervals of all compared bins, each missing its truth with probability at most ``error``.

    None when the release does not say how its noise is distributed. ``error`` must not exceed that of the
    release's own intervals; else those are returned. Calibrated intervals are returned as they are.
    """
    law, rows = law_of(release, statistic), compared_rows(release, statistic)
    if law is None and not is_calibrated(release, statistic):
        return None
    estimate, factor = release.estimates[statistic], release.request.factor(statistic)
    value, low, high = (each[rows] * factor for each in (estimate.value, estimate.low, estimate.high))
    wider = np.zeros(len(rows))
    if law is not None:
        law, own = law.select_bins(rows), 1 - release.request.interval_level
        wider = np.maximum(law.half_width(min(error, own)) - law.half_width(own), 0.0)
    largest = statistic.largest(release.request.bound.upper) * factor
    digits = decimals(release.request.display_unit)
    return SimultaneousIntervals(
        rows,
        variances_as_deviations(value, statistic),
        outward_down(variances_as_deviations(low - wider, statistic), digits),
        outward_up(variances_as_deviations(np.minimum(high + wider, largest), statistic), digits),
    )


def mean_with_interval(
    release: Release, statistic: Statistic, certain: SimultaneousIntervals, error: float
) -> Interval | None:
    """Return the mean over the compared bins, each with weight 1, with an interval, in the display unit.

    The interval misses the truth with probability at most ``error``, besides that of ``certain``, whose
    intervals it may use. A variance is given as standard deviation. None without compared bins or a law of
    the noise.
    """
    law = law_of(release, statistic)
    if law is None or not len(certain.rows):
        return None
    law = law.select_bins(certain.rows)
    lowest, highest = unclamped_bounds(release, statistic, certain.rows)
    half = average_half_width([law], error)
    digits, power = decimals(release.request.display_unit), statistic.power
    low = np.maximum(lowest.mean() - half, (certain.low**power).mean())
    high = np.minimum(highest.mean() + half, (certain.high**power).mean())
    return Interval(
        float(variances_as_deviations(np.asarray((certain.value**power).mean()), statistic)),
        float(outward_down(variances_as_deviations(low, statistic), digits)),
        float(outward_up(variances_as_deviations(high, statistic), digits)),
    )


def unclamped_bounds(release: Release, statistic: Statistic, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds of the estimates before clamping, in the bins ``rows``, shape (K,) each.

    In the display unit. Both equal the published value inside the range; for a value at an end of the range,
    one bound is infinite.
    """
    estimate, factor = release.estimates[statistic], release.request.factor(statistic)
    value, upper = estimate.value[rows], float(release.request.bound.upper)
    limit = np.full(len(rows), statistic.largest(upper))
    mean = release.estimates.get(Statistic.MEAN)
    if statistic is Statistic.VARIANCE and mean is not None:
        limit = np.minimum(limit, largest_variance(mean.value[rows], upper))
    at_limit = value >= limit * (1 - 1e-9)
    return (
        np.where(value <= 0, -np.inf, value * factor),
        np.where(at_limit, np.inf, value * factor),
    )


def variances_as_deviations(numbers: FloatArray, statistic: Statistic) -> FloatArray:
    """Return ``numbers`` as a report shows them: roots of variances, all other statistics unchanged."""
    return np.asarray(np.maximum(numbers, 0.0) ** (1 / statistic.power))


def decimals(unit: SpeedUnit) -> int:
    """Return how many decimals a report gives the ends of intervals in ``unit``: two in m/s, else one."""
    return 2 if unit is SpeedUnit.METRES_PER_SECOND else 1
