"""Releases and streams in the vault: charged, committed, published, withdrawn."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import IntArray
from trafficdp.errors import UsageError
from trafficdp.store.store_files import damaged_store, registered, script
from trafficdp.store.vault import Vault

if TYPE_CHECKING:
    import pyarrow as pa

PIECE = 1024
"""Bytes a row of what a release leaves. DuckDB merges the newest rows at each checkpoint until they are 2048,
later only where that doubles: no more than this is written anew, however many releases there are."""


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """One charged release; ``drawn``: its noise is committed."""

    release_id: str
    sequence: int
    drawn: bool = False
    published: bool = False
    withdrawn: bool = False

    @property
    def finished(self) -> bool:
        """Whether the release is published or withdrawn, so that nothing is left to do."""
        return self.published or self.withdrawn


_STATES = "SELECT release_id, sequence, drawn, published, withdrawn FROM releases "


def all_releases(vault: Vault) -> list[StoredRelease]:
    """Return every charged release in the order of charging."""
    return [StoredRelease(*row) for row in vault.run(_STATES + "ORDER BY sequence")]


def release_named(vault: Vault, release_id: str) -> StoredRelease:
    """Return the release ``release_id``; raise UsageError, listing all names, when there is none."""
    found = vault.run(_STATES + "WHERE release_id = ?", [release_id])
    if not found:
        names = [release.release_id for release in all_releases(vault)]
        raise UsageError(
            "there is no such release",
            got=release_id,
            expected="one of " + ", ".join(names) if names else "a release; none was made yet",
        )
    return StoredRelease(*found[0])


def values_of(vault: Vault, release_id: str) -> tuple[str, bytes] | None:
    """Return the committed values of a release, (facts as JSON, bins as Arrow bytes), or None before.

    ``decode`` reads them. Raises as ``release_named``.
    """
    facts, bins = _parts(vault, release_id, "facts", "bins")
    return (facts.decode(), bins) if bins else None


def part_of(vault: Vault, release_id: str, part: str) -> bytes:
    """Return the bytes kept of a release under ``part``: "allocation", "facts", "bins" or "measured".

    "allocation" is the frozen specification, "measured" the noisy answers that it was made from. Raises as
    ``release_named``.
    """
    return _parts(vault, release_id, part)[0]


def add_charged(vault: Vault, release_id: str, sequence: int, allocation: str) -> StoredRelease:
    """Write a charged release with its frozen specification; return it (inside the caller's transaction).

    ``sequence`` is the number of its ledger entry, ``allocation`` the specification as JSON.
    """
    vault.run("INSERT INTO releases (release_id, sequence) VALUES (?, ?)", [release_id, sequence])
    _write(vault, release_id, {"allocation": allocation.encode()})
    return StoredRelease(release_id, sequence)


def commit_values(vault: Vault, release_id: str, facts: str, bins: bytes, measured: bytes) -> None:
    """Write the noisy values of a charged release, once (inside the caller's transaction).

    ``facts`` and ``bins`` are the release as ``encode`` wrote it, ``measured`` the noisy answers that it was
    made from. Raises UsageError when values are there already: a committed value is never redrawn.
    """
    changed = vault.run(
        "UPDATE releases SET drawn = true WHERE release_id = ? AND NOT drawn RETURNING release_id",
        [release_id],
    )
    if len(changed) != 1:
        raise UsageError("the values of this release are committed already", got=release_id)
    _write(vault, release_id, {"facts": facts.encode(), "bins": bins, "measured": measured})


def mark_withdrawn(vault: Vault, release_id: str) -> None:
    """Mark a release as withdrawn (inside the caller's transaction)."""
    vault.run("UPDATE releases SET withdrawn = true WHERE release_id = ?", [release_id])


def _write(vault: Vault, release_id: str, parts: Mapping[str, bytes]) -> None:
    import pyarrow as pa

    rows = [
        {"part": part, "number": 1 + start // PIECE, "piece": content[start : start + PIECE]}
        for part, content in parts.items()
        for start in range(0, len(content), PIECE)
    ]
    with registered(vault.connection, "incoming_pieces", pa.Table.from_pylist(rows)):
        added = "INSERT INTO release_pieces SELECT ?, part, number, piece FROM incoming_pieces"
        vault.run(added, [release_id])


def _parts(vault: Vault, release_id: str, *parts: str) -> list[bytes]:
    rows = vault.run(
        "SELECT part, piece FROM release_pieces WHERE release_id = ? AND list_contains(?, part) "
        "ORDER BY number",
        [release_id, [*parts]],
    )
    if not rows:
        release_named(vault, release_id)
    return [b"".join(piece for part, piece in rows if part == own) for own in parts]


# An index of published releases by public facts of their specifications: a cache.


@dataclass(frozen=True, slots=True)
class IndexedRelease:
    """The public facts by which the index finds a published release.

    The index is a cache: what it finds is compared with the release itself.
    """

    release_id: str
    data_version: str
    numbers_sha256: str
    area_sha256: str
    of_question: bool
    of_everything: bool


_INDEX = "release_index"


def mark_published(vault: Vault, release: IndexedRelease) -> None:
    """Mark a release as published and add it to the index (inside the caller's transaction)."""
    vault.run("UPDATE releases SET published = true WHERE release_id = ?", [release.release_id])
    if not vault.has_table(_INDEX):
        vault.make_tables(_INDEX)
    vault.run("INSERT INTO release_index VALUES (?, ?, ?, ?, ?, ?)", [*astuple(release)])


def find_published(vault: Vault, sought: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of published releases, not withdrawn, that match ``sought``, newest first.

    ``sought`` maps fields of ``IndexedRelease`` to the values that they must have; its key ``not_of_data``
    holds a data version that the release must not have.
    """
    if vault.has_table(_INDEX):
        asked = {**dict.fromkeys((*IndexedRelease.__slots__[1:], "not_of_data")), **sought}
        yield from (str(name) for (name,) in vault.run(script("statements/find_releases"), asked))


# Streams in the vault: charged, kept after every batch, published.
#
# All writes happen inside the caller's transaction. The state is two blobs of arrays in DuckDB, not a log of
# our own: one transaction then holds state, counts, charges, ledger entry and published values together, the
# vault's crash safety is inherited and its backup is whole. It costs milliseconds a batch (`make bench`).


Arrays = Mapping[str, npt.NDArray[np.generic]]
PARTS = ("opened", "kept")


@dataclass(frozen=True, slots=True)
class StoredStream:
    """One charged stream; ``facts`` is the specification, as JSON."""

    release_id: str
    sequence: int
    facts: str
    ended: bool


@dataclass(frozen=True, slots=True)
class StoredPublication:
    """One committed publication of a stream, the map after step ``step``.

    ``facts`` (JSON) and ``bins`` (Arrow) are the release as ``encode`` wrote it; ``sequence`` is its ledger
    entry.
    """

    release_id: str
    number: int
    sequence: int
    step: int
    facts: str
    bins: bytes

    @property
    def values_sha256(self) -> str:
        """SHA-256 over ``facts`` and ``bins``, in hexadecimal digits; the ledger entry holds it too."""
        return hashlib.sha256(self.facts.encode() + b"\n" + self.bins).hexdigest()


@dataclass(frozen=True, slots=True)
class FileProgress:
    """How far a stream has taken the file of this ``number``: how many rows, and whether it is done."""

    number: int
    rows_taken: int
    done: bool


def all_streams(vault: Vault) -> list[StoredStream]:
    """Return every charged stream in the order of charging."""
    if not vault.has_table("streams"):
        return []
    rows = vault.run("SELECT release_id, sequence, facts, ended FROM streams ORDER BY sequence")
    return [StoredStream(*row) for row in rows]


def stream_named(vault: Vault, release_id: str) -> StoredStream:
    """Return the stream ``release_id``; raise UsageError when there is none of that name."""
    for stream in all_streams(vault):
        if stream.release_id == release_id:
            return stream
    raise UsageError("there is no such stream", got=release_id)


def add_stream(vault: Vault, release_id: str, sequence: int, facts: str) -> None:
    """Write a charged stream without state; ``sequence`` is its ledger entry, ``facts`` its specification."""
    vault.run("INSERT INTO streams VALUES (?, ?, ?, false)", [release_id, sequence, facts])


def end_stream(vault: Vault, release_id: str) -> None:
    """Mark a stream as ended: it takes no more records."""
    vault.run("UPDATE streams SET ended = true WHERE release_id = ?", [release_id])


def save_part(vault: Vault, release_id: str, part: str, generation: int, arrays: Arrays) -> None:
    """Replace ``part`` (one of PARTS) of the stream's saved state by ``arrays``.

    ``generation`` is the number of batches that the state includes.
    """
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub has allow_pickle among the names
    vault.run("DELETE FROM stream_state WHERE release_id = ? AND part = ?", [release_id, part])
    vault.run(
        "INSERT INTO stream_state VALUES (?, ?, ?, ?)", [release_id, part, generation, buffer.getvalue()]
    )


def load_parts(vault: Vault, release_id: str) -> tuple[int, dict[str, dict[str, npt.NDArray[np.generic]]]]:
    """Return (number of batches it includes, arrays by part and name) of a stream's saved state.

    (0, {}) for a stream that has taken none. Raises StoreDamagedError where a part is missing.
    """
    rows = vault.run("SELECT part, generation, arrays FROM stream_state WHERE release_id = ?", [release_id])
    if not rows:
        return 0, {}
    if {row[0] for row in rows} != set(PARTS):
        raise damaged_store("the state of a stream is not whole")
    parts = {}
    for part, _, stored in rows:
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            parts[str(part)] = {name: arrays[name] for name in arrays.files}
    return max(int(row[1]) for row in rows), parts


def generation_of(vault: Vault, release_id: str) -> int:
    """Return how many batches of records the saved state of a stream includes."""
    return vault.number(
        "SELECT coalesce(max(generation), 0) FROM stream_state WHERE release_id = ?", [release_id]
    )


def file_progress(vault: Vault, release_id: str, digest: str) -> FileProgress | None:
    """Return how far a stream has taken the file with this ``digest``; None if it has not begun it."""
    found = vault.run(
        "SELECT number, rows_taken, done FROM stream_files WHERE release_id = ? AND file_digest = ?",
        [release_id, digest],
    )
    return FileProgress(*found[0]) if found else None


def begin_file(
    vault: Vault, release_id: str, name: str, digest: str, report: str, at: datetime
) -> FileProgress:
    """Write that a stream begins a file; return its progress, with no row taken.

    ``digest`` is the ``VehicleKey.digest`` of its bytes, ``report`` the ingest report as JSON.
    """
    before = vault.number(
        "SELECT coalesce(max(number), 0) FROM stream_files WHERE release_id = ?", [release_id]
    )
    vault.run(
        "INSERT INTO stream_files VALUES (?, ?, ?, ?, 0, false, ?, ?)",
        [release_id, before + 1, name, digest, report, at],
    )
    return FileProgress(before + 1, 0, False)


def advance_file(vault: Vault, release_id: str, file: FileProgress) -> None:
    """Write how far a stream has taken ``file``."""
    vault.run(
        "UPDATE stream_files SET rows_taken = ?, done = ? WHERE release_id = ? AND number = ?",
        [file.rows_taken, file.done, release_id, file.number],
    )


def add_counts(vault: Vault, release_id: str, step: int, counts: Mapping[str, IntArray]) -> None:
    """Append the exact counts of a closed ``step`` of a stream.

    ``counts`` are columns of equal length: cell, slot, vehicle, records, position.
    """
    import pyarrow as pa

    table = pa.table({name: pa.array(values) for name, values in counts.items()})
    with registered(vault.connection, "incoming_counts", table):
        vault.run(script("statements/add_stream_counts"), {"release_id": release_id, "step": step})


def counts_of(vault: Vault, release_id: str, up_to_step: int | None = None) -> pa.Table:
    """Return the exact counts of a stream's closed steps, sorted by step, cell, slot and vehicle.

    One row a (step, cell, slot, vehicle), with ``records`` and ``position``; with ``up_to_step`` no later
    ones.
    """
    return vault.query(
        "SELECT step, cell, slot, vehicle_id, records, position FROM stream_counts WHERE release_id = ? "
        "AND step <= coalesce(?, step) ORDER BY step, cell, slot, vehicle_id",
        [release_id, up_to_step],
    )


def add_publication(vault: Vault, publication: StoredPublication) -> None:
    """Write a stream's publication, which is never changed afterwards."""
    vault.run("INSERT INTO stream_publications VALUES (?, ?, ?, ?, ?, ?)", [*astuple(publication)])


def publications(vault: Vault, release_id: str, after: int = 0) -> list[StoredPublication]:
    """Return the publications of a stream with a number above ``after``, in order."""
    rows = vault.run(
        "SELECT release_id, number, sequence, step, facts, bins FROM stream_publications "
        "WHERE release_id = ? AND number > ? ORDER BY number",
        [release_id, after],
    )
    return [StoredPublication(*row) for row in rows]


def newest_publication(vault: Vault, release_id: str) -> int:
    """Return the number of a stream's newest publication, 0 when there is none."""
    return vault.number(
        "SELECT coalesce(max(number), 0) FROM stream_publications WHERE release_id = ?", [release_id]
    )
