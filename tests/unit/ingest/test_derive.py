from __future__ import annotations

import math

import numpy as np
import pytest

from trafficdp.ingest.times import EARTH_RADIUS_M, Timeline, derived_speed_ms, great_circle_m


@pytest.mark.parametrize(
    ("places", "fraction"),
    [((0, 0, 90, 0), 1 / 4), ((0, 0, 0, 180), 1 / 2), ((0, 179, 0, -179), 2 / 360), ((60, 0, 60, 0), 0)],
)
def test_great_circle_distances_are_fractions_of_the_circumference(places, fraction):
    distance = great_circle_m(*(np.array([float(place)]) for place in places))
    assert distance[0] == pytest.approx(fraction * 2 * math.pi * EARTH_RADIUS_M, rel=1e-12, abs=1e-9)


def test_speed_is_distance_over_time_and_only_of_the_same_vehicle():
    vehicle = np.array([0, 1, 0, 0, 0], dtype=np.int64)
    time_us = np.array([0, 5, 10, 11, 200], dtype=np.int64) * 1_000_000
    latitude = np.array([21.0, 50.0, 21.001, 21.002, 21.1])
    speed, before = derived_speed_ms(Timeline.of(vehicle, time_us), latitude, np.full(5, 72.8))
    metres = math.radians(0.001) * EARTH_RADIUS_M
    assert before.tolist() == [-1, -1, 0, 0, -1]  # 1 s and 189 s are no steps
    np.testing.assert_allclose(speed, [np.nan, np.nan, metres / 10, 2 * metres / 11, np.nan], rtol=1e-9)
