"""What DuckDB and the disk say, in our words and exit codes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

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
_OTHER_VERSION = ("with version number", "storage version")


@contextmanager
def store_failures(what: str) -> Iterator[None]:
    """Turn failures of DuckDB and the operating system into StoreUnavailableErrors about ``what``.

    The text of DuckDB's message is matched, never shown: it may quote values.
    """
    try:
        yield
    except TrafficdpError:
        raise
    except OSError as error:
        raise from_os_error(error, what) from error
    except duckdb.Error as error:
        raise _from_duckdb(error, what) from error


def from_os_error(error: OSError, what: str) -> StoreUnavailableError:
    """Return the error that says what the operating system refused."""
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return StoreFullError(f"{what} failed: the disk is full", todo="free some space and run it again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnlyError(
            f"{what} failed: no permission to write",
            got=error.filename,
            todo="make it writable, or run as the user who may write there",
        )
    return StoreUnavailableError(f"{what} failed", got=error.strerror or type(error).__name__)


def _from_duckdb(error: duckdb.Error, what: str) -> StoreUnavailableError:
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
            f"{what} failed: the database cannot be read",
            todo="restore the newest complete backup of the store",
        )
    return StoreUnavailableError(f"{what} failed", got=type(error).__name__)
