"""The one internal shape that every reader yields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.ingest.numbers import text_to_numbers
from trafficdp.ingest.times import Times, text_to_times

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TextColumns:
    """A source's own text (pa.string, shape (n,)); ``speed`` None: the source has no speeds."""

    vehicle: pa.Array
    time: pa.Array
    latitude: pa.Array
    longitude: pa.Array
    speed: pa.Array | None

    def __repr__(self) -> str:
        return f"<TextColumns: {len(self.time)} rows, redacted>"


@dataclass(frozen=True, repr=False)
class Records:
    """Records as a foreign file states them, nothing rejected yet; arrays of shape (n,), in file order.

    ``vehicle``: dictionary of raw identifiers (text, null = missing). ``latitude``, ``longitude``: degrees,
    NaN = missing or not a number. ``speed``: in the source's unit, NaN = missing or unreadable; which of the
    two says ``speed_unreadable``. ``malformed``: rows beside these n that could not be cut into fields.
    """

    vehicle: pa.DictionaryArray
    times: Times
    latitude: FloatArray
    longitude: FloatArray
    speed: FloatArray
    speed_unreadable: BoolArray
    malformed: int = 0

    def __len__(self) -> int:
        return len(self.speed)

    def __repr__(self) -> str:
        return f"<Records: {len(self)} rows, redacted>"

    @classmethod
    def from_text(
        cls,
        columns: TextColumns,
        *,
        time_format: str,
        time_zone: str | None,
        nan_is_missing: bool = False,
        malformed: int = 0,
    ) -> Records:
        """Build records from columns of text.

        ``nan_is_missing``: whether "NaN" is the source's way
        of writing a missing speed (else it is unreadable).
        """
        times = text_to_times(columns.time, time_format, time_zone)
        if columns.speed is None:
            rows = len(columns.time)
            speeds, unreadable = np.full(rows, np.nan), np.zeros(rows, dtype=np.bool_)
        else:
            speeds, unreadable = text_to_numbers(columns.speed, nan_is_missing=nan_is_missing)
        return cls(
            vehicle=pc.dictionary_encode(columns.vehicle),
            times=times,
            latitude=text_to_numbers(columns.latitude)[0],
            longitude=text_to_numbers(columns.longitude)[0],
            speed=speeds,
            speed_unreadable=unreadable,
            malformed=malformed,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Records]) -> Records:
        """Return the rows of all ``parts``, in order; no part gives no rows."""
        kind = pa.dictionary(pa.int32(), pa.string())
        vehicles = pa.chunked_array([part.vehicle for part in parts], type=kind)
        vehicle = vehicles.unify_dictionaries().combine_chunks()
        if isinstance(vehicle, pa.ChunkedArray):
            vehicle = vehicle.chunk(0) if vehicle.num_chunks else pa.array([], kind)
        none = np.zeros(0)
        return cls(
            vehicle=vehicle,
            times=Times(
                np.concatenate([none.astype(np.int64), *(part.times.time_us for part in parts)]),
                np.concatenate([none.astype(np.bool_), *(part.times.readable for part in parts)]),
                np.concatenate([none.astype(np.bool_), *(part.times.repeated_hour for part in parts)]),
            ),
            latitude=np.concatenate([none, *(part.latitude for part in parts)]),
            longitude=np.concatenate([none, *(part.longitude for part in parts)]),
            speed=np.concatenate([none, *(part.speed for part in parts)]),
            speed_unreadable=np.concatenate(
                [none.astype(np.bool_), *(part.speed_unreadable for part in parts)]
            ),
            malformed=sum(part.malformed for part in parts),
        )
