from __future__ import annotations

import errno
import hashlib
import io
import json
import os

import geopandas
import pytest

from trafficdp.errors import StoreFullError, UsageError
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.export.write import FORMATS, export, write_release

NAMES = [
    *("map.geojson", "cells.csv", "cells.parquet", "map.html", "mechanism.parquet"),
    *("datapackage.json", "dataset.jsonld", "manifest.json"),
]


@pytest.fixture
def written(city, tmp_path):
    return write_release(city, tmp_path), tmp_path


def test_the_files_are_written(written):
    facts, folder = written
    assert list(facts) == NAMES
    assert sorted(os.listdir(folder)) == sorted(NAMES)


def test_the_facts_are_those_of_the_files(written):
    facts, folder = written
    for name, each in facts.items():
        content = (folder / name).read_bytes()
        assert (each.sha256, each.bytes) == (hashlib.sha256(content).hexdigest(), len(content))


def test_the_manifest_lists_the_other_files(written):
    facts, folder = written
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    validate_manifest(manifest)
    listed = {each["name"]: each["sha256"] for each in manifest["files"]}
    assert listed == {name: facts[name].sha256 for name in NAMES if name != "manifest.json"}


@pytest.mark.slow
def test_listed_columns_are_those_of_the_files(any_release, tmp_path):
    facts = write_release(any_release, tmp_path)
    names = {name: [column.name for column in each.columns] for name, each in facts.items()}
    header = (tmp_path / "cells.csv").read_text("utf-8").splitlines()[0]
    assert names["cells.csv"] == header.split(",")
    features = json.loads((tmp_path / "map.geojson").read_text("utf-8"))["features"]
    assert names["map.geojson"] == list(features[0]["properties"])
    read = geopandas.read_parquet(tmp_path / "cells.parquet")
    assert names["cells.parquet"][:-1] == list(read.columns)
    # a column has one name, whatever holds it
    shared = [
        name
        for name in names["cells.csv"]
        if name not in ("vehicles", "records") and not name.endswith("_interval_kind")
    ]
    assert set(shared) <= set(names["map.geojson"])
    assert [*names["cells.csv"], "geometry", "bbox"] == names["cells.parquet"]
    mechanism = geopandas.pd.read_parquet(tmp_path / "mechanism.parquet")
    assert names["mechanism.parquet"] == list(mechanism.columns)


def test_how_the_noise_was_drawn_stands_in_one_file_alone(any_release, tmp_path):
    facts = write_release(any_release, tmp_path)
    for name, each in facts.items():
        technical = [column.name for column in each.columns if "lattice" in column.name]
        assert bool(technical) is (name == "mechanism.parquet")


@pytest.mark.slow
def test_writing_twice_gives_the_same_bytes(any_release, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_release(any_release, tmp_path / name)
    for name in NAMES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_files_and_folder_are_synced(city, tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor)))
    write_release(city, tmp_path)
    assert len(synced) == 2 * len(NAMES)


def test_a_folder_that_is_not_empty_is_refused(city, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        write_release(city, tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_missing_folder_is_refused(city, tmp_path):
    with pytest.raises(UsageError):
        write_release(city, tmp_path / "nowhere")


def test_a_full_disk_ends_without_a_manifest(city, tmp_path, monkeypatch):
    calls = []
    real = os.fsync

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "full")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreFullError):
        write_release(city, tmp_path)
    assert "manifest.json" not in os.listdir(tmp_path)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_exported_and_replaces_what_was_there(city, tmp_path, kind):
    target = tmp_path / f"out.{kind}"
    target.write_text("old")
    export(city, kind, target)
    first = target.read_bytes()
    export(city, kind, target)
    assert target.read_bytes() == first != b"old"
    assert os.listdir(tmp_path) == [target.name]


def test_an_export_is_the_same_as_the_released_file(written, city):
    _, folder = written
    export(city, "geojson", folder / "again.geojson")
    assert (folder / "again.geojson").read_bytes() == (folder / "map.geojson").read_bytes()


def test_an_unknown_format_is_refused(city, tmp_path):
    with pytest.raises(UsageError, match="csv, flatgeobuf, geojson, geoparquet, gpkg, html"):
        export(city, "dwg", tmp_path / "out.dwg")


def test_a_missing_parent_folder_is_refused(city, tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        export(city, "csv", tmp_path / "nowhere" / "out.csv")


def test_all_files_tell_the_same_numbers(calendar, tmp_path):
    write_release(calendar, tmp_path)
    parquet = geopandas.read_parquet(tmp_path / "cells.parquet")
    features = json.loads((tmp_path / "map.geojson").read_text("utf-8"))["features"]
    table = geopandas.pd.read_csv(io.BytesIO((tmp_path / "cells.csv").read_bytes()))
    for name in ("speed_mean_kmh", "speed_mean_kmh_low", "speed_variance_kmh2_high"):
        expected = [None if value != value else value for value in parquet[name]]
        assert [feature["properties"][name] for feature in features] == expected
        assert [None if value != value else value for value in table[name]] == expected
