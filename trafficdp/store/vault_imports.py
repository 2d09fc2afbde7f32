"""Contributions that a cluster reduced, in the vault: what each job brought, and their sums.

A store holds records or imported contributions, never both: repeats between the two could not be found.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from trafficdp.errors import UsageError
from trafficdp.store import vault_fixes
from trafficdp.store.statements import first, number, registered, run, script
from trafficdp.store.vault import Vault


def is_imported(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the vault holds imported contributions, and so no records."""
    return number(connection, "SELECT count(*) FROM imports") > 0


def require_records(vault: Vault) -> None:
    """Raise UsageError where files cannot come in because contributions did."""
    if is_imported(vault.connection):
        raise UsageError(
            "this store holds contributions from a cluster, so it cannot find repeats in files",
            todo="reduce the files on the cluster too, or begin another store",
        )


def missing_jobs(vault: Vault, key: str, job: str, after: tuple[str, ...]) -> bool:
    """Return False where ``job`` is here already; raise UsageError unless it follows what is here.

    ``after`` are the jobs that it took account of, ``key`` the cache key of its grid and bound.
    """
    if first(vault.connection, "SELECT 1 FROM imports WHERE job = ?", [job]) is not None:
        return False
    if vault_fixes.number_of_files(vault) and not is_imported(vault.connection):
        raise UsageError("this store holds records of files", todo="import into a store of its own")
    here = [
        str(each)
        for (each,) in run(
            vault.connection, "SELECT job FROM imports WHERE cache_key = ? ORDER BY ingest_id", [key]
        )
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
    vault: Vault, key: str, job: str | None, file: vault_fixes.FileFacts, batches: Iterable[pa.RecordBatch]
) -> int:
    """Take the rows of a job (inside the caller's transaction); return how many records they count.

    ``job``: its name, None where it is here already and brings nothing. ``batches`` hold vehicle (pseudonym),
    slot, cell (signed), fixes, total and total_of_squares.
    """
    incoming, added = vault_fixes.Incoming(vault), 0
    for batch in batches:
        vehicle = vault_fixes.number_vehicles(
            vault, batch.column("vehicle").cast(pa.binary(32)).dictionary_encode()
        )
        numbered = pa.table({"vehicle_id": vehicle} | {n: batch.column(n) for n in batch.schema.names[1:]})
        added += int(pa.compute.sum(batch.column("fixes")).as_py() or 0)
        with registered(vault.connection, "incoming_contributions", numbered):
            facts = {"cache_key": key, "ingest_id": incoming.ingest_id}
            run(vault.connection, script("statements/add_imported"), facts)
    if job is not None:
        run(vault.connection, "INSERT INTO imports VALUES (?, ?, ?)", [incoming.ingest_id, job, key])
    incoming.note(file, added)
    return added


def require_newest_job(vault: Vault, ingest_id: int) -> None:
    """Raise UsageError where a later job left out what the one of ``ingest_id`` counted."""
    later = number(
        vault.connection,
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
    """Return what the jobs up to a data version add up to, one row a (cell, slot, vehicle), in this order.

    A sum that leaves 64 bits is 2^63 - 1. Raises as ``require_reduced``.
    """
    require_reduced(connection, key, up_to_ingest)
    facts = {"cache_key": key, "up_to_ingest": up_to_ingest}
    return connection.sql(script("statements/imported_rows"), params=facts).to_arrow_table()


def require_reduced(connection: duckdb.DuckDBPyConnection, key: str, up_to_ingest: int) -> None:
    """Raise UsageError where no job up to a data version reduced records for ``key``."""
    jobs = number(
        connection,
        "SELECT count(*) FROM imports WHERE cache_key = ? AND ingest_id <= ?",
        [key, up_to_ingest],
    )
    if not jobs:
        raise UsageError(
            "the cluster has not reduced records for this map",
            expected="the resolution, slot, period, area, selection, speed bound and step of an import",
            todo="run the job with this configuration, and import what it writes",
        )
