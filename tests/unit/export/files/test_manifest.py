from __future__ import annotations

import copy
import json
from dataclasses import replace

import jsonschema
import pytest

from trafficdp.errors import DataError
from trafficdp.export.files.catalogue import ColumnFacts, FileFacts, document_bytes
from trafficdp.export.files.manifest import (
    SCHEMA,
    build_manifest,
    validate_manifest,
)
from trafficdp.model import CatalogueEntry, as_json

FILES = {
    "map.geojson": FileFacts("map.geojson", "c" * 64, 12, (ColumnFacts("hex_id", None, "cell"),)),
    "cells.csv": FileFacts("cells.csv", "d" * 64, 9, ()),
}


@pytest.fixture
def document(city):
    return build_manifest(city, FILES)


def places(value, path=()):
    """Every place in a document that holds text."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*path, number))
    elif isinstance(value, str):
        yield path


def changed(document, path, value):
    copied = copy.deepcopy(document)
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copied


def test_every_release_has_a_valid_manifest(any_release):
    validate_manifest(build_manifest(any_release, FILES))


def test_all_field_groups_are_there(document):
    assert set(document) == {
        "accounting", "bounds", "coverage", "data", "files", "guarantee", "honesty", "identity",
        "manifest_version", "mechanisms", "post_processing", "noise", "registry", "uncertainty", "unit",
    }  # fmt: skip


def test_the_place_in_the_ledger_is_told(document):
    assert document["accounting"]["ledger_sequence"] == 2
    assert document["accounting"]["head_hash"] == "b" * 64


def test_files_are_listed_with_their_hashes(document):
    assert [(each["name"], each["sha256"]) for each in document["files"]] == [
        ("cells.csv", "d" * 64),
        ("map.geojson", "c" * 64),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("bad", ["", "   ", "unknown", "Unknown", " UNKNOWN "])
def test_no_text_anywhere_may_be_empty_or_unknown(document, bad):
    for path in places(document):
        with pytest.raises(DataError, match="manifest"):
            validate_manifest(changed(document, path, bad))


@pytest.mark.slow
def test_every_required_field_is_missed_by_name(document):
    for group in set(document):
        short = {name: value for name, value in document.items() if name != group}
        with pytest.raises(DataError, match=group):
            validate_manifest(short)
        if isinstance(document[group], dict) and group != "registry":
            for field in document[group]:
                short = copy.deepcopy(document)
                del short[group][field]
                with pytest.raises(DataError, match=field):
                    validate_manifest(short)


def test_the_json_path_is_named(document):
    with pytest.raises(DataError, match=r"\$\.identity\.publisher"):
        validate_manifest(changed(document, ("identity", "publisher"), ""))
    with pytest.raises(DataError, match=r"\$\.mechanisms\[0\]\.noise_scale_min"):
        validate_manifest(changed(document, ("mechanisms", 0, "noise_scale_min"), "small"))


@pytest.mark.parametrize(
    "path", [("extra",), ("identity", "extra"), ("mechanisms", 0, "extra"), ("noise", "x")]
)
def test_a_field_we_do_not_know_is_refused(document, path):
    with pytest.raises(DataError, match="Additional properties"):
        validate_manifest(changed(document, path, "text"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("accounting", "sum_of_maxima_after"), "5"),
        (("accounting", "left_for_every_vehicle"), "8"),
        (("guarantee", "sum_of_maxima"), "1"),
        (("guarantee", "budget_per_vehicle"), "9"),
        (("coverage", "bins", "total"), 60),
        (("files", 0, "name"), "map.geojson"),
        (("honesty", "idealised_mechanisms"), True),
        (("honesty", "weaknesses"), ["The budget of epsilon 8 is large."]),
        (("mechanisms", 0, "idealised"), True),
        (("guarantee", "rho"), "1"),
        (("registry", "url_slug"), "traffic-speeds-elsewhere"),
        (("registry", "x"), "text"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(document, path, value):
    with pytest.raises(DataError, match="contradicts itself"):
        validate_manifest(changed(document, path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("unit", "neighbouring_relation"), "something"),
        (("guarantee", "definition"), "anonymous"),
        (("guarantee", "epsilon"), "1.0000000000001"),
        (("honesty", "idealised_mechanisms"), "yes"),
        (("data", "sources", 0, "speed"), "any"),
        (("identity", "software", "commit"), "head"),
        (("uncertainty", "simultaneous"), True),
    ],
)
def test_a_value_outside_its_range_is_refused(document, path, value):
    with pytest.raises(DataError, match="not complete"):
        validate_manifest(changed(document, path, value))


def test_a_commit_may_be_absent(document):
    del document["identity"]["software"]["commit"]
    validate_manifest(document)


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_something_else_than_an_object_is_refused(document):
    with pytest.raises(DataError):
        validate_manifest(document)


def test_the_disclosure_of_another_release_is_refused(city, rush_hours):
    with pytest.raises(DataError, match=r"coverage\.slot_kind"):
        build_manifest(replace(city, disclosure=rush_hours.disclosure), FILES)
    with pytest.raises(DataError, match=r"identity\.release"):
        build_manifest(replace(city, id="R0002"), FILES)
    with pytest.raises(DataError, match=r"interval_level"):
        build_manifest(replace(city, request=replace(city.request, interval_level=0.9)), FILES)


def test_building_leaves_the_release_as_it_was(city):
    before = as_json(city.disclosure)
    build_manifest(city, FILES)
    assert as_json(city.disclosure) == before


def test_the_text_is_sorted_indented_and_ends_with_a_newline(document):
    text = document_bytes(document, sort_keys=True).decode()
    assert text == json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    assert document_bytes(dict(reversed(document.items())), sort_keys=True) == text.encode()


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text("utf-8")))


def test_every_object_of_the_schema_is_closed_and_every_text_is_bounded():
    def visit(schema):
        if isinstance(schema, list):
            for each in schema:
                visit(each)
        if not isinstance(schema, dict):
            return
        if schema.get("type") == "object" and "properties" in schema:
            assert schema["additionalProperties"] is False
            # what not every kind of calibrated mechanism has
            optional = {"commit", "mechanisms", "settings"}
            optional |= {
                "rule",
                "epsilon_per_bin",
                "periodic_budget",
                "budget_changes",
                "weaknesses",
                "stream",
            }
            # what is told to portals, all of which may be left out
            optional |= {"catalogue", *CatalogueEntry.__dataclass_fields__}
            # the theorem of what is claimed and not enforced
            optional |= {"unenforced"}
            # of intervals without a theorem
            optional |= {"calibration"}
            # what a map of one piece is given, and what streams and answers do not say
            optional |= {"loss_kind", "pico", "statistics", "skill"}
            # what only a guarantee in rho says
            optional |= {"rho", "delta", "epsilon_of_sum", "conversion"}
            # what only a map of one piece says
            optional |= {"loss_kind", "pico", "statistics", "fleet", "per_slot", "counts_percent"}
            optional |= {
                "mean",
                "variance",
                "vehicle_mean",
                "question",
                "selection",
                "mosaic",
                "context",
                "zones",
            }
            # of files, sources of knowledge say more
            optional |= {"known"}
            if "share" in schema["properties"] and "sha256" in schema["properties"]:
                optional |= {"licence", "date"}
            assert set(schema["required"]) >= set(schema["properties"]) - optional
        if schema.get("type") == "string":
            assert schema.keys() & {"pattern", "enum", "const"}
        for each in schema.values():
            visit(each)

    visit(json.loads(SCHEMA.read_text("utf-8")))


def test_nothing_personal_has_a_place_in_the_schema():
    text = json.dumps(json.loads(SCHEMA.read_text("utf-8"))).lower()
    for word in ("seed", "plate", "hmac", "largest_loss", "loss_per_user"):
        assert f'"{word}"' not in text
