"""Frozen dataclasses as JSON and back, by their type hints alone.

A hint is a dataclass, a scalar, a Fraction or a date (as text), an enumeration of scalars, ``tuple[X, ...]``,
``Mapping[str, X]`` (or of an enumeration of texts), a union of these, ``Any`` for what is JSON already, or of
a field ``Annotated`` with ``Coded``. A field that holds its default is left out, and one that is no argument;
``X | None`` without a default is null. A JSON Schema follows from the same hints (pipelines/schemas.py).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from trafficdp.errors import DataError

T = TypeVar("T")
Json: TypeAlias = Any
Hint: TypeAlias = Any


class Schema(dict[str, Any]):
    """Keywords of a JSON Schema for an ``Annotated`` type, beyond the type itself."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


@dataclass(frozen=True)
class Coded:
    """How a field is written as one JSON value, and read again."""

    write: Callable[[Any], Json]
    read: Callable[[Any], Any]


_CODED = {
    Fraction: Coded(str, Fraction),
    date: Coded(date.isoformat, date.fromisoformat),
    datetime: Coded(datetime.isoformat, datetime.fromisoformat),
}
_PLAIN = (str, int, float, bool, type(None))

Text = Annotated[str, Schema({"pattern": r"^(?!\s*[Uu][Nn][Kk][Nn][Oo][Ww][Nn]\s*$)[\s\S]*\S"})]
"""A text that says something."""
Counted = Annotated[int, Schema({"minimum": 1})]
Moment = Annotated[
    str, Schema({"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}$"})
]


def as_json(value: object) -> Json:
    """Return ``value``, such as a dataclass, with all that is in it as plain JSON values."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        told = ((field, hint, getattr(value, field.name)) for field, hint in fields_with_hints(type(value)))
        return {
            field.name: hint.write(own) if isinstance(hint, Coded) else as_json(own)
            for field, hint, own in told
            if field.default is MISSING or own != field.default
        }
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    coded = _CODED.get(type(value))
    return value if coded is None else coded.write(value)


def from_json(kind: type[T], value: object) -> T:
    """Return the dataclass of type ``kind`` that ``as_json`` wrote as ``value``; numbers keep their type.

    Raises DataError, naming the JSON path, for a field that is missing, unknown or of another type.
    """
    found: T = _read(kind, value, "$")
    return found


@cache
def fields_with_hints(kind: type) -> tuple[tuple[Field[Any], Any], ...]:
    """Return (field, type hint) of every field of the dataclass ``kind``; ``Annotated`` hints stay whole.

    Of one that is annotated with ``Coded``, that stands for the hint.
    """
    hints = get_type_hints(kind, include_extras=True)
    coded = {
        name: each
        for name, hint in hints.items()
        for each in getattr(hint, "__metadata__", ())
        if isinstance(each, Coded)
    }
    return tuple((field, coded.get(field.name, hints[field.name])) for field in fields(kind) if field.init)


def _read(hint: Hint, value: object, path: str) -> Json:
    if type(value) is hint:
        return value
    origin: Any = get_origin(hint)
    inner = get_args(hint)
    coded = hint if isinstance(hint, Coded) else None
    if origin is None and isinstance(value, str):
        coded = _CODED.get(hint, coded)
    if coded is not None:
        with suppress(ValueError, TypeError, LookupError):
            return coded.read(value)
    elif origin is Annotated:
        return _read(inner[0], value, path)
    elif origin in (Union, types.UnionType):
        *others, last = (each for each in inner if each is not type(None))
        if value is None and type(None) in inner:
            return None
        for each in others:
            with suppress(DataError):
                return _read(each, value, path)
        return _read(last, value, path)
    elif origin is tuple:
        if isinstance(value, list):
            hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
            if len(hints) == len(value):
                pairs = enumerate(zip(hints, value, strict=True))
                return tuple(_read(each, one, f"{path}[{i}]") for i, (each, one) in pairs)
    elif origin is not None:
        if isinstance(value, dict):
            return {
                _read(inner[0], name, path): _read(inner[1], one, f"{path}.{name}")
                for name, one in value.items()
            }
    elif is_dataclass(hint):
        if isinstance(value, dict):
            kind: Hint = hint
            known = {field.name: each for field, each in fields_with_hints(kind)}
            needed = {field.name for field, _ in fields_with_hints(kind) if field.default is MISSING}
            for wrong, what in ((needed - value.keys(), "missing"), (value.keys() - known.keys(), "unknown")):
                if wrong:
                    got = f"{what}: {', '.join(sorted(wrong))}"
                    raise DataError(f"the JSON does not fit at {path}", got=got)
            return kind(**{name: _read(known[name], one, f"{path}.{name}") for name, one in value.items()})
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if type(value) is hint or value in [each.value for each in hint]:
            return hint(value)
    elif hint is Any or (hint is float and type(value) is int):
        return value
    raise DataError(
        f"the JSON does not fit at {path}",
        got=type(value).__name__,
        expected=getattr(hint, "__name__", str(hint)),
    )
