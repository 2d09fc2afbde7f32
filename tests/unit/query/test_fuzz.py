"""Any text is a statement with priced questions, or one of our errors in one short line; nothing else.

Reading sees the text and the configuration alone; what an answer may reach is tested in test_arrangement.py.
"""

import logging
import random
import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.query.dialect import LONGEST_REFUSAL
from trafficdp.query.question import read_question
from trafficdp.query.recognise import is_priced
from trafficdp.query.statement import read_statement

CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
SEEDS = (
    CLAUSE + "cell, AVG(speed) FROM fixes GROUP BY cell",
    CLAUSE + "h3(6) AS cell, slot('hour_of_day') AS slot, COUNT(*) AS n, VAR_POP(speed) AS v, "
    "DP_INTERVAL_LOW(v), DP_INTERVAL_HIGH(v) FROM fixes GROUP BY cell, slot ORDER BY n DESC, v LIMIT 10",
    "EXPLAIN "
    + CLAUSE
    + "cell, STDDEV(speed), VEHICLE_AVG(speed) FROM fixes WHERE date BETWEEN '2026-03-03' "
    "AND DATE '2026-03-04' AND (weekday IN ('tuesday', 'wed') OR NOT hour BETWEEN 7 AND 9) GROUP BY ALL",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, min_vehicles = 3, interval_level = 0.9, "
    "speed_bound = 50, force = TRUE, delta = 0, privacy_unit_column = vehicle) cell, AVG(speed), "
    "COUNT(DISTINCT vehicle) FROM fixes WHERE area IN ('west', 'o''port') AND "
    "in_box(72.7, 21.1, 72.8, 21.2) AND h3(5) IN ('85428e8bfffffff') AND cell = '87428e8a0ffffff' "
    "GROUP BY 1;",
    "select with differential_privacy options (epsilon = 1) extract(hour from f.time) h, place, "
    "round(avg(f.speed), 1) as m, cast(stddev(speed) as integer) from fixes f where f.time between "
    "'2026-03-03 07:00' and timestamp '2026-03-03 11:59:59' group by 1, place having m > 20 and not "
    "(count(*) between 3 and -2) order by m desc limit 3",
    CLAUSE + "weekday, date, AVG(speed) FROM fixes WHERE time >= '2026-03-03' GROUP BY weekday",
    CLAUSE + "VEHICLE_AVG(speed), ROUND(COUNT(*)) FROM fixes",
    CLAUSE + 'cell AS "Where Is It", slot_label, status, AVG(speed) FROM fixes GROUP BY cell, slot -- end',
    f"SELECT a.m - b.m FROM ({CLAUSE} hour, AVG(speed) AS m FROM records GROUP BY hour) a JOIN ({CLAUSE} "
    "hour, CASE WHEN AVG(speed) > 30 THEN 1 ELSE AVG(speed) / 2 END AS m, RANK() OVER (ORDER BY AVG(speed)) "
    "FROM records GROUP BY hour QUALIFY RANK() OVER (ORDER BY AVG(speed)) < 3) b USING (hour) ORDER BY 1",
)
WORD_LIST = """
    SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET HAVING UNION ALL DISTINCT AS AND OR NOT IN BETWEEN
    LIKE IS NULL TRUE FALSE CASE WHEN THEN END CAST DATE TIMESTAMP INTERVAL EXPLAIN WITH
    DIFFERENTIAL_PRIVACY OPTIONS OVER PARTITION FILTER JOIN ON USING LATERAL UNNEST PIVOT QUALIFY WINDOW
    VALUES TABLE COPY ATTACH INSTALL PRAGMA SET cell slot slot_label hour weekday date area speed
    vehicle plate latitude longitude time records vehicles ledger AVG( SUM( MIN( COUNT( VAR_POP( STDDEV(
    MEDIAN( QUANTILE_CONT( LIST( STRING_AGG( h3( slot( in_box( area( DP_INTERVAL_LOW( DP_INTERVAL_HIGH(
    VEHICLE_AVG( ROUND( EXTRACT( INTEGER place minute
    read_csv( getenv( random( row_number( epsilon delta force ( ) [ ] { } , ; . * + - / % =
    <> < <= > >= :: || -> => := ? $1 @x #y `cell` "cell" 'west' 'it''s' '' ' " $$ /* */ -- 0 1 -1 7 15
    16 1e9 1e-9 1e400 0x1F 9999999999999999999999 0.1.2 NaN Infinity '2026-03-03' '2026-02-30' 'monday'
    '87428e8a0ffffff' 'ffffffffffffffff' 72.7 {{ }} {% %} \\ \0 \n \t é ß ∞ 𝕊 ‮ \ud800 \u2028
"""
WORDS = WORD_LIST.split()
WORDS += ["\0", "\ud800", "\u2028", "\u202e", " " * 50, "(" * 30, ")" * 30, "'" * 3]
PARTS = re.compile(r"\w+|\s+|.", re.DOTALL)
SENSITIVE = re.compile(r"hmac|key|[0-9a-f]{40}", re.IGNORECASE)


def mutant(chance: random.Random) -> str:
    """A question with one to six things wrong with it."""
    parts = PARTS.findall(chance.choice(SEEDS))
    for _ in range(min(chance.randint(1, 6), chance.randint(1, 6))):
        place = chance.randrange(len(parts) + 1)
        kind = chance.randrange(7)
        if kind == 0 and place < len(parts):
            del parts[place]
        elif kind == 1:
            parts.insert(place, chance.choice(WORDS))
        elif kind == 2 and place < len(parts):
            parts[place] = chance.choice(WORDS)
        elif kind == 3:
            other = PARTS.findall(chance.choice(SEEDS))
            start = chance.randrange(len(other))
            parts[place:place] = other[start : start + chance.randint(1, 12)]
        elif kind == 4 and len(parts) > 1:
            other = chance.randrange(len(parts))
            place %= len(parts)
            parts[place], parts[other] = parts[other], parts[place]
        elif kind == 5:
            parts = parts[: place + 1] or [" "]
        else:
            text = list("".join(parts) or " ")
            text[chance.randrange(len(text))] = chance.choice(string.printable)
            parts = PARTS.findall("".join(text))
    return "".join(parts)


def check(text, tried, config):
    """Try ``text``; return whether it is a statement with questions. All but that or a refusal fails."""
    is_priced(text)
    try:
        query = tried(text)
    except UsageError as error:
        message = str(error)
        assert message.isprintable()
        assert len(message) <= LONGEST_REFUSAL
        assert not SENSITIVE.search(message)
        return False
    for question in query.questions:
        (part,) = read_statement(question.to_sql(config)).parts
        again = read_question(part, config)
        assert again == question
        assert again.answer_config(config) == question.answer_config(config)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("mutants", [400, pytest.param(22_000, marks=pytest.mark.prove(minutes=10))])
def test_no_mutant_does_anything_but_ask_or_be_refused(config, tried, caplog, mutants):
    chance = random.Random(20261121)
    with caplog.at_level(logging.DEBUG):
        read = sum(check(mutant(chance), tried, config) for _ in range(mutants))
    # both ways are walked
    assert mutants / 100 < read < mutants / 2


PLATE, NUMBER = "QX9Z47", "470815"
SPELLED = (
    f"'{PLATE}'",
    f'"{PLATE}"',
    f"`{PLATE}`",
    f"= '{PLATE}' AND",
    f"$${PLATE}$$",
    f" {PLATE} ",
    f"{PLATE}(",
    f".{PLATE}",
    f" /* {PLATE} */ ",
    f"-- {PLATE}\n",
    f"'{PLATE}",
    f" = '{PLATE}', ",
    f" AS {PLATE} ",
    f"x'{PLATE}'",
    f"@{PLATE}",
    f" {NUMBER} ",
    f"-{NUMBER}",
)


@pytest.mark.slow
@pytest.mark.parametrize("every", [61, pytest.param(2, marks=pytest.mark.prove(minutes=9))])
def test_no_refusal_repeats_a_vehicle_that_was_typed_anywhere(tried, every):
    refusals = 0
    for seed in SEEDS:
        parts = PARTS.findall(seed)
        for place in range(len(parts) + 1):
            for plate in SPELLED[place % every :: every]:
                for kept in {place, min(place + 1, len(parts))}:
                    text = "".join([*parts[:place], plate, *parts[kept:]])
                    try:
                        tried(text)
                    except UsageError as error:
                        refusals += 1
                        said = str(error).upper()
                        assert PLATE not in said, text
                        assert NUMBER not in said, text
    assert refusals > 10_000 // every


@pytest.mark.slow
@given(st.text(max_size=300))
@settings(max_examples=examples(100))
@example("\ud800")
@example("SELECT WITH")
@example("")
def test_no_text_at_all_is_read(config, tried, text):
    assert not check(text, tried, config)


@pytest.mark.slow
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
@settings(max_examples=examples(200))
def test_no_words_after_the_clause_do_harm(config, tried, words):
    check(CLAUSE + words, tried, config)


CONDITIONS = st.recursive(
    st.one_of(
        st.builds("hour {} {}".format, st.sampled_from(["=", "<>", "<", ">="]), st.integers(0, 23)),
        st.builds("weekday = '{}'".format, st.sampled_from(["tuesday", "wednesday", "sun"])),
        st.builds(
            "hour IN ({})".format, st.lists(st.integers(0, 23), min_size=1).map(lambda x: str(x)[1:-1])
        ),
    ),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(CONDITIONS)
@settings(max_examples=examples(100))
def test_conditions_on_time_mean_what_sql_means(config, tried, read, where):
    text = CLAUSE + f"cell, AVG(speed) FROM fixes WHERE {where} GROUP BY cell"
    days = {1: "tuesday", 2: "wednesday"}

    def holds(day, hour):
        meant = re.sub(r"weekday = '(\w+)'", lambda found: str(days[day].startswith(found.group(1))), where)
        meant = meant.replace("<>", "!=").replace(" AND ", " and ").replace(" OR ", " or ")
        meant = re.sub(r"hour = ", "hour == ", meant).replace("NOT", "not").replace("IN (", "in (")
        meant = re.sub(r"in \((\d+)\)", r"in (\1,)", meant)
        return bool(eval(meant, {"hour": hour}))

    wanted = tuple(day * 24 + hour for day in days for hour in range(24) if holds(day, hour))
    if not wanted:
        assert not check(text, tried, config)
        return
    found = read(text).filter.selection.hours_of_week
    assert (found or tuple(range(24, 72))) == wanted
