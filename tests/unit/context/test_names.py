"""Names of hexagons from public layers: telling, different, the same every time."""

from __future__ import annotations

import h3
import numpy as np
import pytest
import shapely

from trafficdp.context.read import place_names
from trafficdp.model import ContextKind, ContextLayer

MIDDLE = (30.27, -97.74)


def cells(rings, resolution=8):
    found = h3.grid_disk(h3.latlng_to_cell(*MIDDLE, resolution), rings)
    return np.sort(np.array([h3.str_to_int(cell) for cell in found], dtype=np.uint64))


def layer(kind, **shapes):
    names = tuple(name.replace("_", " ") for name in shapes)
    return ContextLayer(ContextKind(kind), "a.gpkg", "0" * 64, "nobody", names, tuple(shapes.values()))


def at(cell):
    latitude, longitude = h3.cell_to_latlng(h3.int_to_str(int(cell)))
    return longitude, latitude


def test_the_street_with_most_length_names_a_hexagon_and_the_place_that_is_near():
    cell = cells(0)
    longitude, latitude = at(cell[0])
    roads = layer(
        "roads",
        Long_Street=shapely.LineString([(longitude - 1, latitude), (longitude + 1, latitude)]),
        Short_Lane=shapely.LineString([(longitude, latitude), (longitude, latitude + 0.001)]),
    )
    places = layer("place", Old_City=shapely.Point(longitude, latitude + 0.01), Far_Away=shapely.Point(0, 0))
    assert place_names(cell, (roads, places)).tolist() == ["Long Street near Old City"]
    assert place_names(cell, (roads,)).tolist() == ["Long Street"]
    assert place_names(cell, (places,))[0] == "1.1 km south of Old City"


def test_a_place_that_is_far_is_not_said_to_be_near():
    cell = cells(0)
    longitude, latitude = at(cell[0])
    far = layer("place", Old_City=shapely.Point(longitude, latitude + 0.1))
    road = layer(
        "roads", Mill_Road=shapely.LineString([(longitude - 1, latitude), (longitude + 1, latitude)])
    )
    assert place_names(cell, (far,)).tolist() == ["11 km south of Old City"]
    assert place_names(cell, (road, far)).tolist() == ["Mill Road, 11 km south of Old City"]
    here = layer("place", Old_City=shapely.Point(longitude, latitude + 0.001))
    assert place_names(cell, (layer("boundary", City=shapely.box(-98, 30, -97, 31)), far)).tolist() == [
        "11 km south of Old City"
    ]
    assert place_names(cell, (here,))[0] == "Old City"


@pytest.mark.parametrize("rings", [3, 20])
def test_names_are_different_within_a_map_and_the_same_every_time(rings):
    longitude, latitude = MIDDLE[1], MIDDLE[0]
    layers = (
        layer("roads", One_Road=shapely.LineString([(longitude - 1, latitude), (longitude + 1, latitude)])),
        layer("place", Old_City=shapely.Point(longitude, latitude)),
    )
    cell = cells(rings)
    names = place_names(cell, layers)
    assert len(set(names)) == len(cell)
    assert all(names)
    np.testing.assert_array_equal(names, place_names(cell, layers))


def test_bins_of_one_hexagon_have_its_name():
    cell = np.repeat(cells(1), 3)
    names = place_names(cell, (layer("place", Old_City=shapely.Point(MIDDLE[1], MIDDLE[0])),))
    assert (names.reshape(-1, 3) == names[::3, None]).all()


def test_without_layers_hexagons_are_named_by_their_way_from_the_middle():
    cell = cells(6, 7)
    names = dict(zip(cell.tolist(), place_names(cell, ()), strict=True))
    middle = h3.str_to_int(h3.latlng_to_cell(*MIDDLE, 7))
    assert names[middle] == "in the middle"
    for each, name in names.items():
        if each == middle:
            continue
        distance, direction = name.split(" km ")
        here, there = h3.cell_to_latlng(h3.int_to_str(middle)), h3.cell_to_latlng(h3.int_to_str(each))
        assert abs(float(distance) - h3.great_circle_distance(here, there)) < 0.6
        if there[0] - here[0] > 0.5 * abs(there[1] - here[1]):
            assert "north" in direction
        if here[1] - there[1] > abs(there[0] - here[0]):
            assert "west" in direction


def test_a_map_across_the_antimeridian_has_its_middle_there():
    found = h3.grid_disk(h3.latlng_to_cell(-17.0, 180.0, 4), 2)
    cell = np.sort(np.array([h3.str_to_int(each) for each in found], dtype=np.uint64))
    names = place_names(cell, ())
    assert "in the middle" in names
    assert max(float(name.split()[0]) for name in names if name != "in the middle") < 250


def test_no_hexagons_have_no_names():
    assert place_names(np.zeros(0, dtype=np.uint64), ()).tolist() == []


@pytest.mark.parametrize("kind", ["water", "park", "transit"])
def test_without_a_street_a_hexagon_has_the_name_of_what_lies_in_it(kind):
    cell = cells(0)
    longitude, latitude = at(cell[0])
    shape = {
        "water": shapely.LineString([(longitude - 1, latitude), (longitude + 1, latitude)]),
        "park": shapely.box(longitude, latitude, longitude + 0.001, latitude + 0.001),
        "transit": shapely.Point(longitude, latitude),
    }[kind]
    assert place_names(cell, (layer(kind, Mill_Pond=shape),)).tolist() == ["Mill Pond"]
    road = shapely.LineString([(longitude, latitude), (longitude, latitude + 0.0001)])
    assert place_names(cell, (layer(kind, Mill_Pond=shape), layer("roads", A=road))).tolist() == ["A"]
