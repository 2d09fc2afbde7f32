"""The published table as CSV, GeoParquet and GeoPackage; the same release gives the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trafficdp.export.files.frame import to_geodataframe
from trafficdp.export.files.qgis_style import with_styles
from trafficdp.export.files.texts import texts_of
from trafficdp.privacy.release import Release, mechanism_frame, published_frame

LAYER = "trafficdp"
"""Name of the GeoPackage's one layer; its second table, layer_styles, is for QGIS."""
PAINTED_AT_ONCE = 1 << 20
"""Rows that are painted together."""
_QUOTED = re.compile(r'[,"\r\n]')


def csv_bytes(release: Release) -> bytes:
    """Return the CSV of ``release``."""
    table = published_frame(release)
    columns = [texts_of(table[name], _cell) for name in table.columns]
    rows = map(",".join, zip(*columns, strict=True))
    return "\r\n".join([",".join(map(_cell, table.columns)), *rows, ""]).encode()


def _cell(value: object) -> str:
    """Return a field of a CSV line, as RFC 4180 has it; what is missing is empty."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def geoparquet_bytes(release: Release) -> bytes:
    """Return the GeoParquet file of ``release``, one row a bin."""
    stream = io.BytesIO()
    to_geodataframe(replace(release, painted=False)).set_crs("OGC:CRS84", allow_override=True).to_parquet(
        stream, index=False, schema_version="1.1.0", write_covering_bbox=True, compression="zstd"
    )
    return _painted(stream, release) if release.painted else stream.getvalue()


def _painted(hexagons: io.BytesIO, release: Release) -> bytes:
    """The file of ``hexagons``, one row each, with all slots of ``release``: never all rows in memory."""
    table = pq.read_table(hexagons)
    numbers = sorted(release.slots)
    own = [release.slots[number] for number in numbers]
    slots = {
        "slot": pa.array(numbers, table.schema.field("slot").type),
        **{
            f"slot_{name}": pa.array([getattr(each, name) for each in own]).cast(
                table.schema.field(f"slot_{name}").type
            )
            for name in ("label", "start", "end")
        },
    }
    # what repeats is copied as numbers of texts and shapes, not as these themselves
    at_once = max(1, PAINTED_AT_ONCE // len(numbers))
    parts = [table.slice(start, at_once) for start in range(0, table.num_rows, at_once)]
    stream = io.BytesIO()
    with pq.ParquetWriter(
        stream,
        _repeated(table.slice(0, 0), slots).schema,
        compression="zstd",
        dictionary_pagesize_limit=64 << 20,
        # in batches of a thousand rows writing takes half as long again
        write_batch_size=1 << 16,
        store_schema=False,
    ) as writer:
        # types of columns, too, are those of the hexagons
        writer.add_key_value_metadata(pq.read_metadata(hexagons).metadata)
        for some in _one_ahead(lambda part: _repeated(part, slots), parts):
            writer.write_table(some)
    return stream.getvalue()


def _one_ahead(make: Callable[[pa.Table], pa.Table], parts: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Yield what ``make`` makes of each part: of the next while that of one is used."""
    with ThreadPoolExecutor(1) as thread:
        made: Future[pa.Table] | None = None
        for part in parts:
            before, made = made, thread.submit(make, part)
            if before is not None:
                yield before.result()
        if made is not None:
            yield made.result()


def _repeated(hexagons: pa.Table, slots: Mapping[str, pa.Array]) -> pa.Table:
    many = len(slots["slot"])
    row = pa.array(np.repeat(np.arange(hexagons.num_rows, dtype=np.int32), many))
    slot = pa.array(np.tile(np.arange(many, dtype=np.int32), hexagons.num_rows))
    columns = []
    for field in hexagons.schema:
        of_slots = field.name in slots
        own = slots[field.name] if of_slots else hexagons.column(field.name).combine_chunks()
        # what is missing cannot be a number of a text
        if not own.null_count and (
            pa.types.is_large_string(own.type) or own.type in (pa.string(), pa.binary())
        ):
            own = own.dictionary_encode()
        columns.append(own.take(slot if of_slots else row))
    return pa.table(columns, names=hexagons.schema.names)


def mechanism_bytes(release: Release) -> bytes:
    """Return the Parquet file that says how the noise of ``release`` was drawn: what ``verify`` prices."""
    stream = io.BytesIO()
    mechanism_frame(release).to_parquet(stream, index=False, compression="zstd")
    return stream.getvalue()


def gpkg_bytes(release: Release) -> bytes:
    """Return the GeoPackage of ``release``."""
    moment = f"{release.created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}"
    stream = io.BytesIO()
    # in memory: a disk that is full must only ever be met where the file is to lie
    with _dated(moment):
        to_geodataframe(release).to_file(
            stream, driver="GPKG", layer=LAYER, engine="pyogrio", promote_to_multi=True
        )
        return with_styles(stream.getvalue(), release, LAYER, moment)


@contextmanager
def _dated(moment: str) -> Iterator[None]:
    import pyogrio

    # GDAL stamps "last_change" with the clock unless told otherwise
    name = "OGR_CURRENT_DATE"
    before = pyogrio.get_gdal_config_option(name)
    pyogrio.set_gdal_config_options({name: moment})
    try:
        yield
    finally:
        pyogrio.set_gdal_config_options({name: before})
