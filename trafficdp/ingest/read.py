"""Reading a file of a city: choose its source, read it by its convention, clean it, lint it."""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.errors import ConfigError, DataError, TrafficdpError, UsageError
from trafficdp.ingest import report as ingest_report
from trafficdp.ingest.clean import CleanedFile, UnitCheck, clean
from trafficdp.ingest.formats import (
    csv_files,
    frame,
    geopackage,
    gtfs_rt,
    json_files,
    parquet,
    siri,
    xml_files,
)
from trafficdp.ingest.input_file import InputFile, Named
from trafficdp.ingest.times import Records
from trafficdp.ingest.vehicle_key import VehicleKey, VehicleParts
from trafficdp.model import FILE_NAME, NeighbouringRelation, Period, SourceDeclaration, StudyArea
from trafficdp.sensitive import Fixes

Reader = Callable[[InputFile, SourceDeclaration], Iterator[Records]]

READERS: Mapping[str, Reader] = {
    "csv": csv_files.read_csv,
    "parquet": parquet.read,
    "gpkg": geopackage.read,
    "json": json_files.read_json,
    "gtfs_rt": gtfs_rt.read,
    "gtfs_rt_csv": csv_files.read_gtfs_rt_csv,
    "tides": csv_files.read_tides,
    "mds": json_files.read_mds,
    "iudx": json_files.read_iudx,
    "siri": siri.read,
    "xml": xml_files.read_xml,
    "nextbus": xml_files.read_nextbus,
}


@dataclass(frozen=True, repr=False)
class ReadFile:
    """The fixes of one file and the report on its rows. The report is outside the privacy guarantee.

    ``digest`` tells the file from others: ``VehicleKey.digest`` of its bytes.
    """

    fixes: Fixes
    report: ingest_report.FileReport
    digest: str

    def __repr__(self) -> str:
        return (
            f"<ReadFile {self.report.file}: {self.report.rows_kept} of {self.report.rows_in} rows, redacted>"
        )


def list_of_inputs(given: object) -> list[object]:
    """Return the paths and frames in ``given``, which is one of them or a list; a string is one path."""
    if isinstance(given, str):
        return [Path(given)]
    if isinstance(given, Path) or frame.is_frame(given) or not isinstance(given, Iterable):
        return [given]
    return [Path(each) if isinstance(each, str) else each for each in given]


def choose_source(
    given: object, sources: Sequence[SourceDeclaration], name: str | None = None
) -> SourceDeclaration:
    """Return the source called ``name``, else the first one of whose patterns matches the name of a path.

    A frame has no name to match: it is read by the only source. Raises UsageError when the source must be
    named, or is not there, and DataError, listing the patterns, when none reads the file.
    """
    if name is not None or not isinstance(given, Path):
        named = [source for source in sources if name in (None, source.name)]
        if len(named) == 1:
            return named[0]
        raise UsageError(
            "which source is meant?" if name is None else "there is no such source",
            got="a frame, which has no file name" if name is None else f"source={name!r}",
            expected="source=" + " or ".join(repr(source.name) for source in sources),
        )
    path = given
    for source in sources:
        if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in source.files):
            return source
    if not path.exists():
        raise DataError(f"there is no file {path}", todo="correct its name")
    declared = "; ".join(f"{source.name}: {', '.join(source.files)}" for source in sources)
    raise DataError(
        f"no declared source reads {path.name}",
        expected=f"a name that matches one of: {declared}" if declared else "at least one declared source",
        todo="add a source or a pattern to the configuration",
    )


def first_bytes_are_a_record(source: SourceDeclaration) -> bool:
    """Return whether files of ``source`` begin with a record, so that no signature can tell their format."""
    return source.format == "csv" and not source.dialect.header


class Reading:
    """A file or frame that is read as its source declares, in parts that memory holds; nothing is kept.

    Take ``parts`` to their end, then ask for the ``report``. ``given`` is a path, a file that is open to us
    already, or a frame (``formats.frame``). ``progress`` is called with the number of bytes read since its
    last call; the calls add up to the size of the file. Without ``refuse_by_rows`` each row stands for
    itself: the file is refused for its form only, never for having no row, or none with a readable time. Days
    outside ``period`` are rejected; without one there are none.

    ``digest`` tells the file from others: ``VehicleKey.digest`` of its bytes. Raises DataError (exit 4) when
    the file cannot be read or is of another format than declared.
    """

    def __init__(
        self,
        given: object,
        source: SourceDeclaration,
        area: StudyArea,
        key: VehicleKey,
        *,
        progress: Callable[[int], None] | None = None,
        refuse_by_rows: bool = True,
        period: Period | None = None,
    ) -> None:
        reader = READERS.get(source.format)
        if reader is None:
            raise ConfigError(
                f"source {source.name} has an unknown format",
                got=repr(source.format),
                expected="one of " + ", ".join(sorted(READERS)),
            )
        self.source = source
        self.clean = partial(clean, source=source, area=area, key=key, period=period)
        """Cleans records as this file's, of those that it is read with."""
        self.file: InputFile | frame.Frame
        self.read: Callable[[Any], Iterator[Records]]
        """Yields the records of the file, or of each file of an archive."""
        self.named_by_file = source.columns.get("vehicle") == FILE_NAME
        if isinstance(given, Path):
            by_name = first_bytes_are_a_record(source)
            given = InputFile(given, progress, refuse_by_rows=refuse_by_rows, form_by_name=by_name)
        if isinstance(given, InputFile):
            self.file = file = given
            self.read = partial(_of_member, reader, source, file.name)
            for form, name in (
                ("parquet", "a Parquet file"),
                ("gpkg", "a GeoPackage, or another SQLite database"),
            ):
                if file.form == form != source.format:
                    raise DataError(
                        f"{file.name} is {name}",
                        expected=f"{source.format}, as source {source.name} declares",
                    )
            if self.named_by_file and file.form != "zip":
                raise DataError(
                    f"the name of {file.name} would be a vehicle's",
                    expected="a zip archive of files named by vehicle; what is read is kept by name",
                    todo="put the files into one archive, and ingest that",
                )
            sha256 = file.sha256()
            if source.format == "tides" and file.path.suffix.lower() == ".json":
                # of a data package, that of its own and of its tables' hashes
                parts = [sha256, *(part.sha256() for part in csv_files.package_files(file))]
                sha256 = hashlib.sha256("\n".join(parts).encode("ascii")).hexdigest()
            self.digest = key.digest(sha256)
        else:
            self.file = held = frame.Frame(given, source, progress, refuse_by_rows=refuse_by_rows)
            self.read = partial(frame.read, source=source)
            self.digest = key.digest(held.sha256())
        self.readable = self.malformed = self.header_times = 0
        """Rows that came from the file: read, no rows at all, and of those read with the header's time."""
        self.a_known_time = False
        """Whether one of them states an instant, or one that no clock shows or that is too far."""
        self._report: ingest_report.FileReport | None = None
        self.extents = ingest_report.Extents()
        """How far the rows reach, once all are read. For the curator's eyes."""

    @property
    def report(self) -> ingest_report.FileReport:
        """What became of the rows; raise ValueError before the last part was taken (our bug)."""
        if self._report is None:
            raise ValueError("the file was not read to its end")
        return self._report

    def parts(self, scratch: Path | None = None) -> Iterator[Fixes]:
        """Yield the fixes of this file in parts; see ``parts_of_files`` for ``scratch``, order and errors."""
        for fixes, _ in parts_of_files([self], scratch):
            yield fixes

    def finish(self, cleaned: CleanedFile, units: tuple[ingest_report.LintFinding, ...], files: int) -> None:
        """Make the report and the extents of this file from the counts ``cleaned`` of its rows.

        ``units`` are the verdicts of the unit check, over all ``files`` (a number) that were read together.
        """
        self.extents = cleaned.extents
        if self.header_times:
            noted = {**self.extents.noted, ingest_report.HEADER_TIME: self.header_times}
            self.extents = replace(self.extents, noted=noted)
        malformed = {ingest_report.MALFORMED_ROW: self.malformed} if self.malformed else {}
        self._report = ingest_report.FileReport(
            file=self.file.name,
            source=self.source.name,
            rows_in=self.readable + self.malformed,
            rows_kept=cleaned.kept,
            rejected={**malformed, **cleaned.rejected},
            derived=cleaned.derived,
            lint=units,
            files=files,
        )


def parts_of_files(
    readings: Sequence[Reading], scratch: Path | None
) -> Iterator[tuple[Fixes, npt.NDArray[np.int32]]]:
    """Yield the kept fixes of all ``readings`` of one source in parts, with the number of each fix's file.

    All fixes of a vehicle are in one part, in the order of the files; of several of one vehicle and instant
    the first is kept. Speeds are derived, and units checked, across all files. ``scratch``: a folder for
    rows beyond memory; None holds all rows in memory.

    Raises DataError (exit 4) when a file cannot be read as declared or, with ``refuse_by_rows``, when not a
    single time is in the declared format.
    """
    first, check = readings[0], UnitCheck()
    outcomes = [CleanedFile() for _ in readings]
    with VehicleParts(scratch) as parts:
        for block in _records(readings):
            parts.append(block)
        for records in parts.read():
            cleaned = first.clean(records, check=check, files=len(readings))
            for outcome, part in zip(outcomes, cleaned.files, strict=True):
                outcome.kept += part.kept
                outcome.derived += part.derived
                outcome.rejected += part.rejected
                outcome.extents |= part.extents
            yield cleaned.fixes, records.file[cleaned.rows]
    for reading, outcome in zip(readings, outcomes, strict=True):
        reading.finish(outcome, check.findings(), len(readings))


def _records(readings: Sequence[Reading]) -> Iterator[Records]:
    """Yield the records of files as they are, with the number of their file; count those that are none."""
    first, large = readings[0], LARGE.get(readings[0].source.format)
    # what is held in memory, and frames, no other process can open
    files = [each.file for each in readings if isinstance(each.file, InputFile) and each.file.held is None]
    if large is None or len(files) < len(readings):
        files, large = [], 0
    # the processes end when all files are read: their memory is for the cleaning
    with Readers(files, first.read, large=large, named_by_vehicle=first.named_by_file) as readers:
        for number, reading in enumerate(readings):
            file = reading.file
            # no name holds an iterator: it would keep an archive open as long as an error is looked at
            for lot in file.file_groups(named_by_vehicle=reading.named_by_file):
                for block in readers.read_blocks(lot, reading.read):
                    times = block.times
                    reading.malformed += block.malformed
                    reading.header_times += block.header_times
                    reading.readable += len(block)
                    reading.a_known_time |= bool((times.readable | times.skipped_hour | times.far).any())
                    yield replace(block, file=np.full(len(block), number, dtype=np.int32))
            if reading.readable and not reading.a_known_time and file.refuse_by_rows:
                raise _no_times(file, reading.source)
            file.tell_progress(file.size)


def _of_member(
    reader: Reader, source: SourceDeclaration, archive: str, member: InputFile
) -> Iterator[Records]:
    if member.in_archive and "parquet" in (source.format, member.form):
        raise DataError(
            f"{archive} holds Parquet files in a zip archive",
            expected="Parquet files as they are, or an archive of text files",
            todo="unpack it",
        )
    if source.columns.get("vehicle") != FILE_NAME:
        return reader(member, source)
    # any column that is there: what it says of vehicles is replaced
    source = replace(source, columns={**source.columns, "vehicle": source.columns["time"]})
    name = PurePath(member.unpacked_name).stem
    return (_of_vehicle(records, name) for records in reader(member, source))


def _of_vehicle(records: Records, name: str) -> Records:
    number = pa.array(np.zeros(len(records), dtype=np.int32))
    return replace(records, vehicle=pa.DictionaryArray.from_arrays(number, pa.array([name], pa.string())))


def read_file(
    given: object,
    source: SourceDeclaration,
    area: StudyArea,
    key: VehicleKey,
    *,
    progress: Callable[[int], None] | None = None,
    refuse_by_rows: bool = True,
) -> ReadFile:
    """Read a whole file or frame into memory, in one part; see ``Reading``, whose errors it raises."""
    reading = Reading(given, source, area, key, progress=progress, refuse_by_rows=refuse_by_rows)
    (fixes,) = reading.parts()
    return ReadFile(fixes, reading.report, reading.digest)


def require_kept_rows(
    report: ingest_report.FileReport,
    source: SourceDeclaration,
    relation: NeighbouringRelation,
    days: str | None = None,
) -> None:
    """Raise DataError, naming the commonest reason, when no row is kept or a smaller share than ``min_kept``.

    ``days``: from which day to which its rows are. Nothing is looked at, and nothing raised, where
    ``relation`` forbids that. A file without any row, such as a snapshot in which no vehicle runs, is no
    error.
    """
    # of rows in the period those that are kept, or repeat one that is
    rows = report.rows_in - report.rejected.get(ingest_report.OUTSIDE_PERIOD, 0)
    understood = report.rows_kept + report.rejected.get(ingest_report.DUPLICATE_IN_FILE, 0)
    share = Fraction(understood, rows) if rows and relation.may_refuse_by_counts else Fraction(1)
    if share > 0 and share >= source.min_kept:
        return
    rule = max(ingest_report.RULES, key=lambda name: report.rejected.get(name, 0))
    names = [
        source.columns.get(name, name)
        for name in ingest_report.COLUMNS.get(rule, ())
        if _is_read(name, source)
    ]
    where = f", column{'s'[: len(names) > 1]} {', '.join(names)}" if names else ""
    told = f" (the rows are of {days})" if days and rule == ingest_report.OUTSIDE_PERIOD else ""
    raise DataError(
        f"{'too few rows' if share else 'no row'} of {report.file} can be kept",
        got=f"{report.rows_kept} of {report.rows_in} rows; most often {rule}{where}: "
        f"{ingest_report.RULES[rule]}{told}",
        expected=f"a share of {float(source.min_kept):g} at least (min_kept)" if share else "one at least",
        todo=_derive(source)
        if rule == ingest_report.MISSING_SPEED
        else f"correct the declaration of source {source.name}, such as its columns or decimal, or the study "
        "area, or leave the file out",
    )


def _derive(source: SourceDeclaration) -> str:
    if source.missing_speed == "reject":
        return f'set missing_speed = "derive" in source {source.name}: speeds are worked out from positions'
    return (
        "speeds are worked out from a vehicle's positions 2 to 120 s apart in the files of one ingest: where "
        "each file is one moment, ingest those of a day together"
    )


def _is_read(name: str, source: SourceDeclaration) -> bool:
    place = (
        ("geometry",)
        if "geometry" in source.columns or source.format == "gpkg"
        else csv_files.place_columns(source)
    )
    return name in (*place, "vehicle", "time", "speed")


def _no_times(file: Named, source: SourceDeclaration) -> DataError:
    zone = f"on the clock of {source.time_zone}" if source.time_zone else "with an offset from UTC"
    todo = "correct time_format"
    if source.time_zone is None and not source.time_format.startswith("epoch"):
        todo += ", or set time_zone if the times have no offset"
    return DataError(
        f"not a single time of {file.name} can be read",
        expected=f"times in the format {source.time_format}, {zone}, as source {source.name} declares",
        todo=todo,
    )


def wrong_unit(file: str, source: str, finding: ingest_report.LintFinding) -> str:
    """Return the sentence that speeds of ``file`` do not fit the unit that ``source`` declares.

    ``finding`` is what the unit check found.
    """
    fitting = finding.fitting_unit
    todo = "check its positions and times" if fitting is None else f"{fitting.label} would fit"
    return (
        f"speeds of {file} do not look like {finding.unit.label}, as source {source} declares; got a median "
        f"ratio of {finding.median_ratio:.3f} between the speed by distance and the reported speed, over "
        f"{finding.pairs} pairs of fixes; expected {ingest_report.LOWEST_RATIO} to "
        f"{ingest_report.HIGHEST_RATIO}; {todo}"
    )


# Many files read in lots, by one process or several: the same records in the same order.
#
# Process k of n reads lots k, n + k, 2n + k, ... of files; the parent takes them in their order. A pipe holds
# little, so no process is more than a block or two ahead of the parent.
#
# What goes wrong in a process is said by the parent: it reads that lot again from its start.

LARGE = {
    **dict.fromkeys(("json", "mds", "iudx", "xml", "nextbus"), 128 << 20),
    "siri": 256 << 20,
    "gtfs_rt": 16 << 20,
}
"""Formats that take time, and from how many unpacked bytes on starting processes pays."""
MOST_PROCESSES = 8
"""Each takes some 150 MB."""
_PIPE = 1 << 20
_ROWS = 20_000
"""Of a block that is put together of smaller ones."""
_ENDS = "the end of a lot"
_START = "from trafficdp.ingest.read import read_in_process; read_in_process()"

Read = Callable[[Any], Iterator[Records]]
"""Of a file, or of a frame."""


def process_count() -> int:
    """Return how many processes may read files at once."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_PROCESSES)


class Readers(ExitStack):
    """A context manager that starts processes to read ``files`` of one source, where that pays.

    Below ``large`` unpacked bytes in all it does not: then files are read in this process. ``read`` reads one
    file and must be picklable. ``read_blocks`` must be called for every lot of files, in order.
    """

    def __init__(
        self,
        files: Sequence[InputFile] = (),
        read: Read | None = None,
        *,
        large: int = 0,
        named_by_vehicle: bool = False,
    ) -> None:
        super().__init__()
        self._files, self._large, self._next = files, large, 0
        self._how = named_by_vehicle, read
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            sizes = [size for file in self._files for size in file.unpacked_sizes()]
        except TrafficdpError:
            # whoever reads it meets it, after what comes before
            sizes = []
        if len(sizes) < 2 or sum(sizes) < self._large or (number := process_count()) < 2:
            return self
        paths = [str(each.path.absolute()) for each in self._files]
        told = (paths, self._files[0].refuse_by_rows, self._files[0].form_by_name, *self._how)
        found: list[subprocess.Popen[bytes]] = []
        with ExitStack() as started, suppress(OSError):
            for own in range(number):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                started.callback(_end, process)
                found.append(process)
                with suppress(OSError, AttributeError):
                    # of Linux; it may be a block ahead
                    fcntl.fcntl(_pipe(process.stdout), fcntl.F_SETPIPE_SZ, _PIPE)
                with suppress(OSError), _pipe(process.stdin) as pipe:
                    pipe.write(pickle.dumps((*told, own, number)))
            # all or none
            self._processes = found
            self.callback(started.pop_all().close)
        return self

    def read_blocks(self, lot: Sequence[Any], read: Read) -> Iterator[Records]:
        """Yield the records of ``lot``, the next list of files, in large blocks.

        ``read`` reads one file in this process, where no other process reads it.
        """
        skipped = 0
        if self._processes:
            process = self._processes[self._next % len(self._processes)]
            self._next += 1
            while isinstance(found := _received(process), Records):
                yield found
                skipped += 1
            if found == _ENDS:
                return
        held: list[Records] = []
        for member in lot:
            for records in read(member):
                held.append(records)
                if sum(map(len, held)) < _ROWS:
                    continue
                if not skipped:
                    yield Records.concatenate(held)
                held, skipped = [], max(0, skipped - 1)
        if held and not skipped:
            yield Records.concatenate(held)


def _received(process: subprocess.Popen[bytes]) -> Records | str | None:
    try:
        found: Records | str = pickle.load(_pipe(process.stdout))
    except (EOFError, OSError, pickle.UnpicklingError):
        return None
    return found


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("a process was started without pipes")
    return pipe


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            _pipe(pipe).close()


def read_in_process() -> None:
    """Main function of a reading process: read the files named on standard input, and write their records.

    Ends when all files are read, when one cannot be read, or when the starting process has gone.
    """
    # who presses Ctrl-C means the parent, which ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        paths, refuse_by_rows, form_by_name, named_by_vehicle, read, own, number = pickle.load(
            sys.stdin.buffer
        )
        files = (
            InputFile(Path(path), refuse_by_rows=refuse_by_rows, form_by_name=form_by_name) for path in paths
        )
        lots = (lot for file in files for lot in file.file_groups(named_by_vehicle=named_by_vehicle))
        for lot in islice(lots, own, None, number):
            for records in Readers().read_blocks(lot, read):
                pickle.dump(records, out, protocol=5)
            pickle.dump(_ENDS, out)
            out.flush()
