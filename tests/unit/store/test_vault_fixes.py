"""Files into the vault: all or none; every reading is an act, no record comes in twice."""

import hashlib
import json

import pytest

from trafficdp.errors import DataError, StoreDamagedError
from trafficdp.ingest import vehicle_key
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.store import vault_fixes
from trafficdp.store.vault import Vault


def records(city):
    return city.sql("SELECT * FROM fixes ORDER BY ALL")


def test_every_reading_renames_the_data_and_brings_no_record_twice(filled):
    """The same file, its bytes under another name, and a file of known records."""
    header, *lines = filled.days[1].read_text(encoding="utf-8").splitlines()
    copy, known = (filled.folder / f"{name}.csv" for name in ("copy", "known"))
    copy.write_bytes(filled.days[1].read_bytes())
    known.write_text("\n".join([header, *lines[:5]]) + "\n", encoding="utf-8")
    before, names, workspace = records(filled), [filled.open().status().data_version], filled.open()
    for path in (filled.days[1], copy, known):
        (done,) = workspace.ingest([path])
        assert (done.added, done.read_before) == (0, path in (filled.days[1], copy))
        assert not done.declared_otherwise
        names.append(workspace.status().data_version)
    assert len({*names}) == 4
    assert workspace.status().files == 4
    assert records(filled) == before


def test_a_file_named_twice_in_one_call_is_two_readings(city):
    first, second = city.open().ingest([city.days[1], city.days[1]])
    assert (first.read_before, second.read_before) == (False, True)
    assert (first.added > 0, second.added) == (True, 0)
    assert city.open().status().files == 2


def test_under_another_declaration_the_earlier_records_stay(filled):
    before = records(filled)
    (done,) = filled.open(unit="m/s").ingest([filled.days[1]])
    assert (done.added, done.read_before, done.declared_otherwise) == (0, True, True)
    assert records(filled) == before


def test_a_reading_ends_what_the_same_question_costs_nothing(released):
    workspace = released.open()
    assert workspace.release(force=True).is_reused
    workspace.ingest([released.days[1]])
    assert not workspace.release(force=True).is_reused
    assert workspace.release(force=True).is_reused


def test_a_second_file_that_fails_leaves_the_first_out(city):
    broken = city.folder / "broken.csv"
    broken.write_text("plate,at\nx,y\n", encoding="utf-8")
    workspace = city.open()
    before = city.dump()
    with pytest.raises(DataError):
        workspace.ingest([city.days[1], broken])
    assert city.dump() == before
    assert before["vault"]["fixes"] == []
    assert "area_hash" not in {key for key, _ in before["vault"]["meta"]}


def test_a_missing_second_file_leaves_the_first_out(city):
    workspace = city.open()
    before = city.dump()
    with pytest.raises(DataError) as caught:
        workspace.ingest([city.days[1], city.folder / "nowhere.csv"])
    assert caught.value.exit_code == 4
    assert city.dump() == before


def test_a_dry_run_writes_nothing_and_says_what_would_be_read(city):
    workspace = city.open()
    before = city.dump()
    content = city.vault.read_bytes()
    read = workspace.ingest([city.days[1], city.days[2]], dry_run=True)
    assert [each.report.rows_kept for each in read] == [each.report.rows_in for each in read]
    assert all(each.report.rows_kept > 0 for each in read)
    assert city.dump() == before
    assert city.vault.read_bytes() == content


def test_another_study_area_is_refused_by_every_command_that_uses_it(filled):
    before = filled.dump()
    changed = filled.open(area="[72.70, 21.10, 72.96, 21.28]")
    for command in (
        lambda: changed.ingest([filled.days[2]]),
        lambda: changed.ingest([filled.days[2]], dry_run=True),
        changed.plan,
        changed.release,
    ):
        with pytest.raises(DataError, match="study area is not the one") as caught:
            command()
        assert caught.value.exit_code == 4
    assert filled.dump() == before


def test_a_fix_in_two_files_is_kept_once(filled):
    lines = filled.days[1].read_text(encoding="utf-8").splitlines()
    more = filled.folder / "more.csv"
    more.write_text(
        "\n".join([*lines[:11], lines[1].replace("T08:02:30", "T23:00:00")]) + "\n", encoding="utf-8"
    )
    (done,) = filled.open().ingest([more])
    assert (done.report.rows_kept, done.added) == (11, 1)


def test_two_spellings_of_a_plate_are_one_vehicle(filled, small_city):
    assert len(filled.sql("SELECT * FROM vehicles")) == len(small_city.DAYS[1]) + 1


def test_neither_plates_nor_the_key_are_in_the_vault(filled, small_city):
    content = filled.vault.read_bytes().upper()
    key = filled.key.read_text(encoding="ascii").split()[1].upper()
    assert bytes.fromhex(key) not in filled.vault.read_bytes()
    assert key.encode() not in content
    for plate in small_city.PLATES:
        for spelling in (plate, plate.replace(" ", ""), plate.replace(" ", "-")):
            assert spelling.upper().encode() not in content


def test_the_audits_undo_an_ingest_that_they_object_to(filled, monkeypatch):
    removal = "statements/remove_known_fixes"
    removed = sound_script(removal)
    idle = removed.replace("old.ingest_id < $ingest_id", "false")
    assert idle != removed
    monkeypatch.setattr(vault_fixes, "script", lambda name: idle if name == removal else sound_script(name))
    lines = filled.days[1].read_text(encoding="utf-8").splitlines()
    more = filled.folder / "more.csv"
    more.write_text("\n".join(lines[:9]) + "\n", encoding="utf-8")
    before = filled.dump()
    with pytest.raises(StoreDamagedError, match=r"a \(vehicle, instant\) twice"):
        filled.open().ingest([more])
    assert filled.dump() == before


sound_script = vault_fixes.script


def test_reports_come_back_as_they_were_written(filled):
    (report,) = filled.open().reports()
    assert report.rows_in == len(filled.days[1].read_text(encoding="utf-8").splitlines()) - 1
    with Vault.open(filled.store) as vault:
        (file,) = vault_fixes.ingested_files(vault)
    assert file.file_name == "day1.csv"
    assert json.loads(file.report) == json.loads(report.to_json())


def test_the_name_of_the_data_is_random_and_its_history_follows_from_it(filled):
    filled.open().ingest([filled.days[2]])
    with Vault.open(filled.store) as vault:
        names, histories = zip(*(vault_fixes.history_of(vault, number) for number in (1, 2)), strict=True)
        stated = [row[0] for row in vault.connection.execute("SELECT history FROM ingests").fetchall()]
        assert [*histories] == stated
        assert vault_fixes.data_version(vault) == vault_fixes.DataVersion(2, names[1])
        assert vault_fixes.history_of(vault, 0) == (vault_fixes.NO_DATA, vault_fixes.NO_HISTORY)
        vault.connection.execute("DELETE FROM fixes WHERE time_us = (SELECT min(time_us) FROM fixes)")
        assert vault_fixes.history_of(vault, 1)[1] != stated[0]
    assert len({*names, *stated}) == 4
    assert all(len(bytes.fromhex(name)) == 32 for name in names)


def test_the_same_files_get_another_name_in_another_store(small_city, tmp_path):
    names = []
    for folder in ("a", "b"):
        city = small_city.City(tmp_path / folder)
        city.open().ingest([city.days[1]])
        with Vault.open(city.store) as vault:
            names.append(vault_fixes.data_version(vault).name)
    assert names[0] != names[1]


def test_no_hash_of_a_file_is_in_the_vault_but_under_the_key(filled):
    plain = hashlib.sha256(filled.days[1].read_bytes()).hexdigest()
    content = filled.vault.read_bytes()
    assert plain.encode() not in content
    assert bytes.fromhex(plain) not in content
    assert VehicleKey.load(filled.key).digest(plain).encode() in content


def test_a_file_that_memory_does_not_hold_enters_like_one_that_it_does(small_city, tmp_path, monkeypatch):
    """Repeats within the file and of an earlier one among them: the first row of each stays."""
    content = "SELECT * EXCLUDE vehicle_id FROM fixes ORDER BY ALL"
    found = []
    for at_once in (vehicle_key.ROWS_AT_ONCE, 20):
        monkeypatch.setattr(vehicle_key, "ROWS_AT_ONCE", at_once)
        city = small_city.City(tmp_path / str(at_once))
        header, *lines = city.days[1].read_text(encoding="utf-8").splitlines()
        known = [line.rsplit(",", 1)[0] + ",7" for line in lines[:30]]
        new = [line.replace("T08:", "T23:") for line in lines[:25]]
        again = [line.rsplit(",", 1)[0] + ",9" for line in new]
        later = city.folder / "later.csv"
        later.write_text("\n".join([header, *known, *new, *known, *again]) + "\n", encoding="utf-8")
        done = city.open().ingest([city.days[1], later])
        reports = [(each.added, each.report.to_json()) for each in done]
        speeds = {speed for (speed,) in city.sql("SELECT speed_centi FROM fixes WHERE ingest_id = 2")}
        found.append((reports, city.sql(content), speeds))
        assert not (city.store / "vault.duckdb.tmp").exists()
    assert found[0] == found[1]
    assert 0 < done[1].added <= 25
    assert not found[0][2] & {700, 900}
