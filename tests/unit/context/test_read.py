"""Public layers from files: every format, any coordinate system, cut and simplified; clear refusals."""

from __future__ import annotations

import zipfile
from pathlib import Path

import geopandas
import numpy as np
import pytest
import shapely

from trafficdp.context.read import (
    MOST_CORNERS,
    STEPS_ACROSS,
    check_context,
    is_gtfs,
    read_context,
    simplified_layer,
)
from trafficdp.errors import ConfigError
from trafficdp.model import ContextFile, ContextKind, ContextLayer, StudyArea, as_json, from_json

AREA = StudyArea.from_bbox(10.0, 50.0, 10.2, 50.2)
ROADS = geopandas.GeoDataFrame(
    {"label": ["Mill Road", "Mill Road", None, "Far Street"]},
    geometry=[
        shapely.LineString([(9.9, 50.1), (10.1, 50.1)]),
        shapely.LineString([(10.1, 50.1), (10.15, 50.12)]),
        shapely.LineString([(10.05, 50.0), (10.05, 50.2)]),
        shapely.LineString([(20.0, 50.0), (20.1, 50.2)]),
    ],
    crs="EPSG:4326",
)


def file_of(path, kind=ContextKind.ROADS, name="label"):
    return ContextFile(path, kind, name, "Survey of nowhere")


@pytest.mark.parametrize("ending", ["gpkg", "geojson", "shp", "fgb"])
@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:32632"])
def test_every_format_and_coordinate_system_gives_the_same_layer(ending, crs, tmp_path):
    path = tmp_path / f"roads.{ending}"
    ROADS.to_crs(crs if ending != "geojson" else "EPSG:4326").to_file(path)
    (layer,) = read_context([file_of(path)], AREA)
    assert (layer.file, layer.kind, layer.attribution) == (path.name, ContextKind.ROADS, "Survey of nowhere")
    assert layer.names == ("", "Mill Road")
    unnamed, road = layer.shapes
    assert shapely.covered_by(road, AREA.geometry.buffer(1e-5))
    assert road.bounds == pytest.approx((10.0, 50.1, 10.15, 50.12), abs=1e-4)
    assert unnamed.bounds == pytest.approx((10.05, 50.0, 10.05, 50.2), abs=1e-4)
    assert from_json(ContextLayer, as_json(layer)) == layer


def test_a_layer_that_lies_elsewhere_is_left_out(tmp_path):
    ROADS.to_file(tmp_path / "roads.gpkg")
    elsewhere = StudyArea.from_bbox(0, 0, 1, 1)
    assert read_context([file_of(tmp_path / "roads.gpkg")], elsewhere) == ()


@pytest.mark.slow
def test_an_openstreetmap_extract_gives_what_belongs_to_the_kind():
    """A town of three ways and four nodes, a footpath and a bakery among them, written by libosmium."""
    town = Path(__file__).with_name("data") / "town.osm.pbf"
    found = {
        kind: [name for layer in read_context([file_of(town, kind, None)], AREA) for name in layer.names]
        for kind in (ContextKind.ROADS, ContextKind.PLACE, ContextKind.WATER, ContextKind.PARK)
    }
    assert found == {
        ContextKind.ROADS: ["A Road"],
        ContextKind.PLACE: ["Old City"],
        ContextKind.WATER: ["A River"],
        ContextKind.PARK: [],
    }
    check_context([file_of(town, name=None)])


def gtfs(folder):
    folder.mkdir()
    (folder / "stops.txt").write_text(
        "stop_id,stop_name,stop_lat,stop_lon\n1,Market,50.1,10.1\n2,Station,50.12,10.12\n3,Moon,0,0\n"
    )
    (folder / "shapes.txt").write_text(
        "shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence\nb,50.12,10.12,2\nb,50.1,10.1,1\n"
        "a,50.1,10.1,1\na,50.12,10.12,2\nlonely,50.1,10.1,1\n"
    )
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_static_gtfs_gives_stops_and_the_ways_between_them_once(packed, tmp_path):
    path = gtfs(tmp_path / "feed")
    if packed:
        with zipfile.ZipFile(tmp_path / "feed.zip", "w") as archive:
            for each in sorted(path.iterdir()):
                archive.write(each, each.name)
        path = tmp_path / "feed.zip"
    assert is_gtfs(path)
    (layer,) = read_context([file_of(path, ContextKind.TRANSIT, None)], AREA)
    assert sorted(layer.names) == ["", "Market", "Station"]
    (way,) = [shape for shape, name in zip(layer.shapes, layer.names, strict=True) if not name]
    assert way.bounds == pytest.approx((10.1, 50.1, 10.12, 50.12), abs=1e-4)
    (stops,) = read_context([file_of(path, ContextKind.PLACE, None)], AREA)
    assert sorted(stops.names) == ["Market", "Station"]


def test_corners_are_left_out_but_nothing_moves_far():
    rng = np.random.default_rng(1)
    x = np.linspace(10.0, 10.2, 20_000)
    line = shapely.LineString(np.column_stack([x, 50.1 + 2e-6 * rng.standard_normal(len(x))]))
    (coarse,), _ = simplified_layer(np.array([line]), np.array(["A"], dtype=object), AREA.geometry)
    assert shapely.get_num_coordinates(coarse) < 100
    assert shapely.hausdorff_distance(coarse, line) < 2 * 0.2 / STEPS_ACROSS


@pytest.mark.slow
def test_a_huge_layer_is_brought_down_and_keeps_its_longest_shapes():
    rng = np.random.default_rng(2)
    start = rng.uniform([10, 50], [10.2, 50.2], (50_000, 2))
    lines = shapely.linestrings(np.stack([start, start + rng.uniform(-2e-3, 2e-3, start.shape)], axis=1))
    names = np.array([f"Street {number}" for number in range(len(lines))], dtype=object)
    shapes, kept = simplified_layer(lines, names, AREA.geometry)
    assert 10_000 < shapely.get_num_coordinates(shapes).sum() <= MOST_CORNERS
    assert len(kept) == len(shapes) == len(set(kept))
    assert (np.diff(shapely.length(shapes)) <= 0).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / "none.gpkg", "none.gpkg does not exist"),
        (
            lambda folder: folder.joinpath("a.txt").write_text("x") and folder / "a.txt",
            "a.txt cannot be read",
        ),
        (lambda folder: folder.joinpath("a.gpkg").write_text("x") and folder / "a.gpkg", "a.gpkg cannot be"),
        (lambda folder: gtfs(folder / "g").joinpath("stops.txt").unlink() or folder / "g", "no stops.txt"),
    ],
)
def test_a_file_that_is_none_is_refused(make, says, tmp_path):
    file = file_of(make(tmp_path))
    with pytest.raises(ConfigError, match=says):
        read_context([file], AREA)
    if "no stops" not in says:
        with pytest.raises(ConfigError, match=says):
            check_context([file])


def test_a_missing_column_and_a_missing_coordinate_system_are_refused(tmp_path):
    ROADS.to_file(tmp_path / "roads.gpkg")
    untitled = [file_of(tmp_path / "roads.gpkg", name="title")]
    for look in (lambda: read_context(untitled, AREA), lambda: check_context(untitled)):
        with pytest.raises(ConfigError, match=r"has no column title; expected label"):
            look()
    check_context([file_of(tmp_path / "roads.gpkg", name="label")])
    ROADS.to_file(tmp_path / "lost.shp")
    (tmp_path / "lost.prj").unlink()
    with pytest.raises(ConfigError, match="coordinate system"):
        read_context([file_of(tmp_path / "lost.shp")], AREA)
