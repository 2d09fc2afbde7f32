"""The ways in: `ingest --engine spark`, the job for spark-submit, and its import by the curator."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from trafficdp.cli.main import run
from trafficdp.engine.reduced import Spark
from trafficdp.errors import DataError

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.xdist_group("spark"),
]
ROOT = Path(__file__).parents[2]
LOG = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n%ex
logger.spark.name = org.apache.spark
logger.spark.level = debug
"""


@pytest.fixture
def files_city(small_city, tmp_path):
    """A city that reads its files on one machine."""
    return small_city.City(tmp_path / "files")


@pytest.fixture
def cluster_city(small_city, tmp_path, files_city):
    """The same city with the same key, both stores empty."""
    files_city.open()
    city = small_city.City(tmp_path / "cluster")
    shutil.copy(files_city.key, city.key)
    city.open()
    return city


@pytest.fixture
def command(capsys):
    """``command(city, *arguments)``: the exit code, and what was printed."""

    def call(city, *arguments):
        code = run(["--json", "--config", str(city.config), *map(str, arguments)])
        return code, capsys.readouterr().out

    return call


def agree(contributions_of, one, other):
    found, expected = contributions_of(one.open()), contributions_of(other.open())
    assert expected.num_rows > 0
    assert found.equals(expected)


def test_the_command_reduces_and_imports(
    spark, tmp_path, files_city, cluster_city, command, contributions_of
):
    assert command(files_city, "ingest", *files_city.days.values())[0] == 0
    # addresses and patterns are Spark's
    address = f"file://{cluster_city.folder}/day*.csv"
    arguments = ("ingest", "--engine", "spark", "--into", tmp_path / "jobs", address)
    code, said = command(cluster_city, *arguments)
    assert code == 0
    (told,) = json.loads(said)["files"]
    assert (told["rows_in"], told["new"], told["read_before"]) == (274, 274, False)
    agree(contributions_of, cluster_city, files_city)
    rows = "SELECT * FROM imported ORDER BY ALL"
    before = cluster_city.sql(rows)
    code, said = command(cluster_city, *arguments)
    assert code == 0
    assert [each["read_before"] for each in json.loads(said)["files"]] == [True]
    assert cluster_city.sql(rows) == before
    # another machine's copy of the jobs is the same import
    moved = shutil.copytree(tmp_path / "jobs", tmp_path / "copied")
    code, said = command(cluster_city, "ingest", "--engine", "reduced", moved)
    assert code == 0
    assert cluster_city.sql(rows) == before


def test_a_command_without_such_a_file_changes_nothing(spark, cluster_city, command):
    before = cluster_city.dump()
    assert command(cluster_city, "ingest", "--engine", "spark", cluster_city.folder / "none-*.csv")[0] == 4
    assert cluster_city.dump() == before


def test_an_import_that_failed_is_repeated(spark, tmp_path, files_city, cluster_city, contributions_of):
    files_city.open().ingest(list(files_city.days.values()))
    jobs = Spark(into=tmp_path / "jobs", session=spark)
    # what was reduced for a store that is lost comes in again, into another
    small = shutil.copytree(cluster_city.folder, tmp_path / "lost")
    for day in (1, 2):
        type(cluster_city).open(_at(cluster_city, small)).ingest([cluster_city.days[day]], engine=jobs)
    newest = max((tmp_path / "jobs").glob("*/manifest.json"), key=lambda path: len(_after(path)))
    assert len(_after(newest)) == 1
    part = next(newest.parent.glob("contributions/*.parquet"))
    whole, before = part.read_bytes(), cluster_city.dump()
    for half in (whole[: len(whole) // 2], None):
        part.unlink()
        if half is not None:
            part.write_bytes(half)
        with pytest.raises(DataError, match="not whole"):
            cluster_city.open().ingest(tmp_path / "jobs", engine="reduced")
        assert cluster_city.dump() == before
        part.write_bytes(whole)
    assert [each.read_before for each in _imported(cluster_city, tmp_path)] == [False, False]
    agree(contributions_of, cluster_city, files_city)
    rows = "SELECT * FROM imported ORDER BY ALL"
    after = cluster_city.sql(rows)
    assert [each.read_before for each in _imported(cluster_city, tmp_path)] == [True, True]
    assert cluster_city.sql(rows) == after


def _at(city, folder):
    """The same kind of city in another folder."""
    found = type(city).__new__(type(city))
    found._name_files(Path(folder))
    return found


def _after(path):
    return json.loads(path.read_text(encoding="utf-8"))["after"]


def _imported(city, tmp_path):
    return city.open().ingest(tmp_path / "jobs", engine="reduced")


def submitted(home, city, master, *arguments):
    """Run the job as an operator does; return the process that is over, with what it and its log said."""
    log = home / "log4j2.properties"
    log.write_text(LOG, encoding="utf-8")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.memory": "768m",
        "spark.local.dir": str(home / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log}",
        "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log}",
    }
    return subprocess.run(
        [
            home / "bin" / "spark-submit",
            *("--master", master),
            *(text for name, value in settings.items() for text in ("--conf", f"{name}={value}")),
            ROOT / "pipelines" / "spark_reduce.py",
            *("--config", city.config, "--key", city.key, *arguments),
        ],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # spark-submit mixes them itself
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        },
    )


@pytest.fixture
def home(tmp_path):
    """A home of Spark's of this test alone, in which executors keep their logs."""
    made = tmp_path / "home"
    (made / "local").mkdir(parents=True)
    for each in Path(pyspark.__file__).parent.iterdir():
        (made / each.name).symlink_to(each)
    return made


def _tell(logs, city, plates):
    """Which values of people, or the key, stand in ``logs``, bytes by name."""
    speeds = [line.rsplit(",", 1)[1] for line in city.days[1].read_text().splitlines()[1:]]
    spellings = {form(plate) for plate in plates for form in (str, lambda p: p.upper().replace(" ", "-"))}
    values = {*spellings, city.key.read_text().split()[1], *(f",{speed}\n" for speed in speeds)}
    return sorted(name for name, log in logs.items() for value in values if value.encode() in log)


def test_a_job_by_spark_submit_is_imported_by_the_curator(
    small_city, tmp_path, home, files_city, cluster_city, contributions_of
):
    files_city.open().ingest(list(files_city.days.values()))
    key = tmp_path / "mounted"
    key.write_bytes(cluster_city.key.read_bytes())
    key.chmod(0o400)
    jobs = tmp_path / "jobs"
    # an executor of its own, which has the key by its mount
    done = submitted(
        home, cluster_city, "local-cluster[1,2,1024]",
        "--key-mount", key, "--into", jobs, *cluster_city.days.values(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()[-3000:]
    logs = {"driver": done.stdout} | {str(path): path.read_bytes() for path in home.glob("work/*/*/std*")}
    assert any(b"CoarseGrainedExecutorBackend" in log for name, log in logs.items() if name != "driver")
    assert b" DEBUG org.apache.spark" in logs["driver"]
    assert _tell(logs, cluster_city, [*small_city.PLATES, small_city.LONELY]) == []
    (path,) = jobs.glob("*/manifest.json")
    assert f"file:{path.parent}" in done.stdout.decode().splitlines()
    # to the curator's host, who has no Spark to do with
    (imported,) = cluster_city.open().ingest(shutil.copytree(jobs, tmp_path / "here"), engine="reduced")
    assert imported.added == 274
    agree(contributions_of, cluster_city, files_city)
    release = cluster_city.open().release(force=True)
    assert all(check.passed for check in cluster_city.open().verify(release.id))


def test_a_job_that_fails_says_why_and_leaves_nothing(tmp_path, home, cluster_city):
    text = cluster_city.days[1].read_text(encoding="utf-8")
    cluster_city.days[2].write_text(text.replace("2026-03-03T", "yesterday "), encoding="utf-8")
    done = submitted(home, cluster_city, "local[2]", "--into", tmp_path / "jobs", *cluster_city.days.values())
    assert done.returncode == 4, done.stdout.decode()[-3000:]
    assert b"not a single time" in done.stdout
    assert b" ERROR org.apache.spark.executor" in done.stdout
    assert b"Traceback" in done.stdout
    plates = [line.split(",", 1)[0] for line in text.splitlines()[1:]]
    assert _tell({"driver": done.stdout}, cluster_city, plates) == []
    assert list((tmp_path / "jobs").glob("*")) == []


def test_the_search_finds_what_a_careless_job_would_log(small_city, cluster_city):
    plate = small_city.PLATES[3].upper().replace(" ", "-")
    said = f"org.apache.spark.api.python.PythonException: ValueError: {plate}".encode()
    assert _tell({"driver": said}, cluster_city, small_city.PLATES) == ["driver"]
