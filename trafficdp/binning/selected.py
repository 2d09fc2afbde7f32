"""Which positions and instants a selection keeps."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import cells_of, resolutions_of
from trafficdp.binning.slots import slots_of
from trafficdp.model.grid import HOURS_A_WEEK, Selection, zone_of
from trafficdp.model.slot import SlotKind


def selected(
    selection: Selection,
    latitude: npt.NDArray[np.float64],
    longitude: npt.NDArray[np.float64],
    time_us: npt.NDArray[np.int64],
    time_zone: str,
) -> npt.NDArray[np.bool_]:
    """Return for every record whether it meets ``selection``, shape (n,).

    ``latitude`` and ``longitude`` in degrees, ``time_us`` in microseconds since 1970-01-01 UTC, shape (n,)
    each; ``time_zone`` is an IANA name. Raises DataError for impossible positions and instants.
    """
    kept = np.ones(len(time_us), dtype=np.bool_)
    if selection.hours_of_week is not None:
        wanted = np.zeros(HOURS_A_WEEK, dtype=np.bool_)
        wanted[list(selection.hours_of_week)] = True
        kept &= wanted[hours_of_week(time_us, time_zone)]
    for clause in selection.places:
        kept &= np.any([place.area.contains(latitude, longitude) for place in clause], axis=0)
    if selection.cells is not None:
        cells = np.array(selection.cells, dtype=np.uint64)
        resolution = int(resolutions_of(cells[:1])[0])
        inside = np.flatnonzero(kept)
        kept[inside] = np.isin(cells_of(latitude[inside], longitude[inside], resolution), cells)
    return kept


def hours_of_week(time_us: npt.NDArray[np.int64], time_zone: str) -> npt.NDArray[np.int64]:
    """Return the local clock hour of every instant counted from Monday 00:00, 0 to 167, shape (n,).

    Raises as ``slots_of``.
    """
    hour = slots_of(time_us, SlotKind.HOUR_OF_DAY, time_zone)
    starts, back = np.unique(slots_of(time_us, SlotKind.DAY, time_zone), return_inverse=True)
    zone = zone_of(time_zone)
    days = [datetime.fromtimestamp(second, zone).weekday() for second in starts.tolist()]
    return np.array(days, dtype=np.int64)[back] * 24 + hour
