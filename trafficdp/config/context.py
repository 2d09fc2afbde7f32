"""The ``[[context]]`` tables of the configuration: public layers that are drawn around the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, ValidationInfo

from trafficdp.config import table as t
from trafficdp.context.read import ContextFile
from trafficdp.model.context import ContextKind


def _file(value: object, info: ValidationInfo[Path]) -> Path:
    name = t.line(value)
    if name is None or "://" in name:
        raise t.Refused
    path: Path = info.context / name
    if not path.exists():
        raise t.Refused(what=" does not exist", got=str(path), todo="correct its name, or delete the table")
    return path


class Context(t.Table):
    """One public layer. It is read when a map is made, never fetched."""

    file: Annotated[
        Path,
        PlainValidator(_file),
        Field(
            description="a file beside the configuration, such as streets.gpkg, or a folder of static GTFS"
        ),
    ]
    kind: Annotated[ContextKind, t.choice(ContextKind)]
    name: Annotated[str | None, t.text("the name of a column with names")] = None
    attribution: Annotated[str, t.text("who made the layer, as its licence wants it to be said")]


CONTEXT = t.Built(
    Context, lambda each: ContextFile(each.file, each.kind, each.name, each.attribution)
)  # fmt: skip
"""A layer that is still to be read."""
