"""released.duckdb: made of releases alone, swapped whole, opened by anyone, and nobody is in it."""

import os
import struct
from dataclasses import replace
from decimal import Decimal

import duckdb
import pytest

from trafficdp.errors import StoreDamagedError, StoreFullError
from trafficdp.model import SpeedUnit
from trafficdp.privacy.loss import decimal_text
from trafficdp.privacy.release import published_frame
from trafficdp.store import released as room
from trafficdp.store.released import STORAGE_VERSION, build_released, differing_release

pytestmark = pytest.mark.usefixtures("two_cities")


@pytest.fixture
def release(released):
    return released.open().map("r0001").release


def test_it_opens_read_only_and_older_clients_understand_it(released):
    before = released.released.read_bytes()
    with duckdb.connect(str(released.released), read_only=True) as connection:
        ((version,),) = connection.execute(
            "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'released'"
        ).fetchall()
        cells = connection.execute("SELECT count(*) FROM latest_cells").fetchall()
        budget = connection.execute("SELECT releases, sum_of_epsilons FROM budget").fetchall()
    assert version.startswith(STORAGE_VERSION)
    assert cells == [(5,)]
    assert budget == [(1, Decimal("8.000000000000"))]
    assert released.released.read_bytes() == before
    assert not (released.store / "released.duckdb.wal").exists()


def test_its_rows_are_the_published_table(released, release):
    frame = published_frame(release)
    rows = released.sql(
        "SELECT hex_id, status, speed_mean_kmh, speed_mean_kmh_low, speed_mean_kmh_high, "
        "speed_mean_kmh_noise_scale, speed_variance_kmh2 FROM cells ORDER BY cell, slot",
        database="released",
    )
    assert [row[0] for row in rows] == frame["hex_id"].tolist()
    assert [row[1] for row in rows] == frame["status"].tolist()
    for position, name in enumerate(
        ("speed_mean_kmh", "speed_mean_kmh_low", "speed_mean_kmh_high", "speed_mean_kmh_noise_scale"), start=2
    ):
        expected = [None if value != value else value for value in frame[name].tolist()]
        assert [row[position] for row in rows] == expected
    (withheld,) = [row for row in rows if row[1] == "withheld"]
    assert withheld[2:] == (None, None, None, None, None)


def everything_published(city):
    paths = [city.released, *(path for path in (city.store / "releases").rglob("*") if path.is_file())]
    assert len(paths) >= 6
    return {path.name: path.read_bytes() for path in paths}


def test_no_plate_is_in_any_published_byte(released, small_city):
    for name, content in everything_published(released).items():
        upper = content.upper()
        for plate in [*small_city.PLATES, small_city.LONELY]:
            for spelling in (plate, plate.replace(" ", ""), plate.replace(" ", "-")):
                assert spelling.upper().encode() not in upper, name
                assert spelling.upper().encode("utf-16-le") not in upper, name


def test_no_pseudonym_is_in_any_published_byte(released):
    pseudonyms = [row[0] for row in released.sql("SELECT hmac FROM vehicles")]
    assert len(pseudonyms) == 11
    for name, content in everything_published(released).items():
        upper = content.upper()
        for pseudonym in pseudonyms:
            assert pseudonym not in content, name
            # a part would do to recognise it
            assert pseudonym[:8] not in content, name
            assert pseudonym.hex()[:16].upper().encode() not in upper, name


def test_no_personal_loss_is_in_any_published_byte(released, small_city):
    losses = {
        loss for account in small_city.charges_by_plate_order(released).values() for loss in account.values()
    }
    personal = losses - {max(losses)}
    # the largest is the guarantee; the others belong to somebody
    assert len(personal) == 9
    for name, content in everything_published(released).items():
        for loss in personal:
            assert struct.pack("<q", loss) not in content, name
            assert struct.pack(">q", loss) not in content, name
            assert struct.pack("<d", loss / 1e12) not in content, name
            assert str(loss).encode() not in content, name
            assert decimal_text(loss).encode() not in content, name


def test_the_search_of_bytes_finds_what_is_there(released):
    """The searches above are not blind: the same spellings are found in the vault."""
    content = released.vault.read_bytes()
    pseudonyms = [row[0] for row in released.sql("SELECT hmac FROM vehicles")]
    assert any(pseudonym in content for pseudonym in pseudonyms)
    sequences = released.sql("SELECT max(loss_pico) FROM vehicle_charges")
    assert str(sequences[0][0]).encode() in content


def test_the_published_database_has_no_table_of_the_vault(released):
    found = {name for (name,) in released.sql("SELECT table_name FROM duckdb_tables()", database="released")}
    assert found == {"releases", "publications", "cells", "quantiles"}


def test_a_withdrawn_release_keeps_its_row_and_loses_its_values_in_every_byte(released, release):
    frame = published_frame(release)
    noisy = [
        value
        for name in ("speed_mean_kmh", "speed_mean_kmh_low", "speed_variance_kmh2")
        for value in frame[name]
    ]
    distinctive = [struct.pack("<d", value) for value in noisy if value == value and value * 8 % 1]
    assert len(distinctive) >= 8
    assert any(value in released.released.read_bytes() for value in distinctive)

    released.open().withdraw("r0001")
    content = released.released.read_bytes()
    assert not any(value in content for value in distinctive)
    rows = released.sql(
        "SELECT release_id, status, epsilon, ledger_sequence FROM releases", database="released"
    )
    assert rows == [("r0001", "withdrawn", Decimal("8.000000000000"), 2)]
    assert released.sql("SELECT count(*) FROM cells", database="released") == [(0,)]
    assert released.sql("SELECT count(*) FROM latest_cells", database="released") == [(0,)]
    assert list((released.store / "releases").iterdir()) == []


def test_a_broken_vault_leaves_the_released_file_alone(released):
    before = released.released.read_bytes()
    released.vault.write_bytes(b"\0" * 4096)
    with pytest.raises(Exception, match="vault"):
        released.open().releases()
    assert released.released.read_bytes() == before
    assert released.sql("SELECT count(*) FROM cells", database="released") == [(5,)]


def test_a_build_that_fails_its_audits_leaves_the_old_file(released, release, monkeypatch):
    before = released.released.read_bytes()
    monkeypatch.setattr(room, "_release_row", lambda *arguments: _renamed(*arguments))
    with pytest.raises(StoreDamagedError, match="unknown or withdrawn"):
        build_released(released.store, [(release, False)])
    assert released.released.read_bytes() == before
    assert not list(released.store.glob(".released*"))


def _renamed(release, withdrawn, real=room._release_row):
    return ["r0099", *real(release, withdrawn)[1:]]


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_full_disk_while_swapping_leaves_the_old_file(released, release, monkeypatch, step):
    before = released.released.read_bytes()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(StoreFullError):
        build_released(released.store, [])
    assert released.released.read_bytes() == before
    assert not list(released.store.glob(".released*"))


def test_building_twice_says_the_same(released, release):
    before = released.dump()["released"]
    build_released(released.store, [(release, False)])
    assert released.dump()["released"] == before


def test_a_file_from_the_second_on_says_what_the_first_one_says(released, release, monkeypatch):
    monkeypatch.setattr(room, "_empty", {})
    other = replace(release, request=replace(release.request, display_unit=SpeedUnit.MILES_PER_HOUR))
    said = []
    for shown in (release, other, release, other):
        build_released(released.store, [(shown, False)])
        told = [
            released.sql(f"SELECT sql, comment FROM duckdb_{what}s()", database="released")
            for what in ("table", "view")
        ]
        said.append((told, released.dump()["released"]))
    assert len(room._empty) == 2
    assert said[:2] == said[2:]
    assert said[0] != said[1]


def test_a_reader_in_this_process_does_not_hide_the_swap(released, release):
    with duckdb.connect(str(released.released), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM cells").fetchall() == [(5,)]
        second = released.open().release(again=True, force=True)
        assert all(check.passed for check in released.open().verify(second.id))
        assert reader.execute("SELECT count(*) FROM releases").fetchall() == [(1,)]


def test_every_unit_has_columns_of_its_own_under_the_names_of_the_files(released, release):
    other = replace(
        release, id="r0002", request=replace(release.request, display_unit=SpeedUnit.MILES_PER_HOUR)
    )
    build_released(released.store, [(each, False) for each in (release, other)])
    assert differing_release(released.store, (release, other)) is None
    for own, there, absent in ((release, "kmh", "mph"), (other, "mph", "kmh")):
        frame = published_frame(own)
        rows = released.sql(
            f"SELECT speed_mean_{there}, speed_variance_{there}2_high, "
            f"coalesce(speed_mean_{absent}, speed_variance_{absent}2_high) "
            f"FROM cells WHERE release_id = '{own.id}' ORDER BY cell, slot",
            database="released",
        )
        for place, name in enumerate((f"speed_mean_{there}", f"speed_variance_{there}2_high")):
            assert [row[place] for row in rows] == [None if x != x else x for x in frame[name]]
        assert {row[2] for row in rows} == {None}


def test_a_release_in_another_unit_is_not_added_to_the_file_as_it_is(released, release):
    before = {release.id: False}
    for unit in (release.request.display_unit, SpeedUnit.METRES_PER_SECOND):
        other = replace(release, id="r0002", request=replace(release.request, display_unit=unit))
        added = room.append_release(released.store, other, before)
        assert added == (unit is release.request.display_unit)
        before |= {"r0002": False}


ALTERED = [
    "UPDATE cells SET speed_mean_kmh = speed_mean_kmh + 0.001 WHERE speed_mean_kmh IS NOT NULL",
    "DELETE FROM cells WHERE status = 'withheld'",
    "INSERT INTO cells SELECT * FROM cells LIMIT 1",
    "ALTER TABLE cells ADD COLUMN speed_mean_mph DOUBLE DEFAULT 1",
    "UPDATE cells SET slot_kind = 'hour_of_day'",
    "UPDATE cells SET publication = 1 WHERE cell = (SELECT max(cell) FROM cells)",
    "UPDATE releases SET epsilon = 1",
    "UPDATE releases SET status = 'withdrawn'",
    "UPDATE releases SET ledger_head = repeat('0', 64)",
    "UPDATE releases SET created_at = created_at + INTERVAL 1 SECOND",
    "DELETE FROM releases",
]


@pytest.mark.parametrize("statement", ALTERED)
def test_every_alteration_is_seen(released, release, statement):
    assert differing_release(released.store, [release]) is None
    released.sql(statement, database="released")
    assert differing_release(released.store, [release]) == release.id


def test_a_release_is_added_to_a_copy_and_says_what_a_build_says(released, monkeypatch):
    workspace, built = released.open(), []
    sound = room.build_released
    monkeypatch.setattr(room, "build_released", lambda *arguments: built.append(1) or sound(*arguments))
    workspace.release(4, force=True)
    assert not built
    added = released.dump()["released"]
    releases = [workspace.map(name).release for name in ("r0001", "r0002")]
    build_released(released.store, [(each, False) for each in releases])
    assert released.dump()["released"] == added


@pytest.mark.parametrize(
    "broken",
    [
        "DELETE FROM releases",
        "UPDATE releases SET status = 'withdrawn'",
        "UPDATE releases SET release_id = 'r0002'",
        "ALTER TABLE cells DROP COLUMN publication",
    ],
)
def test_nothing_is_added_to_a_file_that_is_not_what_it_should_be(released, release, broken):
    with duckdb.connect(str(released.released)) as connection:
        connection.execute(broken)
    before = released.released.read_bytes()
    other = replace(release, id="r0002")
    assert not room.append_release(released.store, other, {"r0001": False})
    assert released.released.read_bytes() == before


def test_a_file_that_nothing_can_be_added_to_is_built_anew(released):
    with duckdb.connect(str(released.released)) as connection:
        connection.execute("UPDATE releases SET status = 'withdrawn'")
    workspace = released.open()
    workspace.release(4, force=True)
    for name in ("r0001", "r0002"):
        release = workspace.map(name).release
        assert differing_release(released.store, [release]) is None


def test_a_release_that_fails_its_audits_leaves_the_old_file(released, release, monkeypatch):
    before = released.released.read_bytes()
    monkeypatch.setattr(room, "_release_row", lambda *arguments: _renamed(*arguments))
    other = replace(release, id="r0002")
    with pytest.raises(StoreDamagedError, match="unknown or withdrawn"):
        room.append_release(released.store, other, {"r0001": False})
    assert released.released.read_bytes() == before
    assert not list(released.store.glob(".released*"))
