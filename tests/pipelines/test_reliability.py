"""How often intervals hold: what the script computes, and that the guide has its committed table."""

import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import capmetro
import reliability
from trafficdp.mechanisms.pooling.add_remove_calibrated import CalibratedAddRemove
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.model import Statistic

ROOT = Path(__file__).resolve().parents[2]


def test_a_posterior_that_is_right_holds_as_often_as_it_says():
    draw = np.random.default_rng(1)
    truth, draws = draw.uniform(5, 15, 4_000), []
    for _ in range(5):
        value = truth + draw.normal(0, 1, truth.shape)
        half = [norm.ppf((1 + level) / 2) for level in reliability.LEVELS]
        ends = np.array([[value - each, value + each] for each in half])
        error = np.full(truth.shape, np.sqrt(2 / np.pi))
        draws.append(reliability.Said(value, error, ends, norm.cdf(8.0 - value), 10.0))
    found = reliability.measured(("held out", "a", "b", "c", "d"), truth, draws)
    assert found.held == pytest.approx(reliability.LEVELS, abs=0.01)
    assert found.width == pytest.approx(1.0, abs=0.02)
    assert found.said == pytest.approx(1.0, abs=0.02)
    chance, many, slower = found.chance.T
    assert many.sum() == 20_000
    # a flat prior of speeds: chances come true
    assert slower / many == pytest.approx(chance / many, abs=0.05)


def test_intervals_half_as_wide_hold_less_and_are_half_as_wide():
    truth = np.random.default_rng(2).uniform(5, 15, 4_000)
    value = truth + np.random.default_rng(3).normal(0, 1, truth.shape)
    ends = np.array([[value - each, value + each] for each in (0.3, 0.6, 0.98)])
    own = reliability.Said(value, np.full(truth.shape, 0.4), ends, np.zeros(truth.shape), 10.0)
    found = reliability.measured(("tuned", "a", "b", "c", "d"), truth, [own])
    assert found.held[-1] == pytest.approx(0.673, abs=0.02)
    assert found.width == pytest.approx(0.5, abs=0.02)
    assert found.said == pytest.approx(0.5, abs=0.02)


def test_the_guide_has_the_committed_table_with_every_mark(pages):
    page = reliability.INTO.read_text(encoding="utf-8")
    _, rest = pages.guide("limits").split("<!-- written by pipelines/reliability.py -->\n")
    table, _ = rest.split("<!-- up to here -->\n")
    assert table in page
    rows = pages.rows(table)
    assert rows[0] == list(reliability.HEADS)
    totals = {(row[0].strip("*"), row[1]): row for row in rows if row[2] == "all"}
    means, variances = reliability.RELATIONS, reliability.VARIANCES
    relations = *means, *variances, *reliability.FLAT
    assert totals.keys() >= {*product(reliability.GROUPS, relations)}
    places = {row[2] for row in rows[2:]} - {"all"}
    days = [f"Austin {each[0]}" for each in (*reliability.TUNED[1:], *reliability.HELD_OUT)]
    assert {*days, "San Francisco 2008-05-29", "Washington 2026-02-16", "Warsaw 2024-02-19"} < places
    every = pages.rows(page.split("## Every map of means")[1])[2:]
    totals = {key: row for key, row in totals.items() if key[1] in reliability.RELATIONS}
    assert len(every) == sum(int(row[3]) for row in totals.values()) == 24 * 12
    for (group, relation), row in totals.items():
        own = [each for each in every if (each[0], each[2]) == (group, relation)]
        assert float(row[6]) == pytest.approx(np.mean([float(each[7]) for each in own]), abs=0.002)
        assert float(row[7]) == min(float(each[7]) for each in own)


@pytest.mark.parametrize("script", ["knowledge", "timetables", "typical_speeds"])
def test_a_script_writes_between_its_marks_and_nowhere_else(script, tmp_path):
    text = (ROOT / "docs" / "guides" / "knowledge.md").read_text(encoding="utf-8")
    guide = tmp_path / "guide.md"
    guide.write_text(text, encoding="utf-8")
    capmetro.write_section(guide, script, ["| other |", "|---|"])
    before, _, rest = text.partition(f"<!-- written by pipelines/{script}.py -->\n")
    after = rest.partition("<!-- up to here -->\n")[2]
    found = guide.read_text(encoding="utf-8")
    assert found.startswith(before)
    assert found.endswith(after)
    assert found.removeprefix(before).removesuffix(after).count("| other |\n|---|\n") == 1
    assert len(found) < len(text)


@pytest.mark.parametrize(
    ("relation", "mechanism"),
    [(reliability.RELATIONS[0], CalibratedPooling), (reliability.RELATIONS[1], CalibratedAddRemove)],
)
def test_what_is_published_with_a_map_is_what_the_committed_table_says(relation, mechanism, pages):
    said = mechanism.trials[Statistic.MEAN]
    table = pages.rows(reliability.INTO.read_text(encoding="utf-8").split("## Every map of means")[0])[2:]
    rows = {row[2]: row for row in table if row[1] == relation and row[0].strip("*") != "tuned"}
    (held_out,) = (row for row in table if row[:3] == ["**held out**", relation, "all"])
    city = rows["San Francisco 2008-05-29"]
    found = (
        f"{said.held_on_other_days:.3f}",
        f"{said.held_on_worst_map:.3f}",
        f"{said.held_in_other_city:.3f}",
    )
    assert found == (held_out[6], held_out[7], city[6])
    shares = [f"{math.floor(100 * float(each))} %" for each in found]
    guide = pages.guide("which-mechanism")
    told = re.search(
        "other days there held (.*) \\((.*) on the worst map\\), and those of a day of .* taxis (.*?)\\.",
        guide,
    )
    hidden = re.search("Where nothing about a vehicle is public it was (.*), (.*) and (.*?)\\. That", guide)
    assert shares == [*(told if relation == reliability.RELATIONS[0] else hidden).groups()]


@pytest.mark.parametrize(
    ("relation", "mechanism", "statistic"),
    [
        (reliability.VARIANCES[0], CalibratedPooling, Statistic.VARIANCE),
        (reliability.VARIANCES[1], CalibratedAddRemove, Statistic.VARIANCE),
        (reliability.FLAT[0], CalibratedCityWide, Statistic.MEAN),
        (reliability.FLAT[1], CalibratedCityWide, Statistic.VARIANCE),
    ],
)
def test_what_is_published_with_other_maps_is_what_the_committed_table_says(
    relation, mechanism, statistic, pages
):
    said = mechanism.trials[statistic]
    table = pages.rows(reliability.INTO.read_text(encoding="utf-8").split("## Every map")[0])[2:]
    rows = {(row[0], row[2]): row for row in table if row[1] == relation}
    held_out = rows["**held out**", "all"]
    found = said.held_on_other_days, said.held_on_worst_map, said.held_in_other_city
    city = rows["other city", "San Francisco 2008-05-29"]
    assert tuple(f"{each:.3f}" for each in found) == (held_out[6], held_out[7], city[6])


@pytest.mark.parametrize(
    ("name", "columns", "many"),
    [("timetables", ("shuffled",), 88), ("typical_speeds", ("mixed units", "constant"), 80)],
)
def test_wrong_knowledge_costs_no_map_of_the_committed_tables_more_than_5_percent(name, columns, many, pages):
    page = (ROOT / "data" / "accuracy" / f"{name}.md").read_text(encoding="utf-8")
    head, _, *maps = pages.rows(page[page.index("| marked | days |") :])
    assert len(maps) == many
    changes = [re.findall(r"[+-]\d+(?=%)", row[head.index(each)]) for row in maps for each in columns]
    assert max(int(each) for found in changes for each in found) <= 5


def test_no_day_is_both_tuned_on_and_held_out():
    assert not {*sum(reliability.TUNED, ())} & {*sum(reliability.HELD_OUT, ())}


def test_without_the_feeds_it_says_what_to_do(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("TRAFFICDP_REAL_DATA", raising=False)
    monkeypatch.setattr("sys.argv", ["reliability.py", "--into", str(tmp_path / "page.md")])
    assert reliability.main() == 2
    assert re.match("reliability: TRAFFICDP_REAL_DATA is not set", capsys.readouterr().err)
