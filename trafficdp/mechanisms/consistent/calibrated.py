"""Calibrated ``consistent``: block noise for bins and some of their H3 parents, the means made to agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.calibrated import MECHANISM, CalibratedBlocks
from trafficdp.mechanisms.blocks.estimates import Spread, interval_half_width, spread_of
from trafficdp.mechanisms.blocks.lattice import BlockLattice, block_loss_per_user
from trafficdp.mechanisms.calibrated import Columns, Statement
from trafficdp.mechanisms.consistent.estimates import consistent_estimates, family_spread
from trafficdp.mechanisms.consistent.parents import Parents
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.block import SAMPLER
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
KIND = NAME = "consistent"
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
INTERVALS = (
    "proved tail of a block's noise on its lattice, or of the combination of a block's noises by least "
    "squares, whichever is narrower by public numbers, widened by the worst-case bias"
)
POST_PROCESSING = (
    "means are made consistent, by exact least squares, with noisy means over larger hexagons of the same "
    "slot, which are not published; then clamped to the range"
)


@dataclass(frozen=True)
class CalibratedConsistent:
    """``lattice`` holds the items of G bins and, as means of the bins G.., of ``parents``. See Calibrated.

    A parent and all its children lie in one block.
    """

    statistics: tuple[Statistic, ...]
    lattice: BlockLattice
    parents: Parents

    kind = KIND

    def event(self, counts: Counts, bound: ContributionBound) -> PrivacyEvent:
        """See Calibrated: the parents are items of their blocks like any other (``estimates``)."""
        self._require_families(counts)
        event = self._of_bins().event(counts, bound)
        loss = block_loss_per_user(self.parents.beside(counts), bound, self.lattice)
        return PrivacyEvent(**{**vars(event), "loss_per_user": loss})

    def estimates(
        self, values: Values, noise: NoiseSource, *, interval_level: float, uninformative_above: float
    ) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        return consistent_estimates(
            values.contributions,
            self.lattice,
            self.parents,
            self.statistics,
            noise.block,
            interval_level=interval_level,
            uninformative_above=uninformative_above,
        )

    def expected_errors(self, counts: Counts, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Calibrated: they follow from the half widths."""
        return {each: self._spread(each, counts, bound).error for each in self.statistics}

    def half_widths(
        self, counts: Counts, bound: ContributionBound, interval_level: float
    ) -> dict[Statistic, FloatArray]:
        """See Calibrated: of two intervals of a mean the narrower, before it is made to hold its number."""
        found: dict[Statistic, FloatArray] = {}
        for statistic in self.statistics:
            if statistic is Statistic.MEAN:
                family = family_spread(counts, bound, self.lattice, self.parents)
                found[statistic] = family.half_widths(interval_level)[0]
            else:
                spread = self._spread(statistic, counts, bound)
                found[statistic] = interval_half_width(statistic, bound, self.lattice, spread, interval_level)
        return found

    def statement(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Statement:
        """See Calibrated."""
        if statistic is not Statistic.MEAN or not self.parents.number:
            return CalibratedBlocks(self.statistics, self.lattice).statement(statistic, counts, bound)
        family = family_spread(counts, bound, self.lattice, self.parents)
        flooring = float(family.raw.flooring.max(initial=0.0)) + rounding_bias(statistic, bound)
        return Statement(
            mechanism=MECHANISM,
            citation=CITATION,
            sensitivity=SENSITIVITY,
            noise_scale=family.final.scale,
            worst_case_bias=max(flooring, float(family.bias.max(initial=0.0))),
            share=None,
            distribution=DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=INTERVALS,
            post_processing=POST_PROCESSING,
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated: the lattice of bins and parents, and whose parents they are."""
        facts = CalibratedBlocks(self.statistics, self.lattice).to_facts()
        return {**facts, "kind": KIND, "of": self.parents.of.tolist()}

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: columns say how the bins were drawn, ``parents`` how their parents were.

        ``of`` is the parent of every numbered bin, -1 for none; a parent's block is that of its children.
        """
        above = self._above()
        order = above[np.argsort(self.lattice.bin[above], kind="stable")]
        return {
            "kind": KIND,
            "parents": {
                "of": self.parents.of.tolist(),
                "half_width": self.lattice.half_width[order].tolist(),
                "shift": self.lattice.shift[order].tolist(),
            },
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> CalibratedConsistent:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        blocks = CalibratedBlocks.from_facts(facts)
        return cls(blocks.statistics, blocks.lattice, Parents(np.array(facts["of"], dtype=np.int64)))

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns) -> CalibratedConsistent:
        """Return the calibrated mechanism of the numbered bins.

        Raises UsageError when a column is missing, scales differ, or parents do not fit the bins.
        """
        blocks = CalibratedBlocks.from_published(facts, columns)
        below = blocks.lattice
        of, width, shift = (
            np.array(facts["parents"][name], dtype=np.int64) for name in ("of", "half_width", "shift")
        )
        parents = Parents(of)
        means = np.flatnonzero([each is Statistic.MEAN for each in below.statistic])
        item = np.full(len(of), -1, dtype=np.int64)
        inside = below.bin[means] < len(of)
        item[below.bin[means[inside]]] = means[inside]
        if not len(width) == len(shift) == parents.number or bool(np.any(item[parents.children] < 0)):
            raise UsageError("parents are published that do not fit the bins", got=f"{len(width)} parents")
        # of all children, the last
        block = np.zeros(parents.number, dtype=np.int64)
        block[of[parents.children]] = below.block[item[parents.children]]
        lattice = BlockLattice(
            statistic=(*below.statistic, *[Statistic.MEAN] * parents.number),
            bin=np.concatenate([below.bin, len(of) + np.arange(parents.number)]),
            block=np.concatenate([below.block, block]),
            half_width=np.concatenate([below.half_width, width]),
            shift=np.concatenate([below.shift, shift]),
            scale=below.scale,
        )
        return cls(blocks.statistics, lattice, parents)

    def _above(self) -> IntArray:
        return np.flatnonzero(self.lattice.bin >= len(self.parents.of))

    def _of_bins(self) -> CalibratedBlocks:
        """The items of the bins alone: whether each has its noise."""
        lattice = self.lattice
        kept = np.flatnonzero(lattice.bin < len(self.parents.of))
        return CalibratedBlocks(
            self.statistics,
            BlockLattice(
                statistic=tuple(lattice.statistic[item] for item in kept.tolist()),
                bin=lattice.bin[kept],
                block=lattice.block[kept],
                half_width=lattice.half_width[kept],
                shift=lattice.shift[kept],
                scale=lattice.scale,
            ),
        )

    def _spread(self, statistic: Statistic, counts: Counts, bound: ContributionBound) -> Spread:
        if statistic is Statistic.MEAN:
            return family_spread(counts, bound, self.lattice, self.parents).final
        return spread_of(statistic, counts, bound, self.lattice)

    def _require_families(self, counts: Counts) -> None:
        """Raise UsageError unless every parent has one item, a mean, in the block of all its children."""
        lattice, parents, above = self.lattice, self.parents, self._above()
        bins = counts.bins
        fits = len(parents.of) == bins and sorted(lattice.bin[above].tolist()) == list(
            range(bins, bins + parents.number)
        )
        fits = fits and all(lattice.statistic[item] is Statistic.MEAN for item in above.tolist())
        if fits and parents.number:
            means = np.flatnonzero([each is Statistic.MEAN for each in lattice.statistic])
            block = np.full(bins + parents.number, -1, dtype=np.int64)
            block[lattice.bin[means]] = lattice.block[means]
            children = parents.children
            fits = bool(np.all(block[children] == block[bins + parents.of[children]]))
        if not fits:
            raise UsageError(
                "the parents are not those of the bins",
                got=f"{len(above)} parents over {len(parents.of)} bins",
                expected=f"each in one block with its children, over {bins} bins",
            )
