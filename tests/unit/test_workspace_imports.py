"""Contributions from a cluster come into a store once, whole and in order, and equal those of the files."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trafficdp.config.file import declaration_json
from trafficdp.engine.reduced import MANIFEST, PARTS, JobManifest, reduction_in_words
from trafficdp.errors import DataError, StoreKeyError, UsageError
from trafficdp.ingest.report import FileReport
from trafficdp.store.vault_fixes import cache_key

pytestmark = pytest.mark.usefixtures("two_cities", "tables_alone")


def read_both_days(city):
    city.open().ingest([city.days[1], city.days[2]])
    city.open().plan(suggestions=False)


@pytest.fixture
def files_city(prepared):
    """A city that has read its two files; contributions are in its cache."""
    return prepared(read_both_days)[0]


@pytest.fixture
def cluster_city(small_city, tmp_path, files_city):
    """The same city with the same key, empty."""
    city = small_city.City(tmp_path / "cluster")
    shutil.copy(files_city.key, city.key)
    city.open()
    return city


def rows_of(city):
    """Return (cell, slot, pseudonym, sums...) of what a plan has put into the cache."""
    city.open().plan(suggestions=False)
    hmac = dict(city.sql("SELECT vehicle_id, hmac FROM vehicles"))
    return sorted((cell, slot, hmac[vehicle], *sums) for cell, slot, vehicle, *sums in city.contributions())


def write_job(folder, city, job, after=(), share=(0, 1), **changes):
    """Write a job as the cluster does, from a city's cache: the rows of number share[0] of each share[1]."""
    config = city.open().config
    rows = rows_of(city)[share[0] :: share[1]]
    cell, slot, vehicle, fixes, total, squares = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "vehicle": pa.array(vehicle, pa.binary()),
            "slot": slot,
            "cell": pa.array(np.array(cell, dtype=np.uint64).view(np.int64)),
            "fixes": fixes,
            "total": total,
            "total_of_squares": squares,
            "instants": [[0]] * len(rows),
        }
    )
    (folder / job / PARTS).mkdir(parents=True)
    parts = {}
    for number, part in enumerate((table.slice(0, 5), table.slice(5))):
        pq.write_table(part, folder / job / PARTS / f"part-{number}.parquet")
        parts[f"part-{number}.parquet"] = len(part)
    report = FileReport(file="2 files", source="buses", rows_in=sum(fixes), rows_kept=sum(fixes))
    facts = {
        "job": job,
        "after": tuple(after),
        "key": cache_key(config.grid, config.map.bound),
        "about": reduction_in_words(config.grid, config.map.bound),
        "area": config.grid.area.hash,
        "source": "buses",
        "declaration": declaration_json(config.sources[0]),
        "key_fingerprint": city.sql("SELECT value FROM meta WHERE key = 'key_fingerprint'")[0][0],
        "files": (),
        "report": report,
        "parts": parts,
        "fixes": sum(fixes),
    }
    (folder / job / MANIFEST).write_text(JobManifest(**{**facts, **changes}).to_json(), encoding="utf-8")
    return folder


def test_imported_contributions_are_those_of_the_files_and_a_map_of_them_verifies(
    tmp_path, files_city, cluster_city
):
    folder = write_job(tmp_path / "jobs", files_city, "one", share=(0, 2))
    write_job(folder, files_city, "two", after=["one"], share=(1, 2))
    done = cluster_city.open().ingest(folder, engine="reduced")
    assert [each.read_before for each in done] == [False, False]
    assert rows_of(cluster_city) == rows_of(files_city)
    status, expected = cluster_city.open().status(), files_city.open().status()
    assert (status.records, status.vehicles) == (expected.records, expected.vehicles)
    release = cluster_city.open().release(force=True)
    assert all(check.passed for check in cluster_city.open().verify(release.id))


def test_a_vehicle_with_millions_of_records_in_a_bin_is_released_from_what_a_cluster_reduced(
    small_city, tmp_path, files_city, cluster_city
):
    table = write_job(tmp_path / "jobs", files_city, "one")
    small_city.write_hidden(cluster_city.folder)
    # a million steps make the speed bound
    text = cluster_city.config.read_text(encoding="utf-8").replace(
        "speed_step = 0.01", "speed_step = 0.000065"
    )
    cluster_city.config.write_text(text, encoding="utf-8")
    config, most = cluster_city.open().config, 9_200_000
    manifest = table / "one" / MANIFEST
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    fixes = 0
    for part in (table / "one" / PARTS).iterdir():
        rows = pq.read_table(part)
        columns = {"fixes": most, "total": most * 10**6, "total_of_squares": most * 10**12}
        for name, number in columns.items():
            rows = rows.set_column(
                rows.schema.get_field_index(name), name, pa.array(np.full(len(rows), number))
            )
        pq.write_table(rows, part)
        fixes += most * len(rows)
    facts |= {"key": cache_key(config.grid, config.map.bound), "fixes": fixes}
    manifest.write_text(json.dumps(facts), encoding="utf-8")
    shutil.copytree(table / "one", table / "two")
    manifest = table / "two" / MANIFEST
    manifest.write_text(json.dumps({**facts, "job": "two", "after": ["one"]}), encoding="utf-8")
    workspace = cluster_city.open()
    workspace.ingest(table, engine="reduced")
    release = workspace.release(force=True)
    assert all(check.passed for check in workspace.verify(release.id))
    assert {squares for *_, squares in cluster_city.contributions()} == {2**63 - 1}


def test_a_map_that_the_cluster_did_not_reduce_for_is_refused_before_the_charge(
    small_city, tmp_path, files_city, cluster_city
):
    folder = write_job(tmp_path / "jobs", files_city, "one")
    small_city.write_hidden(cluster_city.folder)
    cluster_city.open().ingest(folder, engine="reduced")
    finer = cluster_city.open().with_map(resolution=8)
    with pytest.raises(UsageError, match="not reduced records for this map"):
        finer.release(force=True)
    assert [entry["kind"] for entry in small_city.ledger_entries(cluster_city)] == ["promise"]
    cluster_city.open().release(force=True)


def test_importing_twice_renames_the_data_and_counts_nothing_twice(tmp_path, files_city, cluster_city):
    folder = write_job(tmp_path / "jobs", files_city, "one", share=(0, 2))
    write_job(folder, files_city, "two", after=["one"], share=(1, 2))
    workspace = cluster_city.open()
    names = []
    for path, before in ((folder / "one", [False]), (folder, [True, False]), (folder, [True, True])):
        done = workspace.ingest(path, engine="reduced")
        assert [each.read_before for each in done] == before
        assert [each.added > 0 for each in done] == [not each for each in before]
        names.append(workspace.status().data_version)
    assert len({*names}) == 3
    assert rows_of(cluster_city) == rows_of(files_city)
    release = workspace.release(force=True)
    assert all(check.passed for check in workspace.verify(release.id))


def test_a_job_is_taken_back_and_imported_again(tmp_path, files_city, cluster_city):
    folder = write_job(tmp_path / "jobs", files_city, "one", share=(0, 2))
    write_job(
        folder, files_city, "two", after=["one"], share=(1, 2), report=FileReport("later", "buses", 1, 1)
    )
    workspace = cluster_city.open()
    first, second = workspace.ingest(folder, engine="reduced")
    with pytest.raises(UsageError, match="a later job left out"):
        workspace.undo_ingest(first.file)
    for each in (second, first):
        (done,) = workspace.undo_ingest(each.file)
        assert done.records == each.added
    assert cluster_city.sql("SELECT count(*) FROM imported") == [(0,)]
    assert [each.added for each in workspace.ingest(folder, engine="reduced")] == [first.added, second.added]
    assert rows_of(cluster_city) == rows_of(files_city)


@pytest.mark.parametrize("spoil", ["missing", "truncated", "other rows", "other sum"])
def test_half_an_import_changes_nothing(tmp_path, files_city, cluster_city, spoil):
    folder = write_job(tmp_path / "jobs", files_city, "one", share=(0, 2))
    write_job(folder, files_city, "two", after=["one"], share=(1, 2))
    last = folder / "two" / PARTS / "part-1.parquet"
    whole = last.read_bytes()
    if spoil == "missing":
        last.unlink()
    elif spoil == "truncated":
        last.write_bytes(whole[:-100])
    elif spoil == "other rows":
        pq.write_table(pq.read_table(last).slice(1), last)
    else:
        table = pq.read_table(last)
        more = pa.array(np.asarray(table["fixes"]) + 1)
        pq.write_table(table.set_column(table.schema.get_field_index("fixes"), "fixes", more), last)
    before = cluster_city.dump()
    with pytest.raises(DataError):
        cluster_city.open().ingest(folder, engine="reduced")
    assert cluster_city.dump() == before
    last.write_bytes(whole)
    cluster_city.open().ingest(folder, engine="reduced")
    assert rows_of(cluster_city) == rows_of(files_city)


def test_a_job_that_knew_nothing_of_another_is_refused(tmp_path, files_city, cluster_city):
    cluster_city.open().ingest(write_job(tmp_path / "a", files_city, "one"), engine="reduced")
    before = cluster_city.dump()
    with pytest.raises(UsageError, match="do not follow"):
        cluster_city.open().ingest(write_job(tmp_path / "b", files_city, "other"), engine="reduced")
    with pytest.raises(UsageError, match="do not follow"):
        cluster_city.open().ingest(
            write_job(tmp_path / "c", files_city, "third", ["one", "two"]), engine="reduced"
        )
    assert cluster_city.dump() == before


def test_what_is_not_of_this_city_is_refused(tmp_path, files_city, cluster_city):
    for change, error in (
        ({"key_fingerprint": "0" * 64}, StoreKeyError),
        ({"area": "0" * 64}, DataError),
        ({"source": "trams"}, UsageError),
    ):
        folder = write_job(tmp_path / next(iter(change)), files_city, "one", **change)
        with pytest.raises(error):
            cluster_city.open().ingest(folder, engine="reduced")
    with pytest.raises(UsageError, match="no finished contributions"):
        cluster_city.open().ingest(tmp_path, engine="reduced")
    (tmp_path / "area" / "one" / MANIFEST).write_text(json.dumps({"format": "another"}), encoding="utf-8")
    with pytest.raises(DataError, match="not a manifest"):
        cluster_city.open().ingest(tmp_path / "area", engine="reduced")
    assert cluster_city.sql("SELECT count(*) FROM ingests") == [(0,)]


def test_records_and_contributions_do_not_mix(tmp_path, files_city, cluster_city):
    folder = write_job(tmp_path / "jobs", files_city, "one")
    with pytest.raises(UsageError, match="records of files"):
        files_city.open().ingest(folder, engine="reduced")
    cluster_city.open().ingest(folder, engine="reduced")
    with pytest.raises(UsageError, match="contributions from a cluster"):
        cluster_city.open().ingest([cluster_city.days[1]])


def test_a_forgotten_vehicle_leaves_imported_contributions(small_city, tmp_path, files_city, cluster_city):
    cluster_city.open().ingest(write_job(tmp_path / "jobs", files_city, "one"), engine="reduced")
    version = cluster_city.open().status().data_version
    assert cluster_city.open().forget([small_city.LONELY]).vehicles == 1
    files_city.open().forget([small_city.LONELY])
    assert rows_of(cluster_city) == rows_of(files_city)
    assert cluster_city.open().status().data_version != version
    release = cluster_city.open().release(force=True)
    assert all(check.passed for check in cluster_city.open().verify(release.id))


def test_another_map_needs_another_import(tmp_path, files_city, cluster_city):
    cluster_city.open().ingest(write_job(tmp_path / "jobs", files_city, "one"), engine="reduced")
    with pytest.raises(UsageError, match="not reduced records for this map"):
        cluster_city.open().with_map(resolution=6).plan()


def test_a_mechanism_that_needs_every_speed_is_refused_before_any_charge(tmp_path, files_city, cluster_city):
    cluster_city.open().ingest(write_job(tmp_path / "jobs", files_city, "one"), engine="reduced")
    arrays = cluster_city.open().with_map(mechanism="array_averaging_best_fit")
    assert files_city.open().with_map(mechanism="array_averaging_best_fit").release(force=True)
    with pytest.raises(UsageError, match="every single speed"):
        arrays.release(force=True)
    assert [row.facts["kind"] for row in cluster_city.open().ledger()] == ["promise"]


def test_an_unknown_engine_is_refused(city):
    with pytest.raises(UsageError, match="duckdb, spark or reduced"):
        city.open().ingest([city.days[1]], engine="hadoop")
