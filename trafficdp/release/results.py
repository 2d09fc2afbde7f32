"""What a store holds, what a plan is asked, and what the calls of a workspace give back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trafficdp.binning.places import declared_bins, share_of_area_in_zones, slot_facts_of
from trafficdp.config.settings import Config
from trafficdp.context.read import read_context
from trafficdp.errors import UsageError
from trafficdp.export import notebook
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.export.files.tables import to_geodataframe
from trafficdp.export.report.change_files import ChangeTable
from trafficdp.export.report.report import report_html
from trafficdp.export.site import PublishedRelease
from trafficdp.export.write import MOST_BINS_OF_TEXT
from trafficdp.ingest.report import Extents, FileReport
from trafficdp.mechanisms.simulated_cities import SEED, SimulatedCities, SimulatesOwnCity
from trafficdp.model import EVERYTHING, HOURS_A_WEEK, Grid, SlotKind, SpeedUnit, Statistic
from trafficdp.planner.allocation import Allocation, Precision, UtilityVerdict, WidthGoal, positive_median
from trafficdp.planner.choose import Choice, choose
from trafficdp.planner.request import AdaptiveMap, Affordable, MapOption, Suggestions
from trafficdp.planner.suggest import DataNeeded
from trafficdp.privacy.disclosure import SkillStated
from trafficdp.privacy.loss import LOSSES, Loss, LossKind, PureDP
from trafficdp.privacy.release import Release, published_frame
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of, manifests
from trafficdp.release.specification import ReleaseContext, source_facts
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.store.vault import Vault

if TYPE_CHECKING:
    import geopandas
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """What became of one file: its report, and how many records were new. For the curator's eyes.

    ``extents``: how far it reaches; nowhere where a cluster has read it. ``read_before``: a file of the same
    bytes was read before; ``declared_otherwise``: under another declaration of its source.
    """

    report: FileReport
    file: str
    added: int
    read_before: bool
    declared_otherwise: bool
    extents: Extents = field(default_factory=Extents)


@dataclass(frozen=True, slots=True)
class UndoneFile:
    """A file whose records were taken back. ``records``, how many it had brought, is for the curator's eyes.

    ``read_later``: the files that were read after it. A record that one of them had too was left out there.
    """

    file: str
    records: int
    read_later: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class ReleasedMap:
    """A published release: its numbers, and where its files are. A notebook shows its map and promise.

    ``left`` is what every vehicle on the map has left after it, where it was just asked for. ``is_reused``:
    it answers a question that was asked again, and nothing was charged.
    """

    release: Release
    folder: Path
    left: Loss | None = None
    is_reused: bool = False

    @property
    def id(self) -> str:
        """Name of the release."""
        return self.release.id

    def to_frame(self) -> pd.DataFrame:
        """Return the published table, one row a bin."""
        return published_frame(self.release)

    def to_geodataframe(self) -> geopandas.GeoDataFrame:
        """Return the published table with the hexagons, in WGS84."""
        return to_geodataframe(self.release)

    def plot(
        self,
        statistic: str = "mean",
        *,
        slot: str | None = None,
        show: str = "value",
        axes: Axes | None = None,
    ) -> Axes:
        """Draw the map with matplotlib, withheld hexagons hatched; a variance as standard deviation.

        ``slot`` is the label of a time slot: without it, the one with most numbers. ``show`` "uncertainty"
        draws the width of the interval. Raises UsageError for what the release does not have.
        """
        return notebook.plot(self.release, statistic, slot, show, axes)

    def explore(self, *, height: int = 640) -> notebook.Explored:
        """Return the page of the release, to be moved and searched in a notebook; ``height`` in pixels."""
        return notebook.explore(self.release, height)

    def __repr__(self) -> str:
        return notebook.release_in_words(self.release)

    def _repr_html_(self) -> str:
        return notebook.release_card(self.release)


@dataclass(frozen=True)
class PlanQuestion:
    """What is asked of a plan besides its loss.

    ``half_width`` (main statistic's unit): intervals of the median bin, or of every bin (``goal``), must
    be that narrow; alone, the least loss is looked for, with ``search_maps`` the finest map at the
    loss there is. ``within_budget``: the largest loss that every vehicle can pay, if that is less.
    ``saved`` names a plan of the store that is taken as it was frozen.
    """

    half_width: float | None = None
    goal: WidthGoal = WidthGoal.MEDIAN
    search_maps: bool = False
    within_budget: bool = False
    suggestions: bool = True
    saved: str | None = None


@dataclass(frozen=True)
class Answer:
    """What was found for a half width that was asked for (main statistic's unit).

    ``median_loss`` and ``every_loss`` are the least that bring the median bin's interval, and every
    bin's, within it (None: none does, or another map was looked for). ``options`` are the maps that were
    looked at, ``chosen`` the finest that fits; ``growth_of_configured`` says how far the counts of the
    configured map would have to grow for it to fit.
    """

    half_width: float
    goal: WidthGoal
    median_loss: Loss | None = None
    every_loss: Loss | None = None
    options: tuple[MapOption, ...] = ()
    chosen: MapOption | None = None
    growth_of_configured: DataNeeded | None = None


@dataclass(frozen=True, slots=True)
class InEpsilon:
    """What a release in rho costs as (epsilon, ``delta``): alone, and ``of_sum`` with all before it."""

    delta: str
    epsilon: PureDP
    of_sum: PureDP


@dataclass(frozen=True, repr=False)
class Plan:
    """What a release would cost and give; nothing is spent. ``suggestions`` only when it is refused.

    Its ``repr`` names no vehicle's count, loss or account.

    Its numbers are in the unit of the speed bound; people are shown them in ``display_unit``
    (``in_display_unit``). ``budget_left`` is what every vehicle on the map has left, ``left_after`` what each
    would still have after the release (0 where it cannot be paid), ``affordable`` who can pay. ``grid`` is
    the map's (not the configured one when another was looked for). ``growth``: how far the counts would have
    to grow when it is refused, or when it takes more than is left. ``answer`` only when a half width was
    asked, ``adaptive`` only for a map of several resolutions, ``in_epsilon`` only where losses are rho.
    ``earlier_release`` names a release that is just this on the same data: released again, it costs nothing.
    ``slot_not_measured`` is the kind of slot that is configured, where the map has one slot all the same.
    """

    allocation: Allocation
    verdict: UtilityVerdict
    suggestions: Suggestions | None
    budget_left: Loss
    left_after: Loss
    grid: Grid
    precision: Precision
    affordable: Affordable
    growth: DataNeeded | None = None
    answer: Answer | None = None
    asked: Loss | None = None
    adaptive: AdaptiveMap | None = None
    in_epsilon: InEpsilon | None = None
    earlier_release: str | None = None
    slot_not_measured: SlotKind | None = None

    @property
    def loss(self) -> Loss:
        """What the release would charge: the largest loss of any vehicle."""
        return self.allocation.loss

    @property
    def display_unit(self) -> SpeedUnit:
        """The unit in which speeds are shown."""
        return self.allocation.request.display_unit

    @property
    def skill(self) -> dict[Statistic, SkillStated]:
        """How far off statistics are expected to be, beside one number for the city; in ``display_unit``."""
        return {
            each: own.stated(self.in_display_unit(1.0, each)) for each, own in self.allocation.skill.items()
        }

    @property
    def unit(self) -> str:
        """The unit in which errors of the main statistic are shown."""
        return self.allocation.request.main.unit(self.display_unit)

    def in_display_unit(self, error: float, statistic: Statistic | None = None) -> float:
        """Return ``error`` of ``statistic`` (None: the main one), converted to ``display_unit``.

        It comes in the speed bound's unit, squared for a variance.
        """
        request = self.allocation.request
        return error * request.factor(statistic or request.main)

    def to_frame(self) -> pd.DataFrame:
        """Return what each bin with a number will have, one row a bin, sorted by cell, then slot.

        Columns: ``hex_id``, ``slot``, ``slot_label``, and for every statistic, named as in the
        published table with its unit, ``_expected_error`` and ``_half_width`` of its interval: in
        simulated cities where intervals are calibrated; else at worst over the speeds, before it is
        clamped. All of it from public counts.
        """
        import pandas as pd

        allocation = self.allocation
        counts = allocation.counts
        labels = slot_facts_of(self.grid, np.unique(counts.slot))
        columns: dict[str, object] = {
            "hex_id": pd.Series(self.grid.spelled(counts.cell), dtype="str"),
            "slot": counts.slot,
            "slot_label": pd.Series([labels[int(slot)].label for slot in counts.slot], dtype="str"),
        }
        widths = allocation.half_widths()
        for statistic, errors in allocation.errors().items():
            name, factor = statistic.column(self.display_unit), self.in_display_unit(1.0, statistic)
            columns |= {
                f"{name}_expected_error": errors * factor,
                f"{name}_half_width": widths[statistic] * factor,
            }
        return pd.DataFrame(columns)

    def mechanism_choices(self, seed: int = SEED) -> tuple[Choice, ...]:
        """Return every statistic's mechanisms, tried on simulated speeds of ``seed``, and the one chosen.

        Raises UsageError where nothing about a vehicle is public: there is one map there, and no choice.
        """
        request, counts = self.allocation.request, self.allocation.counts
        if isinstance(self.allocation.calibrated, SimulatesOwnCity):
            raise UsageError("there is one map where nothing about a vehicle is public, and no choice")
        cities = SimulatedCities(counts, request.bound, seed)
        return tuple(
            choose(counts, request.bound, each, request.loss, cities=cities, display_unit=self.display_unit)
            for each in request.tolerance
        )

    def compare(self, seed: int = SEED) -> pd.DataFrame:
        """Return how far each mechanism may be off on this map at this loss, one row each. Nothing is spent.

        Columns: ``statistic``; ``mechanism``; ``median_error`` and ``worst_error`` over hexagons, expected at
        the worst speeds there could be; ``simulated_error`` on simulated speeds of ``seed``; ``loss``, what
        the vehicle pays that pays most; ``exact``, whether its noise has an exact sampler; ``best``, whether
        it is the one to take. Errors are in the unit that is shown. Raises as ``mechanism_choices``.
        """
        import pandas as pd

        rows = []
        for choice in self.mechanism_choices(seed):
            for offer in choice.offers:
                errors = offer.median_error, offer.worst_error, np.nan if offer.tried is None else offer.tried
                shown = [self.in_display_unit(error, choice.statistic) for error in errors]
                loss = np.nan if offer.fit is None else float(offer.fit.event.loss.exact)
                last = loss, not offer.idealised, offer is choice.chosen
                rows.append((choice.statistic.value, offer.mechanism, *shown, *last))
        names = ("statistic", "mechanism", "median_error", "worst_error", "simulated_error", "loss", "exact")
        return pd.DataFrame(rows, columns=[*names, "best"])

    def _facts(self) -> dict[str, str]:
        allocation, verdict = self.allocation, self.verdict
        request, withheld = allocation.request, int((~allocation.keep).sum())
        unit, precision = self.unit, self.precision
        level, error = f"{request.interval_level:.0%}", positive_median(allocation.errors()[request.main])
        at_worst = "" if allocation.intervals_from_trials(request.main) else "at worst "
        of = verdict.statistic
        got, expected = verdict.in_words(of.unit(self.display_unit), self.in_display_unit(1.0, of))
        return {
            "costs a vehicle at most": f"{request.loss.kind.quantity} {self.loss}",
            "numbers": f"about {allocation.skill[request.main].expected_numbers:,} in "
            f"{allocation.counts.bins:,} {self.grid.noun}s"
            if request.relation.hides_presence
            else f"{allocation.counts.bins:,}, and {withheld:,} withheld "
            f"(fewer than {request.min_vehicles} vehicles)",
            "off by": f"{self.in_display_unit(error):.3g} {unit} {at_worst}on average, in the median hexagon",
            f"{level} interval": f"{self.in_display_unit(precision.median):.3g} {unit} to either side in the "
            f"median hexagon, {self.in_display_unit(precision.worst):.3g} in the widest",
            "verdict": f"{'would be refused' if verdict.refused else 'may be released'}: {got}, {expected}",
        }

    def __repr__(self) -> str:
        return f"<plan: {'; '.join(f'{name} {text}' for name, text in self._facts().items())}>"

    def _repr_html_(self) -> str:
        return notebook.card(
            "Plan: what a release would cost and give",
            [*self._facts().items()],
            sentences=("Made from public counts alone. Nothing was spent.",),
        )


# What a store holds: its releases and its records, as the next release is about them.


@dataclass(frozen=True, slots=True)
class ReleaseSummary:
    """A summary of one release. ``loss`` is the largest of any vehicle."""

    id: str
    status: str
    sequence: int
    loss: Loss
    created_at: str
    folder: Path


def site_releases(curator: Curator, store: Path, answers: bool) -> tuple[list[PublishedRelease], list[str]]:
    """Return the published releases of ``store``, the newest first, and the names of withdrawn ones.

    ``answers``: answers to analysts' questions too.
    """
    stored = vault_releases.all_releases(curator.vault)
    withdrawn = [each.release_id for each in stored if each.withdrawn]
    documents = manifests(store)
    there = [each for each in stored if each.published and not each.withdrawn]
    found = [validate_manifest(documents[each.release_id]) for each in reversed(there)]
    names = {each.release_id for each in there}
    published = []
    for manifest in found:
        if answers or manifest.identity.question is None:
            name, previous = manifest.identity.release, manifest.catalogue.previous
            against = previous if previous in names else None
            report = partial(_report_of, curator, name, against)
            changes = partial(_changes_since, curator, name, [each.release_id for each in reversed(there)])
            published.append(PublishedRelease(manifest, folder_of(store, name), report, against, changes))
    return published, withdrawn


def _changes_since(curator: Curator, release_id: str, names: Sequence[str]) -> bytes | None:
    """Return the page of what changed since the newest of ``names`` that is comparable and ends before."""
    release = curator.load(release_id)
    for name in names[list(names).index(release_id) + 1 :]:
        earlier = curator.load(name)
        if earlier.grid.period.last < release.grid.period.first:
            # one of other places, slots or numbers is passed over
            with suppress(UsageError):
                return ChangeTable.of(release, earlier).page()
    return None


def _report_of(curator: Curator, release_id: str, against: str | None) -> bytes | None:
    """Return the report of a release; None for one without bins, or with too many for a page."""
    release = curator.load(release_id)
    if not 0 < release.bins <= MOST_BINS_OF_TEXT:
        return None
    try:
        return report_html(release, None if against is None else curator.load(against))
    except UsageError:
        # the map before it is of another kind
        return report_html(release)


def summaries(curator: Curator, store: Path) -> list[ReleaseSummary]:
    """Return a summary of every charged release, in order of their charges."""
    charges = {row.sequence: row.facts for row in vault_ledger.ledger_rows(curator.vault)}
    found = []
    for stored in vault_releases.all_releases(curator.vault):
        charge = charges[stored.sequence]
        kind = next(kind for kind in LossKind if kind.pico_key in charge)
        summary = ReleaseSummary(
            id=stored.release_id,
            status="withdrawn" if stored.withdrawn else "published" if stored.published else "unfinished",
            sequence=stored.sequence,
            loss=LOSSES[kind](int(str(charge[kind.pico_key]))),
            created_at=str(charge["at"]),
            folder=folder_of(store, stored.release_id),
        )
        found.append(summary)
    return found


def context_of(
    config: Config, vault: Vault, version: vault_fixes.DataVersion, grid: Grid, at: datetime
) -> ReleaseContext:
    """Return the facts on a release at ``at`` besides its numbers: ``grid``, data ``version``, sources."""
    # whether a speed was derived is told of single records: said only where these are public
    hidden = config.relation.hides_presence
    speeds = {} if hidden else vault_fixes.speed_provenance(vault, version.ingest_id)
    sources = tuple(
        source_facts(declaration, name, speeds.get(name, "mixed" if hidden else "reported"))
        for name, declaration in vault_fixes.declarations(vault, version.ingest_id)
    )
    area, previous = grid.area.hash, None
    if grid.selection.everything:
        # the newest published map of the study area; specifications are long: a search for their words
        for name in vault_releases.find_published(vault, {"area_sha256": area, "of_question": False}):
            frozen = vault_releases.part_of(vault, name, "allocation").decode()
            if f'"study_area_sha256":"{area}"' in frozen and '"question":' not in frozen:
                previous = name
                break
    return ReleaseContext(
        publisher=config.city.publisher,
        place=config.city.name,
        grid=replace(grid, context=read_context(config.context, grid.area)),
        budget=config.policy,
        data_version=version,
        sources=sources,
        created_at=at.replace(microsecond=0),
        budget_changes=vault_ledger.promise_changes(vault),
        catalogue=replace(config.catalogue, previous=previous),
    )


HEXAGONS_OF_A_VEHICLE = 8
"""How many a vehicle visits, about: a round number."""


def expected_share_of_fleet(grid: Grid) -> float:
    """Return the share (0 to 1) of the fleet that is expected to meet the restrictions of ``grid``.

    It is 1 - (1 - f)^HEXAGONS_OF_A_VEHICLE, f being the share of declared hexagons (with zones, of the study
    area) times the share of the hours of the week. From public facts alone.
    """
    if grid.selection.everything and grid.zones is None:
        return 1.0
    whole = replace(grid, selection=EVERYTHING, slot_kind=SlotKind.WHOLE_PERIOD)
    here = replace(whole, selection=replace(grid.selection, hours_of_week=None))
    hours = grid.selection.hours_of_week
    if grid.zones is None:
        left = len(declared_bins(here)[0]) / len(declared_bins(whole)[0])
    else:
        left = share_of_area_in_zones(here, grid.zones)
    left *= 1 if hours is None else len(hours) / HOURS_A_WEEK
    return float(1 - (1 - min(left, 1.0)) ** HEXAGONS_OF_A_VEHICLE)
