"""The published table: what its columns mean, and the files of it that every release has.

These are CSV, GeoJSON and GeoParquet, with the table of how the noise was drawn; formats that are written on
demand: ``gis_formats``. The same release gives the same bytes.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.arrays import IntArray
from trafficdp.binning.cells import bounding_box, shapes_of
from trafficdp.export.files.catalogue import ColumnFacts
from trafficdp.model import QUANTILES, Grid, NeighbouringRelation, SlotKind, Statistic, rfc3339, zone_of
from trafficdp.privacy.estimate import POSTERIOR_SHARES, POSTERIOR_SPEEDS, BinStatus
from trafficdp.privacy.release import Release, mechanism_frame, published_frame

if TYPE_CHECKING:
    import pandas as pd


# What every published column means and is measured in: stated once, for all files.


INSTANTS = ("slot_start", "slot_end")
"""Columns that are timestamps where a format has them, else text."""


def published_statistics(release: Release) -> tuple[Statistic, ...]:
    """Return the statistics of ``release`` in the order of the published table."""
    return tuple(statistic for statistic in Statistic if statistic in release.estimates)


def withheld_because(release: Release) -> str:
    """Return in a few words, for a legend, why bins of ``release`` are withheld."""
    if release.disclosure.unit.neighbouring_relation == NeighbouringRelation.ADD_OR_REMOVE_USER:
        return "withheld: none"
    budget = "" if release.grid.mosaic is None else ", or no budget for so narrow an interval"
    return f"withheld: fewer than {release.request.min_vehicles} vehicles{budget}"


def reasons(release: Release) -> dict[str, str | None]:
    """Return, by bin status, why a bin has no number or an unreliable one; None where there is no reason."""
    return {
        BinStatus.RELEASED.value: None,
        BinStatus.CONSTANT.value: "the statistic can only be this one number; no noise was needed",
        BinStatus.WITHHELD.value: f"fewer than {release.request.min_vehicles} vehicles were seen here"
        + ("" if release.grid.mosaic is None else ", or the budget did not reach for so narrow an interval"),
        BinStatus.UNINFORMATIVE.value: "too little is known for the number to say much",
    }


def column_facts(release: Release) -> dict[str, ColumnFacts]:
    """Return the facts of all columns of ``published_frame(release)``, by name and in its order."""
    zone = release.grid.period.time_zone
    relation = release.disclosure.unit.neighbouring_relation
    noisy = "noisy number of " if relation == NeighbouringRelation.ADD_OR_REMOVE_USER else ""
    level = format(100 * release.request.interval_level, ".6g")
    zones = release.grid.zones
    places = (
        (
            ColumnFacts("hex_id", None, "H3 index of the cell, hexadecimal text"),
            ColumnFacts("place", None, "where the hexagon lies, in words, by public layers alone"),
            ColumnFacts("resolution", None, "H3 resolution of the cell, 0 to 15"),
        )
        if zones is None
        else (
            ColumnFacts("hex_id", None, f"number of the zone: its place in {zones.file}, from 1"),
            ColumnFacts("place", None, f"name of the zone in {zones.file}"),
            ColumnFacts("resolution", None, "empty: zones have none"),
        )
    )
    columns = [
        *places,
        ColumnFacts("slot", None, "number of the time slot within its kind"),
        ColumnFacts("slot_kind", None, "how time is cut into slots"),
        ColumnFacts("slot_label", None, f"the slot in words, local time of {zone}"),
        ColumnFacts("slot_start", None, "start of the slot, RFC 3339 with offset; empty when it recurs"),
        ColumnFacts("slot_end", None, "end of the slot, RFC 3339 with offset; empty when it recurs"),
        ColumnFacts(
            "status", None, "what became of the bin: " + ", ".join(status.value for status in BinStatus)
        ),
        ColumnFacts(
            "vehicles", "vehicles", f"{noisy}vehicles seen in the bin; empty unless counts are published"
        ),
        ColumnFacts(
            "records", "records", f"{noisy}GPS records in the bin; empty unless counts are published"
        ),
    ]
    for statistic in published_statistics(release):
        name, stem = statistic.column(release.request.display_unit), statistic.stem
        unit, found = statistic.unit(release.request.display_unit), release.estimates[statistic].posterior
        error = f"worst-case mean absolute error of {name}"
        if found:
            error = f"how far {name} is expected to be off on average, by the posterior"
        elif statistic is Statistic.VARIANCE and Statistic.MEAN in release.estimates:
            # a noisy mean can pull a good variance down: its interval is not affected
            error += ", before it is kept within mean (U - mean) of the released mean"
        columns += [
            ColumnFacts(name, unit, statistic.description),
            ColumnFacts(f"{name}_low", unit, f"lower end of the {level} % interval of {name}"),
            ColumnFacts(f"{name}_high", unit, f"upper end of the {level} % interval of {name}"),
            ColumnFacts(
                f"{name}_noise_scale", unit, f"average size of the noise in {name} (Laplace noise: its scale)"
            ),
            ColumnFacts(f"{name}_expected_error", unit, error),
            *(
                ColumnFacts(
                    f"{name}_rank_{end}",
                    "vehicles",
                    "which vehicle, counted from the slowest, has the speed that is the "
                    f"{word} end of the {level} % interval of {name}",
                )
                for end, word in (("low", "lower"), ("high", "upper"))
                if statistic in QUANTILES
            ),
            *(
                ColumnFacts(f"{name}_{each}", unit, text)
                for each, text in POSTERIOR_SPEEDS.items()
                if each in found
            ),
            *(
                ColumnFacts(f"{stem}_{each}", None, text)
                for each, text in POSTERIOR_SHARES.items()
                if each in found
            ),
            ColumnFacts(f"{stem}_status", None, f"what became of {name} in the bin"),
            ColumnFacts(
                f"{stem}_interval_kind",
                None,
                "guaranteed (a theorem for every bin), ranks (the same, in ranks) or calibrated (by a "
                "posterior, as often as on the days it was tried on); empty where there is no interval",
            ),
        ]
    return {facts.name: facts for facts in columns}


# Columns as text, each different value written once.


def column_texts(column: pd.Series, written: Callable[[object], str], before: str = "") -> list[str]:
    """Return each value of ``column`` as text: ``before``, then ``written(value)``.

    A missing value is passed to ``written`` as None, and zero without a sign.
    """
    import pandas as pd

    plain = column.to_numpy() + 0.0 if column.dtype == np.float64 else column
    place, different = pd.factorize(plain)
    # the last of them is that of missing values, whose place is -1
    texts = [before + written(each) for each in (*different.tolist(), None)]
    found: list[str] = np.array(texts, dtype=object)[place].tolist()
    return found


# The published table with the shapes of its places.


CRS = "EPSG:4326"
"""Longitude first, as in OGC:CRS84: geopandas keeps x = longitude for both."""


def unique_polygons(release: Release) -> tuple[npt.NDArray[np.object_], IntArray]:
    """Return the polygons of the C different cells, shape (C,), and each bin's index among them, shape (G,).

    Polygons are in degrees, longitude first, counter-clockwise, cut at the antimeridian.
    """
    cells, position = np.unique(release.cell, return_inverse=True)
    return np.asarray(shapes_of(cells, release.grid.zones), dtype=object), position.astype(np.int64)


def to_geodataframe(release: Release, *, instants: bool = True) -> Any:  # noqa: ANN401 - geopandas carries no types
    """Return a geopandas.GeoDataFrame: the published columns and ``geometry``, one row a bin.

    Rows and columns are those of ``published_frame``; with ``instants`` INSTANTS are timestamps in the time
    zone of the period, else text. The CRS is WGS84 with longitude first.
    """
    # it takes longer to import than most commands to run
    import geopandas
    import pandas as pd

    table, zone = published_frame(release), release.grid.period.time_zone
    for name in INSTANTS if instants else ():
        table[name] = pd.to_datetime(table[name], utc=True).dt.tz_convert(zone).dt.as_unit("ms")
    polygons, position = unique_polygons(release)
    return geopandas.GeoDataFrame(table, geometry=polygons[position], crs=CRS)


# Files of one table, as every release has them.


_QUOTED = re.compile(r'[,"\r\n]')


def csv_bytes(release: Release) -> bytes:
    """Return the bins of ``release`` as the bytes of a CSV file, one row a bin."""
    return csv_of(published_frame(release))


def csv_of(table: pd.DataFrame) -> bytes:
    """Return a published ``table`` as the bytes of a CSV file."""
    columns = [column_texts(table[name], _cell) for name in table.columns]
    rows = map(",".join, zip(*columns, strict=True))
    return "\r\n".join([",".join(map(_cell, table.columns)), *rows, ""]).encode()


def _cell(value: object) -> str:
    """Return a field of a CSV line, as RFC 4180 has it; what is missing is empty."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def geoparquet_bytes(release: Release) -> bytes:
    """Return the GeoParquet file of ``release``, one row a bin."""
    stream = io.BytesIO()
    to_geodataframe(release).set_crs("OGC:CRS84", allow_override=True).to_parquet(
        stream, index=False, schema_version="1.1.0", write_covering_bbox=True, compression="zstd"
    )
    return stream.getvalue()


def mechanism_bytes(release: Release) -> bytes:
    """Return the Parquet file that says how the noise of ``release`` was drawn: what ``verify`` prices."""
    stream = io.BytesIO()
    mechanism_frame(release).to_parquet(stream, index=False, compression="zstd")
    return stream.getvalue()


# GeoJSON of a release (RFC 7946), one feature a bin.
#
# No ``crs`` member; rings closed and counter-clockwise; 7 decimals; the bounding box has west > east when it
# crosses the antimeridian, and features that cross it carry their own. ``id`` is the cell, or "cell/slot"
# where a cell has several bins; the property ``hex_id`` is always the cell alone. A withheld bin is there
# with null numbers, its ``status`` and a ``reason``. Metadata is the one foreign member ``trafficdp``.


COORDINATE_DECIMALS = 7
FEATURES_AT_ONCE = 10_000
dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""One value as JSON without spaces."""


def geojson_bytes(release: Release) -> bytes:
    """Return the GeoJSON text of ``release`` in UTF-8, one feature a line."""
    import pandas as pd

    polygons, position = unique_polygons(release)
    rounded = rounded_shapes(polygons)
    table = published_frame(release)
    place, different = pd.factorize(table["status"])
    told = np.array([reasons(release)[status] for status in different.tolist()], dtype=object)
    table["reason"] = pd.Series(told[place], dtype="object")
    table = table[geojson_columns(release)]
    features = features_of(table, release.grid, rounded, position)
    period, facts, disclosed = release.grid.period, column_facts(release), release.disclosure
    # what the numbers are and under which promise they were made
    about: dict[str, object] = {
        "release": release.id,
        "created_at": rfc3339(release.created_at, zone_of(period.time_zone)),
        "publisher": disclosed.identity.publisher,
        "place": disclosed.coverage.place,
        "manifest": "manifest.json",
        "resolution": release.grid.resolution,
        "period": {"first": period.first.isoformat(), "last": period.last.isoformat()},
        "time_zone": period.time_zone,
        "slot_kind": release.grid.slot_kind.value,
        "privacy": {
            "definition": disclosed.guarantee.definition,
            "epsilon": disclosed.guarantee.epsilon,
            **disclosed.guarantee.concentrated,
            "privacy_unit": disclosed.unit.privacy_unit,
            "neighbouring_relation": disclosed.unit.neighbouring_relation,
        },
        "interval_level": release.request.interval_level,
        "interval_kind": disclosed.uncertainty.interval_kind,
        "min_vehicles": release.request.min_vehicles,
        "statistics": {
            statistic.column(release.request.display_unit): {
                "description": statistic.description,
                "unit": statistic.unit(release.request.display_unit),
                "interval_kind": release.mechanism_stated(statistic).interval_kind,
            }
            for statistic in published_statistics(release)
        },
        "columns": {name: facts[name].description for name in ("slot", "slot_label", "status")},
        "reasons": reasons(release),
    }
    stream = disclosed.noise.stream
    if stream is not None:
        names = ("publication", "as_of", "publish_every_minutes")
        about["stream"] = {name: getattr(stream, name) for name in names}
    head = [
        '"type":"FeatureCollection"',
        *([f'"bbox":{dump(bounding_box(rounded))}'] if len(rounded) else []),
        f'"trafficdp":{dump(about)}',
    ]
    text = io.BytesIO()
    text.write(f'{{{",".join(head)},"features":[\n'.encode())
    between = b""
    # the text is as large as all else together, so it is there once
    for some in iter(lambda: list(islice(features, FEATURES_AT_ONCE)), []):
        text.write(between + ",\n".join(some).encode())
        between = b",\n"
    text.write(b"\n]}\n")
    return text.getvalue()


def features_of(
    table: pd.DataFrame,
    grid: Grid,
    rounded: npt.NDArray[np.object_],
    position: IntArray,
) -> Iterator[str]:
    """Yield the GeoJSON feature of every row of ``table`` as text; its shape is ``rounded[position]``.

    The id of a feature is the cell, or "cell/slot" unless there is one slot only.
    """
    ids: Iterable[str] = table["hex_id"]
    if grid.slot_kind is not SlotKind.WHOLE_PERIOD:
        ids = (f"{cell}/{slot}" for cell, slot in zip(table["hex_id"], table["slot"], strict=True))
    shapes = [geometry_members(shape) for shape in rounded]
    columns = [column_texts(table[name], dump, f"{dump(name)}:") for name in table.columns]
    rows = map(",".join, zip(*columns, strict=True))
    return (
        f'{{"type":"Feature","id":"{identifier}",{shapes[place]},"properties":{{{row}}}}}'
        for identifier, place, row in zip(ids, position.tolist(), rows, strict=True)
    )


def geojson_columns(release: Release) -> list[str]:
    """Return the names of the columns that GeoJSON carries, ``reason`` after ``status``.

    Left out: counts that are not published, and the kind of interval, which the metadata say once.
    """
    left_out = {f"{statistic.stem}_interval_kind" for statistic in release.estimates}
    counts = {"vehicles": release.vehicles, "records": release.records}
    left_out |= {name for name, count in counts.items() if count is None or not len(count)}
    names = [name for name in column_facts(release) if name not in left_out]
    names.insert(names.index("status") + 1, "reason")
    return names


def rounded_shapes(shapes: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Return polygons ``shapes`` with degrees rounded to COORDINATE_DECIMALS decimals, shape (n,)."""
    return np.asarray(
        shapely.transform(shapes, lambda xy: np.round(xy, COORDINATE_DECIMALS) + 0.0), dtype=object
    )


def geometry_members(shape: BaseGeometry) -> str:
    """Return the GeoJSON member ``geometry`` of ``shape``, after a bbox if it has several parts."""
    geometry = f'"geometry":{dump(shapely.geometry.mapping(shape))}'
    if shape.geom_type == "MultiPolygon":
        return f'"bbox":{dump(bounding_box([shape]))},{geometry}'
    return geometry
