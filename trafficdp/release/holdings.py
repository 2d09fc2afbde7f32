"""What a store holds: its releases and its records, as the next release is about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from trafficdp.binning.declared import declared_bins, share_in_zones
from trafficdp.config.settings import Config
from trafficdp.context.read import check_context, read_context
from trafficdp.errors import DataError, UsageError
from trafficdp.model import EVERYTHING, HOURS_A_WEEK, Grid, SlotKind, Statistic
from trafficdp.planner.allocation import Allocation
from trafficdp.privacy.loss import LOSSES, Loss, LossKind
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of
from trafficdp.release.publishing_facts import Occasion, same_question
from trafficdp.release.specification import Specification
from trafficdp.release.stated import source_facts
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.store.vault import Vault


@dataclass(frozen=True, slots=True)
class ReleaseSummary:
    """One line about a release. ``loss`` is the largest of any vehicle."""

    id: str
    status: str
    sequence: int
    loss: Loss
    created_at: str
    folder: Path


def version_to_plan(vault: Vault, config: Config) -> vault_fixes.DataVersion:
    """Return the version of the data that a plan is made from.

    Raises UsageError for an empty store and for another study area than that of the first file, ConfigError
    for a public layer that a release could not read: before anybody decides by the plan.
    """
    version = vault_fixes.data_version(vault)
    if not vault_fixes.number_of_files(vault):
        raise UsageError("the store is empty", todo="run `trafficdp ingest FILE...` first")
    pin_area(vault, config.grid.area.hash, dry_run=True)
    check_context(config.context)
    return version


def summaries(curator: Curator, store: Path) -> list[ReleaseSummary]:
    """Return every charged release, in order."""
    entries = {row.sequence: row.facts for row in vault_ledger.rows(curator.vault)}
    return [
        ReleaseSummary(
            id=stored.release_id,
            status="withdrawn" if stored.withdrawn else "published" if stored.published else "unfinished",
            sequence=stored.sequence,
            loss=_loss(entries[stored.sequence]),
            created_at=str(entries[stored.sequence]["at"]),
            folder=folder_of(store, stored.release_id),
        )
        for stored in vault_releases.all_releases(curator.vault)
    ]


def _loss(charge: Mapping[str, object]) -> Loss:
    kind = next(kind for kind in LossKind if kind.pico_key in charge)
    return LOSSES[kind](int(str(charge[kind.pico_key])))


def occasion_of(
    config: Config, vault: Vault, version: vault_fixes.DataVersion, grid: Grid, at: datetime
) -> Occasion:
    """Return what a release at ``at`` is about: ``grid`` of the data ``version``."""
    # whether a speed was derived is told of single records: said only where these are public
    hidden = config.relation.hides_presence
    speeds = {} if hidden else vault_fixes.speed_provenance(vault, version.ingest_id)
    sources = tuple(
        source_facts(declaration, name, speeds.get(name, "mixed" if hidden else "reported"))
        for name, declaration in vault_fixes.declarations(vault, version.ingest_id)
    )
    return Occasion(
        publisher=config.city.publisher,
        place=config.city.name,
        grid=replace(grid, context=read_context(config.context, grid.area)),
        display_unit=config.map.display_unit,
        publish_counts=config.map.publish_counts,
        budget=config.policy,
        data_version=version,
        sources=sources,
        created_at=at.replace(microsecond=0),
        budget_changes=vault_ledger.promise_changes(vault),
    )


def earlier_release(
    curator: Curator, config: Config, version: vault_fixes.DataVersion, grid: Grid, allocation: Allocation
) -> str | None:
    """Return the newest published release of ``allocation`` on ``grid`` and this data, None without one."""
    # specifications are long: a search for their words first
    words = f'"resolution":{json.dumps(grid.resolution)},', f'"slot_kind":"{grid.slot_kind.value}"'
    for stored in vault_releases.published_of(curator.vault, version.name):
        frozen = vault_releases.allocation_of(curator.vault, stored.release_id)
        if not all(each in frozen for each in words):
            continue
        specification = Specification.from_json(frozen)
        if (
            specification.data_version == version.name
            and specification.display_unit is config.map.display_unit
            and specification.publish_counts == config.map.publish_counts
            and same_question(specification, grid, allocation)
        ):
            return stored.release_id
    return None


def fleet_released(curator: Curator) -> tuple[str, int] | None:
    """Return the newest release that counted the whole fleet, and its number; None where none did."""
    for stored in reversed(vault_releases.all_releases(curator.vault)):
        if stored.withdrawn or not stored.published:
            continue
        release = curator.load(stored.release_id)
        mean = release.estimates.get(Statistic.MEAN)
        if mean is not None and "city_vehicles" in mean.noise and release.grid.selection.everything:
            return release.id, max(1, round(float(mean.noise["city_vehicles"][0])))
    return None


HEXAGONS_OF_A_VEHICLE = 8
"""How many a vehicle visits, about: a round number."""


def share_of_fleet(grid: Grid) -> float:
    """Return what share of a fleet is likely to be seen where and when the restrictions of ``grid`` leave.

    1 - (1 - f)^HEXAGONS_OF_A_VEHICLE, f the share of hexagons (of the study area that is in zones) and of
    hours of the week, as declared.
    """
    if grid.selection.everything and grid.zones is None:
        return 1.0
    whole = replace(grid, selection=EVERYTHING, slot_kind=SlotKind.WHOLE_PERIOD)
    here = replace(whole, selection=replace(grid.selection, hours_of_week=None))
    hours = grid.selection.hours_of_week
    if grid.zones is None:
        left = len(declared_bins(here)[0]) / len(declared_bins(whole)[0])
    else:
        left = share_in_zones(here, grid.zones)
    left *= 1 if hours is None else len(hours) / HOURS_A_WEEK
    return float(1 - (1 - min(left, 1.0)) ** HEXAGONS_OF_A_VEHICLE)


def pin_area(vault: Vault, area: str, *, dry_run: bool) -> None:
    """Raise DataError unless the store was filled under the ``area`` with this hash, or is empty.

    Rows outside it were rejected and cannot come back. Unless ``dry_run``, an empty store is pinned to it. A
    store is empty, too, when all its files were undone.
    """
    pinned = vault.fact("area_hash") if vault_fixes.number_of_files(vault) else None
    if pinned is None and not dry_run:
        vault.set_fact("area_hash", area)
    if pinned is not None and pinned != area:
        raise DataError(
            "the study area is not the one this store was filled under",
            got="another area in the configuration",
            expected="the area that was configured when the first file was read",
            todo="restore [city] study_area, or ingest everything into a new store",
        )
