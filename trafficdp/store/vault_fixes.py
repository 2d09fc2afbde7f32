"""Fixes in the vault: from files that were read; contributions of a cluster, and those that were reduced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt

from trafficdp._durable import new_token
from trafficdp.arrays import IntArray
from trafficdp.errors import DataError, UsageError
from trafficdp.model import ContributionBound, Counts, Grid, unique_by_counting
from trafficdp.privacy.ledger import canonical
from trafficdp.sensitive import Contributions, Fixes
from trafficdp.store.store_files import registered, script
from trafficdp.store.vault import Vault

if TYPE_CHECKING:
    import pyarrow as pa


# Fixes into the vault: vehicles numbered, nothing twice, every reading of a file remembered.
#
# Every reading gives the data a new name, whatever the file holds and whether it was read before: what is
# published of the data, and what the next release costs, must not tell whether a file held anything new. The
# name is random. The history of the data is not, and is not published: a hash that follows from the records
# would let whoever knows all but one of them find that one by trying.

NO_DATA = "no data"
"""The name of the data of a vault without files."""
_FILES = (
    "SELECT ingest_id, data_version, file_digest, declaration, coalesce(added, 0) FROM ingests LEFT JOIN ("
    "SELECT ingest_id, count(*) AS added FROM fixes GROUP BY ingest_id UNION ALL "
    "SELECT ingest_id, CAST(sum(fixes) AS BIGINT) FROM imported GROUP BY ingest_id) USING (ingest_id) "
    "WHERE ingest_id BETWEEN ? AND ? ORDER BY ingest_id"
)
"""The files, or jobs of a cluster, from one to another, and how many records of each are in the vault."""
_LAST = 2**31 - 1
_ROWS_AT_ONCE = 1 << 19
NO_HISTORY = hashlib.sha256(b"trafficdp data").hexdigest()


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The state of the data: all fixes of the ingests 1..``ingest_id``. ``name`` is random and public."""

    ingest_id: int
    name: str


@dataclass(frozen=True, slots=True)
class FileDetails:
    """What is noted of a file: ``declaration`` and ``report`` are JSON."""

    name: str
    digest: str
    source: str
    declaration: str
    report: str


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What the vault remembers of a file. For the curator: outside the guarantee."""

    ingest_id: int
    file_name: str
    source: str
    report: str


def data_version(vault: Vault) -> DataVersion:
    """Return the newest version of the vault's data."""
    newest = "SELECT ingest_id, data_version FROM ingests ORDER BY ingest_id DESC LIMIT 1"
    found = vault.run(newest)
    return DataVersion(*found[0]) if found else DataVersion(0, NO_DATA)


def number_of_files(vault: Vault) -> int:
    """Return how many file readings the vault holds, without those undone."""
    return vault.number("SELECT count(*) FROM ingests WHERE undone_at IS NULL")


def pin_area(vault: Vault, area: str, *, dry_run: bool) -> None:
    """Raise DataError unless the store was filled under the study area with the hash ``area``, or is empty.

    Rows outside the old area were rejected and cannot come back. An empty store (also one whose files were
    all undone) is bound to this area from now on, unless ``dry_run``.
    """
    pinned = vault.facts.get("area_hash") if number_of_files(vault) else None
    if pinned is None and not dry_run:
        vault.facts["area_hash"] = area
        vault.run("INSERT OR REPLACE INTO meta VALUES ('area_hash', ?)", [area])
    if pinned is not None and pinned != area:
        raise DataError(
            "the study area is not the one this store was filled under",
            got="another area in the configuration",
            expected="the area that was configured when the first file was read",
            todo="restore [city] study_area, or ingest everything into a new store",
        )


def earlier_declarations(vault: Vault, digest: str) -> set[str]:
    """Return the source declarations (JSON) under which a file of this ``digest`` was read before.

    For the curator's eyes.
    """
    rows = vault.run("SELECT declaration FROM ingests WHERE file_digest = ? AND undone_at IS NULL", [digest])
    return {str(declaration) for (declaration,) in rows}


def number_vehicles(vault: Vault, pseudonyms: pa.DictionaryArray) -> IntArray:
    """Return the vault's number of every vehicle pseudonym, shape (n,); new vehicles get the next numbers.

    To be called inside the caller's transaction.
    """
    import pyarrow as pa

    distinct = pseudonyms.dictionary
    table = pa.table({"vehicle": distinct, "place": pa.array(np.arange(len(distinct)))})
    with registered(vault.connection, "incoming_vehicles", table):
        vault.run(script("statements/number_vehicles"))
        known = vault.query(
            "SELECT incoming.place, vehicles.vehicle_id FROM incoming_vehicles AS incoming "
            "JOIN vehicles ON vehicles.hmac = CAST(incoming.vehicle AS BLOB) ORDER BY incoming.place"
        )
    numbers = known.column("vehicle_id").to_numpy().astype(np.int64)
    return np.asarray(numbers[pseudonyms.indices.to_numpy(zero_copy_only=False)], dtype=np.int64)


def numbers_of(vault: Vault, pseudonyms: pa.Array) -> list[int]:
    """Return the vault's vehicle numbers of ``pseudonyms`` (pa.binary(32)), sorted, without unknown ones."""
    import pyarrow as pa

    with registered(vault.connection, "wanted_vehicles", pa.table({"hmac": pseudonyms})):
        rows = vault.run(
            "SELECT vehicle_id FROM vehicles SEMI JOIN wanted_vehicles "
            "ON vehicles.hmac = CAST(wanted_vehicles.hmac AS BLOB) ORDER BY vehicle_id"
        )
    return [int(number) for (number,) in rows]


def rename_versions(vault: Vault, first_ingest: int = 1) -> None:
    """Give the data versions of file ``first_ingest`` and all later ones new random names.

    Their histories are computed anew from the records that are there now.
    """
    history = stated_history(vault, first_ingest - 1)
    files = vault.run(_FILES, [first_ingest, _LAST])
    for ingest_id, _, digest, declaration, added in files:
        name = new_token()
        history = _next_history(history, name, str(digest), str(declaration), int(added))
        vault.run(
            "UPDATE ingests SET data_version = ?, history = ? WHERE ingest_id = ?", [name, history, ingest_id]
        )


def undo(vault: Vault, ingest_id: int, at: datetime) -> int:
    """Delete the records that the file ``ingest_id`` brought; return how many there were.

    Inside the caller's transaction. The file stays listed, as undone. The data versions of this file and all
    later ones get new names, whether or not the file had brought anything.
    """
    ((_, _, _, _, brought),) = vault.run(_FILES, [ingest_id, ingest_id])
    for table in ("fixes", "imported", "imports"):
        vault.run(f"DELETE FROM {table} WHERE ingest_id = ?", [ingest_id])  # noqa: S608
    vault.run("DELETE FROM contributions")
    vault.run("UPDATE ingests SET undone_at = ? WHERE ingest_id = ?", [at, ingest_id])
    rename_versions(vault, ingest_id)
    return int(brought)


class Incoming:
    """The fixes of files on their way into the vault, inside the caller's transaction.

    Give them part by part, each (vehicle, instant) of a file once; then ``finish``, and ``note`` each file in
    order. A fix whose (vehicle, instant) an earlier file brought is left out: the earlier one stays.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        previous = data_version(vault).ingest_id
        self.ingest_id = previous + 1
        self._next_id, self._history = previous + 1, stated_history(vault, previous)
        self._held: list[pa.Table] = []
        self._first_us, self._last_us = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def add(self, fixes: Fixes | None, file: npt.NDArray[np.int32] | None = None) -> None:
        """Add fixes; ``file`` (n,) is the position, from 0, of the file that each is from (None: file 0).

        Small parts are held back and written together. Without ``fixes`` all that is held is written.
        """
        import pyarrow as pa

        if fixes is not None:
            ingest_id = self.ingest_id + (np.zeros(len(fixes), dtype=np.int32) if file is None else file)
            self._held.append(fixes.table.append_column("ingest_id", [ingest_id]))
            if sum(map(len, self._held)) < _ROWS_AT_ONCE:
                return
        held, self._held = self._held, []
        if not held:
            return
        for batch in pa.concat_tables(held).unify_dictionaries().combine_chunks().to_batches():
            vehicle = number_vehicles(self._vault, batch.column("vehicle"))
            numbered = batch.set_column(0, "vehicle_id", pa.array(vehicle))
            rows = pa.RecordBatchReader.from_batches(numbered.schema, [numbered])
            with registered(self._vault.connection, "incoming_fixes", rows):
                self._vault.run(script("statements/add_fixes"))
            time_us = batch.column("time_us").to_numpy()
            self._first_us = min(self._first_us, int(time_us.min(initial=self._first_us)))
            self._last_us = max(self._last_us, int(time_us.max(initial=self._last_us)))

    def finish(self, *, once: bool = True) -> dict[int, int]:
        """Write the last fixes, drop those whose (vehicle, instant) was there before, and count the new ones.

        Returns how many are new of each file, by its position from 0; files without a new fix are left out.
        ``once``: no (vehicle, instant) is in two of the files.
        """
        self.add(None)
        if not once:
            self._vault.run(
                "DELETE FROM fixes USING (SELECT vehicle_id, time_us, min(ingest_id) AS first FROM fixes "
                "WHERE ingest_id >= ? GROUP BY vehicle_id, time_us HAVING count(*) > 1) AS repeated "
                "WHERE fixes.ingest_id > repeated.first AND fixes.vehicle_id = repeated.vehicle_id "
                "AND fixes.time_us = repeated.time_us",
                [self.ingest_id],
            )
        self._vault.run(
            script("statements/remove_known_fixes"),
            {"ingest_id": self.ingest_id, "first_us": self._first_us, "last_us": self._last_us},
        )
        rows = self._vault.run(
            "SELECT ingest_id - ?, count(*) FROM fixes WHERE ingest_id >= ? GROUP BY ingest_id",
            [self.ingest_id, self.ingest_id],
        )
        return dict(rows)

    def note(self, file: FileDetails, added: int) -> None:
        """List the next file in the vault as one that brought ``added`` records, with a new data version."""
        name = new_token()
        self._history = _next_history(self._history, name, file.digest, file.declaration, added)
        self._vault.run(
            "INSERT INTO ingests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            [self._next_id, *astuple(file), name, self._history, datetime.now(UTC)],
        )
        self._next_id += 1


def ingested_files(vault: Vault) -> list[FileEntry]:
    """Return the files that were read and not undone, in order."""
    rows = vault.run(
        "SELECT ingest_id, file_name, source, report FROM ingests WHERE undone_at IS NULL ORDER BY ingest_id"
    )
    return [FileEntry(*row) for row in rows]


def declarations(vault: Vault, up_to_ingest: int) -> list[tuple[str, str]]:
    """Return the distinct (source, declaration as JSON) of the files up to a data version, by first use."""
    rows = vault.run(
        "SELECT source, declaration FROM ingests WHERE ingest_id <= ? AND undone_at IS NULL "
        "GROUP BY source, declaration ORDER BY min(ingest_id)",
        [up_to_ingest],
    )
    return [(str(source), str(declaration)) for source, declaration in rows]


def namespaces(vault: Vault) -> set[str]:
    """Return the namespaces that vehicle identifiers were ever read under, of undone files too."""
    rows = vault.run("SELECT DISTINCT coalesce(declaration ->> 'namespace', '') FROM ingests")
    return {str(namespace) for (namespace,) in rows}


@dataclass(frozen=True, slots=True)
class FixCounts:
    """Counts for the curator's eyes: fixes and vehicles in the vault, and fixes with a derived speed."""

    fixes: int
    vehicles: int
    derived: int


def count_fixes(vault: Vault, up_to_ingest: int) -> FixCounts:
    """Return the counts of fixes and vehicles in the files up to number ``up_to_ingest``. Private."""
    ((fixes, vehicles, derived),) = vault.run(
        "SELECT count(*), count(DISTINCT vehicle_id), count(*) FILTER (derived) "
        "FROM fixes WHERE ingest_id <= ?",
        [up_to_ingest],
    )
    if not fixes:
        ((fixes, vehicles),) = vault.run(
            "SELECT coalesce(sum(fixes), 0), count(DISTINCT vehicle_id) FROM imported WHERE ingest_id <= ?",
            [up_to_ingest],
        )
    return FixCounts(int(fixes), vehicles, derived)


def history_of(vault: Vault, ingest_id: int) -> tuple[str, str]:
    """Return (name, history) of the data version ``ingest_id``, computed from the records there are now.

    The history is a chain of SHA-256 over the files, their declarations and how many records each brought.
    Private: never publish it.
    """
    version, history = NO_DATA, NO_HISTORY
    for _, version, digest, declaration, added in vault.run(_FILES, [1, ingest_id]):
        history = _next_history(history, version, digest, declaration, added)
    return version, history


def stated_history(vault: Vault, ingest_id: int) -> str:
    """Return the history of the data version ``ingest_id`` as written when its last file was read.

    Equal to that of ``history_of`` unless the vault was altered. Private: never publish it.
    """
    found = vault.run("SELECT history FROM ingests WHERE ingest_id = ?", [ingest_id])
    return str(found[0][0]) if found else NO_HISTORY


def _next_history(previous: str, name: str, digest: str, declaration: str, added: int) -> str:
    facts = {"previous": previous, "name": name, "file": digest, "declaration": declaration, "added": added}
    return hashlib.sha256(canonical(facts).encode()).hexdigest()


def speed_provenance(vault: Vault, up_to_ingest: int) -> dict[str, str]:
    """Return by source whether its speeds are "reported", "derived" or "mixed".

    Of the files up to number ``up_to_ingest``.
    """
    rows = vault.run(
        "SELECT source, bool_or(any_derived), bool_and(all_derived) FROM ingests JOIN ("
        "SELECT ingest_id, bool_or(derived) AS any_derived, bool_and(derived) AS all_derived "
        "FROM fixes GROUP BY ingest_id UNION ALL SELECT ingest_id, "
        "CAST(report ->> 'derived' AS BIGINT) > 0, report ->> 'derived' = report ->> 'rows_kept' "
        "FROM ingests SEMI JOIN imports USING (ingest_id)"
        ") USING (ingest_id) WHERE ingest_id <= ? GROUP BY source",
        [up_to_ingest],
    )
    return {str(name): "derived" if every else "mixed" if some else "reported" for name, some, every in rows}


# Contributions that a cluster reduced, in the vault: what each job brought, and their sums.
#
# A store holds records or imported contributions, never both: repeats between the two could not be found.


def is_imported(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the vault holds imported contributions, and so no records."""
    return bool(connection.execute("FROM imports LIMIT 1").fetchall())


def needs_import(vault: Vault, key: str, job: str, after: tuple[str, ...]) -> bool:
    """Return whether the rows of the cluster job ``job`` are still to be imported; False if they are here.

    ``after`` are the jobs whose records this job left out, ``key`` is the ``cache_key`` of its grid and speed
    bound. Raises UsageError unless ``after`` are just the jobs of this key in the vault, and for a vault that
    holds records of files.
    """
    if vault.run("FROM imports WHERE job = ?", [job]):
        return False
    if number_of_files(vault) and not is_imported(vault.connection):
        raise UsageError("this store holds records of files", todo="import into a store of its own")
    here = [
        str(each)
        for (each,) in vault.run("SELECT job FROM imports WHERE cache_key = ? ORDER BY ingest_id", [key])
    ]
    if here != [*after]:
        raise UsageError(
            "these contributions do not follow those in the store: a record could count twice",
            got=f"a job after {len(after)} others",
            expected=f"one after the {len(here)} that are here",
            todo="import the folder of all jobs, or reduce the files again beside the jobs that are here",
        )
    return True


def add_import(
    vault: Vault, key: str, job: str | None, file: FileDetails, batches: Iterable[pa.RecordBatch]
) -> int:
    """Add the rows of a cluster's job to the vault (inside the caller's transaction).

    Returns how many records they count. ``job`` is its name, None where it is here already and brings
    nothing; ``key`` is the cache key of its grid and bound. ``batches`` hold vehicle (pseudonym), slot, cell
    (signed), fixes, total and total_of_squares.
    """
    import pyarrow as pa

    incoming, added = Incoming(vault), 0
    for batch in batches:
        vehicle = number_vehicles(vault, batch.column("vehicle").cast(pa.binary(32)).dictionary_encode())
        table = pa.Table.from_batches([batch.set_column(0, "vehicle_id", pa.array(vehicle))])
        added += int(pa.compute.sum(batch.column("fixes")).as_py() or 0)
        with registered(vault.connection, "incoming_contributions", table):
            facts = {"cache_key": key, "ingest_id": incoming.ingest_id}
            vault.run(script("statements/add_imported"), facts)
    if job is not None:
        vault.run("INSERT INTO imports VALUES (?, ?, ?)", [incoming.ingest_id, job, key])
    incoming.note(file, added)
    return added


def require_newest_job(vault: Vault, ingest_id: int) -> None:
    """Raise UsageError where the vault has a later job of the same grid and bound than file ``ingest_id``.

    A later job left out the records that this one counted, so this one cannot be undone first.
    """
    later = vault.number(
        "SELECT count(*) FROM imports SEMI JOIN imports AS own ON own.ingest_id = ? "
        "AND own.cache_key = imports.cache_key WHERE imports.ingest_id > ?",
        [ingest_id, ingest_id],
    )
    if later:
        raise UsageError(
            "a later job left out the records that this one counted",
            got=f"{later} later jobs" if later > 1 else "a later job",
            todo="undo these first, the newest before all others",
        )


def imported_rows(connection: duckdb.DuckDBPyConnection, key: str, up_to_ingest: int) -> pa.Table:
    """Return the sums of all imported jobs for the cache key ``key``, a row a (cell, slot, vehicle).

    Sorted in this order; of the files up to ``up_to_ingest``. Private. A sum that leaves 64 bits is 2^63 - 1.
    Raises as ``require_reduced``.
    """
    require_reduced(connection, key, up_to_ingest)
    facts = {"cache_key": key, "up_to_ingest": up_to_ingest}
    return connection.sql(script("statements/imported_rows"), params=facts).to_arrow_table()


def require_reduced(connection: duckdb.DuckDBPyConnection, key: str, up_to_ingest: int) -> None:
    """Raise UsageError unless a job up to file ``up_to_ingest`` reduced records for the cache key ``key``."""
    job = "FROM imports WHERE cache_key = ? AND ingest_id <= ? LIMIT 1"
    if not connection.execute(job, [key, up_to_ingest]).fetchall():
        raise UsageError(
            "the cluster has not reduced records for this map",
            expected="the resolution, slot, period, area, selection, speed bound and step of an import",
            todo="run the job with this configuration, and import what it writes",
        )


# Reduced contributions, kept in the vault: those of older data are brought up to date by what came later.


MOST_CACHED = 8
"""Reductions kept; the cache is emptied when one more would come."""
_AT_ONCE = 1 << 18
"""Numbers of a piece."""


@dataclass(frozen=True, repr=False)
class CachedContributions:
    """What vehicles contribute by the files 1 to ``up_to_ingest``."""

    contributions: Contributions
    up_to_ingest: int


def cache_key(grid: Grid, bound: ContributionBound) -> str:
    """Return SHA-256 over grid, speed bound, unit and step."""
    facts = {"grid": grid.key, "upper": str(bound.upper), "step": str(bound.step), "unit": bound.unit.value}
    return hashlib.sha256(canonical(facts).encode()).hexdigest()


_COUNTS = {"cell": np.uint64, "slot": np.int64, "pairs": np.int64, "vehicle_id": None, "fixes": np.int64}
_SUMS = {"total": np.int64, "total_of_squares": np.int64}
"""Parts of the cache, and of which type they are when loaded; None: as they were kept."""


def load_contributions(
    vault: Vault,
    grid: Grid,
    bound: ContributionBound,
    up_to_ingest: int,
    known: CachedContributions | None = None,
    *,
    sums: bool = True,
) -> CachedContributions | None:
    """Return the newest cached sums for ``grid`` and ``bound``, of the files up to some number; None if none.

    That number is at most ``up_to_ingest``; a damaged cache is ignored. Private, but without ``sums`` all are
    0. ``known`` was loaded of the same before: its counts are taken over.
    """
    kinds = {**({} if known else _COUNTS), **(_SUMS if sums else {})}
    asked = "SELECT ingest_id, part, number, type, piece FROM contributions WHERE cache_key = ? AND part IN ?"
    rows = vault.query(asked, [cache_key(grid, bound), list(kinds)])
    if not len(rows) or (newest := rows["ingest_id"][0].as_py()) > up_to_ingest:
        return None
    try:
        # pieces stay where DuckDB put them: there are many bytes
        facts = zip(rows.drop_columns("piece").to_pylist(), rows["piece"], strict=True)
        pieces = {(at["part"], at["number"]): np.frombuffer(it.as_buffer(), at["type"]) for at, it in facts}
        del rows, facts

        def whole(part: str) -> npt.NDArray[Any]:
            own = sorted(at for at in pieces if at[0] == part)
            return np.concatenate([pieces.pop(at) for at in own], dtype=kinds[part])

        found = known.contributions if known and known.up_to_ingest == newest else _counts_of(whole, bound)
        if found is not None and sums:
            found = replace(found, total=whole("total"), total_of_squares=whole("total_of_squares"))
    except (ValueError, TypeError, LookupError):
        return None
    if found is None or not len(found.total) == len(found.total_of_squares) == found.counts.pairs:
        return None
    return CachedContributions(found, newest)


def _counts_of(whole: Callable[[str], npt.NDArray[Any]], bound: ContributionBound) -> Contributions | None:
    """The counts that were kept, with sums of 0; None where they are damaged."""
    cell, slot, pairs, vehicle, fixes = map(whole, _COUNTS)
    fits = len(cell) == len(slot) == len(pairs) and len(vehicle) == len(fixes) == pairs.sum()
    if not fits or pairs.min() < 1:
        return None
    bins_rise = (cell[1:] > cell[:-1]) | (cell[1:] == cell[:-1]) & (slot[1:] > slot[:-1])
    rises = vehicle[1:] > vehicle[:-1]
    # from the last vehicle of a bin to the first of the next
    rises[np.cumsum(pairs[:-1]) - 1] = bins_rise
    if not rises.all():
        return None
    vehicles, user = unique_by_counting(vehicle)
    counts = Counts(cell, slot, pairs, user, fixes, len(vehicles))
    return Contributions(counts, fixes, fixes, vehicles, bound).zeroed()


def save_contributions(
    vault: Vault, grid: Grid, bound: ContributionBound, up_to_ingest: int, contributions: Contributions
) -> None:
    """Cache ``contributions`` in place of older ones (inside the caller's transaction)."""
    key = cache_key(grid, bound)
    vault.run("DELETE FROM contributions WHERE cache_key = ?", [key])
    kept = vault.number("SELECT count(DISTINCT cache_key) FROM contributions")
    if kept >= MOST_CACHED:
        vault.run("DELETE FROM contributions")
    counts = contributions.counts
    parts = {
        "cell": counts.cell,
        "slot": counts.slot,
        "pairs": counts.users_per_bin,
        "vehicle_id": contributions.vehicle[counts.user_index],
        "fixes": counts.count,
        "total": contributions.total,
        "total_of_squares": contributions.total_of_squares,
    }
    for part, column in parts.items():
        for place, start in enumerate(range(0, len(column), _AT_ONCE), start=1):
            piece = column[start : start + _AT_ONCE]
            piece = piece.astype(np.promote_types(*map(np.min_scalar_type, (piece.min(), piece.max()))))
            vault.run(
                "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?)",
                [key, up_to_ingest, part, place, piece.dtype.str, piece.tobytes()],
            )
