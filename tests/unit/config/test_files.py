"""Files that are no configuration, and any change to one that is: nothing but ConfigError comes of them."""

import copy
import json
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.config.document import _TOO_DEEP, LARGEST_FILE, load_document
from trafficdp.config.file import declaration_json, load_config
from trafficdp.errors import ConfigError
from trafficdp.privacy.loss import PureDP


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist.*trafficdp init"):
        load_config(tmp_path / "trafficdp.toml")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is a directory"):
        load_config(tmp_path)


def test_a_path_that_cannot_be_is_refused(tmp_path):
    for name in ("a\0b", "a" * 5000, "file/x"):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(tmp_path / name)


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
    path = tmp_path / "trafficdp.toml"
    path.write_bytes('[city]\nname = "Zürich"\n'.encode("latin-1"))
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(path)


def test_what_is_not_toml_is_refused_with_the_line(refusal):
    assert "line 2" in refusal("[city]\nname = Austin\n")


def test_endless_nesting_is_refused(refusal):
    assert "nested" in refusal("city = " + "[" * 5000)
    assert "16 words joined by dots in line 2" in refusal("\n[city." + "a." * 3000 + "b]")


@pytest.mark.parametrize("word", ["a", '"a\\"b"', "'a'", " a "], ids=["bare", "quoted", "literal", "spaced"])
def test_keys_are_refused_before_they_are_parsed_from_seventeen_words_on(word, monkeypatch, tmp_path):
    parsed = []
    monkeypatch.setattr(tomllib, "loads", lambda text, **_options: parsed.append(text) or {})
    file = tmp_path / "it.toml"
    file.write_text(".".join([word] * 16) + " = 1", encoding="utf-8")
    load_document(file)
    assert len(parsed) == 1
    file.write_text(".".join([word] * 17) + " = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_document(file)
    assert len(parsed) == 1


@pytest.mark.parametrize("unit", ['"', '"\\', "'", "a.", "a ", '"a"', '"\\\\'], ids=range(7))
def test_looking_for_such_keys_reads_every_letter_once_or_so(unit):
    """An engine that went back again and again would need hours here."""
    _TOO_DEEP.search((unit * LARGEST_FILE)[:LARGEST_FILE].replace("a." * 16, "a." * 15 + "-,"))


def test_a_file_larger_than_any_configuration_is_refused_unread(refusal):
    assert "is too large" in refusal("#" * (LARGEST_FILE + 1))
    assert "is too large" not in refusal("#" * LARGEST_FILE)


def test_a_study_area_nested_without_end_is_refused(refusal, tmp_path, changed):
    (tmp_path / "deep.geojson").write_text("[" * 200_000)
    assert "is not GeoJSON" in refusal(changed("city.study_area", {"geojson": "deep.geojson"}))


def _paths(value: object, path: tuple = ()) -> list[tuple]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inside for found in _paths(item, (*path, key)))]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-5, 30),
    st.decimals(allow_nan=True, allow_infinity=True).filter(lambda value: not value.is_snan()),
    TEXT,
    st.sampled_from(
        ["mean", "m/s", "iso8601", "csv", "UTC", "2016-11-25", "area.geojson", ".", "city.store", "%z"]
    ),
    st.dates(),
    st.datetimes(),
    st.times(),
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXT, v, max_size=3), max_leaves=6
)


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_only_config_errors_come_of_any_change_to_a_valid_configuration(outcome, data, full):
    document = copy.deepcopy(full)
    paths = [path for path in _paths(full) if path]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(paths))
        place = document
        try:
            for step in path[:-1]:
                place = place[step]
            value = place[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
        what = data.draw(st.sampled_from(["delete", "rename", "replace"]))
        if what == "replace" or isinstance(place, list):
            place[path[-1]] = data.draw(VALUES)
        else:
            del place[path[-1]]
            if what == "rename":
                place[data.draw(TEXT)] = value
    config, message = outcome(document)
    assert message.isprintable()
    if config is not None:
        assert config.request(PureDP.of(1)).bound.upper_steps >= 1
        assert all(json.loads(declaration_json(source)) for source in config.sources)


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_only_config_errors_come_of_any_cut_or_splice_of_the_text(outcome, data, full, document_text):
    text = document_text(full)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    _, message = outcome(text[:start] + data.draw(TEXT) + text[end:])
    assert message.isprintable()
