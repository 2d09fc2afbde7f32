"""`trafficdp forget`: identifiers come by standard input, and nothing that is printed tells one."""

import io
import json
import sys

import pytest


@pytest.fixture
def forget(command, monkeypatch):
    """``forget(content, ...)``: run the command with ``content`` on standard input."""

    def forget(content, *before):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return command(*before, "forget", "--yes")

    return forget


@pytest.fixture
def plate(released, feed):
    """A vehicle of the store, as its feed spells it."""
    return feed("2026-03-02")[0].split(",")[0]


def test_it_says_how_many_and_never_who(released, command, forget, plate):
    vehicles = json.loads(command("--json", "status").out)["vehicles"]
    result = forget(f"\ufeff{plate}\r\n\r\nNOT-THERE-1\n".encode())
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "the store was written anew without the records of 2 identifiers, and its data counts as new: what "
        "was charged stays spent, and `verify` can no longer recompute earlier releases\n"
        "for the curator's eyes, outside the privacy guarantee: 1 vehicle of this store was named, and 1 "
        "identifier of none\n"
    )
    assert json.loads(command("--json", "status").out)["vehicles"] == vehicles - 1
    entry = json.loads(command("--json", "ledger").out)["entries"][-1]
    assert (entry["kind"], entry["release"], entry["epsilon"]) == ("forgetting", None, None)
    assert "forgetting" in command("ledger").out
    assert command("verify", "r0001").code == 4
    again = json.loads(forget(b"NOT-THERE-1", "--json").out)
    assert again == {"identifiers": 1, "vehicles": 0, "unknown": 1, "outside_the_guarantee": True}
    assert len(json.loads(command("--json", "ledger").out)["entries"]) == entry["sequence"] + 1


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe\x00"])
def test_what_names_no_vehicle_is_refused(released, forget, content):
    before = released.dump()
    result = forget(content)
    assert result.code == 2
    assert "identifiers" in result.err
    assert released.dump() == before


def test_an_identifier_is_no_argument(released, refusal, plate):
    said = refusal(2, "forget", "--yes", plate)
    assert "standard input" in said
    assert plate not in said
