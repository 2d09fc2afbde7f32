"""Noise of a block, and how far off numbers with it are.

Block noise of whole sums: half widths and one scale, fitted so that the heaviest vehicle pays epsilon.

Half widths a are rounded first; the scale s, the same for all blocks, is then the least float at which
nobody pays more than epsilon (``measurement.laws.Block``), so that a round epsilon is charged as that. A
vehicle pays a whole number of units over a float, which is a fraction as it stands: the charge is exact.
Rounding costs at most a unit a block and vehicle and 2^-12 of the half widths: 2^20 units an epsilon (of 1,
or of less) and a >= 2^12 make both negligible, and a large s keeps the sampler's acceptance near 1.

How far off numbers with block noise are: sizes, intervals, expected errors, from counts and scales.

Intervals. P(|z| > j) <= 1 - level for the j of ``noise.block.block_half_width``, proved there for the
law on whole numbers; rounding speeds (``publish.rounding_bias``) and flooring to multiples of 2^-shift (half
of that, as the centre is added) widen it. Clamping both ends to the range keeps the truth inside.

Errors. E|clip(f + z) - t| <= E min(|z|, R/2) + |f - t| for f, t in [0, R]: noise is symmetric, the first term
is largest for f = R/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Block
from trafficdp.measurement.sets import Box, Moments, Step
from trafficdp.mechanisms.publish import NumberLaw, rounding_bias
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.block import block_absolute_error, block_half_width, pair_bounds
from trafficdp.privacy.loss import PICO, Loss

UNITS = 1 << 20
"""Units that the heaviest user pays, at least, when epsilon is at most 1."""
LARGEST_START = float(1 << 40)
LEAST_HALF_WIDTH = 1 << 12
FARTHEST_BITS = 50
"""a s (d + 1) stays below 2^50: 512 scales of it are drawn in 64 bits."""


@dataclass(frozen=True)
class BlockNoise:
    """The noise of C sums, shape (C,) each: ``block`` numbers 0.. without gaps, -1 where nothing can vary.

    ``half_width`` a >= 1; the sum is multiplied by 2^``shift`` first; ``scale`` s > 0 is common to all.
    """

    block: IntArray
    half_width: IntArray
    shift: IntArray
    scale: float

    @cached_property
    def size(self) -> IntArray:
        """The number of sums in each sum's block, 0 for a sum in no block, shape (C,)."""
        noisy = self.block >= 0
        result = np.zeros_like(self.block)
        result[noisy] = np.bincount(self.block[noisy])[self.block[noisy]]
        return result

    def step(self, clip_set: Box | Moments) -> Step:
        """Return the measurement step of sums over vehicles, clipped to ``clip_set``, with this noise."""
        return Step(clip_set, Block(self.half_width, self.block, self.scale), self.shift)


def chargeable_pico(epsilon: Loss) -> int:
    """Return the largest chargeable loss up to ``epsilon``, in 10^-12; raise UsageError when it is 0."""
    target = epsilon.chargeable.pico
    if target <= 0:
        raise UsageError(
            "no noise fits the epsilon", got=f"epsilon={epsilon}", todo="ask for a larger epsilon"
        )
    return target


def calibrated_block_noise(
    clip_set: Box | Moments, block: IntArray, half_width: FloatArray, epsilon: Loss
) -> BlockNoise:
    """Return the least block noise by which no vehicle loses more than ``epsilon``, for sums clipped to
    ``clip_set``.

    ``half_width`` (C,) are the relative half widths wanted, in units of the sums; ``block`` (C,) numbers the
    blocks. Raises UsageError when no noise of this size can be drawn exactly.
    """
    target = chargeable_pico(epsilon)
    start = min(UNITS * 2.0 ** max(0, math.ceil(-math.log2(target / PICO))), LARGEST_START)
    noise = _rounded(block, half_width, start)
    # at a scale of 10^12 a unit is what losses are counted in
    most = int(replace(noise, scale=float(PICO)).step(clip_set).loss().max(initial=0))
    exact = Fraction(most * PICO, target)
    scale = float(exact)
    while Fraction(scale) < exact:
        scale = math.nextafter(scale, math.inf)
    farthest = float((noise.half_width * (noise.size + 1.0)).max()) * scale
    if not farthest < 2.0 ** (FARTHEST_BITS + 1):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            got=f"epsilon={epsilon}",
            todo="ask for a larger epsilon or a larger speed_step",
        )
    found = replace(noise, scale=scale)
    # what does not fit 64 bits is refused here, where another noise can still be chosen
    found.step(clip_set)
    return found


def _rounded(block: IntArray, width: FloatArray, scale: float) -> BlockNoise:
    """Round half widths up to a ``scale`` / 2^shift."""
    noise = BlockNoise(block, np.zeros_like(block), np.zeros_like(block), scale)
    noisy = block >= 0
    wanted = width[noisy]
    # enough finer steps for a >= 2^12, but never so many that a draw could leave 64 bits
    finer = np.ceil(np.log2(LEAST_HALF_WIDTH * scale / wanted))
    most = np.floor(FARTHEST_BITS - 1 - np.log2(noise.size[noisy] + 1.0) - np.log2(wanted))
    shift = np.minimum(np.maximum(finer, 0.0), most)
    half_width = np.ceil(wanted * 2.0**shift / scale * (1 + 2.0**-40))
    if not bool(np.all(np.isfinite(half_width) & (half_width >= 1) & (shift >= -40) & (shift <= 60))):
        raise UsageError(
            "noise of this size cannot be drawn exactly",
            todo="ask for another epsilon or a larger speed_step",
        )
    noise.half_width[noisy], noise.shift[noisy] = half_width, shift
    return noise


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
    def noise_half_width(self) -> FloatArray:
        """The half width of each number's noise in the number's unit, shape (n,)."""
        return self.half_width * self.unit

    @property
    def flooring_correction(self) -> FloatArray:
        """What is added to each number because its sum was floored: half a unit, or 0; shape (n,)."""
        return np.where(self.shift < 0, self.unit / 2, 0.0)

    def law(self, statistic: Statistic, bound: ContributionBound, level: float | None) -> NumberLaw:
        """Return scale, expected error, bias and interval half width of each noisy number, in its unit.

        ``level`` is the intervals' level; None: their half widths are 0, as they are not needed.
        """
        width, d, scale = self.half_width, self.size, np.full(len(self.size), self.scale)
        most = statistic.largest(bound.upper)
        bias = self.flooring_correction + rounding_bias(statistic, bound)
        noise = block_absolute_error(width, d, scale, most / 2 / self.unit) * self.unit
        half = np.zeros(len(d)) if level is None else block_half_width(width, d, scale, level)
        # for a block of one the Laplace scale
        absolute = width * scale * (d + 1) / 2 * self.unit
        return NumberLaw(absolute, np.minimum(noise + bias, most), bias, half * self.unit + bias)

    def values(self, noisy: IntArray) -> FloatArray:
        """Return the noisy whole sums ``noisy`` (n,) as numbers in their unit, corrected for flooring,
        not clamped.
        """
        return noisy.astype(np.float64) * self.unit + self.flooring_correction

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the published columns that say exactly how the noise of each number was drawn, by name."""
        scale = np.where(self.size > 0, self.scale, 0.0)
        return {"block_scale": scale, "block": self.block, "half_width": self.half_width, "shift": self.shift}


def variance_law(mean: Spread, products: Spread, bound: ContributionBound, level: float | None) -> NumberLaw:
    """Return scale, expected error, bias and interval half width of variances made of two sums with block
    noise.

    The variance is mean (U - mean) minus ``products``, the average of x (U - x). ``level`` is the intervals'
    level; None: their half widths are 0.
    """
    noisy, upper = products.size > 0, float(bound.upper)
    size, half, shift = (np.zeros(len(noisy)) for _ in range(3))
    if bool(noisy.any()):
        first, second = upper * mean.noise_half_width[noisy], products.noise_half_width[noisy]
        found = pair_bounds(mean.size[noisy], first * mean.scale, second * mean.scale, level)
        size[noisy], half[noisy] = found
        shift[noisy] = 2 * (first + second)
    bias = rounding_bias(Statistic.VARIANCE, bound) + products.flooring_correction
    bias = np.where(noisy, bias + upper * mean.flooring_correction, 0.0)
    error = np.minimum(size + shift + bias, Statistic.VARIANCE.largest(bound.upper))
    return NumberLaw(size, error, bias, half + shift + bias)
