"""How far off numbers with block noise are: sizes, intervals, expected errors, from counts and scales.

Intervals. P(|z| > j) <= 1 - level for the j of ``noise.block.block_half_width``, proved there for the
law on whole numbers; rounding speeds (``publish.rounding_bias``) and flooring to multiples of 2^-shift (half
of that, as the centre is added) widen it. Clamping both ends to the range keeps the truth inside.

Errors. E|clip(f + z) - t| <= E min(|z|, R/2) + |f - t| for f, t in [0, R]: noise is symmetric, the first term
is largest for f = R/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.noise import BlockNoise
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.block import block_absolute_error, block_half_width, pair_bounds

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NumberLaw:
    """What counts say of one statistic's numbers, in its unit, shape (G,) each; 0 where it can only be one.

    ``scale`` is the expected absolute noise before clamping or a bound of it, ``error`` the expected error of
    the clamped number, ``bias`` what rounding and flooring add, ``half_width`` the reach of its interval.
    """

    scale: FloatArray
    error: FloatArray
    bias: FloatArray
    half_width: FloatArray


@dataclass(frozen=True)
class Spread:
    """The noise of n numbers, as in BlockNoise, shape (n,); ``unit`` (n,) is one of its steps in their unit.

    ``size`` is d of the block, 0 where there is no noise.
    """

    block: IntArray
    half_width: IntArray
    shift: IntArray
    size: IntArray
    unit: FloatArray
    scale: float

    @property
    def reach(self) -> FloatArray:
        """The half widths in the numbers' unit."""
        return self.half_width * self.unit

    @property
    def flooring(self) -> FloatArray:
        """Half a step where sums are floored."""
        return np.where(self.shift < 0, self.unit / 2, 0.0)

    def law(self, statistic: Statistic, bound: ContributionBound, level: float | None) -> NumberLaw:
        """Return the law of numbers that all have noise; ``level`` None: reach 0, as it is not asked for."""
        width, d, scale = self.half_width, self.size, np.full(len(self.size), self.scale)
        most = statistic.largest(bound.upper)
        bias = self.flooring + rounding_bias(statistic, bound)
        noise = block_absolute_error(width, d, scale, most / 2 / self.unit) * self.unit
        half = np.zeros(len(d)) if level is None else block_half_width(width, d, scale, level)
        # for a block of one the Laplace scale
        absolute = width * scale * (d + 1) / 2 * self.unit
        return NumberLaw(absolute, np.minimum(noise + bias, most), bias, half * self.unit + bias)

    def values(self, noisy: IntArray) -> FloatArray:
        """Return the numbers of the noisy sums ``noisy`` (n,), before they are clamped."""
        return noisy.astype(np.float64) * self.unit + self.flooring

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the published columns that say exactly how the noise was drawn; see NOISE_COLUMNS."""
        scale = np.where(self.size > 0, self.scale, 0.0)
        return {"block_scale": scale, "block": self.block, "half_width": self.half_width, "shift": self.shift}


def spread_of(noise: BlockNoise, at: IntArray, unit: FloatArray) -> Spread:
    """Return the noise of the sums ``at`` (n,), of which one is ``unit`` (n,) of a number."""
    size, shift = noise.size[at], noise.shift[at]
    step = np.where(size > 0, np.ldexp(unit, -shift), 0.0)
    return Spread(noise.block[at], noise.half_width[at], shift, size, step, noise.scale)


def variance_law(mean: Spread, products: Spread, bound: ContributionBound, level: float | None) -> NumberLaw:
    """Return the law of variances, mean (U - mean) less the average of x (U - x): ``products``.

    As in ``mechanisms.pairs``, both with block noise (``noise.block``). The products are drawn in
    the blocks of their means; these may be smaller, where some variances are constants: they reach less far.
    """
    noisy, upper = products.size > 0, float(bound.upper)
    size, half, shift = (np.zeros(len(noisy)) for _ in range(3))
    if bool(noisy.any()):
        first, second = upper * mean.reach[noisy], products.reach[noisy]
        found = pair_bounds(mean.size[noisy], first * mean.scale, second * mean.scale, level)
        size[noisy], half[noisy] = found
        shift[noisy] = 2 * (first + second)
    bias = rounding_bias(Statistic.VARIANCE, bound) + products.flooring + upper * mean.flooring
    bias = np.where(noisy, bias, 0.0)
    error = np.minimum(size + shift + bias, Statistic.VARIANCE.largest(bound.upper))
    return NumberLaw(size, error, bias, half + shift + bias)
