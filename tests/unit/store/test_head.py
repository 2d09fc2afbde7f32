"""The head beside the key: whose it is, and what it refuses."""

import json
import os

import pytest

from trafficdp.errors import StoreBehindError, StoreDamagedError, StoreFullError
from trafficdp.privacy.ledger import GENESIS, append
from trafficdp.release.curator import Curator
from trafficdp.store.store_files import Head, require_head


def chain(length):
    rows = []
    for number in range(length):
        rows.append(
            append(rows[-1] if rows else None, {"kind": "charge", "release": f"r{number}"}, "5a" * 32)
        )
    return rows


@pytest.fixture
def head(tmp_path):
    return Head(tmp_path / "a.key", "store-a")


def test_a_ledger_at_or_beyond_its_head_passes(head):
    rows = chain(3)
    for known in (None, rows[0], rows[2]):
        head.write(known)
        head.verify(rows)


def test_a_ledger_shorter_than_its_head_is_behind(head):
    head.write(chain(3)[2])
    with pytest.raises(StoreBehindError, match="behind the head") as caught:
        head.verify(chain(2))
    assert caught.value.exit_code == 6


def test_another_ledger_of_the_same_length_is_refused(head):
    head.write(append(None, {"kind": "charge", "release": "other"}, "5a" * 32))
    with pytest.raises(StoreBehindError, match="another hash at entry 1"):
        head.verify(chain(1))


def test_an_entry_zero_that_is_not_the_start_is_refused():
    with pytest.raises(StoreBehindError):
        require_head(chain(1), 0, "0" * 64, "a witness")
    require_head([], 0, GENESIS, "a witness")


def test_stores_with_one_key_have_heads_of_their_own(tmp_path):
    ours, theirs = Head(tmp_path / "a.key", "store-a"), Head(tmp_path / "a.key", "store-b")
    ours.write(chain(2)[1])
    theirs.write(None)
    with pytest.raises(StoreBehindError):
        ours.verify([])
    theirs.verify([])


def test_another_stores_head_under_this_name_is_refused(head, tmp_path):
    other = Head(tmp_path / "a.key", "store-b")
    other.write(None)
    os.replace(other.path, head.path)
    with pytest.raises(StoreBehindError, match="another store's"):
        head.verify(chain(1))
    before = head.path.read_bytes()
    Curator(tmp_path, None, head).write_head()
    assert head.path.read_bytes() == before


def test_a_missing_head_is_refused(head):
    with pytest.raises(StoreBehindError, match="missing"):
        head.verify([])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"sequence": 1}',
        b'{"store_id": "store-a", "sequence": "x"}',
        b'{"store_id": "store-a", "sequence": 1e999, "head_hash": ""}',
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_a_garbled_head_is_damage_and_never_a_bug(head, content):
    head.path.write_bytes(content)
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        head.verify([])


def test_a_head_is_its_owners_and_leaves_nothing_beside_it(head, tmp_path):
    head.write(chain(1)[0])
    assert head.path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [head.path]
    assert json.loads(head.path.read_text(encoding="ascii"))["store_id"] == "store-a"


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_full_disk_leaves_the_old_head_whole(head, monkeypatch, step):
    head.write(chain(1)[0])
    before = head.path.read_bytes()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(StoreFullError):
        head.write(chain(2)[1])
    assert head.path.read_bytes() == before
    assert list(head.path.parent.iterdir()) == [head.path]


def test_a_head_that_a_crash_left_behind_its_ledger_names_its_entry(head):
    rows = chain(3)
    head.write(rows[1])
    assert head.verify(rows) == 2 < len(rows)
