"""Files and folders that survive a power cut, and that only their owner reads."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trafficdp import errors

# Files that last, and files that are files.
#
# A pipe, device, socket or folder in the place of a file is refused, never waited for.


FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
DEFAULT_WAIT = 60.0
"""Seconds to wait for another process that has the store."""
WRONG_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
MACHINE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}
"""What is said of a disk, of a right, of a name, and of the machine: then no file is to blame."""


def sync_folder(folder: Path) -> None:
    """Write the directory entries of ``folder`` to disk (fsync), so that new names survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open the regular file at ``path`` and return its descriptor, as `os.open` does.

    ``mode`` is the permission of a new file. The type is checked on the opened file, so that no exchange of
    the name can mislead. Raises OSError, with "not a plain file" as its text, for anything else.
    """
    try:
        # without waiting: a pipe is opened once somebody writes into it, which may be never
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise _not_plain(path) from error
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _not_plain(path)


def read_regular(path: Path, at_most: int = -1) -> bytes:
    """Return the bytes of the file at ``path``, or the first ``at_most``; raise as ``open_regular``."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(at_most)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the bytes of the file at ``path``, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_regular(path: Path) -> None:
    """Raise as ``open_regular`` unless ``path`` is a regular file, also by a link, or there is nothing."""
    try:
        os.close(open_regular(path))
    except FileNotFoundError:
        return


def write_whole(path: Path, half_made: Path, content: bytes, mode: int = 0o600) -> None:
    """Write ``content`` to ``path`` in one move that survives a power cut, by way of the file ``half_made``.

    After an error ``path`` is as it was before. ``mode`` is the permission of the new file. Raises OSError.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(open_regular(half_made, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half_made, path)
    except BaseException:
        with suppress(OSError):
            half_made.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _not_plain(path: Path) -> OSError:
    return OSError(errno.EINVAL, "not a plain file", str(path))


def from_os_error(error: OSError, what: str) -> errors.StoreUnavailableError:
    """Return the trafficdp error for an OSError: full disk, no permission, or unavailable.

    ``what`` names the operation that failed.
    """
    if error.errno in FULL:
        return errors.StoreFullError(
            f"{what} failed: the disk is full", todo="free some space and run it again"
        )
    if error.errno in READ_ONLY:
        return errors.StoreReadOnlyError(
            f"{what} failed: no permission to write",
            got=error.filename,
            todo="make it writable, or run as the user who may write there",
        )
    said = error.strerror or type(error).__name__
    return errors.StoreUnavailableError(
        f"{what} failed",
        got=said if error.filename is None else f"{error.filename} ({said})",
        todo="see whether the disk is sound, then run it again"
        if error.errno not in MACHINE - {errno.EIO}
        else "let it have more (ulimit -n: files; memory), or end what else runs, and run it again",
    )


@contextmanager
def unpacking(file: str, part: str) -> Iterator[None]:
    """Context manager: raise ConfigError if the block cannot unpack ``part`` of the zip archive ``file``.

    Both are names for the message.
    """
    try:
        yield
    except (
        *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError),
        UnicodeDecodeError,
    ) as error:
        # a place before the beginning of the file, and no fault of the disk
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise errors.ConfigError(
            f"{file} is damaged", got=f"{part} that does not unpack", todo="get it anew, as a plain .zip"
        ) from error


# What folders of the store need besides their files: that only the owner enters and reads them.


def make_folder(path: Path) -> None:
    """Create the folder ``path``, for its owner only, unless it exists."""
    path.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def owner_only() -> Iterator[None]:
    """Context manager: new files that the block makes get mode 0600.

    It sets the umask of the whole process, so keep the block short. DuckDB would make its log readable by
    all.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


# A file that is there whole or not at all, and the errors of disks in our words.


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Context manager: turn an OSError while the block writes ``path`` into an error of trafficdp.

    Raises StoreFullError (no space, quota, file size limit), StoreReadOnlyError (read-only or not permitted),
    UsageError (no such folder, not a file) or StoreUnavailableError (anything else).
    """
    try:
        yield
    except OSError as error:
        name = path.name
        if error.errno in FULL:
            raise errors.StoreFullError(
                f"cannot write {name}: no space left", todo="free some space and try again"
            ) from error
        if error.errno in READ_ONLY:
            raise errors.StoreReadOnlyError(
                f"cannot write {name}: its folder is read-only", todo="choose a folder that can be written to"
            ) from error
        if error.errno in WRONG_PATH:
            raise errors.UsageError(
                f"cannot write {name}",
                got=f"a path that does not exist or is not a folder: {path.parent}",
                expected="a file name in an existing folder",
            ) from error
        raise from_os_error(error, f"writing {name}") from error


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, whole or not at all, replacing a file that is there.

    A hidden file beside it is written, synced and renamed. Raises what ``disk_errors`` raises, and UsageError
    when the folder is missing or ``path`` is not a plain file.
    """
    if path.exists() and not path.is_file():
        raise errors.UsageError(
            f"cannot write {path.name}", got="something that is not a file", expected="a file name"
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with disk_errors(path):
        write_whole(path, partial, content, 0o666)


def require_folder_of(path: Path) -> None:
    """Raise UsageError when the folder that ``path`` would be written in is missing."""
    if not path.parent.is_dir():
        raise errors.UsageError(
            f"cannot write {path.name}",
            got=f"a folder that does not exist: {path.parent}",
            expected="a file name in an existing folder",
            todo="make the folder first",
        )


def new_token() -> str:
    """Return 256 random bits of the operating system as 64 hexadecimal digits."""
    return os.urandom(32).hex()
