"""What is said with a release and fixed when its charge is committed: every field group but the files.

Models: Census 2020 noisy measurements, Google mobility, Wikimedia; NIST SP 800-226; the OpenDP
deployments registry. Nothing here depends on a value: all of it is known before the noise is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import DataError, UsageError
from trafficdp.export.files.facts import MechanismFacts, SoftwareFacts, SourceFacts
from trafficdp.export.files.guarantee import guarantee_group
from trafficdp.export.files.registry import registry_record
from trafficdp.export.files.words import BIN_LIST, COUNTS_REVEALED, NOT_PROTECTED, PROTECTED
from trafficdp.model.bound import ContributionBound
from trafficdp.model.grid import Grid
from trafficdp.model.mosaic import Mosaic
from trafficdp.model.privacy_unit import Assumption, NeighbouringRelation
from trafficdp.model.selection import Selection
from trafficdp.model.slot import SlotKind
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.loss import PureDP, decimal_text
from trafficdp.privacy.release import BinStatus, Release
from trafficdp.privacy.zcdp import ZCDP
from trafficdp.privacy.zcdp_budget import ZCDPBudget

TUNING_DATA = "none: chosen from public counts"
MOSAIC = (
    "Hexagons have different resolutions, chosen from numbers of records alone so that every published "
    "interval of the mean is within the half width asked for. They are a partition by H3 index: a record "
    "counts in the one bin that holds its cell of the finest resolution and its slot. Bins that the budget "
    "did not reach are withheld."
)


def disclosure(
    *,
    release: str,
    created_at: datetime,
    publisher: str,
    place: str,
    software: SoftwareFacts,
    supersedes: str | None,
    grid: Grid,
    bound: ContributionBound,
    display_unit: SpeedUnit,
    min_vehicles: int,
    status: npt.NDArray[np.object_],
    sources: Sequence[SourceFacts],
    data_version: str,
    relation: NeighbouringRelation,
    assumptions: Sequence[Assumption],
    bins_per_vehicle: int | None,
    fixes_per_vehicle_in_a_bin: int | None,
    bounding_method: str,
    epsilon: PureDP | ZCDP,
    sum_of_maxima_before: PureDP | ZCDP,
    budget_per_vehicle: PureDP | ZCDP,
    mechanisms: Sequence[MechanismFacts],
    composition: str,
    post_processing: Sequence[str],
    interval_level: float,
    forced: bool,
    refuse_above: float,
    refusal_value: float,
    publish_counts: bool,
    recipe: Mapping[str, object],
    tuning_data: str = TUNING_DATA,
    question: str | None = None,
    policy: BudgetPolicy | ZCDPBudget | None = None,
) -> dict[str, object]:
    """Return the field groups of the manifest that are fixed at charge time, as plain JSON values.

    Parameters
    ----------
    status : BinStatus of every bin, shape (G,), as ``Release.status``.
    data_version : random name of the records the release was made from.
    bins_per_vehicle : the most bins one vehicle is in; None to say nothing.
    fixes_per_vehicle_in_a_bin : the most fixes of one vehicle in a bin; dropped unless ``publish_counts``.
    epsilon : loss of this release, the largest over vehicles; rho in a store that counts in rho.
    sum_of_maxima_before : sum of such losses over all releases charged before.
    question : the SQL that the release answers; None for one that was not asked for by a question.
    refuse_above, refusal_value : the threshold and the median over bins of the expected error, both as
        shares of the range [0, U]; forced means released although the value exceeds the threshold.
    policy : the whole budget where it has ceilings a year or a month as well.
    recipe : what, with the recipe's columns of the published table, says exactly how noise was drawn.

    Raises UsageError for a ``created_at`` without offset.
    """
    after = sum_of_maxima_before.pico + epsilon.pico
    groups: dict[str, object] = {
        "identity": {
            "release": release,
            "publisher": publisher,
            "software": software.as_json(),
            "created_at": rfc3339(created_at),
            "supersedes": supersedes,
            **({} if question is None else {"question": question}),
        },
        "coverage": _coverage(grid, bound, display_unit, place, relation, min_vehicles, status),
        "data": {"sources": [source.as_json() for source in sources], "data_version": data_version},
        "unit": {
            "privacy_unit": "vehicle",
            "identified_by": "the feed's vehicle identifier, after normalising case, spaces and hyphens",
            "period": "all records of a vehicle, in all bins of this release",
            "neighbouring_relation": relation.value,
            "protected": PROTECTED[relation],
            "not_protected": list(NOT_PROTECTED[relation]),
        },
        "bounds": {
            "clip_low": "0",
            "clip_high": exact_text(bound.upper),
            "clip_unit": bound.unit.label,
            "step": exact_text(bound.step),
            "bins_per_vehicle": bins_per_vehicle,
            "fixes_per_vehicle_in_a_bin": fixes_per_vehicle_in_a_bin if publish_counts else None,
            "method": bounding_method,
        },
        "guarantee": guarantee_group(relation, epsilon, after, budget_per_vehicle, policy),
        "mechanisms": [mechanism.as_json(bound.unit, display_unit) for mechanism in mechanisms],
        "accounting": {
            "composition": composition,
            "sum_of_maxima_before": decimal_text(sum_of_maxima_before.pico),
            "sum_of_maxima_after": decimal_text(after),
            "budget_per_vehicle": decimal_text(budget_per_vehicle.pico),
            "left_for_every_vehicle": decimal_text(max(0, budget_per_vehicle.pico - after)),
            **_periodic(policy),
        },
        "post_processing": list(post_processing),
        "uncertainty": {
            "interval_level": interval_level,
            "interval_kind": "per bin, two-sided, of the sample statistic of the clipped speeds",
            "worst_case_bias": [mechanism.bias_as_json(bound.unit, display_unit) for mechanism in mechanisms],
            "simultaneous": False,
        },
        "honesty": {
            "assumptions": [{"code": each.code, "text": each.text} for each in assumptions],
            "tuning_data": tuning_data,
            "forced": forced,
            "refusal": {
                "rule": "refused when the median over bins of the worst-case expected error, as a share of "
                "the speed range, exceeds the threshold",
                "threshold": refuse_above,
                "value": refusal_value,
            },
            "idealised_mechanisms": any(mechanism.idealised for mechanism in mechanisms),
            "publish_counts": publish_counts,
            "counts_revealed": COUNTS_REVEALED[relation],
        },
        "recipe": dict(recipe),
    }
    return {**groups, "registry": registry_record(groups)}


def disclosed(release: Release, group: str, field: str) -> object:
    """Return one field of the release's disclosure; raise DataError when it is not there."""
    fields = release.disclosure.get(group)
    if not isinstance(fields, Mapping) or field not in fields:
        raise DataError(
            "the release does not carry its whole disclosure",
            got=f"nothing under {group}.{field}",
            expected="the field groups that were fixed when the release was charged",
        )
    return fields[field]


def rfc3339(moment: datetime) -> str:
    """Return ``moment`` in UTC to the second; raise UsageError when it carries no offset."""
    if moment.tzinfo is None:
        raise UsageError("a time carries no offset", got=moment.isoformat(), expected="an aware datetime")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exact_text(value: Fraction) -> str:
    """Return ``value`` as a plain decimal when it is one of at most 12 digits, else as a ratio "a/b"."""
    scaled = value * 10**12
    if scaled.denominator != 1:
        return f"{value.numerator}/{value.denominator}"
    return decimal_text(int(scaled))


def bin_numbers(status: npt.NDArray[np.object_]) -> dict[str, int]:
    """Return how many bins there are in all and of each BinStatus."""
    texts = np.array([str(each) for each in status], dtype=np.str_)
    return {"total": len(texts), **{each.value: int((texts == each.value).sum()) for each in BinStatus}}


def _periodic(policy: BudgetPolicy | ZCDPBudget | None) -> dict[str, object]:
    """The calendar's part of the budget, nothing where it has none."""
    if not isinstance(policy, BudgetPolicy) or not policy.periodic:
        return {}
    a_year, a_month = (
        None if each is None else decimal_text(each.pico) for each in (policy.a_year, policy.a_month)
    )
    return {"periodic_budget": {"a_year": a_year, "a_month": a_month, "time_zone": policy.time_zone}}


def _mosaic(
    grid: Grid, mosaic: Mosaic, bound: ContributionBound, display_unit: SpeedUnit
) -> dict[str, object]:
    """The resolutions of a map of several, how many bins of each are published, and what was asked."""
    return {
        "resolutions": list(mosaic.resolutions),
        "published_bins": [
            {"resolution": resolution, "slot_kind": kind.value, "bins": bins}
            for (resolution, kind), bins in mosaic.bins_per_level(grid.slot_kind).items()
        ],
        "max_half_width": exact_text(mosaic.half_width * bound.unit.factor_to(display_unit)),
        "unit": display_unit.label,
        "in_words": MOSAIC,
    }


def _coverage(
    grid: Grid,
    bound: ContributionBound,
    display_unit: SpeedUnit,
    place: str,
    relation: NeighbouringRelation,
    min_vehicles: int,
    status: npt.NDArray[np.object_],
) -> dict[str, object]:
    kinds = (grid.slot_kind, *(() if grid.mosaic is None else grid.mosaic.longer))
    parts = grid.day_parts if SlotKind.DAY_PART in kinds else ()
    return {
        "place": place,
        "study_area": grid.area.to_geojson(),
        "study_area_sha256": grid.area.hash,
        "resolution": grid.resolution,
        **({} if grid.mosaic is None else {"mosaic": _mosaic(grid, grid.mosaic, bound, display_unit)}),
        "period": {
            "first": grid.period.first.isoformat(),
            "last": grid.period.last.isoformat(),
            "time_zone": grid.period.time_zone,
        },
        "slot_kind": grid.slot_kind.value,
        "day_parts": [
            {"name": part.name, "first_hour": part.first_hour, "end_hour": part.end_hour} for part in parts
        ],
        **({} if grid.selection.everything else {"selection": _selection(grid.selection)}),
        "bin_list": BIN_LIST[relation],
        "min_vehicles": min_vehicles,
        "bins": bin_numbers(status),
    }


def _selection(selection: Selection) -> dict[str, object]:
    """What of area and period counts at all, when it is not everything."""
    cells = selection.cells
    return {
        "in_words": selection.in_words(),
        "hours_of_week": None if selection.hours_of_week is None else list(selection.hours_of_week),
        "places": [
            [
                {"name": place.name, "area_sha256": place.area.hash, "area": place.area.to_geojson()}
                for place in clause
            ]
            for clause in selection.places
        ],
        "cells": None if cells is None else [format(cell, "x") for cell in cells],
    }
