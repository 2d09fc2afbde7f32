"""`vault.duckdb`: opening, making, checking it, and looking into it without a trace."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from trafficdp import errors
from trafficdp._durable import owner_only, require_regular, sync_folder
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.store import store_files

if TYPE_CHECKING:
    import pyarrow as pa

# What it holds: sql/tables/vault.sql.


VAULT_NAME = "vault.duckdb"
SCHEMA_VERSION = "10"
MEMORY_LIMIT = "800MB"
"""What DuckDB may hold of the vault; it fills that up. Rows beyond it spill beside the vault."""
_UNFINISHED = f".{VAULT_NAME}.*.new"
_SPILL_NAME = f"{VAULT_NAME}.tmp"
_OF_OTHERS = " WHERE vehicle_id NOT IN (SELECT vehicle_id FROM forgotten_vehicles)"
_CHARGED = " OR vehicle_id IN (SELECT vehicle_id FROM whole.vehicle_charges)"
_KEPT = {
    **dict.fromkeys(("fixes", "imported", "stream_counts"), _OF_OTHERS),
    # many vehicles lie in one row; what is left is reduced again
    "contributions": " WHERE FALSE",
    # whose account holds charges keeps its pseudonym, so that it can never begin another account
    "vehicles": _OF_OTHERS + _CHARGED,
    # exact sums that nobody can be taken out of; streams that are over need them no more
    "stream_state": " WHERE release_id NOT IN (SELECT release_id FROM whole.streams WHERE ended)",
}
"""What a vault keeps of its tables when vehicles are forgotten; of all others everything."""
_LATER_TABLES = {"streams": "stream", "release_index": "release_index", "spending": "spending"}
"""Tables that a vault may have or not, and the scripts that make them and those beside them."""


Parameters = Sequence[object] | Mapping[str, object]


class Vault:
    """An open vault. Use it under ``store_lock`` and as a context manager.

    ``connection`` is DuckDB's, for ``engine`` and the vault's own modules only. ``store_id`` tells the store
    from all others. Raises StoreVersionError when another version of trafficdp made it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        self.connection = connection
        self.path = path
        self.spill_folder = path.with_name(_SPILL_NAME)
        """Where rows may lie that memory does not hold, for the owner only: empty at start and at end."""
        self.promises: list[LedgerRow] | None = None
        """The entries of the ledger that promise, once read: ``vault_ledger`` forgets them when it writes."""
        self.sums_are_kept = False
        """Whether the sums of the accounts were found to count every charge."""
        self._tables: set[str] | None = None
        """The tables that are there, once one was looked for."""
        try:
            # nobody else writes while it is open
            self.facts = {str(name): str(value) for name, value in self.run("SELECT key, value FROM meta")}
            """What the store says of itself; an undone transaction takes back what it wrote."""
        except duckdb.CatalogException:
            self.facts = {}
        version = self.facts.get("schema_version")
        if version != SCHEMA_VERSION:
            raise errors.StoreVersionError(
                "the store was made by another version of trafficdp",
                got=f"schema version {version or 'none'}",
                expected=f"schema version {SCHEMA_VERSION}",
                todo="use the version that made it, or ingest the files into a new store",
            )
        if "store_id" not in self.facts:
            raise store_files.damaged_store("the store has lost its name")
        self.store_id = self.facts["store_id"]

    @classmethod
    def create(
        cls, folder: Path, *, key_fingerprint: str, store_id: str, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Create an empty vault in ``folder``; raise UsageError when there is one already.

        ``store_id`` is the store's random name. ``ready`` is called when all is written but not renamed yet:
        a process that dies before leaves an ``unfinished`` vault. Use it under ``store_lock`` when others may
        be making the same store.
        """
        path = database_in(folder)
        if path.exists():
            raise errors.UsageError(
                "there is a store here already",
                got=str(folder),
                todo="use it, or name another folder with --store",
            )
        half_made = folder / _UNFINISHED.replace("*", store_id)
        with store_files.store_failures("making the store"):
            using = store_files.attached(half_made, "vault", "READ_WRITE", memory_limit=MEMORY_LIMIT)
            with owner_only(), using as connection:
                connection.begin()
                connection.execute(store_files.script("tables/vault"))
                facts = {
                    "schema_version": SCHEMA_VERSION,
                    "key_fingerprint": key_fingerprint,
                    "store_id": store_id,
                }
                for fact in facts.items():
                    connection.execute("INSERT INTO meta VALUES (?, ?)", fact)
                connection.commit()
                connection.execute("CHECKPOINT")
            half_made.chmod(0o600)
            ready()
            os.replace(half_made, path)
            sync_folder(folder)

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Vault]:
        """Context manager: open the vault of ``folder`` for reading and writing.

        Raises StoreUnavailableError when there is none, StoreVersionError when another version of trafficdp
        made it, and the errors of ``store_failures`` when it cannot be opened.
        """
        path = database_in(folder, must_exist=True)
        spill = path.with_name(_SPILL_NAME)
        with ExitStack() as closing:
            with store_files.store_failures("opening the vault"):
                if not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
                    raise PermissionError(13, "Permission denied")
                for file in (path, path.with_name(path.name + ".wal")):
                    require_regular(file)
                _cleared_copy(path)
                # what does not fit in memory spills into this folder: vehicles' rows, for the owner only
                shutil.rmtree(spill, ignore_errors=True)
                with suppress(OSError):
                    spill.mkdir(mode=0o700)
                closing.callback(shutil.rmtree, spill, ignore_errors=True)
                using = store_files.attached(
                    path, "vault", "READ_WRITE", str(spill), memory_limit=MEMORY_LIMIT
                )
                with owner_only():
                    connection = closing.enter_context(using)
            with store_files.store_failures("reading the vault"):
                vault = cls(connection, path)
            try:
                yield vault
            except duckdb.Error as error:
                raise store_files.from_duckdb(error, "reading the vault", VAULT_NAME) from error
            with store_files.store_failures("closing the vault"):
                closing.close()

    def run(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Execute SQL (one statement or several) and return all rows of the last."""
        return self.connection.execute(sql, parameters).fetchall()

    def number(self, sql: str, parameters: Parameters = ()) -> int:
        """Return the one whole number that the SQL query ``sql`` returns."""
        ((value,),) = self.run(sql, parameters)
        return int(value)

    def query(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Return the rows of the SQL query ``sql`` as an Arrow table."""
        return self.connection.sql(sql, params=parameters).to_arrow_table()

    def free_memory(self) -> None:
        """Make DuckDB and this process give back memory that they hold and do not use."""
        self.run(f"SET memory_limit = '{MEMORY_LIMIT}'")
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None:
            trim(0)

    def has_table(self, name: str) -> bool:
        """Return whether the vault has the table ``name``; only some vaults have the later tables."""
        if self._tables is None:
            self._tables = {*tables(self.connection)}
        return name in self._tables

    def make_tables(self, name: str) -> None:
        """Make the tables of the script ``name`` unless they exist (inside the caller's transaction)."""
        self.run(store_files.script(f"tables/{name}"))
        self._tables = None

    def check_key(self, fingerprint: str) -> None:
        """Raise StoreKeyError unless ``fingerprint`` is that of the key that the store was made with."""
        own = self.facts.get("key_fingerprint", "")
        if own != fingerprint:
            raise errors.StoreKeyError(
                "this is not the key of this store",
                got=f"a key with fingerprint {fingerprint[:12]}",
                expected=f"the key with fingerprint {own[:12]}",
                todo="point key_file to the key that `trafficdp init` made for this store",
            )

    @contextmanager
    def transaction(self, what: str) -> Iterator[None]:
        """Context manager: run the block in one transaction, which is committed whole or rolled back.

        ``what`` says in errors what was being done.
        """
        facts = {**self.facts}
        with store_files.store_failures(what):
            self.connection.begin()
            try:
                yield
                with owner_only():
                    self.connection.commit()
            except BaseException:
                self.facts, self.promises, self.sums_are_kept, self._tables = facts, None, False, None
                # the failed statement or commit may have ended the transaction already
                with suppress(duckdb.Error):
                    self.connection.rollback()
                raise


@contextmanager
def rewrite_without_vehicles(
    folder: Path, vehicles: Sequence[int], ready: Callable[[], None]
) -> Iterator[Vault]:
    """Context manager: replace the vault of ``folder`` by a copy without the records of ``vehicles``.

    ``vehicles`` are their numbers in the vault, which may be none. A vehicle that was charged keeps its
    number, pseudonym and charges; of others nothing stays. The block gets the copy and may change it. Then it
    is audited, ``ready`` is called, and one rename makes it the vault: a process that dies before has changed
    nothing. The records are never written to the copy, and the file that held them is gone. Call it under
    ``store_lock``, with the vault closed. Takes as much disk again as the vault has.
    """
    path = database_in(folder)
    with store_files.store_failures("rewriting the vault"):
        if path.with_name(path.name + ".wal").exists():
            raise errors.StoreDamagedError("the vault's log is not empty", todo="close what else has it open")
        copy = _cleared_copy(path)
        with owner_only():
            connection = store_files.connect(str(copy), memory_limit=MEMORY_LIMIT)
        try:
            _copy_without(connection, path, vehicles)
            vault = Vault(connection, copy)
            yield vault
            audit(vault)
            connection.execute("CHECKPOINT")
        finally:
            connection.close()
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        ready()
        os.replace(copy, path)
        sync_folder(folder)


def _copy_without(connection: duckdb.DuckDBPyConnection, path: Path, without: Sequence[int]) -> None:
    connection.execute(f"ATTACH {store_files.quoted(str(path))} AS whole (READ_ONLY)")
    there = tables(connection, "whole")
    connection.execute(store_files.script("tables/vault"))
    for table, made in _LATER_TABLES.items():
        if table in there:
            connection.execute(store_files.script(f"tables/{made}"))
    import pyarrow as pa

    numbers = pa.table({"vehicle_id": pa.array(without, pa.int32())})
    with store_files.registered(connection, "forgotten_vehicles", numbers):
        for table in there:
            connection.execute(f"INSERT INTO {table} FROM whole.{table}{_KEPT.get(table, '')}")
    connection.execute("DETACH whole")


def _cleared_copy(path: Path) -> Path:
    """Return where the copy lies that a rewriting makes; one that died has left nothing there any more."""
    copy = path.with_name(f".{path.name}.rewritten")
    shutil.rmtree(copy.with_name(copy.name + ".tmp"), ignore_errors=True)
    for file in (copy, copy.with_name(copy.name + ".wal")):
        file.unlink(missing_ok=True)
    return copy


def unfinished(folder: Path) -> list[str]:
    """Return the store ids of vaults in ``folder`` whose creation was interrupted, sorted."""
    before, after = _UNFINISHED.split("*")
    return sorted(path.name[len(before) : -len(after)] for path in folder.glob(_UNFINISHED))


def remove_unfinished(folder: Path, store_id: str) -> None:
    """Remove the vault of the store ``store_id`` whose creation was interrupted."""
    half_made = folder / _UNFINISHED.replace("*", store_id)
    with store_files.store_failures("removing what an interrupted command left"):
        # its own name last: as long as it is there, it is known that something is left
        half_made.with_name(half_made.name + ".wal").unlink(missing_ok=True)
        half_made.unlink(missing_ok=True)


def database_in(folder: Path, *, must_exist: bool = False) -> Path:
    """Return the absolute path of the vault's DuckDB file in the store ``folder``.

    Absolute, as DuckDB takes names like "md:city" for services. Raises UsageError for a path with a question
    mark or a backslash, which DuckDB would misread, and, with ``must_exist``, StoreUnavailableError where
    there is no such file.
    """
    path = (folder / VAULT_NAME).absolute()
    for letter, name in (("?", "question mark"), ("\\", "backslash")):
        if letter in str(path):
            raise errors.UsageError(
                f"a store cannot lie under a name with a {name}", got=str(folder), todo="rename the folder"
            )
    if must_exist:
        with store_files.store_failures("looking for the store"):
            if not path.exists():
                raise errors.StoreUnavailableError(
                    "there is no store here", got=str(folder), todo="run `trafficdp init` or pass --store"
                )
    return path


def problems(vault: Vault, after_ingest: int | None = None) -> list[tuple[str, int]]:
    """Return (problem, number of rows) for every bad row that the checks in sql/audits/vault.sql find.

    None are found in a sound vault. With ``after_ingest`` only records of files after that number are
    checked, and for repeats of earlier files' only: within a file cleaning finds them.
    """
    ranged = "SELECT coalesce(min(time_us), 0), coalesce(max(time_us), -1) FROM fixes WHERE ingest_id > ?"
    ((first_us, last_us),) = vault.run(ranged, [after_ingest or 0])
    if after_ingest is not None:
        earlier = ranged.replace("> ?", "<= ?") + " AND time_us BETWEEN ? AND ?"
        ((first_us, last_us),) = vault.run(earlier, [after_ingest, first_us, last_us])
    parameters = {"after_ingest": after_ingest or 0, "first_us": first_us, "last_us": last_us}
    found = vault.run(store_files.script("audits/vault"), parameters)
    return [(str(what), int(rows)) for what, rows in found]


def audit(vault: Vault, after_ingest: int | None = None) -> None:
    """Raise StoreDamagedError when ``problems`` finds any; inside a transaction, that undoes it."""
    found = problems(vault, after_ingest)
    if found:
        raise store_files.damaged_store(
            "the vault fails its audits", got="; ".join(f"{what} ({rows})" for what, rows in found)
        )


# Looking into a DuckDB file without a trace: it is read to its end, and no byte of the store changes.


@contextmanager
def open_for_reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Context manager: open the DuckDB file at ``path`` read-only; nothing is written, also not to spill.

    Raises StoreDamagedError for a missing file, and as ``store_failures`` where it cannot be opened.
    """
    with store_files.store_failures("opening it", path.name):
        if not path.exists():
            raise errors.StoreDamagedError(f"{path.name} is missing")
        for file in (path, path.with_name(path.name + ".wal")):
            require_regular(file)
        connection = store_files.connect(str(path), access_mode="READ_ONLY", temp_directory="")
    try:
        yield connection
    finally:
        # nothing was written that could be lost
        with suppress(duckdb.Error):
            connection.close()


@contextmanager
def open_vault_for_reading(folder: Path) -> Iterator[Vault]:
    """Context manager: open the vault of ``folder`` read-only; raises as ``Vault.open``, writes nothing."""
    path = database_in(folder)
    with open_for_reading(path) as connection:
        with store_files.store_failures("reading it"):
            vault = Vault(connection, path)
        yield vault


def tables(connection: duckdb.DuckDBPyConnection, database: str | None = None) -> list[str]:
    """Return the names of all tables of the ``database`` (None: the one in use), sorted."""
    asked = "SELECT table_name FROM duckdb_tables() WHERE database_name = coalesce(?, current_database())"
    return sorted(name for (name,) in connection.execute(asked, [database]).fetchall())


def read_all_values(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Read every value of every row of ``table``, so that DuckDB checks the checksums of its blocks."""
    whole = connection.table(table).aggregate("bit_xor(hash(COLUMNS(*)))")
    whole.fetchall()
