"""A map of several resolutions, from configuration to verification: plan, release, export, SQL, verify."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
import shapely

from trafficdp.binning.cells import cells_from_text, parents_of, polygons_of
from trafficdp.binning.places import bins_in_mosaic
from trafficdp.errors import ConfigError, UninformativeReleaseError, UsageError
from trafficdp.model import resolution_of

pytestmark = pytest.mark.usefixtures("two_cities")

WIDTH = 10.0


def several(resolutions="[5, 6, 7, 8]", width='"10 km/h"', more=""):
    return f"8\nresolutions = {resolutions}\nmax_half_width = {width}\n{more}"


def drive(city):
    """Replace the records: forty vehicles, all often in the centre, each sometimes in one of many suburbs."""
    for day, path in city.days.items():
        rows = ["plate,at,latitude,longitude,speed"]
        for vehicle in range(40):
            at = datetime(2026, 3, 2 + day, 8, tzinfo=timezone(timedelta(hours=5, minutes=30)))
            for record in range(30):
                at += timedelta(seconds=240)
                central = record % 3 > 0
                place = record % 4 if central else 4 + (vehicle * 7 + record) % 24
                latitude, longitude = 21.12 + 0.012 * (place % 6), 72.72 + 0.012 * (place // 6)
                speed = 20 + (vehicle * 37 + record * 11 + day * 3) % 41
                rows.append(f"VEHICLE {vehicle},{at.isoformat()},{latitude},{longitude},{speed}")
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def fill(city, slots="whole_period", longer="", epsilon="8"):
    """Busy and quiet parts, under a configuration of several resolutions."""
    city.open(resolution=several(more="detail = 0.5"), statistics='"mean"', epsilon=epsilon)
    drive(city)
    text = city.config.read_text(encoding="utf-8").replace('"whole_period"\nspeed', f'"{slots}"\nspeed')
    city.config.write_text(text.replace("detail", f"{longer}\ndetail"), encoding="utf-8")
    city.open().ingest(list(city.days.values()))


def fill_and_release(city):
    fill(city)
    return city.open().release(force=True)


@pytest.fixture
def adaptive(prepared):
    """A city with busy and quiet parts, under a configuration of several resolutions."""
    return prepared(fill)[0]


@pytest.fixture
def hourly(prepared):
    """Returns a city by the hour of day, with longer slots to fall back on."""
    return lambda longer="", epsilon="16": prepared(fill, "hour_of_day", longer, epsilon)[0]


@pytest.fixture
def mapped(prepared):
    """The city of ``adaptive`` with one release, and the release."""
    city, released = prepared(fill_and_release)
    return city, replace(released, folder=city.store / "releases" / released.id)


def finest_cells(city):
    return city.open().counts()


def test_hexagons_of_several_resolutions_are_released(mapped):
    _, released = mapped
    table = released.to_frame()
    published = table[table["status"] != "withheld"]
    assert len(set(published["resolution"])) > 1
    assert np.array_equal(resolution_of(cells_from_text(list(table["hex_id"]))), table["resolution"])
    half = (published["speed_mean_kmh_high"] - published["speed_mean_kmh_low"]) / 2
    assert float(half.max()) <= WIDTH


def test_every_fix_is_counted_in_one_bin(mapped):
    city, released = mapped
    fine = finest_cells(city)
    cells = np.unique(cells_from_text(list(released.to_frame()["hex_id"])))
    for resolution in (8, 7, 6, 5):
        inside = np.isin(parents_of(fine.cell, resolution), cells)
        fine = fine.select(~inside) if inside.any() else fine
    assert fine.bins == 0
    # and no published or withheld hexagon lies within another
    every = finest_cells(city)
    held = sum(int(np.isin(parents_of(every.cell, resolution), cells).sum()) for resolution in (8, 7, 6, 5))
    assert held == every.bins


def test_its_counts_are_those_of_the_finest_bins_together(mapped):
    city, released = mapped
    fine = finest_cells(city)
    merged = fine.merged(*bins_in_mosaic(released.release.grid, fine.cell, fine.slot)).counts
    there = city.open().counts(released.release.grid)
    assert np.array_equal(there.cell, merged.cell)
    assert np.array_equal(there.count, merged.count)
    assert np.array_equal(there.cell, released.release.cell)


def test_it_verifies(mapped):
    city, released = mapped
    checks = city.open().verify(released.id)
    assert [check.name for check in checks if not check.passed] == []


def test_a_cheaper_claim_is_caught(mapped):
    city, released = mapped
    path = released.folder / "mechanism.parquet"
    table = pd.read_parquet(path)
    columns = [name for name in table if name.endswith(("_lattice_scale", "_half_width"))]
    table[columns[0]] = np.where(table[columns[0]] > 0, table[columns[0]] // 2, table[columns[0]])
    table.to_parquet(path)
    failed = {check.name for check in city.open().verify(released.id) if not check.passed}
    assert "every file is the one that was published" in failed
    assert "the published scales cost no vehicle more than it was charged" in failed


def test_hexagons_are_drawn_at_their_own_size(mapped):
    _, released = mapped
    document = json.loads((released.folder / "map.geojson").read_text(encoding="utf-8"))
    for feature in document["features"]:
        (own,) = polygons_of(cells_from_text([feature["properties"]["hex_id"]]))
        drawn = shapely.from_geojson(json.dumps(feature["geometry"]))
        assert drawn.symmetric_difference(own).area < 1e-4 * own.area  # seven decimals
    assert len({feature["properties"]["resolution"] for feature in document["features"]}) > 1


def test_the_manifest_says_what_was_asked_and_how_many_of_each(mapped):
    _, released = mapped
    manifest = json.loads((released.folder / "manifest.json").read_text(encoding="utf-8"))
    mosaic = manifest["coverage"]["mosaic"]
    assert mosaic["resolutions"] == [8, 7, 6, 5]
    assert (mosaic["max_half_width"], mosaic["unit"]) == ("10", "km/h")
    table = released.to_frame()
    counted = table[table["status"] != "withheld"]["resolution"].value_counts().to_dict()
    assert {each["resolution"]: each["bins"] for each in mosaic["published_bins"]} == {
        resolution: counted.get(resolution, 0) for resolution in (8, 7, 6, 5)
    }
    assert {each["slot_kind"] for each in mosaic["published_bins"]} == {"whole_period"}


def test_sql_knows_every_cells_resolution(mapped):
    city, released = mapped
    rows = city.sql("SELECT hex_id, resolution FROM cells ORDER BY cell", database="released")
    table = released.to_frame()
    assert rows == list(zip(table["hex_id"], table["resolution"], strict=True))


def test_the_plan_counts_hexagons_and_coverage(adaptive):
    plan = adaptive.open().plan()
    assert plan.adaptive is not None
    published = plan.grid.mosaic.bins_per_level(plan.grid.slot_kind)
    assert sum(published.values()) == plan.allocation.counts.bins
    share = plan.allocation.counts.count.sum() / adaptive.open().counts().count.sum()
    assert plan.adaptive.coverage == pytest.approx(share)
    assert plan.precision.worst <= WIDTH
    assert not adaptive.open().releases()


def test_the_same_release_is_planned_whatever_the_speeds(small_city, tmp_path):
    """Values permuted between vehicles: the mosaic is the same, because it sees counts alone."""
    mosaics = []
    for name, upside_down in (("a", False), ("b", True)):
        city = small_city.City(tmp_path / name, resolution=several(), statistics='"mean"', epsilon="4")
        for path in city.days.values():
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = [line.rsplit(",", 1) for line in lines[1:]]
            speeds = [speed for _, speed in rows][:: -1 if upside_down else 1]
            text = [f"{row},{speed}" for (row, _), speed in zip(rows, speeds, strict=True)]
            path.write_text("\n".join([lines[0], *text]) + "\n", encoding="utf-8")
        city.open().ingest(list(city.days.values()))
        mosaics.append(city.open().plan().grid.mosaic)
    assert mosaics[0] == mosaics[1]


def test_slots_have_hexagons_of_their_own(hourly):
    city = hourly()
    released = city.open().release(force=True)
    table = released.to_frame()
    assert len(set(table["slot"])) > 1
    assert not table.duplicated(["hex_id", "slot"]).any()
    assert all(check.passed for check in city.open().verify(released.id))


def test_longer_slots_cover_what_hours_cannot(hourly):
    city = hourly('longer_slots = ["day_part", "whole_period"]', epsilon="0.5")
    released = city.open().release(force=True)
    table = released.to_frame()
    published = table[table["status"] != "withheld"]
    assert "day_part" in set(published["slot_kind"])
    assert set(published[published["slot_kind"] == "day_part"]["slot_label"]) == {
        "morning peak (06:00-10:00)"
    }
    assert city.sql("SELECT DISTINCT slot_label FROM cells WHERE slot < 0", database="released")
    assert all(check.passed for check in city.open().verify(released.id))
    half = (published["speed_mean_kmh_high"] - published["speed_mean_kmh_low"]) / 2
    assert float(half.max()) <= WIDTH
    plan = city.open().plan()
    assert {
        (level.resolution, level.slot_kind.value): level.bins for level in plan.adaptive.levels if level.bins
    } == (published.groupby(["resolution", "slot_kind"]).size().to_dict())
    assert plan.adaptive.coverage == pytest.approx(sum(level.coverage for level in plan.adaptive.levels))
    fine = city.open().counts()
    there = city.open().counts(released.release.grid)
    assert there.count.sum() == fine.count.sum()
    assert (released.folder / "map.html").stat().st_size > 0
    city.open().city_report(released.id, released.folder.parent / "report.html")


def test_a_release_that_died_is_finished_with_the_same_hexagons(adaptive, monkeypatch):
    import trafficdp.release.curator as curator

    class Died(BaseException):
        """As a killed process would be."""

    def die(boundary):
        if boundary == "head written":
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(curator, "failpoint", die)
        with pytest.raises(Died):
            adaptive.open().release(force=True)
    released = adaptive.open().release(force=True)
    assert [each.id for each in adaptive.open().releases()] == [released.id] == ["r0001"]
    assert released.release.grid.mosaic == adaptive.open().plan().grid.mosaic


def test_a_width_that_no_hexagon_reaches_is_refused(adaptive, small_city):
    city = adaptive.open(resolution=several(width='"0.5 km/h"'), statistics='"mean"', epsilon="0.1")
    with pytest.raises(UninformativeReleaseError, match="so narrow an interval"):
        city.plan()


def test_uneven_noise_is_refused(adaptive):
    city = adaptive.open(resolution=several(), statistics='"mean"', accounting="grid_count")
    with pytest.raises(UsageError, match="even noise"):
        city.plan()


def test_a_question_about_another_width_is_refused(adaptive):
    with pytest.raises(UsageError, match="half width in the configuration"):
        adaptive.open().plan(max_half_width=3.0)


def test_one_resolution_may_be_chosen_instead(adaptive):
    plan = adaptive.open().with_map(resolution=6).plan()
    assert plan.adaptive is None
    assert plan.grid.mosaic is None


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("8\nresolutions = [7, 8]", "resolutions"),
        ("8\nresolutions = []\nmax_half_width = 5", "resolutions"),
        ("8\nresolutions = [7, 7, 8]\nmax_half_width = 5", "resolutions"),
        ("8\nresolutions = [8, 16]\nmax_half_width = 5", "resolutions"),
        ("5\nresolutions = [7, 8]\nmax_half_width = 5", "resolution"),
        ("8\nmax_half_width = 5", "max_half_width"),
        ("8\ndetail = 5", "detail"),
        ('8\nlonger_slots = ["whole_period"]', "longer_slots"),
        ('8\nresolutions = [7, 8]\nmax_half_width = 5\nlonger_slots = ["day"]', "longer_slots"),
        ('8\nresolutions = [7, 8]\nmax_half_width = "five km/h"', "max_half_width"),
        ('8\nresolutions = [7, 8]\nmax_half_width = "5 knots"', "max_half_width"),
        ("8\nresolutions = [7, 8]\nmax_half_width = -5", "max_half_width"),
        ("8\nresolutions = [7, 8]\nmax_half_width = 5\ndetail = -1", "detail"),
    ],
)
def test_wrong_settings_are_named(small_city, tmp_path, lines, key):
    city = small_city.City(tmp_path / "city", resolution=lines)
    with pytest.raises(ConfigError, match=rf"\[map\] {key}\b"):
        city.open()


@pytest.mark.parametrize(("width", "expected"), [('"36 km/h"', 36), ("36", 36), ('"10 m/s"', 36)])
def test_a_width_may_carry_its_unit(small_city, tmp_path, width, expected):
    city = small_city.City(tmp_path / "city", resolution=several(width=width))
    assert city.open().config.map.adaptive.half_width == expected
    assert city.open().config.map.adaptive.resolutions == (8, 7, 6, 5)
    assert city.open().config.grid.resolution == 8
