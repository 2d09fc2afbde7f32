"""One at a time: an `flock` on a file of the store around every access to the vault.

DuckDB lets one process write or many read and makes nobody wait; the lock queues instead. It is freed by
the operating system when its holder dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trafficdp._durable import from_os_error, open_regular
from trafficdp.errors import StoreBusyError, StoreUnavailableError

LOCK_NAME = ".lock"
POLL_SECONDS = 0.05
DEFAULT_WAIT = 60.0
"""Seconds to wait for another process."""


@contextmanager
def store_lock(folder: Path, *, purpose: str, wait: float) -> Iterator[None]:
    """Hold the store's lock; ``purpose`` (a command's name) is what others are told.

    Waits up to ``wait`` seconds, then raises StoreBusyError naming the holder. Raises
    StoreUnavailableError when there is no such folder, and what ``from_os_error`` says when it cannot be
    locked.
    """
    with _held(folder, os.O_RDWR | os.O_CREAT, wait) as descriptor:
        if descriptor is None:
            raise StoreUnavailableError(
                "there is no store here", got=str(folder), todo="run `trafficdp init` or pass --store"
            )
        _name_holder(descriptor, purpose)
        yield


@contextmanager
def looking(folder: Path, *, wait: float) -> Iterator[None]:
    """Hold the store's lock and leave no trace: nothing is written into it, and none is made.

    Raises as ``store_lock``, but for a store that has no lock: then nobody holds it.
    """
    with _held(folder, os.O_RDONLY, wait):
        yield


@contextmanager
def _held(folder: Path, flags: int, wait: float) -> Iterator[int | None]:
    """Hold the lock and yield its descriptor, None where there is none."""
    try:
        descriptor = open_regular(folder / LOCK_NAME, flags)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise from_os_error(error, "locking the store") from error
    try:
        _acquire(descriptor, folder, wait)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, folder: Path, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise StoreUnavailableError("the store cannot be locked", got=error.strerror) from error
        if time.monotonic() >= deadline:
            raise StoreBusyError(
                "the store is in use",
                got=_holder(descriptor),
                expected=f"a free store within {wait:g} s",
                todo=f"wait for it to finish, or raise --wait ({folder})",
            )
        time.sleep(POLL_SECONDS)


def _name_holder(descriptor: int, purpose: str) -> None:
    """Write who holds the lock, for whoever waits. A full disk must not matter here."""
    text = json.dumps({"pid": os.getpid(), "command": purpose, "since": int(time.time())})
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError:
        return


def _holder(descriptor: int) -> str:
    try:
        facts = json.loads(os.pread(descriptor, 4096, 0))
        return f"held by process {facts['pid']} (trafficdp {facts['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "held by another process"
