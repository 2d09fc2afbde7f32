"""Plans saved by name in the store: `plans/NAME.json`. They hold public facts; only the owner reads them."""

from __future__ import annotations

import re
from pathlib import Path

from trafficdp._durable import read_regular, write_whole
from trafficdp.errors import UsageError
from trafficdp.store.folder import make_folder, owner_only
from trafficdp.store.statements import store_failures

FOLDER = "plans"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def checked_name(name: str) -> str:
    """Return ``name``; raise UsageError unless it can be the name of a plan."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "this cannot be the name of a plan",
            got=f"{name:.40}",
            expected="up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit",
        )
    return name


def save(store: Path, name: str, text: str) -> Path:
    """Write the plan ``name`` and return its file. A plan of that name is replaced."""
    target = store / FOLDER / f"{checked_name(name)}.json"
    half_made = target.with_name(f".{target.name}.new")
    with store_failures("saving the plan"), owner_only():
        make_folder(target.parent)
        write_whole(target, half_made, text.encode())
    return target


def read(store: Path, name: str) -> str:
    """Return the text of the plan ``name``; raise UsageError when there is none."""
    path = store / FOLDER / f"{checked_name(name)}.json"
    with store_failures("reading the plan"):
        if not path.is_file():
            there = names(store)
            raise UsageError(
                "there is no such plan",
                got=name,
                expected="one of " + ", ".join(there) if there else "a saved plan; none was saved yet",
                todo="`trafficdp plan --save NAME` makes one",
            )
        return read_regular(path).decode("utf-8", errors="replace")


def sweep(store: Path) -> None:
    """Remove what a ``save`` that was killed left."""
    for leftover in (store / FOLDER).glob(".*.new"):
        leftover.unlink(missing_ok=True)


def names(store: Path) -> list[str]:
    """Return the names of the saved plans, sorted."""
    folder = store / FOLDER
    return sorted(path.stem for path in folder.glob("[!.]*.json")) if folder.is_dir() else []
