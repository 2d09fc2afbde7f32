"""Ceilings over all time, a year and a month: which charges count, in the city's own calendar."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import InsufficientBudgetError, UsageError
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.budget import BudgetPolicy, Promise, check_windows, month_of, remaining_loss
from trafficdp.privacy.loss import ZCDP, PureDP

POLICY = BudgetPolicy(PureDP.of(8), PureDP.of(4), PureDP.of(1), "America/Chicago")


def at(text):
    return datetime.fromisoformat(text)


def counts_in(window, instant):
    return month_of(instant, window.time_zone).startswith(window.months)


def test_a_policy_without_periods_has_one_window_that_holds_every_instant():
    (window,) = BudgetPolicy(PureDP.of(8)).windows(at("2026-11-21T08:00:00+00:00"))
    assert window.ceiling == PureDP.of(8)
    assert counts_in(window, datetime(1970, 1, 1, tzinfo=UTC))
    assert counts_in(window, datetime(2199, 1, 1, tzinfo=UTC))


def test_years_and_months_turn_at_midnight_in_the_city():
    # New Year in Chicago is six hours after New Year in UTC
    before, after = at("2027-01-01T05:59:59+00:00"), at("2027-01-01T06:00:00+00:00")
    assert [window.name for window in POLICY.windows(before)] == ["in all", "in 2026", "in 2026-12"]
    assert [window.name for window in POLICY.windows(after)] == ["in all", "in 2027", "in 2027-01"]
    for old, new in zip(POLICY.windows(before)[1:], POLICY.windows(after)[1:], strict=True):
        assert counts_in(old, before)
        assert not counts_in(old, after)
        assert counts_in(new, after)
        assert not counts_in(new, before)


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), st.integers(-400, 400))
def test_an_instant_counts_in_the_month_that_the_citys_calendar_says(now, days):
    now = now.replace(tzinfo=UTC)
    then = now + timedelta(days=days)
    local = [each.astimezone(ZoneInfo(POLICY.time_zone)) for each in (now, then)]
    _, year, month = POLICY.windows(now)
    assert counts_in(year, then) == (local[0].year == local[1].year)
    assert counts_in(month, then) == ((local[0].year, local[0].month) == (local[1].year, local[1].month))
    assert counts_in(month, now)


def test_an_instant_without_offset_is_refused():
    with pytest.raises(UsageError, match="no offset"):
        POLICY.windows(datetime(2026, 1, 1))


def picos(*epsilons):
    return np.array([PureDP.of(each).pico if each else 0 for each in epsilons], dtype=np.int64)


def test_the_least_remainder_is_what_is_left():
    windows = POLICY.windows(at("2026-11-21T08:00:00+00:00"))
    spent = [picos(7.5, 2, 0), picos(0.5, 3.5, 0), picos(0, 0.25, 0)]
    assert remaining_loss(windows, spent).tolist() == picos(0.5, 0.5, 1).tolist()
    spent[0] = picos(9, 2, 0)
    assert remaining_loss(windows, spent)[0] == 0


def test_every_ceiling_is_enforced_and_the_window_is_named():
    windows = POLICY.windows(at("2026-11-21T08:00:00+00:00"))
    nothing = picos(0, 0)
    check_windows(windows, [nothing] * 3, picos(1, 1))
    for place, spent, name in ((0, 7.5, None), (1, 3.5, "in 2026"), (2, 0.5, "in 2026-11")):
        before = [nothing, nothing, nothing]
        before[place] = picos(0, spent)
        check_windows(windows, before, picos(1, 0.5))
        with pytest.raises(InsufficientBudgetError) as refusal:
            check_windows(windows, before, picos(0, 0.5) + np.array([0, 1]))
        assert refusal.value.window == name
        assert float(refusal.value.remaining) == 0.5
        assert ("later period" in str(refusal.value)) == (name is not None)


def test_who_pays_nothing_is_never_in_the_way():
    windows = BudgetPolicy(PureDP.of(1)).windows(at("2026-11-21T08:00:00+00:00"))
    check_windows(windows, [picos(5, 0)], picos(0, 1))


def test_the_facts_of_a_promise_hold_what_is_set_of_its_policy():
    def facts_of(policy):
        facts = json.loads(json.dumps(Promise(policy, "120 km/h").facts()))
        assert Promise.from_facts(facts) == Promise(policy, "120 km/h")
        return facts

    def set_of(policy):
        return facts_of(policy)["promise"]["policy"]

    assert set_of(BudgetPolicy(PureDP.of(8))) == {"total": "epsilon 8"}
    assert BudgetPolicy(PureDP.of(8)).periodic is False
    assert POLICY.periodic is True
    assert set_of(POLICY) == {
        "total": "epsilon 8",
        "a_year": "epsilon 4",
        "a_month": "epsilon 1",
        "time_zone": "America/Chicago",
    }
    rho = BudgetPolicy(ZCDP(1), delta="1e-6", relation=NeighbouringRelation.ADD_OR_REMOVE_USER)
    assert set_of(rho)["total"] == "rho 0.000000000001"
    for policy, relation, kind in (
        (POLICY, "replace_user_values", "pure"),
        (rho, "add_or_remove_user", "zcdp"),
    ):
        # said whatever the defaults are
        facts = facts_of(policy)
        assert (facts["relation"], facts["loss_kind"]) == (relation, kind)
