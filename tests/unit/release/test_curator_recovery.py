"""What died half-way is finished by the next command, charged at most once and never drawn again."""

import json
import shutil

import pytest

from trafficdp.errors import StoreBehindError
from trafficdp.release import curator

PICO = 10**12


class Died(BaseException):
    """What a test raises where a process would die: nothing of ours catches it."""


def die_at(monkeypatch, name):
    def reached(boundary):
        if boundary == name:
            raise Died

    monkeypatch.setattr(curator, "failpoint", reached)


@pytest.mark.parametrize("moved_away", [False, True])
def test_an_old_copy_of_an_unfinished_vault_never_draws_its_noise_again(released, monkeypatch, moved_away):
    with monkeypatch.context() as patched:
        die_at(patched, "head written")
        with pytest.raises(Died):
            released.open(budget=40).release(again=True, force=True)
    unfinished = released.folder / "backup.duckdb"
    shutil.copy(released.vault, unfinished)
    assert [each.status for each in released.open().releases()] == ["published", "published"]
    out = (released.store / "releases/r0002/cells.csv").read_bytes()
    if moved_away:
        # published elsewhere, perhaps: the head alone remembers it
        shutil.move(released.store / "releases/r0002", released.folder / "r0002")

    head = released.head().read_bytes()
    shutil.copy(unfinished, released.vault)
    for command in (released.open().plan, released.open().release, released.open().releases):
        with pytest.raises(StoreBehindError):
            command()
    assert released.head().read_bytes() == head
    folder = released.folder if moved_away else released.store / "releases"
    assert (folder / "r0002/cells.csv").read_bytes() == out


def test_files_without_committed_values_stop_the_drawing(released, monkeypatch):
    with monkeypatch.context() as patched:
        die_at(patched, "head written")
        with pytest.raises(Died):
            released.open(budget=40).release(again=True, force=True)
    (released.store / "releases/r0002").mkdir()
    with pytest.raises(StoreBehindError, match="knows no values of a release that has files"):
        released.open().releases()
    (released.store / "releases/r0002").rmdir()
    assert released.open().releases()[1].status == "published"


def test_recovery_remembers_the_charge_outside_before_it_draws(released, monkeypatch):
    workspace = released.open(budget=40)
    before = len(workspace.ledger())
    with monkeypatch.context() as patched:
        die_at(patched, "charged")
        with pytest.raises(Died):
            workspace.release(again=True, force=True)
    assert json.loads(released.head().read_text(encoding="ascii"))["sequence"] == before
    with monkeypatch.context() as patched:
        die_at(patched, "values drawn")
        with pytest.raises(Died):
            released.open().releases()
    assert json.loads(released.head().read_text(encoding="ascii"))["sequence"] == before + 1


def test_recovery_follows_the_frozen_order_whatever_the_configuration_says_now(released, monkeypatch):
    with monkeypatch.context() as patched:
        die_at(patched, "charged")
        with pytest.raises(Died):
            released.open(budget=40).release(again=True, force=True)
    changed = released.open(epsilon="0.5", resolution=5, first="2026-03-04", statistics='"mean"')
    changed.ingest([released.days[2]])
    done = changed.map("r0002").release
    assert (done.grid.resolution, done.grid.period.first.day) == (7, 3)
    assert [statistic.value for statistic in done.estimates] == ["mean", "variance"]
    assert done.disclosure.guarantee.epsilon == "8"
    assert all(check.passed for check in changed.verify("r0002"))


def test_an_interrupted_release_that_is_asked_for_again_is_charged_once(released, monkeypatch, small_city):
    for boundary in ("charged", "released swapped"):
        with monkeypatch.context() as patched:
            die_at(patched, boundary)
            with pytest.raises(Died):
                released.open(budget=60).release(again=True, force=True)
        before = small_city.spent(released)
        newest = released.open().release(again=True, force=True)
        assert small_city.spent(released) == before
        assert newest.id == released.open().releases()[-1].id
    # asked anew without an interruption, it is another draw and another charge
    assert released.open().release(again=True, force=True).id == "r0004"
    assert max(small_city.spent(released).values()) == 32 * PICO


def test_another_question_after_an_interruption_is_another_charge(released, monkeypatch):
    with monkeypatch.context() as patched:
        die_at(patched, "charged")
        with pytest.raises(Died):
            released.open(budget=40).release(again=True, force=True)
    done = released.open().release("9", force=True)
    assert done.id == "r0003"
    assert [each.status for each in released.open().releases()] == ["published"] * 3


def test_a_withdrawal_that_died_is_finished(released, monkeypatch):
    with monkeypatch.context() as patched:
        die_at(patched, "withdrawal committed")
        with pytest.raises(Died):
            released.open().withdraw("r0001")
    assert (released.store / "releases/r0001").exists()
    assert [each.status for each in released.open().releases()] == ["withdrawn"]
    assert not (released.store / "releases/r0001").exists()
    assert released.sql("SELECT count(*) FROM cells", database="released") == [(0,)]


def test_leftovers_of_a_killed_command_are_swept(released):
    for name in (".r0001.old", ".r0002.new"):
        (released.store / "releases" / name).mkdir()
        (released.store / "releases" / name / "cells.csv").write_text("half", encoding="utf-8")
    (released.store / ".released.duckdb.new").write_bytes(b"half")
    released.head().with_name(released.head().name + ".new").write_bytes(b"{")
    released.open().releases()
    assert [path.name for path in (released.store / "releases").iterdir()] == ["r0001"]
    assert {path.name for path in released.store.iterdir()} == {
        ".lock",
        "vault.duckdb",
        "released.duckdb",
        "releases",
    }
    assert not list(released.folder.glob("*.new"))
