"""The cache answers what the reduction would, or nothing."""

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.engine import duckdb_reduce
from trafficdp.engine.duckdb_reduce import reduce_fixes
from trafficdp.model import SlotKind
from trafficdp.release import verification
from trafficdp.release.curator import Curator
from trafficdp.store import vault_fixes
from trafficdp.store.store_files import Head
from trafficdp.store.vault import Vault
from trafficdp.store.vault_fixes import MOST_CACHED, cache_key, load_contributions

pytestmark = pytest.mark.usefixtures("two_cities")


@pytest.fixture
def door(filled):
    with Vault.open(filled.store) as vault:
        yield Curator(filled.store, vault, Head(filled.key, vault.store_id))


@pytest.fixture
def asked(filled, door):
    config = filled.open().config
    return config.grid, config.map.bound, vault_fixes.data_version(door.vault)


def same(ours, theirs):
    return (
        all(
            np.array_equal(getattr(ours.counts, field.name), getattr(theirs.counts, field.name))
            for field in fields(ours.counts)
        )
        and np.array_equal(ours.total, theirs.total)
        and np.array_equal(ours.total_of_squares, theirs.total_of_squares)
        and np.array_equal(ours.vehicle, theirs.vehicle)
        and ours.bound == theirs.bound
    )


def test_what_is_kept_equals_a_fresh_reduction_bit_for_bit(door, asked):
    grid, bound, version = asked
    fresh = reduce_fixes(door.vault.connection, grid, bound, version.ingest_id)
    assert load_contributions(door.vault, grid, bound, version.ingest_id) is None
    assert same(door.contributions(grid, bound, version), fresh)
    kept = load_contributions(door.vault, grid, bound, version.ingest_id).contributions
    assert same(kept, fresh)
    assert kept.counts.bins == 5
    assert kept.total.dtype == fresh.total.dtype
    assert kept.counts.cell.dtype == fresh.counts.cell.dtype


def test_the_second_time_comes_from_the_cache(door, asked, monkeypatch):
    first = door.contributions(*asked)
    monkeypatch.setattr(
        "trafficdp.release.curator.reduce_fixes", lambda *arguments: pytest.fail("reduced again")
    )
    assert same(door.contributions(*asked), first)


@pytest.mark.parametrize("emptied", [False, True])
def test_plans_see_counts_alone_and_sums_follow_with_the_same_counts(door, asked, emptied):
    fresh = reduce_fixes(door.vault.connection, *asked[:2], asked[2].ingest_id)
    counted = door.counted(*asked)
    assert same(counted, fresh.zeroed())
    if emptied:
        door.vault.connection.execute("DELETE FROM contributions")
    recorded = door.contributions(*asked)
    assert same(recorded, fresh)
    assert recorded.counts is counted.counts is door.counted(*asked).counts
    some = np.arange(fresh.counts.bins) % 2 == 0
    assert same(counted.select(some), fresh.select(some).zeroed())


def test_every_part_of_the_question_is_in_the_key(asked):
    grid, bound, version = asked
    keys = {
        cache_key(grid, bound),
        cache_key(replace(grid, resolution=8), bound),
        cache_key(replace(grid, slot_kind=SlotKind.DAY), bound),
        cache_key(replace(grid, period=replace(grid.period, time_zone="UTC")), bound),
        cache_key(grid, replace(bound, upper=Fraction(60))),
        cache_key(grid, replace(bound, step=Fraction(1, 10))),
    }
    assert len(keys) == 6
    assert version.ingest_id == 1


def test_the_cache_is_emptied_when_it_would_outgrow_its_bound(door, asked):
    grid, bound, version = asked
    for upper in range(1, MOST_CACHED + 1):
        door.contributions(grid, replace(bound, upper=Fraction(upper)), version)
    count = "SELECT count(DISTINCT cache_key) FROM contributions"
    assert door.vault.connection.execute(count).fetchall() == [(MOST_CACHED,)]
    door.contributions(grid, bound, version)
    assert door.vault.connection.execute(count).fetchall() == [(1,)]
    assert load_contributions(door.vault, grid, bound, version.ingest_id) is not None


def test_new_data_is_another_question(filled):
    workspace = filled.open()
    workspace.plan()
    assert workspace.ingest([filled.days[2]])[0].added > 0
    assert workspace.plan().allocation.counts.users == 16


def test_a_day_more_is_read_alone_and_put_together_with_what_was_there(filled, monkeypatch):
    workspace, read = filled.open(), []
    config = workspace.config
    workspace.plan()
    workspace.ingest([filled.days[2]])
    sound = duckdb_reduce.binned
    monkeypatch.setattr(
        duckdb_reduce, "binned", lambda *arguments: read.append(arguments[3]) or sound(*arguments)
    )
    for slot_kind in (config.grid.slot_kind, SlotKind.DAY):
        grid = replace(config.grid, slot_kind=slot_kind)
        with Vault.open(filled.store) as vault:
            door = Curator(filled.store, vault, Head(filled.key, vault.store_id))
            version = vault_fixes.data_version(vault)
            brought_up = door.contributions(grid, config.map.bound, version)
            assert same(brought_up, reduce_fixes(vault.connection, grid, config.map.bound, 2))
            assert same(load_contributions(vault, grid, config.map.bound, 2).contributions, brought_up)
            # of an older state of the data nothing is kept any more
            assert load_contributions(vault, grid, config.map.bound, 1) is None
    assert [each.after for each in read] == [1, 0, 0, 0]


@pytest.mark.parametrize("part", ["cell", "vehicle_id"])
def test_rows_out_of_order_are_passed_over(filled, door, asked, part):
    grid, bound, version = asked
    fresh = door.contributions(grid, bound, version)
    execute = door.vault.connection.execute
    ((kind, piece),) = execute("SELECT type, piece FROM contributions WHERE part = ?", [part]).fetchall()
    turned = np.frombuffer(piece, kind)[::-1].tobytes()
    execute("UPDATE contributions SET piece = ? WHERE part = ?", [turned, part])
    assert load_contributions(door.vault, grid, bound, version.ingest_id) is None
    another = Curator(filled.store, door.vault, door.head)
    assert same(another.contributions(grid, bound, version), fresh)


@pytest.mark.parametrize(
    "part", ["cell", "slot", "pairs", "vehicle_id", "fixes", "total", "total_of_squares"]
)
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM contributions WHERE part = ?",
        "UPDATE contributions SET piece = ''::BLOB WHERE part = ?",
        "UPDATE contributions SET piece = piece || 'x'::BLOB || piece WHERE part = ?",
        "UPDATE contributions SET piece = piece || piece WHERE part = ?",
        "UPDATE contributions SET type = 'no type' WHERE part = ?",
        "UPDATE contributions SET type = '<M8[s]' WHERE part = ?",
    ],
)
def test_what_is_not_whole_is_reduced_anew(filled, door, asked, part, damage):
    grid, bound, version = asked
    fresh = door.contributions(*asked)
    door.vault.connection.execute(damage, [part])
    assert load_contributions(door.vault, grid, bound, version.ingest_id) is None
    another = Curator(filled.store, door.vault, door.head)
    assert same(another.contributions(*asked), fresh)
    assert same(load_contributions(door.vault, grid, bound, version.ingest_id).contributions, fresh)


def test_verify_reduces_anew_and_so_sees_through_a_forged_cache(released, monkeypatch):
    released.forge("fixes", 1)
    assert all(check.passed for check in released.open().verify("r0001"))
    released.sql("DELETE FROM fixes WHERE vehicle_id = 1 AND time_us % 4 = 0")
    failed = [check.name for check in released.open().verify("r0001") if not check.passed]
    assert "the data is the version that was charged" in failed
    assert verification.reduce_fixes is reduce_fixes
    assert MOST_CACHED == 8
