"""The commented configuration with what a configuration of the IUDX pipeline says filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from trafficdp.config.document import read_text
from trafficdp.config.file import template
from trafficdp.errors import ConfigError

KEYS = {
    "resolution": "resolution",
    "slot_kind": "slot",
    "speed_bound": "speed_bound",
    "statistics": "statistics",
}
"""Names of the settings that are taken over, and their keys in the template."""
PLACES = ("location", "location.coordinates")


def iudx_template(path: Path) -> tuple[str, list[str]]:
    """Return the text of a trafficdp.toml by the IUDX configuration at ``path``, and what to tell of it.

    What it does not say, or means otherwise, stays open to be chosen. Raises ConfigError when the file is
    not a JSON object, cannot be read, or a value is not of its key's type.
    """
    from trafficdp.ingest.iudx_config import import_iudx_config

    found = import_iudx_config(_document(path))
    messages = list(found.messages)
    text = _with(template(), "format", "iudx")
    for name, key in KEYS.items():
        if name in found.settings:
            text = _with(text, key, found.settings[name])
    columns = dict(_columns(found.settings))
    place = columns.pop("position", PLACES[0])
    if place not in PLACES:
        messages.append(
            f"spatial_attribute = {place} is left out: positions of the format iudx are read from location."
        )
    inside = ", ".join(f"{name} = {json.dumps(column)}" for name, column in columns.items())
    return with_line(text, "columns", f"columns = {{ {inside} }}" if columns else "# columns = {}"), messages


def _document(path: Path) -> Mapping[str, object]:
    text = read_text(path, what="the IUDX configuration", todo="name the pipeline's own JSON file")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "the IUDX configuration is not JSON", got=str(path), todo="name the pipeline's own file"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(
            "the IUDX configuration is not an object", got=str(path), expected="{...} at the top"
        )
    return document


def _columns(settings: Mapping[str, object]) -> Mapping[str, str]:
    columns = settings.get("columns", {})
    return columns if isinstance(columns, dict) else {}


def _with(text: str, key: str, value: object) -> str:
    # texts, numbers and lists of texts are written alike in JSON and TOML
    return with_line(text, key, f"{key} = {json.dumps(value)}")


def with_line(text: str, key: str, line: str) -> str:
    """Put ``line`` in place of the only one that sets ``key``."""
    changed, times = re.subn(rf"(?m)^{key} = .*$", lambda _: line, text)
    if times != 1:
        raise AssertionError(f"the template sets {key} {times} times")
    return changed
