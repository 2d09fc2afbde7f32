"""Earlier releases: the one that answers the same question, the map before, the one that counted the fleet.

Which releases there are is public. They are found by an index of the vault, so that among thousands it takes
no longer; what is found is compared with the release itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from trafficdp.model import Grid, Statistic
from trafficdp.planner.allocation import Allocation
from trafficdp.release.curator import Curator
from trafficdp.release.specification import numbers_digest, same_question
from trafficdp.store import vault_releases
from trafficdp.store.vault import Vault
from trafficdp.store.vault_fixes import DataVersion


def published(vault: Vault, **sought: object) -> Iterator[str]:
    """Yield the published releases that are as ``sought``, newest first: see ``vault_releases.indexed``."""
    yield from vault_releases.indexed(vault, sought)


def previous_map(vault: Vault, grid: Grid) -> str | None:
    """Return the newest published map of the study area of ``grid``; None without one, and of an answer."""
    if not grid.selection.everything:
        return None
    # specifications are long: a search for their words
    area = f'"study_area_sha256":"{grid.area.hash}"'
    for name in published(vault, area_sha256=grid.area.hash, of_question=False):
        frozen = vault_releases.allocation_of(vault, name)
        if area in frozen and '"question":' not in frozen:
            return name
    return None


def earlier_release(curator: Curator, version: DataVersion, grid: Grid, allocation: Allocation) -> str | None:
    """Return the newest published release of ``allocation`` on ``grid`` and this data, None without one."""
    request, kept = allocation.request.map, allocation.counts
    digest = numbers_digest(grid, request, kept.cell, kept.slot, allocation.calibrated.to_facts())
    for name in published(curator.vault, data_version=version.name, numbers_sha256=digest):
        specification = curator.specification_of(name)
        if specification.data_version == version.name and same_question(specification, grid, allocation):
            return name
    return None


def fleet_released(curator: Curator) -> tuple[str, int] | None:
    """Return the newest release that counted the whole fleet, and its number; None where none did."""
    for name in published(curator.vault, of_everything=True):
        release = curator.load(name)
        mean = release.estimates.get(Statistic.MEAN)
        if mean is not None and "city_vehicles" in mean.noise and release.grid.selection.everything:
            return release.id, max(1, round(float(mean.noise["city_vehicles"][0])))
    return None
