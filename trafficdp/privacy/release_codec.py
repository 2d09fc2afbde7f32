"""A release (and a grid) as JSON and Arrow, and back, without losing a bit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from trafficdp.model.context import ContextLayer
from trafficdp.model.grid import EVERYTHING, DayPart, Grid, Mosaic, Period, Place, Selection, StudyArea
from trafficdp.model.json_codec import as_json, from_json
from trafficdp.model.slot import SlotKind
from trafficdp.model.speed import ContributionBound, SpeedUnit, Statistic
from trafficdp.model.zones import Zones
from trafficdp.privacy.disclosure import Disclosure
from trafficdp.privacy.estimate import POSTERIOR_CHANCES, POSTERIOR_SPEEDS, Estimate
from trafficdp.privacy.noise_column import NOISE_COLUMNS
from trafficdp.privacy.release import LedgerReference, Release, SlotFacts

_ARRAYS = (
    "value",
    "low",
    "high",
    "noise_scale",
    "expected_error",
    "status",
)


def grid_to_facts(grid: Grid) -> dict[str, Any]:
    """Return ``grid`` as plain JSON values."""
    facts: dict[str, Any] = {
        "resolution": grid.resolution,
        "slot_kind": grid.slot_kind.value,
        "area": shapely.to_wkb(grid.area.geometry, hex=True),
        "first": grid.period.first.isoformat(),
        "last": grid.period.last.isoformat(),
        "time_zone": grid.period.time_zone,
        "day_parts": [[part.name, part.first_hour, part.end_hour] for part in grid.day_parts],
    }
    if not grid.selection.everything:
        facts["selection"] = selection_to_facts(grid.selection)
    if grid.mosaic is not None:
        facts["mosaic"] = grid.mosaic.to_facts()
    if grid.zones is not None:
        facts["zones"] = grid.zones.to_facts()
    if grid.context:
        facts["context"] = [layer.to_facts() for layer in grid.context]
    return facts


def grid_from_facts(facts: Mapping[str, Any]) -> Grid:
    """Return the grid that ``grid_to_facts`` wrote."""
    return Grid(
        resolution=facts["resolution"],
        slot_kind=SlotKind(facts["slot_kind"]),
        area=StudyArea(shapely.from_wkb(facts["area"])),
        period=Period(
            date.fromisoformat(facts["first"]), date.fromisoformat(facts["last"]), facts["time_zone"]
        ),
        day_parts=tuple(DayPart(*part) for part in facts["day_parts"]),
        selection=selection_from_facts(facts["selection"]) if "selection" in facts else EVERYTHING,
        mosaic=Mosaic.from_facts(**facts["mosaic"]) if "mosaic" in facts else None,
        context=tuple(ContextLayer.from_facts(layer) for layer in facts.get("context", ())),
        zones=Zones.from_facts(facts["zones"]) if "zones" in facts else None,
    )


def selection_to_facts(selection: Selection) -> dict[str, Any]:
    """Return ``selection`` as plain JSON values."""
    return {
        "hours_of_week": None if selection.hours_of_week is None else list(selection.hours_of_week),
        "places": [
            [{"name": place.name, "area": shapely.to_wkb(place.area.geometry, hex=True)} for place in clause]
            for clause in selection.places
        ],
        "cells": None if selection.cells is None else [format(cell, "x") for cell in selection.cells],
    }


def selection_from_facts(facts: Mapping[str, Any]) -> Selection:
    """Return the selection that ``selection_to_facts`` wrote."""
    hours, cells = facts["hours_of_week"], facts["cells"]
    return Selection(
        hours_of_week=None if hours is None else tuple(hours),
        places=tuple(
            tuple(Place(each["name"], StudyArea(shapely.from_wkb(each["area"]))) for each in clause)
            for clause in facts["places"]
        ),
        cells=None if cells is None else tuple(int(cell, 16) for cell in cells),
    )


def bound_to_facts(bound: ContributionBound) -> dict[str, str]:
    """Return ``bound`` as plain JSON values."""
    return {"upper": str(bound.upper), "step": str(bound.step), "unit": bound.unit.value}


def bound_from_facts(facts: Mapping[str, str]) -> ContributionBound:
    """Return the bound that ``bound_to_facts`` wrote."""
    return ContributionBound(Fraction(facts["upper"]), Fraction(facts["step"]), SpeedUnit(facts["unit"]))


def encode(release: Release) -> tuple[dict[str, Any], bytes]:
    """Return (facts, arrays): plain JSON values, and an Arrow IPC stream with the rows of ``release``."""
    facts = {
        "id": release.id,
        "created_at": release.created_at.isoformat(),
        "grid": grid_to_facts(release.grid),
        "bound": bound_to_facts(release.bound),
        "display_unit": release.display_unit.value,
        "interval_level": release.interval_level,
        "min_vehicles": release.min_vehicles,
        "statistics": [statistic.value for statistic in release.estimates],
        "slots": [[slot, x.label, x.start, x.end] for slot, x in sorted(release.slots.items())],
        "ledger": {"sequence": release.ledger.sequence, "head_hash": release.ledger.head_hash},
        "disclosure": as_json(release.disclosure),
    }
    columns: dict[str, Any] = {
        "cell": pa.array(release.cell, pa.uint64()),
        "slot": pa.array(release.slot, pa.int64()),
        "status": pa.array(list(release.status), pa.string()),
        "place": pa.array(list(release.place), pa.string()),
    }
    for name, counts in (("vehicles", release.vehicles), ("records", release.records)):
        if counts is not None:
            columns[name] = pa.array(counts, pa.int64())
    for statistic, estimate in release.estimates.items():
        for name in _ARRAYS:
            values = getattr(estimate, name)
            columns[f"{statistic.value}:{name}"] = pa.array(list(values) if name == "status" else values)
        for name, values in {**estimate.noise, **estimate.posterior}.items():
            columns[f"{statistic.value}:{name}"] = pa.array(values)
    return facts, _written(pa.table(columns), "zstd")


def same_arrays(one: bytes, other: bytes) -> bool:
    """Return whether two arrays of ``encode`` hold the same to the bit, however they were packed."""
    first, second = (pa.ipc.open_stream(each).read_all().combine_chunks() for each in (one, other))
    return _written(first, None) == _written(second, None)


def _written(table: pa.Table, compression: str | None) -> bytes:
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode(facts: Mapping[str, Any], arrays: bytes) -> Release:
    """Return the release that ``encode`` wrote."""
    with pa.ipc.open_stream(arrays) as reader:
        table = reader.read_all()
    present = set(table.column_names)
    return Release(
        id=facts["id"],
        created_at=datetime.fromisoformat(facts["created_at"]),
        grid=grid_from_facts(facts["grid"]),
        bound=bound_from_facts(facts["bound"]),
        display_unit=SpeedUnit(facts["display_unit"]),
        interval_level=facts["interval_level"],
        min_vehicles=facts["min_vehicles"],
        cell=_numbers(table, "cell"),
        slot=_numbers(table, "slot"),
        status=_texts(table, "status"),
        place=_texts(table, "place"),
        vehicles=_numbers(table, "vehicles") if "vehicles" in present else None,
        records=_numbers(table, "records") if "records" in present else None,
        estimates={Statistic(name): _estimate(table, Statistic(name)) for name in facts["statistics"]},
        slots={slot: SlotFacts(label, start, end) for slot, label, start, end in facts["slots"]},
        ledger=LedgerReference(facts["ledger"]["sequence"], facts["ledger"]["head_hash"]),
        disclosure=from_json(Disclosure, facts["disclosure"]),
    )


def _estimate(table: pa.Table, statistic: Statistic) -> Estimate:
    arrays: dict[str, Any] = {
        name: (_texts if name == "status" else _numbers)(table, f"{statistic.value}:{name}")
        for name in _ARRAYS
    }
    present = set(table.column_names)
    noise, posterior = (
        {
            name: _numbers(table, f"{statistic.value}:{name}")
            for name in names
            if f"{statistic.value}:{name}" in present
        }
        for names in (NOISE_COLUMNS, (*POSTERIOR_SPEEDS, *POSTERIOR_CHANCES))
    )
    return Estimate(statistic=statistic, noise=noise, posterior=posterior, **arrays)


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column: npt.NDArray[Any] = table.column(name).to_numpy()
    return column


def _texts(table: pa.Table, name: str) -> npt.NDArray[np.object_]:
    return np.array(table.column(name).to_pylist(), dtype=object)
