"""A vehicle leaves a store whose stream is over: its counts and the stream's sums go, and verify says why."""

import pytest

from trafficdp.errors import UsageError
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release.streaming import replay_files

STREAM = """[stream]
epsilon = 8
publish_every = 5
lateness = 3
records_per_vehicle = 30

[[source]]"""

RECOMPUTED = {
    "the counts are those that the publications were made from",
    "positions number the elements of every bin without a gap",
    "the state's accounts are not below the recomputed ones",
    "the nodes' noise has the distribution that was charged (half as much is noticed with probability 0.00)",
}
"""What verify recomputes from counts and state of a stream."""


def test_a_vehicle_is_forgotten_once_the_stream_is_over(city, small_city):
    small_city.write_config(city.folder, budget=20, last="2026-03-03")
    text = city.config.read_text(encoding="utf-8")
    city.config.write_text(text.replace("[[source]]", STREAM, 1), encoding="utf-8")
    live = city.open().live()
    live.begin()
    with pytest.raises(UsageError, match="end the stream"):
        city.open().forget([small_city.PLATES[2]])
    replay_files(live, [city.days[1]], 0, tell=print, warn=print)
    live.end()
    secret = VehicleKey.load(city.key).pseudonyms([small_city.PLATES[2]], "")[0].as_py()
    number = city.sql("SELECT vehicle_id FROM vehicles WHERE hmac = ?", [secret])[0][0]
    mine = "SELECT count(*) FROM stream_counts WHERE vehicle_id = ?"
    others = "SELECT * FROM stream_counts WHERE vehicle_id != ? ORDER BY ALL"
    charge = "SELECT * FROM vehicle_charges WHERE vehicle_id = ?"
    kept = [city.sql(each, [number]) for each in (others, charge)]
    assert city.sql(mine, [number])[0][0] > 0
    files = {path: path.read_bytes() for path in (city.store / "releases").rglob("*") if path.is_file()}

    assert city.open().forget([small_city.PLATES[2]]).vehicles == 1

    assert city.sql(mine, [number]) == [(0,)]
    assert city.sql("SELECT count(*) FROM stream_state") == [(0,)]
    assert [city.sql(each, [number]) for each in (others, charge)] == kept
    # its keyed hash stays with what it was charged
    assert city.sql("SELECT vehicle_id FROM vehicles WHERE hmac = ?", [secret]) == [(number,)]
    assert {path: path.read_bytes() for path in files} == files
    assert {each.name for each in city.open().verify("s0001") if not each.passed} == RECOMPUTED


def test_verify_says_the_same_where_nobody_was_known(city, small_city):
    small_city.write_config(city.folder, budget=20, last="2026-03-03")
    text = city.config.read_text(encoding="utf-8")
    city.config.write_text(text.replace("[[source]]", STREAM, 1), encoding="utf-8")
    live = city.open().live()
    live.begin()
    replay_files(live, [city.days[1]], 0, tell=print, warn=print)
    live.end()
    assert city.open().forget(["KA 99 X 1"]).vehicles == 0
    # what can no longer be recomputed says why, and all the rest still holds
    wrong = {each.name: each.found for each in city.open().verify("s0001") if not each.passed}
    assert set(wrong) == RECOMPUTED
    assert all(found.startswith("vehicles were forgotten since") for found in wrong.values())
