from __future__ import annotations

import io
import json
import re
import time

import geopandas
import numpy as np
import pytest
from geojson_pydantic import FeatureCollection

from trafficdp.binning.cells import bounding_box
from trafficdp.export.files.tables import geojson_bytes
from trafficdp.model import StudyArea


def document_of(release):
    return json.loads(geojson_bytes(release))


@pytest.mark.filterwarnings("ignore:BBOX crossing the Antimeridian")
def test_every_release_is_valid_geojson(any_release):
    collection = FeatureCollection.model_validate_json(geojson_bytes(any_release))
    assert len(collection.features) == any_release.bins


def test_there_is_no_crs_member_and_one_foreign_member(any_release):
    assert set(document_of(any_release)) == {"type", "bbox", "trafficdp", "features"}


def test_geopandas_reads_it_back_with_the_published_numbers(city):
    read = geopandas.read_file(io.BytesIO(geojson_bytes(city)))
    assert len(read) == city.bins
    assert read.crs.to_epsg() == 4326
    assert read.geometry.is_valid.all()
    released = ~read["speed_mean_kmh"].isna()
    assert int((~released).sum()) == int((city.status == "withheld").sum())
    factor = 3.6
    mean = next(iter(city.estimates.values())).value * factor
    assert np.allclose(read["speed_mean_kmh"][released], mean[released.to_numpy()], atol=0.0005001)


def test_the_same_release_gives_the_same_bytes(rush_hours):
    assert geojson_bytes(rush_hours) == geojson_bytes(rush_hours)


def test_coordinates_have_at_most_seven_decimals(globe):
    text = json.dumps([feature["geometry"] for feature in document_of(globe)["features"]])
    decimals = [len(digits) for digits in re.findall(r"\.(\d+)", text)]
    assert max(decimals) == 7


def test_the_id_is_the_cell_when_there_is_one_slot(city):
    for feature in document_of(city)["features"]:
        assert feature["id"] == feature["properties"]["hex_id"]


def test_the_id_names_the_slot_when_there_are_several_and_h3_stays_the_cell(rush_hours):
    features = document_of(rush_hours)["features"]
    assert len({feature["id"] for feature in features}) == len(features)
    for feature in features:
        properties = feature["properties"]
        assert feature["id"] == f"{properties['hex_id']}/{properties['slot']}"
        assert len(properties["hex_id"]) == 15


def test_a_withheld_bin_is_present_with_nulls_a_status_and_a_reason(city):
    withheld = [
        f["properties"] for f in document_of(city)["features"] if f["properties"]["status"] == "withheld"
    ]
    assert len(withheld) == int((city.status == "withheld").sum()) > 0
    for properties in withheld:
        assert properties["reason"] == "fewer than 5 vehicles were seen here"
        assert properties["speed_mean_kmh"] is None
        assert properties["speed_variance_kmh2_high"] is None


def test_recurring_slots_have_kind_and_label_and_a_null_start(rush_hours):
    properties = document_of(rush_hours)["features"][0]["properties"]
    assert properties["slot_kind"] == "hour_of_day"
    assert properties["slot_label"] == "07:00 to 08:00"
    assert properties["slot_start"] is None
    assert properties["slot_end"] is None


def test_calendar_slots_have_a_start_with_offset(calendar):
    assert document_of(calendar)["features"][0]["properties"]["slot_start"] == "2016-11-24T01:00:00-06:00"


def test_lattice_columns_stay_out(any_release):
    for feature in document_of(any_release)["features"]:
        assert not [name for name in feature["properties"] if "lattice" in name]


def test_counts_appear_only_when_they_are_published(city, calendar):
    assert "vehicles" not in document_of(city)["features"][0]["properties"]
    assert document_of(calendar)["features"][0]["properties"]["vehicles"] == 5


def test_metadata_says_what_was_promised(city):
    metadata = document_of(city)["trafficdp"]
    assert metadata["release"] == "R0001"
    assert metadata["manifest"] == "manifest.json"
    assert metadata["interval_level"] == 0.95
    assert {each["interval_kind"] for each in metadata["statistics"].values()} == {"guaranteed"}
    assert metadata["privacy"]["epsilon"] == "3.999999999999"
    assert metadata["privacy"]["neighbouring_relation"] == "replace_user_values"
    assert metadata["statistics"]["speed_variance_kmh2"]["unit"] == "(km/h)²"


def test_the_box_of_a_map_across_the_antimeridian_has_its_west_greater_than_its_east(fiji):
    document = document_of(fiji)
    west, south, east, north = document["bbox"]
    assert 178 < west < 180
    assert -180 < east < -178
    assert south < -17 < north
    crossing = [feature for feature in document["features"] if feature["geometry"]["type"] == "MultiPolygon"]
    assert len(crossing) > 1
    for feature in crossing:
        assert feature["bbox"][0] > feature["bbox"][2]


def test_an_ordinary_box_holds_all_cells(city):
    west, south, east, north = document_of(city)["bbox"]
    assert -98 < west < east < -97
    assert 30 < south < north < 31


def test_the_box_of_the_globe_is_the_globe(globe):
    assert document_of(globe)["bbox"] == [-180.0, -90.0, 180.0, 90.0]


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([(10, 0, 20, 5)], [10, 0, 20, 5]),
        ([(170, 0, 175, 5), (-175, -5, -170, 0)], [170, -5, -170, 5]),
        ([(-180, 0, -170, 5), (160, 0, 180, 5)], [160, 0, -170, 5]),
        ([(-100, 0, -90, 5), (-20, 0, -10, 5)], [-100, 0, -10, 5]),
        ([(-180, 0, 180, 5), (1, 1, 2, 2)], [-180, 0, 180, 5]),
    ],
)
def test_the_bounding_box_leaves_out_the_widest_gap(boxes, expected):
    shapes = np.array([StudyArea.from_bbox(*box).geometry for box in boxes], dtype=object)
    assert bounding_box(shapes) == expected


def test_a_pentagon_is_drawn(pentagon):
    corners = {len(f["geometry"]["coordinates"][0]) - 1 for f in document_of(pentagon)["features"]}
    assert corners & {5, 10}


@pytest.mark.slow
def test_ten_times_as_many_features_take_about_ten_times_as_long(make_release):
    import h3

    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), 41)[:5_000]

    def seconds(many):
        release = make_release(cells[:many])
        started = time.process_time()
        content = geojson_bytes(release)
        assert content.count(b'"type":"Feature",') == many
        return time.process_time() - started

    seconds(10)
    assert seconds(5_000) < 40 * seconds(500)
