"""`trafficdp init`: a commented configuration, an empty store, a key outside it."""

from __future__ import annotations

import typer

from trafficdp.cli.output import shorten
from trafficdp.cli.settings import Settings
from trafficdp.config import read_places, template
from trafficdp.errors import UsageError
from trafficdp.store.failures import from_os_error
from trafficdp.workspace import create_store, key_path, store_path


def init(context: typer.Context) -> None:
    """Write a commented configuration (if there is none) and make an empty store and its key."""
    settings: Settings = context.obj
    output = settings.output
    fresh = not settings.config.exists()
    if fresh:
        try:
            settings.config.write_text(template(), encoding="utf-8")
        except OSError as error:
            raise from_os_error(error, "writing the configuration") from error
        output.say(f"wrote {shorten(settings.config)}: choose what is marked CHOOSE in it")
    configured_store, configured_key = read_places(settings.config)
    store = store_path(settings.config, settings.store, configured_store)
    key = key_path(store, configured_key)
    if (store / "vault.duckdb").exists():
        raise UsageError(
            "there is a store here already", got=str(store), todo="use it, or name another with --store"
        )
    create_store(store, key)
    output.say(f"made an empty store: {shorten(store)}")
    output.say(f"made its key: {shorten(key)} - back it up apart from the store, with {key.name}.head")
    output.result(
        {"config": str(settings.config), "store": str(store), "key_file": str(key), "config_written": fresh}
    )
