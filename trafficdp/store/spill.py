"""Files for rows that do not fit in memory: without a name, in a folder that only the owner enters."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.store.folder import make_folder


class Spill:
    """Rows in order of writing, in an unnamed file of ``folder``: a process that dies leaves none.

    Rows are of the NumPy type ``kind``. Use it as a context manager. Raises OSError where the disk is full.
    """

    def __init__(self, folder: Path, kind: npt.DTypeLike = np.int64) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_folder(folder)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._kind, self._rows = np.dtype(kind), 0

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Write ``rows``, shape (n,), at the end."""
        self._file.seek(0, os.SEEK_END)
        self._file.write(np.ascontiguousarray(rows, dtype=self._kind).view(np.uint8).data)
        self._rows += len(rows)

    def read(self, start: int, rows: int) -> npt.NDArray[Any]:
        """Return up to ``rows`` rows from ``start`` on."""
        found = np.empty(max(min(rows, self._rows - start), 0), dtype=self._kind)
        self._file.seek(self._kind.itemsize * start)
        self._file.readinto(found.view(np.uint8).data)
        return found
