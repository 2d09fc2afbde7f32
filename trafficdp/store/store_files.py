"""Files of a store beside its databases: the ledger's head, saved plans, spilled rows."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp._durable import make_folder, owner_only, read_regular, write_whole
from trafficdp.errors import StoreBehindError, StoreDamagedError, UsageError
from trafficdp.privacy.ledger import GENESIS, LedgerRow
from trafficdp.store.statements import store_failures

# The ledger's head, kept beside the key and so outside the store.
#
# A store that is restored from an old backup has a shorter ledger than its head says. That must not give
# budget back, so such a store refuses to release. Stores may share a key, never a head: each has a file of
# its own, named after the store.


BEHIND = "restore the newest backup of the store: a ledger that was cut back would give budget back"
_LARGEST = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """The file that remembers number and hash of the newest entry of one store's ledger."""

    path: Path
    store_id: str

    @classmethod
    def beside(cls, key_file: Path, store_id: str) -> Head:
        """Return the head of the store ``store_id`` that lies beside ``key_file``."""
        return cls(key_file.with_name(f"{key_file.name}.{store_id}.head"), store_id)

    def write(self, row: LedgerRow | None) -> None:
        """Remember ``row`` (None: an empty ledger), in one move that survives a power cut."""
        facts = {
            "store_id": self.store_id,
            "sequence": row.sequence if row else 0,
            "head_hash": row.head_hash if row else GENESIS,
        }
        with store_failures("writing the ledger's head beside the key"):
            write_whole(self.path, self._half_made, json.dumps(facts).encode("ascii"))

    def check(self, ledger: Sequence[LedgerRow]) -> None:
        """Raise as ``checked`` unless the ledger contains the remembered head."""
        self.checked(ledger)

    def checked(self, ledger: Sequence[LedgerRow]) -> int:
        """Return the number of the remembered entry; raise StoreBehindError unless the ledger contains it.

        The head is written after the ledger was checked, so up to this entry it need not be checked again.
        Raises StoreBehindError too when the head is missing or another store's, and StoreDamagedError when
        it cannot be read.
        """
        sequence, head_hash = self._read()
        require_head(ledger, sequence, head_hash, f"the head beside the key ({self.path.name})")
        return sequence

    def lags(self, ledger: Sequence[LedgerRow]) -> bool:
        """Return whether a crash left the head behind the ledger (False when there is no readable head)."""
        try:
            sequence, _ = self._read()
        except (StoreBehindError, StoreDamagedError):
            return False
        return sequence < len(ledger)

    def sweep(self) -> None:
        """Remove what a write that was killed left behind."""
        with store_failures("tidying beside the key"):
            self._half_made.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the head of a store that was never finished."""
        with store_failures("tidying beside the key"):
            self._half_made.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    @property
    def _half_made(self) -> Path:
        return self.path.with_name(self.path.name + ".new")

    def _read(self) -> tuple[int, str]:
        try:
            facts = json.loads(read_regular(self.path, _LARGEST).decode("ascii"))
            owner, sequence, head_hash = facts["store_id"], int(facts["sequence"]), str(facts["head_hash"])
        except FileNotFoundError as error:
            raise StoreBehindError(
                "the ledger's head beside the key is missing",
                expected=str(self.path),
                todo="restore it from where the key is backed up",
            ) from error
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise StoreDamagedError(
                "the ledger's head beside the key cannot be read",
                got=str(self.path),
                todo="restore it from where the key is backed up",
            ) from error
        if owner != self.store_id:
            raise StoreBehindError(
                "the ledger's head beside the key is another store's",
                got=str(self.path),
                todo="restore the head of this store from where the key is backed up",
            )
        return sequence, head_hash


def require_head(ledger: Sequence[LedgerRow], sequence: int, head_hash: str, witness: str) -> None:
    """Raise StoreBehindError unless entry ``sequence`` of the ledger has ``head_hash``; 0 is the start."""
    if sequence == 0 and head_hash == GENESIS:
        return
    if not 1 <= sequence <= len(ledger):
        raise StoreBehindError(
            f"the vault is behind {witness}",
            got=f"a ledger of {len(ledger)} entries",
            expected=f"at least {sequence}",
            todo=BEHIND,
        )
    if ledger[sequence - 1].head_hash != head_hash:
        raise StoreBehindError(
            f"the vault's ledger is not the one that {witness} was signed with",
            got=f"another hash at entry {sequence}",
            todo=BEHIND,
        )


# Plans saved by name in the store: `plans/NAME.json`. They hold public facts; only the owner reads them.


FOLDER = "plans"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def checked_plan_name(name: str) -> str:
    """Return ``name``; raise UsageError unless it can be the name of a plan."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "this cannot be the name of a plan",
            got=f"{name:.40}",
            expected="up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit",
        )
    return name


def save_plan(store: Path, name: str, text: str) -> Path:
    """Write the plan ``name`` and return its file. A plan of that name is replaced."""
    target = store / FOLDER / f"{checked_plan_name(name)}.json"
    half_made = target.with_name(f".{target.name}.new")
    with store_failures("saving the plan"), owner_only():
        make_folder(target.parent)
        write_whole(target, half_made, text.encode())
    return target


def read_plan(store: Path, name: str) -> str:
    """Return the text of the plan ``name``; raise UsageError when there is none."""
    path = store / FOLDER / f"{checked_plan_name(name)}.json"
    with store_failures("reading the plan"):
        if not path.is_file():
            there = plan_names(store)
            raise UsageError(
                "there is no such plan",
                got=name,
                expected="one of " + ", ".join(there) if there else "a saved plan; none was saved yet",
                todo="`trafficdp plan --save NAME` makes one",
            )
        return read_regular(path).decode("utf-8", errors="replace")


def sweep_plans(store: Path) -> None:
    """Remove what a ``save`` that was killed left."""
    for leftover in (store / FOLDER).glob(".*.new"):
        leftover.unlink(missing_ok=True)


def plan_names(store: Path) -> list[str]:
    """Return the names of the saved plans, sorted."""
    folder = store / FOLDER
    return sorted(path.stem for path in folder.glob("[!.]*.json")) if folder.is_dir() else []


# Files for rows that do not fit in memory: without a name, in a folder that only the owner enters.


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
