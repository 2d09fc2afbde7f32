"""Questions to a small city's vault: answered with intervals, kept like any release, explained for free."""

import json

import numpy as np
import pytest

from trafficdp.errors import UninformativeReleaseError, UsageError
from trafficdp.privacy.loss import PureDP
from trafficdp.query.answer import Explanation

pytestmark = pytest.mark.usefixtures("two_cities", "tables_alone")


def explained(found):
    assert isinstance(found, Explanation)
    return dict(zip(found.rows["what"].to_pylist(), found.rows["value"].to_pylist(), strict=True))


def test_an_answer_is_a_release_with_intervals_manifest_and_sql(city, clause, mean):
    workspace = city.open()
    answered = workspace.ask(clause + mean, analyst="newsroom")
    frame = answered.to_frame()
    assert list(frame.columns) == ["cell", "m", "m_low", "m_high"]
    numbers = frame.dropna()
    assert len(numbers) > 2
    assert ((numbers["m_low"] <= numbers["m"]) & (numbers["m"] <= numbers["m_high"])).all()
    assert not [check for check in workspace.verify("r0001") if not check.passed]
    published = workspace.map("r0001").to_frame()
    assert published["hex_id"].tolist() == frame["cell"].tolist()
    assert np.array_equal(published["speed_mean_kmh"], frame["m"], equal_nan=True)
    manifest = json.loads((city.store / "releases" / "r0001" / "manifest.json").read_text())
    assert manifest["identity"]["question"].startswith(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8"
    )
    assert manifest["guarantee"]["epsilon"] == str(answered.charged)
    rows = city.sql(
        "SELECT hex_id, speed_mean_kmh FROM cells WHERE release_id = 'r0001'", database="released"
    )
    assert {cell for cell, _ in rows} == set(frame["cell"])


def test_the_manifest_publishes_no_words_of_the_asker(city, clause):
    city.open().ask(
        clause + 'cell AS "my secret", AVG(speed) AS "bus KA01", COUNT(*) AS n FROM fixes GROUP BY cell '
        "ORDER BY n LIMIT 3 -- a remark",
        analyst="newsroom",
    )
    manifest = json.loads((city.store / "releases" / "r0001" / "manifest.json").read_text())
    assert manifest["identity"]["question"] == (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, force = TRUE) h3(7), COUNT(*), AVG(speed) "
        "FROM records GROUP BY h3(7)"
    )


def test_a_withdrawn_answer_is_gone(answered, clause, mean):
    workspace = answered.open()
    workspace.withdraw("r0001")
    assert workspace.ask(clause + mean, analyst="planning").release_id == "r0002"


def test_an_ordinary_release_answers_the_question_that_it_is(city, small_city, clause):
    workspace = city.open()
    workspace.release(force=True)
    answered = workspace.ask(
        clause + "cell, AVG(speed), VAR_POP(speed) FROM fixes GROUP BY cell", analyst="newsroom"
    )
    assert answered.is_reused
    assert len(small_city.charges(city)) == 1


def test_the_citys_own_map_stays_the_latest_and_the_question_is_in_the_manifest(answered, clause):
    workspace = answered.open()
    newest = "SELECT DISTINCT release_id FROM latest_cells"
    assert answered.sql(newest, database="released") == [("r0001",)]
    workspace.release("2", force=True)
    workspace.ask(clause + "cell, AVG(speed) FROM fixes WHERE hour = 8 GROUP BY cell", analyst="planning")
    assert answered.sql(newest, database="released") == [("r0002",)]
    said = dict(answered.sql("SELECT release_id, selection FROM manifest", database="released"))
    assert said == {"r0001": None, "r0002": None, "r0003": "Tuesday and Wednesday 08:00-09:00"}
    asked = dict(answered.sql("SELECT release_id, question FROM manifest", database="released"))
    assert asked["r0002"] is None
    assert asked["r0003"].endswith("FROM records WHERE hour = 8 GROUP BY h3(7)")


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
    (records,) = city.sql("SELECT count(*) FROM fixes")[0]
    assert frame["n"].sum() == records
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


def test_an_explanation_prices_exactly_and_spends_nothing(city, small_city, clause, mean):
    workspace = city.open()
    before = city.dump()
    facts = explained(workspace.ask("EXPLAIN " + clause + mean, analyst="newsroom"))
    after = {name: each for name, each in city.dump().items() if name != "contributions"}
    assert after == {name: each for name, each in before.items() if name != "contributions"}
    assert facts["left for the analyst"] == "9"
    assert facts["left for every vehicle"] == "20"
    assert any(name.startswith("by accounting equal") for name in facts)
    answered = workspace.ask(clause + mean, analyst="newsroom")
    assert facts["cost"] == facts["largest loss of a vehicle"] == str(answered.charged)
    (charge,) = small_city.charges(city)
    assert facts["vehicles charged"] == str(charge["vehicles_charged"])
    released = answered.to_frame().dropna()
    assert facts["bins with numbers"] == str(len(released))
    widths = (released["m_high"] - released["m_low"]) / 2
    assert widths.max() <= float(facts["worst half width of the mean"]) * 1.001 + 0.001
    again = explained(workspace.ask("EXPLAIN " + clause + mean, analyst="newsroom"))
    assert (again["cost"], again["answered before"]) == ("0", "r0001")
    assert again["left for the analyst"] == str(PureDP(9 * 10**12 - answered.charged.pico))


def test_counts_are_explained_as_free(city, clause):
    facts = explained(city.open().ask("EXPLAIN " + clause + "cell, COUNT(*) FROM fixes GROUP BY cell"))
    assert facts["cost"] == "0"


def test_an_answer_that_says_too_little_is_refused_with_one_that_would_not(city, small_city, clause, mean):
    workspace = city.open()
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) " + mean
    with pytest.raises(UninformativeReleaseError) as caught:
        workspace.ask(text, analyst="newsroom")
    # it is the option of the same question
    works = caught.value.todo.removeprefix("try ")
    facts = explained(workspace.ask("EXPLAIN " + text.replace("epsilon = 0.5", works), analyst="newsroom"))
    assert facts["verdict"] == "may be answered"
    assert small_city.charges(city) == []


@pytest.mark.parametrize(
    ("where", "options", "what"),
    [
        ("WHERE in_box(1, 1, 2, 2)", "", "no record meets the conditions"),
        ("WHERE hour = 3", "", "no record meets the conditions"),
        ("", ", min_vehicles = 1000", "no hexagon has 1000 vehicles"),
    ],
)
def test_a_question_without_any_bin_is_refused_with_one_that_has(city, where, options, what):
    workspace = city.open()
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, force = TRUE{options}) "
    asked = f"cell, AVG(speed) AS plate FROM fixes {where} GROUP BY cell"
    with pytest.raises(UsageError) as caught:
        workspace.ask(text + asked, analyst="newsroom")
    assert what in str(caught.value)
    assert "plate" not in str(caught.value)
    if where:
        # no condition is dropped for the asker
        assert caught.value.todo == "try more hours, days or places"
        return
    works = caught.value.todo.removeprefix("try ")
    text = text.replace("min_vehicles = 1000", works)
    assert workspace.ask(text + asked, analyst="newsroom").release_id == "r0001"


def test_the_city_has_one_number_and_hours_weekdays_and_days_have_theirs(city, clause):
    workspace = city.open()
    (records,) = city.sql("SELECT count(*) FROM fixes")[0]
    answered = workspace.ask(clause + "AVG(speed) AS m, COUNT(*) AS n FROM fixes", analyst="planning")
    (row,) = answered.to_frame().itertuples(index=False)
    assert row.n == records
    assert row.m_low <= row.m <= row.m_high
    assert "one number for the whole city" in " ".join(answered.notes)
    assert not [check for check in workspace.verify("r0001") if not check.passed]
    assert workspace.ask(clause + "AVG(speed) FROM fixes", analyst="planning").is_reused
    local = "make_timestamp(time_us) + INTERVAL 330 MINUTE"
    for column, said in (
        ("hour", f"hour({local})"),
        ("weekday", f"lower(dayname({local}))"),
        ("date", f"strftime({local}, '%Y-%m-%d')"),
    ):
        asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS () {column}, COUNT(*) FROM fixes GROUP BY {column}"
        counted = workspace.ask(asked).to_frame()
        wanted = city.sql(f"SELECT {said}, count(*) FROM fixes GROUP BY 1 ORDER BY 1")
        assert sorted(counted.itertuples(index=False, name=None)) == wanted
    by_hour = workspace.ask(
        clause + "date, hour, AVG(speed) FROM fixes GROUP BY date, hour", analyst="planning"
    )
    assert set(by_hour.to_frame()["hour"]) == set(
        workspace.ask(asked.replace(column, "hour")).to_frame()["hour"]
    )
    assert not [check for check in workspace.verify(by_hour.release_id) if not check.passed]


def test_having_rounding_and_places_arrange_what_was_released_for_nothing(city, clause):
    workspace = city.open()
    everything = workspace.ask(
        clause + "cell, place, AVG(speed) AS m, COUNT(*) AS n FROM fixes GROUP BY cell", analyst="planning"
    ).to_frame()
    assert everything["place"].nunique() == len(everything)
    middle = round(float(everything["m"].median()), 3)
    arranged = workspace.ask(
        clause
        + f"place, ROUND(AVG(speed)) AS m FROM fixes GROUP BY place HAVING NOT (AVG(speed) > {middle}) "
        "AND COUNT(*) >= 2 ORDER BY AVG(speed) DESC",
        analyst="planning",
    )
    assert arranged.is_reused
    frame = arranged.to_frame()
    wanted = everything[(everything["m"] <= middle) & (everything["n"] >= 2)]
    assert set(frame["place"]) == set(wanted["place"])
    merged = frame.merge(wanted, on="place")
    assert np.array_equal(merged["m_x"], np.round(merged["m_y"]))
    assert (merged["m_low_x"] <= merged["m_low_y"]).all()
    assert (merged["m_high_x"] >= merged["m_high_y"]).all()


@pytest.mark.store
def test_what_is_released_is_asked_for_nothing_and_shown_with_its_hexagons(released):
    workspace = released.open()
    before = len(workspace.ledger())
    found = workspace.ask("SELECT hex_id, place, speed_mean_kmh FROM latest_cells ORDER BY hex_id")
    assert (str(found.charged), found.release_id) == ("0", None)
    published = workspace.map("r0001").to_geodataframe()
    assert found.to_frame()["hex_id"].tolist() == published["hex_id"].tolist()
    hexagons = found.to_geodataframe()
    assert hexagons.crs == published.crs
    assert hexagons.geometry.geom_equals_exact(published.geometry, 1e-6).all()
    with pytest.raises(UsageError, match="column"):
        workspace.ask("SELECT 1 AS one").to_geodataframe()
    with pytest.raises(UsageError, match="may not use files"):
        workspace.ask(f"FROM read_text('{released.config}')")
    assert len(workspace.ledger()) == before


def test_a_place_is_the_hexagon_that_the_newest_map_calls_so(city, clause):
    workspace = city.open()
    asked = clause + "cell, AVG(speed) FROM fixes WHERE place IN ({}) GROUP BY cell"
    with pytest.raises(UsageError, match="no map was released that names places"):
        workspace.ask(asked.format("'anywhere'"), analyst="planning")
    table = workspace.release(force=True).to_frame()
    first, last = table["place"].iloc[0], table["place"].iloc[-1]
    by_name = workspace.ask(asked.format(f"'{first.upper()}', '{last}'"), analyst="planning")
    assert by_name.to_frame()["cell"].tolist() == table["hex_id"].iloc[[0, -1]].tolist()
    by_cell = f"cell IN ('{table['hex_id'].iloc[0]}', '{table['hex_id'].iloc[-1]}')"
    again = workspace.ask(asked.format("").replace("place IN ()", by_cell), analyst="planning")
    assert again.is_reused
    with pytest.raises(UsageError, match=r"no map calls a place so.*SELECT DISTINCT place FROM latest_cells"):
        workspace.ask(asked.format("'nowhere'"), analyst="planning")


def test_no_half_width_that_is_explained_is_wider_than_half_the_range(city):
    text = (
        "EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001) cell, AVG(speed), VAR_POP(speed) "
    )
    facts = explained(city.open().ask(text + "FROM records GROUP BY cell", analyst="planning"))
    for of, largest in (("mean", 65), ("variance", 65**2 / 4)):
        for which in ("median", "worst"):
            assert float(facts[f"{which} half width of the {of}"]) == pytest.approx(largest / 2, rel=1e-3)
