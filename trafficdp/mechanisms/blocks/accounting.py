"""The accounting ``blocks``, beside those of Laplace noise: numbers that the same vehicles share pay once.

Theorem. With blocks B of the items (means or vehicle means of the bins) and half widths
s_i = 2 E t_i / (d_B + 1), every vehicle loses at most epsilon as soon as E >= A / epsilon,
A = max_l sum_B ((d_B + 1)/2) max_{i in B} D_{i,l}/t_i (``blocks``), and every item's expected absolute noise
is E t_i. With every item its own block this is the accounting ``equal``.

**With variances** the bins' blocks are those found for the means alone. In a block of d the sums of x are
drawn with expected noise E t_mean / r_d a mean, those of x (U - x) apart, with c U times that; psi_d(c) is
the size of both noises over that of the first (``noise.block_pair``), r_d = max(1, U psi_d(c) t_mean / t_var)
makes the worst relative noise E everywhere. With x_g = U m/(N t_mean) a vehicle pays for the pair of blocks
(``measurement.sets``)

    (r_d (d + 1)/2 / E) max( max over g of x_g cost(c), max over g != h of (x_g + x_h / (4 c)) ).

c is the best of ``RATIOS``, by counts alone.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.sets import record_price
from trafficdp.mechanisms import sums
from trafficdp.mechanisms.blocks.blocks import Blocks, best_blocks, clamped_error
from trafficdp.mechanisms.blocks.calibrated import NAME, CalibratedBlocks, set_of
from trafficdp.mechanisms.blocks.noise import fitted, whole_steps
from trafficdp.mechanisms.protocol import Calibrated, PublicFacts
from trafficdp.model import ContributionBound, Counts, Statistic, largest_two, number_pairs
from trafficdp.noise.block_pair import pair_mean
from trafficdp.privacy.loss import PICO, Loss

FloatArray = npt.NDArray[np.float64]
RATIOS = (0.45, 0.5, 0.55, 0.6, 0.65, 0.75, 0.9, 1.0, 1.5, 2.5)
EFFORT = 2_000
"""Moves of single items tried for a release: half a second for 1,400 bins; more gain 1 to 3 percent."""
EFFORT_PER_NUMBER = 20
QUICK = 20_000
"""Pairs up to which every map is searched as for a release."""
REMEMBERED_PAIRS = 20_000_000
"""Blocks depend on counts alone, not on epsilon: the last ones found are kept, up to so many pairs in all."""


@dataclass(frozen=True)
class Products:
    """How sums of x (U - x) are drawn: ``ratio`` c, ``upper`` U, ``factor`` the dearest vehicle's epsilon E.

    Shape (G,): ``smaller`` is 1/r_d, ``psi`` psi_d(c), ``varies`` which bins have a variance.
    """

    ratio: float
    upper: float
    factor: float
    smaller: FloatArray
    psi: FloatArray
    varies: npt.NDArray[np.bool_]


class ByScales:
    """Of an Accounting: what its ``scales`` say."""

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting."""
        raise NotImplementedError

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        scales = self.scales(epsilon)
        return max(float(scales[each].max(initial=0.0)) / tolerance[each] for each in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0


@dataclass(frozen=True)
class BlockAccounting(ByScales):
    """See Accounting. ``blocks`` are those of the means and vehicle means of ``statistics``, G each.

    Items after these are left to who put them there. ``products`` where VARIANCE is one of the statistics.
    """

    public: PublicFacts
    blocks: Blocks
    statistics: tuple[Statistic, ...]
    products: Products | None = None

    name = NAME
    composition = CalibratedBlocks.composition

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting: E t_i, less where variances are dearer; for these psi U times it."""
        found = self._by_statistic(self._noise(epsilon))
        if self.products is not None:
            size = self.products.upper * self.products.psi * found[Statistic.MEAN]
            found[Statistic.VARIANCE] = np.where(self.products.varies, size, 0.0)
        return found

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting: E min(|z|, U/2), by the size of the block; variances at most the range."""
        sizes = np.column_stack([self.blocks.size, self.half_widths(epsilon)])
        kinds, which = np.unique(sizes, axis=0, return_inverse=True)
        upper = np.full(len(kinds), float(self.public.bound.upper))
        clamped = clamped_error(kinds[:, 0].astype(np.int64), kinds[:, 1], upper)
        found = self._by_statistic(clamped[which.ravel()])
        if self.products is not None:
            most = Statistic.VARIANCE.largest(self.public.bound.upper)
            found[Statistic.VARIANCE] = np.minimum(self.scales(epsilon)[Statistic.VARIANCE], most)
        return found

    def half_widths(self, epsilon: float) -> FloatArray:
        """Return the half widths of all items at ``epsilon``, in their unit, shape (I,)."""
        return 2 * self._noise(epsilon) / (self.blocks.size + 1)

    def calibrate(self, loss: Loss) -> Calibrated:
        """See Accounting."""
        block, width = self.blocks.block, self.half_widths(whole_steps(loss) / PICO)
        widths = self._by_statistic(width)
        if self.products is not None:
            varies, wider = self.products.varies, self.products.ratio * self.products.upper
            widths[Statistic.VARIANCE] = np.where(varies, wider * width, 0.0)
            own = np.full(self.public.counts.bins, -1, dtype=np.int64)
            own[varies] = block.max() + 1 + np.unique(block[varies], return_inverse=True)[1]
            block = np.concatenate([block, own])
        of = set_of(self.statistics, *self.public.both)
        units = [widths[each] / sums.unit(each, *self.public.both) for each in self.statistics]
        return CalibratedBlocks(self.public, self.statistics, fitted(of, block, np.concatenate(units), loss))

    def _noise(self, epsilon: float) -> FloatArray:
        """The expected absolute noise of every item."""
        if self.products is None:
            return self.blocks.factor / epsilon * self.blocks.items.tolerance
        return self.products.factor / epsilon * self.blocks.items.tolerance * self.products.smaller

    def _by_statistic(self, values: FloatArray) -> dict[Statistic, FloatArray]:
        """Values of the items by statistic, shape (G,) each."""
        items = [each for each in self.statistics if each is not Statistic.VARIANCE]
        bins = self.public.counts.bins
        return {each: values[number * bins : (number + 1) * bins] for number, each in enumerate(items)}


def block_accounting(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    thorough: bool = True,
) -> BlockAccounting:
    """Return the accounting for the statistics of ``tolerance``, which ``calibrated.in_blocks`` allows.

    Not ``thorough`` is for maps that are only looked at: see ``blocks_of``.
    """
    statistics = tuple(statistic for statistic in Statistic if statistic in tolerance)
    means: dict[Statistic, float] = {
        each: tolerance[each] for each in statistics if each is not Statistic.VARIANCE
    }
    blocks = blocks_of(counts, bound, means, thorough=thorough)
    products = None
    if Statistic.VARIANCE in tolerance:
        products = best_products(blocks, counts, bound, tolerance[Statistic.VARIANCE])
    return BlockAccounting(PublicFacts(counts, bound), blocks, statistics, products)


def best_products(blocks: Blocks, counts: Counts, bound: ContributionBound, variance: float) -> Products:
    """Return the products to draw beside the means of ``blocks``; ``variance`` is the tolerance of those."""
    upper, size, steps = float(bound.upper), blocks.size, float(bound.steps)
    ways = []
    for ratio in RATIOS:
        by_size = {each: pair_mean(each, ratio) * 2 / (each + 1) for each in np.unique(size).tolist()}
        psi = np.array([by_size[each] for each in size.tolist()])
        larger = np.maximum(1.0, upper * psi * blocks.items.tolerance / variance)
        # both sums over the first alone: what c U/q as wide noise of W costs beside a scale of 1 for S
        cost = float(record_price(bound.steps, np.ones(1), np.array([ratio * steps]))[0]) / steps
        ways.append((ratio, psi, larger, cost))
    # a user pays between r max(cost, 1) and r max(cost, 1 + 1/(4c)) times its load without products
    spread = max(
        float(larger.max() / larger.min()) * max(cost, 1 + 1 / (4 * ratio)) / max(cost, 1.0)
        for ratio, _, larger, cost in ways
    )
    items, there = blocks.items.among(blocks.load * spread * (1 + 1e-9) >= blocks.factor)
    sizes = np.bincount(blocks.block)
    group, owner, which = number_pairs(
        blocks.block[there][items.of_entry], items.user, len(sizes), items.users
    )
    top, _, second = largest_two(items.cost, which, len(group))
    found = []
    for ratio, psi, larger, cost in ways:
        of_block = np.ones(len(sizes))
        of_block[blocks.block] = larger
        price = np.maximum(top * cost, (second > 0) * (top + second / (4 * ratio)))
        paid = of_block[group] * (sizes[group] + 1) / 2 * price
        factor = float(np.bincount(owner, weights=paid).max(initial=0.0))
        found.append(Products(ratio, upper, factor, 1 / larger, psi, counts.samples_per_bin > 1))
    return min(found, key=lambda products: products.factor)


def blocks_of(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    thorough: bool = True,
) -> Blocks:
    """Return the blocks for a release. The same counts give the same blocks, searched for once a process.

    Not ``thorough``: of more than QUICK pairs blocks are only merged. A release's are no worse than those.
    """
    quick = not thorough and counts.pairs > QUICK
    key = _key(counts, bound, tolerance)
    for known in (key, key + b"quick") if quick else (key,):
        if known in _remembered:
            _remembered.move_to_end(known)
            return _remembered[known]
    effort = 0 if quick else min(EFFORT, EFFORT_PER_NUMBER * counts.bins * len(tolerance))
    key += b"quick" if quick else b""
    found = best_blocks(counts, bound, tolerance, effort=effort)
    _remembered[key] = found
    while sum(len(each.items.user) for each in _remembered.values()) > REMEMBERED_PAIRS:
        _remembered.popitem(last=False)
    return found


_remembered: OrderedDict[bytes, Blocks] = OrderedDict()


def _key(counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]) -> bytes:
    digest = hashlib.sha256(repr((counts.users, counts.bins, bound)).encode())
    digest.update(repr([(statistic.value, float(each)) for statistic, each in tolerance.items()]).encode())
    for numbers in (counts.bin_index, counts.user_index, counts.count):
        digest.update(np.ascontiguousarray(numbers, dtype=np.int64).data)
    return digest.digest()
