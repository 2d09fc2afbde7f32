"""What a folder of the store needs besides its files: that only the owner reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


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
