"""Valid configurations, and how to change them, write them as TOML and load them."""

import copy
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest

from trafficdp.config.file import load_config
from trafficdp.config.settings import Config
from trafficdp.errors import ConfigError

AREA = '{"type": "Polygon", "coordinates": [[[-98, 30], [-97, 30], [-97, 31], [-98, 31], [-98, 30]]]}'

MINIMAL = {
    "city": {
        "name": "Austin",
        "publisher": "City of Austin",
        "time_zone": "America/Chicago",
        "study_area": {"bbox": [Decimal("-98.2"), Decimal("29.9"), Decimal("-97.3"), Decimal("30.8")]},
        "period": {"from": "2016-11-24", "to": "2016-11-27"},
    },
    "privacy": {"relation": "replace_user_values"},
    "budget": {"epsilon_per_vehicle": 8},
    "map": {"resolution": 7, "speed_bound": 30, "speed_unit": "m/s"},
    "source": [
        {
            "name": "capmetro",
            "format": "csv",
            "files": ["*.csv.gz"],
            "speed_unit": "m/s",
            "columns": {
                "vehicle": "vehicle_id",
                "time": "timestamp",
                "latitude": "latitude",
                "longitude": "longitude",
                "speed": "speed",
            },
        }
    ],
}

FULL = copy.deepcopy(MINIMAL) | {"store": "city.store", "key_file": "keys/city.key"}
FULL["privacy"]["epsilon"] = 4
FULL["map"] |= {
    "slot": "day_part",
    "speed_step": Decimal("0.01"),
    "display_unit": "km/h",
    "min_vehicles": 6,
    "statistics": ["variance", "mean"],
    "tolerance": {"mean": 2, "variance": Decimal("12.5")},
    "interval_level": Decimal("0.9"),
    "publish_counts": True,
    "accounting": "exact",
    "day_parts": [{"name": "night", "from": 20, "to": 8}, {"name": "light", "from": 8, "to": 20}],
}
FULL["source"][0] |= {
    "speed_unit": [{"unit": "mph", "to": "2015-12-31"}, {"unit": "m/s", "from": date(2016, 1, 1)}],
    "time_format": "%d/%m/%Y %H:%M:%S",
    "time_zone": "America/Chicago",
    "sentinels": [Decimal("113.9952"), 255],
    "missing_speed": "derive",
    "namespace": "city",
    "min_kept": Decimal("0.9"),
}


def _toml(value: object) -> str:
    """A value as inline TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite():
        text = str(value).replace("E", "e")
        return text if "." in text or "e" in text else f"{text}.0"
    return str(value).lower().replace("infinity", "inf")


def document_text(document: dict) -> str:
    return "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in document.items())


def changed(path: str, value: object, base: dict = FULL) -> dict:
    """A copy of ``base`` with the dotted ``path`` set; a value of ... deletes it."""
    document = copy.deepcopy(base)
    *parents, last = path.split(".")
    place = document
    for step in parents:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.fixture
def minimal() -> dict:
    return copy.deepcopy(MINIMAL)


@pytest.fixture
def full() -> dict:
    return copy.deepcopy(FULL)


@pytest.fixture(name="toml")
def toml_() -> Callable[[object], str]:
    return _toml


@pytest.fixture(name="document_text")
def document_text_() -> Callable[[dict], str]:
    return document_text


@pytest.fixture(name="changed")
def changed_() -> Callable[..., dict]:
    return changed


@pytest.fixture
def load(tmp_path: Path):
    (tmp_path / "area.geojson").write_text(AREA)

    def load(document: dict | str) -> Config:
        path = tmp_path / "trafficdp.toml"
        path.write_text(document if isinstance(document, str) else document_text(document), encoding="utf-8")
        return load_config(path)

    return load


@pytest.fixture
def refusal(load):
    def refusal(document: dict | str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(document)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refusal


@pytest.fixture
def outcome(load):
    """The configuration, or the message of the ConfigError; anything else fails the test."""

    def outcome(document: dict | str) -> tuple[Config | None, str]:
        try:
            return load(document), ""
        except ConfigError as error:
            return None, str(error)

    return outcome
