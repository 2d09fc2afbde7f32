"""Who may ask priced questions, and the areas that questions name."""

import re

import pytest

from trafficdp.config.file import template
from trafficdp.model import ContextKind
from trafficdp.privacy.budget import Analyst
from trafficdp.privacy.loss import PureDP

TWO = """
[[analysts]]
name = "newsroom"
epsilon_per_vehicle = 2

[[analysts]]
name = "planning"
epsilon_per_vehicle = 1.5
"""


def test_analysts_have_a_name_and_a_budget(load, minimal, document_text):
    config = load(document_text(minimal) + TWO)
    assert config.analysts == (Analyst("newsroom", PureDP.of(2)), Analyst("planning", PureDP.of("1.5")))
    assert load(minimal).analysts == ()


def test_what_the_template_shows_may_be_uncommented(load, minimal, document_text, tmp_path):
    (tmp_path / "streets.gpkg").touch()
    shown = re.findall(r"(?m)^# (\[\[\w+\]\]\n(?:#   \w+ = .*\n)+)", template())
    assert len(shown) == 4
    config = load(document_text(minimal) + "".join(shown).replace("#  ", " "))
    assert [analyst.name for analyst in config.analysts] == ["newsroom"]
    assert list(config.areas) == ["centre"]
    assert [each.release for each in config.knowledge] == ["newest"]
    (layer,) = config.context
    assert (layer.path.name, layer.kind, layer.name) == ("streets.gpkg", ContextKind.ROADS, "name")


def test_budgets_of_analysts_may_add_up_to_more_than_a_vehicle_has(load, minimal, document_text):
    many = "".join(f'[[analysts]]\nname = "desk {n}"\nepsilon_per_vehicle = 1000\n' for n in range(3))
    config = load(document_text(minimal) + many)
    assert sum(each.budget.pico for each in config.analysts) > config.policy.total.pico


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("analysts = 3\n", "a list of tables"),
        ('[[analysts]]\nname = "a"\n', "epsilon_per_vehicle is missing"),
        ("[[analysts]]\nepsilon_per_vehicle = 1\n", "name is missing"),
        ('[[analysts]]\nname = "a"\nepsilon_per_vehicle = 0\n', "epsilon_per_vehicle is not valid"),
        ('[[analysts]]\nname = "a"\nepsilon_per_vehicle = 2000000\n', "epsilon_per_vehicle is not valid"),
        ('[[analysts]]\nname = ""\nepsilon_per_vehicle = 1\n', "name is not valid"),
        ('[[analysts]]\nname = "a"\nepsilon_per_vehicle = 1\npassword = "x"\n', "unknown key"),
        (TWO.replace("planning", "NewsRoom"), "another name for every analyst"),
    ],
)
def test_a_wrong_analyst_is_refused(refusal, minimal, document_text, text, what):
    message = refusal(document_text(minimal) + text)
    assert "analysts" in message
    assert what in message


def test_areas_are_boxes_or_polygons_by_name(load, minimal, document_text, tmp_path):
    (tmp_path / "ring.geojson").write_text(
        '{"type":"Polygon","coordinates":[[[-97.8,30.2],[-97.7,30.2],[-97.7,30.3],[-97.8,30.2]]]}'
    )
    config = load(
        document_text(minimal)
        + '[[areas]]\nname = "centre"\nbbox = [-97.80, 30.20, -97.70, 30.30]\n'
        + '[[areas]]\nname = "ring"\ngeojson = "ring.geojson"\n'
    )
    assert list(config.areas) == ["centre", "ring"]
    assert config.areas["centre"].is_box
    assert not config.areas["ring"].is_box
    assert load(minimal).areas == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("areas = 3\n", "a list of tables"),
        ("[[areas]]\nbbox = [1, 2, 3, 4]\n", "name is missing"),
        ('[[areas]]\nname = "a"\n', "neither"),
        ('[[areas]]\nname = "a"\nbbox = [1, 2, 3, 4]\ngeojson = "b"\n', "both"),
        ('[[areas]]\nname = "a"\nbbox = [1, 2, 3]\n', "bbox is not valid"),
        ('[[areas]]\nname = "a"\nbbox = [1, 4, 3, 2]\n', "not a box"),
        ('[[areas]]\nname = "a"\ngeojson = "none.geojson"\n', "does not exist"),
        ('[[areas]]\nname = "a"\nbbox = [1, 2, 3, 4]\n[[areas]]\nname = "A"\nbbox = [1, 2, 3, 4]\n', "twice"),
    ],
)
def test_a_wrong_area_is_refused(refusal, minimal, document_text, text, what):
    message = refusal(document_text(minimal) + text)
    assert "areas" in message
    assert what in message
