"""What a folder of the store needs besides its files: durable names, and files that only the owner reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def owner_only() -> Iterator[None]:
    """Give new files of the block mode 0600: DuckDB makes its write-ahead log by itself, open to all.

    The mask belongs to the whole process, so keep the block short.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
