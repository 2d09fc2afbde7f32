"""GeoJSON of a release (RFC 7946), one feature a bin.

No ``crs`` member; rings closed and counter-clockwise; 7 decimals; the bounding box has west > east
when it crosses the antimeridian, and features that cross it carry their own. ``id`` is the cell, or
"cell/slot" where a cell has several bins; the property ``hex_id`` is always the cell alone. A withheld bin is
there with null numbers, its ``status`` and a ``reason``. Metadata is the one foreign member ``trafficdp``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.binning.cells import bounding_box
from trafficdp.export.files.disclosure import rfc3339
from trafficdp.export.files.tables import (
    column_facts,
    published_statistics,
    reasons,
    texts_of,
    unique_polygons,
)
from trafficdp.model import Grid, SlotKind
from trafficdp.privacy.release import Release, published_frame

if TYPE_CHECKING:
    import pandas as pd

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
        "created_at": rfc3339(release.created_at, period.time_zone),
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
                "interval_kind": release.stated(statistic).interval_kind,
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
    position: npt.NDArray[np.int64],
) -> Iterator[str]:
    """Yield the text of every feature: the row of ``table``, with the shape ``rounded[position]``.

    Its id is the cell, or "cell/slot" unless there is one slot only.
    """
    ids: Iterable[str] = table["hex_id"]
    if grid.slot_kind is not SlotKind.WHOLE_PERIOD:
        ids = (f"{cell}/{slot}" for cell, slot in zip(table["hex_id"], table["slot"], strict=True))
    shapes = [geometry_members(shape) for shape in rounded]
    columns = [texts_of(table[name], dump, f"{dump(name)}:") for name in table.columns]
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
    """Return ``shapes`` with positions of COORDINATE_DECIMALS decimals."""
    return np.asarray(
        shapely.transform(shapes, lambda xy: np.round(xy, COORDINATE_DECIMALS) + 0.0), dtype=object
    )


def geometry_members(shape: BaseGeometry) -> str:
    """Return the member ``geometry`` of a feature, after a ``bbox`` of its own where it is cut."""
    geometry = f'"geometry":{dump(shapely.geometry.mapping(shape))}'
    if shape.geom_type == "MultiPolygon":
        return f'"bbox":{dump(bounding_box([shape]))},{geometry}'
    return geometry
