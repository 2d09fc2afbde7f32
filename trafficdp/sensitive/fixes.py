"""GPS records of vehicles, as they enter the vault."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

FIXES_SCHEMA = pa.schema(
    [
        # keyed HMAC-SHA256 of the normalised vehicle identifier, 32 bytes; no entry that no row has
        pa.field("vehicle", pa.dictionary(pa.int32(), pa.binary(32)), nullable=False),
        # UTC, microseconds since the epoch
        pa.field("time_us", pa.int64(), nullable=False),
        # WGS84 degrees
        pa.field("latitude", pa.float64(), nullable=False),
        pa.field("longitude", pa.float64(), nullable=False),
        # hundredths of the source's unit, not clipped
        pa.field("speed_centi", pa.int64(), nullable=False),
        # "ms", "kmh" or "mph"
        pa.field("speed_unit", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        # whether the speed was derived from two fixes instead of reported
        pa.field("derived", pa.bool_(), nullable=False),
    ]
)


@dataclass(frozen=True, repr=False)
class Fixes:
    """Accepted records, one a row, in the order of their file. Columns: FIXES_SCHEMA."""

    table: pa.Table

    def __post_init__(self) -> None:
        if not self.table.schema.equals(FIXES_SCHEMA):
            raise TypeError("a table of fixes must have FIXES_SCHEMA")

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Fixes: {len(self)} rows, redacted>"
