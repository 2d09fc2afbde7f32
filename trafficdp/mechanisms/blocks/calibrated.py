"""Calibrated ``blocks``: l-infinity noise on whole sums, the numbers of a block for one price.

Means and vehicle means are measured by their sums (``sums``), which draw their noise in blocks. Mean and
variance together are measured by pairs of sums (``measurement.sets``): those of x in blocks, and those of
x (U - x) in the same blocks, apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Support
from trafficdp.measurement.measure import Measure, Step
from trafficdp.measurement.sets import Box, Moments
from trafficdp.mechanisms import pairs, sums
from trafficdp.mechanisms.blocks.noise import BlockNoise
from trafficdp.mechanisms.blocks.spread import NumberLaw, Spread, spread_of, variance_law
from trafficdp.mechanisms.laplace.calibrated import SENSITIVITY, largest_sensitivity
from trafficdp.mechanisms.protocol import POST_PROCESSING, Columns, PublicFacts, Statement, event, loss_of
from trafficdp.mechanisms.publish import Drawn, estimate, largest_variance
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.block import SAMPLER
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions, Values

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
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


def in_blocks(statistics: Iterable[Statistic]) -> bool:
    """Return whether block noise releases these together: means and vehicle means, or mean and variance."""
    wanted = {*statistics}
    return Statistic.VARIANCE not in wanted or wanted == {*PAIRS}


def set_of(statistics: tuple[Statistic, ...], counts: Counts, bound: ContributionBound) -> Box | Moments:
    """Return the set of the sums of ``statistics``, G each, one statistic after another."""
    if statistics == PAIRS:
        return sums.speeds_and_products(counts, bound)
    of = {Statistic.MEAN: sums.speeds, Statistic.VEHICLE_MEAN: sums.vehicle_means}
    boxes = [of[statistic](counts, bound) for statistic in statistics]
    if len(boxes) == 1:
        return boxes[0]
    places = [number * counts.bins + counts.bin_index for number in range(len(boxes))]
    user = np.tile(counts.user_index, len(boxes))
    support = Support(user, np.concatenate(places), counts.users, len(boxes) * counts.bins)
    return Box(support, np.concatenate([box.high for box in boxes]))


@dataclass(frozen=True)
class CalibratedBlocks:
    """``noise`` is that of the sums of ``statistics``, G each, in this order. See Calibrated."""

    public: PublicFacts
    statistics: tuple[Statistic, ...]
    noise: BlockNoise

    kind = NAME
    composition = COMPOSITION

    def steps(self) -> tuple[Step, ...]:
        """Return what is measured: all sums at once."""
        return (self.noise.step(set_of(self.statistics, *self.public.both)),)

    def event(self) -> PrivacyEvent:
        """See Calibrated."""
        sensitivity = {each: largest_sensitivity(each, *self.public.both) for each in self.statistics}
        return event(self.kind, self.public, loss_of(self.steps(), self.public.counts.users), sensitivity)

    def run(self, values: Values, measure: Measure, *, interval_level: float) -> dict[Statistic, Estimate]:
        """See Calibrated."""
        bound = self.public.bound
        (step,) = self.steps()
        noisy = measure.measure(step, self._values(values.contributions))
        found: dict[Statistic, Estimate] = {}
        for statistic in self.statistics:
            law = self._known(statistic, interval_level)
            value, centre = self._numbers(statistic, noisy, interval_level)
            columns, mean = self._spread(statistic).columns(), None
            if statistic is Statistic.VARIANCE:
                mean = found[Statistic.MEAN]
                value = np.where(law.error > 0, largest_variance(mean.value, float(bound.upper)) - value, 0.0)
                columns = {f"product_{name}": columns[name] for name in COLUMNS}
            drawn = Drawn(value, law.half_width, law.scale, law.error, columns, centre)
            found[statistic] = estimate(statistic, drawn, bound, mean)
        return found

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """See Calibrated: they follow from the half widths."""
        return {each: self._known(each, None).error for each in self.statistics}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """See Calibrated: the tail of the block and the worst-case bias."""
        return {each: self._known(each, interval_level).half_width for each in self.statistics}

    def statement(self, statistic: Statistic) -> Statement:
        """See Calibrated."""
        paired = statistic is Statistic.VARIANCE
        law = self._known(statistic, None)
        return Statement(
            mechanism=self.kind,
            citation=CITATION_OF_PAIRS if paired else CITATION,
            sensitivity=pairs.SENSITIVITY if paired else SENSITIVITY[statistic],
            noise_scale=law.scale,
            worst_case_bias=float(law.bias.max()),
            share=None,
            distribution=DISTRIBUTION_OF_PAIRS if paired else DISTRIBUTION,
            sampler=SAMPLER,
            interval_basis=INTERVALS_OF_PAIRS if paired else INTERVALS,
            post_processing=pairs.POST_PROCESSING if paired else POST_PROCESSING[statistic],
        )

    def to_facts(self) -> dict[str, Any]:
        """See Calibrated: whole numbers, and one scale."""
        return {
            "kind": self.kind,
            "statistics": [statistic.value for statistic in self.statistics],
            "scale": self.noise.scale,
            **{name: getattr(self.noise, name).tolist() for name in COLUMNS},
        }

    def published_facts(self) -> dict[str, Any]:
        """See Calibrated: the columns of block noise, for variances those of the products, say the rest."""
        return {"kind": self.kind}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: PublicFacts) -> Self:
        """Return the calibrated mechanism that ``to_facts`` wrote."""
        numbers = {name: np.array(facts[name], dtype=np.int64) for name in COLUMNS}
        statistics = tuple(Statistic(name) for name in facts["statistics"])
        return cls(public, statistics, BlockNoise(scale=float(facts["scale"]), **numbers))

    @classmethod
    def from_published(cls, facts: Mapping[str, Any], columns: Columns, public: PublicFacts) -> Self:
        """Return the calibrated mechanism of the numbered bins.

        Raises UsageError when a column is missing, scales differ, or a mean has no noise.
        """
        statistics = tuple(statistic for statistic in Statistic if statistic in columns)
        return cls(public, statistics, published_noise(statistics, columns))

    def _values(self, contributions: Contributions) -> IntArray:
        if self.statistics == PAIRS:
            return sums.values_of(Statistic.VARIANCE, contributions)
        return np.concatenate([sums.values_of(each, contributions) for each in self.statistics])

    def _at(self, statistic: Statistic) -> IntArray:
        """The places of a statistic among the sums."""
        bins = self.public.counts.bins
        return self.statistics.index(statistic) * bins + np.arange(bins)

    def _spread(self, statistic: Statistic) -> Spread:
        return spread_of(self.noise, self._at(statistic), sums.unit(statistic, *self.public.both))

    def _known(self, statistic: Statistic, level: float | None) -> NumberLaw:
        """The law of a statistic's numbers: it follows from counts, and is worked out once for all draws."""
        if (statistic, level) not in self._laws:
            self._laws[statistic, level] = self._law(statistic, level)
        return self._laws[statistic, level]

    @cached_property
    def _laws(self) -> dict[tuple[Statistic, float | None], NumberLaw]:
        return {}

    def _law(self, statistic: Statistic, level: float | None) -> NumberLaw:
        spread, bound = self._spread(statistic), self.public.bound
        if statistic is Statistic.VARIANCE:
            return variance_law(self._spread(Statistic.MEAN), spread, bound, level)
        return spread.law(statistic, bound, level)

    def _numbers(
        self, statistic: Statistic, noisy: IntArray, level: float
    ) -> tuple[FloatArray, FloatArray | None]:
        """The numbers as they were drawn, and what their intervals lie around (None: these)."""
        return self._spread(statistic).values(noisy[self._at(statistic)]), None


def published_noise(statistics: tuple[Statistic, ...], columns: Columns) -> BlockNoise:
    """Return the noise that published ``columns`` tell of; see ``CalibratedBlocks.from_published``."""
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
    return BlockNoise(scale=float(scale[0]), **joined)
