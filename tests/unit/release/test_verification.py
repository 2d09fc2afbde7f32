"""verify finds what was tampered with, and calls nothing a bug."""

import io
import json
import shutil
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from small_city import EPSILON, FILES, LOSSES, failed

from trafficdp.errors import StoreDamagedError, UsageError, VerificationError
from trafficdp.noise.source import SecureNoise

pytestmark = pytest.mark.usefixtures("two_cities")

NAMES = [
    "the ledger has every entry that its head and the manifests name",
    "the ledger's charge is the specification that was executed",
    "the vehicles' accounts are those of the charge",
    "the data is the version that was charged",
    "the manifest is complete and consistent",
    "the manifest names its entry of the ledger",
    "the budget is the one that the ledger promised",
    "every file is the one that was published",
    "datapackage.json and dataset.jsonld list the files of the manifest",
    "the published scales cost no vehicle more than it was charged",
    "the manifest's epsilon is the largest recomputed loss",
    "released.duckdb holds the same release",
    "every number follows from what was measured",
    "the noise has the distribution that was charged (half as much is noticed with probability 0.00)",
]


def manifest_of(city):
    return city.store / "releases" / "r0001" / "manifest.json"


def edit(city, change):
    path = manifest_of(city)
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def test_an_untouched_release_passes_every_check(released):
    checks = released.open().verify("r0001")
    assert [check.name for check in checks] == NAMES
    assert all(check.passed and check.found == "" for check in checks)


def test_verifying_changes_nothing(released):
    before = released.dump()
    released.open().verify("r0001")
    assert released.dump() == before


def test_a_smaller_epsilon_in_the_manifest_is_caught_by_recomputing(released):
    def change(document):
        document["guarantee"]["epsilon"] = "1"

    edit(released, change)
    found = failed(released)
    assert found[EPSILON] == "a claim of 1 where 8 is lost"
    assert FILES in found


def test_a_manifest_reformatted_by_one_space_is_not_the_published_one(released):
    path = manifest_of(released)
    path.write_bytes(path.read_bytes() + b" ")
    assert list(failed(released)) == [FILES]


def test_a_manifest_with_another_place_in_the_ledger_is_caught(released):
    edit(released, lambda document: document["accounting"].update(ledger_sequence=3))
    assert "the manifest names its entry of the ledger" in failed(released)


@pytest.mark.parametrize(
    "name",
    ["map.geojson", "cells.csv", "cells.parquet", "map.html", "mechanism.parquet", "datapackage.json"],
)
def test_a_changed_missing_or_foreign_file_is_caught(released, name):
    path = released.store / "releases" / "r0001" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    assert name in failed(released, only=[FILES])[FILES]
    path.unlink()
    assert name in failed(released, only=[FILES])[FILES]
    path.write_bytes(content)
    assert failed(released, only=[FILES]) == {}
    (path.parent / "note.txt").write_text("hello", encoding="utf-8")
    assert "note.txt" in failed(released, only=[FILES])[FILES]


def release_by(city, accounting):
    city.open(accounting=accounting).ingest([city.days[1]])
    city.open().release(force=True)


@pytest.fixture
def laplace(prepared):
    """The city with one release of Laplace noise, r0001."""
    return prepared(release_by, "equal")[0]


@pytest.fixture
def in_blocks(prepared):
    """The city with one release of block noise, r0001."""
    return prepared(release_by, "blocks")[0]


@pytest.mark.parametrize(
    ("accounting", "noise"),
    [
        ("equal", ("mean_lattice_scale", "variance_product_scale")),
        ("blocks", ("mean_half_width", "variance_product_half_width")),
    ],
)
def test_less_noise_on_either_sum_costs_more_than_was_charged(prepared, accounting, noise):
    filled, _ = prepared(release_by, accounting)
    assert failed(filled) == {}
    path = filled.store / "releases" / "r0001" / "mechanism.parquet"
    sound = pd.read_parquet(path)
    for column in noise:
        whole = sound[f"speed_{column}"]
        sound.assign(**{f"speed_{column}": whole / 2 if "scale" in column else whole // 2}).to_parquet(path)
        found = failed(filled, only=[LOSSES, EPSILON])
        assert found[LOSSES].startswith("10 vehicles lose more than they were charged")
        assert EPSILON in found


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.drop(columns=["hex_id"]),
        lambda frame: frame.assign(hex_id="not hexadecimal"),
        lambda frame: frame.assign(hex_id=None),
        lambda frame: frame.iloc[:0],
        lambda frame: frame.iloc[::-1],
        lambda frame: frame[[name for name in frame if "lattice" not in name]],
        lambda frame: frame.assign(speed_mean_lattice_scale=None),
        lambda frame: frame.assign(speed_mean_lattice_scale="wide"),
        lambda frame: frame.assign(speed_mean_lattice_scale=0.0),
        lambda frame: frame.assign(speed_mean_lattice_scale=-1.0),
        lambda frame: frame.assign(speed_mean_lattice_scale=float("nan")),
    ],
    ids=range(11),
)
def test_a_parquet_file_of_any_shape_fails_and_is_no_bug(laplace, change):
    path = laplace.store / "releases" / "r0001" / "mechanism.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    assert EPSILON in failed(laplace, only=[EPSILON])


def column(name, change):
    """A change of one column of the mean: what ``change`` makes of its numbers."""
    return lambda frame: frame.assign(**{f"speed_mean_{name}": change(frame[f"speed_mean_{name}"])})


@pytest.mark.parametrize(
    "change",
    [
        column("half_width", lambda width: width // 2),
        column("shift", lambda shift: shift + 1),
        column("block", lambda block: block * 0),
        column("block_scale", lambda scale: scale / 2),
        column("block", lambda block: -1),
        column("block", lambda block: None),
        column("half_width", lambda width: 0),
        column("half_width", lambda width: -width),
        column("shift", lambda shift: shift + 1000),
        column("shift", lambda shift: "far"),
        column("block_scale", lambda scale: None),
        column("block_scale", lambda scale: -1.0),
        lambda frame: frame[[name for name in frame if not name.endswith("_block")]],
        lambda frame: frame.drop(columns=["speed_mean_half_width"]),
        lambda frame: frame.iloc[:0],
    ],
    ids=range(15),
)
def test_changed_blocks_are_priced_again_or_refused(in_blocks, change):
    path = in_blocks.store / "releases" / "r0001" / "mechanism.parquet"
    frame = pd.read_parquet(path)
    assert "speed_mean_block" in frame
    change(frame).to_parquet(path)
    assert EPSILON in failed(in_blocks, only=[EPSILON])


def write_uneven_day(city, small_city):
    """One vehicle with ten records in each of four cells, and ten in each that drive nowhere else."""
    start = datetime(2026, 3, 3, 8, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    rows = ["plate,at,latitude,longitude,speed"]
    for place, (latitude, longitude) in enumerate(small_city.CELLS):
        drivers = ["KA 1 HEAVY"] * 10 + [f"KA {place + 2} L {light}" for light in range(10)]
        for number, plate in enumerate(drivers):
            at = start + timedelta(seconds=150 * (20 * place + number))
            rows.append(f"{plate},{at.isoformat()},{latitude},{longitude},{20 + number}")
    path = city.folder / "uneven.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_release_that_leaves_vehicles_out_is_verified_from_counts_and_its_files(city, small_city):
    workspace = city.open(accounting="clip_user", statistics='"mean"')
    workspace.ingest([write_uneven_day(city, small_city)])
    release = workspace.release("0.5", force=True)
    assert all(check.passed for check in workspace.verify("r0001"))
    text = manifest_of(city).read_text(encoding="utf-8")
    manifest = json.loads(text)
    assert manifest["noise"]["kind"] == "suppressed"
    assert manifest["guarantee"]["epsilon"] == "0.5"
    # the heavy vehicle is left out of every bin but one, and who that is stays in the vault
    frozen = json.loads(city.kept("allocation"))["calibrated"]
    assert len(frozen["left_out"]) == 3
    assert "left_out" not in text
    assert [each["mechanism"] for each in manifest["mechanisms"]] == ["clip_user"]
    assert release.to_frame()["speed_mean_kmh"].notna().sum() == 4

    def nobody(document):
        document["noise"]["epsilon_per_bin"] = 0

    edit(city, nobody)
    assert LOSSES in failed(city)


def test_a_calibrated_of_another_kind_in_the_manifest_is_caught(released):
    for kind in ("blocks", "nonsense"):
        edit(released, lambda document, kind=kind: document["noise"].update(kind=kind))
        assert EPSILON in failed(released, only=[EPSILON])


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{", "{}", '{"accounting": []}', '{"files": 1}', "[" * 100_000],
    ids=range(8),
)
def test_a_manifest_of_any_shape_fails_and_is_no_bug(released, content):
    manifest_of(released).write_text(content, encoding="utf-8")
    found = failed(released)
    assert "the manifest is complete and consistent" in found
    assert FILES in found


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\0" * 100])
def test_a_garbled_parquet_file_fails_and_is_no_bug(released, content):
    (released.store / "releases" / "r0001" / "mechanism.parquet").write_bytes(content)
    assert EPSILON in failed(released)


def test_a_release_without_its_folder_fails(released):
    shutil.rmtree(released.store / "releases" / "r0001")
    assert len(failed(released)) >= 4


VAULT = {
    "UPDATE vehicle_charges SET loss_pico = loss_pico - 1": "the vehicles' accounts are those of the charge",
    "UPDATE ingests SET data_version = repeat('0', 64)": "the data is the version that was charged",
    "DELETE FROM fixes WHERE vehicle_id = 1": "the data is the version that was charged",
}
KEPT = {
    ("allocation", b"0.95", b"0.94"): "the ledger's charge is the specification that was executed",
    ("facts", b'"min_vehicles": 3', b'"min_vehicles": 2'): "released.duckdb holds the same release",
}


@pytest.mark.parametrize("accounting", ["equal", "blocks"])
def test_noise_that_is_not_what_was_charged_is_found_in_the_draws(city, monkeypatch, accounting):
    """No noise at all, which ten hexagons suffice to find; every other check holds."""
    monkeypatch.setattr(SecureNoise, "laplace", lambda self, sums, scale: sums)
    monkeypatch.setattr(SecureNoise, "block", lambda self, half_width, block, scale: 0 * half_width)
    release_by(city, accounting)
    found = failed(city)
    assert [name for name in found if not name.startswith("the noise has the distribution")] == []
    assert list(found.values()) == ["other noise, other choices, or other sums"]


def test_numbers_that_do_not_follow_from_what_was_measured_are_found(released):
    follows = "every number follows from what was measured"
    kept = released.kept("measured")
    for answers, said in (
        ([], "something else was measured than this mechanism measures"),
        ([each + 10**6 for each in answers_of(kept)], "other numbers than were measured"),
        ([*answers_of(kept), np.zeros(1)], "other numbers than were measured"),
    ):
        sink = io.BytesIO()
        np.savez(sink, *answers)
        released.keep("measured", sink.getvalue())
        assert said in failed(released)[follows]
    released.keep("measured", b"nothing")
    assert "cannot be read" in failed(released)[follows]


def answers_of(kept):
    with np.load(io.BytesIO(kept)) as file:
        return [file[name] for name in file.files]


@pytest.mark.parametrize("statement", VAULT)
def test_a_change_in_the_vault_is_caught(released, statement):
    before = released.vault.stat().st_mtime_ns
    released.sql(statement)
    assert released.vault.stat().st_mtime_ns != before
    assert VAULT[statement] in failed(released)


@pytest.mark.parametrize("change", KEPT)
def test_a_change_of_what_is_kept_of_a_release_is_caught(released, change):
    part, old, new = change
    before = released.kept(part)
    assert old in before
    released.keep(part, before.replace(old, new))
    assert KEPT[change] in failed(released)


def test_another_row_in_the_released_database_is_caught(released):
    changed = "UPDATE cells SET speed_mean_kmh = 1 WHERE speed_mean_kmh IS NOT NULL"
    released.sql(changed, database="released")
    assert list(failed(released)) == ["released.duckdb holds the same release"]
    released.released.unlink()
    assert list(failed(released)) == ["released.duckdb holds the same release"]


def test_a_broken_chain_stops_verification_altogether(released):
    released.sql("UPDATE ledger SET entry = replace(entry, 'charge', 'gift')")
    with pytest.raises(StoreDamagedError, match="chain is broken"):
        released.open().verify("r0001")


def test_verification_pins_the_data_it_was_charged_for(released):
    released.open().ingest([released.days[2]])
    assert failed(released) == {}


def test_only_a_published_release_is_verified(released):
    released.open().withdraw("r0001")
    with pytest.raises(VerificationError, match="withdrawn") as caught:
        released.open().verify("r0001")
    assert caught.value.exit_code == 4
    with pytest.raises(UsageError, match="no such release"):
        released.open().verify("r0002")


def test_portals_told_of_another_file_are_caught(released):
    path = released.store / "releases" / "r0001" / "datapackage.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["resources"][0]["bytes"] += 1
    path.write_text(json.dumps(document), encoding="utf-8")
    found = failed(released)
    assert (
        found["datapackage.json and dataset.jsonld list the files of the manifest"]
        == "other files in datapackage.json"
    )


def test_a_map_names_the_map_before_it_and_none_that_was_withdrawn(filled):
    workspace = filled.open()

    def previous():
        return workspace.release("0.5", force=True, again=True).release.disclosure.catalogue.previous

    assert [previous(), previous()] == [None, "r0001"]
    workspace.withdraw("r0002")
    assert previous() == "r0001"
