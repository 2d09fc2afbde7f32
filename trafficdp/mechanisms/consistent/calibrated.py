"""Calibrated ``consistent``: block noise for bins and some of their H3 parents, the means made to agree.

A parent's sum is that of its children, so vehicle l moves it by at most K m_{P,l}, m_{P,l} its records in all
of them: one more coordinate of the box, and one more sum of a block. All that follows is post-processing of
these draws (``family``). Parents are not published.

# The accounting ``consistent``, for who will add up hexagons

Block noise, larger hexagons measured as well.

Where it helps the average over an H3 parent, the parent is drawn in one block with its children
(``parent_search``), and the published children are made consistent with it (``family``). Other
numbers keep the noise of the accounting ``blocks``, times the little that the parents cost. "best" leaves it
aside: it is for averages, and vehicles that lose less than the heaviest pay more than without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Support
from trafficdp.measurement.sets import Box, Step
from trafficdp.mechanisms import sums
from trafficdp.mechanisms.blocks.blocks import Blocks
from trafficdp.mechanisms.blocks.calibrated import (
    COLUMNS,
    BlockAccounting,
    ByScales,
    CalibratedBlocks,
    blocks_of,
    published_noise,
    set_of,
)
from trafficdp.mechanisms.blocks.noise import BlockNoise, fitted, whole_steps
from trafficdp.mechanisms.blocks.spread import NumberLaw, spread_of
from trafficdp.mechanisms.consistent.family import Combination, Family, combine
from trafficdp.mechanisms.consistent.parent_search import Measured, measure_parents
from trafficdp.mechanisms.consistent.parents import Parents
from trafficdp.mechanisms.protocol import CONSISTENT, Calibrated, Columns, PublicFacts, Statement
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.block import combination_absolute_error
from trafficdp.privacy.loss import PICO, Loss

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CITATION = (
    "here; K-norm mechanism by Hardt, Talwar: On the Geometry of Differential Privacy, STOC 2010; "
    "consistency by Hay, Rastogi, Miklau, Suciu: Boosting the Accuracy of Differentially Private Histograms "
    "Through Consistency, VLDB 2010"
)
SENSITIVITY = (
    "U m/N for the mean, with m of the vehicle's records among the N of the bin; for the mean over a larger "
    "hexagon the same with the records in all its released bins"
)
DISTRIBUTION = (
    "l-infinity block noise: P(z) proportional to exp(-m/s), m the largest |z|/a of the block, on integers; "
    "a vehicle pays the largest of a block's losses, once; where a larger hexagon is measured in the block, "
    "a number combines these noises by least squares, and the noise scale bounds its expected absolute value"
)
COMPOSITION = (
    "numbers that the same vehicles share, and means over some larger hexagons with those over the bins in "
    "them, are drawn together in blocks of l-infinity noise: a vehicle pays the largest of its exact losses "
    "in a block, once, added over blocks; the largest is the guarantee"
)
INTERVALS = (
    "proved tail of a block's noise on its lattice, or of the combination of a block's noises by least "
    "squares, whichever is narrower by public numbers, widened by the worst-case bias"
)
POST_PROCESSING = (
    "means are made consistent, by exact least squares, with noisy means over larger hexagons of the same "
    "slot, which are not published; then clamped to the range"
)


def set_with(
    parents: Parents, statistics: tuple[Statistic, ...], counts: Counts, bound: ContributionBound
) -> Box:
    """Return the set of the sums of ``statistics`` (no variance), G each, and of those of the P parents."""
    plain = set_of(statistics, counts, bound)
    if not isinstance(plain, Box):
        raise UsageError("consistent hexagons have no variances", expected="means or vehicle means")
    parent, user, _ = parents.pairs(counts)
    own = plain.support
    support = Support(
        np.concatenate([own.user, user]),
        np.concatenate([own.coordinate, own.coordinates + parent]),
        own.users,
        own.coordinates + parents.number,
    )
    return Box(support, np.concatenate([plain.high, parents.sums(counts, counts.count) * bound.steps]))


@dataclass(frozen=True)
class CalibratedConsistent(CalibratedBlocks):
    """The same with ``parents``, P sums of speeds after those of the bins. See Calibrated.

    A parent and all its children lie in one block.
    """

    parents: Parents

    kind = CONSISTENT
    composition = COMPOSITION

    def steps(self) -> tuple[Step, ...]:
        """Return what is measured. Raises UsageError unless each parent is in the block of its children."""
        self._require_families()
        return (self.noise.step(set_with(self.parents, self.statistics, *self.public.both)),)

    def statement(self, statistic: Statistic) -> Statement:
        """Return what the manifest says of ``statistic``."""
        plain = super().statement(statistic)
        if statistic is not Statistic.MEAN or not self.parents.number:
            return plain
        return replace(
            plain,
            citation=CITATION,
            sensitivity=SENSITIVITY,
            distribution=DISTRIBUTION,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING,
        )

    def to_facts(self) -> dict[str, Any]:
        """Return the noise of bins and parents, and whose parents they are, as JSON values."""
        return {**super().to_facts(), "of": self.parents.of.tolist()}

    def published_facts(self) -> dict[str, Any]:
        """Return how parents were drawn, under ``parents``; columns say how the bins were.

        ``of`` is the parent of every numbered bin, -1 for none; a parent's block is that of its children.
        """
        own = slice(len(self.statistics) * len(self.parents.of), None)
        parents = {
            "of": self.parents.of.tolist(),
            "half_width": self.noise.half_width[own].tolist(),
            "shift": self.noise.shift[own].tolist(),
        }
        return {"kind": self.kind, "parents": parents}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: PublicFacts) -> Self:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        blocks = CalibratedBlocks.from_facts(facts, public)
        return cls(public, blocks.statistics, blocks.noise, Parents(np.array(facts["of"], dtype=np.int64)))

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns, public: PublicFacts) -> Self:
        """Return the calibrated mechanism of the numbered bins.

        Raises UsageError when a column is missing, scales differ, or parents do not fit the bins.
        """
        statistics = tuple(statistic for statistic in Statistic if statistic in columns)
        below = published_noise(statistics, columns)
        of, *rest = (
            np.array(facts["parents"][name], dtype=np.int64) for name in ("of", "half_width", "shift")
        )
        parents = Parents(of)
        if len(of) * len(statistics) != len(below.block) or {len(each) for each in rest} != {parents.number}:
            raise UsageError("parents are published that do not fit the bins", got=f"{len(rest[0])} parents")
        # of all children, the last
        block = np.zeros(parents.number, dtype=np.int64)
        block[of[parents.children]] = below.block[parents.children]
        joined = {
            name: np.concatenate([getattr(below, name), own])
            for name, own in zip(COLUMNS, (block, *rest), strict=True)
        }
        return cls(public, statistics, BlockNoise(scale=below.scale, **joined), parents)

    def family(self) -> Family:
        """Return the means of the bins and of their parents."""
        counts, bound = self.public.both
        samples, bins = counts.samples_per_bin, counts.bins
        at = np.concatenate([np.arange(bins), np.arange(len(self.statistics) * bins, len(self.noise.block))])
        unit = float(bound.step) / np.concatenate([samples, self.parents.records(samples)])
        return Family(spread_of(self.noise, at, unit), self.parents, samples, bound)

    def _values(self, contributions: Contributions) -> IntArray:
        above = self.parents.sums(contributions.counts, contributions.total)
        return np.concatenate([super()._values(contributions), above])

    def _law(self, statistic: Statistic, level: float | None) -> NumberLaw:
        if statistic is Statistic.MEAN:
            return self.family().law(level)[0]
        return super()._law(statistic, level)

    def _numbers(
        self, statistic: Statistic, noisy: IntArray, level: float
    ) -> tuple[FloatArray, FloatArray | None]:
        if statistic is not Statistic.MEAN:
            return super()._numbers(statistic, noisy, level)
        family, bins = self.family(), self.public.counts.bins
        raw = family.raw.values(np.concatenate([noisy[:bins], noisy[len(self.statistics) * bins :]]))
        final = family.values(raw)
        return final, np.where(family.law(level)[1], final, raw[:bins])

    def _require_families(self) -> None:
        parents, bins = self.parents, self.public.counts.bins
        first = len(self.statistics) * bins
        fits = len(parents.of) == bins and len(self.noise.block) == first + parents.number
        fits = fits and (not parents.number or self.statistics[0] is Statistic.MEAN)
        if fits:
            above = self.noise.block[first + parents.of[parents.children]]
            fits = bool(np.all(self.noise.block[parents.children] == above))
        if not fits:
            raise UsageError(
                "the parents are not those of the bins",
                got=f"{parents.number} parents over {len(parents.of)} bins",
                expected=f"each in one block with its children, over {bins} bins",
            )


_remembered: deque[tuple[Blocks, npt.NDArray[np.uint64], npt.NDArray[np.int64], Measured]] = deque(maxlen=8)
"""Parents depend on counts and cells alone, not on epsilon: those of the last blocks are kept."""


@dataclass(frozen=True)
class ConsistentAccounting(ByScales):
    """Accounting of blocks with parents. Scales of consistent numbers bound their expected absolute noise.

    Raises UsageError for variances.
    """

    counts: Counts
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]

    name = CONSISTENT
    composition = CalibratedConsistent.composition

    def __post_init__(self) -> None:
        if Statistic.VARIANCE in self.tolerance:
            raise UsageError(
                "the accounting consistent releases no variances",
                got=", ".join(statistic.value for statistic in self.tolerance),
                expected="means or vehicle means",
                todo='release means alone, or choose accounting = "best"',
            )

    @cached_property
    def measured(self) -> Measured:
        """The blocks with the parents that are worth it."""
        plain = blocks_of(self.counts, self.bound, self.tolerance)
        cell, slot = self.counts.cell, self.counts.slot
        for blocks, cells, slots, found in _remembered:
            if blocks is plain and np.array_equal(cells, cell) and np.array_equal(slots, slot):
                return found
        means = Statistic.MEAN in self.tolerance
        found = measure_parents(plain, self.counts, float(self.bound.upper), means=means)
        _remembered.append((plain, cell, slot, found))
        return found

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return the expected absolute noise of every bin at ``epsilon``."""
        found = self._blocks.scales(epsilon)
        children = self.measured.parents.children
        if len(children):
            found[Statistic.MEAN][children] = self._combination.absolute / epsilon * (self._size + 1)
        return found

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected errors; bounds where a number is made consistent."""
        found = self._blocks.errors(epsilon)
        children = self.measured.parents.children
        if len(children):
            limit = np.full(len(children), Statistic.MEAN.largest(self.bound.upper) / 2)
            found[Statistic.MEAN][children] = combination_absolute_error(
                self._combination.absolute / epsilon, self._size, 1.0, limit, lattice=0.0
            )
        return found

    def calibrate(self, loss: Loss) -> Calibrated:
        """Return the noise as it will be drawn, whose exact loss is at most ``loss``."""
        counts, bound = self.counts, self.bound
        statistics, parents = self._blocks.statistics, self.measured.parents
        width = self._blocks.half_widths(whole_steps(loss) / PICO)
        units = [sums.unit(each, counts, bound) for each in statistics]
        units.append(float(bound.step) / parents.records(counts.samples_per_bin))
        of = set_with(parents, statistics, counts, bound)
        noise = fitted(of, self.measured.blocks.block, width / np.concatenate(units), loss)
        return CalibratedConsistent(PublicFacts(counts, bound), statistics, noise, parents)

    def in_words(self) -> str:
        """Return what the parents buy, in one sentence."""
        found = self.measured
        if not found.parents.number:
            return f"none of {found.families} larger hexagons is worth measuring: this is plain block noise"
        gain = 1 - float(np.median(found.gain))
        return (
            f"{found.parents.number} of {found.families} larger hexagons are measured as well: averages over "
            f"them are {gain:.0%} less noisy than by plain blocks (median), other numbers "
            f"{max(found.growth - 1, 0):.1%} noisier; vehicles that would lose less than the most lose more"
        )

    @cached_property
    def _blocks(self) -> BlockAccounting:
        """The items of the bins, with those of the parents after them."""
        statistics = tuple(statistic for statistic in Statistic if statistic in self.tolerance)
        return BlockAccounting(PublicFacts(self.counts, self.bound), self.measured.blocks, statistics)

    @cached_property
    def _combination(self) -> Combination:
        """At epsilon 1."""
        reach, bins = self._blocks.half_widths(1.0), self.counts.bins
        above = reach[len(self.tolerance) * bins :]
        return combine(
            self.measured.parents, self.counts.samples_per_bin, np.concatenate([reach[:bins], above])
        )

    @cached_property
    def _size(self) -> IntArray:
        """d of the block of every child."""
        return self.measured.blocks.size[self.measured.parents.children]
