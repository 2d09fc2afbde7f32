"""What a stream was charged for, frozen; and the release that each of its publications is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.slots import slot_facts
from trafficdp.config.stream import StreamSettings
from trafficdp.context.names import place_names
from trafficdp.export.files.disclosure import (
    Charge,
    Noise,
    Verdict,
    bin_numbers,
    bounds_of,
    coverage_of,
    disclosure,
    rfc3339,
)
from trafficdp.export.files.facts import MechanismFacts
from trafficdp.live.estimates import estimates_of
from trafficdp.mechanisms.protocol import ASSUMPTIONS
from trafficdp.mechanisms.publish import bin_status, rounding_bias
from trafficdp.model import (
    ContributionBound,
    Grid,
    NeighbouringRelation,
    SpeedUnit,
    Statistic,
    as_json,
    from_json,
)
from trafficdp.noise.secure import OPENDP_VERSION
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.disclosure import BudgetChange, Data, NoiseStated, StreamStated, TreeShape
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.privacy.refusal_rule import RefusalRule
from trafficdp.privacy.release import LedgerReference, Release
from trafficdp.privacy.release_codec import bound_from_facts, bound_to_facts, grid_from_facts, grid_to_facts
from trafficdp.release.stated import ROUNDING, source_facts, stated_identity
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import Allowance, Closed, Stream

CEILINGS = "budget_pico", "budget_changes"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MECHANISM = "running sums"
CITATION = (
    "George et al. 2022 (arXiv 2212.09980), continual release at user level; binary mechanism of Chan, Shi, "
    "Song 2011 with signed digits (Andersson, Pagh, Torkamani 2024)"
)
COMPOSITION = (
    "one epsilon for the whole period, all bins and all publications: every record costs a vehicle the share "
    "of the nodes that it lies in, and a vehicle's records stop counting when its account of nodes is used up"
)
INTERVALS = "proved tail of a sum of discrete Laplace draws, widened by the worst-case bias"
POST_PROCESSING = {
    Statistic.MEAN: "means are clamped to the range of the clipped speeds",
    Statistic.VARIANCE: "variances come from two noisy sums and are clamped to 0 .. mean (U - mean), by the "
    "mean of the same sums",
}
BOUNDING = (
    "speeds are clipped to the range, never dropped; a vehicle's records count until its account is used up"
)
RELATION = NeighbouringRelation.REPLACE_USER_VALUES
RULES = (
    "outside the period, or further ahead of the clock than 5 minutes: left out",
    "late (its step was published already): left out",
    "the same vehicle and instant again: left out, the first stays",
    "more records of one vehicle in a step than records_per_step: the first count",
    "vehicles that cannot pay the whole epsilon, or whose account is used up: left out",
)


@dataclass(frozen=True)
class StreamSpecification:
    """A charged stream. ``sources`` are (name, declaration as JSON, where speeds come from).

    ``budget_changes``: how the store's promise was changed before its charge.
    """

    release_id: str
    created_at: datetime
    publisher: str
    place: str
    grid: Grid
    bound: ContributionBound
    display_unit: SpeedUnit
    statistics: tuple[Statistic, ...]
    interval_level: float
    min_vehicles: int
    publish_counts: bool
    epsilon: PureDP
    budget: Loss
    spent_before: PureDP
    settings: StreamSettings
    horizon: Horizon
    tree: tuple[int, int]
    sources: tuple[tuple[str, str, str], ...]
    budget_changes: tuple[BudgetChange, ...] = ()

    @cached_property
    def allowance(self) -> Allowance:
        """A vehicle's account, and the noise that makes it worth ``epsilon``."""
        arity, heights = self.tree
        squares = Statistic.VARIANCE in self.statistics
        return Allowance(
            self.epsilon, self.bound.steps, arity, heights, self.settings.records_per_vehicle, squares
        )

    def empty_stream(self) -> Stream:
        """Return the stream before its first record."""
        return Stream(self.horizon, self.allowance, self.settings.records_per_step, self._enough)

    def stream_from(self, parts: Mapping[str, Mapping[str, Any]]) -> Stream:
        """Return the stream that was stored as ``parts``."""
        if not parts:
            return self.empty_stream()
        cap = self.settings.records_per_step
        return Stream.from_state(
            self.horizon, self.allowance, cap, parts["opened"], parts["kept"], self._enough
        )

    @property
    def _enough(self) -> int | None:
        """How far vehicles of a bin need to be counted."""
        return None if self.publish_counts else self.min_vehicles

    def as_of(self, step: int) -> datetime:
        """Return the end of a step."""
        return _EPOCH + timedelta(microseconds=self.horizon.end_of(step))

    def same_question(self, other: StreamSpecification) -> bool:
        """Return whether both ask for the same; name, time, spending before, budget, context may differ."""
        facts = [replace(each, grid=replace(each.grid, context=())).facts() for each in (self, other)]
        for each in facts:
            for name in (
                "release_id",
                "created_at",
                "spent_before_pico",
                "budget_pico",
                "budget_changes",
                "tree",
            ):
                each.pop(name)
        return canonical(facts[0]) == canonical(facts[1])

    def facts(self) -> dict[str, object]:
        """Return the specification as plain JSON values."""
        horizon, settings = self.horizon, self.settings
        return {
            "release_id": self.release_id,
            "created_at": self.created_at.isoformat(),
            "publisher": self.publisher,
            "place": self.place,
            "grid": grid_to_facts(self.grid),
            "bound": bound_to_facts(self.bound),
            "display_unit": self.display_unit.value,
            "statistics": [statistic.value for statistic in self.statistics],
            "interval_level": self.interval_level,
            "min_vehicles": self.min_vehicles,
            "publish_counts": self.publish_counts,
            "epsilon_pico": self.epsilon.pico,
            "budget_pico": self.budget.pico,
            "spent_before_pico": self.spent_before.pico,
            "settings": [
                settings.publish_every,
                settings.lateness,
                settings.records_per_vehicle,
                settings.records_per_step,
            ],
            "horizon": [
                horizon.origin_us,
                horizon.step_us,
                horizon.steps,
                horizon.lateness_us,
                horizon.elements,
            ],
            "tree": list(self.tree),
            "sources": [list(source) for source in self.sources],
            "budget_changes": [as_json(each) for each in self.budget_changes],
        }

    def to_json(self) -> str:
        """Return the specification as canonical JSON."""
        return canonical(self.facts())

    @classmethod
    def from_json(cls, text: str) -> StreamSpecification:
        """Return the specification that ``to_json`` wrote."""
        facts = json.loads(text)
        arity, heights = facts["tree"]
        epsilon = PureDP(facts["epsilon_pico"])
        return cls(
            release_id=facts["release_id"],
            created_at=datetime.fromisoformat(facts["created_at"]),
            publisher=facts["publisher"],
            place=facts["place"],
            grid=grid_from_facts(facts["grid"]),
            bound=bound_from_facts(facts["bound"]),
            display_unit=SpeedUnit(facts["display_unit"]),
            statistics=tuple(Statistic(each) for each in facts["statistics"]),
            interval_level=facts["interval_level"],
            min_vehicles=facts["min_vehicles"],
            publish_counts=facts["publish_counts"],
            epsilon=epsilon,
            budget=PureDP(facts["budget_pico"]),
            spent_before=PureDP(facts["spent_before_pico"]),
            settings=StreamSettings.model_construct(
                **dict(zip(StreamSettings.model_fields, (epsilon, *facts["settings"]), strict=True))
            ),
            horizon=Horizon(*facts["horizon"]),
            tree=(arity, heights),
            sources=tuple((name, declaration, speed) for name, declaration, speed in facts["sources"]),
            budget_changes=tuple(from_json(BudgetChange, each) for each in facts["budget_changes"]),
        )


def release_of(
    specification: StreamSpecification,
    closed: Closed,
    number: int,
    ledger: LedgerReference,
    data_version: str,
) -> Release:
    """Return the map after a closed step. ``data_version`` names the records that it was made from."""
    place = np.lexsort((closed.slot, closed.cell))
    arrays = {name: getattr(closed, name)[place] for name in ("cell", "slot", "records", "vehicles", "terms")}
    sorted_ = Closed(closed.step, closed.journal, sums=closed.sums[place], **arrays)
    estimates = estimates_of(
        sorted_,
        specification.statistics,
        specification.allowance,
        specification.bound,
        interval_level=specification.interval_level,
        min_vehicles=specification.min_vehicles,
    )
    keep = sorted_.vehicles >= specification.min_vehicles
    status = bin_status(keep, [estimate.status[keep] for estimate in estimates.values()])
    spanned = [
        (estimate.high - estimate.low)[keep] / statistic.largest(float(specification.bound.upper))
        for statistic, estimate in estimates.items()
    ]
    widest = max((float(np.median(share)) for share in spanned if len(share)), default=0.0)
    grid = specification.grid
    return Release(
        id=specification.release_id,
        created_at=specification.created_at,
        grid=grid,
        bound=specification.bound,
        display_unit=specification.display_unit,
        interval_level=specification.interval_level,
        min_vehicles=specification.min_vehicles,
        cell=sorted_.cell.astype(np.uint64),
        slot=sorted_.slot,
        status=status,
        place=place_names(sorted_.cell.astype(np.uint64), grid.context),
        vehicles=sorted_.vehicles if specification.publish_counts else None,
        records=sorted_.records if specification.publish_counts else None,
        estimates=estimates,
        slots=slot_facts(np.unique(sorted_.slot), grid.slot_kind, grid.period, grid.day_parts),
        ledger=ledger,
        disclosure=disclosure(
            identity=stated_identity(
                specification.release_id,
                specification.created_at,
                grid.period.time_zone,
                specification.publisher,
            ),
            coverage=coverage_of(
                grid,
                specification.bound,
                specification.display_unit,
                specification.place,
                RELATION,
                specification.min_vehicles,
                bin_numbers(status),
            ),
            data=Data(
                sources=tuple(
                    source_facts(declaration, name, speed)
                    for name, declaration, speed in specification.sources
                ),
                data_version=data_version,
            ),
            bounds=bounds_of(specification.bound, BOUNDING, None, None),
            charge=Charge(
                RELATION,
                ASSUMPTIONS[RELATION],
                specification.epsilon,
                specification.spent_before,
                BudgetPolicy(specification.budget),
                COMPOSITION,
                specification.budget_changes,
            ),
            noise=Noise(
                unit=specification.bound.unit,
                display_unit=specification.display_unit,
                mechanisms=[
                    _mechanism(statistic, specification, estimate.noise_scale)
                    for statistic, estimate in estimates.items()
                ],
                post_processing=[
                    *(POST_PROCESSING[statistic] for statistic in specification.statistics),
                    ROUNDING,
                ],
                interval_level=specification.interval_level,
                noise=NoiseStated(kind="stream", stream=stream_facts(specification, closed.step, number)),
            ),
            verdict=Verdict(widest >= 1, 1.0, widest, RefusalRule.INTERVAL),
            publish_counts=specification.publish_counts,
        ),
    )


def stream_facts(specification: StreamSpecification, step: int, number: int) -> StreamStated:
    """Return what the manifest says of the stream and of this publication of it."""
    allowance, settings = specification.allowance, specification.settings
    return StreamStated(
        publication=number,
        as_of=rfc3339(specification.as_of(step), specification.grid.period.time_zone),
        publish_every_minutes=settings.publish_every,
        lateness_minutes=settings.lateness,
        steps=specification.horizon.steps,
        records_per_vehicle=settings.records_per_vehicle,
        records_per_step=settings.records_per_step or None,
        nodes_per_vehicle=allowance.touches,
        tree=TreeShape(arity=allowance.arity, heights=allowance.heights),
        value_steps=allowance.value_steps,
        rules=RULES,
    )


def _mechanism(
    statistic: Statistic, specification: StreamSpecification, scale: npt.NDArray[np.float64]
) -> MechanismFacts:
    return MechanismFacts(
        statistic=statistic,
        mechanism=MECHANISM,
        sensitivity="every record changes the sum of each node that holds it by at most the range",
        noise_scale=scale,
        worst_case_bias=rounding_bias(statistic, specification.bound),
        tolerance=None,
        share=None,
        library=f"opendp {OPENDP_VERSION}",
        distribution="sum of discrete Laplace draws, one a node, on integers; noise_scale is that of one",
        citation=CITATION,
        interval_basis=INTERVALS,
    )


def next_digest(before: str, step: int, journal: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Return the hash that pins the counts up to ``step``: a chain over steps, rows in a fixed order."""
    names = ("cell", "slot", "vehicle", "records", "position")
    rows = np.stack([np.asarray(journal[name], dtype=np.int64) for name in names], axis=1)
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    return hashlib.sha256(f"{before}\n{step}\n".encode() + rows.astype("<i8").tobytes()).hexdigest()
