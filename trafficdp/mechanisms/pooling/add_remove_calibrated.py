"""The calibrated mechanism ``add_remove_pooling``: partial pooling of a declared grid, nothing of it public.

Its counts are those of ``Counts.for_declared_grid``: every declared bin, one vehicle that could be anywhere.
What there is it reads by ``SensitiveInputs.all_contributions`` alone, when it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms.names import ADD_REMOVE_POOLED
from trafficdp.mechanisms.pooling import add_remove_counts, add_remove_map, calibrated, posterior
from trafficdp.mechanisms.pooling.add_remove_design import RELATION, AddRemoveDesign
from trafficdp.mechanisms.protocol import Columns, JointRequest, PublicFacts, Statement, require_statistic
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.simulated_cities import ReferenceCityShape, Skill, reference_skill
from trafficdp.model import DEFAULT_FLEET, NeighbouringRelation, Statistic
from trafficdp.privacy.disclosure import Calibration
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.loss import Loss
from trafficdp.sensitive import SensitiveInputs

COUNTS = (
    "numbers of vehicles and of records are noisy; their intervals are of the noise alone: a vehicle that is "
    "in very many places counts as less than one in each"
)
MOST_RESIZED = 1.5
"""By so much numbers that are expected in the reference city are made more, or fewer, for the study area."""


@dataclass(frozen=True)
class CalibratedAddRemove(calibrated.JointMechanism):
    """Partial pooling (``add_remove_design``) of all bins, for ``pico`` 10^-12 of ``loss_kind``.

    ``per_slot``: every slot is measured on its own; without it the grid has one slot. ``counts_percent``
    is what numbers of vehicles and of records have of the total. ``fleet`` is how many vehicles are
    expected, ``zone_km2`` how large a zone is on average (None: places are hexagons): what is told before
    anything is asked rests on both, nothing that is asked or published does.
    """

    per_slot: bool = False
    counts_percent: int = 0
    fleet: int = field(default=DEFAULT_FLEET, compare=False)
    zone_km2: float | None = field(default=None, compare=False)

    kind: ClassVar[str] = ADD_REMOVE_POOLED
    relation: ClassVar[NeighbouringRelation] = RELATION
    citation: ClassVar[str | None] = calibrated.CITATION
    sensitivity: ClassVar[str] = (
        "all that a vehicle adds to an asking is clipped to one length, as whole numbers, before it is added "
        "up: it moves the sums by that length when it comes or goes"
    )
    composition: ClassVar[str] = (
        "every asking brings all that a vehicle adds into a ball and has noise for its length; losses of the "
        "askings add up to the loss stated, which every possible vehicle is charged, whoever is in the data"
    )
    distribution: ClassVar[str] = (
        "a posterior mean of noisy sums over vehicles (the fleet, weights, residuals); where many drive, as "
        "the noisy weights say, a slower speed is expected before residuals are looked at"
    )
    intervals: ClassVar[str] = calibrated.BY_POSTERIOR
    estimable: ClassVar[tuple[Statistic, ...]] = (Statistic.MEAN, Statistic.VARIANCE)
    trials: ClassVar[Mapping[Statistic, Calibration]] = {
        Statistic.MEAN: calibrated.calibration(0.976, 0.932, 0.921),
        Statistic.VARIANCE: calibrated.calibration(0.948, 0.85, 0.945),
    }
    from_known: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, facts: PublicFacts, loss: Loss, request: JointRequest) -> Self:
        """Return the mechanism for the map described by ``request``, with the largest chargeable part of
        ``loss``.
        """
        found = super().calibrate(facts, loss, request)
        return replace(
            found,
            per_slot=request.per_slot,
            counts_percent=request.counts_percent,
            fleet=request.fleet,
            zone_km2=request.zone_km2,
        )

    @cached_property
    def design(self) -> AddRemoveDesign:
        """The measurement steps and their noise, from the declared grid and the loss.

        No vehicle's counts are public here. Raises UsageError for a statistic that it lacks, without a mean,
        for other counts than those of ``Counts.for_declared_grid``, and for several slots that are not
        measured ``per_slot``.
        """
        counts, bound = self.public.counts, self.public.bound
        for each in self.statistics:
            require_statistic(self.kind, each, self.estimable)
        if counts.users != 1 or counts.pairs != counts.bins or Statistic.MEAN not in self.statistics:
            raise UsageError("a map of a declared grid has a mean, and no counts of vehicles")
        if not self.per_slot and len(counts.slots) > 1:
            raise UsageError(
                "slots that are not measured apart are one slot", got=f"{len(counts.slots)} slots"
            )
        variance = Statistic.VARIANCE in self.statistics
        slots = counts.slots if self.per_slot else np.zeros(0, dtype=np.int64)
        return AddRemoveDesign(
            counts.cells, bound, self.loss_kind, self.pico, variance, slots, self.counts_percent
        )

    def steps(self) -> tuple[Priced, ...]:
        """Return the measurement steps; their losses add up to what every possible vehicle is charged."""
        return self.design.steps()

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Measure the private ``values`` with noise and return the map, one estimate a place (or place
        and slot).
        """
        return self._published(
            add_remove_map.measure_all(self.design, values.all_contributions(), measure, self.public.known)
        )

    def steps_follow_answers(self, columns: Columns) -> bool:
        """Return whether every adaptive step in the published ``columns`` follows from the answers before
        it.
        """
        return add_remove_map.steps_follow_answers(
            self.design, answers_from_columns(columns), self.public.known
        )

    def recompute_estimates(self, columns: Columns) -> dict[Statistic, Estimate]:
        """Return the estimates of every statistic, recomputed from the noisy answers in published
        ``columns``.
        """
        return self._published(answers_from_columns(columns))

    def proved_intervals(
        self, columns: Columns, level: float
    ) -> dict[Statistic, tuple[FloatArray, FloatArray]]:
        """Return lower and upper ends, (H,) each, of intervals proved to hold with ``level`` the map
        without noise.
        """
        summary = add_remove_map.summarise_all_rounds(self.design, answers_from_columns(columns))
        return {Statistic.MEAN: add_remove_map.target_interval(self.design, summary, level)}

    def _published(self, answers: add_remove_map.Answers) -> dict[Statistic, Estimate]:
        """The estimates that ``answers`` make: a function of them and of public facts alone."""
        design = self.design
        found = add_remove_map.add_remove_map(design, answers)
        columns = {**columns_from_answers(answers), **calibrated.known_columns(self.public.known)}
        if answers.counts is not None:
            level = add_remove_map.CALIBRATED_LEVEL
            columns |= add_remove_counts.estimate_counts(design, answers.counts, level)
        mean = self.estimate_from_posterior(Statistic.MEAN, found.mean, columns)
        estimates = {Statistic.MEAN: mean}
        if found.variance is not None:
            spread = {"spread": np.full(design.size, answers.spread[0])}
            estimates[Statistic.VARIANCE] = self.variance_estimate(found.variance, spread, mean.status.copy())
        return estimates

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error, (G,), simulated for the expected fleet size."""
        counts, bound = self.public.counts, self.public.bound
        found = {Statistic.MEAN: float(self.skill().error.mean()) + rounding_bias(Statistic.MEAN, bound)}
        if self.design.variance:
            found[Statistic.VARIANCE] = float(calibrated.variance_error(self._usual_variance, bound)[0])
        return {each: np.full(counts.bins, found[each]) for each in self.statistics}

    def skill(self, fleet: int | None = None) -> Skill:
        """Return the errors of means, and of one number for the whole city, simulated in a reference city.

        ``fleet`` is the number of vehicles in it; None: the number expected. No private value is read.
        """
        counts, bound, design = self.public.counts, self.public.bound, self.design
        slots = len(counts.slots) if self.per_slot else 1
        # the shares of variance and counts are fixed: what is left is that of a smaller loss
        means = sum(design.loss_shares[: design.variance_index])
        place = ReferenceCityShape.of(counts.cells, slots, self.zone_km2)
        found = reference_skill(place, bound, self.loss_kind, means, self.pico, fleet or self.fleet)
        # the reference city is as large as this one to a fifth; in one beyond its range there are no more
        size = np.clip(design.size / place.places, 1 / MOST_RESIZED, MOST_RESIZED)
        return replace(found, numbers=np.minimum(found.numbers * size, design.size))

    def with_expected_fleet(self, fleet: int, zone_km2: float | None) -> Self:
        """Return this mechanism with ``fleet`` vehicles expected and zones of mean area ``zone_km2`` (None:
        hexagons).

        Only expected errors change: no measurement depends on either.
        """
        return replace(self, fleet=fleet, zone_km2=zone_km2)

    def count_errors(self) -> Mapping[str, float]:
        """Return the expected absolute noise in each published count of a place, by name.

        Empty without counts.
        """
        return add_remove_counts.expected_count_errors(self.design) if self.counts_percent else {}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected half width of 95 % intervals, shape (G,), before release.

        Published intervals follow the noisy answers instead; ``interval_level`` is not used.
        """
        upper, error = float(self.public.bound.upper), self.expected_errors()[Statistic.MEAN]
        found = {Statistic.MEAN: np.minimum(2.2 * np.sqrt(np.pi / 2) * error, upper / 2)}
        if self.design.variance:
            low, high = self._usual_variance.ends[add_remove_map.CALIBRATED_LEVEL]
            found[Statistic.VARIANCE] = np.full(len(error), (high[0] - low[0]) / 2)
        return {each: found[each] for each in self.statistics}

    @cached_property
    def _usual_variance(self) -> posterior.VariancePosterior:
        """What is expected of one place, at the usual level."""
        centre = add_remove_map.FIRST_GUESS * self.design.upper
        return self.design.variances(
            1.0, max(self.fleet, add_remove_map.LEAST_FLEET), centre, np.array([centre])
        )

    def statement(self, statistic: Statistic) -> Statement:
        """Return how ``statistic`` is made noisy, in words and numbers, for the release's manifest."""
        stated = super().statement(statistic)
        if not self.counts_percent:
            return stated
        return replace(stated, post_processing=f"{stated.post_processing}; {COUNTS}")

    def to_facts(self) -> dict[str, Any]:
        """Return the mechanism as JSON values, from which ``from_facts`` restores it.

        The expected fleet is left out.
        """
        return {**super().to_facts(), "per_slot": self.per_slot, "counts_percent": self.counts_percent}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], public: PublicFacts) -> Self:
        """Return the calibrated mechanism that ``to_facts`` wrote, on the ``public`` facts."""
        found = super().from_facts(facts, public)
        return replace(found, per_slot=bool(facts["per_slot"]), counts_percent=int(facts["counts_percent"]))


def columns_from_answers(answers: add_remove_map.Answers) -> dict[str, npt.NDArray[Any]]:
    """Return the noisy ``answers`` as published columns over the places, from which estimates can be
    recomputed.
    """
    many = len(answers.weight)
    each: dict[str, Any] = {"fleet_fast": answers.fleet[0], "fleet_slow": answers.fleet[1]}
    each |= {f"city_{name}": value for name, value in asdict(answers.city).items()}
    found = {name: np.full(many, value) for name, value in each.items()}
    found["weight"] = answers.weight
    if len(answers.length):
        found["length"] = np.full(many, answers.length[0])
    if answers.counts is not None:
        for number, name in enumerate(add_remove_counts.COUNTED):
            found[f"{name}_length"] = np.full(many, answers.counts.lengths[number])
            found[f"{name}_clip_bound"] = np.full(many, answers.counts.clip_bounds[number])
            found[f"{name}_answer"] = answers.counts.counted[number]
    for number, (residual, asked_about) in enumerate(zip(answers.residual, answers.maps, strict=True), 1):
        found[f"residual_{number}"], found[f"map_{number}"] = residual, asked_about
    return found


def answers_from_columns(columns: Columns) -> add_remove_map.Answers:
    """Return the noisy answers held by the published ``columns``: the inverse of ``columns_from_answers``."""
    mean = columns[Statistic.MEAN]
    rounds = sum(name.startswith("residual_") for name in mean)
    spread = columns.get(Statistic.VARIANCE, {}).get("spread", np.zeros(0, dtype=np.int64))[:1]
    city = {each.name: float(mean[f"city_{each.name}"][0]) for each in fields(add_remove_map.FleetEstimate)}
    counts = None
    if "vehicles_answer" in mean:
        lengths, clip_bounds, counted = (
            [mean[f"{name}_{part}"] for name in add_remove_counts.COUNTED]
            for part in ("length", "clip_bound", "answer")
        )
        counts = add_remove_counts.CountAnswers(
            np.array([each[0] for each in lengths], dtype=np.int64),
            np.array([each[0] for each in clip_bounds], dtype=np.float64),
            np.stack(counted).astype(np.int64),
        )
    return add_remove_map.Answers(
        fleet=np.array([mean["fleet_fast"][0], mean["fleet_slow"][0]], dtype=np.int64),
        city=add_remove_map.FleetEstimate(**city),
        weight=np.asarray(mean["weight"], dtype=np.int64),
        residual=np.stack([mean[f"residual_{each}"] for each in range(1, rounds + 1)]).astype(np.int64),
        maps=np.stack([mean[f"map_{each}"] for each in range(1, rounds + 1)]).astype(np.float64),
        spread=np.asarray(spread, dtype=np.int64),
        length=np.asarray(mean["length"][:1] if "length" in mean else np.zeros(0), dtype=np.int64),
        counts=counts,
    )
