"""The specification of a release: what is frozen with its charge, the disclosure included."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from trafficdp.export.files.disclosure import (
    TUNING_DATA,
    TUNING_OF_DECLARED,
    Charge,
    Noise,
    Verdict,
    bounds_of,
    coverage_of,
    disclosure,
)
from trafficdp.export.files.facts import MechanismFacts
from trafficdp.mechanisms.protocol import Statement
from trafficdp.mechanisms.publish import MOST_SPANNED, rank_useless, useless
from trafficdp.mechanisms.simulated.cities import LEAST_SKILL
from trafficdp.model import Counts, Grid, NeighbouringRelation, SpeedUnit, Statistic, from_json
from trafficdp.noise.secure import OPENDP_VERSION
from trafficdp.planner.allocation import Allocation, assess_utility
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.disclosure import (
    BinNumbers,
    BudgetChange,
    Data,
    NoiseStated,
    RecordSource,
    SkillStated,
)
from trafficdp.privacy.refusal_rule import RefusalRule
from trafficdp.release.specification import Specification
from trafficdp.release.stated import ROUNDING, stated_identity
from trafficdp.store.vault_fixes import DataVersion

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
