"""Estimates from exact integers and block noise: values, intervals, expected errors, statuses.

Theorem (REPLACE_USER_VALUES). For the integers V_i of ``laplace.lattice`` and the noise of a
``BlockLattice``, releasing all floor(V_i 2^shift_i) + z_i multiplies the probability of any outcome, when
the values of vehicle l change, by at most exp of ``block_loss_per_user``: within a block the exponent is
max_i ceil(|z_i|/a_i)/s, which moves by at most max_i ceil(D_{i,l}/a_i)/s, and blocks are drawn
independently. What is done afterwards (centring, scaling, clamping) is post-processing.

Intervals. P(|z_i| > j) <= 1 - level for the j of ``noise.block_tail.block_half_width``, proved there for the
lattice law; rounding speeds (``publish.rounding_bias``) and flooring to multiples of 2^-shift
(half of that, as the centre is added) widen it. Clamping both ends to the range keeps the truth inside.

Errors. E|clip(f + z) - t| <= E min(|z|, R/2) + |f - t| for f, t in [0, R]: noise is symmetric, the first term
is largest for f = R/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.lattice import BlockLattice
from trafficdp.mechanisms.laplace.lattice import exact_integer, steps_per_unit
from trafficdp.mechanisms.publish import Drawn, estimate, rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block_tail import block_absolute_error, block_half_width
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BlockNoise = Callable[[IntArray, IntArray, FloatArray], IntArray]
"""``NoiseSource.block``: half widths and blocks of the items, scales of the blocks; one draw an item."""


@dataclass(frozen=True)
class Spread:
    """The noise of one statistic over G bins, in its unit; 0 where it can only be one number.

    ``item`` (G,) is the bin's item in the lattice, -1 where it has none; ``unit`` (G,) one lattice step;
    ``flooring`` (G,) half a step where integers are floored; ``scale`` the expected absolute noise
    before clamping (for a block of one: the Laplace scale), ``error`` that of the clamped number, rounding
    included. All from counts and the lattice alone.
    """

    item: IntArray
    unit: FloatArray
    flooring: FloatArray
    scale: FloatArray
    error: FloatArray

    @property
    def noisy(self) -> npt.NDArray[np.bool_]:
        """Which bins have noise."""
        return self.item >= 0

    def first(self, bins: int) -> Spread:
        """Return the noise of the first ``bins`` bins."""
        return Spread(*(values[:bins] for values in vars(self).values()))


def spread_of(
    statistic: Statistic, counts: Counts, bound: ContributionBound, lattice: BlockLattice
) -> Spread:
    """Return how far off the numbers of ``statistic`` are, a bin."""
    mine = np.flatnonzero([each is statistic for each in lattice.statistic])
    item = np.full(counts.bins, -1, dtype=np.int64)
    item[lattice.bin[mine]] = mine
    noisy = item >= 0
    at = item[noisy]
    size, scale = lattice.sizes[at], np.full(len(at), lattice.scale)
    width, shift = lattice.half_width[at], lattice.shift[at]
    reach = statistic.largest(bound.upper)
    unit = np.ldexp(1.0, -shift) / steps_per_unit(statistic, counts, bound)[noisy]
    flooring = np.where(shift < 0, 0.5, 0.0) * unit
    clamped = block_absolute_error(width, size, scale, reach / 2 / unit) * unit
    error = np.minimum(clamped + flooring + rounding_bias(statistic, bound), reach)

    def full(values: FloatArray) -> FloatArray:
        result = np.zeros(counts.bins)
        result[noisy] = values
        return result

    mean_noise = width * scale * (size + 1) / 2 * unit
    return Spread(item, full(unit), full(flooring), full(mean_noise), full(error))


def block_estimates(
    contributions: Contributions,
    lattice: BlockLattice,
    statistics: tuple[Statistic, ...],
    noise: BlockNoise,
    *,
    interval_level: float,
    uninformative_above: float,
) -> dict[Statistic, Estimate]:
    """Draw the noise of all blocks once and return the estimates of all bins, MEAN before VARIANCE.

    Two-sided intervals hold the sample statistic of the clipped speeds with at least ``interval_level``.
    """
    blocks = len(np.unique(lattice.block))
    drawn = np.zeros(0, dtype=np.int64)
    if blocks:
        drawn = noise(lattice.half_width, lattice.block, np.full(blocks, lattice.scale))
    estimates: dict[Statistic, Estimate] = {}
    for statistic in sorted(statistics, key=list(Statistic).index):
        spread = spread_of(statistic, contributions.counts, contributions.bound, lattice)
        estimates[statistic] = block_estimate(
            statistic,
            contributions,
            lattice,
            spread,
            drawn,
            interval_level,
            uninformative_above,
            estimates.get(Statistic.MEAN),
        )
    return estimates


def unclamped(
    integers: npt.NDArray[np.object_], lattice: BlockLattice, spread: Spread, drawn: IntArray
) -> FloatArray:
    """Return the noisy numbers before clamping, shape (G,), 0 without noise; ``drawn`` one an item."""
    noisy, at = spread.noisy, spread.item[spread.noisy]
    shift = lattice.shift[at]
    up, down = np.maximum(shift, 0).astype(object), np.maximum(-shift, 0).astype(object)
    # Python integers: nothing is rounded before the noise is in
    whole = ((integers[noisy] << up) >> down) + drawn[at].astype(object)
    value = np.zeros(len(noisy))
    value[noisy] = whole.astype(np.float64) * spread.unit[noisy] + spread.flooring[noisy]
    return value


def interval_half_width(
    statistic: Statistic, bound: ContributionBound, lattice: BlockLattice, spread: Spread, level: float
) -> FloatArray:
    """Return how far an interval reaches before it is clamped, shape (G,); 0 where there is no noise."""
    at = spread.item[spread.noisy]
    half = block_half_width(lattice.half_width[at], lattice.sizes[at], np.full(len(at), lattice.scale), level)
    width = np.zeros(len(spread.item))
    bias = spread.flooring[spread.noisy] + rounding_bias(statistic, bound)
    width[spread.noisy] = half * spread.unit[spread.noisy] + bias
    return width


def block_columns(spread: Spread, lattice: BlockLattice) -> dict[str, npt.NDArray[Any]]:
    """Return the published columns that say exactly how the noise was drawn; see NOISE_COLUMNS."""

    def column(values: IntArray, otherwise: int) -> IntArray:
        result = np.full(len(spread.item), otherwise, dtype=np.int64)
        result[spread.noisy] = values[spread.item[spread.noisy]]
        return result

    return {
        "block_scale": np.where(spread.noisy, lattice.scale, 0.0),
        "block": column(lattice.block, -1),
        "half_width": column(lattice.half_width, 0),
        "shift": column(lattice.shift, 0),
    }


def block_estimate(
    statistic: Statistic,
    contributions: Contributions,
    lattice: BlockLattice,
    spread: Spread,
    drawn: IntArray,
    interval_level: float,
    uninformative_above: float,
    mean: Estimate | None,
) -> Estimate:
    """Return the estimate of one statistic; ``mean`` is that of the mean, where it is released."""
    bound = contributions.bound
    numbers = Drawn(
        value=unclamped(exact_integer(statistic, contributions), lattice, spread, drawn),
        half_width=interval_half_width(statistic, bound, lattice, spread, interval_level),
        noise_scale=spread.scale,
        expected_error=spread.error,
        noise=block_columns(spread, lattice),
    )
    return estimate(statistic, numbers, bound, uninformative_above, mean)
