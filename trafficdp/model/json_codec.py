"""Frozen dataclasses as JSON and back, by their type hints alone.

A hint is a dataclass, a scalar, an enumeration of scalars, ``tuple[X, ...]``, ``Mapping[str, X]``, a union of
these, or ``Any`` for what is JSON already. A field that holds its default is left out; ``X | None`` without a
default is null. A JSON Schema follows from the same hints (pipelines/schemas.py).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from trafficdp.errors import DataError

T = TypeVar("T")
Json: TypeAlias = Any
Hint: TypeAlias = Any


class Says(dict[str, Any]):
    """What a JSON Schema says of an ``Annotated`` type beyond the type itself."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


def as_json(value: object) -> Json:
    """Return a dataclass, and all in it, as plain JSON values."""
    if is_dataclass(value):
        return {
            field.name: as_json(getattr(value, field.name))
            for field in fields(value)
            if field.default is MISSING or getattr(value, field.name) != field.default
        }
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


def from_json(kind: type[T], value: object) -> T:
    """Return the dataclass that ``as_json`` wrote; numbers keep their type.

    Raises DataError, naming the JSON path, for a field that is missing, unknown or of another type.
    """
    found: T = _read(kind, value, "$")
    return found


@cache
def hinted(kind: type) -> tuple[tuple[Field[Any], Any], ...]:
    """Return the fields of a dataclass with their hints, ``Annotated`` kept."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field, hints[field.name]) for field in fields(kind))


def _read(hint: Hint, value: object, path: str) -> Json:
    origin: Any = get_origin(hint)
    inner = get_args(hint)
    if origin is Annotated:
        return _read(inner[0], value, path)
    if origin in (Union, types.UnionType):
        return _read_one_of(inner, value, path)
    if origin is tuple and isinstance(value, list):
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(each) == len(value):
            return tuple(
                _read(kind, one, f"{path}[{i}]")
                for i, (kind, one) in enumerate(zip(each, value, strict=True))
            )
    elif origin is not None and isinstance(value, dict):
        return {name: _read(inner[1], one, f"{path}.{name}") for name, one in value.items()}
    elif is_dataclass(hint) and isinstance(value, dict):
        return _read_fields(hint, value, path)
    elif isinstance(hint, type) and issubclass(hint, Enum) and value in [each.value for each in hint]:
        return hint(value)
    elif hint is Any or type(value) is hint or (hint is float and type(value) is int):
        return value
    raise DataError(
        f"the JSON does not fit at {path}",
        got=type(value).__name__,
        expected=getattr(hint, "__name__", str(hint)),
    )


def _read_fields(kind: Hint, value: Mapping[str, object], path: str) -> Json:
    known = {field.name: (field, hint) for field, hint in hinted(kind)}
    missing = {name for name, (field, _) in known.items() if field.default is MISSING} - value.keys()
    for wrong, what in ((missing, "missing"), (value.keys() - known, "unknown")):
        if wrong:
            raise DataError(f"the JSON does not fit at {path}", got=f"{what}: {', '.join(sorted(wrong))}")
    return kind(**{name: _read(known[name][1], one, f"{path}.{name}") for name, one in value.items()})


def _read_one_of(hints: tuple[Any, ...], value: object, path: str) -> Json:
    if value is None and type(None) in hints:
        return None
    *others, last = [hint for hint in hints if hint is not type(None)]
    for hint in others:
        try:
            return _read(hint, value, path)
        except DataError:
            continue
    return _read(last, value, path)
