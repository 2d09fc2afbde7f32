"""Block noise of whole sums: half widths and one scale, fitted so that the heaviest vehicle pays epsilon.

Half widths a are rounded first; the scale s, the same for all blocks, is then the least float at which
nobody pays more than epsilon (``measurement.laws.Block``), so that a round epsilon is charged as that. A
vehicle pays a whole number of units over a float, which is a fraction as it stands: the charge is exact.
Rounding costs at most a unit a block and vehicle and 2^-12 of the half widths: 2^20 units an epsilon (of 1,
or of less) and a >= 2^12 make both negligible, and a large s keeps the sampler's acceptance near 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Block
from trafficdp.measurement.sets import Box, Moments, Step
from trafficdp.privacy.loss import PICO, Loss

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
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
        """d of each sum's block, 0 where it has none, shape (C,)."""
        noisy = self.block >= 0
        result = np.zeros_like(self.block)
        result[noisy] = np.bincount(self.block[noisy])[self.block[noisy]]
        return result

    def step(self, of: Box | Moments) -> Step:
        """Return the sums over vehicles of what is in ``of`` with this noise."""
        return Step(of, Block(self.half_width, self.block, self.scale), self.shift)


def whole_steps(epsilon: Loss) -> int:
    """Return the largest charge within ``epsilon``, in pico-epsilons; raise UsageError when it is 0."""
    target = epsilon.chargeable.pico
    if target <= 0:
        raise UsageError(
            "no noise fits the epsilon", got=f"epsilon={epsilon}", todo="ask for a larger epsilon"
        )
    return target


def fitted(of: Box | Moments, block: IntArray, width: FloatArray, epsilon: Loss) -> BlockNoise:
    """Return noise for the sums of ``of`` by which no vehicle loses more than ``epsilon``, and one just that.

    ``width`` (C,) are the half widths wanted, in units of the sums; ``block`` as in BlockNoise. Raises
    UsageError when no noise of this size can be drawn exactly.
    """
    target = whole_steps(epsilon)
    start = min(UNITS * 2.0 ** max(0, math.ceil(-math.log2(target / PICO))), LARGEST_START)
    noise = _rounded(block, width, start)
    # at a scale of 10^12 a unit is what losses are counted in
    most = int(replace(noise, scale=float(PICO)).step(of).loss().max(initial=0))
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
    found.step(of)
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
