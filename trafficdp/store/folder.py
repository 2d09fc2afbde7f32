"""What folders of the store need besides their files: that only the owner enters and reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder of the store, unless it is there; whatever the mask, nobody but the owner enters it."""
    path.mkdir(mode=0o700, exist_ok=True)


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
