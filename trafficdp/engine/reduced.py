"""Contributions that a cluster has reduced: a folder a job, with Parquet files and a manifest.

    FOLDER/contributions/part-*.parquet    one row a (vehicle, slot, cell); vehicles by pseudonym
    FOLDER/manifest.json                   written last: without it there is nothing here

They are as sensitive as the records. ``instants`` of a row are the times of its records: a later job leaves
out what repeats them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from trafficdp.errors import DataError, UsageError
from trafficdp.ingest.report import FileReport
from trafficdp.model import ContributionBound, Grid

FORMAT = "trafficdp-contributions-1"
MANIFEST, PARTS = "manifest.json", "contributions"
SAID = "trafficdp in an executor: "
"""How the message of an error begins that came from an executor."""
COLUMNS = ("vehicle", "slot", "cell", "fixes", "total", "total_of_squares")
"""What an import reads."""
_BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class Spark:
    """How Spark is asked: every field has an answer on one machine.

    ``into`` is the folder of jobs, of any file system of the cluster. ``key_mount`` is where every executor
    finds the key as a secret; None: it is broadcast, which needs an encrypted session. ``order`` is a column
    of a DataFrame that says which of two rows came first. ``session`` is a SparkSession; None: the active
    one.
    """

    into: str | Path | None = None
    key_mount: str | Path | None = None
    order: str | None = None
    session: Any = None


@dataclass(frozen=True)
class SourceFile:
    """A file that was read: address and time of change tell it from others without reading it again."""

    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class JobManifest:
    """What a job computed, of what. ``after`` are the jobs whose records it left out, in order.

    ``key`` is ``vault_fixes.cache_key`` of grid and bound; ``about`` says the same for people.
    ``parts`` are rows by file, ``fixes`` the records that are counted in them.
    """

    job: str
    after: tuple[str, ...]
    key: str
    about: Mapping[str, str]
    area: str
    source: str
    declaration: str
    key_fingerprint: str
    files: tuple[SourceFile, ...]
    report: FileReport
    parts: Mapping[str, int]
    fixes: int

    def to_json(self) -> str:
        """Return the manifest as JSON with sorted keys; it holds the private report, so never publish it."""
        facts = asdict(self) | {"format": FORMAT, "report": self.report.to_json()}
        return json.dumps(facts, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> JobManifest:
        """Return the manifest that ``to_json`` wrote; raise DataError for anything else."""
        try:
            facts = json.loads(text)
            if facts.pop("format") != FORMAT:
                raise ValueError("another format")
            facts["report"] = FileReport.from_json(facts["report"])
            facts["files"] = tuple(SourceFile(**each) for each in facts["files"])
            facts["after"] = tuple(facts["after"])
            return cls(**facts)
        except (ValueError, TypeError, KeyError, AttributeError, DataError) as error:
            raise DataError("not a manifest of reduced contributions", expected=FORMAT) from error


def reduction_in_words(grid: Grid, bound: ContributionBound) -> dict[str, str]:
    """Return for people what records were reduced to, by name: places, slots, period and speed bound."""
    return {
        "resolution": str(grid.resolution),
        "slot": grid.slot_kind.value,
        "period": f"{grid.period.first} to {grid.period.last}",
        "time_zone": grid.period.time_zone,
        "speed_bound": f"{bound.upper} {bound.unit.label}",
        "speed_step": str(bound.step),
    }


def local_folder(uri: str) -> Path:
    """Return the path on this machine of the folder ``uri``; raise UsageError for another file system."""
    if not re.match("file:|[^:]*$", uri):
        raise UsageError(
            "what the cluster wrote does not lie on this machine",
            got=uri,
            todo="copy the folder of jobs here, and import it with `trafficdp ingest --engine reduced`",
        )
    return Path(re.sub("^file:/+", "/", uri))


def finished_jobs(folder: Path) -> list[tuple[Path, JobManifest]]:
    """Return (folder, manifest) of every finished job in ``folder``, or of the job that it is.

    Each comes after those that its ``after`` names. Raises UsageError when there is none, DataError for a
    manifest that cannot be read.
    """
    if (folder / MANIFEST).is_file():
        return [(folder, _manifest(folder))]
    found = [(path.parent, _manifest(path.parent)) for path in sorted(folder.glob(f"*/{MANIFEST}"))]
    if not found:
        raise UsageError(
            "there are no finished contributions here",
            got=str(folder),
            todo="name the folder that the job on the cluster wrote into, copied whole",
        )
    return sorted(found, key=lambda each: (len(each[1].after), each[1].job))


def _manifest(folder: Path) -> JobManifest:
    try:
        return JobManifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise DataError(f"cannot read {folder / MANIFEST}") from None


def batches(folder: Path, manifest: JobManifest) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the job in ``folder`` in batches with COLUMNS.

    Raises DataError when a file is missing, damaged or has another number of rows than ``manifest`` says.
    """
    for name, rows in sorted(manifest.parts.items()):
        found = 0
        try:
            with pyarrow.parquet.ParquetFile(folder / PARTS / name) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(COLUMNS)):
                    batch.validate(full=True)
                    found += len(batch)
                    yield batch.select(list(COLUMNS))
        except (pa.ArrowException, OSError, KeyError):
            raise _incomplete(folder, name) from None
        if found != rows:
            raise _incomplete(folder, name)


def _incomplete(folder: Path, name: str) -> DataError:
    return DataError(
        f"the contributions of {folder.name} are not whole",
        got=f"{name} is missing, damaged or of another job",
        todo="copy the folder again; nothing was imported",
    )
