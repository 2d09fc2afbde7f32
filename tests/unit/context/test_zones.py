"""A city's own zones from a file: numbered in its order, named apart, and refused where they are no map."""

import geopandas
import pytest
import shapely

from trafficdp.context.read import read_zones
from trafficdp.errors import ConfigError
from trafficdp.model import Zones, as_json, from_json

WEST, EAST = shapely.box(10.0, 50.0, 10.1, 50.2), shapely.box(10.1, 50.0, 10.2, 50.2)
NORTH = shapely.MultiPolygon([shapely.box(10.0, 50.2, 10.1, 50.3), shapely.box(10.15, 50.2, 10.2, 50.3)])


def written(tmp_path, shapes, names=("Market", "Market", None), crs="EPSG:4326", name="districts.gpkg"):
    path = tmp_path / name
    frame = geopandas.GeoDataFrame({"name": [*names][: len(shapes)]}, geometry=[*shapes], crs="EPSG:4326")
    frame.to_crs(crs).to_file(path)
    return path


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:32632"])
def test_zones_are_numbered_in_the_files_order_and_named_apart(crs, tmp_path):
    zones = read_zones(written(tmp_path, [EAST, WEST, NORTH], crs=crs), None)
    assert zones.names == ("Market", "Market (2)", "zone 3")
    for shape, given in zip(zones.shapes, (EAST, WEST, NORTH), strict=True):
        assert shapely.area(shapely.symmetric_difference(shape, given)) < 1e-4 * given.area
        assert all(part.exterior.is_ccw for part in shapely.get_parts(shape))
    again = from_json(Zones, as_json(zones))
    assert (again, again.key) == (zones, zones.key)


def test_the_order_of_the_zones_is_part_of_what_they_are(tmp_path):
    one = read_zones(written(tmp_path, [EAST, WEST]), None)
    other = read_zones(written(tmp_path, [WEST, EAST]), None)
    assert one.key != other.key


def test_a_sliver_of_a_border_is_no_overlap(tmp_path):
    wider = shapely.box(10.09999, 50.0, 10.2, 50.2)
    assert len(read_zones(written(tmp_path, [WEST, wider]), None).names) == 2


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ([WEST, shapely.box(10.05, 50.0, 10.2, 50.2)], r"overlap.*got 1 pairs, such as Market and Market"),
        ([WEST, shapely.Point(10, 50)], r"1 zones of .*got Market \(number 2\) is no polygon"),
        ([shapely.Polygon([(10, 50), (11, 51), (11, 50), (10, 51)])], "is not valid, such as an outline"),
        ([WEST, None], r"Market \(number 2\) is no polygon"),
        ([], "cannot be used; got 0 shapes; expected 1 to 100,000 polygons"),
    ],
)
def test_what_is_no_map_is_refused(shapes, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        read_zones(written(tmp_path, shapes), None)


def test_a_file_that_is_not_there_cannot_be_read_or_has_no_such_column_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.gpkg does not exist"):
        read_zones(tmp_path / "none.gpkg", None)
    (tmp_path / "text.gpkg").write_text("no map")
    with pytest.raises(ConfigError, match=r"text\.gpkg cannot be read as a map"):
        read_zones(tmp_path / "text.gpkg", None)
    with pytest.raises(ConfigError, match=r"has no column district; expected name"):
        read_zones(written(tmp_path, [WEST]), "district")
