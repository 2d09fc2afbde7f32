"""What a release discloses, from its grid, its charge and its noise. The fields: ``privacy.disclosure``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.export.files.facts import MechanismFacts
from trafficdp.export.files.guarantee import guarantee_group
from trafficdp.export.files.registry import registry_record
from trafficdp.export.files.words import BIN_LIST, COUNTS_REVEALED, NOT_PROTECTED, PROTECTED
from trafficdp.model import (
    Assumption,
    ContributionBound,
    Grid,
    Mosaic,
    NeighbouringRelation,
    Selection,
    SlotKind,
    SpeedUnit,
    StudyArea,
    from_json,
)
from trafficdp.privacy.budget import BudgetPolicy, weaknesses
from trafficdp.privacy.disclosure import (
    INTERVAL_KINDS,
    BinNumbers,
    BinsOfLevel,
    Bounds,
    BudgetChange,
    CityZones,
    Coverage,
    Data,
    DeclaredPeriod,
    Disclosure,
    Honesty,
    Identity,
    LossAccount,
    MultiPolygon,
    NamedHours,
    NoiseStated,
    PeriodicBudget,
    Polygon,
    PrivacyUnit,
    PublicLayer,
    Refusal,
    Selected,
    SelectedPlace,
    SeveralResolutions,
    StatedAssumption,
    Uncertainty,
)
from trafficdp.privacy.estimate import BinStatus, RefusalRule
from trafficdp.privacy.loss import Loss, decimal_text, exact_text

TUNING_DATA = "none: chosen from public counts"
TUNING_OF_DECLARED = "none: nothing of the data was looked at"
MOSAIC = (
    "Hexagons have different resolutions, chosen from numbers of records alone so that every published "
    "interval of the mean is within the half width asked for. They are a partition by H3 index: a record "
    "counts in the one bin that holds its cell of the finest resolution and its slot. Bins that the budget "
    "did not reach are withheld."
)


@dataclass(frozen=True)
class Charge:
    """What a release costs, and under which promise.

    ``loss`` is the largest over vehicles; ``sum_before`` the sum of such losses over all releases charged
    before. ``vehicles``: how many there are, as far as this is public.
    """

    relation: NeighbouringRelation
    assumptions: Sequence[Assumption]
    loss: Loss
    sum_before: Loss
    budget: BudgetPolicy
    composition: str
    budget_changes: tuple[BudgetChange, ...] = ()
    vehicles: int | None = None


@dataclass(frozen=True)
class Noise:
    """How the numbers were made: units of bound and display, statistics, calibrated mechanism, intervals."""

    unit: SpeedUnit
    display_unit: SpeedUnit
    mechanisms: Sequence[MechanismFacts]
    post_processing: Sequence[str]
    interval_level: float
    noise: NoiseStated
    tuning_data: str = TUNING_DATA


@dataclass(frozen=True)
class Verdict:
    """Whether the release is one that would be refused. ``threshold`` and ``value``: see Refusal."""

    forced: bool
    threshold: float
    value: float
    rule: RefusalRule


def disclosure(
    identity: Identity,
    coverage: Coverage,
    data: Data,
    bounds: Bounds,
    charge: Charge,
    noise: Noise,
    verdict: Verdict,
    publish_counts: bool,
) -> Disclosure:
    """Return the field groups of the manifest that are fixed at charge time."""
    relation = charge.relation
    after = charge.sum_before.pico + charge.loss.pico
    units = (noise.unit, noise.display_unit)
    groups = Disclosure(
        identity=identity,
        coverage=coverage,
        data=data,
        unit=PrivacyUnit(
            privacy_unit="vehicle",
            identified_by="the feed's vehicle identifier, after normalising case, spaces and hyphens",
            period="all records of a vehicle, in all bins of this release",
            neighbouring_relation=relation.value,
            protected=PROTECTED[relation],
            not_protected=tuple(NOT_PROTECTED[relation]),
        ),
        bounds=bounds if publish_counts else replace(bounds, records_per_vehicle_in_a_bin=None),
        guarantee=guarantee_group(relation, charge.loss, after, charge.budget),
        mechanisms=tuple(mechanism.stated(*units) for mechanism in noise.mechanisms),
        accounting=LossAccount(
            composition=charge.composition,
            sum_of_maxima_before=decimal_text(charge.sum_before.pico),
            sum_of_maxima_after=decimal_text(after),
            budget_per_vehicle=decimal_text(charge.budget.total.pico),
            left_for_every_vehicle=decimal_text(max(0, charge.budget.total.pico - after)),
            periodic_budget=_periodic(charge.budget),
            budget_changes=charge.budget_changes,
        ),
        post_processing=tuple(noise.post_processing),
        uncertainty=Uncertainty(
            interval_level=noise.interval_level,
            interval_kind=INTERVAL_KINDS[
                max((each.interval_kind for each in noise.mechanisms), key=[*INTERVAL_KINDS].index)
            ],
            worst_case_bias=tuple(mechanism.bias_stated(*units) for mechanism in noise.mechanisms),
            simultaneous=False,
        ),
        honesty=Honesty(
            assumptions=tuple(
                StatedAssumption(code=each.code, text=each.text) for each in charge.assumptions
            ),
            tuning_data=noise.tuning_data,
            forced=verdict.forced,
            refusal=Refusal(
                rule=verdict.rule.stated,
                threshold=verdict.threshold,
                value=verdict.value,
            ),
            idealised_mechanisms=any(mechanism.idealised for mechanism in noise.mechanisms),
            publish_counts=publish_counts,
            counts_revealed=COUNTS_REVEALED[relation],
            weaknesses=weaknesses(charge.budget, charge.vehicles),
        ),
        noise=noise.noise,
        registry={},
    )
    return replace(groups, registry=registry_record(groups))


def bounds_of(
    bound: ContributionBound, method: str, bins_per_vehicle: int | None, records_in_a_bin: int | None
) -> Bounds:
    """Return how values and contributions are bounded; None to say nothing of the most bins or records."""
    return Bounds(
        clip_low="0",
        clip_high=exact_text(bound.upper),
        clip_unit=bound.unit.label,
        step=exact_text(bound.step),
        bins_per_vehicle=bins_per_vehicle,
        records_per_vehicle_in_a_bin=records_in_a_bin,
        method=method,
    )


def coverage_of(
    grid: Grid,
    bound: ContributionBound,
    display_unit: SpeedUnit,
    place: str,
    relation: NeighbouringRelation,
    min_vehicles: int,
    bins: BinNumbers,
) -> Coverage:
    """Return where and when, and how many ``bins`` get which status."""
    kinds = (grid.slot_kind, *(() if grid.mosaic is None else grid.mosaic.longer))
    parts = grid.day_parts if SlotKind.DAY_PART in kinds else ()
    return Coverage(
        place=place,
        study_area=_outline(grid.area),
        study_area_sha256=grid.area.hash,
        resolution=grid.resolution,
        mosaic=None if grid.mosaic is None else _mosaic(grid, grid.mosaic, bound, display_unit),
        period=DeclaredPeriod(
            first=grid.period.first.isoformat(),
            last=grid.period.last.isoformat(),
            time_zone=grid.period.time_zone,
        ),
        slot_kind=grid.slot_kind.value,
        day_parts=tuple(
            NamedHours(name=part.name, first_hour=part.first_hour, end_hour=part.end_hour) for part in parts
        ),
        selection=None if grid.selection.everything else _selection(grid.selection),
        bin_list=BIN_LIST[relation],
        min_vehicles=min_vehicles,
        bins=bins,
        zones=None
        if grid.zones is None
        else CityZones(file=grid.zones.file, sha256=grid.zones.sha256, zones=len(grid.zones.names)),
        context=tuple(
            PublicLayer(
                kind=layer.kind.value, file=layer.file, sha256=layer.sha256, attribution=layer.attribution
            )
            for layer in grid.context
        ),
    )


def rfc3339(moment: datetime, time_zone: str) -> str:
    """Return ``moment`` to the second by the clocks of ``time_zone``; raise UsageError without an offset."""
    if moment.tzinfo is None:
        raise UsageError("a time carries no offset", got=moment.isoformat(), expected="an aware datetime")
    return moment.astimezone(ZoneInfo(time_zone)).isoformat(timespec="seconds")


def on_city_clocks(moment: datetime, time_zone: str) -> str:
    """Return ``moment`` to the minute, as pages say it: "2026-03-05 10:30 (Asia/Kolkata)"."""
    return f"{moment.astimezone(ZoneInfo(time_zone)):%Y-%m-%d %H:%M} ({time_zone})"


def bin_numbers(status: npt.NDArray[np.object_]) -> BinNumbers:
    """Return how many bins there are in all and of each BinStatus."""
    numbers = {each.value: int(np.sum(status == each.value)) for each in BinStatus}
    return BinNumbers(total=len(status), **numbers)


def _periodic(policy: BudgetPolicy) -> PeriodicBudget | None:
    """The calendar's part of the budget, None where it has none."""
    if not policy.periodic:
        return None
    a_year, a_month = (
        None if each is None else decimal_text(each.pico) for each in (policy.a_year, policy.a_month)
    )
    return PeriodicBudget(a_year=a_year, a_month=a_month, time_zone=policy.time_zone)


def _outline(area: StudyArea) -> Polygon | MultiPolygon:
    geometry = area.to_geojson()
    kind: type[Polygon | MultiPolygon] = Polygon if geometry["type"] == "Polygon" else MultiPolygon
    return from_json(kind, geometry)


def _mosaic(
    grid: Grid, mosaic: Mosaic, bound: ContributionBound, display_unit: SpeedUnit
) -> SeveralResolutions:
    return SeveralResolutions(
        resolutions=tuple(mosaic.resolutions),
        published_bins=tuple(
            BinsOfLevel(resolution=resolution, slot_kind=kind.value, bins=bins)
            for (resolution, kind), bins in mosaic.bins_per_level(grid.slot_kind).items()
        ),
        max_half_width=exact_text(mosaic.half_width * bound.unit.factor_to(display_unit)),
        unit=display_unit.label,
        in_words=MOSAIC,
    )


def _selection(selection: Selection) -> Selected:
    cells, hours = selection.cells, selection.hours_of_week
    return Selected(
        in_words=selection.in_words(),
        hours_of_week=None if hours is None else tuple(hours),
        places=tuple(
            tuple(
                SelectedPlace(name=place.name, area_sha256=place.area.hash, area=_outline(place.area))
                for place in clause
            )
            for clause in selection.places
        ),
        cells=None if cells is None else tuple(format(cell, "x") for cell in cells),
    )
