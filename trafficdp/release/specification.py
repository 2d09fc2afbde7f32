"""The specification of a release: all that is frozen with its charge, to draw once without planning again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from trafficdp import model
from trafficdp.arrays import BoolArray, CellArray, IntArray
from trafficdp.binning.places import declared_bins, slot_facts_of
from trafficdp.context.read import place_names
from trafficdp.export.files import disclosure as files_disclosure
from trafficdp.ingest.report import RULES
from trafficdp.mechanisms import protocol, publish, simulated_cities
from trafficdp.planner.allocation import Allocation, assess_utility
from trafficdp.privacy import disclosure as privacy_disclosure
from trafficdp.privacy import release
from trafficdp.privacy.budget import BudgetChange, BudgetPolicy
from trafficdp.privacy.estimate import NOISE_COLUMNS, BinStatus, Estimate, RefusalRule
from trafficdp.privacy.ledger import canonical
from trafficdp.store.vault_fixes import DataVersion


def source_facts(declaration: str, name: str, speed: str) -> privacy_disclosure.RecordSource:
    """Return the manifest's entry on the source of records ``name``.

    ``declaration`` is how the source was declared, as the vault's JSON; ``speed`` is "reported", "derived" or
    "mixed".
    """
    facts: Mapping[str, Any] = json.loads(declaration)
    rules = [f"rejected when {text}" for text in RULES.values()]
    return privacy_disclosure.RecordSource(
        name=name,
        format=str(facts["format"]),
        units=tuple(
            privacy_disclosure.DeclaredUnit(
                unit=model.SpeedUnit(each["unit"]).label, first=each["first"], last=each["last"]
            )
            for each in facts["units"]
        ),
        cleaning=(
            *rules,
            "the same vehicle and instant in a later file is left out",
            "speeds are never a reason to drop a row",
        ),
        speed=speed,
    )


@dataclass(frozen=True)
class ListedBins:
    """The G bins that a release lists, shape (G,) each: place, slot, exact vehicles and records."""

    cell: CellArray
    slot: IntArray
    vehicles: IntArray
    records: IntArray


def assemble_release(
    specification: Specification,
    bins: ListedBins,
    keep: BoolArray,
    estimates: Mapping[model.Statistic, Estimate],
    ledger: release.LedgerReference,
) -> release.Release:
    """Return the release over all listed ``bins``, withheld ones included.

    ``keep`` (G,) marks the bins with numbers; ``estimates`` are over those alone, and are filled up with NaN
    and the status "withheld".
    """

    def over_all(values: npt.NDArray[Any], withheld: object = None) -> npt.NDArray[Any]:
        # NaN, or what is said instead, where nothing was estimated
        if withheld is None:
            full = np.full(len(keep), np.nan)
        else:
            full = np.full(len(keep), withheld, dtype=np.int64 if isinstance(withheld, int) else object)
        full[keep] = values
        return full

    spread = {
        statistic: Estimate(
            statistic=each.statistic,
            value=over_all(each.value),
            low=over_all(each.low),
            high=over_all(each.high),
            noise_scale=over_all(each.noise_scale),
            expected_error=over_all(each.expected_error),
            status=over_all(each.status, BinStatus.WITHHELD.value),
            noise={name: over_all(own, NOISE_COLUMNS[name].withheld) for name, own in each.noise.items()},
            posterior={name: over_all(own) for name, own in each.posterior.items()},
        )
        for statistic, each in estimates.items()
    }
    status = publish.bin_status(keep, [estimate.status for estimate in estimates.values()])
    # where nothing about a vehicle is public, statuses follow from what was drawn
    coverage = replace(specification.disclosure.coverage, bins=privacy_disclosure.BinNumbers.of(status))
    vehicles = records = None
    if specification.request.publish_counts:
        noise = next(iter(spread.values())).noise
        if "vehicles_answer" in noise:
            vehicles, records = (np.rint(noise[name]).astype(np.int64) for name in ("vehicles", "records"))
        else:
            vehicles, records = bins.vehicles, bins.records
    return release.Release(
        id=specification.release_id,
        created_at=specification.created_at,
        grid=specification.grid,
        request=specification.request,
        cell=bins.cell,
        slot=bins.slot,
        status=status,
        place=place_names(bins.cell, specification.grid.context, specification.grid.zones),
        vehicles=vehicles,
        records=records,
        estimates=spread,
        slots=slot_facts_of(specification.grid, np.unique(bins.slot)),
        ledger=ledger,
        disclosure=replace(specification.disclosure, coverage=coverage),
    )


@dataclass(frozen=True)
class Specification:
    """All that a charge freezes, so that its noise can be drawn later, once, without planning again.

    ``cell`` and ``slot`` are the bins that get numbers, shape (G,). Where nothing about a vehicle is public
    these are all that ``grid`` declares, and not written down. ``calibrated`` is the mechanism as its
    ``to_facts`` wrote it. ``ingest_id`` and ``data_version`` pin the data. ``disclosure`` is the manifest
    without ledger and files.
    """

    release_id: str
    created_at: datetime
    grid: model.Grid
    request: model.MapRequest
    ingest_id: int
    data_version: str
    cell: Annotated[CellArray, model.Coded(np.ndarray.tolist, partial(np.asarray, dtype=np.uint64))]
    slot: Annotated[IntArray, model.Coded(np.ndarray.tolist, partial(np.asarray, dtype=np.int64))]
    calibrated: Annotated[Mapping[str, Any], model.Coded(dict, dict)]
    disclosure: privacy_disclosure.Disclosure

    @property
    def relation(self) -> model.NeighbouringRelation:
        """The neighbouring relation under which the release is private."""
        return model.NeighbouringRelation(self.disclosure.unit.neighbouring_relation)

    @property
    def numbers_sha256(self) -> str:
        """``numbers_digest`` of what is specified."""
        return numbers_digest(self.grid, self.request, self.cell, self.slot, self.calibrated)

    def bins_kept(self, counts: model.Counts) -> BoolArray:
        """Return which bins of ``counts`` get numbers, shape (G,).

        Those with at least ``min_vehicles`` vehicles that the grid lets be published.
        """
        return (counts.users_per_bin >= self.request.min_vehicles) & self.grid.may_publish(
            counts.cell, counts.slot
        )

    def public_facts(self, counts: model.Counts) -> protocol.PublicFacts:
        """Return what the mechanism may know: ``counts``, speed bound and neighbouring relation."""
        return protocol.PublicFacts(counts, self.request.bound, self.relation)

    def to_json(self) -> str:
        """Return the canonical JSON text; floats keep every bit."""
        facts = model.as_json(self)
        if self.relation.hides_presence:
            del facts["cell"], facts["slot"]
        return canonical(facts)

    @classmethod
    def from_json(cls, text: str | bytes) -> Specification:
        """Return the specification that ``to_json`` wrote."""
        facts: dict[str, Any] = json.loads(text)
        found = model.from_json(cls, {"cell": [], "slot": [], **facts})
        if "cell" in facts:
            return found
        cell, slot = declared_bins(found.grid)
        return replace(found, cell=cell, slot=slot)


LIMITS = {
    RefusalRule.SKILL: 1 - simulated_cities.LEAST_SKILL,
    RefusalRule.INTERVAL: 1.0,
    RefusalRule.RANK: publish.MOST_SPANNED,
}
"""The threshold of every rule, as a share of what it names."""


@dataclass(frozen=True)
class ReleaseContext:
    """What a release is about besides its numbers. ``question`` is the SQL it answers, if it does.

    ``budget_changes``: how the store's promise was changed before, in order.
    """

    publisher: str
    place: str
    grid: model.Grid
    budget: BudgetPolicy
    data_version: DataVersion
    sources: tuple[privacy_disclosure.RecordSource, ...]
    created_at: datetime
    question: str | None = None
    budget_changes: tuple[BudgetChange, ...] = ()
    catalogue: model.CatalogueEntry = model.NO_CATALOGUE_ENTRY


def build_specification(
    context: ReleaseContext,
    allocation: Allocation,
    counts: model.Counts,
    release_id: str,
    spent_before: int,
) -> Specification:
    """Return the specification that freezes ``allocation``; ``counts`` is that of all bins.

    ``spent_before`` is the sum of the maxima of all charges before this one, in 10^-12 of their kind.
    """
    request, calibrated = allocation.request, allocation.calibrated
    hidden = request.relation.hides_presence
    capped = "a vehicle's whole vector is" if hidden else "counts are not capped"
    tuning = files_disclosure.TUNING_OF_DECLARED if hidden else files_disclosure.TUNING_DATA
    verdict = assess_utility(allocation)
    # of one number for the city, of the range, of the vehicles
    limit = LIMITS[verdict.rule]
    skill = {}
    # an answer is no map
    if not context.question:
        skill = {
            statistic: each.stated(request.factor(statistic)) for statistic, each in allocation.skill.items()
        }
    # how many bins get which status follows from counts and calibrated mechanism alone
    if allocation.rank_widths:
        each_useless = [publish.rank_uninformative(each) for each in allocation.rank_widths.values()]
    else:
        errors = calibrated.expected_errors()
        each_useless = [publish.is_uninformative(errors[each], each, request.bound) for each in errors]
    total, kept = len(allocation.keep), int(np.count_nonzero(allocation.keep))
    marked = int(np.count_nonzero(np.all(each_useless, axis=0)))
    frozen = specification_without_bins(
        context,
        release_id,
        calibrated=calibrated.to_facts(),
        bins=privacy_disclosure.BinNumbers(
            total=total, released=kept - marked, constant=0, withheld=total - kept, uninformative=marked
        ),
        bounds=files_disclosure.bounds_of(
            request.bound,
            f"speeds are clipped to the range, never dropped; {capped}",
            None if hidden else int(counts.bins_per_user.max()),
            None if hidden else int(counts.largest_count_per_bin.max()),
        ),
        charge=files_disclosure.Charge(
            relation=allocation.event.relation,
            loss=allocation.loss,
            sum_before=type(allocation.loss)(spent_before),
            budget=context.budget,
            composition=allocation.composition,
            budget_changes=context.budget_changes,
            vehicles=allocation.vehicles,
        ),
        noise=files_disclosure.Noise(
            request=request.map_request,
            statements={each: calibrated.statement(each) for each in calibrated.statistics},
            noise=model.from_json(privacy_disclosure.NoiseStated, calibrated.manifest_facts()),
            tuning_data=f"{tuning} ({allocation.reason})",
            tolerance=request.tolerance,
            skill=skill,
        ),
        verdict=files_disclosure.Verdict(
            forced=verdict.refused,
            threshold=limit,
            value=verdict.value * limit / verdict.threshold,
            rule=verdict.rule,
        ),
    )
    return replace(frozen, cell=allocation.counts.cell, slot=allocation.counts.slot)


def specification_without_bins(
    context: ReleaseContext,
    release_id: str,
    *,
    calibrated: Mapping[str, Any],
    bins: privacy_disclosure.BinNumbers,
    bounds: privacy_disclosure.Bounds,
    charge: files_disclosure.Charge,
    noise: files_disclosure.Noise,
    verdict: files_disclosure.Verdict,
) -> Specification:
    """Return a specification made of its parts, with empty ``cell`` and ``slot``.

    A map adds its bins; a stream gets them with its publications.
    """
    return Specification(
        release_id=release_id,
        created_at=context.created_at,
        grid=context.grid,
        request=noise.request,
        ingest_id=context.data_version.ingest_id,
        data_version=context.data_version.name,
        cell=np.zeros(0, dtype=np.uint64),
        slot=np.zeros(0, dtype=np.int64),
        calibrated=calibrated,
        disclosure=files_disclosure.disclosure(
            identity=privacy_disclosure.Identity(
                release=release_id,
                publisher=context.publisher,
                software=privacy_disclosure.Software(name="trafficdp", version=version("trafficdp")),
                created_at=model.rfc3339(context.created_at, model.zone_of(context.grid.period.time_zone)),
                supersedes=None,
                question=context.question,
            ),
            coverage=files_disclosure.coverage_of(
                context.grid, noise.request, context.place, charge.relation, bins
            ),
            data=privacy_disclosure.Data(sources=context.sources, data_version=context.data_version.name),
            bounds=bounds,
            charge=charge,
            noise=noise,
            verdict=verdict,
            catalogue=context.catalogue,
        ),
    )


def numbers_digest(
    grid: model.Grid,
    request: model.MapRequest,
    cell: CellArray,
    slot: IntArray,
    calibrated: Mapping[str, Any],
) -> str:
    """Return the SHA-256 (hexadecimal) of all that decides the numbers of a release but the data.

    That is the grid, the request, the bins ``cell`` and ``slot`` (G,) in their order, and ``calibrated``, the
    mechanism with its noise scales as its ``to_facts`` returns it. From public facts alone.
    """
    facts = {
        "grid": grid.key,
        "request": model.as_json(request),
        "calibrated": calibrated,
    }
    digest = hashlib.sha256(canonical(facts).encode())
    digest.update(cell.astype("<u8").tobytes())
    digest.update(slot.astype("<i8").tobytes())
    return digest.hexdigest()
