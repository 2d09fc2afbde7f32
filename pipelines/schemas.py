"""The JSON Schema of a dataclass, by its type hints, as ``model.json_codec`` reads and writes it.

`make docs` writes them (reference.py). A description is the docstring; ``Schema``, and ``SCHEMA`` of a
class, are added as they stand.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from trafficdp.model import fields_with_hints

Hint: TypeAlias = Any

SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_text(kind: type, title: str) -> str:
    """Return the schema of ``kind`` as the file holds it."""
    found: dict[str, Any] = {}
    _dataclass(kind, found)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **found.pop(kind.__name__),
        "$defs": dict(sorted(found.items())),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _dataclass(kind: Hint, found: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in found:
        found[kind.__name__] = {}
        found[kind.__name__].update(
            description=" ".join((inspect.getdoc(kind) or "").split()),
            type="object",
            additionalProperties=False,
            required=[field.name for field, _ in fields_with_hints(kind) if field.default is MISSING],
            properties={
                field.name: _schema(_without_none(hint) if field.default is None else hint, found)
                for field, hint in fields_with_hints(kind)
            },
            **getattr(kind, "SCHEMA", {}),
        )
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _schema(hint: Hint, found: dict[str, Any]) -> dict[str, Any]:
    origin: Any = get_origin(hint)
    inner = get_args(hint)
    if origin is Annotated:
        # what is said of a union holds for what is not null
        return {
            **_schema(inner[0], found),
            **{name: each for more in inner[1:] for name, each in more.items()},
        }
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, found) for each in inner]}
    if origin is tuple and inner[-1] is Ellipsis:
        return {"type": "array", "items": _schema(inner[0], found)}
    if origin is tuple:
        # the parts of a tuple are of one kind here: a position
        return {
            "type": "array",
            "items": _schema(inner[0], found),
            "minItems": len(inner),
            "maxItems": len(inner),
        }
    if origin is not None and issubclass(origin, Mapping):
        names = _schema(inner[0], found)
        values = {} if inner[1] is Any else _schema(inner[1], found)
        if "enum" not in names:
            return {"type": "object"}
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [],
            "properties": dict.fromkeys(names["enum"], values),
        }
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"enum": [each.value for each in hint]}
    if hint is date:
        return {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
    return _dataclass(hint, found) if is_dataclass(hint) else {"type": SCALARS[hint]}


def _without_none(hint: Hint) -> Hint:
    """Return the hint of a field that is left out where it is None."""
    origin: Any = get_origin(hint)
    inner = get_args(hint)
    if origin is Annotated:
        return Annotated[(_without_none(inner[0]), *inner[1:])]
    return Union[tuple(each for each in inner if each is not type(None))]  # noqa: UP007
