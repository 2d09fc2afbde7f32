"""Folders of releases: which are left behind by a command that was killed, and which are read."""

import hashlib
import json

import pytest

from trafficdp.errors import StoreDamagedError, StoreUnavailableError
from trafficdp.release.diagnosis import _listed
from trafficdp.release.publication import manifests
from trafficdp.release.recomputation import differing_files
from trafficdp.release.status import create_store
from trafficdp.store.vault import VAULT_NAME, Vault


def test_only_half_made_and_outdated_folders_are_swept(filled):
    folder = filled.store / "releases"
    for name in (".r1.new", ".r1.old", ".mine", "r1.old", "r1"):
        (folder / name).mkdir(parents=True)
    filled.open().releases()
    assert sorted(each.name for each in folder.iterdir()) == [".mine", "r1", "r1.old"]


def test_manifests_are_those_of_all_releases_but_the_named(tmp_path):
    (tmp_path / "releases" / "another folder").mkdir(parents=True)
    for name in (".r0", "r1", "r2", "r3"):
        (tmp_path / "releases" / name).mkdir()
        text = json.dumps({"release": name})
        (tmp_path / "releases" / name / "manifest.json").write_text(text, encoding="utf-8")
    assert sorted(manifests(tmp_path, {"r2"})) == ["r1", "r3"]
    assert manifests(tmp_path)["r2"] == {"release": "r2"}


def test_files_that_differ_are_named_and_a_manifest_must_list_them(tmp_path):
    for name in "abd":
        (tmp_path / name).write_bytes(name.encode())
    right = {name: hashlib.sha256(name.encode()).hexdigest() for name in "abd"}
    other = {"a": right["a"], "b": "2", "c": "3"}
    assert differing_files(tmp_path, right) is None
    assert differing_files(tmp_path, other) == "changed, missing or foreign: b, c, d"
    assert differing_files(tmp_path, other, unlisted="d") == "changed, missing or foreign: b, c"
    assert differing_files(tmp_path, right, {"a": "2"}) == "changed, missing or foreign: a"
    assert differing_files(tmp_path, {"a": right["a"]}, unlisted="*") is None
    assert differing_files(tmp_path / "none", {"a": "1"}) == "changed, missing or foreign: a"
    assert _listed({"files": [{"name": "a", "sha256": "1", "bytes": 2}]}) == {"a": "1"}
    with pytest.raises(StoreDamagedError):
        _listed({"files": {}})


@pytest.mark.parametrize("made", [False, True])
def test_a_store_that_could_not_be_made_leaves_nothing_and_one_that_is_there_stays(
    tmp_path, monkeypatch, made
):
    def create(store, **_):
        if made:
            (store / VAULT_NAME).write_text("", encoding="utf-8")
        raise StoreUnavailableError("no room")

    monkeypatch.setattr(Vault, "create", create)
    with pytest.raises(StoreUnavailableError, match="no room"):
        create_store(tmp_path / "store", tmp_path / "keys" / "store.key")
    assert sorted(
        each.name for each in (tmp_path / "store").iterdir() if made == (each.name == VAULT_NAME)
    ) == ([VAULT_NAME] if made else [])
