"""`trafficdp suggest`: a commented [[source]] for files that one has, from their headers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import Settings
from trafficdp.ingest import suggest as declarations
from trafficdp.ingest.input_file import InputFile

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files to look at; nothing is written.")]


def suggest(context: typer.Context, files: Files) -> None:
    """Print what to write into the configuration for these files; CHOOSE stands where only you know."""
    settings: Settings = context.obj
    found: dict[str, dict[str, object]] = {}
    printed: set[str] = set()
    for path in files:
        file = InputFile(path)
        name = path.name.split(".")[0].strip() or "source"
        pattern = "*" + path.name[len(path.name.split(".")[0]) :]
        suggestion = declarations.suggest(file)
        text = declarations.in_toml(suggestion, name, pattern)
        # files of one kind are one source, whatever they are called
        kind = declarations.in_toml(suggestion, "", pattern)
        if kind in printed:
            continue
        printed.add(kind)
        found[str(path)] = {**asdict(suggestion), "toml": text}
        for line in (*text.splitlines(), ""):
            settings.output.say(line)
    settings.output.result({"sources": found})
