"""Whatever is asked: accounts are those of the answers, and no error says anything of a vehicle."""

import random
import re

import pytest

from trafficdp.errors import TrafficdpError
from trafficdp.privacy.loss import PureDP
from trafficdp.query.answer import Explanation

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
@pytest.mark.parametrize("questions", [20, pytest.param(300, marks=pytest.mark.prove(minutes=3))])
def test_no_text_reads_anything_uncharged_or_says_anything_of_a_vehicle(city, small_city, questions):
    """Mutants of questions to a vault: accounts are those of the answers, and errors hold no value."""
    text = city.config.read_text().replace("[privacy]\n", "[privacy]\naccept_weak_promise = true\n")
    text = text.replace("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 1000000")
    city.config.write_text(text + '[[analysts]]\nname = "fuzz"\nepsilon_per_vehicle = 1000000\n')
    workspace = city.open()
    workspace.raise_budget("every question is answered")
    spelled = (*small_city.PLATES, small_city.LONELY)
    plates = {plate.upper().replace(" ", "").replace("-", "") for plate in spelled}
    values = {f"{speed / 100:.2f}" for (speed,) in city.sql("SELECT DISTINCT speed_centi FROM fixes")}
    places = city.sql("SELECT DISTINCT latitude FROM fixes UNION SELECT DISTINCT longitude FROM fixes")
    values |= {f"{degrees:g}" for (degrees,) in places}
    hashes = {bytes(each).hex() for (each,) in city.sql("SELECT hmac FROM vehicles")}
    chance = random.Random(7)
    total, refusals = 0, 0
    for number in range(questions):
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
        if number % 20 == 0:
            assert sum(charge["epsilon_pico"] for charge in small_city.charges(city)) == total
    assert questions / 6 < refusals < questions * 14 / 15
    assert sum(charge["epsilon_pico"] for charge in small_city.charges(city)) == total > 0
    (fuzz,) = workspace.status().analysts
    assert fuzz.sum_of_maxima.pico == total
    assert max(small_city.spent(city).values()) <= total
