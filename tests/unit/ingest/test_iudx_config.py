from __future__ import annotations

import pytest

from trafficdp.errors import ConfigError
from trafficdp.ingest.iudx_config import import_iudx_config

CONFIG = {
    "spatial_generalize": {
        "spatial_attribute": "location.coordinates",
        "h3_resolution": 7,
        "filter_event_occurences": 15,
        "filter_attribute": "license_plate",
        "filter_attribute_by": ["HAT", "Date"],
    },
    "temporal_generalize": {
        "temporal_attribute": "observationDateTime",
        "timeslot_resolution": 60,
        "start_time": 9,
        "end_time": 20,
    },
    "differential_privacy": {
        "dp_query": "mean",
        "dp_epsilon": 5,
        "dp_epsilon_step": 0.1,
        "dp_output_attribute": "speed",
        "global_max_value": 65,
        "global_min_value": 0,
    },
}


def test_what_means_the_same_is_taken_over():
    assert import_iudx_config(CONFIG).settings == {
        "resolution": 7,
        "slot_kind": "hour_of_day",
        "speed_bound": 65,
        "statistics": ["mean"],
        "columns": {
            "vehicle": "license_plate",
            "time": "observationDateTime",
            "position": "location.coordinates",
            "speed": "speed",
        },
    }


def test_keys_may_stand_at_the_top():
    flat = {key: value for section in CONFIG.values() for key, value in section.items()}
    assert import_iudx_config(flat) == import_iudx_config(CONFIG)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("dp_epsilon", "not composed"),
        ("dp_epsilon_step", "plan shows"),
        ("filter_event_occurences", "exact filter"),
        ("start_time", "inclusive hours there: 9 to 20 means until 20:59"),
        ("global_max_value", "clipped to it, never dropped"),
        ("dp_query", "vehicle with most records"),
        ("speed unit", "choose them"),
    ],
)
def test_every_key_that_changed_meaning_has_its_message(key, said):
    messages = import_iudx_config(CONFIG).messages
    assert [m for m in messages if key in m and said in m]


def test_neither_epsilon_nor_unit_nor_relation_is_taken_over():
    assert not {"epsilon", "dp_epsilon", "speed_unit", "relation"} & set(import_iudx_config(CONFIG).settings)


def test_an_absent_key_says_nothing():
    found = import_iudx_config({})
    assert found.settings == {"slot_kind": "hour_of_day"}
    assert len(found.messages) == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"timeslot_resolution": 15}, "15 minutes has no counterpart"),
        ({"global_min_value": 3}, "global_min_value = 3 is left out"),
        ({"dp_query": "count"}, "dp_query = count is left out"),
    ],
)
def test_what_has_no_counterpart_is_said(config, said):
    assert [message for message in import_iudx_config(config).messages if said in message]


@pytest.mark.parametrize(
    "config", [{"h3_resolution": "7"}, {"h3_resolution": 16}, {"dp_epsilon": True}, {"h3_resolution": 7.5}]
)
def test_values_of_a_wrong_type_are_config_errors(config):
    with pytest.raises(ConfigError, match="of the IUDX configuration"):
        import_iudx_config(config)
