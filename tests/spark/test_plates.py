"""No plate is in what Spark writes: shuffle files, spills, cached blocks, event log, output, temporary files.

``test_commands`` reads the logs of driver and executors for them.
"""

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import StorageLevel

from trafficdp.engine.reduced import Spark
from trafficdp.errors import UsageError
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release.intake import Cluster

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.xdist_group("spark"),
]
START = int(datetime(2026, 3, 3, 2, 30, tzinfo=UTC).timestamp()) * 1_000_000
PLATES = [f"ZQ {number:02d} kestrel" for number in range(30)]
SPELLINGS = [form(plate).encode() for plate in PLATES for form in (str, lambda p: p.replace(" ", "").upper())]


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.parquet"
    rows = 30_000
    table = pa.table(
        {
            "plate": [PLATES[i % 30] for i in range(rows)],
            "at": pa.array([START + i * 1_000_000 for i in range(rows)], pa.timestamp("us", tz="UTC")),
            "latitude": [21.12 + (i % 50) / 1000 for i in range(rows)],
            "longitude": [72.72 + (i % 70) / 1000 for i in range(rows)],
            "speed": [float(i % 60) for i in range(rows)],
        }
    )
    pq.write_table(table, path)
    return path


@pytest.fixture
def parquet_city(city):
    text = city.config.read_text().replace('"csv"', '"parquet"').replace('"*.csv"', '"*.parquet"')
    city.config.write_text(text, encoding="utf-8")
    city.open()
    return city


class Watch:
    """Keeps what appears in folders while it lasts, by hard links, so that what is deleted stays."""

    def __init__(self, folders, into):
        self._folders, self._into, self._over = folders, into, threading.Event()
        self._seen, self._thread = set(), threading.Thread(target=self._look)
        into.mkdir()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _look(self):
        over = False
        while not over:
            over = self._over.is_set()  # one look more after the end
            # folders come and go: os.walk passes over what is gone
            for path in (
                Path(here, name)
                for folder in self._folders
                for here, _, names in os.walk(folder)
                for name in names
            ):
                try:
                    number = path.stat().st_ino
                    if number not in self._seen:
                        os.link(path, self._into / f"{number}-{path.name}")
                        self._seen.add(number)
                except OSError:
                    continue
            self._over.wait(0.005)

    def files(self):
        return {path.name: path.read_bytes() for path in self._into.iterdir()}


def holding(files, texts):
    return sorted(name for name, content in files.items() if any(text in content for text in texts))


def events(scratch):
    return b"".join(path.read_bytes() for path in (scratch / "events").rglob("*") if path.is_file())


def cached(log):
    """What an event log says was cached: the names of blocks that hold rows."""
    updates = [json.loads(line) for line in log.decode().splitlines() if "SparkListenerBlockUpdated" in line]
    blocks = {each["Block Updated Info"]["Block ID"] for each in updates}
    assert any(name.startswith("broadcast_") for name in blocks), "updates of blocks are logged"
    return sorted(name for name in blocks if name.startswith(("rdd_", "temp_local", "taskresult")))


def test_no_plate_is_shuffled_spilled_cached_logged_or_written(
    spark, scratch, tmp_path, parquet_city, records
):
    before = len(events(scratch))
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    with Watch([scratch, jobs], tmp_path / "seen") as watch:
        parquet_city.open().ingest([records], engine=Spark(into=jobs, session=spark))
    files = watch.files()
    files["event log now"] = events(scratch)
    assert cached(files["event log now"][before:]) == []
    key = VehicleKey.load(parquet_city.key)
    (source,) = parquet_city.open().config.sources
    pseudonyms = [each.as_py() for each in key.pseudonyms(PLATES, source.namespace)]
    shuffled = [name for name in holding(files, pseudonyms) if "shuffle" in name]
    assert shuffled, sorted(files)
    assert any(name.endswith(".parquet") for name in holding(files, pseudonyms))
    assert holding(files, SPELLINGS) == []
    # sorts did spill, so what they spill was looked for too
    spilled = [
        json.loads(line).get("Task Metrics", {}).get("Disk Bytes Spilled", 0)
        for line in files["event log now"].decode().splitlines()
        if '"SparkListenerTaskEnd"' in line
    ]
    assert sum(spilled) > 0
    # the key lies nowhere either
    secret = parquet_city.key.read_text().split()[1]
    assert holding(files, [secret.encode(), bytes.fromhex(secret)]) == []


def test_the_search_finds_plates_where_they_are_cached(spark, scratch, tmp_path, records):
    before = len(events(scratch))
    with Watch([scratch / "local"], tmp_path / "seen") as watch:
        kept = spark.read.parquet(str(records)).persist(StorageLevel.DISK_ONLY)
        assert kept.count()
        kept.unpersist()
    assert any(name.split("-", 1)[1].startswith("rdd_") for name in holding(watch.files(), SPELLINGS))
    assert cached(events(scratch)[before:])


def test_the_search_finds_plates_where_they_are_shuffled(spark, scratch, tmp_path, records):
    with Watch([scratch / "local"], tmp_path / "seen") as watch:
        assert spark.read.parquet(str(records)).repartition(3, "plate").sortWithinPartitions("at").count()
        spark.read.parquet(str(records)).repartition(3, "plate").write.parquet(str(tmp_path / "raw"))
    assert holding(watch.files(), SPELLINGS)


def test_a_key_is_not_broadcast_in_the_clear(spark, tmp_path, parquet_city, records):
    from trafficdp.engine import spark_job

    work = spark_job.KeyLocation(VehicleKey.load(parquet_city.key))
    with pytest.raises(UsageError, match=r"spark\.io\.encryption\.enabled"):
        spark_job.key_in_executors(spark, work)


ENCRYPTED = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import trafficdp
from trafficdp.engine import spark_job
from trafficdp.engine.spark_rows import Reduction
from trafficdp.config.file import declaration_json
from trafficdp.ingest.vehicle_key import VehicleKey

config, store, into, records, local = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name in spark_job.ENCRYPTED:
    builder = builder.config(name, "true")
for name, value in {"driver.host": "localhost", "driver.bindAddress": "127.0.0.1", "driver.memory": "768m",
                    "local.dir": local, "sql.shuffle.partitions": "2"}.items():
    builder = builder.config("spark." + name, value)
session = builder.getOrCreate()
city = trafficdp.open(config, store=store)
source = city.config.sources[0]
reduction = Reduction.of(source, city.config.grid, city.config.map.bound)
key = spark_job.KeyLocation(VehicleKey.load(city.key_file))
work = spark_job.Work(reduction, declaration_json(source), key, into)
print(spark_job.reduce_files(session, [records], work))
session.stop()
"""


def test_a_key_is_broadcast_in_an_encrypted_session(spark, tmp_path, parquet_city, records):
    here, there, local = (tmp_path / name for name in ("here", "there", "local"))
    local.mkdir()
    opened = parquet_city.open()
    city = Cluster(opened.config, opened.key_file, opened.store)
    city.reduce([str(records)], Spark(into=here, session=spark), None)
    script = tmp_path / "encrypted.py"
    script.write_text(ENCRYPTED, encoding="utf-8")
    arguments = [parquet_city.config, parquet_city.store, there, records, local]
    with Watch([local], tmp_path / "seen") as watch:
        subprocess.run(
            [sys.executable, script, *map(str, arguments)],
            check=True,
            capture_output=True,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
        )
    secret = parquet_city.key.read_text().split()[1]
    assert holding(watch.files(), [secret.encode(), bytes.fromhex(secret), *SPELLINGS]) == []
    keys = [(name, "ascending") for name in ("vehicle", "slot", "cell")]
    found = [
        spark.read.parquet(f"{folder}/*/contributions").drop("instants").toArrow().sort_by(keys)
        for folder in (here, there)
    ]
    assert found[0].num_rows > 0
    assert found[0].equals(found[1])
