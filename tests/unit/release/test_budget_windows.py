"""The budget's calendar at charge time, and Tuesday's map that charges only Tuesday's vehicles."""

import json
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import InsufficientBudgetError, StoreDamagedError, UsageError
from trafficdp.store import vault_ledger
from trafficdp.store.vault import Vault

pytestmark = pytest.mark.usefixtures("tables_alone")
PICO = 10**12


@pytest.fixture
def clock(monkeypatch):
    """``clock(text)``: what time it is from now on, everywhere a workspace looks."""

    def clock(text):
        instant = datetime.fromisoformat(text)

        class Stopped(datetime):
            @classmethod
            def now(cls, tz=None):
                return instant.astimezone(tz or UTC)

        for module in ("workspace", "release.planning", "release.status"):
            monkeypatch.setattr(f"trafficdp.{module}.datetime", Stopped)

    return clock


def budget(total, **ceilings):
    """The value of [budget] epsilon_per_vehicle in the small city's configuration, and lines after it."""
    lines = [str(total), *(f"epsilon_per_vehicle_a_{name} = {value}" for name, value in ceilings.items())]
    return "\n".join(lines)


def test_a_years_ceiling_is_kept_and_comes_back_with_the_next_year(filled, clock):
    workspace = filled.open(budget=budget(30, year=8))
    clock("2026-06-01T12:00:00+00:00")
    workspace.release(again=True, force=True)
    before = filled.dump()
    with pytest.raises(InsufficientBudgetError) as refusal:
        workspace.release(again=True, force=True)
    assert refusal.value.window == "in 2026"
    assert refusal.value.remaining == 0
    assert "later period" in str(refusal.value)
    assert filled.dump() == before
    clock("2027-01-01T12:00:00+00:00")
    workspace.release(again=True, force=True)


def test_a_year_begins_at_midnight_in_the_city(filled, clock):
    workspace = filled.open(budget=budget(30, year=8))
    clock("2026-12-31T18:29:00+00:00")
    workspace.release(again=True, force=True)
    # one minute later it is 2027 in Kolkata
    clock("2026-12-31T18:30:00+00:00")
    workspace.release(again=True, force=True)
    with pytest.raises(InsufficientBudgetError):
        workspace.release(again=True, force=True)


def test_no_calendar_refreshes_the_total(filled, clock):
    workspace = filled.open(budget=budget(20, year=8))
    for year in (2026, 2027):
        clock(f"{year}-06-01T12:00:00+00:00")
        workspace.release(again=True, force=True)
    clock("2028-06-01T12:00:00+00:00")
    with pytest.raises(InsufficientBudgetError) as refusal:
        workspace.release(again=True, force=True)
    assert refusal.value.window is None
    assert refusal.value.remaining == 4
    assert refusal.value.requested == 8


def test_a_months_ceiling_holds_within_the_years(filled, clock):
    workspace = filled.open(budget=budget(30, year=20, month=8))
    for month in (1, 2):
        clock(f"2026-{month:02d}-05T12:00:00+00:00")
        workspace.release(again=True, force=True)
        with pytest.raises(InsufficientBudgetError) as refusal:
            workspace.release("1.5", force=True)
        assert refusal.value.window == f"in 2026-{month:02d}"
    clock("2026-03-05T12:00:00+00:00")
    with pytest.raises(InsufficientBudgetError) as refusal:
        workspace.release(again=True, force=True)
    assert refusal.value.window == "in 2026"
    assert refusal.value.remaining == 4


def test_spending_exactly_a_ceiling_succeeds(filled, clock):
    workspace = filled.open(budget=budget(30, month=9))
    clock("2026-01-05T12:00:00+00:00")
    workspace.release(again=True, force=True)
    workspace.release("1", force=True)
    with pytest.raises(InsufficientBudgetError) as refusal:
        workspace.release("0.000001", force=True)
    assert refusal.value.remaining == 0


def test_a_clock_that_was_set_back_opens_no_old_budget(filled, clock):
    workspace = filled.open(budget=budget(30, year=8))
    clock("2027-01-05T12:00:00+00:00")
    workspace.release(again=True, force=True)
    before = filled.dump()
    clock("2026-01-05T12:00:00+00:00")
    with pytest.raises(UsageError, match="clock is behind the ledger"):
        workspace.release(again=True, force=True)
    assert filled.dump() == before


def test_a_clock_set_forward_and_back_refills_no_budget(filled, clock):
    """What it opens early is spent early: of every year no more than its ceiling, and none twice."""
    workspace = filled.open(budget=budget(100, year=8))
    spent = set()
    for year in (2026, 2028, 2026, 2027, 2028, 2029, 2026, 2028, 2029):
        clock(f"{year}-06-01T12:00:00+00:00")
        with suppress(InsufficientBudgetError, UsageError):
            workspace.release(again=True, force=True)
            assert year not in spent
            assert year >= max(spent, default=year)
            spent.add(year)
        assert [row.sequence for row in workspace.ledger()] == [*range(1, 1 + len(workspace.ledger()))]
    assert spent == {2026, 2028, 2029}
    assert all(check.passed for check in workspace.verify("r0003"))


CALENDAR = budget(100, year=60, month=30)
WITHOUT_SUMS = {
    "none are kept": "DROP TABLE spending_a_month",
    "they were emptied": "DELETE FROM spending_a_month",
    "another charged": "DELETE FROM spending_a_month WHERE month = (SELECT max(month) FROM spending_a_month)",
    "a calendar of elsewhere": "UPDATE spending_a_month SET time_zone = 'UTC'",
}


def said_in(city, policy):
    """What is spent and left in the month, the year and in all, at some instants."""
    with Vault.open(city.store) as vault:
        found = []
        for text in ("2026-01-05", "2026-03-31", "2026-04-01", "2027-01-01"):
            windows = policy.windows(datetime.fromisoformat(text + "T00:00:00+00:00"))
            spent = [vault_ledger.spent(vault, np.arange(40), each) for each in windows]
            largest = [vault_ledger.largest_spent_in(vault, window) for window in windows[1:]]
            assert largest == [each.max() for each in spent[1:]]
            found.append([each.tolist() for each in spent])
        return found


def test_sums_of_months_say_what_adding_up_says(filled, clock, small_city, tmp_path):
    """March ends in Kolkata when it is still March in UTC."""
    workspace = filled.open(budget=CALENDAR)
    for text in ("01-05T12:00", "03-31T18:00", "03-31T19:00", "04-02T01:00"):
        clock(f"2026-{text}:00+00:00")
        workspace.release("3", again=True, force=True)
    policy = workspace.config.policy
    before = said_in(filled, policy)
    kept = filled.sql("SELECT month, max(charges) FROM spending_a_month GROUP BY month ORDER BY month")
    assert kept == [("2026-01", 1), ("2026-03", 1), ("2026-04", 2)]
    assert max(before[2][2]) == 2 * max(before[1][2]) > 0
    clock("2026-05-02T12:00:00+00:00")
    for what, statement in WITHOUT_SUMS.items():
        city = small_city.at(shutil.copytree(filled.folder, tmp_path / what))
        city.sql(statement)
        assert said_in(city, policy) == before, what
        # the next charge keeps them again
        workspace = city.open()
        workspace.release("3", again=True, force=True)
        assert city.sql("SELECT DISTINCT time_zone FROM spending_a_month") == [("Asia/Kolkata",)], what
        assert city.sql("SELECT sum(charges) FROM spending_a_month") == city.sql(
            "SELECT count(*) FROM vehicle_charges"
        )
        assert all(check.passed for check in workspace.verify("r0005")), what


def test_a_sum_of_a_month_that_was_altered_is_found(filled, clock):
    workspace = filled.open(budget=CALENDAR)
    clock("2026-01-05T12:00:00+00:00")
    workspace.release("3", again=True, force=True)
    assert all(check.passed for check in workspace.verify("r0001"))
    for column in ("loss_pico", "newest_us"):
        filled.sql(f"UPDATE spending_a_month SET {column} = {column} - 1")
        found = []
        with suppress(StoreDamagedError):
            found = workspace.verify("r0001")
        assert not any(check.passed for check in found[:1]), column
        filled.sql(f"UPDATE spending_a_month SET {column} = {column} + 1")


def test_without_a_calendar_the_clock_does_not_matter(filled, clock):
    workspace = filled.open(budget=20)
    clock("2027-01-05T12:00:00+00:00")
    workspace.release(again=True, force=True)
    clock("2026-01-05T12:00:00+00:00")
    workspace.release(again=True, force=True)


def test_what_is_left_in_the_present_month_is_what_the_plan_says(filled, clock):
    workspace = filled.open(budget=budget(30, year=20, month=9))
    clock("2026-01-05T12:00:00+00:00")
    workspace.release(again=True, force=True)
    plan = workspace.plan(suggestions=False)
    assert str(plan.budget_left) == "1"
    assert plan.affordable.short > 0
    assert plan.affordable.loss.exact >= 1
    clock("2026-02-05T12:00:00+00:00")
    assert str(workspace.plan(suggestions=False).budget_left) == "9"


def test_the_policy_is_in_the_ledger_the_manifest_and_the_status(filled, clock):
    workspace = filled.open(budget=budget(30, year=20, month=9))
    clock("2026-01-05T12:00:00+00:00")
    release = workspace.release(again=True, force=True)
    promise = [row.facts for row in workspace.ledger() if row.facts["kind"] == "promise"][-1]
    assert promise["promise"]["policy"] == {
        "total": "epsilon 30",
        "a_year": "epsilon 20",
        "a_month": "epsilon 9",
        "time_zone": "Asia/Kolkata",
    }
    manifest = json.loads((release.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["accounting"]["periodic_budget"] == {
        "a_year": "20",
        "a_month": "9",
        "time_zone": "Asia/Kolkata",
    }
    year, month = workspace.status().windows
    assert (year.name, str(year.ceiling), str(year.largest_spent)) == ("in 2026", "20", "8")
    assert (month.name, str(month.ceiling), str(month.largest_spent)) == ("in 2026-01", "9", "8")
    assert all(check.passed for check in workspace.verify(release.id))


def test_a_manifest_without_calendar_says_nothing_of_one(released):
    manifest = json.loads((released.store / "releases/r0001/manifest.json").read_text(encoding="utf-8"))
    assert "periodic_budget" not in manifest["accounting"]


def test_tuesdays_map_charges_only_tuesdays_vehicles_and_its_plan_knows(filled, small_city):
    """Vehicles 6 to 10 drive on both days, 11 to 15 on the second alone."""
    filled.open(budget=12).ingest([filled.days[2]])
    workspace = filled.open(first="2026-03-03", last="2026-03-03", budget=12)
    workspace.release(again=True, force=True)
    first = {vehicle for vehicle, charged in small_city.charges_by_plate_order(filled).items() if charged}
    second_day = filled.open(first="2026-03-04", last="2026-03-04", budget=12)
    plan = second_day.plan("8", suggestions=False)
    # who drove on the first day as well has not enough left, the others all of it
    assert 0 < plan.affordable.short < plan.affordable.paying
    assert plan.affordable.empty == 0
    able = plan.affordable.loss
    assert Fraction(4) <= able.exact < 8
    with pytest.raises(InsufficientBudgetError):
        second_day.release("8", force=True)
    release = second_day.release("8", within_budget=True, force=True)
    charges = small_city.charges_by_plate_order(filled)
    assert max(sum(each.values()) for each in charges.values()) <= 12 * PICO
    newcomers = {vehicle for vehicle, each in charges.items() if len(each) == 1 and vehicle not in first}
    assert len(newcomers) == 5
    # each paid its own loss: the guarantee of the map is the largest, and it is what was planned
    assert release.release.disclosure.guarantee.epsilon == str(able)
