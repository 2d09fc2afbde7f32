"""What [[context]] says: public layers, by files that are there."""

import re

import pytest

from trafficdp.context.read import read_context
from trafficdp.model import StudyArea

LAYER = '[[context]]\nfile = "streets.gpkg"\nkind = "roads"\nattribution = "Survey of nowhere"\n'


def test_layers_are_in_their_order_and_a_column_may_be_left_out(load, minimal, document_text, tmp_path):
    (tmp_path / "streets.gpkg").touch()
    config = load(document_text(minimal) + LAYER + LAYER.replace("roads", "place") + 'name = "title"\n')
    assert [(each.kind.value, each.name) for each in config.context] == [("roads", None), ("place", "title")]
    assert config.context[0].attribution == "Survey of nowhere"
    assert load(minimal).context == ()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("streets.gpkg", "none.gpkg", r"\[\[context\]\] \"none.gpkg\" file does not exist; got .*none.gpkg"),
        (
            '"streets.gpkg"',
            '"https://example.org/streets.gpkg"',
            r"\[\[context\]\] \"https:.*\" file is not valid",
        ),
        ('"roads"', '"railways"', r'kind is not valid.*"roads", "water", "park"'),
        ('attribution = "Survey of nowhere"\n', "", "attribution is missing.*who made the layer"),
    ],
)
def test_what_a_layer_may_not_say(old, new, says, refusal, minimal, document_text, tmp_path):
    (tmp_path / "streets.gpkg").touch()
    text = document_text(minimal) + LAYER.replace(old, new)
    assert re.search(says, refusal(text))


URL = "https://tiles.example.org/{z}/{x}/{y}.png"


def with_tiles(document, **tiles):
    document["map"]["tiles"] = tiles
    return document


def test_tiles_are_a_layer_that_no_file_holds(load, minimal):
    (tiles,) = load(with_tiles(minimal, url=URL, attribution="Example City")).context
    assert (tiles.kind.value, tiles.attribution) == ("tiles", "Example City")
    (layer,) = read_context([tiles], StudyArea.from_bbox(72.5, 20.9, 73.2, 21.5))
    assert (layer.file, layer.shapes) == (URL, ())
    assert len(layer.sha256) == 64


@pytest.mark.parametrize(
    "url",
    [
        URL.replace("https", "http"),
        "https://tiles.example.org/{z}/{x}.png",
        "https://{s}.example.org/{z}/{x}/{y}.png",
        f"{URL}; script-src *",
        "tiles/{z}/{x}/{y}.png",
    ],
)
def test_tiles_come_from_one_server_by_https(url, refusal, minimal):
    said = refusal(with_tiles(minimal, url=url, attribution="Example City"))
    assert "[map] tiles.url is not valid" in said
    assert f'such as "{URL}"' in said


def test_knowledge_is_of_releases_and_of_a_few_at_most(load, refusal, minimal, document_text):
    one, text = '[[knowledge]]\nrelease = "{}"\n', document_text(minimal)
    assert load(minimal).knowledge == ()
    found = load(text + one.format("newest") + one.format("r0003")).knowledge
    assert [each.release for each in found] == ["newest", "r0003"]
    assert "knowledge" in refusal(text + one.format("newest") * 5)
    assert "[[knowledge]]" in refusal(text + one.format(""))


def test_tiles_need_an_attribution_and_are_no_context_file(refusal, minimal, document_text, tmp_path):
    (tmp_path / "streets.gpkg").touch()
    assert "kind is not valid" in refusal(document_text(minimal) + LAYER.replace("roads", "tiles"))
    assert "tiles.attribution is missing" in refusal(with_tiles(minimal, url=URL))
