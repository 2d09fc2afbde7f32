"""What leaves the curator: noisy numbers with everything that must be said about them, kept to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.arrays import CellArray, FloatArray, IntArray
from trafficdp.model import grid as model_grid
from trafficdp.model.json_codec import as_json, from_json
from trafficdp.model.speed import QUANTILES, MapRequest, SpeedUnit, Statistic
from trafficdp.privacy import estimate as privacy_estimate
from trafficdp.privacy.disclosure import Disclosure, MechanismStated

if TYPE_CHECKING:
    import pandas as pd


# What leaves the curator: noisy numbers with everything that must be said about them, and their table.
#
# The published table has one row a bin, in display units, rounded outward. Every file and `released.duckdb`
# are written from it and nothing else, so they cannot disagree.


@dataclass(frozen=True)
class SlotFacts:
    """What a slot number means: label, and RFC 3339 start and end with offset (None when it recurs)."""

    label: str
    start: str | None
    end: str | None


@dataclass(frozen=True)
class LedgerReference:
    """Where in the ledger a release stands: number of its charge and the chain's hash at it."""

    sequence: int
    head_hash: str


@dataclass(frozen=True)
class Release:
    """A private map. Bins (shape (G,)) are all bins that any vehicle visited, sorted by cell, then slot.

    ``place`` names the hexagon of every bin in words, by public layers alone.
    ``vehicles`` and ``records`` are counts a bin, None unless ``publish_counts`` was chosen.
    ``slots`` explains every slot number that occurs. ``disclosure`` is what was fixed when
    the charge was committed; the manifest adds the files.
    """

    id: str
    created_at: datetime
    grid: model_grid.Grid
    request: MapRequest
    cell: CellArray
    slot: IntArray
    status: npt.NDArray[np.object_]
    place: npt.NDArray[np.object_]
    vehicles: IntArray | None
    records: IntArray | None
    estimates: Mapping[Statistic, privacy_estimate.Estimate]
    slots: Mapping[int, SlotFacts]
    ledger: LedgerReference
    disclosure: Disclosure
    _table: list[pd.DataFrame] = field(default_factory=list, init=False, repr=False, compare=False)
    """What ``published_frame`` made, of a small map."""

    @property
    def bins(self) -> int:
        """The number of bins, withheld ones included."""
        return len(self.cell)

    def mechanism_stated(self, statistic: Statistic) -> MechanismStated:
        """Return how ``statistic`` was made noisy, as the manifest states it."""
        names = {statistic.column(unit) for unit in SpeedUnit}
        return next(each for each in self.disclosure.mechanisms if each.statistic in names)


DECIMALS = 3
"""Digits after the point of published values, in the display unit."""
KEPT_BINS = 100_000
"""A table of more is made anew for every file, and not held in memory between them."""


def outward_down(ends: FloatArray, digits: int = DECIMALS) -> FloatArray:
    """Return lower ends of intervals rounded down to ``digits`` after the decimal point; never minus zero."""
    return np.asarray(np.floor(ends * 10.0**digits) / 10.0**digits + 0.0)


def outward_up(ends: FloatArray, digits: int = DECIMALS) -> FloatArray:
    """Return upper ends of intervals rounded up to ``digits`` after the decimal point; never minus zero."""
    return np.asarray(np.ceil(ends * 10.0**digits) / 10.0**digits + 0.0)


def published_frame(release: Release) -> pd.DataFrame:
    """Return the table of ``release``: G rows, sorted by cell, then slot.

    Columns: ``hex_id`` (hexadecimal text; the number of a zone), ``place`` (its name), ``resolution`` (none
    of zones), ``slot``, ``slot_kind``, ``slot_label``, ``slot_start``, ``slot_end``, ``status``,
    ``vehicles``, ``records``, then for every statistic, with stem and unit as in ``speed_mean_kmh``: the
    value, ``_low``, ``_high``, ``_noise_scale``, ``_expected_error``, of a quantile ``_rank_low`` and
    ``_rank_high``, where there is a posterior what else it says (POSTERIOR_SPEEDS); and by stem alone its
    chances (POSTERIOR_SHARES), ``_status`` and ``_interval_kind``.

    Values are rounded to DECIMALS to the nearest, ``_low`` down and ``_high``, ``_noise_scale`` and
    ``_expected_error`` up, so that an interval is never narrowed. Withheld numbers are NaN.
    """
    import pandas as pd

    if release._table:
        return release._table[0].copy()
    cells, cell = np.unique(release.cell, return_inverse=True)
    slots, slot = np.unique(release.slot, return_inverse=True)
    labels = [release.slots[int(each)] for each in slots]
    own = release.grid.slot_kind
    zones = release.grid.zones is not None
    resolution = np.full(release.bins, release.grid.resolution or 0, dtype=np.int64)
    if release.grid.mosaic is not None:
        resolution = model_grid.resolution_of(release.cell)
    kinds = np.full(release.bins, own.value, dtype=object)
    if release.grid.mosaic is not None:
        kinds[:] = [kind.value for kind in model_grid.slot_kinds_of(release.slot, own)]
    counts = {
        name: pd.Series([None] * release.bins if each is None else each, dtype="Int64")
        for name, each in (("vehicles", release.vehicles), ("records", release.records))
    }
    columns: dict[str, object] = {
        "hex_id": _texts(cell, release.grid.spelled(cells)),
        "place": _texts(*pd.factorize(release.place)),
        "resolution": pd.Series([None] * release.bins, dtype="Int64") if zones else resolution,
        "slot": release.slot,
        "slot_kind": _texts(*pd.factorize(kinds)),
        "slot_label": _texts(slot, [facts.label for facts in labels]),
        "slot_start": _texts(slot, [facts.start for facts in labels]),
        "slot_end": _texts(slot, [facts.end for facts in labels]),
        "status": _texts(*pd.factorize(release.status)),
        **counts,
    }
    for statistic in Statistic:
        if statistic in release.estimates:
            estimate = release.estimates[statistic]
            columns |= statistic_columns(estimate, release.request)
            there = np.where(np.isnan(estimate.low), -1, 0)
            kind = _texts(there, [release.mechanism_stated(statistic).interval_kind])
            columns[f"{statistic.stem}_interval_kind"] = kind
    table = pd.DataFrame(columns)
    if release.bins > KEPT_BINS:
        return table
    release._table[:] = [table]
    return table.copy()


def quantiles_frame(release: Release) -> pd.DataFrame:
    """Return the quantiles of ``release``: a row a bin and quantile, sorted by cell, slot and quantile.

    Columns: ``hex_id``, ``cell``, ``slot``, ``quantile``, ``speed``, ``rank_low``, ``rank_high``, ``status``
    and ``epsilon`` (what the mechanism was given for it in the bin; NaN: none published).
    ``quantile`` is 0.5 for the median; ``rank_low`` and ``rank_high`` number the bin's vehicles from the
    slowest. Rounded as in ``published_frame``; no rows where there are no quantiles.
    """
    import pandas as pd

    own = sorted((each for each in QUANTILES if each in release.estimates), key=lambda each: QUANTILES[each])
    row = np.repeat(np.arange(release.bins), len(own))
    table: dict[str, object] = {}
    for each in own:
        table |= statistic_columns(release.estimates[each], release.request)

    def beside(part: str, of: str, dtype: str) -> pd.Series:
        names = [
            f"{each.stem if of == 'stem' else each.column(release.request.display_unit)}{part}"
            for each in own
        ]
        return pd.Series(pd.DataFrame(table)[names].to_numpy(dtype=object).ravel(), dtype=dtype)

    cells, cell = np.unique(release.cell, return_inverse=True)
    given = [release.estimates[each].noise.get("epsilon", np.full(release.bins, np.nan)) for each in own]
    return pd.DataFrame(
        {
            "hex_id": _texts(cell[row], release.grid.spelled(cells)),
            "cell": release.cell[row],
            "slot": release.slot[row],
            "quantile": np.tile([float(QUANTILES[each]) for each in own], release.bins),
            "speed": beside("", "column", "float64"),
            "rank_low": beside("_rank_low", "column", "Int64"),
            "rank_high": beside("_rank_high", "column", "Int64"),
            "status": beside("_status", "stem", "str"),
            "epsilon": np.array(given, dtype=np.float64).T.ravel(),
        }
    )


def mechanism_frame(release: Release) -> pd.DataFrame:
    """Return how the noise of ``release`` was drawn, exactly: G rows as in ``published_frame``.

    Columns: ``hex_id``, ``slot``, and by every statistic's stem ``_status`` and the noise columns
    (``_lattice_scale`` and so on, NOISE_COLUMNS). Anyone with the counts can price the release from them;
    nobody needs them to read it.
    """
    import pandas as pd

    cells, cell = np.unique(release.cell, return_inverse=True)
    columns: dict[str, object] = {
        "hex_id": _texts(cell, release.grid.spelled(cells)),
        "slot": release.slot,
    }
    for statistic in Statistic:
        if statistic in release.estimates:
            estimate = release.estimates[statistic]
            columns[f"{statistic.stem}_status"] = _texts(*pd.factorize(estimate.status))
            columns |= {f"{statistic.stem}_{name}": values for name, values in estimate.noise.items()}
    return pd.DataFrame(columns)


def _texts(place: IntArray, different: Sequence[Any] | npt.NDArray[np.object_]) -> pd.Series:
    """The texts ``different[place]``: a column of millions of rows says few of them."""
    import pandas as pd

    return pd.Series(pd.array(different, dtype="str").take(place, allow_fill=True))


def statistic_columns(estimate: privacy_estimate.Estimate, request: MapRequest) -> dict[str, object]:
    """Return the published columns of one statistic by name, shape (G,) each, in the unit that is shown."""
    import pandas as pd

    factor, display = request.factor(estimate.statistic), request.display_unit
    name, stem = estimate.statistic.column(display), estimate.statistic.stem
    value = np.round(estimate.value * factor * 10.0**DECIMALS) / 10.0**DECIMALS
    there = ~np.isnan(estimate.value)
    ranks: dict[str, object] = {
        f"{name}_{end}": pd.Series(estimate.noise[end], dtype="Int64").where(there)
        for end in ("rank_low", "rank_high")
        if end in estimate.noise
    }
    # what else a posterior says: ends of intervals outward, all else to DECIMALS
    beside: dict[str, object] = {}
    for each in (*privacy_estimate.POSTERIOR_SPEEDS, *privacy_estimate.POSTERIOR_SHARES):
        if each in estimate.posterior:
            speed, parts = each in privacy_estimate.POSTERIOR_SPEEDS, each.split("_")
            own = estimate.posterior[each] * (factor if speed else 1.0)
            if "low" in parts:
                own = outward_down(own)
            else:
                own = outward_up(own) if "high" in parts else np.round(own * 10.0**DECIMALS) / 10.0**DECIMALS
            beside[f"{name if speed else stem}_{each}"] = own
    return {
        name: value,
        # a value that rounding moved past its interval takes the interval's end with it
        f"{name}_low": np.minimum(outward_down(estimate.low * factor), value),
        f"{name}_high": np.maximum(outward_up(estimate.high * factor), value),
        f"{name}_noise_scale": outward_up(estimate.noise_scale * factor),
        f"{name}_expected_error": outward_up(estimate.expected_error * factor),
        **ranks,
        **beside,
        f"{stem}_status": _texts(*pd.factorize(estimate.status)),
    }


# A release as JSON and Arrow, and back, without losing a bit.


def encode(release: Release) -> tuple[dict[str, Any], bytes]:
    """Return ``release`` as JSON facts and the bytes of an Arrow IPC stream with its rows.

    ``decode`` reads them.
    """
    facts = {
        "id": release.id,
        "created_at": release.created_at.isoformat(),
        "grid": as_json(release.grid),
        "request": as_json(release.request),
        "statistics": [statistic.value for statistic in release.estimates],
        "slots": [[slot, x.label, x.start, x.end] for slot, x in sorted(release.slots.items())],
        "ledger": as_json(release.ledger),
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
        for name in privacy_estimate.ARRAYS:
            values = getattr(estimate, name)
            columns[f"{statistic.value}:{name}"] = pa.array(list(values) if name == "status" else values)
        for name, values in {**estimate.noise, **estimate.posterior}.items():
            columns[f"{statistic.value}:{name}"] = pa.array(values)
    return facts, _written(pa.table(columns), "zstd")


def same_arrays(one: bytes, other: bytes) -> bool:
    """Return whether two Arrow streams of ``encode`` hold exactly the same rows, however they were
    compressed.
    """
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
    columns: dict[str, npt.NDArray[Any]] = {
        name: np.array(column.to_pylist(), dtype=object)
        if name == "place" or name.endswith("status")
        else column.to_numpy()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    estimates = {}
    for statistic in map(Statistic, facts["statistics"]):
        noise, posterior = (
            {
                name: columns[f"{statistic.value}:{name}"]
                for name in names
                if f"{statistic.value}:{name}" in columns
            }
            for names in (
                privacy_estimate.NOISE_COLUMNS,
                (*privacy_estimate.POSTERIOR_SPEEDS, *privacy_estimate.POSTERIOR_SHARES),
            )
        )
        own: dict[str, Any] = {name: columns[f"{statistic.value}:{name}"] for name in privacy_estimate.ARRAYS}
        estimates[statistic] = privacy_estimate.Estimate(
            statistic=statistic, noise=noise, posterior=posterior, **own
        )
    return Release(
        id=facts["id"],
        created_at=datetime.fromisoformat(facts["created_at"]),
        grid=from_json(model_grid.Grid, facts["grid"]),
        request=from_json(MapRequest, facts["request"]),
        cell=columns["cell"],
        slot=columns["slot"],
        status=columns["status"],
        place=columns["place"],
        vehicles=columns.get("vehicles"),
        records=columns.get("records"),
        estimates=estimates,
        slots={slot: SlotFacts(label, start, end) for slot, label, start, end in facts["slots"]},
        ledger=from_json(LedgerReference, facts["ledger"]),
        disclosure=from_json(Disclosure, facts["disclosure"]),
    )
