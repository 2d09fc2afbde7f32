"""The ledger's head, kept beside the key and so outside the store.

A store that is restored from an old backup has a shorter ledger than its head says. That must not give
budget back, so such a store refuses to release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from trafficdp.errors import StoreBehindError, StoreDamagedError
from trafficdp.privacy.ledger import GENESIS, LedgerRow
from trafficdp.store.failures import store_failures

BEHIND = "restore the newest backup of the store: a ledger that was cut back would give budget back"


class Head:
    """The file that remembers number and hash of the newest entry of the ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, key_file: Path) -> Head:
        """Return the head that belongs to ``key_file``."""
        return cls(key_file.with_name(key_file.name + ".head"))

    def write(self, row: LedgerRow | None) -> None:
        """Remember ``row`` (None: an empty ledger), in one move that survives a power cut."""
        facts = {"sequence": row.sequence if row else 0, "head_hash": row.head_hash if row else GENESIS}
        half_made = self.path.with_name(self.path.name + ".new")
        with store_failures("writing the ledger's head beside the key"):
            descriptor = os.open(half_made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(facts, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(half_made, self.path)

    def check(self, ledger: Sequence[LedgerRow]) -> None:
        """Raise StoreBehindError unless the ledger contains the remembered head."""
        try:
            facts = json.loads(self.path.read_text(encoding="ascii"))
            sequence, head_hash = int(facts["sequence"]), str(facts["head_hash"])
        except FileNotFoundError as error:
            raise StoreBehindError(
                "the ledger's head beside the key is missing",
                expected=str(self.path),
                todo="restore it from where the key is backed up",
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreDamagedError(
                "the ledger's head beside the key cannot be read", got=str(self.path)
            ) from error
        require(ledger, sequence, head_hash, f"the head beside the key ({self.path.name})")


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
