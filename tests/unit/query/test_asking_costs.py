"""Questions are charged once, in the name of who asks: the same again is free, whatever dies or races."""

import threading

import pytest

import trafficdp
from trafficdp.errors import AnalystBudgetError, InsufficientBudgetError, TrafficdpError, UsageError
from trafficdp.privacy.loss import PureDP
from trafficdp.release import curator as door

pytestmark = pytest.mark.usefixtures("tables_alone")


def test_every_vehicle_is_charged_its_own_exact_loss_in_the_analysts_name(city, small_city, clause, mean):
    found = city.open().ask(clause + mean, analyst="NewsRoom")
    (charge,) = small_city.charges(city)
    assert charge["analyst"] == "newsroom"
    accounts = small_city.spent(city)
    assert charge["vehicles_charged"] == len(accounts)
    assert charge["epsilon_pico"] == max(accounts.values()) == found.charged.pico
    assert found.charged <= PureDP.of(8)


def test_the_same_question_again_costs_nothing_however_it_is_written(city, small_city, clause):
    workspace = city.open()
    first = workspace.ask(
        clause + "cell, slot, AVG(speed) AS m FROM fixes WHERE hour BETWEEN 8 AND 11 AND area = 'west' "
        "GROUP BY cell, slot",
        analyst="newsroom",
    )
    before = city.dump()
    for again in (
        "h3(7) hexagon, slot_label, dp_interval_low(avg(speed)) FROM fixes WHERE area IN ('WEST') "
        "AND NOT (hour < 8 OR hour > 11) GROUP BY 1, slot ORDER BY 3 DESC LIMIT 3",
        "COUNT(*), AVG(speed) FROM fixes WHERE hour IN (11, 10, 9, 8) AND area = 'west' GROUP BY cell",
    ):
        answered = workspace.ask(clause + again, analyst="planning")
        assert answered.is_reused
        assert answered.charged == PureDP(0)
        assert answered.release_id == first.release_id
    assert city.dump() == before
    assert len(small_city.charges(city)) == 1


OTHERS = (
    "OPTIONS (epsilon = 2, force = TRUE) cell, AVG(speed) FROM fixes GROUP BY cell",
    "OPTIONS (epsilon = 1.5, force = TRUE) cell, AVG(speed) FROM fixes GROUP BY cell",
    "OPTIONS (epsilon = 2, force = TRUE) h3(6), AVG(speed) FROM fixes GROUP BY h3(6)",
    "OPTIONS (epsilon = 2, force = TRUE) cell, VAR_POP(speed) FROM fixes GROUP BY cell",
    "OPTIONS (epsilon = 2, force = TRUE) cell, AVG(speed) FROM fixes WHERE hour < 11 GROUP BY cell",
    "OPTIONS (epsilon = 2, force = TRUE, min_vehicles = 4) cell, AVG(speed) FROM fixes GROUP BY cell",
    "OPTIONS (epsilon = 2, force = TRUE, speed_bound = 50) cell, AVG(speed) FROM fixes GROUP BY cell",
)
"""Each differs from the first in one thing."""


def test_another_question_is_another_charge(city, small_city):
    workspace = city.open()
    for number, other in enumerate(OTHERS, 1):
        answered = workspace.ask("SELECT WITH DIFFERENTIAL_PRIVACY " + other, analyst="planning")
        assert (answered.is_reused, answered.release_id) == (False, f"r000{number}"), other
        assert answered.charged > PureDP(0)
    charges = [charge["release"] for charge in small_city.charges(city)]
    assert charges == [f"r000{number}" for number in range(1, len(OTHERS) + 1)]


def test_new_data_is_a_new_charge(answered, clause, mean):
    workspace = answered.open()
    workspace.ingest([answered.days[2]])
    again = workspace.ask(clause + mean, analyst="planning")
    assert (again.is_reused, again.release_id) == (False, "r0002")


def test_an_analyst_cannot_spend_more_than_its_own_budget(answered, clause, mean):
    workspace = answered.open()
    before = answered.dump()
    with pytest.raises(AnalystBudgetError, match="analyst newsroom") as caught:
        workspace.ask(clause + mean.replace("AVG", "VAR_POP"), analyst="newsroom")
    assert caught.value.exit_code == 3
    assert answered.dump() == before
    # another analyst's budget is another
    assert not workspace.ask(clause + mean.replace("AVG", "VAR_POP"), analyst="planning").is_reused


def test_an_analyst_may_spend_exactly_its_budget(city, mean):
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 4.5, force = TRUE) "
    workspace = city.open()
    workspace.ask(text + mean, analyst="newsroom")
    workspace.ask(text + mean.replace("AVG", "VEHICLE_AVG"), analyst="newsroom")
    (newsroom,) = workspace.status().analysts
    assert newsroom.largest_spent <= PureDP.of(9)
    assert newsroom.charges == 2


def test_the_vehicles_own_budget_binds_whatever_the_analysts_may_spend(answered, small_city, clause, mean):
    workspace = answered.open()
    workspace.ask(clause + mean.replace("AVG", "VAR_POP"), analyst="planning")
    with pytest.raises(InsufficientBudgetError) as caught:
        workspace.ask(clause + mean.replace("AVG", "VEHICLE_AVG"), analyst="planning")
    assert not isinstance(caught.value, AnalystBudgetError)
    assert max(small_city.spent(answered).values()) <= 20 * 10**12


def test_who_asks_must_be_known(city, small_city, clause, mean):
    workspace = city.open()
    with pytest.raises(UsageError, match="nobody says who asks; expected one of newsroom, planning"):
        workspace.ask(clause + mean)
    with pytest.raises(UsageError, match="no such analyst; got mayor; expected one of newsroom, planning"):
        workspace.ask(clause + mean, analyst="mayor")
    assert small_city.charges(city) == []


def test_without_analysts_the_curator_asks(small_city, tmp_path, clause, mean):
    plain = small_city.City(tmp_path / "plain")
    workspace = plain.open()
    workspace.ingest([plain.days[1]])
    workspace.ask(clause + mean)
    assert "analyst" not in small_city.charges(plain)[0]
    with pytest.raises(UsageError, match=r"no such analyst.*\[\[analysts\]\]"):
        workspace.ask(clause + mean, analyst="mayor")


def test_spending_is_shown_for_every_analyst(answered, small_city):
    workspace = answered.open()
    workspace.release(force=True)
    (newsroom,) = workspace.status().analysts
    spent = PureDP(small_city.charges(answered)[0]["epsilon_pico"])
    assert (newsroom.name, newsroom.charges, newsroom.largest_spent) == ("newsroom", 1, spent)
    assert newsroom.sum_of_maxima == spent


class Died(BaseException):
    """What is raised where a process would die; test_quantiles.py kills one, tests/crash kills everywhere."""


@pytest.mark.parametrize("boundary", ["values drawn", "values committed"])
def test_what_died_after_the_charge_is_finished_by_the_next_command(
    city, small_city, clause, mean, boundary, monkeypatch
):
    def reached(name):
        if name == boundary:
            raise Died

    assert boundary in door.BOUNDARIES
    with monkeypatch.context() as patched:
        patched.setattr(door, "failpoint", reached)
        with pytest.raises(Died):
            city.open().ask(clause + mean, analyst="newsroom")
    answered = city.open().ask(clause + mean, analyst="newsroom")
    assert answered.is_reused
    assert answered.release_id == "r0001"
    assert [charge["analyst"] for charge in small_city.charges(city)] == ["newsroom"]
    assert max(small_city.spent(city).values()) <= 8 * 10**12
    assert not [check for check in city.open().verify("r0001") if not check.passed]


def test_racing_questions_are_charged_once(city, small_city, clause, mean):
    found, wrong = [], []

    def ask():
        try:
            found.append(trafficdp.open(city.config, wait=60).ask(clause + mean, analyst="newsroom"))
        except TrafficdpError as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sorted(answered.is_reused for answered in found) == [False, True, True]
    assert len({str(answered.to_frame().to_csv()) for answered in found}) == 1
    assert len(small_city.charges(city)) == 1
