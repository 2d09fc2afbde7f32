"""Lines that came by standard input, read like a file that lies nowhere but in memory."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trafficdp.ingest.input_file import InputFile


class InputLines(InputFile):
    """``content`` under a ``name`` for messages; never written anywhere, and never unpacked."""

    def __init__(self, name: str, content: bytes) -> None:
        self.path = Path(name)
        self.size = len(content)
        self._content = content
        self._head = b""
        self._progress = None

    def sha256(self) -> str:
        """Return the SHA-256 of the lines."""
        return hashlib.sha256(self._content).hexdigest()

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the lines."""
        yield io.BytesIO(self._content)
