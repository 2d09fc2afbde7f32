"""What a release leaves in the vault: its states, and pieces that are written once."""

import pytest

from trafficdp.errors import UsageError
from trafficdp.store import vault_releases
from trafficdp.store.vault import Vault, problems

VECTOR = 2048
"""Rows that DuckDB merges with newer ones at every checkpoint."""


def charge(store, name, sequence, allocation):
    with Vault.open(store) as vault, vault.transaction("a test"):
        vault_releases.add_charged(vault, name, sequence, allocation)


def places(city):
    """Where the rows of the table lie in the file, for every group of rows that is written at once."""
    found = city.sql(
        "SELECT row_group_id, column_name, segment_id, segment_type, block_id, block_offset "
        "FROM pragma_storage_info('release_pieces') ORDER BY ALL"
    )
    return {number: [row[1:] for row in found if row[0] == number] for number, *_ in found}


def test_a_release_leaves_those_before_it_where_they_are_in_the_file(filled):
    """Else the thousandth would cost more than the first."""
    charge(filled.store, "r0001", 1, "".join(map(str, range(VECTOR * vault_releases.PIECE // 5))))
    (many,) = places(filled).values()
    charge(filled.store, "r0002", 2, "short")
    both = places(filled)
    assert both[0] == many
    assert len(both) == 2


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, 5000])
def test_what_is_kept_comes_back_byte_by_byte(filled, length):
    text = "ü0123456789" * (length // 12 + 1)
    with Vault.open(filled.store) as vault:
        kept = {"facts": text[:length], "bins": bytes(range(256)) * 20, "measured": bytes(length)}
        with vault.transaction("a test"):
            vault_releases.add_charged(vault, "r0001", 1, text)
            assert vault_releases.values_of(vault, "r0001") is None
            vault_releases.commit_values(vault, "r0001", **kept)
        assert vault_releases.part_of(vault, "r0001", "allocation").decode() == text
        assert vault_releases.values_of(vault, "r0001") == (kept["facts"], kept["bins"])
        assert vault_releases.part_of(vault, "r0001", "measured") == kept["measured"]


def test_a_committed_value_is_never_drawn_again(released):
    before = released.dump()
    with (
        Vault.open(released.store) as vault,
        pytest.raises(UsageError, match="committed already"),
        vault.transaction("a test"),
    ):
        vault_releases.commit_values(vault, "r0001", "{}", b"other", b"other")
    assert released.dump() == before
    with Vault.open(released.store) as vault:
        assert problems(vault) == []
