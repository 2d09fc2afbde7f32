"""The accounting ``blocks``, beside those of Laplace noise: statistics that the same vehicles share pay once.

Theorem. With blocks B of the items (bin, statistic) and half widths s_i = 2 E t_i / (d_B + 1), every vehicle
loses at most epsilon as soon as E >= A / epsilon, A = max_l sum_B ((d_B + 1)/2) max_{i in B} D_{i,l}/t_i
(``blocks``), and every item's expected absolute noise is E t_i. With every item its own block this is
the accounting ``equal`` (mean and variance of a bin then priced apart).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.blocks import Blocks, best_blocks, clamped_error
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.blocks.lattice import NOTHING, to_block_lattice
from trafficdp.mechanisms.calibrated import CalibratedPure
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import PureDP

FloatArray = npt.NDArray[np.float64]
EFFORT = 2_000
"""Moves of single items tried for a release: half a second for 1,400 bins; more gain 1 to 3 percent."""
EFFORT_PER_NUMBER = 20
REMEMBERED_PAIRS = 20_000_000
"""Blocks depend on counts alone, not on epsilon: the last ones found are kept, up to so many pairs in all."""


@dataclass(frozen=True)
class BlockAccounting:
    """See Accounting. ``blocks`` are those of all ``bins``; ``statistics`` those released."""

    blocks: Blocks
    bins: int
    statistics: tuple[Statistic, ...]

    name = "blocks"

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting: E t_i."""
        return self._by_statistic(self.blocks.factor / epsilon * self.blocks.items.tolerance)

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting: E, the same for all."""
        return self.blocks.factor / epsilon

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        return self.blocks.factor / relative_scale if relative_scale > 0 else 0.0

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Accounting: E min(|z|, R/2), which depends on the size of the block."""
        size, width = self.blocks.size, self.blocks.half_widths(epsilon)
        reach = np.array([statistic.largest(bound.upper) for statistic in self.blocks.items.statistic])
        kinds, which = np.unique(np.column_stack([size, width, reach]), axis=0, return_inverse=True)
        clamped = clamped_error(kinds[:, 0].astype(np.int64), kinds[:, 1], kinds[:, 2])
        return self._by_statistic(clamped[which.ravel()])

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """See Accounting: where nothing can vary there is no noise to draw."""
        lattice = NOTHING
        if self.blocks.items.number:
            lattice = to_block_lattice(self.blocks, counts, bound, target)
        return CalibratedBlocks(self.statistics, lattice)

    def _by_statistic(self, values: FloatArray) -> dict[Statistic, FloatArray]:
        """Values of the items as arrays over the bins, 0 where there is no item."""
        items = self.blocks.items
        result = {}
        for statistic in self.statistics:
            mine = np.array([each is statistic for each in items.statistic], dtype=np.bool_)
            result[statistic] = np.zeros(self.bins)
            result[statistic][items.bin[mine]] = values[mine]
        return result


def blocks_of(counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]) -> Blocks:
    """Return the blocks for a release. The same counts give the same blocks, searched for once a process."""
    key = _key(counts, bound, tolerance)
    if key in _remembered:
        _remembered.move_to_end(key)
        return _remembered[key]
    effort = min(EFFORT, EFFORT_PER_NUMBER * counts.bins * len(tolerance))
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
