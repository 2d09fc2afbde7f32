"""A stream from its charge to what people see: once, in the ledger first, and nothing twice."""

import json
import os
from datetime import datetime
from decimal import Decimal

import numpy as np
import pytest
from google.transit import gtfs_realtime_pb2

from trafficdp.errors import (
    ConfigError,
    DataError,
    InsufficientBudgetError,
    StoreBehindError,
    UsageError,
    VerificationError,
)
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.ledger import GENESIS
from trafficdp.privacy.release import LedgerReference
from trafficdp.release import streaming
from trafficdp.release.feeds import digest_of
from trafficdp.release.stream_release import publication_of, running_sums_of
from trafficdp.release.streaming import follow_folder, follow_lines, replay_files
from trafficdp.stream.service import ClosedStep

pytestmark = pytest.mark.usefixtures("two_cities")

STREAM = """
[stream]
epsilon = 8
publish_every = 5
lateness = 3
records_per_vehicle = 30

[[source]]"""


class NoNoise:
    def discrete_laplace(self, scale):
        return np.zeros(len(scale), dtype=np.int64)


def streamed(city, **changes):
    """Give the city a [stream] table; ``changes`` replace lines of it."""
    text = STREAM.lstrip()
    for name, value in changes.items():
        text = text.replace(f"{name} = ", f"{name} = {value} # ")
    config = city.config.read_text(encoding="utf-8")
    city.config.write_text(config.replace("[[source]]", text, 1), encoding="utf-8")
    return city


@pytest.fixture
def live_city(city, small_city):
    small_city.write_config(city.folder, budget=10, last="2026-03-03")
    return streamed(city)


def hear(_):
    return None


def play(city, workspace=None, files=None):
    live = (workspace or city.open()).live()
    live.begin()
    replay_files(live, files or [city.days[1]], 0, tell=hear, warn=hear)
    return live.specification


def stream_a_day(city, write_config):
    write_config(city.folder, budget=10, last="2026-03-03")
    return play(streamed(city))


def stream_quietly(city, write_config):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streaming.LiveStream, "_noise", lambda self: NoNoise())
        stream_a_day(city, write_config)


@pytest.fixture
def played(prepared, small_city):
    """The city of ``live_city`` after its whole stream; for tests that look, tamper or go on."""
    return prepared(stream_a_day, small_city.write_config)[0]


@pytest.fixture
def quiet(prepared, small_city):
    """The same where noise was 0, through a door that only tests open."""
    return prepared(stream_quietly, small_city.write_config)[0]


def ledger_kinds(city):
    return [json.loads(entry)["kind"] for (entry,) in city.sql("SELECT entry FROM ledger ORDER BY sequence")]


def test_a_stream_is_charged_once_and_before_its_first_publication(played):
    kinds = ledger_kinds(played)
    assert kinds[:2] == ["promise", "stream"]
    assert kinds.count("stream") == 1
    assert kinds[2:-1] == ["stream_publication"] * (len(kinds) - 3)
    assert kinds[-1] == "stream_end"
    charges = played.sql(
        "SELECT count(*), count(DISTINCT vehicle_id), min(loss_pico), max(loss_pico) FROM vehicle_charges"
    )
    assert charges == [(11, 11, 8 * 10**12, 8 * 10**12)]


def test_without_noise_the_last_map_is_that_of_the_fixes(quiet):
    rows = [line.split(",") for line in quiet.days[1].read_text().splitlines()[1:]]
    speeds = {}
    for plate, _, latitude, longitude, speed in rows:
        place = speeds.setdefault((latitude, longitude), ([], set()))
        place[0].append(float(speed))
        place[1].add(plate.replace("-", "").replace(" ", "").upper())
    expected = sorted(
        (round(float(np.mean(each)), 3), round(float(np.var(each)), 3))
        for each, cars in speeds.values()
        if len(cars) >= 3
    )
    found = quiet.sql(
        "SELECT speed_mean_kmh, speed_variance_kmh2 FROM latest_cells "
        "WHERE speed_mean_kmh IS NOT NULL ORDER BY 1",
        database="released",
    )
    assert np.array(found) == pytest.approx(np.array(expected), abs=2e-3)


def test_what_is_live_has_the_properties_of_an_exported_map(prepared, released, small_city):
    played, specification = prepared(stream_a_day, small_city.write_config)
    folder = played.store / "releases" / "s0001"
    document = json.loads((folder / "live.geojson").read_text(encoding="utf-8"))
    assert document["trafficdp"]["stream"]["publication"] == len(
        played.sql("SELECT * FROM stream_publications")
    )
    assert document["trafficdp"]["privacy"]["epsilon"] == "8"
    exported = json.loads((released.store / "releases" / "r0001" / "map.geojson").read_text(encoding="utf-8"))
    keys = [list(each["features"][0]["properties"]) for each in (document, exported)]
    assert keys[0] == keys[1]
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    said = manifest["noise"]["stream"]
    assert said["records_per_vehicle"] == 30
    assert manifest["guarantee"]["epsilon"] == "8"
    assert [each["mechanism"] for each in manifest["mechanisms"]] == ["running sums"] * 2
    assert running_sums_of(specification).allowance.nodes_per_vehicle == said["nodes_per_vehicle"]


def test_bins_of_too_few_vehicles_are_withheld(prepared, small_city):
    _, specification = prepared(stream_a_day, small_city.write_config)
    two, levels = np.arange(2), running_sums_of(specification).stream().bank.levels
    vehicles = np.array([specification.request.min_vehicles - 1, specification.request.min_vehicles])
    cells = np.array([0x8928308280FFFFF, 0x89283082807FFFF])
    closed = ClosedStep(
        0, {}, np.sort(cells), 0 * two, two + 9, vehicles, np.zeros((2, levels), dtype=np.int64), two + 1
    )
    release = publication_of(specification, closed, 1, LedgerReference(1, GENESIS), "any")
    assert release.status[0] == BinStatus.WITHHELD.value
    assert release.status[1] != BinStatus.WITHHELD.value
    for estimate in release.estimates.values():
        numbers = [estimate.value, estimate.low, estimate.high, estimate.noise_scale, estimate.expected_error]
        assert [np.isnan(each).tolist() for each in numbers] == [[True, False]] * 5
        assert estimate.noise["noise_terms"].tolist() == [0, 2]


def test_a_publication_says_what_share_of_the_range_its_widest_interval_takes(prepared, small_city):
    _, specification = prepared(stream_a_day, small_city.write_config)
    levels = running_sums_of(specification).stream().bank.levels
    one, cell = np.ones(1, dtype=np.int64), np.array([0x8928308280FFFFF])
    upper = specification.request.bound.upper
    said = []
    for records in (9, 900, 90_000, 9_000_000):
        sums = np.full((1, levels), 0, dtype=np.int64)
        closed = ClosedStep(0, {}, cell, 0 * one, records * one, 9 * one, sums, one)
        release = publication_of(specification, closed, 1, LedgerReference(1, GENESIS), "any")
        widths = [
            float((each.high - each.low)[0]) / each.statistic.largest(upper)
            for each in release.estimates.values()
        ]
        honesty = release.disclosure.honesty
        assert honesty.refusal.value == max(widths)
        assert honesty.forced == (max(widths) >= 1)
        said.append(max(widths))
    assert said[0] == 1 > said[-1] > 0


def test_analysts_see_every_publication_and_one_epsilon(played):
    (count,) = played.sql("SELECT count(*) FROM stream_publications")[0]
    assert count >= 5
    seen = played.sql(
        "SELECT count(DISTINCT publication), max(publication) FROM cells WHERE release_id = 's0001'",
        database="released",
    )
    assert seen == [(count, count)]
    assert played.sql("SELECT releases, sum_of_epsilons FROM budget", database="released") == [
        (1, Decimal(8))
    ]
    newest = played.sql("SELECT DISTINCT publication FROM latest_cells", database="released")
    assert newest == [(count,)]


def test_every_check_of_a_stream_passes(played):
    checks = played.open().verify("s0001")
    assert len(checks) == 14
    assert [check for check in checks if not check.passed] == []


TAMPERED = {
    "UPDATE stream_counts SET records = records + 90 WHERE vehicle_id = 3": {
        "the counts are those that the publications were made from",
        "the published scales cost no vehicle more than epsilon",
        "the state's accounts are not below the recomputed ones",
    },
    "UPDATE stream_counts SET position = position + 1 WHERE step = 100": {
        "the counts are those that the publications were made from",
        "positions number the elements of every bin without a gap",
    },
    "DELETE FROM vehicle_charges WHERE vehicle_id = 3": {
        "every vehicle that was counted is charged the stream's epsilon"
    },
    "UPDATE vehicle_charges SET loss_pico = 1 WHERE vehicle_id = 3": {
        "the ledger has every entry that its head and the manifests name",
        "every vehicle that was counted is charged the stream's epsilon",
    },
    "UPDATE stream_publications SET facts = replace(facts, '\"publication\": 3', '\"publication\": 2')": {
        "every publication is the one in the ledger"
    },
    "UPDATE streams SET facts = replace(facts, '\"records_per_step\":0', '\"records_per_step\":1')": {
        "the ledger's charge is the specification that was executed"
    },
    "UPDATE streams SET facts = replace(facts, 'no such words', 'x')": set(),
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_a_tampered_vault_does_not_verify(played, statement):
    played.sql(statement)
    failed = {check.name for check in played.open().verify("s0001") if not check.passed}
    assert TAMPERED[statement] <= failed
    assert bool(failed) == bool(TAMPERED[statement])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET epsilon = 1",
        "UPDATE releases SET disclosure = replace(disclosure::VARCHAR, 'Small', 'Large')",
        "UPDATE cells SET publication = NULL WHERE publication = 1",
        "INSERT INTO cells SELECT * REPLACE (99 AS publication) FROM cells WHERE publication = 1",
        "UPDATE publications SET as_of = as_of + INTERVAL 1 SECOND WHERE number = 2",
    ],
)
def test_what_released_says_of_a_stream_is_verified_row_by_row(played, statement):
    played.sql(statement, database="released")
    failed = [check.name for check in played.open().verify("s0001") if not check.passed]
    assert failed == ["released.duckdb holds the same publications"]


def test_noise_of_nodes_that_is_not_what_was_charged_does_not_verify(quiet):
    checks = quiet.open().verify("s0001")
    # few nodes are kept, enough to find that there is no noise at all
    assert [check.name for check in checks if not check.passed] == [
        "the nodes' noise has the distribution that was charged "
        "(half as much is noticed with probability 0.09)"
    ]


def test_a_tampered_file_and_less_noise_do_not_verify(played):
    import pandas as pd

    folder = played.store / "releases" / "s0001"
    table = pd.read_parquet(folder / "mechanism.parquet")
    table["speed_mean_lattice_scale"] = np.floor(table["speed_mean_lattice_scale"] / 50)
    table.to_parquet(folder / "mechanism.parquet")
    failed = {check.name for check in played.open().verify("s0001") if not check.passed}
    assert failed == {
        "every file says what was committed",
        "the published scales cost no vehicle more than epsilon",
    }


def test_a_stream_that_is_over_is_not_charged_again_by_mistake(played):
    with pytest.raises(UsageError, match="over"):
        played.open().live().begin()
    # the same vehicles have 2 of 10 left: a release of 8 is refused
    workspace = played.open()
    workspace.ingest([played.days[1]])
    with pytest.raises(InsufficientBudgetError):
        workspace.release(again=True, force=True)
    assert ledger_kinds(played).count("stream") == 1


def test_another_stream_leaves_out_who_cannot_pay(played):
    live = played.open().live(again=True)
    assert live.begin().release_id == "s0002"
    arrival = live.read(played.days[1], digest_of(played.days[1], live.key))
    progress = live.ingest([arrival], live=False)
    assert progress.fates["accepted"] == 0
    assert progress.fates["no_budget"] > 0
    spent = played.sql(
        "SELECT max(total) FROM "
        "(SELECT sum(loss_pico)::BIGINT AS total FROM vehicle_charges GROUP BY vehicle_id)"
    )
    assert spent == [(8 * 10**12,)]


def test_a_budget_below_epsilon_is_refused_before_anything_is_written(city, small_city):
    small_city.write_config(city.folder, budget=7, last="2026-03-03")
    streamed(city)
    with pytest.raises(InsufficientBudgetError):
        city.open().live().begin()
    assert ledger_kinds(city) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('vehicle = "plate"', 'vehicle = "number"'),
        ('vehicle = "plate"', 'vehicle = "plate", operator = "company"'),
        ('name = "buses"', 'name = "buses"\nnamespace = "north"'),
        ('name = "buses"', 'name = "buses"\nsentinels = [99]'),
        ('time_format = "iso8601"', 'time_format = "iso8601"\ntime_zone = "Asia/Kolkata"'),
    ],
)
def test_no_vehicle_gets_a_second_account_by_another_declaration_of_its_source(live_city, before, after):
    live_city.open().live().begin()
    config = live_city.config.read_text(encoding="utf-8")
    assert before in config
    live_city.config.write_text(config.replace(before, after), encoding="utf-8")
    with pytest.raises(UsageError, match="running under another configuration"):
        live_city.open().live().begin()
    live_city.config.write_text(config.replace('["*.csv"]', '["*.csv", "*.txt"]'), encoding="utf-8")
    assert live_city.open().live().begin().release_id == "s0001"


def test_another_configuration_cannot_go_on_with_a_running_stream(live_city):
    live_city.open().live().begin()
    config = live_city.config.read_text(encoding="utf-8")
    live_city.config.write_text(config.replace("lateness = 3", "lateness = 4"), encoding="utf-8")
    with pytest.raises(UsageError, match="running under another configuration"):
        live_city.open().live().begin()
    assert live_city.open().live().end().ended
    assert live_city.open().live().begin().release_id == "s0002"


def test_without_its_table_or_with_vehicle_means_there_is_no_stream(city, live_city):
    config = live_city.config.read_text(encoding="utf-8")
    live_city.config.write_text(config.replace('"mean", "variance"', '"vehicle_mean"'), encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be streamed"):
        live_city.open().live().begin()
    live_city.config.write_text(
        config.replace("[stream]", "#").replace("records_per_vehicle", "#"), encoding="utf-8"
    )
    with pytest.raises(ConfigError):
        live_city.open().live().begin()


def test_nothing_was_published_before_the_first_step_is_over(live_city):
    live_city.open().live().begin()
    with pytest.raises(VerificationError, match="nothing was published"):
        live_city.open().verify("s0001")


def test_a_folder_is_followed_by_name_and_files_count_once(live_city):
    folder = live_city.folder / "arriving"
    folder.mkdir()
    header, *rows = live_city.days[1].read_text().splitlines()
    rows.sort(key=lambda row: row.split(",")[1])
    for number in range(4):
        part = (
            rows[number::4] if number == 9 else rows[number * len(rows) // 4 : (number + 1) * len(rows) // 4]
        )
        (folder / f"f{number}.csv").write_text("\n".join([header, *part]) + "\n", encoding="utf-8")
    (folder / "f4.csv.tmp").write_text("half", encoding="utf-8")
    (folder / "f5.csv").write_text("no,such,columns\n1,2,3\n", encoding="utf-8")
    live, told, warned = live_city.open().live(), [], []
    live.begin()
    follow_folder(live, folder, once=True, stop=lambda: False, tell=told.append, warn=warned.append)
    assert len(warned) == 1
    progress = told[-1]
    assert progress.ended  # the period is long over
    assert progress.fates["accepted"] == len(rows)
    assert live_city.sql("SELECT count(*), sum(rows_taken)::BIGINT FROM stream_files") == [(5, len(rows))]
    with pytest.raises(DataError, match="not a folder"):
        follow_folder(live, folder / "f0.csv", once=True, stop=lambda: False, tell=hear, warn=hear)


def test_lines_of_standard_input_are_taken_up_to_their_end(live_city):
    reading, writing = os.pipe()
    content = live_city.days[1].read_bytes()
    os.write(writing, content[: len(content) // 2])
    os.write(writing, content[len(content) // 2 :])
    os.close(writing)
    workspace, told = live_city.open(), []
    live = workspace.live()
    live.begin()
    source = workspace.config.sources[0]
    follow_lines(live, reading, source, stop=lambda: False, tell=told.append, warn=pytest.fail)
    os.close(reading)
    assert sum(told[-1].fates.values()) == len(content.splitlines()) - 1
    assert live.end().publications >= 5


def test_lines_that_do_not_fit_their_header_are_told_of_and_counted_nowhere(live_city):
    reading, writing = os.pipe()
    os.write(writing, live_city.days[1].read_bytes().splitlines()[0] + b"\none field\n")
    os.close(writing)
    workspace, warned = live_city.open(), []
    live = workspace.live()
    live.begin()
    source = workspace.config.sources[0]
    follow_lines(live, reading, source, stop=lambda: False, tell=lambda _: None, warn=warned.append)
    os.close(reading)
    assert len(warned) == 1
    assert "lines-1.csv has no rows that fit its header" in warned[0]
    assert not any(live.end().fates.values())


def test_snapshots_of_gtfs_realtime_repeat_a_bus_that_stands_and_it_counts_once(live_city):
    config = live_city.config.read_text(encoding="utf-8")
    snapshots = '[[source]]\nname = "rt"\nformat = "gtfs_rt"\nfiles = ["*.pb"]\n'
    live_city.config.write_text(config + "\n" + snapshots, encoding="utf-8")
    live = live_city.open().live()
    live.begin()
    start = 1772506800  # 2026-03-03 08:30 +05:30
    for number in range(3):
        feed = gtfs_realtime_pb2.FeedMessage()
        feed.header.gtfs_realtime_version = "2.0"
        feed.header.timestamp = start + 30 * number
        for bus in range(4):
            entity = feed.entity.add(id=str(bus))
            entity.vehicle.vehicle.id = f"bus {bus}"
            # bus 0 stands: its record is the same in every snapshot
            entity.vehicle.timestamp = start if bus == 0 else start + 30 * number
            entity.vehicle.position.latitude = 21.12
            entity.vehicle.position.longitude = 72.72
            entity.vehicle.position.speed = 3.0 * bus
        path = live_city.folder / f"v{number}.pb"
        path.write_bytes(feed.SerializeToString())
        progress = live.ingest([live.read(path, digest_of(path, live.key))], live=False)
    assert progress.fates["accepted"] == 1 + 3 * 3
    assert progress.fates["repeated"] == 2


def test_an_interrupted_replay_goes_on_where_it_was(live_city, monkeypatch):
    live = live_city.open().live()
    live.begin()
    arrival = live.read(live_city.days[1], digest_of(live_city.days[1], live.key))
    calls, told = [], []

    def slowly(first_us):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return first_us + len(calls) * 8 * 60 * 10**6

    with pytest.raises(KeyboardInterrupt):
        live.replay([arrival], slowly, told.append)
    manifest = json.loads((told[-1].folder / "manifest.json").read_text(encoding="utf-8"))
    assert told[-1].as_of == datetime.fromisoformat(manifest["noise"]["stream"]["as_of"])
    before = live_city.sql("SELECT number, md5(bins) FROM stream_publications ORDER BY 1")
    assert len(before) >= 2
    play(live_city)
    after = live_city.sql("SELECT number, md5(bins) FROM stream_publications ORDER BY 1")
    assert after[: len(before)] == before
    rows = len(live_city.days[1].read_text().splitlines()) - 1
    assert live_city.sql("SELECT sum(records)::BIGINT FROM stream_counts") == [(rows,)]


def test_a_vault_from_an_old_backup_publishes_nothing(live_city):
    live = live_city.open().live()
    live.begin()
    backup = live_city.vault.read_bytes()
    play(live_city)
    live_city.vault.write_bytes(backup)
    with pytest.raises(StoreBehindError):
        live_city.open().live().begin()


def test_a_release_beside_a_stream_keeps_its_publications(played):
    config = played.config.read_text(encoding="utf-8")
    played.config.write_text(
        config.replace("epsilon_per_vehicle = 10", "epsilon_per_vehicle = 20"), encoding="utf-8"
    )
    workspace = played.open()
    workspace.raise_budget("a release beside the stream")
    workspace.ingest([played.days[1]])
    workspace.release(again=True, force=True)
    assert all(check.passed for check in workspace.verify("r0001"))
    assert all(check.passed for check in workspace.verify("s0001"))
    manifest = json.loads((played.store / "releases" / "r0001" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["accounting"]["sum_of_maxima_before"] == "8"
