"""The whole tool in Python: what each call gives back, and what it leaves."""

import re
import subprocess
import sys
from dataclasses import replace

import geopandas
import numpy as np
import pandas as pd
import pytest

import trafficdp
from trafficdp.config.document import store_and_key
from trafficdp.errors import StoreUnavailableError, UsageError
from trafficdp.privacy.loss import PureDP
from trafficdp.store.store_files import store_failures
from trafficdp.store.vault import Vault

pytestmark = pytest.mark.usefixtures("two_cities")


def test_five_lines_from_files_to_a_map(city):
    workspace = trafficdp.open(city.config, create=True)
    (day,) = workspace.ingest([city.days[1]])
    assert day.added == day.report.rows_kept == day.report.rows_in
    assert str(workspace.plan().loss) == "8"
    release = workspace.release(force=True)
    frame = release.to_geodataframe()
    assert isinstance(frame, geopandas.GeoDataFrame)
    assert len(frame) == len(release.to_frame()) == 5
    assert sorted(path.name for path in release.folder.iterdir()) == [
        "cells.csv",
        "cells.parquet",
        "datapackage.json",
        "dataset.jsonld",
        "manifest.json",
        "map.geojson",
        "map.html",
        "mechanism.parquet",
    ]


def test_nothing_is_made_unless_asked(city):
    with pytest.raises(StoreUnavailableError, match="no store here"):
        trafficdp.open(city.config).plan()
    assert not city.store.exists()
    assert not city.key.exists()


def test_opening_with_create_twice_keeps_the_store(filled):
    before = filled.dump()
    trafficdp.open(filled.config, create=True)
    assert filled.dump() == before
    assert len(list(filled.folder.glob("*.head"))) == 1


@pytest.mark.slow
def test_two_processes_may_create_the_same_store(city, small_city):
    def create():
        trafficdp.open(city.config, create=True).status()

    racing = [small_city.forked(create) for _ in range(2)]
    assert [small_city.ended(each) for each in racing] == [0, 0]
    assert len(list(city.folder.glob("*.head"))) == 1
    city.open().ingest([city.days[1]])
    assert city.open().release(force=True).id == "r0001"


def test_a_failed_making_leaves_no_lock(city, monkeypatch):
    def fail(*arguments, **options):
        with store_failures("making the store"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Vault, "create", fail)
    with pytest.raises(StoreUnavailableError):
        city.open()
    assert list(city.store.iterdir()) == []


def test_planning_spends_nothing(filled):
    workspace = filled.open()
    before = filled.dump()
    plan = workspace.plan()
    assert workspace.plan("3").loss.pico <= 3 * 10**12
    assert str(plan.budget_left) == "20"
    assert filled.dump() == before


def test_status_counts_what_is_there_and_finishes_nothing(released):
    status = released.open().status()
    assert (status.files, status.vehicles, status.releases, status.unfinished) == (1, 11, 1, 0)
    assert str(status.largest_spent) == str(status.sum_of_maxima) == "8"
    released.sql("UPDATE releases SET published = false")
    assert released.open().status().unfinished == 1
    assert released.open().status().unfinished == 1


def test_an_empty_store_has_nothing_to_plan(city):
    workspace = city.open()
    for command in (workspace.plan, workspace.release):
        with pytest.raises(UsageError, match="the store is empty"):
            command()
    assert workspace.releases() == []
    assert workspace.ledger() == []
    assert workspace.reports() == []


def test_a_period_without_records_says_so(filled):
    with pytest.raises(UsageError, match="no record lies in"):
        filled.open(first="2030-01-01", last="2030-01-02").release(force=True)


def test_ingesting_no_file_is_a_usage_error(filled):
    with pytest.raises(UsageError, match="no file to ingest"):
        filled.open().ingest([])


@pytest.mark.parametrize("name", ["r9999", "", "../r0001", "r0001/../r0001"])
def test_a_release_that_is_not_there_is_named_with_those_that_are(released, name):
    workspace = released.open()
    for command in (workspace.map, workspace.verify, workspace.withdraw):
        with pytest.raises(UsageError, match="expected one of r0001"):
            command(name)


def test_a_withdrawn_release_is_listed_but_not_exported(released, tmp_path):
    workspace = released.open()
    workspace.withdraw("r0001")
    assert [(each.id, each.status) for each in workspace.releases()] == [("r0001", "withdrawn")]
    with pytest.raises(UsageError, match="withdrawn"):
        workspace.export("r0001", "csv", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_an_export_is_the_published_file(released, tmp_path):
    for kind, name in (("csv", "cells.csv"), ("geojson", "map.geojson"), ("html", "map.html")):
        out = released.open().export("r0001", kind, tmp_path / name)
        assert out.read_bytes() == (released.store / "releases" / "r0001" / name).read_bytes()


def test_a_key_lies_beside_the_store_or_where_it_is_told_to(tmp_path):
    config, store = tmp_path / "trafficdp.toml", tmp_path / "city.store"
    assert store_and_key(config, None, None, None) == (store, tmp_path / "city.store.key")
    assert store_and_key(config, None, store, tmp_path / "k") == (store, tmp_path / "k")
    with pytest.raises(UsageError, match="must not lie in the store"):
        store_and_key(config, store, None, store / "deep" / "k")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert store_and_key(config, store, None, loop) == (store, loop)


def test_a_path_as_text_a_frame_and_a_list_are_one_ingest(city, tmp_path):
    first, second = city.days[1], city.days[2]
    by_files = city.open()
    by_files.ingest([first, second])
    expected = by_files.counts()
    frames = trafficdp.open(city.config, store=tmp_path / "frames.store", create=True)
    (day,) = frames.ingest(str(first))
    assert day.added > 0
    frames.ingest([pd.read_csv(second)], source="buses")
    found = frames.counts()
    assert found.samples_per_bin.tolist() == expected.samples_per_bin.tolist()
    assert found.users_per_bin.tolist() == expected.users_per_bin.tolist()
    (again,) = frames.ingest(pd.read_csv(second))
    assert (again.read_before, again.added, again.file) == (True, 0, "pandas.DataFrame")


def test_a_frame_of_several_sources_must_be_told_apart(city):
    text = city.config.read_text()
    city.config.write_text(text + text[text.index("[[source]]") :].replace('"buses"', '"vans"'))
    workspace, frame = city.open(), pd.read_csv(city.days[1])
    with pytest.raises(UsageError, match="expected source='buses' or 'vans'"):
        workspace.ingest(frame)
    with pytest.raises(UsageError, match="no such source"):
        workspace.ingest(frame, source="trams")
    (done,) = workspace.ingest(frame, source="vans")
    assert done.report.source == "vans"


def test_what_there_is_can_be_seen_before_it_is_loaded():
    program = "import sys, trafficdp; print(dir(trafficdp)); print('pandas' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == [repr(sorted(trafficdp.__all__)), "False"]
    assert "open" in trafficdp.__all__


def test_what_a_notebook_shows_names_no_vehicle(released):
    """Numbers of single vehicles are made unmistakable, and then looked for."""
    workspace = released.open()
    status = replace(workspace.status(), records=987654, vehicles=76543, largest_spent=PureDP.of("1.2345"))
    plan = replace(workspace.plan(), budget_left=PureDP.of("3.2109"))
    for each in (workspace, status, plan, workspace.map("r0001")):
        for text in (repr(each), each._repr_html_()):
            assert not re.search(r"987[,.]?654|76[,.]?543|1\.2345|3\.2109|array\(", text)
        assert len(repr(each)) < 400
        assert "\n" not in repr(each)
    assert "epsilon 8" in repr(status)
    losses = np.unique(plan.allocation.event.loss_per_user)
    others = {str(PureDP(int(each))) for each in losses[(losses > 0) & (losses < losses.max())]}
    assert min(map(len, others)) > 6
    assert not any(each in repr(plan) + plan._repr_html_() for each in others)


def test_a_plan_is_a_frame_of_what_will_be_released(filled):
    workspace = filled.open()
    promised = workspace.plan().to_frame()
    found = workspace.release(force=True).to_frame()
    found = found[found["status"] != "withheld"].reset_index(drop=True)
    assert promised["hex_id"].tolist() == found["hex_id"].tolist()
    assert promised["slot_label"].tolist() == found["slot_label"].tolist()
    for name in ("speed_mean_kmh", "speed_variance_kmh2"):
        assert np.allclose(promised[f"{name}_expected_error"], found[f"{name}_expected_error"], rtol=0.01)
        width = (found[f"{name}_high"] - found[f"{name}_low"]) / 2
        assert (promised[f"{name}_half_width"] >= width - 0.001).all()


def test_python_takes_a_half_width_in_words_too(filled):
    workspace = filled.open()
    by_words = workspace.plan(max_half_width="18 km/h in every bin", suggestions=False)
    assert by_words.loss == workspace.plan(max_half_width="18 in every bin", suggestions=False).loss
    assert by_words.loss == workspace.plan(max_half_width="5 m/s in every bin", suggestions=False).loss
    with pytest.raises(UsageError, match="the half width is not a speed"):
        workspace.plan(max_half_width="fast")
