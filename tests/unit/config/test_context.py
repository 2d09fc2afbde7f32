"""What [[context]] says: public layers, by files that are there."""

import re

import pytest

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
        ("streets.gpkg", "none.gpkg", r"\[\[context\]\] 1 file does not exist; got .*none.gpkg"),
        ('"streets.gpkg"', '"https://example.org/streets.gpkg"', r"\[\[context\]\] 1 file is not valid"),
        ('"roads"', '"railways"', r'kind is not valid.*"roads", "water", "park"'),
        ('attribution = "Survey of nowhere"\n', "", "attribution is missing.*who made the layer"),
    ],
)
def test_what_a_layer_may_not_say(old, new, says, refusal, minimal, document_text, tmp_path):
    (tmp_path / "streets.gpkg").touch()
    text = document_text(minimal) + LAYER.replace(old, new)
    assert re.search(says, refusal(text))
