"""Whatever stands around a priced question, records are asked the same, once; DuckDB arranges the answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.privacy.loss import PureDP
from trafficdp.query.answer import Explanation
from trafficdp.query.dialect import LONGEST_REFUSAL, RefusedError
from trafficdp.query.statement import read_statement

pytestmark = pytest.mark.usefixtures("tables_alone")

HEAD = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 4, force = TRUE) "
MEANS = HEAD + "cell, AVG(speed) AS m FROM records GROUP BY cell"
AROUND = (
    "SELECT * FROM ({}) ORDER BY m DESC NULLS LAST LIMIT 2",
    "SELECT count(*) AS n, round(avg(m)) AS m, max(m) - min(m_low) AS span FROM ({})",
    "WITH é AS ({}), other AS (SELECT 1 AS one) SELECT cell, one FROM é, other WHERE m BETWEEN 0 AND 99",
    "SELECT a.cell, m - c.speed_mean_kmh AS moved FROM ({}) AS a JOIN cells AS c ON c.hex_id = a.cell",
    "SELECT district, count(*) AS n FROM ({}) JOIN districts USING (cell) GROUP BY ALL ORDER BY 1",
    "SELECT CASE WHEN m > 30 THEN 'fast' ELSE 'slow' END AS how, rank() OVER (ORDER BY m) FROM ({}) -- why",
    "({}) UNION ALL (SELECT 'x', 1, 2, 3)",
    "SELECT a.m - b.m AS none FROM ({}) a JOIN ({}) b USING (cell)",
    "FROM ({}) SELECT cell, m // 10 * 10 AS m",
    "PIVOT (SELECT m > 30 AS fast, 1 AS one FROM ({})) ON fast USING sum(one)",
)
WITHIN = (
    "cell, AVG(speed) FROM records GROUP BY cell HAVING AVG(speed) > 20 OR AVG(speed) IS NULL ORDER BY place",
    "ROUND(AVG(speed), 1) AS m, 2 * AVG(speed) + COUNT(*) AS x, cell FROM fixes GROUP BY cell ORDER BY x",
    "DISTINCT AVG(speed) > 30 AS fast FROM records GROUP BY cell",
    "place, CASE WHEN AVG(speed) > 30 THEN 'fast' ELSE status END AS how FROM records GROUP BY cell",
    "cell, AVG(speed) - AVG(AVG(speed)) OVER () AS moved, RANK() OVER (ORDER BY AVG(speed)) FROM records "
    "GROUP BY cell QUALIFY RANK() OVER (ORDER BY AVG(speed)) < 3",
    "cell, AVG(speed) - (SELECT avg(speed_mean_kmh) FROM latest_cells) AS moved FROM records GROUP BY cell",
)
HOSTILE = (
    "SELECT * FROM ({}) JOIN records ON true",
    "SELECT * FROM ({}) JOIN fixes ON true",
    "SELECT * FROM ({}), vehicles",
    "SELECT * FROM ({}), vault.fixes",
    "SELECT * FROM ({}), read_text('@vault')",
    "SELECT * FROM ({}), '@vault'",
    "SELECT (SELECT sum(speed) FROM records) FROM ({})",
    "COPY ({}) TO '@vault.csv'",
    "CREATE TABLE kept AS {}",
    "INSERT INTO cells {}",
    "WITH x AS (COPY ({}) TO '@vault.csv') FROM x",
    "{}; SELECT * FROM records",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) AVG(speed) FROM ({})",
    "SELECT getenv('HOME') FROM ({})",
    "EXPLAIN ANALYZE {}",
)


@pytest.fixture
def own(city):
    """An analyst's own file, beside the store: the hexagons of the city's answer in two districts."""
    answered = city.open().ask(MEANS, analyst="planning").to_frame()
    path = city.folder / "districts.csv"
    lines = [f"{cell},{'east' if number % 2 else 'west'}" for number, cell in enumerate(answered["cell"])]
    path.write_text("\n".join(["cell,district", *lines]))
    return path


def test_any_arrangement_is_priced_once_and_never_measured_again(city, small_city, own):
    workspace = city.open()
    everything = workspace.ask(MEANS, analyst="planning").to_frame()
    before = city.dump()
    for text in (*(each.replace("{}", MEANS) for each in AROUND), *(HEAD + each for each in WITHIN)):
        answered = workspace.ask(text, analyst="planning", files=[own])
        assert (answered.charged, answered.release_id) == (PureDP(0), "r0001"), text
        assert answered.rows.num_rows > 0, text
    assert city.dump() == before
    assert len(small_city.charges(city)) == 1
    slowest = workspace.ask(AROUND[0].replace("{}", MEANS), analyst="planning").to_frame()
    assert slowest["m"].tolist() == sorted(everything["m"].dropna(), reverse=True)[:2]
    by_district = workspace.ask(AROUND[4].replace("{}", MEANS), analyst="planning", files=[own]).to_frame()
    assert by_district.to_numpy().tolist() == [["east", 2], ["west", 3]]
    moved = workspace.ask(HEAD + WITHIN[5], analyst="planning").to_frame()["moved"]
    assert np.allclose(moved, everything["m"] - everything["m"].mean(), equal_nan=True)


@pytest.mark.parametrize("around", AROUND)
def test_what_is_around_does_not_change_what_is_asked(read, around):
    for part in read_statement(around.replace("{}", MEANS)).parts:
        again = read_statement(around.replace("{}", MEANS)).text[part.start : part.end]
        assert again == MEANS
        assert read(again).to_sql


WORDS = (
    "select from where ( ) , ; union with as records fixes cell m -- /* */ ' \" é join explain over limit 1 *"
)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(*2 * [st.lists(st.sampled_from(WORDS.split()), max_size=8).map(" ".join)])
def test_no_words_around_change_what_is_asked_either(tried, read, before, after):
    try:
        query = tried(f"{before} ({MEANS}) {after}")
    except UsageError as error:
        said = str(error)
        assert len(said) <= LONGEST_REFUSAL
        return
    assert query.questions == (read(MEANS),)


def test_no_statement_around_reaches_a_record_or_is_charged(city, small_city):
    workspace = city.open()
    before = {name: each for name, each in city.dump().items() if name != "contributions"}
    for text in HOSTILE:
        asked = text.replace("{}", MEANS).replace("@vault", str(city.store / "vault.duckdb"))
        with pytest.raises(RefusedError) as caught:
            workspace.ask(asked, analyst="planning")
        assert len(str(caught.value)) <= LONGEST_REFUSAL
        assert "; try " in str(caught.value)
    assert {name: each for name, each in city.dump().items() if name != "contributions"} == before
    assert small_city.charges(city) == []
    assert not list(city.store.glob("*.csv"))


def test_what_cannot_be_arranged_is_refused_before_anything_is_charged(city, small_city):
    workspace = city.open()
    for rest, said in (
        ("cell, AVG(speed) FROM records GROUP BY cell HAVING nothing > 3", "HAVING: there is no such column"),
        ("cell, AVG(speed)::DATE FROM records GROUP BY cell", "SELECT: "),
        ("cell, AVG(speed) FROM records GROUP BY cell ORDER BY strange(cell)", "ORDER BY: there is no such"),
        ("SUM(AVG(speed)) FROM records GROUP BY cell", "SELECT: an aggregate of answered numbers"),
        ("list(status), AVG(speed) FROM records GROUP BY cell", "SELECT: "),
        ("cell, AVG(speed) FROM records GROUP BY cell LIMIT -3", "LIMIT: "),
    ):
        with pytest.raises(RefusedError) as caught:
            workspace.ask(HEAD + rest, analyst="planning")
        assert str(caught.value).startswith(said)
    assert small_city.charges(city) == []


def test_several_questions_are_priced_together_by_one_explanation(city, small_city):
    workspace = city.open()
    variances = HEAD + "cell, VAR_POP(speed) AS v FROM records GROUP BY cell"
    counts = HEAD + "cell, COUNT(*) AS n, AVG(speed) FROM records GROUP BY cell"
    text = f"SELECT * FROM ({MEANS}) JOIN ({variances}) USING (cell) JOIN ({counts}) USING (cell)"
    found = workspace.ask("EXPLAIN " + text, analyst="planning")
    assert isinstance(found, Explanation)
    what, value = (found.rows[name].to_pylist() for name in ("what", "value"))
    # the means of the third are those of the first
    assert what.count("question") == 2
    together = value[what.index("cost of all questions together")]
    assert float(together) > max(
        float(each) for name, each in zip(what, value, strict=True) if name == "cost"
    )
    assert small_city.charges(city) == []
    answered = workspace.ask(text, analyst="planning")
    assert str(answered.charged) == together
    assert [release.id for release in answered.releases] == ["r0001", "r0002"]
    assert max(small_city.spent(city).values()) == answered.charged.pico


def test_weekdays_come_in_the_order_of_the_calendar(city):
    workspace = city.open()
    workspace.ingest([city.days[2]])
    ask = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS () weekday, COUNT(*) AS n FROM records GROUP BY weekday "
    for order, days in (("", ["tuesday", "wednesday"]), ("DESC", ["wednesday", "tuesday"])):
        assert workspace.ask(ask + f"ORDER BY weekday {order}").to_frame()["weekday"].tolist() == days
    kept = workspace.ask(f"SELECT weekday FROM ({ask}) WHERE weekday > 'tuesday'").to_frame()
    assert kept["weekday"].tolist() == ["wednesday"]


def test_an_own_file_is_a_table_of_free_questions_too_and_no_file_of_the_store_is_one(city, own):
    workspace = city.open()
    assert workspace.ask("SELECT count(*) AS n FROM districts", files=[own]).to_frame()["n"].tolist() == [5]
    link = own.with_name("linked.csv")
    link.symlink_to(city.store / "vault.duckdb")
    for file, said in (
        (link, "a file of a store"),
        (own.with_suffix(".xlsx"), "does not say its format"),
        (own.with_name("nothing.csv"), "no such file"),
        (own.with_name("my districts.csv"), "letters, digits and _"),
    ):
        with pytest.raises(UsageError, match=said):
            workspace.ask("SELECT 1", files=[file])
    for name, text, said in (
        ("cells.csv", own.read_text(), "called like what is released"),
        ("records.csv", own.read_text(), "called like what is released"),
        ("broken.parquet", "no table", "a file is no table"),
    ):
        own.with_name(name).write_text(text)
        with pytest.raises(UsageError, match=f"--with: .*{said}"):
            workspace.ask("SELECT 1", files=[own.with_name(name)])
