"""The template that ``trafficdp init`` writes."""

import dataclasses
import re
from decimal import Decimal

from trafficdp.config.file import template
from trafficdp.config.map import Map
from trafficdp.config.table import keys_of
from trafficdp.model import DEFAULT_DAY_PARTS
from trafficdp.privacy.loss import PureDP

CHOICES = {
    "[city] name": '"Austin"',
    "[city] publisher": '"City of Austin"',
    "[city] time_zone": '"America/Chicago"',
    "[city] study_area": "{ bbox = [-98.2, 29.9, -97.3, 30.8] }",
    "[city] period": '{ from = "2016-11-24", to = "2016-11-27" }',
    "[privacy] relation": '"replace_user_values"',
    "[budget] epsilon_per_vehicle": "8",
    "[map] resolution": "7",
    "[map] speed_bound": "30",
    "[map] speed_unit": '"m/s"',
    "[map] fleet": "1000",
    "[[source]] name": '"capmetro"',
    "[[source]] format": '"csv"',
    "[[source]] files": '["*.csv.gz"]',
    "[[source]] speed_unit": '"m/s"',
    "[[source]] columns": (
        '{ vehicle = "vehicle_id", time = "timestamp", '
        'latitude = "latitude", longitude = "longitude", speed = "speed" }'
    ),
}


def chosen_template() -> str:
    lines, section = [], ""
    for line in template().splitlines():
        section = line if line.startswith("[") else section
        key = line.partition(" = ")[0]
        lines.append(
            f"{key} = {CHOICES[f'{section} {key}']}" if "CHOOSE" in line and line[0] != "#" else line
        )
    return "\n".join(lines) + "\n"


def test_the_template_lists_everything_to_be_chosen_at_once(refusal):
    message = refusal(template())
    assert f"has {len(CHOICES)} keys still to be chosen; got {', '.join(CHOICES)};" in message


def test_the_template_once_chosen_says_what_the_defaults_say(load, minimal):
    config, minimal = load(chosen_template()), load(minimal)
    assert dataclasses.replace(config, store=None) == minimal


def test_every_optional_setting_of_the_template_may_be_uncommented(load):
    text = re.sub(r"^# ([a-z_]+ = |  \{ name|\]$)", r"\1", chosen_template(), flags=re.MULTILINE)
    # districts are instead of hexagons
    config = load(re.sub(r"^zones = .*", "", text, flags=re.MULTILINE))
    assert config.loss == PureDP.of(4)
    assert config.key_file is not None
    assert config.grid.day_parts == DEFAULT_DAY_PARTS
    assert config.sources[0].sentinels == (Decimal("113.9952"),)


def test_the_template_explains_every_key(full):
    keys = {
        "store",
        "key_file",
        *full["city"],
        *full["privacy"],
        *full["budget"],
        *keys_of(Map),
        *full["source"][0],
    }
    lines = template().splitlines()
    for key in keys:
        places = [i for i, line in enumerate(lines) if re.match(rf"(# )?{key} = ", line)]
        assert places, key
        assert all(lines[i - 1].startswith("# ") for i in places), key
