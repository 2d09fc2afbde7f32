import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import InsufficientBudgetError, StoreDamagedError
from trafficdp.privacy.budget import Window, check_windows
from trafficdp.privacy.ledger import (
    GENESIS,
    LedgerRow,
    accounts_hash,
    append,
    canonical,
    check_chain,
)
from trafficdp.privacy.loss import PICO, PureDP

NONCE = "5a" * 32


def chain_of(length):
    rows = []
    for number in range(length):
        rows.append(append(rows[-1] if rows else None, {"kind": "charge", "epsilon_pico": number}, NONCE))
    return rows


def assert_broken(rows):
    with pytest.raises(StoreDamagedError, match="chain is broken"):
        check_chain(rows)


@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_a_whole_chain_is_accepted(length):
    check_chain(chain_of(length))


def test_rows_are_numbered_and_say_what_they_were_given():
    rows = chain_of(3)
    assert [row.sequence for row in rows] == [1, 2, 3]
    assert rows[1].facts == {"kind": "charge", "epsilon_pico": 1, "sequence": 2, "nonce": NONCE}
    assert len({GENESIS, *(row.head_hash for row in rows)}) == 4


def test_the_number_of_an_entry_cannot_be_dictated():
    assert append(None, {"sequence": 99}, NONCE).facts["sequence"] == 1


def test_the_same_facts_hash_alike_only_under_the_same_nonce():
    facts = {"kind": "charge", "epsilon_pico": 1}
    assert append(None, facts, NONCE) == append(None, facts, NONCE)
    assert append(None, facts, NONCE).head_hash != append(None, facts, "a5" * 32).head_hash


def test_canonical_texts_do_not_depend_on_the_order_of_keys():
    assert canonical({"b": 1, "a": "ü"}) == canonical({"a": "ü", "b": 1}) == '{"a":"\\u00fc","b":1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": float("nan")})


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "edit",
    [
        lambda row: replace(row, entry=row.entry.replace("charge", "Charge")),
        lambda row: replace(row, entry=row.entry + " "),
        lambda row: replace(row, head_hash=row.head_hash[::-1]),
        lambda row: replace(row, head_hash=""),
        lambda row: replace(row, sequence=row.sequence + 1),
        lambda row: replace(row, entry=canonical({**row.facts, "epsilon_pico": 0, "x": 1})),
    ],
)
def test_any_edit_is_found(place, edit):
    rows = chain_of(5)
    rows[place] = edit(rows[place])
    assert_broken(rows)


@pytest.mark.parametrize("place", range(4))
def test_a_deleted_entry_is_found(place):
    rows = chain_of(5)
    del rows[place]
    assert_broken(rows)


@pytest.mark.parametrize("place", range(3))
def test_a_deleted_and_renumbered_entry_is_found(place):
    rows = chain_of(5)
    del rows[place]
    assert_broken([replace(row, sequence=number) for number, row in enumerate(rows, start=1)])


@given(st.permutations(range(5)))
def test_any_other_order_is_found(order):
    rows = chain_of(5)
    if list(order) == [0, 1, 2, 3, 4]:
        check_chain(rows)
    else:
        assert_broken([rows[place] for place in order])


def test_a_doubled_entry_is_found():
    rows = chain_of(3)
    assert_broken([rows[0], rows[0], *rows[1:]])


def test_an_entry_of_another_chain_is_found():
    other = append(append(None, {"kind": "other"}, NONCE), {"kind": "charge", "epsilon_pico": 1}, NONCE)
    rows = chain_of(3)
    rows[1] = other
    assert_broken(rows)


@pytest.mark.parametrize("entry", ["not JSON", "[1]", "7", '{"sequence": 2}', "{}"])
def test_an_entry_that_is_no_numbered_object_is_found_even_with_its_right_hash(entry):
    import hashlib

    head = hashlib.sha256(f"{GENESIS}\n{entry}".encode()).hexdigest()
    assert_broken([LedgerRow(1, entry, head)])


def test_a_lost_end_is_not_found_by_the_chain_alone():
    # this is why the newest hash is kept outside the store: see the store's head
    check_chain(chain_of(5)[:3])


def test_a_chain_survives_being_written_as_json():
    rows = [LedgerRow(**json.loads(json.dumps(vars_of(row)))) for row in chain_of(3)]
    check_chain(rows)


def vars_of(row):
    return {"sequence": row.sequence, "entry": row.entry, "head_hash": row.head_hash}


def picos(*values):
    return np.array(values, dtype=np.int64)


def check_budget(spent, cost, budget):
    check_windows([Window("in all", budget)], [spent], cost)


def test_spending_exactly_the_budget_succeeds():
    check_budget(picos(0, 3 * PICO, PICO), picos(8 * PICO, 5 * PICO, 7 * PICO), PureDP.of(8))


def test_one_pico_more_than_the_budget_fails():
    with pytest.raises(InsufficientBudgetError) as refusal:
        check_budget(picos(0, 3 * PICO), picos(8 * PICO, 5 * PICO + 1), PureDP.of(8))
    assert refusal.value.remaining == 5
    assert refusal.value.requested == 5 + Fraction(1, PICO)
    assert refusal.value.exit_code == 3
    assert "5.000000000001" in str(refusal.value)
    assert "5.000000000000" in str(refusal.value)


def test_remaining_and_requested_are_those_of_the_vehicle_that_is_hit_worst():
    with pytest.raises(InsufficientBudgetError) as refusal:
        check_budget(picos(7 * PICO, 2 * PICO, 0), picos(2 * PICO, 9 * PICO, 8 * PICO), PureDP.of(8))
    assert (refusal.value.remaining, refusal.value.requested) == (6, 9)
    assert "costs epsilon 9" in str(refusal.value)
    assert "remaining 6" in str(refusal.value)


def test_vehicles_that_pay_nothing_never_block():
    # the first spent its budget under an older, larger ceiling
    check_budget(picos(9 * PICO, 0), picos(0, PICO), PureDP.of(8))


def test_a_vehicle_beyond_its_budget_has_nothing_left():
    with pytest.raises(InsufficientBudgetError) as refusal:
        check_budget(picos(9 * PICO, 9 * PICO), picos(0, 1), PureDP.of(8))
    assert (refusal.value.remaining, refusal.value.requested) == (0, Fraction(1, PICO))


def test_a_release_without_vehicles_is_free():
    check_budget(picos(), picos(), PureDP.of(1))
    check_budget(picos(5, 5), picos(0, 0), PureDP.of(1))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=6), st.integers(1, 12)
)
def test_the_budget_is_enforced_for_every_vehicle(accounts, budget):
    spent, cost = picos(*(a for a, _ in accounts)), picos(*(b for _, b in accounts))
    if any(b > 0 and a + b > budget for a, b in accounts):
        with pytest.raises(InsufficientBudgetError):
            check_budget(spent, cost, PureDP(budget))
    else:
        check_budget(spent, cost, PureDP(budget))


def test_accounts_are_pinned_whatever_their_order():
    vehicle, loss = picos(3, 1, 2), picos(30, 10, 20)
    pinned = accounts_hash(vehicle, loss)
    assert accounts_hash(picos(1, 2, 3), picos(10, 20, 30)) == pinned
    assert accounts_hash(vehicle, picos(30, 10, 21)) != pinned
    assert accounts_hash(picos(3, 1, 4), loss) != pinned
    assert accounts_hash(picos(1, 2), picos(10, 20)) != pinned
    assert len(accounts_hash(picos(), picos())) == 64
