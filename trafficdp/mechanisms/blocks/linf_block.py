"""L-infinity block noise: statistics that the same vehicles share are released together for one price.

The K-norm mechanism (Hardt, Talwar, "On the Geometry of Differential Privacy", 2010) for the l-infinity
ball; its use over the hours of a cell and over mean and variance of a bin, and its integer form, are ours.
Noise density proportional to exp(-max_g |z_g|/s_g): a user pays max over the block of D_{g,l}/s_g where
separate Laplace noises cost the sum; blocks add (Theorem A). In return E|z_g| = s_g (d + 1)/2 for d
statistics: d of equal sensitivity cost (d + 1)/2 instead of d at the same error, mean and variance of a bin
1.5 instead of 2.

Theorem (REPLACE_USER_VALUES), on integers (``noise.block``). Statistic g is a whole number V_g that user l
moves by at most D_{g,l}, the half width is a_g = ceil(max_l D_{g,l}/n_g), and a user pays
max_g ceil(D_{g,l}/a_g)/s <= max_g n_g/s, where n_g = floor(s eps_g). The vehicle with most samples in bin g
pays eps_g, others in proportion, for all bins of the block once. V_g is first multiplied (small
sensitivities) or floored to a multiple (large ones, sensitivity floor(D/c) + 1) by a power of two, so that
rounding a_g and ceil(D/a_g) costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.integer_change import integer_change, integer_unit, largest_change
from trafficdp.mechanisms.laplace.lattice import exact_integer
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.scales import checked_epsilon
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block_tail import block_absolute_error, block_half_width
from trafficdp.noise.secure import group_scales
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import CHARGE_STEP, loss_upper_bound, sum_per_user, to_pico

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LEAST_UNITS = 4096
"""n_g: a vehicle's loss is counted in n-ths of the bin's epsilon, rounded up."""
MOST_BITS = 28
LEAST_BITS = 13
ROOM_BITS = 50
"""Sensitivities are brought to about 2^28 lattice steps, fewer where (d + 1)/epsilon would then make noise
that 64 bits cannot hold."""


def one_block_a_cell(counts: Counts) -> IntArray:
    """Return the block of every bin: all slots of a cell together."""
    return np.unique(counts.cell, return_inverse=True)[1].astype(np.int64)


def one_block_a_bin(counts: Counts) -> IntArray:
    """Return the block of every bin: each its own, for several statistics of a bin together."""
    return np.arange(counts.bins, dtype=np.int64)


@dataclass(frozen=True)
class BlockNoise:
    """Public facts of a joint release of S statistics over G bins, entry s * G + g for statistic s of bin g.

    ``block`` numbers the entries that have noise (-1: none, epsilon is infinite or the statistic cannot
    vary); ``half_width`` and ``shift`` (V is multiplied by 2^shift, or floored by 2^-shift) have one number
    an entry, ``size`` and ``scale`` one a block. ``units`` (shape (S, P)) is every pair's ceil(D/a).
    """

    block: IntArray
    half_width: IntArray
    shift: IntArray
    size: IntArray
    scale: FloatArray
    units: FloatArray

    @property
    def noisy(self) -> npt.NDArray[np.bool_]:
        """Which entries have noise."""
        return self.block >= 0

    def lattice_step(self) -> FloatArray:
        """Return 2^-shift: how much of V one lattice step is."""
        step: FloatArray = np.ldexp(1.0, -self.shift)
        return step


@dataclass(frozen=True)
class LinfBlock:
    """Blocks of bins (``block_of``) with l-infinity noise; several statistics share a bin's block."""

    block_of: Callable[[Counts], IntArray] = one_block_a_cell

    name = "linf_block"
    citation = "here; K-norm mechanism by Hardt, Talwar: On the Geometry of Differential Privacy, STOC 2010"
    statistics = (Statistic.MEAN, Statistic.VARIANCE)
    idealised = False

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism: a vehicle pays the largest of its bins' losses in every block."""
        return self.event_together(counts, bound, (statistic,), epsilon)

    def event_together(
        self,
        counts: Counts,
        bound: ContributionBound,
        statistics: tuple[Statistic, ...],
        epsilon: FloatArray,
    ) -> PrivacyEvent:
        """Return the promise for releasing all ``statistics`` of a bin at one price, ``epsilon``."""
        plan = self.plan(counts, bound, statistics, epsilon)
        entry = np.arange(len(statistics))[:, None] * counts.bins + counts.bin_index
        block = plan.block[entry].ravel()
        noisy = block >= 0
        # what varies without noise costs without end, which ``charge`` refuses
        bare = np.where(~noisy & (plan.units.ravel() > 0), np.inf, 0.0).reshape(len(statistics), -1)
        user = np.tile(counts.user_index, len(statistics))[noisy]
        key = user * len(plan.scale) + block[noisy]
        distinct, which = np.unique(key, return_inverse=True)
        most = np.zeros(len(distinct))
        np.maximum.at(most, which, plan.units.ravel()[noisy])
        payer = np.full(len(distinct), np.iinfo(np.int64).max)
        np.minimum.at(payer, which, np.tile(np.arange(counts.pairs), len(statistics))[noisy])
        cost = loss_upper_bound(most, plan.scale[distinct % max(1, len(plan.scale))])
        # one pair of the user pays for its whole block
        loss = bare.max(axis=0)
        np.add.at(loss, payer, cost)
        total = sum_per_user(to_pico(loss), counts.user_index, counts.users)
        return self._promise(statistics, counts, bound, -(-total // CHARGE_STEP) * CHARGE_STEP)

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism: E min(|z|, R/2), the worst truth of noise that is clipped to a range R."""
        plan = self.plan(counts, bound, (statistic,), epsilon)
        row: FloatArray = self.errors(counts, bound, (statistic,), plan)[0]
        # the error grows by at most 1 a unit of bias
        return np.minimum(row + rounding_bias(statistic, bound), statistic.largest(bound.upper))

    def half_width(
        self,
        counts: Counts,
        bound: ContributionBound,
        statistic: Statistic,
        epsilon: FloatArray,
        level: float,
    ) -> FloatArray:
        """See KnownHalfWidth: the block's proved tail, and rounding of the speeds."""
        plan = self.plan(counts, bound, (statistic,), epsilon)
        row: FloatArray = self.half_widths(counts, bound, (statistic,), plan, level)[0]
        return row + rounding_bias(statistic, bound)

    def worst_case_bias(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See KnownHalfWidth: rounding of the speeds, and half a step where the integer is floored."""
        plan = self.plan(counts, bound, (statistic,), epsilon)
        step = integer_unit(statistic, counts, bound) * plan.lattice_step()
        flooring: FloatArray = np.where(plan.shift < 0, step / 2, 0.0)
        return flooring + rounding_bias(statistic, bound)

    def errors(
        self,
        counts: Counts,
        bound: ContributionBound,
        statistics: tuple[Statistic, ...],
        plan: BlockNoise,
    ) -> FloatArray:
        """Return the expected errors of a joint release, shape (S, G)."""
        result: FloatArray = np.zeros((len(statistics), counts.bins))
        noisy = plan.noisy.reshape(result.shape)
        for row, statistic in enumerate(statistics):
            step = integer_unit(statistic, counts, bound) * plan.lattice_step().reshape(result.shape)[row]
            half, block = plan.half_width.reshape(result.shape)[row], plan.block.reshape(result.shape)[row]
            limit = statistic.largest(bound.upper) / 2 / step
            if len(plan.scale):
                error = block_absolute_error(half, plan.size[block], plan.scale[block], limit)
                # flooring to a multiple moves the statistic by half a step
                error = error + np.where(plan.shift.reshape(result.shape)[row] < 0, 0.5, 0.0)
                result[row] = np.where(noisy[row], np.minimum(error, limit) * step, 0.0)
        return np.asarray(result, dtype=np.float64)

    def half_widths(
        self,
        counts: Counts,
        bound: ContributionBound,
        statistics: tuple[Statistic, ...],
        plan: BlockNoise,
        level: float,
    ) -> FloatArray:
        """Return the half widths of intervals that hold the statistic with ``level``, shape (S, G)."""
        result: FloatArray = np.zeros((len(statistics), counts.bins))
        for row, statistic in enumerate(statistics):
            step = integer_unit(statistic, counts, bound) * plan.lattice_step().reshape(result.shape)[row]
            block = plan.block.reshape(result.shape)[row]
            if len(plan.scale):
                half = block_half_width(
                    plan.half_width.reshape(result.shape)[row], plan.size[block], plan.scale[block], level
                )
                half = half + np.where(plan.shift.reshape(result.shape)[row] < 0, 0.5, 0.0)
                result[row] = np.where(block >= 0, half * step, 0.0)
        return np.asarray(result, dtype=np.float64)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        row: FloatArray = self.estimate_together(samples, (statistic,), epsilon, noise)[0]
        return row

    def estimate_together(
        self, samples: Samples, statistics: tuple[Statistic, ...], epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """Return the estimates of all ``statistics``, drawn together, shape (S, G)."""
        counts, bound = samples.counts, samples.bound
        plan = self.plan(counts, bound, statistics, epsilon)
        contributions = samples.contributions()
        exact = np.concatenate([exact_integer(statistic, contributions) for statistic in statistics])
        up, down = np.maximum(plan.shift, 0).astype(object), np.maximum(-plan.shift, 0).astype(object)
        lattice = (exact << up) >> down
        drawn = np.zeros(len(exact), dtype=np.int64)
        noisy = plan.noisy
        drawn[noisy] = noise.block(plan.half_width[noisy], plan.block[noisy], plan.scale)
        centre = np.where(plan.shift < 0, 0.5, 0.0)
        raw = ((lattice + drawn).astype(np.float64) + centre) * plan.lattice_step()
        raw = np.where(noisy, raw, exact.astype(np.float64)).reshape(len(statistics), counts.bins)
        rows = [
            np.clip(value * integer_unit(statistic, counts, bound), 0.0, statistic.largest(bound.upper))
            for statistic, value in zip(statistics, raw, strict=True)
        ]
        return np.array(rows)

    def plan(
        self,
        counts: Counts,
        bound: ContributionBound,
        statistics: tuple[Statistic, ...],
        epsilon: FloatArray,
    ) -> BlockNoise:
        """Return the noise of a joint release, from counts alone."""
        for statistic in statistics:
            require_statistic(self.name, statistic, self.statistics)
        checked_epsilon(epsilon, counts)
        change = np.array([integer_change(statistic, counts, bound) for statistic in statistics])
        largest = np.array([largest_change(row, counts) for row in change])
        if largest.size and float(largest.max()) >= 2.0**53:
            raise UsageError(
                "sums of squares are too large for block noise",
                got=f"{int(counts.samples_per_bin.max())} records in a bin",
                todo="choose a larger speed_step",
            )
        each = np.tile(epsilon, (len(statistics), 1))
        varies = (largest > 0) & np.isfinite(each)
        block = np.full(largest.shape, -1, dtype=np.int64)
        labels = np.tile(self.block_of(counts), (len(statistics), 1))
        distinct, block[varies] = np.unique(labels[varies], return_inverse=True)
        size = np.bincount(block[varies], minlength=len(distinct)).astype(np.int64)
        least = np.full(len(distinct), np.inf)
        np.minimum.at(least, block[varies], each[varies])
        with np.errstate(over="ignore"):
            wanted = np.maximum(LEAST_UNITS, np.ceil(64.0 * (size + 1) * least))
            # a little wider, so that rounding never takes a unit away
            scale = wanted / least * (1 + 2.0**-45)
        scale = np.asarray(group_scales(scale), dtype=np.float64)
        shift = np.zeros(largest.shape, dtype=np.int64)
        room = np.ceil(np.log2((size + 1) / least))
        shift[varies] = _shift(
            largest[varies], np.clip(ROOM_BITS - room, LEAST_BITS, MOST_BITS)[block[varies]]
        )
        fine, biggest = _refined(change, shift[:, counts.bin_index]), _refined(largest, shift)
        # rounded down, so that n_g / s never exceeds eps_g
        units = np.ones(largest.shape)
        units[varies] = np.floor(np.nextafter(scale[block[varies]] * each[varies], 0.0) * (1 - 2.0**-50))
        half_width = np.maximum(np.ceil(biggest / np.maximum(units, 1.0)), 1.0)
        per_pair = np.ceil(fine / half_width[:, counts.bin_index])
        return BlockNoise(
            block.ravel(), half_width.astype(np.int64).ravel(), shift.ravel(), size, scale, per_pair
        )

    def _promise(
        self,
        statistics: tuple[Statistic, ...],
        counts: Counts,
        bound: ContributionBound,
        loss: IntArray,
    ) -> PrivacyEvent:
        sensitivity = {}
        for statistic in statistics:
            largest = largest_change(integer_change(statistic, counts, bound), counts)
            sensitivity[statistic] = largest * integer_unit(statistic, counts, bound)
        event = promise(self.name, statistics[0], counts, bound, sensitivity[statistics[0]], loss)
        return PrivacyEvent(
            **{**vars(event), "statistics": statistics, "sensitivity": sensitivity},
        )


def _shift(largest: FloatArray, target: FloatArray) -> IntArray:
    """The power of two that brings ``largest`` > 0 to 2^target or just above."""
    exponent: FloatArray = target - np.floor(np.log2(largest))
    return exponent.astype(np.int64)


def _refined(change: FloatArray, shift: IntArray) -> FloatArray:
    """Sensitivity of V 2^shift, or of floor(V / 2^-shift): floor(D/c) + 1, and 0 stays 0."""
    scaled: FloatArray = np.ldexp(change, shift)
    return np.where(shift < 0, np.where(change > 0, np.floor(scaled) + 1, 0.0), scaled)
