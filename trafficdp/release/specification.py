"""The specification of a release: all that is frozen with its charge, to draw once without planning again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.places import declared_bins, slot_facts_of
from trafficdp.context.names import place_names
from trafficdp.export.files.disclosure import (
    TUNING_DATA,
    TUNING_OF_DECLARED,
    Charge,
    MechanismFacts,
    Noise,
    Verdict,
    bin_numbers,
    bounds_of,
    coverage_of,
    disclosure,
    rfc3339,
)
from trafficdp.ingest.clean import RULES
from trafficdp.mechanisms.protocol import PublicFacts, Statement
from trafficdp.mechanisms.publish import MOST_SPANNED, bin_status, rank_useless, useless
from trafficdp.mechanisms.simulated_cities import LEAST_SKILL
from trafficdp.model import (
    NO_CATALOGUE_ENTRY,
    CatalogueEntry,
    ContributionBound,
    Counts,
    Grid,
    NeighbouringRelation,
    SpeedUnit,
    Statistic,
    as_json,
    from_json,
)
from trafficdp.noise.secure import OPENDP_VERSION
from trafficdp.planner.allocation import Allocation, assess_utility
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.disclosure import (
    BinNumbers,
    BudgetChange,
    Data,
    DeclaredUnit,
    Disclosure,
    Identity,
    NoiseStated,
    RecordSource,
    SkillStated,
    Software,
)
from trafficdp.privacy.estimate import NOISE_COLUMNS, BinStatus, Estimate, RefusalRule
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.release import (
    LedgerReference,
    Release,
    bound_from_facts,
    bound_to_facts,
    grid_from_facts,
    grid_to_facts,
)
from trafficdp.store.vault_fixes import DataVersion

# What a release and a stream state alike: who made it, of which sources, and how numbers are rounded.


ROUNDING = "published numbers are rounded to 3 decimals: values to nearest, intervals and scales outward"


def stated_identity(
    release_id: str, created_at: datetime, time_zone: str, publisher: str, question: str | None = None
) -> Identity:
    """Return which release it is, and that this version of trafficdp made it."""
    return Identity(
        release=release_id,
        publisher=publisher,
        software=Software(name="trafficdp", version=version("trafficdp")),
        created_at=rfc3339(created_at, time_zone),
        supersedes=None,
        question=question,
    )


def source_facts(declaration: str, name: str, speed: str) -> RecordSource:
    """Return what the manifest says of a source; ``declaration`` is the vault's JSON of it.

    ``speed``: see RecordSource.
    """
    facts: Mapping[str, Any] = json.loads(declaration)
    rules = [f"rejected when {text}" for text in RULES.values()]
    return RecordSource(
        name=name,
        format=str(facts["format"]),
        units=tuple(
            DeclaredUnit(unit=SpeedUnit(each["unit"]).label, first=each["first"], last=each["last"])
            for each in facts["units"]
        ),
        cleaning=(
            *rules,
            "the same vehicle and instant in a later file is left out",
            "speeds are never a reason to drop a row",
        ),
        speed=speed,
    )


# A frozen Allocation: all that is needed to draw the noise later, and only once, without planning again.
#
# With it, the Release that comes of it over all bins, withheld ones included.


def assemble(
    specification: Specification,
    counts: Counts,
    keep: npt.NDArray[np.bool_],
    estimates: Mapping[Statistic, Estimate],
    ledger: LedgerReference,
) -> Release:
    """Return the release of ``specification``: ``counts`` has all G bins, ``estimates`` those of ``keep``."""
    spread = {statistic: _spread(estimate, keep) for statistic, estimate in estimates.items()}
    status = bin_status(keep, [estimate.status for estimate in estimates.values()])
    # where nothing about a vehicle is public, statuses follow from what was drawn
    coverage = replace(specification.disclosure.coverage, bins=bin_numbers(status))
    vehicles = records = None
    if specification.publish_counts:
        noise = next(iter(spread.values())).noise
        if "vehicles_answer" in noise:
            vehicles, records = (np.rint(noise[name]).astype(np.int64) for name in ("vehicles", "records"))
        else:
            vehicles, records = counts.users_per_bin, counts.samples_per_bin
    return Release(
        id=specification.release_id,
        created_at=specification.created_at,
        grid=specification.grid,
        bound=specification.bound,
        display_unit=specification.display_unit,
        interval_level=specification.interval_level,
        min_vehicles=specification.min_vehicles,
        cell=counts.cell,
        slot=counts.slot,
        status=status,
        place=place_names(counts.cell, specification.grid.context, specification.grid.zones),
        vehicles=vehicles,
        records=records,
        estimates=spread,
        slots=slot_facts_of(specification.grid, counts.slots),
        ledger=ledger,
        disclosure=replace(specification.disclosure, coverage=coverage),
    )


def _spread(estimate: Estimate, keep: npt.NDArray[np.bool_]) -> Estimate:
    """Return the estimate over all bins: NaN, WITHHELD and such where ``keep`` is false."""

    def numbers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        full = np.full(len(keep), np.nan)
        full[keep] = values
        return full

    def column(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        withheld = NOISE_COLUMNS[name].withheld
        if withheld is None:
            return numbers(values)
        full = np.full(len(keep), withheld, dtype=np.int64)
        full[keep] = values
        return full

    status = np.full(len(keep), BinStatus.WITHHELD.value, dtype=object)
    status[keep] = estimate.status
    return Estimate(
        statistic=estimate.statistic,
        value=numbers(estimate.value),
        low=numbers(estimate.low),
        high=numbers(estimate.high),
        noise_scale=numbers(estimate.noise_scale),
        expected_error=numbers(estimate.expected_error),
        status=status,
        noise={name: column(name, values) for name, values in estimate.noise.items()},
        posterior={name: numbers(values) for name, values in estimate.posterior.items()},
    )


@dataclass(frozen=True)
class Specification:
    """What a charge commits to. ``cell`` and ``slot`` are the bins that get numbers, shape (G,).

    Where nothing about a vehicle is public these are all that ``grid`` declares, and not written down.

    ``calibrated`` says how, as its ``to_facts`` wrote it (``on``). ``ingest_id`` and ``data_version`` pin the
    data. ``disclosure`` is the manifest without ledger and files.
    """

    release_id: str
    created_at: datetime
    grid: Grid
    bound: ContributionBound
    ingest_id: int
    data_version: str
    cell: npt.NDArray[np.uint64]
    slot: npt.NDArray[np.int64]
    calibrated: Mapping[str, Any]
    display_unit: SpeedUnit
    interval_level: float
    min_vehicles: int
    publish_counts: bool
    disclosure: Disclosure

    def keeps(self, counts: Counts) -> npt.NDArray[np.bool_]:
        """Return which bins of ``counts`` get numbers."""
        return (counts.users_per_bin >= self.min_vehicles) & self.grid.may_publish(counts.cell, counts.slot)

    def public(self, counts: Counts) -> PublicFacts:
        """Return what is public beside ``counts``."""
        return PublicFacts(counts, self.bound, self._relation)

    @property
    def _relation(self) -> NeighbouringRelation:
        return NeighbouringRelation(self.disclosure.unit.neighbouring_relation)

    def to_json(self) -> str:
        """Return the canonical JSON text; floats keep every bit."""
        listed: dict[str, Any] = {}
        if not self._relation.hides_presence:
            listed = {"cell": self.cell.tolist(), "slot": self.slot.tolist()}
        return canonical(
            {
                **listed,
                "release_id": self.release_id,
                "created_at": self.created_at.isoformat(),
                "grid": grid_to_facts(self.grid),
                "bound": bound_to_facts(self.bound),
                "ingest_id": self.ingest_id,
                "data_version": self.data_version,
                "calibrated": self.calibrated,
                "display_unit": self.display_unit.value,
                "interval_level": self.interval_level,
                "min_vehicles": self.min_vehicles,
                "publish_counts": self.publish_counts,
                "disclosure": as_json(self.disclosure),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Specification:
        """Return the specification that ``to_json`` wrote."""
        facts: dict[str, Any] = json.loads(text)
        grid = grid_from_facts(facts["grid"])
        if "cell" in facts:
            cell = np.array(facts["cell"], dtype=np.uint64)
            slot = np.array(facts["slot"], dtype=np.int64)
        else:
            cell, slot = declared_bins(grid)
        return cls(
            release_id=facts["release_id"],
            created_at=datetime.fromisoformat(facts["created_at"]),
            grid=grid,
            bound=bound_from_facts(facts["bound"]),
            ingest_id=facts["ingest_id"],
            data_version=facts["data_version"],
            cell=cell,
            slot=slot,
            calibrated=facts["calibrated"],
            display_unit=SpeedUnit(facts["display_unit"]),
            interval_level=facts["interval_level"],
            min_vehicles=facts["min_vehicles"],
            publish_counts=facts["publish_counts"],
            disclosure=from_json(Disclosure, facts["disclosure"]),
        )


# The specification of a release: what is frozen with its charge, the disclosure included.


VALUES, PRESENCE = NeighbouringRelation.REPLACE_USER_VALUES, NeighbouringRelation.ADD_OR_REMOVE_USER
CAPPED = {VALUES: "counts are not capped", PRESENCE: "a vehicle's whole vector is"}
TUNING = {VALUES: TUNING_DATA, PRESENCE: TUNING_OF_DECLARED}
LIMITS = {
    RefusalRule.SKILL: 1 - LEAST_SKILL,
    RefusalRule.INTERVAL: 1.0,
    RefusalRule.RANK: MOST_SPANNED,
}
"""The threshold of every rule, as a share of what it names."""


@dataclass(frozen=True)
class Occasion:
    """What a release is about besides its numbers. ``question`` is the SQL it answers, if it does.

    ``budget_changes``: how the store's promise was changed before, in order.
    """

    publisher: str
    place: str
    grid: Grid
    display_unit: SpeedUnit
    publish_counts: bool
    budget: BudgetPolicy
    data_version: DataVersion
    sources: tuple[RecordSource, ...]
    created_at: datetime
    question: str | None = None
    budget_changes: tuple[BudgetChange, ...] = ()
    catalogue: CatalogueEntry = NO_CATALOGUE_ENTRY


def specify(
    occasion: Occasion,
    allocation: Allocation,
    counts: Counts,
    release_id: str,
    spent_before: int,
) -> Specification:
    """Return the specification that freezes ``allocation``; ``counts`` is that of all bins.

    ``spent_before`` is the sum of the maxima of all charges before this one, in 10^-12 of their kind.
    """
    request, kept = allocation.request, allocation.counts
    known = request.facts(counts).of_vehicles
    verdict = assess_utility(allocation)
    # of one number for the city, of the range, of the vehicles
    limit = LIMITS[verdict.rule]
    calibrated = allocation.calibrated
    statements = {statistic: calibrated.statement(statistic) for statistic in calibrated.statistics}
    return Specification(
        release_id=release_id,
        created_at=occasion.created_at,
        grid=occasion.grid,
        bound=request.bound,
        ingest_id=occasion.data_version.ingest_id,
        data_version=occasion.data_version.name,
        cell=kept.cell,
        slot=kept.slot,
        calibrated=calibrated.to_facts(),
        display_unit=occasion.display_unit,
        interval_level=request.interval_level,
        min_vehicles=request.min_vehicles,
        publish_counts=occasion.publish_counts,
        disclosure=disclosure(
            identity=stated_identity(
                release_id,
                occasion.created_at,
                occasion.grid.period.time_zone,
                occasion.publisher,
                occasion.question,
            ),
            coverage=coverage_of(
                occasion.grid,
                request.bound,
                occasion.display_unit,
                occasion.place,
                allocation.event.relation,
                request.min_vehicles,
                _foreseen_bins(allocation),
            ),
            data=Data(sources=occasion.sources, data_version=occasion.data_version.name),
            bounds=bounds_of(
                request.bound,
                f"speeds are clipped to the range, never dropped; {CAPPED[request.relation]}",
                None if known is None else int(known.bins_per_user.max()),
                None if known is None else int(known.largest_count_per_bin.max()),
            ),
            charge=Charge(
                relation=allocation.event.relation,
                assumptions=allocation.event.assumptions,
                loss=allocation.loss,
                sum_before=type(allocation.loss)(spent_before),
                budget=occasion.budget,
                composition=allocation.composition,
                budget_changes=occasion.budget_changes,
                vehicles=allocation.vehicles,
            ),
            noise=Noise(
                unit=request.bound.unit,
                display_unit=occasion.display_unit,
                mechanisms=[
                    replace(
                        _mechanism(statistic, statement, request.tolerance[statistic]),
                        # an answer is no map
                        skill=None
                        if occasion.question or statistic not in allocation.skill
                        else _skill_stated(allocation, statistic, occasion.display_unit),
                    )
                    for statistic, statement in statements.items()
                ],
                post_processing=[*(each.post_processing for each in statements.values()), ROUNDING],
                interval_level=request.interval_level,
                noise=from_json(NoiseStated, calibrated.published_facts()),
                tuning_data=f"{TUNING[request.relation]} ({allocation.reason})",
            ),
            verdict=Verdict(
                forced=verdict.refused,
                threshold=limit,
                value=verdict.value * limit / verdict.threshold,
                rule=verdict.rule,
            ),
            publish_counts=occasion.publish_counts,
            catalogue=occasion.catalogue,
        ),
    )


def same_question(specification: Specification, grid: Grid, allocation: Allocation) -> bool:
    """Return whether ``specification`` asks for the numbers of ``allocation`` on ``grid``, with its noise."""
    request, kept = allocation.request, allocation.counts
    asked = (
        specification.grid.key == grid.key
        and specification.bound == request.bound
        and (specification.min_vehicles, specification.interval_level)
        == (request.min_vehicles, request.interval_level)
    )
    return (
        asked
        and np.array_equal(specification.cell, kept.cell)
        and np.array_equal(specification.slot, kept.slot)
        and specification.calibrated == allocation.calibrated.to_facts()
    )


def _mechanism(statistic: Statistic, statement: Statement, tolerance: float) -> MechanismFacts:
    return MechanismFacts(
        statistic=statistic,
        mechanism=statement.mechanism,
        sensitivity=statement.sensitivity,
        noise_scale=statement.noise_scale,
        worst_case_bias=statement.worst_case_bias,
        tolerance=tolerance,
        share=statement.share,
        library=f"opendp {OPENDP_VERSION}",
        sampler=statement.sampler,
        distribution=statement.distribution,
        citation=statement.citation,
        interval_basis=statement.interval_basis,
        interval_kind=statement.interval_kind,
        idealised=statement.idealised,
        unenforced=statement.unenforced,
        calibration=statement.calibration,
    )


def _skill_stated(allocation: Allocation, statistic: Statistic, unit: SpeedUnit) -> SkillStated:
    """The skill of ``statistic``, errors in ``unit`` (of a variance its square)."""
    return allocation.skill[statistic].stated(statistic.factor(allocation.request.bound.unit, unit))


def _foreseen_bins(allocation: Allocation) -> BinNumbers:
    """How many bins get which status, which follows from counts and calibrated mechanism alone."""
    if allocation.spanned:
        each_useless = [rank_useless(each) for each in allocation.spanned.values()]
    else:
        errors, bound = allocation.calibrated.expected_errors(), allocation.request.bound
        each_useless = [useless(errors[each], each, bound) for each in errors]
    kept = int(np.count_nonzero(allocation.keep))
    marked = int(np.count_nonzero(np.all(each_useless, axis=0)))
    total = len(allocation.keep)
    return BinNumbers(
        total=total, released=kept - marked, constant=0, withheld=total - kept, uninformative=marked
    )
