"""Questions to a small city's vault: charged once, answered twice, kept like any release, leaking nothing."""

import json
import random
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import trafficdp
from trafficdp import curator as door
from trafficdp.errors import (
    AnalystBudgetError,
    InsufficientBudgetError,
    TrafficdpError,
    UninformativeReleaseError,
    UsageError,
)
from trafficdp.privacy.loss import PureDP
from trafficdp.query.explanation import Explanation

MEAN = "cell, AVG(speed) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM fixes GROUP BY cell"


def entries(city):
    return [json.loads(row[0]) for row in city.sql("SELECT entry FROM ledger ORDER BY sequence")]


def charges(city):
    return [entry for entry in entries(city) if entry["kind"] == "charge"]


def spent(city):
    """Every vehicle's account, in pico-epsilons."""
    return dict(city.sql("SELECT vehicle_id, sum(loss_pico)::BIGINT FROM vehicle_charges GROUP BY 1"))


def explained(found):
    assert isinstance(found, Explanation)
    return dict(zip(found.rows["what"].to_pylist(), found.rows["value"].to_pylist(), strict=True))


def test_an_answer_is_a_release_with_intervals_manifest_and_sql(city, clause):
    workspace = city.open()
    answered = workspace.ask(clause + MEAN, analyst="newsroom")
    frame = answered.to_frame()
    assert list(frame.columns) == ["cell", "m", "m_low", "m_high"]
    numbers = frame.dropna()
    assert len(numbers) > 2
    assert ((numbers["m_low"] <= numbers["m"]) & (numbers["m"] <= numbers["m_high"])).all()
    assert not [check for check in workspace.verify("r0001") if not check.passed]
    published = workspace.map("r0001").to_frame()
    assert published["h3"].tolist() == frame["cell"].tolist()
    assert np.array_equal(published["speed_mean_kmh"], frame["m"], equal_nan=True)
    manifest = json.loads((city.store / "releases" / "r0001" / "manifest.json").read_text())
    assert manifest["identity"]["question"].startswith(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8"
    )
    assert manifest["guarantee"]["epsilon"] == str(answered.charged)
    rows = city.sql("SELECT h3, speed_mean FROM cells WHERE release_id = 'r0001'", database="released")
    assert {h3 for h3, _ in rows} == set(frame["cell"])


def test_the_manifest_publishes_no_words_of_the_asker(city, clause):
    city.open().ask(
        clause + 'cell AS "my secret", AVG(speed) AS "bus KA01", COUNT(*) AS n FROM fixes GROUP BY cell '
        "ORDER BY n LIMIT 3 -- a remark",
        analyst="newsroom",
    )
    manifest = json.loads((city.store / "releases" / "r0001" / "manifest.json").read_text())
    assert manifest["identity"]["question"] == (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, force = TRUE) h3(7), AVG(speed), COUNT(*) "
        "FROM fixes GROUP BY h3(7)"
    )


def test_every_vehicle_is_charged_its_own_exact_loss_in_the_analysts_name(city, clause):
    answered = city.open().ask(clause + MEAN, analyst="NewsRoom")
    (charge,) = charges(city)
    assert charge["analyst"] == "newsroom"
    accounts = spent(city)
    assert charge["vehicles_charged"] == len(accounts)
    assert charge["epsilon_pico"] == max(accounts.values()) == answered.charged.pico
    assert answered.charged <= PureDP.of(8)


def test_the_same_question_again_costs_nothing_however_it_is_written(city, clause):
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
        assert answered.earlier
        assert answered.charged == PureDP(0)
        assert answered.release_id == first.release_id
    assert city.dump() == before
    assert len(charges(city)) == 1


@pytest.mark.parametrize(
    "other",
    [
        "OPTIONS (epsilon = 7.5, force = TRUE) cell, AVG(speed) FROM fixes GROUP BY cell",
        "OPTIONS (epsilon = 8, force = TRUE) h3(6), AVG(speed) FROM fixes GROUP BY h3(6)",
        "OPTIONS (epsilon = 8, force = TRUE) cell, VAR_POP(speed) FROM fixes GROUP BY cell",
        "OPTIONS (epsilon = 8, force = TRUE) cell, AVG(speed) FROM fixes WHERE hour < 11 GROUP BY cell",
        "OPTIONS (epsilon = 8, force = TRUE, min_vehicles = 4) cell, AVG(speed) FROM fixes GROUP BY cell",
        "OPTIONS (epsilon = 8, force = TRUE, speed_bound = 50) cell, AVG(speed) FROM fixes GROUP BY cell",
    ],
)
def test_another_question_is_another_charge(city, clause, other):
    workspace = city.open()
    workspace.ask(clause + MEAN, analyst="planning")
    answered = workspace.ask("SELECT WITH DIFFERENTIAL_PRIVACY " + other, analyst="planning")
    assert not answered.earlier
    assert answered.charged > PureDP(0)
    assert [charge["release"] for charge in charges(city)] == ["r0001", "r0002"]


def test_new_data_is_a_new_charge(city, clause):
    workspace = city.open()
    workspace.ask(clause + MEAN, analyst="planning")
    workspace.ingest([city.days[2]])
    answered = workspace.ask(clause + MEAN, analyst="planning")
    assert (answered.earlier, answered.release_id) == (False, "r0002")


def test_a_withdrawn_answer_is_gone(city, clause):
    workspace = city.open()
    workspace.ask(clause + MEAN, analyst="planning")
    workspace.withdraw("r0001")
    assert workspace.ask(clause + MEAN, analyst="planning").release_id == "r0002"


def test_an_ordinary_release_answers_the_question_that_it_is(city, clause):
    workspace = city.open()
    workspace.release(force=True)
    answered = workspace.ask(
        clause + "cell, AVG(speed), VAR_POP(speed) FROM fixes GROUP BY cell", analyst="newsroom"
    )
    assert answered.earlier
    assert len(charges(city)) == 1


def test_the_citys_own_map_stays_the_latest_and_the_question_is_in_the_manifest(city, clause):
    workspace = city.open()
    newest = "SELECT DISTINCT release_id FROM latest_cells"
    workspace.ask(clause + MEAN, analyst="newsroom")
    assert city.sql(newest, database="released") == [("r0001",)]
    workspace.release("2", force=True)
    workspace.ask(clause + "cell, AVG(speed) FROM fixes WHERE hour = 8 GROUP BY cell", analyst="planning")
    assert city.sql(newest, database="released") == [("r0002",)]
    said = dict(city.sql("SELECT release_id, selection FROM manifest", database="released"))
    assert said == {"r0001": None, "r0002": None, "r0003": "Tuesday and Wednesday 08:00-09:00"}
    asked = dict(city.sql("SELECT release_id, question FROM manifest", database="released"))
    assert asked["r0002"] is None
    assert asked["r0003"].endswith("FROM fixes WHERE hour = 8 GROUP BY h3(7)")


def test_conditions_restrict_what_is_counted_and_the_manifest_says_so(city, clause):
    workspace = city.open()
    everything = workspace.ask(clause + "cell, COUNT(*) AS n FROM fixes GROUP BY cell").to_frame()
    early = workspace.ask(
        clause + "cell, COUNT(*) AS n, AVG(speed) FROM fixes WHERE hour = 8 AND area = 'west' GROUP BY cell",
        analyst="planning",
    )
    assert 0 < early.to_frame()["n"].sum() < everything["n"].sum()
    coverage = json.loads((city.store / "releases" / "r0001" / "manifest.json").read_text())["coverage"]
    assert coverage["selection"]["in_words"] == "Tuesday and Wednesday 08:00-09:00; within west"
    assert not [check for check in workspace.verify("r0001") if not check.passed]
    (count,) = city.sql(
        "SELECT count(*) FROM fixes WHERE longitude <= 72.78 AND hour(make_timestamp(time_us) "
        "+ INTERVAL 330 MINUTE) = 8"
    )[0]
    assert early.to_frame()["n"].sum() == count


def test_counts_are_exact_and_free_and_said_to_be_public(city, clause):
    before = city.dump()
    answered = city.open().ask(
        clause + "cell, COUNT(*) AS n, COUNT(DISTINCT vehicle) AS v, DP_INTERVAL_LOW(n), status FROM fixes "
        "GROUP BY cell ORDER BY n DESC"
    )
    frame = answered.to_frame()
    (fixes,) = city.sql("SELECT count(*) FROM fixes")[0]
    assert frame["n"].sum() == fixes
    assert frame["n"].is_monotonic_decreasing
    assert (frame["n_low"] == frame["n"]).all()
    assert "public by assumption" in " ".join(answered.notes)
    assert answered.release is None
    assert {name: each for name, each in city.dump().items() if name != "contributions"} == before


def test_a_standard_deviation_is_the_root_of_the_variance_and_of_its_interval(city, clause):
    workspace = city.open()
    frame = workspace.ask(
        clause + "cell, VAR_POP(speed) v, DP_INTERVAL_LOW(v), DP_INTERVAL_HIGH(v), STDDEV(speed) s, "
        "DP_INTERVAL_LOW(s), DP_INTERVAL_HIGH(s) FROM fixes GROUP BY cell",
        analyst="newsroom",
    ).to_frame()
    numbers = frame.dropna()
    assert len(numbers) > 2
    assert np.allclose(numbers["s"], np.sqrt(numbers["v"]), atol=0.0005)
    assert (numbers["s_low"] ** 2 <= numbers["v_low"] + 1e-9).all()
    assert (numbers["s_high"] ** 2 >= numbers["v_high"] - 1e-9).all()
    assert np.allclose(numbers["s_high"], np.sqrt(numbers["v_high"]), atol=0.0011)


def test_rows_are_ordered_and_limited_as_asked_with_withheld_bins_last(city, clause):
    frame = (
        city.open()
        .ask(
            clause + "cell, AVG(speed) AS m, status FROM fixes GROUP BY cell ORDER BY m DESC",
            analyst="newsroom",
        )
        .to_frame()
    )
    numbers = frame["m"].dropna()
    assert numbers.is_monotonic_decreasing
    assert frame["m"].isna().tolist() == [False] * len(numbers) + [True] * (len(frame) - len(numbers))
    assert frame["status"].tolist()[-1] == "withheld"


def test_an_explanation_prices_exactly_and_spends_nothing(city, clause):
    workspace = city.open()
    before = city.dump()
    facts = explained(workspace.ask("EXPLAIN " + clause + MEAN, analyst="newsroom"))
    after = {name: each for name, each in city.dump().items() if name != "contributions"}
    assert after == {name: each for name, each in before.items() if name != "contributions"}
    assert facts["left for the analyst"] == "9"
    assert facts["left for every vehicle"] == "20"
    assert any(name.startswith("by accounting equal") for name in facts)
    answered = workspace.ask(clause + MEAN, analyst="newsroom")
    assert facts["cost"] == facts["largest loss of a vehicle"] == str(answered.charged)
    (charge,) = charges(city)
    assert facts["vehicles charged"] == str(charge["vehicles_charged"])
    released = answered.to_frame().dropna()
    assert facts["bins with numbers"] == str(len(released))
    widths = (released["m_high"] - released["m_low"]) / 2
    assert widths.max() <= float(facts["worst half width of the mean"]) * 1.001 + 0.001
    again = explained(workspace.ask("EXPLAIN " + clause + MEAN, analyst="newsroom"))
    assert (again["cost"], again["answered before"]) == ("0", "r0001")
    assert again["left for the analyst"] == str(PureDP(9 * 10**12 - answered.charged.pico))


def test_counts_are_explained_as_free(city, clause):
    facts = explained(city.open().ask("EXPLAIN " + clause + "cell, COUNT(*) FROM fixes GROUP BY cell"))
    assert facts["cost"] == "0"


def test_an_analyst_cannot_spend_more_than_its_own_budget(city, clause):
    workspace = city.open()
    workspace.ask(clause + MEAN, analyst="newsroom")
    before = city.dump()
    with pytest.raises(AnalystBudgetError, match="analyst newsroom") as caught:
        workspace.ask(clause + MEAN.replace("AVG", "VAR_POP"), analyst="newsroom")
    assert caught.value.exit_code == 3
    assert {k: v for k, v in city.dump().items() if k != "contributions"} == {
        k: v for k, v in before.items() if k != "contributions"
    }
    # another analyst's budget is another
    assert not workspace.ask(clause + MEAN.replace("AVG", "VAR_POP"), analyst="planning").earlier


def test_an_analyst_may_spend_exactly_its_budget(city):
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 4.5, force = TRUE) "
    workspace = city.open()
    workspace.ask(text + MEAN, analyst="newsroom")
    workspace.ask(text + MEAN.replace("AVG", "VEHICLE_AVG"), analyst="newsroom")
    (newsroom,) = workspace.status().analysts
    assert newsroom.largest_spent <= PureDP.of(9)
    assert newsroom.charges == 2


def test_the_vehicles_own_budget_binds_whatever_the_analysts_may_spend(city, clause):
    workspace = city.open()
    workspace.ask(clause + MEAN, analyst="planning")
    workspace.ask(clause + MEAN.replace("AVG", "VAR_POP"), analyst="planning")
    with pytest.raises(InsufficientBudgetError) as caught:
        workspace.ask(clause + MEAN.replace("AVG", "VEHICLE_AVG"), analyst="planning")
    assert not isinstance(caught.value, AnalystBudgetError)
    assert max(spent(city).values()) <= 20 * 10**12


def test_who_asks_must_be_known(city, clause):
    workspace = city.open()
    with pytest.raises(UsageError, match="nobody says who asks; expected one of newsroom, planning"):
        workspace.ask(clause + MEAN)
    with pytest.raises(UsageError, match="no such analyst; got mayor; expected one of newsroom, planning"):
        workspace.ask(clause + MEAN, analyst="mayor")
    assert charges(city) == []


def test_without_analysts_the_curator_asks(small_city, tmp_path, clause):
    plain = small_city.City(tmp_path / "plain")
    workspace = plain.open()
    workspace.ingest([plain.days[1]])
    workspace.ask(clause + MEAN)
    assert "analyst" not in charges(plain)[0]
    with pytest.raises(UsageError, match=r"no such analyst.*\[\[analysts\]\]"):
        workspace.ask(clause + MEAN, analyst="mayor")


def test_spending_is_shown_for_every_analyst(city, clause):
    workspace = city.open()
    one = workspace.ask(clause + MEAN, analyst="newsroom")
    workspace.release(force=True)
    (newsroom,) = workspace.status().analysts
    assert (newsroom.name, newsroom.charges, newsroom.largest_spent) == ("newsroom", 1, one.charged)
    assert newsroom.sum_of_maxima == one.charged


def test_an_answer_that_says_too_little_is_refused_with_one_that_would_not(city, clause):
    workspace = city.open()
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) " + MEAN
    with pytest.raises(UninformativeReleaseError) as caught:
        workspace.ask(text, analyst="newsroom")
    line = caught.value.todo.removeprefix("this would work: ")
    facts = explained(workspace.ask("EXPLAIN " + line, analyst="newsroom"))
    assert facts["verdict"] == "may be answered"
    assert charges(city) == []


@pytest.mark.parametrize(
    ("where", "options", "what"),
    [
        ("WHERE in_box(1, 1, 2, 2)", "", "no fix meets the conditions; got within in_box"),
        ("WHERE hour = 3", "", "no fix meets the conditions; got Tuesday and Wednesday 03:00-04:00"),
        ("", ", min_vehicles = 1000", "no hexagon has so many vehicles; got at most "),
    ],
)
def test_a_question_without_any_bin_is_refused_with_one_that_has(city, where, options, what):
    workspace = city.open()
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, force = TRUE{options}) cell, AVG(speed) "
    with pytest.raises(UsageError) as caught:
        workspace.ask(text + f"FROM fixes {where} GROUP BY cell", analyst="newsroom")
    assert what in str(caught.value)
    offered = caught.value.todo.removeprefix("this would work: ")
    assert workspace.ask(offered, analyst="newsroom").release_id == "r0001"


DIES = """
import os, signal, sys
import trafficdp
from trafficdp import curator

def reached(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

curator.reached = reached
trafficdp.open(sys.argv[1]).ask(sys.argv[3], analyst="newsroom")
"""


@pytest.mark.parametrize("boundary", door.BOUNDARIES)
def test_a_process_killed_after_the_charge_is_finished_by_the_next_command(city, clause, boundary):
    command = [sys.executable, "-c", DIES, str(city.config), boundary, clause + MEAN]
    killed = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    answered = city.open().ask(clause + MEAN, analyst="newsroom")
    assert answered.earlier
    assert answered.release_id == "r0001"
    assert [charge["analyst"] for charge in charges(city)] == ["newsroom"]
    assert max(spent(city).values()) <= 8 * 10**12
    assert not [check for check in city.open().verify("r0001") if not check.passed]


def test_racing_questions_are_charged_once(city, clause):
    found, wrong = [], []

    def ask():
        try:
            found.append(trafficdp.open(city.config, wait=60).ask(clause + MEAN, analyst="newsroom"))
        except TrafficdpError as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sorted(answered.earlier for answered in found) == [False, True, True, True]
    assert len({str(answered.to_frame().to_csv()) for answered in found}) == 1
    assert len(charges(city)) == 1


QUESTIONS = (
    "cell, AVG(speed) AS m, DP_INTERVAL_LOW(m) FROM fixes WHERE hour BETWEEN 8 AND 9 GROUP BY cell",
    "h3(6) AS cell, slot('day') AS slot, VAR_POP(speed), COUNT(*) FROM fixes GROUP BY cell, slot",
    "cell, STDDEV(speed) FROM fixes WHERE area = 'west' AND weekday = 'tuesday' GROUP BY cell ORDER BY 2",
    "cell, COUNT(DISTINCT vehicle) FROM fixes WHERE date = '2026-03-03' GROUP BY cell",
)
NOISE = (
    "speed",
    "vehicle",
    "latitude",
    "> 30",
    "OR",
    "NOT",
    "'",
    '"',
    "(",
    ")",
    ",",
    "*",
    "; SELECT 1",
    "UNION",
)
NOISE += ("epsilon = 0.01", "hour = 8", "SUM(speed)", "--", "/*", "FROM vehicles", "LIMIT 1", "h3(9)", "area")


@pytest.mark.slow
def test_no_text_reads_anything_uncharged_or_says_anything_of_a_vehicle(city, small_city):
    """Mutants of questions to a vault: accounts are those of the answers, and errors hold no value."""
    text = city.config.read_text().replace("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 1000000")
    city.config.write_text(text + '[[analysts]]\nname = "fuzz"\nepsilon_per_vehicle = 1000000\n')
    workspace = city.open()
    spelled = (*small_city.PLATES, small_city.LONELY)
    plates = {plate.upper().replace(" ", "").replace("-", "") for plate in spelled}
    values = {f"{speed / 100:.2f}" for (speed,) in city.sql("SELECT DISTINCT speed_centi FROM fixes")}
    places = city.sql("SELECT DISTINCT latitude FROM fixes UNION SELECT DISTINCT longitude FROM fixes")
    values |= {f"{degrees:g}" for (degrees,) in places}
    hashes = {bytes(each).hex() for (each,) in city.sql("SELECT hmac FROM vehicles")}
    chance = random.Random(7)
    total, refusals = 0, 0
    for number in range(300):
        parts = re.findall(r"\w+|\s+|.", chance.choice(QUESTIONS))
        for _ in range(chance.randint(0, 2)):
            place = chance.randrange(len(parts))
            parts[place : place + chance.randint(0, 2)] = [" ", chance.choice(NOISE), " "]
        options = f"OPTIONS (epsilon = {chance.choice([0.5, 1, 2])}, force = TRUE) "
        asked = "SELECT WITH DIFFERENTIAL_PRIVACY " + options + "".join(parts)
        try:
            answered = workspace.ask(asked, analyst="fuzz")
        except TrafficdpError as error:
            refusals += 1
            said = str(error).upper().replace(" ", "").replace("-", "")
            typed = asked.upper().replace(" ", "")
            assert not [each for each in plates if each in said]
            assert not [each for each in hashes if each.upper() in said]
            assert not [each for each in values if each in said and each not in typed]
            continue
        assert not isinstance(answered, Explanation)
        total += answered.charged.pico
        if answered.release is None:
            assert answered.charged == PureDP(0)
        if number % 50 == 0:
            assert sum(charge["epsilon_pico"] for charge in charges(city)) == total
    assert 50 < refusals < 280
    assert sum(charge["epsilon_pico"] for charge in charges(city)) == total > 0
    (fuzz,) = workspace.status().analysts
    assert fuzz.sum_of_maxima.pico == total
    assert max(spent(city).values()) <= total
