"""The ledger's head, kept beside the key and so outside the store.

A store that is restored from an old backup has a shorter ledger than its head says. That must not give
budget back, so such a store refuses to release. Stores may share a key, never a head: each has a file of
its own, named after the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trafficdp._durable import read_regular, write_whole
from trafficdp.errors import StoreBehindError, StoreDamagedError
from trafficdp.privacy.ledger import GENESIS, LedgerRow
from trafficdp.store.statements import store_failures

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
        require(ledger, sequence, head_hash, f"the head beside the key ({self.path.name})")
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


def require(ledger: Sequence[LedgerRow], sequence: int, head_hash: str, witness: str) -> None:
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
