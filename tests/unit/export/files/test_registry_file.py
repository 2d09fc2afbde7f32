from dataclasses import replace

import pytest
import yaml

from trafficdp.errors import DataError
from trafficdp.export.files.registry_file import registry_bytes


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
