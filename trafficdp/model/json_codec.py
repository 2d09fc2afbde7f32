"""Frozen dataclasses as JSON and back, by their type hints alone.

A hint is a dataclass, a scalar, an enumeration of scalars, ``tuple[X, ...]``, ``Mapping[str, X]``, a union of
these, or ``Any`` for what is JSON already. A field that holds its default is left out; ``X | None`` without a
default is null. A JSON Schema follows from the same hints (pipelines/schemas.py).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from trafficdp.errors import DataError

T = TypeVar("T")
Json: TypeAlias = Any
Hint: TypeAlias = Any


class Schema(dict[str, Any]):
    """Keywords of a JSON Schema for an ``Annotated`` type, beyond the type itself."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


Text = Annotated[str, Schema({"pattern": r"^(?!\s*[Uu][Nn][Kk][Nn][Oo][Ww][Nn]\s*$)[\s\S]*\S"})]
"""A text that says something."""
Counted = Annotated[int, Schema({"minimum": 1})]
Moment = Annotated[
    str, Schema({"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}$"})
]


def as_json(value: object) -> Json:
    """Return a dataclass, and all in it, as plain JSON values."""
    kind: Hint = type(value)
    defaults = _defaults(kind)
    if defaults is not None:
        told = ((name, getattr(value, name), default) for name, default in defaults)
        return {name: as_json(own) for name, own, default in told if default is MISSING or own != default}
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


@cache
def _defaults(kind: Hint) -> tuple[tuple[str, object], ...] | None:
    """The fields of a dataclass with their defaults, None for another type."""
    return tuple((field.name, field.default) for field in fields(kind)) if is_dataclass(kind) else None


def from_json(kind: type[T], value: object) -> T:
    """Return the dataclass that ``as_json`` wrote; numbers keep their type.

    Raises DataError, naming the JSON path, for a field that is missing, unknown or of another type.
    """
    found: T = _reader(kind)(value, "$")
    return found


@cache
def hinted(kind: type) -> tuple[tuple[Field[Any], Any], ...]:
    """Return the fields of a dataclass with their hints, ``Annotated`` kept."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field, hints[field.name]) for field in fields(kind))


Reader: TypeAlias = Callable[[Any, str], Json]


def _reader(hint: Hint) -> Reader:
    """What reads a value, at a path, as ``hint`` says: hints are looked at once, values are many."""
    origin: Any = get_origin(hint)
    inner = get_args(hint)
    if origin is Annotated:
        return _reader(inner[0])
    if origin in (Union, types.UnionType):
        others = [_reader(each) for each in inner if each is not type(None)]
        return partial(_read_one_of, len(others) < len(inner), others)
    if origin is tuple:
        any_length = inner[-1] is Ellipsis
        return partial(
            _read_tuple, hint, any_length, [_reader(each) for each in inner[: -1 if any_length else None]]
        )
    if origin is not None:
        return partial(_read_mapping, hint, _reader(inner[1]))
    if is_dataclass(hint):
        return partial(_read_fields, hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_read_member, hint, [each.value for each in hint])
    return partial(_read_scalar, hint)


def _no_fit(hint: Hint, value: object, path: str) -> DataError:
    return DataError(
        f"the JSON does not fit at {path}",
        got=type(value).__name__,
        expected=getattr(hint, "__name__", str(hint)),
    )


def _read_scalar(hint: Hint, value: object, path: str) -> Json:
    if hint is Any or type(value) is hint or (hint is float and type(value) is int):
        return value
    raise _no_fit(hint, value, path)


def _read_member(kind: type[Enum], values: list[object], value: object, path: str) -> Json:
    if value in values:
        return kind(value)
    if type(value) is kind:
        return value
    raise _no_fit(kind, value, path)


def _read_tuple(hint: Hint, any_length: bool, inner: list[Reader], value: object, path: str) -> Json:
    if isinstance(value, list):
        each = inner * len(value) if any_length else inner
        if len(each) == len(value):
            return tuple(
                read(one, f"{path}[{i}]") for i, (read, one) in enumerate(zip(each, value, strict=True))
            )
    raise _no_fit(hint, value, path)


def _read_mapping(hint: Hint, read: Reader, value: object, path: str) -> Json:
    if isinstance(value, dict):
        return {name: read(one, f"{path}.{name}") for name, one in value.items()}
    raise _no_fit(hint, value, path)


@cache
def _known(kind: Hint) -> tuple[dict[str, Reader], frozenset[str]]:
    """What reads the fields of a dataclass, by name, and which of them have no default."""
    found = hinted(kind)
    needed = frozenset(field.name for field, _ in found if field.default is MISSING)
    return {field.name: _reader(hint) for field, hint in found}, needed


def _read_fields(kind: Hint, value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise _no_fit(kind, value, path)
    known, needed = _known(kind)
    for wrong, what in ((needed - value.keys(), "missing"), (value.keys() - known.keys(), "unknown")):
        if wrong:
            raise DataError(f"the JSON does not fit at {path}", got=f"{what}: {', '.join(sorted(wrong))}")
    return kind(**{name: known[name](one, f"{path}.{name}") for name, one in value.items()})


def _read_one_of(may_be_null: bool, readers: list[Reader], value: object, path: str) -> Json:
    if value is None and may_be_null:
        return None
    *others, last = readers
    for read in others:
        try:
            return read(value, path)
        except DataError:
            continue
    return last(value, path)
