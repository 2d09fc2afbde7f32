"""Calibrated ``blocks``: l-infinity noise on whole sums, the numbers of a block for one price.

Means and vehicle means are measured by their sums (``sums``), which draw their noise in blocks. Mean and
variance together are measured by pairs of sums (``measurement.sets``): those of x in blocks, and those of
x (U - x) in the same blocks, apart.

# The accounting ``blocks``, beside those of Laplace noise

Numbers that the same vehicles share pay once.

Theorem. With blocks B of the items (means or vehicle means of the bins) and half widths
s_i = 2 E t_i / (d_B + 1), every vehicle loses at most epsilon as soon as E >= A / epsilon,
A = max_l sum_B ((d_B + 1)/2) max_{i in B} D_{i,l}/t_i (``blocks``), and every item's expected absolute noise
is E t_i. With every item its own block this is the accounting ``equal``.

**With variances** the bins' blocks are those found for the means alone. In a block of d the sums of x are
drawn with expected noise E t_mean / r_d a mean, those of x (U - x) apart, with c U times that; psi_d(c) is
the size of both noises over that of the first (``noise.block``), r_d = max(1, U psi_d(c) t_mean / t_var)
makes the worst relative noise E everywhere. With x_g = U m/(N t_mean) a vehicle pays for the pair of blocks
(``measurement.sets``)

    (r_d (d + 1)/2 / E) max( max over g of x_g cost(c), max over g != h of (x_g + x_h / (4 c)) ).

c is the best of ``RATIOS``, by counts alone.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import EntryIndex
from trafficdp.measurement.sets import Box, Measure, Moments, Step, record_price
from trafficdp.mechanisms import means, protocol
from trafficdp.mechanisms.blocks import noise as blocks_noise
from trafficdp.mechanisms.blocks.blocks import Blocks, best_blocks, clamped_block_error
from trafficdp.mechanisms.laplace.calibrated import SumsMechanism
from trafficdp.mechanisms.publish import NumberLaw
from trafficdp.model import ContributionBound, Counts, Statistic, largest_two, number_pairs
from trafficdp.noise.block import SAMPLER, pair_mean
from trafficdp.privacy.loss import PICO, Loss
from trafficdp.sensitive import Contributions

NAME = "blocks"
CITATION = "here; K-norm mechanism by Hardt, Talwar: On the Geometry of Differential Privacy, STOC 2010"
CITATION_OF_PAIRS = (
    f"{CITATION}; the limit of variances by Bhatia, Davis: A Better Bound on the Variance, 2000"
)
DISTRIBUTION = (
    "l-infinity block noise: P(z) proportional to exp(-m/s), m the largest |z|/a of the block, on integers; "
    "a vehicle pays the largest of a block's losses, once; the noise scale is the expected absolute noise"
)
DISTRIBUTION_OF_PAIRS = (
    "mean (U - mean) less the average of x (U - x), both with l-infinity block noise on integers: at most U "
    "times the mean's noise, and that of the products; the noise scale bounds the expected absolute sum"
)
INTERVALS = "proved tail of a block's noise on its lattice, widened by the worst-case bias"
INTERVALS_OF_PAIRS = "proved tail of the sum of two independent block noises, widened by the worst-case bias"
COMPOSITION = (
    "numbers that the same vehicles share are drawn together in blocks of l-infinity noise: a vehicle pays "
    "the largest of its exact losses in a block, once, added over blocks (for variances in a pair of blocks, "
    "of sums of x and of x (U - x)); the largest is the guarantee"
)
COLUMNS = ("block", "half_width", "shift")
"""What is published of each number's noise besides its scale; a variance's are those of its product."""
PAIRS = (Statistic.MEAN, Statistic.VARIANCE)


def blocks_can_release(statistics: Iterable[Statistic]) -> bool:
    """Return whether block noise can release these together: means and vehicle means, or mean and
    variance.
    """
    wanted = {*statistics}
    return Statistic.VARIANCE not in wanted or wanted == {*PAIRS}


def clip_set_of(statistics: tuple[Statistic, ...], counts: Counts, bound: ContributionBound) -> Box | Moments:
    """Return the set to which each vehicle's part of the sums is clipped: G sums a statistic, in their
    order.
    """
    if statistics == PAIRS:
        return means.speeds_and_products(counts, bound)
    boxes = [means.box_of(statistic, counts, bound) for statistic in statistics]
    if len(boxes) == 1:
        return boxes[0]
    places = [number * counts.bins + counts.bin_index for number in range(len(boxes))]
    user = np.tile(counts.user_index.astype(np.int64), len(boxes))
    support = EntryIndex(user, np.concatenate(places), counts.users, len(boxes) * counts.bins)
    return Box(support, np.concatenate([box.high for box in boxes]))


@dataclass(frozen=True)
class CalibratedBlocks(SumsMechanism):
    """``noise`` is that of the sums of ``statistics``, G each, in this order. See CalibratedMechanism."""

    noise: blocks_noise.BlockNoise

    kind = name = NAME
    composition = COMPOSITION
    citation = (CITATION, CITATION_OF_PAIRS)
    distribution = (DISTRIBUTION, DISTRIBUTION_OF_PAIRS)
    intervals = (INTERVALS, INTERVALS_OF_PAIRS)
    sampler = SAMPLER

    def steps(self) -> tuple[Step, ...]:
        """Return the one measurement step: the sums of all statistics and bins with block noise."""
        return (self.noise.step(clip_set_of(self.statistics, self.public.counts, self.public.bound)),)

    def numbers(self, contributions: Contributions, measure: Measure) -> dict[Statistic, FloatArray]:
        """Measure private ``contributions``; return noisy averages before clamping, shape (G,) each.

        Of VARIANCE that of x (U - x).
        """
        (step,) = self.steps()
        of = (Statistic.VARIANCE,) if self.statistics == PAIRS else self.statistics
        values = [means.values_of(each, contributions) for each in of]
        noisy = measure.measure(step, np.concatenate(values))
        return {each: self._spread(each).values(noisy[self._at(each)]) for each in self.statistics}

    def columns(self, statistic: Statistic) -> dict[str, npt.NDArray[Any]]:
        """Return the published columns of the noise of ``statistic``; a variance's are of its product."""
        columns = self._spread(statistic).columns()
        if statistic is not Statistic.VARIANCE:
            return columns
        return {f"product_{name}": columns[name] for name in COLUMNS}

    def to_facts(self) -> dict[str, Any]:
        """Return the mechanism as JSON values, without its public facts; ``from_facts`` restores it."""
        return {
            "kind": self.kind,
            "statistics": [statistic.value for statistic in self.statistics],
            "scale": self.noise.scale,
            **{name: getattr(self.noise, name).tolist() for name in COLUMNS},
        }

    def manifest_facts(self) -> dict[str, Any]:
        """Return {"kind": ...} for the manifest; the published noise columns hold the rest."""
        return {"kind": self.kind}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: protocol.PublicFacts) -> Self:
        """Return the mechanism that ``to_facts`` wrote, on the same ``public`` facts."""
        numbers = {name: np.array(facts[name], dtype=np.int64) for name in COLUMNS}
        statistics = tuple(Statistic(name) for name in facts["statistics"])
        return cls(public, statistics, blocks_noise.BlockNoise(scale=float(facts["scale"]), **numbers))

    @classmethod
    def from_published(
        cls, facts: Mapping[str, Any], columns: protocol.Columns, public: protocol.PublicFacts
    ) -> Self:
        """Return the mechanism of a published release from its noise ``columns``, for the bins with numbers.

        Raises UsageError when a column is missing, scales differ, or a mean has no noise.
        """
        statistics = tuple(statistic for statistic in Statistic if statistic in columns)
        return cls(public, statistics, published_noise(statistics, columns))

    def _at(self, statistic: Statistic) -> IntArray:
        """The places of a statistic among the sums."""
        bins = self.public.counts.bins
        return self.statistics.index(statistic) * bins + np.arange(bins)

    def _spread(self, statistic: Statistic) -> blocks_noise.Spread:
        noise, at = self.noise, self._at(statistic)
        size, shift = noise.size[at], noise.shift[at]
        unit = means.unit(statistic, self.public.counts, self.public.bound)
        step = np.where(size > 0, np.ldexp(unit, -shift), 0.0)
        return blocks_noise.Spread(noise.block[at], noise.half_width[at], shift, size, step, noise.scale)

    def _law(self, statistic: Statistic, level: float | None) -> NumberLaw:
        spread, bound = self._spread(statistic), self.public.bound
        if statistic is Statistic.VARIANCE:
            return blocks_noise.variance_law(self._spread(Statistic.MEAN), spread, bound, level)
        return spread.law(statistic, bound, level)


def published_noise(statistics: tuple[Statistic, ...], columns: protocol.Columns) -> blocks_noise.BlockNoise:
    """Return the block noise described by the published ``columns`` of ``statistics``.

    Raises UsageError when a column is missing, scales differ, or a mean has no noise.
    """
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in COLUMNS}
    scales: list[npt.NDArray[Any]] = []
    for statistic in statistics:
        own, paired = columns[statistic], statistic is Statistic.VARIANCE
        names = [f"product_{name}" for name in COLUMNS] if paired else [*COLUMNS, "block_scale"]
        if not set(names) <= own.keys():
            raise UsageError("a statistic is published without its block noise", got=statistic.value)
        for name, published in zip(COLUMNS, names, strict=False):
            parts[name].append(own[published])
        if not paired:
            scales.append(own["block_scale"])
            if int(own["block"].min(initial=0)) < 0:
                raise UsageError(
                    "the blocks are not those of the bins", got=f"a {statistic.value} without noise"
                )
    scale = np.unique(np.concatenate([*scales, np.zeros(0)]))
    if len(scale) != 1:
        raise UsageError("blocks are published with several scales", got=str(len(scale)), expected="one")
    joined = {name: np.concatenate(values).astype(np.int64) for name, values in parts.items()}
    return blocks_noise.BlockNoise(scale=float(scale[0]), **joined)


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
    varies: BoolArray


@dataclass(frozen=True)
class BlockAccounting:
    """Accounting in blocks. ``blocks`` are those of the means and vehicle means of ``statistics``, G each.

    ``products`` where VARIANCE is one of the statistics.
    """

    public: protocol.PublicFacts
    blocks: Blocks
    statistics: tuple[Statistic, ...]
    products: Products | None = None

    name = NAME
    composition = CalibratedBlocks.composition

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute noise at ``epsilon`` before clamping, shape (G,), in
        its unit.
        """
        found = self._by_statistic(self._noise(epsilon))
        if self.products is not None:
            size = self.products.upper * self.products.psi * found[Statistic.MEAN]
            found[Statistic.VARIANCE] = np.where(self.products.varies, size, 0.0)
        return found

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values at ``epsilon``, shape (G,), in
        its unit.

        Numbers are clamped to their range: E min(|noise|, U/2) for means; for variances the noise, at most
        the range.
        """
        sizes = np.column_stack([self.blocks.block_size, self.half_widths(epsilon)])
        kinds, which = np.unique(sizes, axis=0, return_inverse=True)
        upper = np.full(len(kinds), float(self.public.bound.upper))
        clamped = clamped_block_error(kinds[:, 0].astype(np.int64), kinds[:, 1], upper)
        found = self._by_statistic(clamped[which.ravel()])
        if self.products is not None:
            most = Statistic.VARIANCE.largest(self.public.bound.upper)
            found[Statistic.VARIANCE] = np.minimum(self.scales(epsilon)[Statistic.VARIANCE], most)
        return found

    def half_widths(self, epsilon: float) -> FloatArray:
        """Return the half width of the block noise of each item at ``epsilon``, in its unit, shape (I,)."""
        return 2 * self._noise(epsilon) / (self.blocks.block_size + 1)

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the largest ratio of expected noise (``scales``) to tolerance over bins and statistics."""
        scales = self.scales(epsilon)
        return max(float(scales[each].max(initial=0.0)) / tolerance[each] for each in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the epsilon at which ``worst_relative_scale`` equals ``relative_scale``."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0

    def calibrate(self, loss: Loss) -> protocol.CalibratedMechanism:
        """Return the mechanism with block noise that can be drawn exactly and costs at most ``loss``."""
        block, width = self.blocks.block, self.half_widths(blocks_noise.chargeable_pico(loss) / PICO)
        widths = self._by_statistic(width)
        if self.products is not None:
            varies, wider = self.products.varies, self.products.ratio * self.products.upper
            widths[Statistic.VARIANCE] = np.where(varies, wider * width, 0.0)
            own = np.full(self.public.counts.bins, -1, dtype=np.int64)
            own[varies] = block.max() + 1 + np.unique(block[varies], return_inverse=True)[1]
            block = np.concatenate([block, own])
        counts, bound = self.public.counts, self.public.bound
        of = clip_set_of(self.statistics, counts, bound)
        units = [widths[each] / means.unit(each, counts, bound) for each in self.statistics]
        noise = blocks_noise.calibrated_block_noise(of, block, np.concatenate(units), loss)
        return CalibratedBlocks(self.public, self.statistics, noise)

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
    """Return the accounting of block noise for the statistics of ``tolerance``, from public counts.

    The statistics must be such that ``blocks_can_release`` holds. Not ``thorough``: a quicker and coarser
    search for blocks, for maps that are compared and not released.
    """
    statistics = tuple(statistic for statistic in Statistic if statistic in tolerance)
    means: dict[Statistic, float] = {
        each: tolerance[each] for each in statistics if each is not Statistic.VARIANCE
    }
    blocks = find_blocks(counts, bound, means, thorough=thorough)
    products = None
    if Statistic.VARIANCE in tolerance:
        products = best_products(blocks, counts, bound, tolerance[Statistic.VARIANCE])
    return BlockAccounting(protocol.PublicFacts(counts, bound), blocks, statistics, products)


def best_products(blocks: Blocks, counts: Counts, bound: ContributionBound, variance: float) -> Products:
    """Return how the sums of x (U - x) are best drawn beside the means of ``blocks``, from public counts.

    ``variance`` is the tolerance of variances.
    """
    upper, size, steps = float(bound.upper), blocks.block_size, float(bound.upper_steps)
    ways = []
    for ratio in RATIOS:
        by_size = {each: pair_mean(each, ratio) * 2 / (each + 1) for each in np.unique(size).tolist()}
        psi = np.array([by_size[each] for each in size.tolist()])
        larger = np.maximum(1.0, upper * psi * blocks.items.tolerance / variance)
        # both sums over the first alone: what c U/q as wide noise of W costs beside a scale of 1 for S
        cost = float(record_price(bound.upper_steps, np.ones(1), np.array([ratio * steps]))[0]) / steps
        ways.append((ratio, psi, larger, cost))
    # a user pays between r max(cost, 1) and r max(cost, 1 + 1/(4c)) times its load without products
    spread = max(
        float(larger.max() / larger.min()) * max(cost, 1 + 1 / (4 * ratio)) / max(cost, 1.0)
        for ratio, _, larger, cost in ways
    )
    items, there = blocks.items.restricted_to_users(blocks.load * spread * (1 + 1e-9) >= blocks.factor)
    sizes = np.bincount(blocks.block)
    group, owner, which = number_pairs(
        blocks.block[there][items.item_of_entry], items.user, len(sizes), items.users
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


def find_blocks(
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    *,
    thorough: bool = True,
) -> Blocks:
    """Return blocks for the means or vehicle means of ``tolerance``, cached for the same public counts.

    Not ``thorough``: with more than QUICK pairs, blocks are only merged. Those of a release are never worse.
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
