"""Districts under `add_or_remove_user`: declared like hexagons, with the same files, checks and questions."""

import json
import re
import shutil
from importlib.resources import files

import geopandas
import jsonschema
import numpy as np
import pandas as pd
import pytest
import shapely

import trafficdp
from trafficdp.binning.places import declared_bins, zone_km2
from trafficdp.cli.plan_words import plan_facts
from trafficdp.errors import UsageError
from trafficdp.model import Statistic, StudyArea
from trafficdp.release.recomputation import verify_public

pytestmark = pytest.mark.store

DISTRICTS = {
    "South": shapely.box(72.71, 21.11, 72.735, 21.14),
    "Empty": shapely.box(72.735, 21.11, 72.745, 21.14),
    # beside the study area, and far from it
    "Beside": shapely.box(72.75, 21.05, 72.77, 21.1),
    "Middle": shapely.MultiPolygon(
        [shapely.box(72.75, 21.15, 72.77, 21.17), shapely.box(72.71, 21.2, 72.73, 21.22)]
    ),
    "Far": shapely.box(73.5, 21.5, 73.6, 21.6),
    # half of it is in the study area
    "East": shapely.box(72.88, 21.1, 73.02, 21.28),
    "Hill": shapely.Point(72.80, 21.20).buffer(0.015, quad_segs=300),
}
DECLARED = ["South", "Empty", "Middle", "East", "Hill"]
SCHEMA = json.loads((files("trafficdp.cli") / "schemas" / "plan.schema.json").read_text())
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, force = TRUE) "


@pytest.fixture(scope="module", autouse=True)
def _maps_are_tried_once(small_city):
    with pytest.MonkeyPatch.context() as patched:
        small_city.try_maps_once(patched.setattr)
        yield


@pytest.fixture(scope="module", params=["by delta"])
def zoned(request, small_city, tmp_path_factory):
    """A city cut into districts of which nothing about a vehicle is public, with one release.

    Where pure noise makes a difference is tested on hexagons: test_hidden_release.py.
    """
    city = small_city.City(tmp_path_factory.mktemp("zoned"))
    small_city.write_hidden(city.folder, delta="" if request.param == "pure" else "delta = 1e-6\n")
    frame = geopandas.GeoDataFrame({"name": [*DISTRICTS]}, geometry=[*DISTRICTS.values()], crs="EPSG:4326")
    city.zones = city.folder / "districts.gpkg"
    frame.to_file(city.zones)
    text = re.sub("resolution = .*", 'zones = "districts.gpkg"', city.config.read_text())
    city.config.write_text(text.replace("epsilon = 9", "epsilon = 20"))
    city.workspace = city.open()
    city.workspace.ingest(list(city.days.values()))
    city.done = city.workspace.release(force=True)
    return city


def test_every_declared_zone_has_a_row_visited_or_not_and_no_other(zoned):
    cells, slots = declared_bins(zoned.workspace.config.measured_grid)
    assert [[*DISTRICTS][number - 1] for number in cells.tolist()] == DECLARED
    assert not slots.any()
    frame = zoned.done.to_frame()
    assert frame["place"].tolist() == DECLARED
    assert frame["hex_id"].tolist() == ["1", "2", "4", "6", "7"]
    assert set(frame["status"]) <= {"released", "uninformative"}
    assert not frame["speed_mean_kmh"].isna().any()


def test_nothing_that_is_planned_charged_or_listed_rests_on_the_records(zoned, small_city, tmp_path):
    """One vehicle alone in a store leads to the same plan, price and rows."""
    shutil.copytree(zoned.folder, tmp_path / "other", ignore=shutil.ignore_patterns("city.store*"))
    other = small_city.at(tmp_path / "other")
    rows = other.days[1].read_text().splitlines()
    other.days[1].write_text("\n".join([rows[0], *(row for row in rows if row.startswith("mh 99"))]) + "\n")
    workspace = other.open()
    workspace.ingest([other.days[1]])
    plans = [plan_facts(each.plan(3, suggestions=False)) for each in (zoned.workspace, workspace)]
    for plan in plans:
        jsonschema.validate(plan, SCHEMA)
        del plan["budget_left"], plan["left_after"], plan["in_epsilon"]
    assert plans[0] == plans[1]
    assert plans[0]["map"]["resolution"] is None
    assert plans[0]["bins"] == len(DECLARED)
    assert 0 <= plans[0]["numbers_expected"] <= len(DECLARED)
    done = workspace.release(force=True)
    assert done.to_frame()["hex_id"].tolist() == zoned.done.to_frame()["hex_id"].tolist()
    assert small_city.charges_by_plate_order(other)[0][2] == small_city.charges_by_plate_order(zoned)[0][2]


@pytest.mark.parametrize("zoned", ["pure", "by delta"], indirect=True)
def test_it_verifies_with_the_store_and_without(zoned, tmp_path):
    checks = zoned.workspace.verify("r0001")
    assert all(check.passed for check in checks), checks
    assert checks[-1].name == "anyone can recompute its numbers"
    away = tmp_path / "away"
    shutil.copytree(zoned.done.folder, away)
    for public in (verify_public(away), verify_public(away, zoned.zones)):
        assert len(public) == 7
        assert all(check.passed for check in public), public


def test_a_zone_that_is_left_out_or_lies_elsewhere_is_noticed(zoned, tmp_path):
    def failed(change, zones=None):
        away = tmp_path / "away"
        shutil.rmtree(away, ignore_errors=True)
        shutil.copytree(zoned.done.folder, away)
        for name in ("cells.parquet", "measurements.parquet"):
            read = geopandas.read_parquet if name == "cells.parquet" else pd.read_parquet
            change(read(away / name)).to_parquet(away / name, index=False)
        return {check.name.split(",")[0] for check in verify_public(away, zones) if not check.passed}

    def without(table):
        return table[table["hex_id"] != "2"]

    def moved(table):
        if "geometry" in table:
            table.loc[1, "geometry"] = DISTRICTS["Far"]
        return table

    def beyond(number):
        return lambda table: table.assign(hex_id=table["hex_id"].replace("2", number))

    assert "hexagons" not in failed(without)
    assert all("hexagons" in failed(beyond(number)) for number in ("0", "99"))
    assert "hexagons" in failed(without, zoned.zones)
    assert "hexagons" in failed(moved)
    other = tmp_path / "other.gpkg"
    geopandas.GeoDataFrame({"name": ["x"]}, geometry=[DISTRICTS["South"]], crs="EPSG:4326").to_file(other)
    assert "hexagons" in failed(lambda table: table, other)


def test_files_page_and_report_show_the_zones(zoned, tmp_path):
    table = zoned.done.to_geodataframe()
    for name, shape in zip(table["place"], table.geometry, strict=True):
        assert shapely.area(shapely.symmetric_difference(shape, DISTRICTS[name])) < 1e-12
    geojson = json.loads((zoned.done.folder / "map.geojson").read_text())
    assert [each["id"] for each in geojson["features"]] == ["1", "2", "4", "6", "7"]
    manifest = json.loads((zoned.done.folder / "manifest.json").read_text())
    assert manifest["coverage"]["zones"]["zones"] == len(DISTRICTS)
    page = (zoned.done.folder / "map.html").read_text(encoding="utf-8")
    zoned.workspace.city_report("r0001", tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Point at a zone" in page
    assert "districts.gpkg" in report
    for format in ("csv", "gpkg", "registry"):
        zoned.workspace.export("r0001", format, tmp_path / f"map.{format}")
    assert pd.read_csv(tmp_path / "map.csv")["place"].tolist() == DECLARED
    listed = zoned.sql("SELECT place FROM latest_cells ORDER BY cell", database="released")
    assert [place for (place,) in listed] == DECLARED


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("cell, AVG(speed), COUNT(*) FROM fixes GROUP BY cell", DECLARED),
        ("cell, AVG(speed) FROM fixes WHERE area IN ('South', 'Hill') GROUP BY cell", ["South", "Hill"]),
        ("cell, AVG(speed) FROM fixes WHERE place = 'Middle' GROUP BY cell", ["Middle"]),
        ("hour, AVG(speed) FROM fixes WHERE area = 'East' AND hour BETWEEN 7 AND 9 GROUP BY hour", None),
        ("AVG(speed) FROM fixes WHERE area = 'Hill'", None),
    ],
)
def test_questions_over_places_are_answered_and_verified(zoned, text, rows):
    answered = zoned.workspace.ask(ASK + text)
    frame = answered.to_frame()
    if rows is not None:
        assert [[*DISTRICTS][int(each) - 1] for each in frame["cell"]] == rows
    assert np.isfinite(frame.select_dtypes("number").to_numpy(dtype=float)).all()
    checks = zoned.workspace.verify(answered.release_id)
    assert all(check.passed for check in checks), checks
    assert all(check.passed for check in verify_public(zoned.done.folder.parent / answered.release_id))


def test_a_zone_outside_of_the_study_area_is_no_place_to_ask_about(zoned):
    with pytest.raises(UsageError, match="study area"):
        zoned.workspace.ask(ASK + "cell, AVG(speed) FROM fixes WHERE area = 'Far' GROUP BY cell")


def test_the_size_of_a_zone_is_that_of_its_part_in_the_study_area(zoned):
    grid = zoned.workspace.config.grid
    narrow = np.cos(np.radians(21.19))
    area = StudyArea.from_bbox(72.70, 21.10, 72.95, 21.28).geometry
    parts = [shapely.area(shapely.intersection(DISTRICTS[name], area)) for name in DECLARED]
    assert zone_km2(grid) == pytest.approx(np.mean(parts) * 111.32**2 * narrow, rel=0.01)
    assert zone_km2(grid.with_resolution(7)) is None


def test_the_configuration_takes_zones_and_one_slot(zoned):
    text = zoned.config.read_text()
    other = zoned.folder / "hourly.toml"
    other.write_text(text.replace('slot = "whole_period"', 'slot = "hour_of_day"'))
    plan = trafficdp.open(other, store=zoned.store).plan()
    assert plan.slot_not_measured is not None
    assert plan.earlier_release == "r0001"


def test_a_saved_plan_expects_the_declared_fleet_and_the_size_of_its_zones(zoned):
    planned = zoned.workspace.plan(2, save="kept", suggestions=False)
    frozen = zoned.workspace.plan(saved="kept", suggestions=False)
    assert frozen.allocation.request.fleet == planned.allocation.request.fleet != 1_000
    found, again = (each.allocation.skill[Statistic.MEAN] for each in (planned, frozen))
    np.testing.assert_array_equal(again.error, found.error)
    assert again.expected_numbers == found.expected_numbers
    assert frozen.verdict == planned.verdict
