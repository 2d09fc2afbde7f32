"""Spark and DuckDB agree in every integer."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sql

from trafficdp.engine.reduced import Spark
from trafficdp.errors import ConfigError, DataError, UsageError
from trafficdp.release.intake import Cluster

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.xdist_group("spark"),
]

CONFIG = """
[city]
name = "A City"
publisher = "A Publisher"
time_zone = "{zone}"
study_area = {{ bbox = [{west}, {south}, {east}, {north}] }}
period = {{ from = "{first}", to = "{last}" }}
[privacy]
accept_weak_promise = true
relation = "replace_user_values"
epsilon = 8
[budget]
epsilon_per_vehicle = 100
[map]
resolution = 8
slot = "{slot}"
speed_bound = 65
speed_unit = "km/h"
speed_step = 0.01
display_unit = "km/h"
min_vehicles = 3
statistics = ["mean", "variance"]
[[source]]
name = "avl"
format = "{format}"
files = ["*.{format}*"]
speed_unit = "m/s"
time_format = "{time_format}"
sentinels = [-1]
columns = {{ vehicle = "plate", time = "at", latitude = "lat", longitude = "lon", speed = "v" }}
"""


def write_config(folder, **changes):
    facts = {
        "zone": "America/Chicago", "west": -98.0, "south": 30.0, "east": -97.5, "north": 30.5,
        "first": "2026-03-07", "last": "2026-03-09", "slot": "hour_of_day", "format": "parquet",
        "time_format": "iso8601",
    } | changes  # fmt: skip
    path = folder / "trafficdp.toml"
    path.write_text(CONFIG.format(**facts), encoding="utf-8")
    return path


def made(start, hours, rows, seed, vehicles=40, busy=0.2):
    """Return records with every flaw; one vehicle has a fifth of all, and a tenth repeats another row's."""
    generator = np.random.default_rng(seed)
    vehicle = generator.integers(0, vehicles, rows)
    vehicle[generator.random(rows) < busy] = 0
    seconds = generator.integers(0, hours * 3600, rows)
    again = np.flatnonzero(generator.random(rows) < 0.1)
    other = generator.integers(0, rows, len(again))
    vehicle[again], seconds[again] = vehicle[other], seconds[other]
    speed = np.round(generator.normal(9, 6, rows), 2)
    speed[generator.random(rows) < 0.02] = -1
    speed[generator.random(rows) < 0.02] = np.nan
    spelling = np.array(["gj 05-bx {:04d}", "GJ05BX{:04d}"])
    plate = [spelling[i % 2].format(v) for i, v in enumerate(vehicle.tolist())]
    plate[::97] = [""] * len(plate[::97])
    at = pa.array((int(start.timestamp()) + seconds) * 1_000_000, pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "plate": plate,
            "at": at,
            "lat": generator.uniform(29.98, 30.5, rows),
            "lon": generator.uniform(-98.0, -97.5, rows),
            "v": pa.array(speed, mask=np.isnan(speed)),
        }
    )


def clustered(city):
    return Cluster(city.config, city.key_file, city.store)


def equal(one, other):
    assert one.num_rows > 0
    assert one.equals(other)


START = datetime(2026, 3, 7, tzinfo=UTC)


def test_tables_with_flaws_repeats_and_a_busy_vehicle(spark, tmp_path, twins, contributions_of):
    paths = [tmp_path / f"{name}.parquet" for name in ("b", "a")]
    for seed, path in enumerate(paths):
        # both files have records of the same instants, and the second is named first
        pq.write_table(made(START, 80, 20_000, seed), path, row_group_size=1500)
    files, cluster = twins(write_config(tmp_path))
    before = files.ingest(paths)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "200k")
    (done,) = cluster.ingest(paths, engine=Spark(session=spark))
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    equal(contributions_of(files), contributions_of(cluster))
    assert done.report.rows_in == sum(each.report.rows_in for each in before) == 40_000
    # a day in summer time is cut short
    assert 0 < done.added == sum(each.added for each in before)
    outside = [each.report.rejected.get("outside_period", 0) for each in before]
    assert 0 < done.report.rejected["outside_period"] == sum(outside)


def test_a_late_file_and_a_repeated_job_count_nothing_twice(spark, tmp_path, twins, contributions_of):
    paths = [tmp_path / f"{name}.parquet" for name in ("first", "late", "again")]
    for path, seed in zip(paths, (1, 2, 1), strict=True):
        pq.write_table(made(START, 60, 6000, seed), path)
    files, cluster = twins(write_config(tmp_path))
    files.ingest(paths[:2])
    cluster.ingest(paths[:1], engine=Spark(session=spark))
    cluster.ingest(paths[:2], engine=Spark(session=spark))
    equal(contributions_of(files), contributions_of(cluster))
    # the same rows under another name: every one is known, so nothing is added
    done = cluster.ingest(paths, engine=Spark(session=spark))
    assert [each.added for each in done] == [0, 0, 0]
    assert [each.read_before for each in done] == [True, True, False]
    equal(contributions_of(files), contributions_of(cluster))


def test_a_data_frame_by_order_and_by_file(spark, tmp_path, twins, contributions_of):
    path = tmp_path / "records.parquet"
    table = made(START, 60, 8000, 3)
    number = pa.array(np.arange(len(table)))
    pq.write_table(table.append_column("sequence", number), path)
    files, cluster = twins(write_config(tmp_path))
    files.ingest([path])
    frame = spark.read.parquet(str(path))
    clustered(cluster).reduce(frame.filter("lat > 0"), Spark(into=tmp_path / "by file"), "avl")
    # rows come in another order, and say so themselves
    backwards = frame.withColumn("sequence", sql.col("sequence") - 10_000)
    clustered(cluster).reduce(backwards, Spark(into=tmp_path / "by order", order="sequence"), "avl")
    cluster.ingest(tmp_path / "by file", engine="reduced")
    equal(contributions_of(files), contributions_of(cluster))
    manifests = [json.loads(p.read_text()) for p in sorted(tmp_path.glob("by*/*/manifest.json"))]
    assert manifests[0]["fixes"] == manifests[1]["fixes"] > 0
    found = [
        spark.read.parquet(str(p.parent / "contributions")).drop("instants").toArrow()
        for p in sorted(tmp_path.glob("by*/*/manifest.json"))
    ]
    keys = [(name, "ascending") for name in ("vehicle", "slot", "cell")]
    assert found[0].sort_by(keys).equals(found[1].sort_by(keys))


def test_a_data_frame_that_cannot_be_right_is_refused(spark, tmp_path, twins):
    path = tmp_path / "records.parquet"
    pq.write_table(made(START, 2, 100, 3), path)
    _, cluster = twins(write_config(tmp_path))
    frame = spark.read.parquet(str(path))
    numbers = spark.range(3).selectExpr("id as plate", "id as at", "id as lat", "id as lon", "id as v")
    with pytest.raises(UsageError, match="came first"):
        clustered(cluster).reduce(numbers, Spark(), "avl")
    ordered = frame.withColumn("n", sql.lit(1))
    with pytest.raises(UsageError, match="shuffles raw records"):
        clustered(cluster).reduce(ordered.repartition(2, "plate"), Spark(order="n"), "avl")
    cached = ordered.cache()
    with pytest.raises(UsageError, match="caches raw records"):
        clustered(cluster).reduce(cached, Spark(order="n"), "avl")
    cached.unpersist()
    with pytest.raises(DataError, match="lacks columns"):
        clustered(cluster).reduce(frame.drop("v"), Spark(), "avl")
    with pytest.raises(UsageError, match="no such source"):
        clustered(cluster).reduce(frame, Spark(), "trams")
    with pytest.raises(UsageError, match="Spark Connect"):
        clustered(cluster).reduce([str(path)], Spark(session=SimpleNamespace()), "avl")
    assert not list(tmp_path.glob("*.contributions/*"))


def test_an_error_in_an_executor_quotes_nothing_and_leaves_nothing(spark, tmp_path, twins, capfd):
    path = tmp_path / "records.csv"
    path.write_text("plate,at,lat,lon,v\nGJ05BX0001,yesterday,30.1,-97.9,7.25\n", encoding="utf-8")
    _, cluster = twins(write_config(tmp_path, format="csv"))
    with pytest.raises(DataError, match="not a single time"):
        cluster.ingest([path], engine=Spark(session=spark))
    assert not list(tmp_path.glob("*.contributions/*"))
    said = capfd.readouterr()
    for value in ("GJ05BX0001", "yesterday", "-97.9", "7.25"):
        assert value not in said.out + said.err


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        ("America/Chicago", "2026-03-07", "2026-03-09"),
        ("Europe/Berlin", "2026-10-24", "2026-10-26"),
        ("Africa/Casablanca", "2026-02-14", "2026-02-16"),
        ("Australia/Lord_Howe", "2026-04-04", "2026-04-06"),
    ],
)
def test_zones_across_their_changes(spark, tmp_path, twins, contributions_of, zone, first, last):
    path = tmp_path / "records.parquet"
    start = datetime.fromisoformat(first).replace(tzinfo=UTC) - timedelta(hours=14)
    pq.write_table(made(start, 100, 8000, 5), path)
    config = write_config(tmp_path, zone=zone, first=first, last=last, slot="calendar_hour")
    files, cluster = twins(config)
    files.ingest([path])
    cluster.ingest([path], engine=Spark(session=spark))
    equal(contributions_of(files), contributions_of(cluster))


def test_text_files_are_read_by_the_reader_of_one_machine(spark, tmp_path, twins, contributions_of):
    rows = ["plate,at,lat,lon,v"]
    for number in range(300):
        at = START + timedelta(hours=9, seconds=30 * (number % 140))
        rows.append(f'"ka {number % 7}, x",{at.isoformat()},30.{1 + number % 3},-97.9,{number % 23}.5')
    rows[50] += ",one field too many"
    rows[60] = rows[60].replace("30.", "north ")
    path = tmp_path / "day 1.csv"
    path.write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")
    files, cluster = twins(write_config(tmp_path, format="csv"))
    (before,) = files.ingest([path])
    (done,) = cluster.ingest([path], engine=Spark(session=spark))
    equal(contributions_of(files), contributions_of(cluster))
    assert done.report.rejected == before.report.rejected
    assert done.report.rejected["malformed_row"] == 1
    assert done.report.rejected["duplicate_in_file"] > 0


def test_what_one_machine_alone_can_do_is_refused(spark, tmp_path, twins):
    path = tmp_path / "records.parquet"
    pq.write_table(made(START, 2, 100, 3), path)
    config = write_config(tmp_path)
    config.write_text(config.read_text() + 'missing_speed = "derive"\n', encoding="utf-8")
    _, cluster = twins(config)
    with pytest.raises(ConfigError, match="does not derive"):
        cluster.ingest([path], engine=Spark(session=spark))
    with pytest.raises(UsageError, match="no dry run"):
        cluster.ingest([path], engine=Spark(session=spark), dry_run=True)


@pytest.mark.parametrize(
    "vehicles", [150, pytest.param(30_000, marks=pytest.mark.prove)], ids=["50 thousand", "10 million"]
)
def test_simulated_records(spark, tmp_path, twins, contributions_of, vehicles):
    import trafficdp
    from trafficdp.engine.spark_job import temporary_settings

    made = trafficdp.simulate(tmp_path / "simulated", vehicles=vehicles, days=3, seed=17, resolution=8)
    text = made.config.read_text(encoding="utf-8").replace('"whole_period"', '"calendar_hour"')
    made.config.write_text(text, encoding="utf-8")
    files, cluster = twins(made.config)
    # sorts of these tests spill every 5,000 rows, and a task holds a buffer a spill
    tasks = {
        "spark.sql.shuffle.partitions": str(max(3, vehicles // 300)),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    # records of a day arrive on the next as well, and some twice
    before = files.ingest(made.feeds)
    with temporary_settings(spark, tasks):
        (done,) = cluster.ingest(made.feeds, engine=Spark(session=spark))
    equal(contributions_of(files), contributions_of(cluster))
    assert done.report.rows_in == sum(each.report.rows_in for each in before) == made.rows
    assert made.rows > 330 * vehicles * 0.8
    assert done.added == sum(each.added for each in before) == made.records


@pytest.mark.real
@pytest.mark.skipif("TRAFFICDP_REAL_DATA" not in os.environ, reason="TRAFFICDP_REAL_DATA is not set")
def test_ten_days_of_austin(spark, tmp_path, twins, contributions_of):
    days = sorted(Path(os.environ["TRAFFICDP_REAL_DATA"], "capmetro").glob("*.csv.gz"))
    assert len(days) == 10
    config = tmp_path / "trafficdp.toml"
    text = (Path(__file__).parents[2] / "pipelines" / "austin.toml").read_text(encoding="utf-8")
    text = text.replace('from = "2016-11-24", to = "2016-11-27"', 'from = "2015-03-07", to = "2017-03-21"')
    config.write_text(text.replace('slot = "whole_period"', 'slot = "hour_of_day"'), encoding="utf-8")
    files, cluster = twins(config)
    before = files.ingest(days)
    (done,) = cluster.ingest(days, engine=Spark(session=spark))
    equal(contributions_of(files), contributions_of(cluster))
    assert done.report.rows_in == sum(each.report.rows_in for each in before)
    assert done.report.rows_kept == sum(each.report.rows_kept for each in before)
