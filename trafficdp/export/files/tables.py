"""The published table as CSV, GeoParquet and GeoPackage; the same release gives the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC

from trafficdp.export.files.frame import to_geodataframe
from trafficdp.export.files.qgis_style import with_styles
from trafficdp.export.files.texts import texts_of
from trafficdp.privacy.release import Release, mechanism_frame, published_frame

LAYER = "trafficdp"
"""Name of the GeoPackage's one layer; its second table, layer_styles, is for QGIS."""
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
    to_geodataframe(release).set_crs("OGC:CRS84", allow_override=True).to_parquet(
        stream, index=False, schema_version="1.1.0", write_covering_bbox=True, compression="zstd"
    )
    return stream.getvalue()


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
