"""A vault damaged anywhere ends every command with a documented code, the file's name and the way out."""

import random

import pytest

COMMANDS = (
    ("doctor",),
    ("status",),
    ("plan",),
    ("releases",),
    ("verify", "r0001"),
    ("ledger",),
    ("ingest", "day1.csv.gz"),
    ("export", "r0001", "--to", "csv", "out.csv"),
    (
        "release",
        "--yes",
    ),
)
DOCUMENTED = {0, 2, 3, 4, 5, 6}
BLOCK = 256 << 10
HEADERS = 3 * 4096


def damaged(sound, number):
    """Return ``sound`` with one bit turned, one stretch overwritten, or its end cut off: seeded."""
    generator = random.Random(number)
    content = bytearray(sound)
    blocks = range(HEADERS, len(content), BLOCK)
    # the beginning of a block is in use more often than its end
    at = blocks[number % len(blocks)] + generator.randrange(0, 4096)
    if number % 3 == 0:
        content[at] ^= 1 << generator.randrange(8)
    elif number % 3 == 1:
        content[at : at + 64] = generator.randbytes(64)
    else:
        del content[at:]
    return bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("many", [8, pytest.param(28, marks=pytest.mark.prove)])
def test_no_damage_to_the_vault_is_a_bug(released, command, part, many):
    vault = released.store / "vault.duckdb"
    sound = vault.read_bytes()
    refused = set()
    for number in range(part, many, 4):
        harmed = damaged(sound, number)
        ends = {}
        for arguments in COMMANDS:
            vault.write_bytes(harmed)
            vault.with_name("vault.duckdb.wal").unlink(missing_ok=True)
            result = command(*arguments)
            ends[arguments[0]] = result.code
            assert result.code in DOCUMENTED, (number, arguments, result.err)
            assert result.err.count("\n") == (result.code != 0)
            if "cannot be read" in result.err and arguments != ("doctor",):
                refused.add(arguments[0])
                assert result.code == 6
                assert "vault.duckdb" in result.err
                assert "restore the newest complete backup of the store" in result.err
                assert "trafficdp doctor" in result.err
        if 6 in {ends[name] for name in ("status", "plan", "ledger")}:
            assert ends["doctor"] == 6, (number, ends)
    assert len(refused) >= 3
