"""`trafficdp init`: a commented configuration, an empty store, a key outside it.

The configuration may be filled in with what a configuration of the IUDX pipeline says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from trafficdp._durable import disk_errors
from trafficdp.cli.options import Settings, is_interactive, relative_path
from trafficdp.config.document import read_places, read_text, store_and_key
from trafficdp.config.file import template
from trafficdp.errors import ConfigError, UsageError
from trafficdp.release.status import create_store
from trafficdp.store.vault import database_in

IudxOption = Annotated[
    Path | None,
    typer.Option(metavar="<file>", help="Fill in what a configuration (JSON) of the IUDX pipeline says."),
]
FleetOption = Annotated[
    int | None,
    typer.Option(
        metavar="<number>",
        min=1,
        max=10**9,
        help="How many vehicles are expected, from a public register; on a terminal it is asked for.",
    ),
]
MOST_ASKED = 3
"""So often a number is asked for that is none."""


def init(context: typer.Context, iudx: IudxOption = None, fleet: FleetOption = None) -> None:
    """Write a commented configuration (if there is none) and make an empty store and its key."""
    settings: Settings = context.obj
    output = settings.output
    fresh = not _exists(settings.config)
    # the template sets no place of its own but the usual one
    configured = (None, None) if fresh else read_places(settings.config)
    store, key = store_and_key(settings.config, settings.store, *configured)
    database_in(store)
    if _exists(store / "vault.duckdb"):
        raise UsageError(
            "there is a store here already", got=str(store), todo="use it, or name another with --store"
        )
    if _exists(store) and not store.is_dir():
        raise UsageError("the place of the store is not a folder", got=str(store), todo="name another")
    if (iudx is not None or fleet is not None) and not fresh:
        raise UsageError(
            "there is a configuration here already",
            got=str(settings.config),
            todo="move it away, or name another with --config",
        )
    text, messages = (template(), []) if iudx is None else iudx_template(iudx)
    if fresh and fleet is None and is_interactive():
        fleet = _fleet_asked()
    if fleet is not None:
        text = replace_line(text, "fleet", f"fleet = {fleet}")
    if fresh:
        with disk_errors(settings.config), settings.config.open("x", encoding="utf-8") as file:
            file.write(text)
    made_key = not _exists(key)
    try:
        create_store(store, key)
    except BaseException:
        # a key is never removed: the next `init` takes it
        with suppress(OSError):
            store.rmdir()
        if fresh:
            settings.config.unlink(missing_ok=True)
        raise
    if fresh:
        output.say(f"wrote {relative_path(settings.config)}: choose what is marked CHOOSE in it")
    for message in messages:
        output.say(f"  {message}")
    output.say(f"made an empty store: {relative_path(store)}")
    output.say(
        f"made its key: {relative_path(key)}"
        if made_key
        else f"took the key that was there: {relative_path(key)}"
    )
    output.say(
        "  back up the key and the .head file beside it, apart from the store; nothing works without them"
    )
    if fresh:
        output.say("next: fill in the configuration, then `trafficdp ingest --dry-run FILE...`")
    output.result(
        {
            "config": str(settings.config),
            "store": str(store),
            "key_file": str(key),
            "config_written": fresh,
        }
        | ({} if iudx is None else {"messages": messages})
    )


def _fleet_asked() -> int | None:
    """Return how many vehicles a person at a terminal expects, None where it is left open."""
    for _ in range(MOST_ASKED):
        answer = typer.prompt(
            "How many vehicles are expected? (From a public register or timetable, never from the records. "
            "Enter leaves it open.)",
            default="",
            show_default=False,
            err=True,
        ).strip()
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer) <= 10**9:
            return int(answer)
    raise UsageError(
        "this is no number of vehicles", got=answer, expected="a whole number from 1 on", todo="give --fleet"
    )


def _exists(path: Path) -> bool:
    """Whether there is something; a name that cannot be one is a UsageError."""
    with disk_errors(path):
        return path.exists()


SETTINGS = {
    "resolution": "resolution",
    "slot_kind": "slot",
    "speed_bound": "speed_bound",
    "statistics": "statistics",
}
"""Names of the settings that are taken over, and their keys in the template."""
PLACES = ("location", "location.coordinates")


def iudx_template(path: Path) -> tuple[str, list[str]]:
    """Return the text of a trafficdp.toml made from the IUDX configuration at ``path``, and remarks on it.

    What that does not say, or means otherwise, stays open to be chosen. Raises ConfigError when the file is
    not a JSON object, cannot be read, or a value is not of its key's type.
    """
    from trafficdp.ingest.iudx_config import import_iudx_config

    found = import_iudx_config(_document(path))
    messages = list(found.messages)
    text = _with(template(), "format", "iudx")
    for name, key in SETTINGS.items():
        if name in found.settings:
            text = _with(text, key, found.settings[name])
    declared = found.settings.get("columns")
    columns = dict(declared) if isinstance(declared, dict) else {}
    place = columns.pop("position", PLACES[0])
    if place not in PLACES:
        messages.append(
            f"spatial_attribute = {place} is left out: positions of the format iudx are read from location."
        )
    inside = ", ".join(f"{name} = {json.dumps(column)}" for name, column in columns.items())
    return replace_line(
        text, "columns", f"columns = {{ {inside} }}" if columns else "# columns = {}"
    ), messages


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


def _with(text: str, key: str, value: object) -> str:
    # texts, numbers and lists of texts are written alike in JSON and TOML
    return replace_line(text, key, f"{key} = {json.dumps(value)}")


def replace_line(text: str, key: str, line: str) -> str:
    """Return ``text`` with ``line`` in place of the one line that sets ``key``."""
    changed, times = re.subn(rf"(?m)^{key} = .*$", lambda _: line, text)
    if times != 1:
        raise AssertionError(f"the template sets {key} {times} times")
    return changed
