"""What a configuration may not say: each is one line that names the key."""

from datetime import date, datetime, time
from decimal import Decimal

import pytest

MUST_BE_CHOSEN = [
    ("city.name", "[city] name"),
    ("city.publisher", "[city] publisher"),
    ("city.time_zone", "[city] time_zone"),
    ("city.study_area", "[city] study_area"),
    ("city.period", "[city] period"),
    ("city.period.from", "[city] period.from"),
    ("city.period.to", "[city] period.to"),
    ("privacy.relation", "[privacy] relation"),
    ("budget.epsilon_per_vehicle", "[budget] epsilon_per_vehicle"),
    ("map.resolution", "[map] resolution"),
    ("map.speed_bound", "[map] speed_bound"),
    ("map.speed_unit", "[map] speed_unit"),
    ("source.0.name", "[[source]] 1 name"),
    ("source.0.format", '[[source]] "capmetro" format'),
    ("source.0.files", '[[source]] "capmetro" files'),
    ("source.0.speed_unit", '[[source]] "capmetro" speed_unit'),
    ("source.0.columns", '[[source]] "capmetro" columns'),
    ("source.0.columns.vehicle", '[[source]] "capmetro" columns.vehicle'),
    ("source.0.columns.longitude", '[[source]] "capmetro" columns.longitude'),
    ("source.0.columns.speed", '[[source]] "capmetro" columns.speed'),
    ("city", "[city]"),
    ("privacy", "[privacy]"),
    ("budget", "[budget]"),
    ("map", "[map]"),
]


@pytest.mark.parametrize(("path", "name"), MUST_BE_CHOSEN)
def test_what_must_be_chosen_has_no_default(refusal, path, name, minimal, changed):
    message = refusal(changed(path, ..., minimal))
    assert message.startswith(f"{name} is missing; expected")


@pytest.mark.parametrize(
    ("path", "misspelt", "name", "nearest"),
    [
        ("map.resolution", "map.resoluton", "[map] resoluton", "resolution"),
        ("city.publisher", "city.publsher", "[city] publsher", "publisher"),
        ("privacy.epsilon", "privacy.epsilom", "[privacy] epsilom", "epsilon"),
        (
            "budget.epsilon_per_vehicle",
            "budget.epsilon_per_vehicl",
            "[budget] epsilon_per_vehicl",
            "epsilon_per_vehicle",
        ),
        ("map.tolerance.mean", "map.tolerance.maen", "[map] tolerance.maen", "mean"),
        ("city.study_area.bbox", "city.study_area.box", "[city] study_area.box", "bbox"),
        ("source.0.sentinels", "source.0.sentinel", '[[source]] "capmetro" sentinel', "sentinels"),
        ("source.0.columns.time", "source.0.columns.tiem", '[[source]] "capmetro" columns.tiem', "time"),
        ("source", "sources", "sources", "source"),
    ],
)
def test_a_misspelt_key_is_named_with_its_table_and_the_nearest_key(
    refusal, changed, path, misspelt, name, nearest
):
    message = refusal(changed(misspelt, 1, changed(path, ...)))
    assert message.startswith(f"unknown key {name}; expected {nearest};")


NAN, INF = Decimal("nan"), Decimal("inf")
WRONG = [
    *[
        ("map.resolution", value, "an integer from 0 to 15")
        for value in (16, -1, True, "7", Decimal("7.0"), NAN)
    ],
    *[
        ("map.speed_bound", value, "a speed above 0")
        for value in (
            0,
            -1,
            Decimal("-0.5"),
            True,
            NAN,
            INF,
            "fast",
            "nan",
            "inf",
            "",
            "1/3",
            [30],
            {},
            10**13,
        )
    ],
    *[("map.speed_step", value, "a speed above 0") for value in (0, -1, NAN, False, Decimal("1e-13"))],
    ("map.speed_bound", Decimal("1e999999999"), "a speed above 0"),
    ("map.speed_bound", Decimal("1e-999999999"), "a speed above 0"),
    ("map.speed_unit", "knots", '"m/s", "km/h" or "mph"'),
    ("map.speed_unit", 3, '"m/s", "km/h" or "mph"'),
    ("map.display_unit", "furlongs", '"m/s", "km/h" or "mph"'),
    *[("privacy.epsilon", value, "a number above 0") for value in (0, -4, NAN, INF, -INF, True, "lots", [])],
    *[("budget.epsilon_per_vehicle", value, "a number above 0") for value in (0, -8, NAN, INF, False, "8 €")],
    ("privacy.epsilon", 10**7, "at most 1,000,000"),
    ("privacy.relation", "replace", "replace_user_values"),
    ("privacy.relation", True, "replace_user_values"),
    *[("map.min_vehicles", value, "an integer from 1") for value in (0, -5, True, Decimal("2.5"), "5")],
    *[("map.interval_level", value, "between 0 and 1") for value in (0, 1, 95, NAN, True, "95%")],
    *[("map.publish_counts", value, "true or false") for value in ("yes", 1, 0, [])],
    *[
        ("map.statistics", value, "a list of")
        for value in ([], "mean", ["median"], [1], ["mean", "mean"], {})
    ],
    *[("map.tolerance.mean", value, "a number above 0") for value in (0, -1, True, NAN, INF, "x")],
    ("map.tolerance", 1, "a table"),
    ("map.slot", "hour", "whole_period"),
    ("map.slot", 3, "whole_period"),
    ("map.accounting", "sharpest", '"best"'),
    ("map.day_parts", [], "a list such as"),
    ("map.day_parts", [{"name": "all", "from": 24, "to": 1}], "an integer from 0 to 23"),
    (
        "map.day_parts",
        [{"name": "a", "from": 0, "to": 12}, {"name": "a", "from": 12, "to": 24}],
        "another name",
    ),
    ("map.day_parts", [{"name": "some", "from": 0, "to": 12}], "each hour 0 to 23 once"),
    ("map.day_parts", ["night"], "a table"),
    *[
        ("city.time_zone", value, "IANA")
        for value in ("Austin", "", "/etc/passwd", "../x", 5, "America", "\u00fc")
    ],
    *[
        ("city.name", value, "a name")
        for value in ("", "  ", 7, "unknown", "Unknown", "two\nlines", "\u001b[31m")
    ],
    ("city.period.from", "2016-11-31", "a date"),
    ("city.period.from", "24/11/2016", "a date"),
    ("city.period.from", 20161124, "a date"),
    ("city.period.from", datetime(2016, 11, 24, 5), "a date"),
    ("city.period.from", time(5), "a date"),
    ("city.period.from", date(1, 1, 1), "a date"),
    ("city.period.to", date(9999, 12, 31), "a date"),
    ("city.period.to", "2016-11-23", "from <= to"),
    ("city.period", "2016", "a table"),
    ("city.study_area", "Austin", "a table"),
    ("city.study_area", {}, "either"),
    ("city.study_area", {"bbox": [1, 2, 3, 4], "geojson": "area.geojson"}, "either"),
    *[
        ("city.study_area.bbox", value, "[west, south, east, north]")
        for value in (
            [1, 2, 3],
            [1, 2, 3, 4, 5],
            ["a", 2, 3, 4],
            [0, 0, 0, NAN],
            [1, 5, 2, 4],
            [0, 0, 181, 1],
            "all",
        )
    ],
    ("city.study_area", {"geojson": "nowhere.geojson"}, "correct its name"),
    ("city.study_area", {"geojson": "."}, "expected a file"),
    ("city.study_area", {"geojson": "trafficdp.toml"}, "WGS84"),
    ("store", "", "a path"),
    ("store", 5, "a path"),
    ("key_file", "city.store/city.key", "outside the store"),
    ("source", {}, "[[source]]"),
    ("source", ["csv"], "[[source]]"),
    ("source.0.format", "xlsx", "gtfs_rt"),
    *[
        ("source.0.files", value, "file names")
        for value in ([], "*.csv", [""], [5], ["a", "a"], ["in/*.csv"])
    ],
    *[
        ("source.0.speed_unit", value, '"m/s"')
        for value in ("knots", "", 5, True, [], {}, [{"unit": "knots"}])
    ],
    ("source.0.speed_unit", [{"unit": "mph", "from": "2016-01-02", "to": "2016-01-01"}], "not before"),
    ("source.0.speed_unit", [{"unit": "mph", "from": "soon"}], "a date"),
    ("source.0.columns", "vehicle_id", "columns = {"),
    ("source.0.columns.time", "", "the name of a column"),
    ("source.0.columns.time", "vehicle_id", "another column for each"),
    ("source.0.columns.geometry", "geom", "not both"),
    *[("source.0.time_format", value, "strptime") for value in ("iso", "%Q", "%d/%m %", 5, "")],
    ("source.0.time_zone", "Central", "IANA"),
    *[("source.0.sentinels", value, "a list of numbers") for value in (255, [True], [NAN], ["high"], {})],
    ("source.0.missing_speed", "guess", '"reject", "derive"'),
    ("source.0.namespace", 5, "text"),
    *[("source.0.min_kept", value, "a share of rows") for value in (-1, 2, NAN, True, "all")],
]


@pytest.mark.parametrize(("path", "value", "expected"), WRONG)
def test_a_wrong_value_is_one_line_that_names_the_key(refusal, path, value, expected, changed):
    message = refusal(changed(path, value))
    assert expected in message
    named = message.replace("[[source]] 1 ", "[[source]] ").replace('[[source]] "capmetro" ', "[[source]] ")
    steps = [step for step in path.split(".") if step != "0"]
    assert steps[0] in named
    assert all(step in named for step in steps[1:])


def test_numbers_that_would_stall_exact_arithmetic_are_refused(refusal, changed, document_text):
    for number in (
        "1e99999999999999999999",
        "9" * 5000,
        "0x" + "f" * 5000,
        '"1e999999999"',
        '"' + "9" * 50 + '"',
    ):
        text = document_text(changed("map.speed_bound", 12345)).replace("12345", number)
        assert len(refusal(text)) < 300


def test_a_bound_that_is_no_multiple_of_the_step_is_refused(refusal, changed):
    message = refusal(changed("map.speed_bound", "16.675"))
    assert message.startswith("[map] speed_bound: speed bound is not a multiple of the speed step")


def test_what_needs_public_counts_is_refused_where_nothing_is_public(refusal, changed):
    message = refusal(changed("privacy.relation", "add_or_remove_user"))
    assert "epsilon_per_vehicle" in message
    assert "expected [budget] epsilon instead: all vehicles share one budget" in message


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [("budget.epsilon", 8, "epsilon_per_vehicle"), ("privacy.delta", 1e-6, '[budget] kind = "zcdp"')],
)
def test_what_belongs_to_the_account_of_a_store_is_refused_beside_public_counts(
    refusal, changed, key, value, instead
):
    message = refusal(changed(key, value))
    assert f"[{key.split('.')[0]}] {key.split('.')[1]}" in message
    assert f"expected {instead}" in message or f"expected [budget] {instead}" in message
    assert '(relation = "replace_user_values")' in message


@pytest.mark.parametrize(
    "periods",
    [
        [{"unit": "mph", "to": "2016-01-01"}, {"unit": "m/s", "from": "2016-01-01"}],
        [{"unit": "mph"}, {"unit": "m/s", "from": "2016-01-01"}],
        [{"unit": "m/s", "from": "2016-01-01"}, {"unit": "mph", "from": "2015-01-01"}],
        [{"unit": "mph", "to": "2015-01-01"}, {"unit": "m/s", "to": "2016-01-01"}],
        [
            {"unit": "mph", "from": "2015-01-01", "to": "2015-12-31"},
            {"unit": "m/s", "from": "2015-06-01", "to": "2015-06-01"},
        ],
    ],
)
def test_overlapping_unit_periods_are_refused_in_any_order(refusal, periods, changed):
    for order in (periods, periods[::-1]):
        message = refusal(changed("source.0.speed_unit", order))
        assert '[[source]] "capmetro" speed_unit' in message
        assert "one unit for every day" in message


def test_adjoining_unit_periods_are_accepted_in_any_order(load, full, changed):
    units = full["source"][0]["speed_unit"]
    (source,) = load(changed("source.0.speed_unit", units[::-1])).sources
    assert source.units == load(full).sources[0].units[::-1]


@pytest.mark.parametrize(
    ("path", "value", "begins"),
    [
        ("map.statistics", ["mean", "varience"], "[map] statistics[2] is not valid; got statistics[2] ="),
        (
            "source.0.files",
            ["*.csv", "in/*.csv"],
            '[[source]] "capmetro" files[2] is not valid; got files[2] =',
        ),
        ("source.0.sentinels", [1, "high"], '[[source]] "capmetro" sentinels[2] is not valid'),
        ("map.statistics", ["mean", "mean"], "[map] statistics is not valid; got an item given twice"),
        ("map.day_parts", [{"name": "a", "from": 0}], "[map] day_parts[1].to is missing"),
        ("source", ["csv"], "[[source]] 1 is not a table"),
        ("city", 3, "[city] is not a table; got 3; expected a table with the keys name,"),
    ],
)
def test_the_wrong_item_of_a_list_is_named_by_its_number(refusal, path, value, begins, changed):
    assert refusal(changed(path, value)).startswith(begins)


def test_a_misspelt_word_is_met_with_the_nearest(refusal, changed):
    assert 'did you mean "variance"?' in refusal(changed("map.statistics", ["varience"]))
    assert 'did you mean "hour_of_day"?' in refusal(changed("map.slot", "hour_of_dya"))
    assert 'did you mean "km/h"?' in refusal(changed("map.speed_unit", "km/hr"))
    assert "leave the folder out" in refusal(changed("source.0.files", ["in/*.csv"]))


def test_an_unknown_key_is_told_before_what_is_missing(refusal, changed, minimal):
    message = refusal(changed("map.resoluton", 7, changed("city.name", ..., minimal)))
    assert message.startswith("unknown key [map] resoluton; expected resolution;")


def test_two_sources_of_one_name_are_refused(refusal, full, changed):
    assert "name is given twice" in refusal(changed("source", full["source"] * 2))


def test_a_time_pattern_without_offset_needs_a_zone(refusal, load, changed):
    assert '"capmetro" time_zone is missing' in refusal(changed("source.0.time_zone", ...))
    document = changed("source.0.time_format", "%Y-%m-%dT%H:%M:%S%z", changed("source.0.time_zone", ...))
    assert load(document).sources[0].time_zone is None
