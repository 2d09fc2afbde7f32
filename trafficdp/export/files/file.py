"""A file that is there whole or not at all, and the errors of disks in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trafficdp._durable import FULL, READ_ONLY, WRONG_PATH, from_os_error, write_whole
from trafficdp.errors import StoreFullError, StoreReadOnlyError, UsageError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while writing ``path`` into the error of ours that carries its exit code.

    Raises StoreFullError (no space, quota, file size limit), StoreReadOnlyError (read-only or not
    permitted), UsageError (no such folder, not a file) or StoreUnavailableError (anything else).
    """
    try:
        yield
    except OSError as error:
        name = path.name
        if error.errno in FULL:
            raise StoreFullError(
                f"cannot write {name}: no space left", todo="free some space and try again"
            ) from error
        if error.errno in READ_ONLY:
            raise StoreReadOnlyError(
                f"cannot write {name}: its folder is read-only", todo="choose a folder that can be written to"
            ) from error
        if error.errno in WRONG_PATH:
            raise UsageError(
                f"cannot write {name}",
                got=f"a path that does not exist or is not a folder: {path.parent}",
                expected="a file name in an existing folder",
            ) from error
        raise from_os_error(error, f"writing {name}") from error


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``: a hidden sibling is written, synced and renamed over the target.

    After an error or a crash the target is what it was before. Raises what ``disk_errors`` raises, and
    UsageError when the folder is missing or the target is not a plain file.
    """
    if path.exists() and not path.is_file():
        raise UsageError(
            f"cannot write {path.name}", got="something that is not a file", expected="a file name"
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with disk_errors(path):
        write_whole(path, partial, content, 0o666)


def require_folder_of(path: Path) -> None:
    """Raise UsageError, before anything is computed, when the folder of ``path`` is missing."""
    if not path.parent.is_dir():
        raise UsageError(
            f"cannot write {path.name}",
            got=f"a folder that does not exist: {path.parent}",
            expected="a file name in an existing folder",
            todo="make the folder first",
        )
