"""Speeds that public sources know before a release asks: earlier releases, timetables, typical speeds.

Nothing here reads a record, so that knowledge costs no privacy: a release is public once it is published, and
which releases there are is public too. The others are files that anybody may have.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from trafficdp import model
from trafficdp._durable import read_regular
from trafficdp.arrays import CellArray, FloatArray, IntArray
from trafficdp.binning.places import declared_slots
from trafficdp.config.settings import Config
from trafficdp.errors import UsageError
from trafficdp.planner.allocation import Allocation
from trafficdp.privacy.release import Release
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of
from trafficdp.release.recomputation import CELLS
from trafficdp.release.specification import Specification, numbers_digest
from trafficdp.store import vault_releases
from trafficdp.store.vault_fixes import DataVersion

# Earlier releases are found by an index of the vault, so that among thousands it takes no longer; what is
# found is compared with the release itself.


def earlier_release(
    curator: Curator, version: DataVersion, grid: model.Grid, allocation: Allocation
) -> str | None:
    """Return the newest published release of the same bins, mechanism and data, by name; None without one."""
    request, kept = allocation.request.map_request, allocation.counts
    digest = numbers_digest(grid, request, kept.cell, kept.slot, allocation.calibrated.to_facts())
    same = {"data_version": version.name, "numbers_sha256": digest}
    for name in vault_releases.find_published(curator.vault, same):
        specification = curator.specification_of(name)
        if specification.data_version == version.name and specification.numbers_sha256 == digest:
            return name
    return None


def fleet_released(curator: Curator) -> tuple[str, int] | None:
    """Return (name, vehicles) of the newest release that counted the whole fleet with noise; None if none."""
    for name in vault_releases.find_published(curator.vault, {"of_everything": True}):
        release = curator.load(name)
        mean = release.estimates.get(model.Statistic.MEAN)
        if mean is not None and "city_vehicles" in mean.noise and release.grid.selection.everything:
            return release.id, max(1, round(float(mean.noise["city_vehicles"][0])))
    return None


def known_speeds(
    curator: Curator, config: Config, grid: model.Grid, version: DataVersion
) -> tuple[model.PlaceSpeeds, ...]:
    """Return what the sources that ``config`` declares know of a map of ``grid`` of the data ``version``.

    A source that is the newest release says nothing where there is none. Raises UsageError for a release that
    is not there, not published, or is of other hexagons or slots.
    """
    if grid.mosaic is not None or not grid.selection.everything:
        return ()
    found = []
    for source in config.knowledge:
        if source.kind is model.KnowledgeKind.RELEASE:
            released = _of_release(curator, source, grid, version)
            found += [] if released is None else [released]
            continue
        path = Path(str(source.path))
        about = path.stat() if path.exists() else None
        sha256, cell, slot, speed = _read(
            source, replace(grid, context=()), about and (about.st_mtime_ns, about.st_size)
        )
        knowledge = model.Knowledge(
            kind=source.kind,
            name=path.name,
            licence=source.licence,
            date=None if source.date is None else source.date.isoformat(),
            sha256=sha256,
            share=source.kind.share(config.relation),
        )
        found.append(model.PlaceSpeeds(source=knowledge, cell=cell, slot=slot, speed=np.round(speed, 2)))
    return tuple(found)


@lru_cache(maxsize=4)
def _read(
    source: model.KnowledgeSource, grid: model.Grid, about: object
) -> tuple[str, CellArray, IntArray | None, FloatArray]:
    """The SHA-256 of the file of ``source``, bins and their speeds; ``about`` is another once the file is.

    Slots None: the same in all of them.
    """
    # what reads tables takes a moment to load
    if source.kind is model.KnowledgeKind.SPEEDS:
        from trafficdp.knowledge.typical_speeds import read_typical_speeds

        sha256, place, speed = read_typical_speeds(source, grid)
        return sha256, place, None, speed
    from trafficdp.knowledge.timetable import read_timetable

    timetable = read_timetable(Path(str(source.path)), grid)
    place, slots = np.unique(timetable.place), declared_slots(grid)
    cell, slot = np.repeat(place, len(slots)), np.tile(slots, len(place))
    return timetable.sha256, cell, slot, timetable.traffic(grid, cell, slot)[0]


def _of_release(
    curator: Curator, source: model.KnowledgeSource, grid: model.Grid, version: DataVersion
) -> model.PlaceSpeeds | None:
    if source.release == model.NEWEST:
        others = {"not_of_data": version.name, "of_everything": True}
        for name in vault_releases.find_published(curator.vault, others):
            specification = Specification.from_json(vault_releases.part_of(curator.vault, name, "allocation"))
            alike = specification.data_version != version.name and _unlike(specification.grid, grid) is None
            if alike and _says_something(release := curator.load(name)):
                return speeds_of(curator, release)
        return None
    stored_one = vault_releases.release_named(curator.vault, str(source.release))
    if stored_one.withdrawn or not stored_one.published:
        raise UsageError(
            "knowledge from a release that is not published",
            got=str(source.release),
            todo=f'name another release in [[knowledge]], or "{model.NEWEST}"',
        )
    release = curator.load(stored_one.release_id)
    unlike = _unlike(release.grid, grid) or (None if _says_something(release) else "mechanism")
    if unlike is not None:
        raise UsageError(
            f"knowledge from a release of another {unlike}",
            got=release.id,
            expected="a map of means by partial pooling, of the same hexagons or zones and kind of slot",
            todo=f'name another release in [[knowledge]], or "{model.NEWEST}"',
        )
    return speeds_of(curator, release)


def _unlike(other: model.Grid, grid: model.Grid) -> str | None:
    """Return in what two grids differ so that one tells nothing of the other, None where they do not."""
    if (other.resolution, None if other.zones is None else other.zones.key) != (
        grid.resolution,
        None if grid.zones is None else grid.zones.key,
    ):
        return "resolution or zones"
    # slots on the calendar do not come back
    recurs = grid.slot_kind is model.SlotKind.WHOLE_PERIOD or grid.slot_kind.recurs
    if other.mosaic is not None or other.slot_kind is not grid.slot_kind or not recurs:
        return "kind of slot"
    if grid.slot_kind is model.SlotKind.DAY_PART and other.day_parts != grid.day_parts:
        return "division of the day"
    return None if other.selection.everything else "selection of records"


def _says_something(release: Release) -> bool:
    """Return whether the means of ``release`` have a posterior and are not the same in all bins."""
    mean = release.estimates.get(model.Statistic.MEAN)
    return mean is not None and bool(mean.posterior) and len(np.unique(mean.value[~np.isnan(mean.value)])) > 1


def speeds_of(curator: Curator, release: Release) -> model.PlaceSpeeds:
    """Return the published mean speeds of ``release`` as a source of known speeds for other maps."""
    content, kind = read_regular(folder_of(curator.store, release.id) / CELLS), model.KnowledgeKind.RELEASE
    return model.PlaceSpeeds(
        source=model.Knowledge(
            kind=kind,
            name=release.id,
            sha256=hashlib.sha256(content).hexdigest(),
            share=kind.share(curator.relation),
        ),
        cell=release.cell,
        slot=None if release.grid.slot_kind is model.SlotKind.WHOLE_PERIOD else release.slot,
        speed=release.estimates[model.Statistic.MEAN].value,
    )
