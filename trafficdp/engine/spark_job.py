"""Records on a cluster to contributions, by Spark 4: the same integers as ``duckdb_reduce``."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import Broadcast, TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from trafficdp._durable import new_token
from trafficdp.engine import spark_rows
from trafficdp.engine.reduced import MANIFEST, PARTS, SAID, JobManifest, SourceFile, reduction_in_words
from trafficdp.errors import ConfigError, DataError, UsageError
from trafficdp.ingest.formats.csv_files import declared_columns
from trafficdp.ingest.report import FileReport, LintFinding, LintVerdict
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.sensitive import LARGEST_TOTAL
from trafficdp.store.vault_fixes import cache_key

# What a job asks of Spark itself: a session, the key in its executors, its errors, its file systems.


ENCRYPTED = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
"""What must be true of a session before a key is broadcast."""


@dataclass(frozen=True)
class KeyLocation:
    """The key, and how executors get it: from a file at ``mount`` on each of them, or (None) by broadcast."""

    key: VehicleKey = field(repr=False)
    mount: Path | None = None


def spark_session(given: SparkSession | None) -> SparkSession:
    """Return the session ``given``, else the active one, else a new one as configured on this machine.

    Raises UsageError where there is no Java, and for a session of Spark Connect.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = given or SparkSession.builder.appName("trafficdp").getOrCreate()
    except (PySparkException, OSError) as error:
        raise UsageError(
            "Spark does not start",
            got=type(error).__name__,
            expected="Java 17 or 21, as `java` or under JAVA_HOME",
            todo="install one, such as the package openjdk-17-jre-headless",
        ) from None
    if not hasattr(session, "sparkContext"):
        raise UsageError(
            "Spark Connect can neither send a key to executors nor show a plan",
            expected="a session of the cluster itself",
            todo="take compute of one user, or spark-submit",
        )
    return session


def is_local(session: SparkSession) -> bool:
    """Return whether executors run on this machine."""
    return str(session.sparkContext.master).startswith("local")


def key_in_executors(
    session: SparkSession, place: KeyLocation
) -> tuple[Callable[[], VehicleKey], Callable[[], None]]:
    """Return two functions: one returns the key when called in an executor, the other withdraws it.

    The key is read at the ``mount`` of ``place``, or else broadcast: raises UsageError where the session
    would do that without encryption. Withdraw it when the job is over.
    """
    if place.mount is not None:
        # a secret mount is a link to a file that changes
        return partial(_mounted, str(place.mount), place.key.fingerprint), lambda: None
    settings = session.sparkContext.getConf()
    off = [name for name in ENCRYPTED if settings.get(name, "false") != "true"]
    if off:
        raise UsageError(
            "the key would travel, and lie on disks, in the clear",
            expected=", ".join(f"{name}=true" for name in off),
            todo="or mount it as a secret on every executor and name its path",
        )
    sent = session.sparkContext.broadcast(place.key)
    return partial(_sent, sent), sent.destroy


def _mounted(path: str, fingerprint: str) -> VehicleKey:
    key = VehicleKey.load(Path(os.path.realpath(path)))
    if key.fingerprint != fingerprint:
        raise UsageError("the key that is mounted is not the key of this city", got=f"{key.fingerprint[:12]}")
    return key


def _sent(broadcast: Broadcast[VehicleKey]) -> VehicleKey:
    key: VehicleKey = broadcast.value
    return key


@contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Context manager: change ``settings`` of the Spark session while the block runs."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Context manager: turn errors of Spark in its block into errors of trafficdp without Spark's text.

    That text may quote values of records.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = re.search(re.escape(SAID) + r'("(?:[^"\\\\]|\\\\.)*")', str(error))
        if said is not None:
            raise DataError(json.loads(said.group(1))) from None
        raise DataError(
            "the job failed on the cluster", got=type(error).__name__, todo="see the log of its driver"
        ) from None


class Folder:
    """A folder of any file system that Spark knows, for its owner only."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._hadoop: Any = session.sparkContext._jvm.org.apache.hadoop.fs
        self._path = self._hadoop.Path(path)
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()
        self._system = self._path.getFileSystem(self._configuration)

    def path(self, name: str | None = None) -> str:
        """Return the address of the folder, or with ``name`` of the file in it."""
        path = self._system.makeQualified(self._path).toString()
        return str(path if name is None else f"{path}/{name}")

    def make(self) -> None:
        """Create the folder, readable by its owner only."""
        self._system.mkdirs(self._path)
        self._system.setPermission(self._path, self._hadoop.permission.FsPermission("700"))

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._system.delete(self._path, True)

    def write(self, name: str, text: str) -> None:
        """Write ``text`` to the file ``name`` in the folder: it appears whole or not at all."""
        half = self._hadoop.Path(self._path, f".{name}.new")
        stream = self._system.create(half, True)
        stream.write(text.encode())
        stream.close()
        self._system.rename(half, self._hadoop.Path(self._path, name))

    def read_all(self, name: str) -> list[str]:
        """Return the texts of all files ``name`` that lie one folder below this one."""
        found = self._system.globStatus(self._hadoop.Path(self._path, f"*/{name}")) or []
        return [self._text(each.getPath()) for each in found]

    def files(self, uris: Sequence[str]) -> dict[str, SourceFile]:
        """Return the files at ``uris``, which may be patterns, by address.

        Raises DataError for one without any file.
        """
        files: dict[str, SourceFile] = {}
        for uri in uris:
            pattern = self._hadoop.Path(uri)
            found = pattern.getFileSystem(self._configuration).globStatus(pattern) or []
            if not len(found):
                raise DataError(f"there is no file {uri}", todo="correct its name")
            for each in sorted(found, key=lambda status: str(status.getPath().toString())):
                path = each.getPath()
                if each.isDirectory():
                    raise DataError(f"{uri} is a folder", expected="files", todo="name the files in it: /*")
                files[path.toString()] = SourceFile(
                    path.toString(), each.getLen(), each.getModificationTime()
                )
        return files

    def _text(self, path: object) -> str:
        stream = self._system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


# Records on a cluster to contributions, by Spark 4: the same integers as ``duckdb_reduce``.
#
# The plan, with one exchange:
#
#     scan -> MapInArrow (spark_rows: clean, key, bin, clip) -> Exchange by (vehicle, slot)
#          -> the first record of every (vehicle, slot, instant) -> sums by (vehicle, slot, cell) -> Parquet
#
# A slot follows from its instant, so records that repeat one another meet by (vehicle, slot), and so do those
# of one sum: one exchange serves both, and a busy vehicle is spread over the slots. Plates never reach it.
# ``MapInArrow`` keeps no rows aside; a column UDF would queue the raw ones, and spill them.
#
# Sums are of BIGINT. One that leaves 64 bits is 2^63 - 1, never an error: whether it does follows from
# records.


_KNOWN = -(1 << 63)
"""``place`` of what an earlier job has counted."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
_OF_FILES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1", "spark.sql.files.maxPartitionBytes": "16m"}
"""Files are unpacked where they are read, so a task has few of them, and one at a time."""


@dataclass(frozen=True)
class Work:
    """What a job does and where it writes: ``into`` is a folder of jobs, of any file system of Spark's."""

    reduction: spark_rows.Reduction
    declaration: str
    key: KeyLocation
    into: str


def reduce_files(session: SparkSession, uris: Sequence[str], work: Work) -> str | None:
    """Reduce files that Spark can reach to a new job; return its folder in ``work.into``, or None.

    ``uris`` may be patterns; files are in their order, then by name. None where an earlier job has read all
    files, which is judged by name and time of change. Parquet is read by Spark in parts, any other format
    whole, in one task a file. Raises DataError for what cannot be read as declared, UsageError for a session
    without encryption whose executors have no key.
    """
    with spark_errors():
        files = Folder(session, work.into).files(uris)
        earlier = _earlier(session, work)
        known = {(each.name, each.modified) for manifest in earlier.values() for each in manifest.files}
        new = {uri: each for uri, each in files.items() if (each.name, each.modified) not in known}
        if not new:
            return None
        if work.reduction.source.format == "parquet":
            frame = session.read.parquet(*new)
            return _from_frame(frame, work, new, earlier, order=None)
        numbers = {spark_rows.normalise_uri(uri): number for number, uri in enumerate(new)}
        with temporary_settings(session, _SETTINGS | _OF_FILES):
            frame = session.read.format("binaryFile").load(list(new))
            frame = frame.select(
                sql.element_at(
                    sql.create_map(*(sql.lit(each) for pair in numbers.items() for each in pair)),
                    sql.regexp_replace(sql.col("path"), "^file:/+", "file:/"),
                ).alias("number"),
                sql.element_at(sql.split("path", "/"), -1).alias("name"),
                "content",
            )
            return _run(
                frame,
                lambda batches, key, noted: spark_rows.rows_of_files(batches, work.reduction, key, noted),
                work,
                tuple(new.values()),
                earlier,
            )


def reduce_frame(frame: DataFrame, work: Work, *, order: str | None = None) -> str:
    """Reduce a Spark DataFrame to a new job; return its folder in ``work.into``.

    Columns are named by the source's declaration. Of two records of one vehicle and instant the first counts:
    by the column ``order`` of whole numbers, or (None) by file and row, of a DataFrame that is read from
    Parquet files. Raises UsageError for a DataFrame that has neither, is cached, or shuffles raw records.
    """
    with spark_errors():
        return _from_frame(frame, work, None, _earlier(frame.sparkSession, work), order)


def _from_frame(
    frame: DataFrame,
    work: Work,
    files: Mapping[str, SourceFile] | None,
    earlier: Mapping[str, JobManifest],
    order: str | None,
) -> str:
    source, session = work.reduction.source, frame.sparkSession
    if source.missing_speed == "derive" or "geometry" in source.columns:
        raise ConfigError(
            "Spark does not derive speeds or read geometries of tables",
            got=f"source {source.name}",
            expected='columns latitude, longitude and speed, and missing_speed = "reject"',
            todo="or name CSV files, which are read whole",
        )
    columns = declared_columns(source, ("vehicle", "time", "latitude", "longitude"))
    missing = [name for name in columns.values() if name not in frame.columns]
    if missing:
        raise DataError("the table lacks columns", got=", ".join(missing), todo="correct the declaration")
    wanted = [sql.col(f"`{theirs}`").alias(ours) for ours, theirs in columns.items()]
    numbers: dict[str, int] | None = None
    if order is not None:
        wanted.append(sql.col(f"`{order}`").cast("long").alias("place"))
    else:
        names = list(files or frame.inputFiles())
        numbers = {spark_rows.normalise_uri(uri): number for number, uri in enumerate(names)}
        wanted += [sql.col("_metadata.file_path").alias("file"), sql.col("_metadata.row_index").alias("row")]
    with temporary_settings(session, _SETTINGS):
        try:
            chosen = frame.select(*wanted)
            _require_raw_stays(chosen)
        except PySparkException as error:
            if order is None and "_metadata" in str(error):
                raise UsageError(
                    "nobody knows which row of this table came first",
                    expected="a table that is read from Parquet files, or a column that says it",
                    todo='name one: order="sequence"',
                ) from None
            raise

        def rows(
            batches: Iterator[pa.RecordBatch],
            key: Callable[[], VehicleKey],
            noted: Callable[[str, spark_rows.Facts], None],
        ) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            part = str(None if context is None else context.partitionId())
            return spark_rows.rows_of_frame(batches, work.reduction, key, noted, part=part, numbers=numbers)

        return _run(chosen, rows, work, tuple((files or {}).values()), earlier)


def _require_raw_stays(frame: DataFrame) -> None:
    """Raise UsageError where raw records would be shuffled or are cached before they are keyed."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    for step, what in (("Exchange", "shuffles"), ("InMemoryTableScan", "caches")):
        if step in plan:
            raise UsageError(
                f"this DataFrame {what} raw records before plates are replaced",
                expected="one that is read, filtered and renamed only",
                todo="write it to Parquet in a place that may hold plates, and ingest that",
            )


def _run(
    frame: DataFrame,
    rows: Callable[..., Iterator[pa.RecordBatch]],
    work: Work,
    files: tuple[SourceFile, ...],
    earlier: Mapping[str, JobManifest],
) -> str:
    session, job = frame.sparkSession, new_token()[:32]
    context = session.sparkContext
    folder = Folder(session, f"{work.into}/{job}")
    noted = context.accumulator({}, _Noted())
    key, forget = key_in_executors(session, work.key)

    def keyed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows(batches, key, lambda part, facts: noted.add({part: facts}))

    try:
        folder.make()
        made = frame.mapInArrow(keyed, spark_rows.SPARK_ROWS)
        found = contributions(made, _counted(session, work.into, list(earlier)))
        found.write.parquet(folder.path(PARTS))
    except BaseException:
        folder.remove()
        raise
    finally:
        forget()
    parts, fixes = _count_written_rows(session, folder.path(PARTS))
    grid, bound = work.reduction.grid, work.reduction.bound
    manifest = JobManifest(
        job=job,
        after=tuple(earlier),
        key=cache_key(grid, bound),
        about=reduction_in_words(grid, bound),
        area=grid.area.hash,
        source=work.reduction.source.name,
        declaration=work.declaration,
        key_fingerprint=work.key.key.fingerprint,
        files=files,
        report=_report(work.reduction.source.name, files, noted.value),
        parts=parts,
        fixes=fixes,
    )
    folder.write(MANIFEST, manifest.to_json())
    return folder.path()


def contributions(rows: DataFrame, counted: DataFrame | None) -> DataFrame:
    """Return the sums of ``rows`` (ROWS) by (vehicle, slot, cell), counting each (vehicle, instant) once.

    Of several records of an instant the first counts; those that ``counted`` has are left out.
    """
    everything = rows if counted is None else rows.unionByName(counted)
    first = (
        everything.repartition("vehicle", "slot")
        .groupBy("vehicle", "slot", "time_us")
        .agg(sql.min(sql.struct("place", "cell", "value")).alias("first"))
        .filter(sql.col("first.place") > _KNOWN)
        .select("vehicle", "slot", "time_us", sql.col("first.cell").alias("cell"), sql.col("first.value"))
    )
    value = sql.col("value")
    return first.groupBy("vehicle", "slot", "cell").agg(
        sql.count(sql.lit(1)).alias("fixes"),
        _at_most(sql.try_sum(value)).alias("total"),
        _at_most(sql.try_sum(value * value)).alias("total_of_squares"),
        sql.sort_array(sql.collect_list("time_us")).alias("instants"),
    )


def _at_most(total: Column) -> Column:
    """Return a sum of numbers of at least 0; LARGEST_TOTAL where it is null, because it left 64 bits."""
    return sql.coalesce(total, sql.lit(LARGEST_TOTAL).cast("long"))


def _counted(session: SparkSession, into: str, jobs: Sequence[str]) -> DataFrame | None:
    """Return ROWS of what earlier jobs have counted, None where there is none."""
    if not jobs:
        return None
    nothing = sql.lit(0).cast("long")
    return session.read.parquet(*(f"{into}/{job}/{PARTS}" for job in jobs)).select(
        "vehicle",
        "slot",
        sql.explode("instants").alias("time_us"),
        sql.lit(_KNOWN).alias("place"),
        nothing.alias("cell"),
        nothing.alias("value"),
    )


def _count_written_rows(session: SparkSession, path: str) -> tuple[dict[str, int], int]:
    """Return rows by file, and the records that are counted in all, of what was written."""
    found = (
        session.read.parquet(path).groupBy("_metadata.file_name").agg(sql.count(sql.lit(1)), sql.sum("fixes"))
    )
    rows = found.collect()
    return {str(name): int(count) for name, count, _ in rows}, sum(int(fixes) for _, _, fixes in rows)


def _earlier(session: SparkSession, work: Work) -> dict[str, JobManifest]:
    """Return the finished jobs of ``work.into`` with the same grid and bound, each after its ``after``."""
    key = cache_key(work.reduction.grid, work.reduction.bound)
    manifests = [JobManifest.from_json(text) for text in Folder(session, work.into).read_all(MANIFEST)]
    same = sorted(
        (each for each in manifests if each.key == key), key=lambda each: (len(each.after), each.job)
    )
    for each in same:
        if each.key_fingerprint != work.key.key.fingerprint:
            raise UsageError(
                "earlier contributions here were made with another key",
                todo="name another folder, or that key",
            )
    return {each.job: each for each in same}


def _report(source: str, files: tuple[SourceFile, ...], noted: Mapping[str, spark_rows.Facts]) -> FileReport:
    rejected: Counter[str] = Counter()
    wrong: list[LintFinding] = []
    for facts in noted.values():
        rejected.update(facts.rejected)
        if facts.report is not None:
            lint = FileReport.from_json(facts.report).lint
            wrong += [each for each in lint if each.verdict is LintVerdict.WRONG]
    rows_in = sum(facts.rows_in for facts in noted.values())
    name = files[0].name if len(files) == 1 else f"{len(files)} files" if files else "a table"
    return FileReport(
        file=name,
        source=source,
        rows_in=rows_in,
        rows_kept=rows_in - rejected.total(),
        rejected=dict(rejected),
        derived=sum(facts.derived for facts in noted.values()),
        lint=tuple(wrong),
    )


class _Noted(AccumulatorParam):  # type: ignore[misc]  # untyped where Spark is not installed
    """Facts by part: what is noted twice, by a task that ran twice, counts once."""

    def zero(self, value: dict[str, spark_rows.Facts]) -> dict[str, spark_rows.Facts]:
        return {}

    def addInPlace(
        self, value1: dict[str, spark_rows.Facts], value2: dict[str, spark_rows.Facts]
    ) -> dict[str, spark_rows.Facts]:
        value1.update(value2)
        return value1
