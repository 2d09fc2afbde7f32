"""The ``[[context]]`` tables of the configuration: public layers that are drawn around the numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, ValidationInfo

from trafficdp.config import table as t
from trafficdp.model import ContextFile, ContextKind


def file_beside(value: object, info: ValidationInfo[Path]) -> Path:
    """Return the path of a file that is named relative to the configuration."""
    name = t.line(value)
    if name is None or "://" in name:
        raise t.Refused
    path: Path = info.context / name
    if not path.exists():
        raise t.Refused(what=" does not exist", got=str(path), todo="correct its name, or leave it out")
    return path


class Context(t.Table):
    """One public layer. It is read when a map is made, never fetched."""

    file: Annotated[
        Path,
        PlainValidator(file_beside),
        Field(
            description="a file beside the configuration, such as streets.gpkg, or a folder of static GTFS"
        ),
    ]
    kind: Annotated[ContextKind, t.choice(each for each in ContextKind if each is not ContextKind.TILES)]
    name: Annotated[str | None, t.text("the name of a column with names")] = None
    attribution: Annotated[str, t.text("who made the layer, as its licence wants it to be said")]


_TILES = re.compile(r"https://[\w.-]+(:\d+)?/[\w.~%/{}?=&@-]*", re.ASCII)


def _address(value: object) -> str | None:
    address = t.line(value) or ""
    places = sorted(re.findall(r"{.*?}", address))
    return address if _TILES.fullmatch(address) and places == ["{x}", "{y}", "{z}"] else None


class Tiles(t.Table):
    """A server of map tiles that the page asks, unlike for all else."""

    url: Annotated[
        str, t.Reads(_address, 'an address such as "https://tiles.example.org/{z}/{x}/{y}.png", with https')
    ]
    attribution: Annotated[str, t.text("who made the tiles, as their licence wants it to be said")]


TILES = t.Built(Tiles, lambda each: ContextFile(each.url, ContextKind.TILES, None, each.attribution))
"""Tiles under the hexagons."""
CONTEXT = t.Built(
    Context, lambda each: ContextFile(each.file, each.kind, each.name, each.attribution)
)  # fmt: skip
"""A layer that is still to be read."""
