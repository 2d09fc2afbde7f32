"""What DuckDB and the disk say, in our words and exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from trafficdp._durable import from_os_error
from trafficdp.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    TrafficdpError,
)

_FULL = ("no space left", "file too large", "disk full", "could not write", "failed to write", "out of disk")
_READ_ONLY = ("read-only", "permission denied", "not permitted")
_BUSY = ("could not set lock", "conflicting lock")
_DAMAGED = ("corrupt", "checksum")
_UNREADABLE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.FatalException,
    duckdb.InternalException,
)
DOCTOR = "`trafficdp doctor` says what is whole"
_OTHER_VERSION = ("with version number", "storage version")


@contextmanager
def store_failures(what: str, database: str = "vault.duckdb") -> Iterator[None]:
    """Turn failures of DuckDB and the operating system into StoreUnavailableErrors about ``what``.

    ``database`` is the name of the file that DuckDB had open. The text of DuckDB's message is matched,
    never shown: it may quote values.
    """
    try:
        yield
    except TrafficdpError:
        raise
    except OSError as error:
        raise from_os_error(error, what) from error
    except duckdb.Error as error:
        raise from_duckdb(error, what, database) from error


def from_duckdb(error: duckdb.Error, what: str, database: str) -> StoreUnavailableError:
    """Return the error that says what DuckDB could not do with the file ``database``."""
    text = str(error).lower()
    if any(part in text for part in _BUSY):
        return StoreBusyError(
            f"{what} failed: another program has the database open", todo="close it and try again"
        )
    if any(part in text for part in _FULL):
        return StoreFullError(f"{what} failed: the disk is full", todo="free some space and run it again")
    if any(part in text for part in _READ_ONLY):
        return StoreReadOnlyError(f"{what} failed: no permission to write", todo="make the store writable")
    if any(part in text for part in _OTHER_VERSION):
        return StoreVersionError(
            f"{what} failed: the database was written by another version of DuckDB",
            todo="use the version of trafficdp that made it",
        )
    if isinstance(error, _UNREADABLE) or any(part in text for part in _DAMAGED):
        return StoreDamagedError(
            f"{what} failed: {database} cannot be read",
            todo=f"restore the newest complete backup of the store; {DOCTOR}",
        )
    return StoreUnavailableError(
        f"{what} failed: {database} cannot be used", got=type(error).__name__, todo=DOCTOR
    )
