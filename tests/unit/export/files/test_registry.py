from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from trafficdp.errors import DataError
from trafficdp.export.files.catalogue import registry_bytes, registry_record
from trafficdp.export.report.report import report_html


def test_the_record_is_of_tier_three_and_repeats_the_epsilon(city):
    record = city.disclosure.registry
    assert record["tier"] == 3
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 3.999999999999}
    assert record["deployment"]["dp_variant"]["variant_name"] == "Pure DP"


def test_the_record_says_what_is_not_protected(city):
    words = city.disclosure.registry["deployment"]["dp_variant"]["unprotected_quantities"]
    assert all(each in words for each in city.disclosure.unit.not_protected)


def test_the_slug_has_letters_digits_and_hyphens_only(make_release, city):
    import h3

    odd = make_release([h3.latlng_to_cell(30.27, -97.74, 7)], place="São Paulo / Центр")
    assert odd.disclosure.registry["url_slug"] == "traffic-speeds-s-o-paulo-r0001"


def test_record_and_report_name_the_theorem_of_what_is_only_claimed(city):
    first, *others = city.disclosure.mechanisms
    claimed = replace(first, unenforced="a vehicle moves one mean of an array")
    disclosed = replace(city.disclosure, mechanisms=(claimed, *others))
    told = registry_record(disclosed)["deployment"]["implementation"]["mechanisms"]
    assert told.count("unenforced: a vehicle moves one mean of an array") == 1
    page = report_html(replace(city, disclosure=disclosed)).decode()
    assert page.count("unenforced: a vehicle moves one mean of an array</dd>") == 1
    # and what is enforced says nothing
    assert "unenforced" not in str(city.disclosure.registry)
    assert "unenforced" not in report_html(city).decode()


def test_the_file_is_the_record_of_the_manifest(any_release):
    record = yaml.safe_load(registry_bytes(any_release))
    assert record == yaml.safe_load(yaml.safe_dump(dict(any_release.disclosure.registry)))
    assert list(record) == ["url_slug", "status", "tier", "deployment"]


def test_the_date_stays_text_and_no_line_is_folded(city):
    text = registry_bytes(city).decode()
    assert "publication_date: '2016-12-01'" in text
    for token in yaml.scan(text):
        # what the registry's own check accepts
        assert getattr(token, "style", None) in (None, "|", '"', "'")


@pytest.mark.parametrize(
    ("group", "field", "value", "place"),
    [
        ("basic", "data_product_sector", "Transportation", "basic.data_product_sector"),
        ("dp_variant", "variant_name", "Safe", "dp_variant.variant_name"),
        ("basic", "publication_date", "1/12/2016", "basic.publication_date"),
        ("administrative", "surprise", "x", "administrative"),
    ],
)
def test_a_record_that_the_registry_would_refuse_is_refused(group, field, value, place, city):
    record = city.disclosure.registry
    deployment = record["deployment"]
    wrong = {**record, "deployment": {**deployment, group: {**deployment[group], field: value}}}
    with pytest.raises(DataError, match=place):
        registry_bytes(replace(city, disclosure=replace(city.disclosure, registry=wrong)))
