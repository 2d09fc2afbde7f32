"""Calibrated ``blocks``: l-infinity noise on exact integers, statistics of a block for one price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.estimates import (
    block_estimates,
    interval_half_width,
    spread_of,
)
from trafficdp.mechanisms.blocks.lattice import BlockLattice, block_loss_per_user
from trafficdp.mechanisms.calibrated import POST_PROCESSING, Columns, Statement
from trafficdp.mechanisms.laplace.calibrated import SENSITIVITY, largest_sensitivity
from trafficdp.mechanisms.promise import ASSUMPTIONS
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.noise import block as block_noise
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

KIND = "blocks"
MECHANISM = "linf_block"
CITATION = "here; K-norm mechanism by Hardt, Talwar: On the Geometry of Differential Privacy, STOC 2010"
DISTRIBUTION = (
    "l-infinity block noise: P(z) proportional to exp(-m/s), m the largest |z|/a of the block, on integers; "
    "a vehicle pays the largest of a block's losses, once; the noise scale is the expected absolute noise"
)
INTERVALS = "proved tail of a block's noise on its lattice, widened by the worst-case bias"
COLUMNS = ("block_scale", "block", "half_width", "shift")


@dataclass(frozen=True)
class CalibratedBlocks:
    """All bins by the noise of ``lattice``; what cannot vary is a constant, no item. See Calibrated."""

    statistics: tuple[Statistic, ...]
    lattice: BlockLattice

    kind = KIND

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated: blocks add, within a block the largest counts (``estimates``)."""
        self._require_noise(counts)
        return PrivacyEvent(
            mechanism=MECHANISM,
            statistics=self.statistics,
            relation=NeighbouringRelation.REPLACE_USER_VALUES,
            unit="vehicle",
            bins=counts.bins,
            sensitivity={s: largest_sensitivity(s, counts, bound) for s in self.statistics},
            bound=bound,
            assumptions=ASSUMPTIONS,
            loss_per_user=block_loss_per_user(counts, bound, self.lattice),
        )

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        return block_estimates(
            values.contributions,
            self.lattice,
            self.statistics,
            noise.block,
            interval_level=interval_level,
            uninformative_above=uninformative_above,
        )

    def expected_errors(
        self, counts: Counts, bound: ContributionBound
    ) -> dict[Statistic, npt.NDArray[np.float64]]:
        """See Calibrated: they follow from the half widths."""
        return {each: spread_of(each, counts, bound, self.lattice).error for each in self.statistics}

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, npt.NDArray[np.float64]]:
        """See Calibrated: the tail of the block and the worst-case bias."""
        return {
            statistic: interval_half_width(
                statistic,
                bound,
                self.lattice,
                spread_of(statistic, counts, bound, self.lattice),
                interval_level,
            )
            for statistic in self.statistics
        }

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        spread = spread_of(statistic, counts, bound, self.lattice)
        return Statement(
            mechanism=MECHANISM,
            citation=CITATION,
            sensitivity=SENSITIVITY[statistic],
            noise_scale=spread.scale,
            worst_case_bias=rounding_bias(statistic, bound) + float(spread.flooring.max(initial=0.0)),
            share=None,
            distribution=DISTRIBUTION,
            sampler=block_noise.SAMPLER,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated: whole numbers, and one scale."""
        return {
            "kind": KIND,
            "statistics": [statistic.value for statistic in self.statistics],
            "scale": self.lattice.scale,
            "items": [statistic.value for statistic in self.lattice.statistic],
            "bin": self.lattice.bin.tolist(),
            "block": self.lattice.block.tolist(),
            "half_width": self.lattice.half_width.tolist(),
            "shift": self.lattice.shift.tolist(),
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: columns ``block_scale``, ``block``, ``half_width`` and ``shift`` say the rest."""
        return {"kind": KIND}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedBlocks:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        numbers = {
            name: np.array(facts[name], dtype=np.int64) for name in ("bin", "block", "half_width", "shift")
        }
        items = tuple(Statistic(name) for name in facts["items"])
        lattice = BlockLattice(statistic=items, scale=float(facts["scale"]), **numbers)
        return cls(tuple(Statistic(name) for name in facts["statistics"]), lattice)

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedBlocks:
        """Return the calibrated mechanism of the numbered bins.

        Raises UsageError when a column is missing or scales differ.
        """
        if not columns or any(not set(COLUMNS) <= own.keys() for own in columns.values()):
            raise UsageError("a statistic is published without its block noise")
        items: list[Statistic] = []
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in ("bin", *COLUMNS)}
        for statistic, own in columns.items():
            noisy = np.flatnonzero(own["block"] >= 0)
            items += [statistic] * len(noisy)
            parts["bin"].append(noisy)
            for name in COLUMNS:
                parts[name].append(own[name][noisy])
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        scales = np.unique(joined.pop("block_scale"))
        if len(scales) > 1:
            raise UsageError("blocks are published with several scales", got=str(len(scales)), expected="one")
        lattice = BlockLattice(
            statistic=tuple(items),
            scale=float(scales[0]) if len(scales) else 1.0,
            bin=joined["bin"].astype(np.int64),
            block=joined["block"].astype(np.int64),
            half_width=joined["half_width"].astype(np.int64),
            shift=joined["shift"].astype(np.int64),
        )
        return cls(tuple(statistic for statistic in Statistic if statistic in columns), lattice)

    def _require_noise(self, counts: Counts) -> None:
        """Raise UsageError unless every statistic that can vary has its item: without one it is bare."""
        for statistic in self.statistics:
            varies = np.ones(counts.bins, dtype=np.bool_)
            if statistic is Statistic.VARIANCE:
                varies = counts.samples_per_bin > 1
            named = self.lattice.bin[[each is statistic for each in self.lattice.statistic]]
            count = np.bincount(named, minlength=counts.bins)
            if len(count) != counts.bins or bool(np.any(count != varies)):
                raise UsageError(
                    "the blocks are not those of the bins",
                    got=f"noise for {int(np.count_nonzero(count))} numbers ({statistic.value})",
                    expected=f"one for each of {int(varies.sum())} that can vary",
                )
