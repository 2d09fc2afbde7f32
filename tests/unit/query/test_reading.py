"""What the dialect takes, in one normal form, and what it refuses with one thing that works."""

import re
from datetime import date
from fractions import Fraction

import pytest
import shapely

from trafficdp.binning.cells import cells_of
from trafficdp.model import SlotKind, Statistic
from trafficdp.privacy.loss import PureDP
from trafficdp.query.arrangement import sql_of
from trafficdp.query.dialect import Kind
from trafficdp.query.recognise import is_priced
from trafficdp.query.statement import read_statement

FORM = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "


def test_a_question_says_grid_statistics_and_epsilon(read):
    question = read(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1.5, min_vehicles = 4, interval_level = 0.9) "
        "h3(6) AS cell, slot('hour_of_day') AS slot, COUNT(*) AS n, AVG(speed), VAR_POP(speed) AS v, "
        "DP_INTERVAL_LOW(v), DP_INTERVAL_HIGH(AVG(speed)) FROM records GROUP BY cell, slot "
        "ORDER BY n DESC, 4 LIMIT 10"
    )
    assert question.options.epsilon == PureDP.of("1.5")
    assert question.options.min_vehicles == 4
    assert question.options.interval_level == Fraction(9, 10)
    assert (question.resolution, question.slot_kind, question.by_slot) == (6, SlotKind.HOUR_OF_DAY, True)
    assert question.statistics == (Statistic.MEAN, Statistic.VARIANCE)
    assert question.kinds == (Kind.RECORDS, Kind.MEAN, Kind.VARIANCE)
    assert sql_of(question.arrangement) == (
        'SELECT "cell" AS "cell", "slot" AS "slot", "COUNT(*)" AS "n", "AVG(speed)" AS "speed_mean_kmh", '
        '"VAR_POP(speed)" AS "v", "DP_INTERVAL_LOW(VAR_POP(speed))" AS "v_low", '
        '"DP_INTERVAL_HIGH(AVG(speed))" AS "speed_mean_kmh_high" FROM "answer" '
        "ORDER BY n DESC, 4 LIMIT 10"
    )


@pytest.mark.parametrize(
    "text",
    [
        FORM + "cell, AVG(speed) FROM fixes GROUP BY cell",
        "select with differential_privacy options(epsilon=1)cell,avg(speed)from fixes group by cell;",
        FORM + "h3(7), AVG(speed) FROM fixes GROUP BY h3(7)",
        FORM + "cell, AVG(speed) AS speed_mean_kmh FROM fixes GROUP BY 1",
        FORM + "cell, (AVG((speed))) FROM fixes GROUP BY ALL",
        FORM + "/* where */ cell, -- what\n AVG(fixes.speed) FROM FIXES GROUP BY (cell)",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1.0, delta = 0, privacy_unit_column = vehicle) "
        '"cell", AVG("speed") FROM "fixes" GROUP BY cell',
        FORM + "cell, AVG(speed) FROM fixes WHERE hour >= 0 AND date >= '2026-03-03' GROUP BY cell",
        FORM + "cell, AVG(speed) FROM fixes WHERE date BETWEEN '2020-01-01' AND '2030-12-31' GROUP BY cell",
        FORM + "cell, AVG(speed) FROM fixes WHERE weekday IN ('tuesday', 'wednesday') GROUP BY cell",
    ],
)
def test_spelling_makes_no_difference(read, text):
    assert read(text) == read(FORM + "cell, AVG(speed) FROM fixes GROUP BY cell")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hour IN (7, 8) AND weekday = 'wed'", "weekday = 'Wednesday' AND hour BETWEEN 7 AND 8"),
        ("hour IN (7, 8)", "hour >= 7 AND 9 > hour"),
        ("NOT hour < 22", "hour IN (23, 22)"),
        ("hour <> 3 AND NOT (hour = 4 OR hour = 5)", "hour NOT IN (5, 4, 3)"),
        ("(weekday = 'tuesday' AND hour = 7) OR hour = 8", "hour = 8 OR hour = 7 AND weekday <> 'wednesday'"),
        ("date = '2026-03-03'", "date < DATE '2026-03-04'"),
        ("date > '2026-03-03'", "date IN ('2026-03-04')"),
        ("area = 'west'", "area IN ('WEST', 'west')"),
        ("area IN ('west', 'o''port')", "area IN ('O''Port', 'West')"),
        ("area = 'west' AND hour = 8", "hour = 8 AND area = 'west' AND area = 'west'"),
        ("in_box(72.7, 21.1, 72.8, 21.2)", "in_box(72.70, 21.10, 72.80, 21.2e0)"),
        ("cell IN ('87428e8a0ffffff', '87428e8a1ffffff')", "h3(7) IN ('87428E8A1FFFFFF', '87428e8a0ffffff')"),
        ("date = '2026-03-03' AND weekday = 'tuesday'", "date = '2026-03-03'"),
    ],
)
def test_the_order_and_form_of_conditions_make_no_difference(read, one, other):
    asked = [
        read(FORM + f"cell, AVG(speed) FROM fixes WHERE {where} GROUP BY cell") for where in (one, other)
    ]
    assert asked[0] == asked[1]
    assert asked[0] != read(FORM + "cell, AVG(speed) FROM fixes GROUP BY cell")


def test_a_condition_selects_what_it_says(read, config):
    question = read(
        FORM + "cell, AVG(speed) FROM fixes WHERE date = '2026-03-04' AND hour BETWEEN 7 AND 9 "
        "AND area IN ('west', 'o''port') AND h3(5) = '85428e8bfffffff' GROUP BY cell"
    )
    grid = question.grid(config)
    assert (grid.period.first, grid.period.last) == (date(2026, 3, 4), date(2026, 3, 4))
    # a Wednesday
    assert grid.selection.hours_of_week == (2 * 24 + 7, 2 * 24 + 8, 2 * 24 + 9)
    assert [place.name for place in grid.selection.places[0]] == ["O'Port", "west"]
    assert grid.selection.cells == (0x85428E8BFFFFFFF,)
    assert grid.area == config.grid.area


def test_an_explanation_asks_the_same_question(read, config):
    text = "cell, AVG(speed) FROM fixes GROUP BY cell"
    explained, asked = read("explain " + FORM + text), read(FORM + text)
    assert read_statement("explain " + FORM + text).explain
    assert explained.answer_config(config) == asked.answer_config(config)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (Kind.VARIANCE, "VAR_POP(speed)"),
        (Kind.STDDEV, "STDDEV(speed)"),
        (Kind.STDDEV, "STDDEV_POP(speed)"),
        (Kind.VEHICLE_MEAN, "VEHICLE_AVG(speed)"),
        (Kind.RECORDS, "COUNT(*)"),
        (Kind.VEHICLES, "COUNT(DISTINCT vehicle)"),
    ],
)
def test_every_statistic_can_be_asked(read, kind, written):
    question = read(FORM + f"cell, {written}, DP_INTERVAL_LOW({written}) FROM fixes GROUP BY cell")
    assert question.kinds == (kind,)
    assert (kind.statistic is None) == (question.statistics == ())


def test_counts_need_no_epsilon(read):
    question = read("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS () cell, COUNT(*) FROM fixes GROUP BY cell")
    assert question.statistics == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "after its clause"),
        ("cell, AVG(speed)", "FROM records alone"),
        ("cell, AVG(speed) FROM vehicles GROUP BY cell", "FROM records alone"),
        ("cell, AVG(speed) FROM vault.fixes GROUP BY cell", "FROM records alone"),
        ("cell, AVG(speed) FROM read_csv('/etc/passwd') GROUP BY cell", "FROM records alone"),
        ("cell, AVG(speed) FROM (SELECT * FROM fixes) GROUP BY cell", "FROM fixes"),
        ("cell, AVG(speed) FROM fixes JOIN ledger ON TRUE GROUP BY cell", "JOIN: records are asked alone"),
        ("cell, AVG(speed) FROM fixes, vehicles GROUP BY cell", "JOIN: records are asked alone"),
        ("cell, AVG(speed) FROM fixes GROUP BY cell UNION SELECT * FROM fixes", "there is no such table"),
        ("cell, AVG(speed) FROM fixes GROUP BY cell; DROP TABLE fixes", "one statement"),
        ("* FROM fixes", "single records"),
        ("fixes.* FROM fixes", "single records"),
        ("cell, speed FROM fixes GROUP BY cell", "single speeds"),
        ("cell, vehicle, AVG(speed) FROM fixes GROUP BY cell, vehicle", "groups are hexagons"),
        ("cell, latitude, AVG(speed) FROM fixes GROUP BY cell", "single records"),
        ("cell, password, AVG(speed) FROM fixes GROUP BY cell", "no such column"),
        ("cell, SUM(speed) FROM fixes GROUP BY cell", "not measured"),
        ("cell, MIN(speed), MAX(speed) FROM fixes GROUP BY cell", "not measured"),
        ("cell, MODE(speed) FROM fixes GROUP BY cell", "not measured"),
        ("cell, AVG(speed) OVER () FROM fixes GROUP BY cell", "single speeds"),
        ("cell, AVG(speed) FILTER (WHERE speed > 3) FROM fixes GROUP BY cell", "FILTER: it is about records"),
        ("cell, AVG(DISTINCT speed) FROM fixes GROUP BY cell", "those of speed"),
        ("cell, AVG(speed * speed) FROM fixes GROUP BY cell", "those of speed"),
        ("cell, AVG(latitude) FROM fixes GROUP BY cell", "those of speed"),
        ("cell, VAR_SAMP(speed) FROM fixes GROUP BY cell", "not of a sample"),
        ("cell, COUNT(speed) FROM fixes GROUP BY cell", "are counted"),
        ("cell, COUNT(DISTINCT speed) FROM fixes GROUP BY cell", "are counted"),
        ("cell, VEHICLE_AVG(latitude) FROM fixes GROUP BY cell", "those of speed"),
        ("cell, getenv('HOME'), AVG(speed) FROM fixes GROUP BY cell", "no such function"),
        (
            "cell, (SELECT max(speed) FROM fixes) FROM fixes GROUP BY cell",
            "only the priced SELECT reads records",
        ),
        ("cell, CASE WHEN speed > 3 THEN 1 END, AVG(speed) FROM fixes GROUP BY cell", "single speeds"),
        ("cell, DP_INTERVAL_LOW(cell) FROM fixes GROUP BY cell", "only statistics"),
        ("cell, DP_INTERVAL_LOW(nothing) FROM fixes GROUP BY cell", "only statistics"),
        ("cell, DP_INTERVAL_LOW(AVG(speed), 3) FROM fixes GROUP BY cell", "of one column"),
        ("cell FROM fixes GROUP BY cell", "no statistic"),
        ("cell, AVG(speed) FROM fixes", "not grouped by"),
        ("cell, slot, AVG(speed) FROM fixes GROUP BY cell", "not grouped by"),
        ("cell, AVG(speed) FROM fixes GROUP BY cell, AVG(speed)", "groups are"),
        ("cell, AVG(speed) FROM fixes GROUP BY ROLLUP (cell)", "groups are"),
        ("cell, AVG(speed) FROM fixes GROUP BY 3", "from 1 to 2"),
        ("FROM fixes GROUP BY 1", "groups are"),
        ("h3(7), AVG(speed) FROM fixes GROUP BY h3(8)", "one resolution at a time"),
        ("h3(16), AVG(speed) FROM fixes GROUP BY 1", "from 0 to 15"),
        ("h3(6.5), AVG(speed) FROM fixes GROUP BY 1", "from 0 to 15"),
        ("h3('6'), AVG(speed) FROM fixes GROUP BY 1", "number that is written out"),
        ("cell, slot('minute') s, AVG(speed) FROM fixes GROUP BY cell, s", "no such kind of slot"),
        ("cell, slot(hour) s, AVG(speed) FROM fixes GROUP BY cell, s", "text in single quotes"),
        ("cell, AVG(speed) FROM fixes GROUP BY cell ORDER BY speed", "single speeds"),
        ("cell, AVG(speed) FROM fixes GROUP BY cell LIMIT -1", "LIMIT: "),
        ("cell, AVG(speed) FROM fixes WHERE speed > 3 GROUP BY cell", "cannot be a condition"),
        ("cell, AVG(speed) FROM fixes WHERE hour = 3 OR speed > 3 GROUP BY cell", "cannot be a condition"),
        ("cell, AVG(speed) FROM fixes WHERE vehicle = 'KA 01' GROUP BY cell", "singled out"),
        ("cell, AVG(speed) FROM fixes WHERE latitude > 21 GROUP BY cell", "area, hexagon or box"),
        ("cell, AVG(speed) FROM fixes WHERE time > '2026-03-03 07:30' GROUP BY cell", "by whole hours"),
        ("cell, AVG(speed) FROM fixes WHERE time = '2026-03-03' GROUP BY cell", "on time cannot be read"),
        ("cell, AVG(speed) FROM fixes WHERE time > 'noon' GROUP BY cell", "not a time"),
        ("cell, AVG(speed) FROM fixes WHERE time > '2026-03-03T07:00Z' GROUP BY cell", "without an offset"),
        ("cell, AVG(speed) FROM fixes WHERE time > '2027-03-03' GROUP BY cell", "no day"),
        ("cell, AVG(speed) FROM fixes WHERE place = 'Old City' GROUP BY cell", "no map was released"),
        ("f.cell, AVG(g.speed) FROM fixes f GROUP BY cell", "those of speed"),
        ("AVG(speed) FROM fixes AS f(speed)", "FROM records alone"),
        ("AVG(speed) FROM fixes HAVING speed > 3", "single speeds"),
        ("cell, AVG(speed) FROM fixes GROUP BY cell HAVING cell > 3", "HAVING: Cannot compare"),
        ("cell, ROUND(cell), AVG(speed) FROM fixes GROUP BY cell", "no function takes such"),
        ("CAST(AVG(speed) AS DATE) FROM fixes", "SELECT: Unimplemented type"),
        ("weekday, hour, AVG(speed) FROM fixes GROUP BY weekday, hour", "no such slots"),
        ("hour, AVG(speed) FROM fixes GROUP BY slot('day')", "no such slots"),
        ("EXTRACT(minute FROM time), AVG(speed) FROM fixes", "single records"),
        ("cell, AVG(speed) FROM fixes WHERE hour = (SELECT 3) GROUP BY cell", "written out"),
        ("cell, AVG(speed) FROM fixes WHERE hour = 25 GROUP BY cell", "from 0 to 24"),
        ("cell, AVG(speed) FROM fixes WHERE hour BETWEEN 22 AND 5 GROUP BY cell", "nothing lies between"),
        ("cell, AVG(speed) FROM fixes WHERE hour = 3 AND hour = 4 GROUP BY cell", "no time"),
        ("cell, AVG(speed) FROM fixes WHERE weekday = 1 GROUP BY cell", "text in single quotes"),
        ("cell, AVG(speed) FROM fixes WHERE weekday = 'someday' GROUP BY cell", "no such weekday"),
        ("cell, AVG(speed) FROM fixes WHERE weekday = 'monday' GROUP BY cell", "no time"),
        ("cell, AVG(speed) FROM fixes WHERE date = 'yesterday' GROUP BY cell", "not a day"),
        ("cell, AVG(speed) FROM fixes WHERE date = '2026-04-01' GROUP BY cell", "no day"),
        ("cell, AVG(speed) FROM fixes WHERE date IN ('2026-03-03', '2026-03-04') GROUP BY cell", "on date"),
        ("cell, AVG(speed) FROM fixes WHERE date = '2026-03-03' OR hour = 3 GROUP BY cell", "cannot be read"),
        ("cell, AVG(speed) FROM fixes WHERE area = 'moon' GROUP BY cell", "no such area"),
        ("cell, AVG(speed) FROM fixes WHERE area <> 'west' GROUP BY cell", "= or IN"),
        ("cell, AVG(speed) FROM fixes WHERE in_box(1, 2, 3) GROUP BY cell", "four sides"),
        ("cell, AVG(speed) FROM fixes WHERE in_box(1, 4, 3, 2) GROUP BY cell", "not a box"),
        ("cell, AVG(speed) FROM fixes WHERE NOT in_box(1, 2, 3, 4) GROUP BY cell", "cannot be read"),
        ("cell, AVG(speed) FROM fixes WHERE cell = 'ffff' GROUP BY cell", "no hexagon"),
        ("cell, AVG(speed) FROM fixes WHERE cell = '85428e8bfffffff' GROUP BY cell", "another resolution"),
        ("cell, AVG(speed) FROM fixes WHERE TRUE GROUP BY cell", "cannot be read"),
        ("cell, AVG(speed) FROM fixes WHERE place <> 'Mill Road' GROUP BY cell", "= or IN"),
    ],
)
def test_everything_else_is_refused_with_the_clause_and_one_thing_that_works(refused, text, what):
    assert what in refused(FORM + text)


@pytest.mark.parametrize(
    "text",
    [
        "DISTINCT cell, AVG(speed) FROM records GROUP BY cell",
        "cell, AVG(speed) FROM records GROUP BY cell OFFSET 3",
        "cell, AVG(speed) + 1 FROM records GROUP BY cell",
        "cell, AVG(speed) AS cell FROM records GROUP BY h3(7)",
        "cell, AVG(speed) AS a, VAR_POP(speed) AS A FROM records GROUP BY cell",
        "cell, AVG(speed) FROM records GROUP BY cell ORDER BY VAR_POP(speed)",
        "cell, AVG(speed) FROM records GROUP BY cell ORDER BY 2 NULLS FIRST",
        "cell, AVG(speed) FROM records GROUP BY cell LIMIT 1 + 1",
        "AVG(speed) FROM records HAVING VAR_POP(speed) > 3",
        "AVG(speed) FROM records HAVING AVG(speed) > COUNT(*)",
        "AVG(speed) FROM records HAVING AVG(speed)",
        "ROUND(AVG(speed), -1) FROM records",
        "cell, CASE WHEN AVG(speed) > 30 THEN 'fast' ELSE 'slow' END FROM records GROUP BY cell",
        "cell, AVG(speed) - AVG(AVG(speed)) OVER () FROM records GROUP BY cell QUALIFY RANK() OVER w < 3 "
        "WINDOW w AS (ORDER BY AVG(speed))",
        "hour, (SELECT count(*) FROM duckdb_settings()), AVG(speed) FROM records GROUP BY hour",
    ],
)
def test_duckdb_arranges_what_was_answered(tried, text):
    (question,) = tried(FORM + text).questions
    assert sql_of(question.arrangement).count('FROM "answer 1"') == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("", "no options"),
        ("OPTIONS", "in brackets"),
        ("OPTIONS (epsilon = 1", "a name and a value"),
        ("OPTIONS ()", "epsilon is missing"),
        ("OPTIONS (epsilon)", "a name and a value"),
        ("OPTIONS (epsilon = 0)", "epsilon is not valid"),
        ("OPTIONS (epsilon = -1)", "epsilon is not valid"),
        ("OPTIONS (epsilon = 1e9)", "epsilon is not valid"),
        ("OPTIONS (epsilon = 1e-13)", "epsilon is not valid"),
        ("OPTIONS (epsilon = 1 + 1)", "a name and a value"),
        ("OPTIONS (epsilon = 1, epsilon = 2)", "given twice"),
        ("OPTIONS (epsilon = 1, delta = 1e-6)", "pure epsilon"),
        ("OPTIONS (epsilon = 1, epsilom = 2)", "no such option"),
        ("OPTIONS (epsilon = 1, privacy_unit_column = trip)", "privacy unit is the vehicle"),
        ("OPTIONS (epsilon = 1, max_groups_contributed = 3)", "max_groups_contributed"),
        ("OPTIONS (epsilon = 1, min_vehicles = 2.5)", "min_vehicles is not valid"),
        ("OPTIONS (epsilon = 1, interval_level = 1)", "interval_level is not valid"),
        ("OPTIONS (epsilon = 1, speed_bound = 0.003)", "speed_bound is not valid"),
        ("OPTIONS (epsilon = 1, force = 3)", "force is not valid"),
    ],
)
def test_wrong_options_are_refused(refused, options, what):
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY {options} cell, AVG(speed) FROM fixes GROUP BY cell"
    assert what in refused(text)


def test_options_that_never_end_are_refused(refused):
    assert "do not end" in refused("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "f.cell, AVG(f.speed) FROM fixes AS f WHERE f.hour = 8 GROUP BY f.cell",
            "cell, AVG(speed) FROM fixes WHERE hour = 8 GROUP BY cell",
        ),
        (
            "hour, AVG(speed) FROM fixes GROUP BY hour",
            "EXTRACT(HOUR FROM time), AVG(speed) FROM fixes GROUP BY ALL",
        ),
        ("date, AVG(speed) FROM fixes GROUP BY 1", "CAST(time AS DATE), AVG(speed) FROM fixes GROUP BY date"),
        (
            "date, AVG(speed) FROM fixes GROUP BY 1",
            "DATE_TRUNC('day', time), avg(speed) from fixes group by all",
        ),
        ("weekday, AVG(speed) FROM fixes GROUP BY 1", "DAYNAME(time), AVG(speed) FROM fixes GROUP BY 1"),
        (
            "cell, place, AVG(speed) FROM fixes GROUP BY cell",
            "cell, place, AVG(speed) FROM fixes GROUP BY place, 1",
        ),
        ("ROUND(AVG(speed), 1) FROM fixes", "CAST(AVG(speed) AS DECIMAL(6, 1)) FROM fixes"),
        ("ROUND(AVG(speed)) FROM fixes", "AVG(speed)::INTEGER FROM fixes"),
        ("AVG(speed) FROM fixes", "CAST(AVG(speed) AS DOUBLE) FROM fixes"),
        (
            "AVG(speed) FROM fixes WHERE time BETWEEN '2026-03-03' AND '2026-03-03 23:59:59'",
            "AVG(speed) FROM fixes WHERE date = '2026-03-03'",
        ),
        (
            "AVG(speed) FROM fixes WHERE time >= '2026-03-03 07:00' AND time < TIMESTAMP '2026-03-03 09:00'",
            "AVG(speed) FROM fixes WHERE date = '2026-03-03' AND hour IN (7, 8)",
        ),
        (
            "AVG(speed) FROM fixes WHERE time BETWEEN '2026-03-03 22:00' AND '2026-03-04 01:00'",
            "AVG(speed) FROM fixes WHERE weekday = 'tue' AND hour >= 22 OR weekday = 'wed' AND hour = 0",
        ),
        ("AVG(speed) FROM fixes WHERE time > '2020-01-01'", "AVG(speed) FROM fixes"),
        (
            "AVG(speed) m, COUNT(*) n FROM fixes HAVING m BETWEEN 3 AND 4 OR NOT 5 > n",
            "AVG(speed) m, COUNT(*) n FROM fixes HAVING (AVG(speed) >= 3 AND m <= 4) OR NOT (COUNT(*) < 5)",
        ),
    ],
)
def test_what_people_write_is_read(read, one, other):
    assert read(FORM + one) == read(FORM + other)


def test_a_statistic_shows_its_interval_unasked_unless_an_end_is_asked_for(read):
    def shown(text):
        return [column.alias for column in read(FORM + text).arrangement.expressions]

    assert shown("AVG(speed) FROM records") == ["speed_mean_kmh", "speed_mean_kmh_low", "speed_mean_kmh_high"]
    assert shown('ROUND(AVG(speed), 1) AS "My Mean", COUNT(*) FROM records') == [
        "My Mean",
        "My Mean_low",
        "My Mean_high",
        "records",
    ]
    assert shown("AVG(speed) m, DP_INTERVAL_LOW(m) FROM records") == ["m", "m_low"]
    assert shown("AVG(speed) m, STDDEV(speed) m_low, DP_INTERVAL_LOW(m_low) FROM records")[:3] == [
        "m",
        "m_low_2",
        "m_high",
    ]


def test_without_groups_it_is_one_number_of_a_hexagon_that_holds_the_city(read, config):
    question = read(FORM + "AVG(speed) FROM fixes")
    assert (question.by_cell, question.by_slot, question.slot_kind) == (False, False, SlotKind.WHOLE_PERIOD)
    corners = shapely.get_coordinates(config.grid.area.geometry)
    assert len(set(cells_of(corners[:, 1], corners[:, 0], question.resolution).tolist())) == 1
    assert len(set(cells_of(corners[:, 1], corners[:, 0], config.grid.resolution).tolist())) > 1


@pytest.mark.parametrize(
    ("text", "priced"),
    [
        (FORM + "cell FROM fixes", True),
        ("  explain\nselect with differential_privacy", True),
        ("EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 'open", True),
        ("/* a */ SELECT -- b\n WITH /* c */ DIFFERENTIAL_PRIVACY x", True),
        ("SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) cell FROM fixes)", True),
        ("CREATE TABLE x AS SELECT WITH DIFFERENTIAL_PRIVACY cell", True),
        ("SELECT hex_id FROM latest_cells", False),
        ("WITH differential_privacy AS (SELECT 1) SELECT * FROM differential_privacy", False),
        ("SELECT 'select with differential_privacy'", False),
        ("SELECT 1 -- select with differential_privacy", False),
        ("EXPLAIN SELECT 1", False),
        ("", False),
    ],
)
def test_a_priced_question_is_told_from_free_sql(text, priced):
    assert is_priced(text) is priced


def test_a_question_within_a_question_is_refused(refused):
    asked = FORM + f"cell, ({FORM} AVG(speed) FROM records) FROM records GROUP BY cell"
    assert "cannot stand in another one" in refused(asked)


@pytest.mark.parametrize("depth", [30, 100, 3000])
def test_deep_nesting_is_refused_or_read_but_never_fatal(refused, depth):
    message = refused(
        FORM + "cell, " + "(" * depth + "SUM(speed)" + ")" * depth + " FROM fixes GROUP BY cell"
    )
    assert "not measured" in message or "nested" in message or "too long" in message


def test_a_long_question_is_refused(refused):
    assert "too long" in refused(FORM + "cell, " + "AVG(speed), " * 5000 + "FROM fixes GROUP BY cell")
    assert "too long" in refused(FORM + "cell, " + "a," * 4500 + "AVG(speed) FROM fixes")


def test_the_question_of_the_guide_can_be_asked(read, pages):
    (text,) = re.findall(r'(?s)"(EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY .*?)"', pages.guide("analysts"))
    question = read(text.replace("'centre'", "'west'"))
    assert read_statement(text).explain
    assert question.statistics == (Statistic.MEAN,)
    assert {hour % 24 for hour in question.filter.selection.hours_of_week} == {7, 8, 9}
