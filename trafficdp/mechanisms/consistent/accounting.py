"""The accounting ``consistent``: block noise, larger hexagons measured as well, for who will add up hexagons.

Where it helps the average over an H3 parent, the parent is drawn in one block with its children
(``parent_search``), and the published children are made consistent with it (``family``). Other
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

from trafficdp.errors import UsageError
from trafficdp.mechanisms import sums
from trafficdp.mechanisms.blocks.accounting import BlockAccounting, ByScales, blocks_of
from trafficdp.mechanisms.blocks.blocks import Blocks
from trafficdp.mechanisms.blocks.noise import fitted, whole_steps
from trafficdp.mechanisms.consistent.calibrated import CalibratedConsistent, set_with
from trafficdp.mechanisms.consistent.family import Combination, combine
from trafficdp.mechanisms.consistent.parent_search import Measured, measure_parents
from trafficdp.mechanisms.protocol import CONSISTENT, Calibrated, PublicFacts
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.block_combination import combination_absolute_error
from trafficdp.privacy.loss import PICO, Loss

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_remembered: deque[tuple[Blocks, npt.NDArray[np.uint64], npt.NDArray[np.int64], Measured]] = deque(maxlen=8)
"""Parents depend on counts and cells alone, not on epsilon: those of the last blocks are kept."""


@dataclass(frozen=True)
class ConsistentAccounting(ByScales):
    """See Accounting. Scales of consistent numbers are bounds of their expected absolute noise.

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
        """See Accounting."""
        found = self._blocks.scales(epsilon)
        children = self.measured.parents.children
        if len(children):
            found[Statistic.MEAN][children] = self._combination.absolute / epsilon * (self._size + 1)
        return found

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting: bounds where a number is made consistent."""
        found = self._blocks.errors(epsilon)
        children = self.measured.parents.children
        if len(children):
            limit = np.full(len(children), Statistic.MEAN.largest(self.bound.upper) / 2)
            found[Statistic.MEAN][children] = combination_absolute_error(
                self._combination.absolute / epsilon, self._size, 1.0, limit, lattice=0.0
            )
        return found

    def calibrate(self, loss: Loss) -> Calibrated:
        """See Accounting."""
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
