"""Speeds derived from two fixes of one vehicle, for sources that report none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.ingest.timeline import Timeline

FloatArray = npt.NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius of the Earth (IUGG), metres."""


def great_circle_m(
    latitude_1: FloatArray, longitude_1: FloatArray, latitude_2: FloatArray, longitude_2: FloatArray
) -> FloatArray:
    """Return the great-circle distance in metres between positions in degrees (haversine formula)."""
    latitude_1, latitude_2 = np.radians(latitude_1), np.radians(latitude_2)
    half_chord = (
        np.sin((latitude_2 - latitude_1) / 2) ** 2
        + np.cos(latitude_1) * np.cos(latitude_2) * np.sin(np.radians(longitude_2 - longitude_1) / 2) ** 2
    )
    return np.asarray(2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.clip(half_chord, 0, 1))))


def derived_speed_ms(
    timeline: Timeline, latitude: FloatArray, longitude: FloatArray
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Return each fix's speed since the vehicle's fix before, in m/s, and the position of that fix.

    Distance along the great circle over time, for the last fix 2 to 120 s before (shape (n,); NaN and -1
    where there is none). Only the vehicle's own rows are used, so under the guarantee a derived speed is
    that vehicle's value. It runs lower than what devices report (roads bend, vehicles stop in between),
    so rows that carry one are flagged.
    """
    before = timeline.preceding()
    speed = np.full(len(before), np.nan)
    here = np.flatnonzero(before >= 0)
    there = before[here]
    seconds = (timeline.time_us[here] - timeline.time_us[there]) / 1e6
    metres = great_circle_m(latitude[there], longitude[there], latitude[here], longitude[here])
    speed[here] = metres / seconds
    return speed, before
