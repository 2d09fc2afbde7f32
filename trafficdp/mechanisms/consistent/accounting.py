"""The accounting ``consistent``: block noise, larger hexagons measured as well, for who will add up hexagons.

Where it helps the average over an H3 parent, the parent is drawn in one block with its children
(``parent_search``), and the published children are made consistent with it (``estimates``). Other
numbers keep the noise of the accounting ``blocks``, times the little that the parents cost. "best" leaves it
aside: it is for averages, and vehicles that lose less than the heaviest pay more than without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.accounting import BlockAccounting, blocks_of
from trafficdp.mechanisms.blocks.blocks import Blocks
from trafficdp.mechanisms.blocks.lattice import NOTHING, to_block_lattice
from trafficdp.mechanisms.calibrated import CalibratedPure
from trafficdp.mechanisms.consistent.calibrated import NAME, CalibratedConsistent
from trafficdp.mechanisms.consistent.parent_gain import Combination, combine
from trafficdp.mechanisms.consistent.parent_search import Measured, measure_parents
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block_combination import combination_absolute_error
from trafficdp.privacy.loss import PureDP

FloatArray = npt.NDArray[np.float64]

_remembered: deque[tuple[Blocks, npt.NDArray[np.uint64], npt.NDArray[np.int64], Measured]] = deque(maxlen=8)
"""Parents depend on counts and cells alone, not on epsilon: those of the last blocks are kept."""


@dataclass(frozen=True)
class ConsistentAccounting:
    """See Accounting. Scales of consistent numbers are bounds of their expected absolute noise."""

    counts: Counts
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]

    name = NAME

    @cached_property
    def measured(self) -> Measured:
        """The blocks with the parents that are worth it."""
        plain = blocks_of(self.counts, self.bound, self.tolerance)
        cell, slot = self.counts.cell, self.counts.slot
        for blocks, cells, slots, found in _remembered:
            if blocks is plain and np.array_equal(cells, cell) and np.array_equal(slots, slot):
                return found
        found = measure_parents(plain, self.counts, float(self.bound.upper))
        _remembered.append((plain, cell, slot, found))
        return found

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting."""
        result = self._blocks.scales(epsilon)
        children = self.measured.parents.children
        if len(children):
            size = self._size
            result[Statistic.MEAN][children] = self._combination.absolute / epsilon * (size + 1)
        return {statistic: values[: self.counts.bins] for statistic, values in result.items()}

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        scales = self.scales(epsilon)
        return max(float(scales[each].max(initial=0.0)) / tolerance[each] for each in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Accounting: bounds where a number is made consistent."""
        result = self._blocks.errors(epsilon, bound)
        children = self.measured.parents.children
        if len(children):
            limit = np.full(len(children), Statistic.MEAN.largest(bound.upper) / 2)
            result[Statistic.MEAN][children] = combination_absolute_error(
                self._combination.absolute / epsilon, self._size, 1.0, limit, lattice=0.0
            )
        return {statistic: values[: self.counts.bins] for statistic, values in result.items()}

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """See Accounting: where nothing can vary there is no noise to draw."""
        lattice, parents = NOTHING, self.measured.parents
        if self.measured.blocks.items.number:
            lattice = to_block_lattice(self.measured.blocks, parents.beside(counts), bound, target)
        return CalibratedConsistent(self._blocks.statistics, lattice, parents)

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
        """The items of bins and parents, numbered one after another."""
        statistics = tuple(statistic for statistic in Statistic if statistic in self.tolerance)
        bins = self.counts.bins + self.measured.parents.number
        return BlockAccounting(self.measured.blocks, bins, statistics)

    @cached_property
    def _reach(self) -> FloatArray:
        """Half widths at epsilon 1 of the means of bins and parents."""
        items = self.measured.blocks.items
        mean = np.flatnonzero([each is Statistic.MEAN for each in items.statistic])
        reach = np.zeros(self._blocks.bins)
        reach[items.bin[mean]] = self.measured.blocks.half_widths(1.0)[mean]
        return reach

    @cached_property
    def _combination(self) -> Combination:
        return combine(self.measured.parents, self.counts.samples_per_bin, self._reach)

    @cached_property
    def _size(self) -> FloatArray:
        """d of the block of every child."""
        items, blocks = self.measured.blocks.items, self.measured.blocks
        size = np.zeros(self._blocks.bins)
        mean = np.flatnonzero([each is Statistic.MEAN for each in items.statistic])
        size[items.bin[mean]] = blocks.size[mean]
        return size[self.measured.parents.children]
