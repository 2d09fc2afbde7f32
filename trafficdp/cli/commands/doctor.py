"""`trafficdp doctor`: what of a store is whole, and what is to be restored."""

from __future__ import annotations

import typer

from trafficdp.cli.words.options import Settings
from trafficdp.config.file import read_places
from trafficdp.errors import StoreDamagedError
from trafficdp.release.diagnosis import State, examine
from trafficdp.release.store_setup import key_path, store_path


def doctor(context: typer.Context) -> None:
    """Look at vault, ledger, key, releases and plans; say what to restore and change nothing."""
    settings: Settings = context.obj
    configured_store, configured_key = read_places(settings.config)
    store = store_path(settings.config, settings.store, configured_store)
    with settings.output.spinner("looking"):
        findings = examine(store, key_path(store, configured_key), wait=settings.wait)
    for each in findings:
        mark = each.state.upper() if each.state is State.DAMAGED else each.state
        said = "; ".join(part for part in (each.found, each.todo) if part)
        settings.output.say(f"{mark:<8} {each.what}" + (f": {said}" if said else ""))
    whole = all(each.harmless for each in findings)
    settings.output.result(
        {
            "store": str(store),
            "whole": whole,
            "findings": [
                {"what": each.what, "state": each.state.value, "found": each.found, "todo": each.todo}
                for each in findings
            ],
        }
    )
    if not whole:
        damaged = [each for each in findings if each.state is State.DAMAGED]
        raise StoreDamagedError(
            "the store is not whole",
            got="; ".join(f"{each.what}: {each.found}" for each in damaged),
            todo="; ".join(dict.fromkeys(each.todo for each in damaged if each.todo)),
        )
