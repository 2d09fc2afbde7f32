"""Files that arrive in a folder: complete ones only, each once, in the order of their names.

A file counts as arrived when it bears its final name: whoever writes it must write elsewhere and rename.
Names that begin with a dot or end like half-written ones are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HALF_WRITTEN = (".tmp", ".part", ".partial", ".crdownload", ".new")
Stamp = tuple[int, int, int]


@dataclass
class WatchedFolder:
    """A folder that is looked at again and again. Only names, sizes and times are looked at here."""

    path: Path
    _seen: dict[str, Stamp] = field(default_factory=dict)

    def arrived(self) -> list[Path]:
        """Return the files that are new or were replaced since they were last ``settled``, by name."""
        found = []
        for path in sorted(self.path.iterdir()):
            if path.name.startswith(".") or path.name.endswith(HALF_WRITTEN):
                continue
            stamp = stamp_of(path)
            if stamp is not None and self._seen.get(path.name) != stamp:
                found.append(path)
        return found

    def settle(self, path: Path, stamp: Stamp | None) -> None:
        """Remember that the file that bore ``stamp`` when it was begun needs not be looked at again."""
        if stamp is not None:
            self._seen[path.name] = stamp


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes when a file is replaced; None for what is no file (any more)."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if path.is_file() else None
