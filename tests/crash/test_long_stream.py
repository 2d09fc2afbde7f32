"""A stream over weeks of simulated time, a file a day: by a process a day, and by one that takes all."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copy

import pytest

import trafficdp
from trafficdp.release import streaming
from trafficdp.release.streaming import follow_folder
from trafficdp.store.vault import open_vault_for_reading

pytestmark = pytest.mark.usefixtures("two_cities")

STREAM = """[stream]
epsilon = 4
publish_every = 360
lateness = 60
records_per_vehicle = 4000

[[source]]"""
STEPS_A_DAY = 4
COUNTED = "SELECT step, cell, slot, sum(records) FROM stream_counts GROUP BY ALL ORDER BY ALL"


def follow(config, store, arriving):
    """Take what has arrived, as `trafficdp stream --once` does: all that is known lies in the store."""
    live = trafficdp.open(config, store=store, create=True).live()
    live.begin()
    follow_folder(live, arriving, once=True, stop=lambda: False, tell=lambda _: None, warn=pytest.fail)


def set_clock(monkeypatch, at):
    """Let it be ``at`` for whoever follows a stream; it is over when no record can count any more."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return at

    monkeypatch.setattr(streaming, "datetime", Clock)


def asked(store: Path, statement):
    with open_vault_for_reading(store) as vault:
        return vault.connection.execute(statement).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("days", [3, pytest.param(30, marks=pytest.mark.prove(minutes=3))])
def test_a_stream_of_many_days_is_the_same_whatever_process_took_a_day(monkeypatch, tmp_path, days):
    made = trafficdp.simulate(tmp_path / "city", vehicles=20, days=days, seed=5, resolution=5)
    text = made.config.read_text(encoding="utf-8").replace("[[source]]", STREAM, 1)
    made.config.write_text(text, encoding="utf-8")
    arriving, restarted, whole = tmp_path / "arriving", tmp_path / "restarted", tmp_path / "whole"
    arriving.mkdir()
    values = "SELECT number, sequence, step, facts, bins FROM stream_publications ORDER BY number"
    published = []
    for day, feed in enumerate(made.feeds, 1):
        copy(feed, arriving)
        set_clock(
            monkeypatch,
            datetime(2026, 3, 2, tzinfo=UTC) + timedelta(days=day if feed != made.feeds[-1] else days + 30),
        )
        follow(made.config, restarted, arriving)
        now = asked(restarted, values)
        # nothing is drawn again
        assert now[: len(published)] == published
        assert len(now) >= len(published)
        published = now
    assert [number for number, *_ in published] == [*range(1, len(published) + 1)]
    # of a step in which nobody drove nothing is published
    assert len({step // STEPS_A_DAY for _, _, step, *_ in published}) == days, published[-1][:3]
    follow(made.config, whole, arriving)
    counted = asked(whole, COUNTED)
    assert asked(restarted, COUNTED) == counted != []
    kinds = "SELECT entry ->> 'kind' AS kind, count(*) FROM ledger GROUP BY ALL ORDER BY ALL"
    entries = dict(asked(restarted, kinds))
    assert entries == dict(asked(whole, kinds))
    assert entries["stream"] == entries["stream_end"] == 1
    charges = "SELECT vehicle_id, sum(loss_pico)::BIGINT FROM vehicle_charges GROUP BY ALL"
    assert {loss for _, loss in asked(restarted, charges)} == {4 * 10**12}
    assert len(asked(restarted, charges)) == len(asked(whole, charges))
    checks = trafficdp.open(made.config, store=restarted).verify("s0001")
    assert [each.name for each in checks if not each.passed] == []
