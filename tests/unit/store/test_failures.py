"""What DuckDB and the disk say, in our words, and never their own text."""

import errno

import duckdb
import pytest

from trafficdp.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    UsageError,
)
from trafficdp.store.store_files import store_failures

SAID = [
    (OSError(errno.ENOSPC, "x"), StoreFullError),
    (OSError(errno.EFBIG, "x"), StoreFullError),
    (OSError(errno.EDQUOT, "x"), StoreFullError),
    (OSError(errno.EROFS, "x"), StoreReadOnlyError),
    (OSError(errno.EACCES, "x"), StoreReadOnlyError),
    (OSError(errno.EPERM, "x"), StoreReadOnlyError),
    (OSError(errno.EIO, "Input/output error"), StoreUnavailableError),
    (duckdb.IOException('IO Error: Could not set lock on file "/v": Conflicting lock'), StoreBusyError),
    (duckdb.IOException('IO Error: Could not write file "/v": No space left on device'), StoreFullError),
    (
        duckdb.TransactionException("Failed to commit: Could not write all bytes: File too large"),
        StoreFullError,
    ),
    (duckdb.IOException('IO Error: Cannot open file "/v": Permission denied'), StoreReadOnlyError),
    (
        duckdb.IOException("IO Error: a database file with version number 99"),
        StoreVersionError,
    ),
    (duckdb.IOException("IO Error: not a valid DuckDB database file"), StoreDamagedError),
    (duckdb.Error("Corrupt database file: computed checksum 1"), StoreDamagedError),
    (duckdb.FatalException("FATAL Error: database has been invalidated"), StoreDamagedError),
    (duckdb.InternalException("INTERNAL Error: assertion"), StoreDamagedError),
    (duckdb.ConstraintException("Duplicate key GJ05BX3983"), StoreUnavailableError),
]


@pytest.mark.parametrize(("error", "ours"), SAID, ids=range(len(SAID)))
def test_every_failure_has_its_class_and_exit_6(error, ours):
    with pytest.raises(StoreUnavailableError) as caught, store_failures("trying"):
        raise error
    assert type(caught.value) is ours
    assert caught.value.exit_code == 6
    assert caught.value.__cause__ is error
    assert str(caught.value).startswith("trying failed")
    assert "GJ05BX3983" not in str(caught.value)


def test_errors_of_ours_pass_unchanged():
    ours = UsageError("as it was")
    with pytest.raises(UsageError) as caught, store_failures("trying"):
        raise ours
    assert caught.value is ours


def test_a_missing_permission_names_the_file():
    with pytest.raises(StoreReadOnlyError, match=r"got /city\.store/\.lock;.*make it writable"):
        with store_failures("locking the store"):
            raise OSError(errno.EACCES, "Permission denied", "/city.store/.lock")
