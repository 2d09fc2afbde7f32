"""The rows of an answer: the published numbers of its release, and counts, which are public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.binning.slots import slot_facts
from trafficdp.config.settings import Config
from trafficdp.context.names import place_names
from trafficdp.errors import UsageError
from trafficdp.export.files.query_result import result_bytes
from trafficdp.model import Counts, Grid, Place, SpeedUnit, Zones
from trafficdp.privacy.loss import Loss
from trafficdp.privacy.release import DECIMALS, Release, published_frame
from trafficdp.query.columns import Column, End, Kind
from trafficdp.query.filter import zones_of
from trafficdp.query.question import Question
from trafficdp.store.analyst import AnalystSession
from trafficdp.store.released import RELEASED_NAME

COUNTED = "counted"
"""Status of a bin in an answer that holds counts alone."""
_TEXTS = (Kind.PLACE, Kind.SLOT_LABEL, Kind.SLOT_START, Kind.SLOT_END, Kind.STATUS)


@dataclass(frozen=True)
class Answered:
    """What a question gave: its rows, and the release they come from.

    ``release`` is None when nothing noisy was asked. ``charged`` is the largest loss of any vehicle, 0 when
    nothing was charged; ``earlier`` says that an earlier release held the answer. ``notes`` are what a
    reader must know. ``zones`` are those of the configured map.
    """

    rows: pa.Table
    release: Release | None
    charged: Loss
    earlier: bool
    notes: tuple[str, ...]
    zones: Zones | None = None

    @property
    def release_id(self) -> str | None:
        """Name of the release, under which the answer is kept."""
        return None if self.release is None else self.release.id

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a data frame."""
        frame: pd.DataFrame = self.rows.to_pandas()
        return frame

    def to_geodataframe(self) -> Any:  # noqa: ANN401 - geopandas carries no types
        """Return the rows with the hexagons of their column h3 (or cell, hex_id) as geometry, in WGS84.

        Raises UsageError where no column holds hexagons.
        """
        # it takes longer to import than most commands to run
        import geopandas

        return geopandas.read_file(BytesIO(result_bytes(self.rows, "geojson", self.zones)))


def of_released(store: Path, text: str, nothing: Loss, zones: Zones | None) -> Answered:
    """Return what any SQL reads from the released maps of ``store``; it costs ``nothing``.

    Raises as ``AnalystSession``.
    """
    with AnalystSession.open(store / RELEASED_NAME) as session:
        notes = ("asked of what is released: free",)
        return Answered(session.run(text), None, nothing, False, notes, zones)


def names_of_places(config: Config, store: Path) -> Mapping[str, int | Place]:
    """Return the zone, or the H3 cell, of every name in lower case. Public: names are of maps alone.

    Raises UsageError where an area of the configuration is called as a zone is.
    """
    if config.grid.zones is not None:
        places = {place.name.casefold(): place for place in zones_of(config.grid)}
        twice = sorted(name for name in config.areas if name.casefold() in places)
        if twice:
            raise UsageError(
                "an area and a zone have one name",
                got=twice[0],
                todo="give the area of [[areas]] another name",
            )
        return places
    if not (store / RELEASED_NAME).exists():
        return {}
    with AnalystSession.open(store / RELEASED_NAME) as session:
        rows = session.run("SELECT DISTINCT place, cell FROM latest_cells WHERE resolution IS NOT NULL")
    columns = rows.column("place").to_pylist(), rows.column("cell").to_pylist()
    return {place.casefold(): int(cell) for place, cell in zip(*columns, strict=True)}


def rows_of(
    question: Question, grid: Grid, counts: Counts, release: Release | None, unit: SpeedUnit
) -> pa.Table:
    """Return the columns of ``question``, ordered and limited as it asks; numbers are in ``unit``.

    ``counts`` has all bins of ``grid``, which are those of ``release``.
    """
    frame = _counted(grid, counts) if release is None else published_frame(release)
    if release is not None:
        frame = _with_noisy_counts(frame.drop(columns=["vehicles", "records"]), release)
    arrays = [_array(column, frame, counts, unit) for column in question.columns]
    table = pa.table(arrays, names=[column.name for column in question.columns])
    if question.having is not None:
        looked_at = {
            each: _array(Column(each.kind, each.end, "", each.digits), frame, counts, unit)
            for each in question.having.meanings()
        }
        # a row of which it is unknown is left out, as in SQL
        table = table.filter(question.having.meets(looked_at))
    if question.order:
        keys = [
            (table.column_names[place - 1], "descending" if down else "ascending")
            for place, down in question.order
        ]
        # what has no number comes last, either way
        table = table.take(pc.sort_indices(table, sort_keys=keys))
    return table if question.limit is None else table.slice(0, question.limit)


def _counted(grid: Grid, counts: Counts) -> pd.DataFrame:
    """What is public of every bin, with the names of the published table."""
    facts = slot_facts(counts.slot, grid.slot_kind, grid.period, grid.day_parts)
    labels = [facts[slot] for slot in counts.slot.tolist()]
    return pd.DataFrame(
        {
            "h3": pd.Series(grid.spelled(counts.cell), dtype="str"),
            "place": pd.Series(place_names(counts.cell, grid.context, grid.zones), dtype="str"),
            "slot": counts.slot,
            "slot_label": pd.Series([each.label for each in labels], dtype="str"),
            "slot_start": pd.Series([each.start for each in labels], dtype="str"),
            "slot_end": pd.Series([each.end for each in labels], dtype="str"),
            "status": pd.Series([COUNTED] * counts.bins, dtype="str"),
        }
    )


def _with_noisy_counts(frame: pd.DataFrame, release: Release) -> pd.DataFrame:
    """The published table with the counts that were measured, ends of intervals outward, if any were."""
    noise = next(iter(release.estimates.values())).noise
    rounding = {"": np.rint, "_low": np.floor, "_high": np.ceil}
    found = {
        name + end: towards(noise[name + end]).astype(np.int64)
        for name in ("vehicles", "records")
        if name in noise
        for end, towards in rounding.items()
    }
    return frame.assign(**found)


def _array(column: Column, frame: pd.DataFrame, counts: Counts, unit: SpeedUnit) -> pa.Array:
    kind = column.kind
    if kind is Kind.CELL or kind in _TEXTS:
        texts = frame["h3" if kind is Kind.CELL else kind.value]
        return pa.array([None if pd.isna(text) else str(text) for text in texts], pa.string())
    if kind.of_clock:
        return pa.array([_clock(kind, label) for label in frame["slot_label"].tolist()])
    if kind is Kind.SLOT:
        return pa.array(frame["slot"].to_numpy(dtype=np.int64))
    if kind.counts:
        name = "records" if kind is Kind.FIXES else "vehicles"
        if name + column.end.value in frame:
            return pa.array(frame[name + column.end.value].to_numpy(dtype=np.int64))
        return pa.array(counts.samples_per_bin if kind is Kind.FIXES else counts.users_per_bin)
    statistic = kind.statistic
    stem = "" if statistic is None else statistic.column(unit)
    if column.end.of_rank:
        return pa.array(frame[stem + column.end.value], pa.int64(), from_pandas=True)
    numbers = frame[stem + column.end.value].to_numpy(dtype=np.float64)
    if kind is Kind.STDDEV:
        numbers = _root(numbers, column.end)
    if column.digits is None:
        return pa.array(numbers, from_pandas=True)
    shown = pa.array(_rounded(numbers, column.end, column.digits), from_pandas=True)
    return shown if column.digits else shown.cast(pa.int64())


def _clock(kind: Kind, label: str) -> int | str:
    """Return the part of the local time in a label such as "2026-03-02 07:00 +01:00" or "07:00-08:00"."""
    if kind is Kind.HOUR:
        return int(label[11:13] if label[4] == "-" else label[:2])
    return label[:10] if kind is Kind.DATE else label.lower()


def _rounded(numbers: npt.NDArray[np.float64], end: End, digits: int) -> npt.NDArray[np.float64]:
    """Return numbers of DECIMALS decimals with ``digits``: values to nearest, ends of intervals outward."""
    if digits >= DECIMALS:
        return numbers
    scale = 10.0**digits
    # what is published has DECIMALS decimals: a hair less than half of the last cannot change the step
    hair = 0.1 ** (DECIMALS + 1) * scale
    if end is End.VALUE:
        return np.round(numbers * scale) / scale
    return (np.floor(numbers * scale + hair) if end is End.LOW else np.ceil(numbers * scale - hair)) / scale


def _root(variance: npt.NDArray[np.float64], end: End) -> npt.NDArray[np.float64]:
    """Return square roots to DECIMALS: values to nearest, ends of intervals outward."""
    scale = 10.0**DECIMALS
    root = np.sqrt(np.maximum(variance, 0.0)) * scale
    if end is End.VALUE:
        return np.round(root) / scale
    # a hair outward first: the root of a square may come out just past it
    return (np.floor(root * (1 - 1e-15)) if end is End.LOW else np.ceil(root * (1 + 1e-15))) / scale
