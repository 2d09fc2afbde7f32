"""Stores that were damaged, or put back in part from an older copy, and what commands make of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def flip(path: Path, place: int, of: int) -> None:
    """Turn one bit in the middle of part ``place`` ``of`` the file."""
    content = bytearray(path.read_bytes())
    if content:
        at = len(content) * (2 * place + 1) // (2 * of)
        content[at] ^= 1 << (at * 7 + place) % 8
        path.write_bytes(content)


def blank(path: Path, place: int, of: int) -> None:
    """Write zeros over 4 KiB in the middle of part ``place`` ``of`` the file."""
    content = bytearray(path.read_bytes())
    at = len(content) * (2 * place + 1) // (2 * of) // 4096 * 4096
    content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    path.write_bytes(content)


def cut(path: Path, place: int, of: int) -> None:
    """Cut the file to ``place`` parts ``of`` it; all of it but a byte where that is the whole."""
    size = path.stat().st_size
    os.truncate(path, max(size - 1, 0) if place == of else size * place // of)


def take_away(path: Path, place: int, of: int) -> None:
    """Remove the file; or put a folder, or a file nobody may read, in its place."""
    path.unlink()
    if place == 1:
        path.mkdir()
    if place == 2:
        os.mkfifo(path)


WAYS = {"a bit turned": flip, "zeros": blank, "cut": cut, "gone": take_away}
"""How a file is damaged."""
OFTEN = {
    "city.store/vault.duckdb": {"a bit turned": 80, "zeros": 20, "cut": 10, "gone": 3},
    "city.store/vault.duckdb.wal": {"a bit turned": 40, "zeros": 4, "cut": 20, "gone": 3},
    "city.store/released.duckdb": {"a bit turned": 30, "zeros": 8, "cut": 8, "gone": 3},
}
"""How many of each, of a file; RARELY of any other."""
RARELY = {"a bit turned": 3, "zeros": 1, "cut": 2, "gone": 3}
PARTS = ("vault.duckdb", "released.duckdb", "releases", "head")
"""What may be put back from an older copy."""


def damages(folder: Path, prefix: str, suffix: str = "") -> Iterator[tuple[str, int]]:
    """Yield (what is done, place) of every damage to files of ``folder`` whose names begin and end so."""
    for path in (each for each in sorted(folder.rglob("*")) if each.is_file()):
        file = str(path.relative_to(folder))
        if file.startswith(prefix) and file.endswith(suffix):
            for way, times in OFTEN.get(file, RARELY).items():
                # of cuts, the last takes one byte
                yield from ((f"{file}: {way}", place) for place in range(times + (way == "cut")))


def damage(folder: Path, what: str, place: int) -> None:
    """Do what ``damages`` says."""
    file, _, way = what.rpartition(": ")
    WAYS[way](folder / file, place, OFTEN.get(file, RARELY)[way])


def subsets() -> list[str]:
    """Return every choice of PARTS."""
    numbers = range(1, 2 ** len(PARTS))
    return [", ".join(part for bit, part in enumerate(PARTS) if each >> bit & 1) for each in numbers]


def put_back(folder: Path, parts: str, older: Path) -> None:
    """Put ``parts`` of the store ``older`` in the place of those of ``folder``."""
    (head,) = (each.name for each in older.glob("city.store.key.*.head"))
    for part in parts.split(", "):
        name = head if part == "head" else f"city.store/{part}"
        there, before = folder / name, older / name
        if there.is_dir():
            shutil.rmtree(there)
        if before.is_dir():
            shutil.copytree(before, there)
        else:
            shutil.copy(before, there)
