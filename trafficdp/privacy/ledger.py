"""The ledger's rules, without a database: entries, their hash chain, and who may still pay.

A ledger is a list of entries, each canonical JSON, chained by
``head_hash = SHA-256(previous head_hash, newline, entry)``. A change, a gap or a swap breaks the chain; a
lost end does not, which is why the newest hash is kept outside the store as well.

Hashes of the chain are published, entries are not. Every entry holds a nonce of 256 random bits, so that no
guess of its other facts can be tried against a hash: it hides them from whoever cannot invert SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import IntArray
from trafficdp.errors import StoreDamagedError

GENESIS = hashlib.sha256(b"trafficdp ledger").hexdigest()
"""The head of an empty ledger."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One entry in its place in the chain."""

    sequence: int
    entry: str
    head_hash: str

    @property
    def facts(self) -> dict[str, object]:
        """The entry's JSON object as a dictionary."""
        result: dict[str, object] = json.loads(self.entry)
        return result


def canonical(facts: Mapping[str, object]) -> str:
    """Return ``facts`` as canonical JSON text: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def append(last: LedgerRow | None, facts: Mapping[str, object], nonce: str) -> LedgerRow:
    """Return the ledger row that follows ``last`` (None: the first row) and holds ``facts``, hash-chained to
    it.

    ``nonce`` is random, 64 hexadecimal digits, new for every row and never published.
    """
    sequence = 1 if last is None else last.sequence + 1
    head = GENESIS if last is None else last.head_hash
    entry = canonical({**facts, "sequence": sequence, "nonce": nonce})
    return LedgerRow(sequence, entry, hashlib.sha256(f"{head}\n{entry}".encode()).hexdigest())


def check_chain(rows: Iterable[LedgerRow], after: LedgerRow | None = None) -> None:
    """Raise StoreDamagedError unless rows are numbered on from ``after`` (or 1) and every hash follows."""
    head, expected = (GENESIS, 1) if after is None else (after.head_hash, after.sequence + 1)
    for row in rows:
        head = hashlib.sha256(f"{head}\n{row.entry}".encode()).hexdigest()
        try:
            facts: object = json.loads(row.entry)
        except ValueError:
            facts = None
        stated = facts.get("sequence") if isinstance(facts, dict) else None
        if row.sequence != expected or row.head_hash != head or stated != expected:
            raise StoreDamagedError(
                "the ledger's chain is broken",
                got=f"an altered or missing entry at number {expected}",
                todo="restore the newest complete backup of the store",
            )
        expected += 1


def accounts_hash(vehicle: IntArray, loss: IntArray) -> str:
    """Return a SHA-256 over all (vehicle, loss) pairs sorted by vehicle, to fix them in a ledger entry."""
    order = np.argsort(vehicle, kind="stable")
    table = np.column_stack([vehicle[order], loss[order]]).astype("<i8")
    return hashlib.sha256(table.tobytes()).hexdigest()
