"""Settings of a mechanism as plain JSON values, and the mechanism with the settings that were written down.

A release and a saved plan write down every setting: what a later version has as its default changes neither
what they execute nor what `verify` recomputes. Settings are the fields of a mechanism's dataclass but for
what says which mechanism it is; those of a mechanism that another one wraps stand beside its own. Enums are
written as their values, functions as their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar, cast

from trafficdp.errors import UsageError
from trafficdp.mechanisms.protocol import Mechanism

Setting = str | int | float | bool | None
Settings = Mapping[str, Setting]
IDENTITY = {"name", "citation", "statistics", "kind", "enforced", "idealised"}
"""Fields that say which mechanism it is."""
Known = TypeVar("Known", bound=Mechanism)


def settings_of(mechanism: object) -> dict[str, Setting]:
    """Return all settings by name, sorted: the canonical form."""
    found: dict[str, Setting] = {}
    for field, value in _own(mechanism):
        found.update(settings_of(value) if is_dataclass(value) else {field.name: _plain(value)})
    return dict(sorted(found.items()))


def with_settings(mechanism: Known, settings: Settings) -> Known:
    """Return ``mechanism`` with ``settings``; one that is not written down stays as it is.

    Raises UsageError for a setting that the mechanism does not know, and for a value that is none of its.
    """
    unknown = sorted(set(settings) - set(settings_of(mechanism)))
    if unknown:
        raise UsageError(
            f"{mechanism.name} has a setting that this version does not know",
            got=f"{unknown[0]:.40}",
            expected=", ".join(settings_of(mechanism)) or "no settings",
            todo="use the version of trafficdp that wrote it",
        )
    changed = cast("Known", _changed(mechanism, settings))
    if changed.name != mechanism.name:
        raise UsageError(
            f"settings of {mechanism.name} make another mechanism of it",
            got=f"those of {changed.name}",
            expected=f"those of {mechanism.name}",
        )
    return changed


def in_words(settings: Settings) -> str:
    """Return the settings for the manifest, such as "cap argmax, gamma 0.2"."""
    return ", ".join(f"{name} {'none' if value is None else value}" for name, value in settings.items())


def _own(mechanism: object) -> list[tuple[Field[object], object]]:
    if not is_dataclass(mechanism):
        return []
    return [
        (field, getattr(mechanism, field.name)) for field in fields(mechanism) if field.name not in IDENTITY
    ]


def _plain(value: object) -> Setting:
    if isinstance(value, Enum):
        return cast("Setting", value.value)
    if callable(value):
        return str(getattr(value, "__name__", "a function"))
    return cast("Setting", value)


def _changed(mechanism: object, settings: Settings) -> object:
    given: dict[str, object] = {}
    for field, value in _own(mechanism):
        if is_dataclass(value):
            given[field.name] = _changed(value, settings)
        elif field.name in settings:
            given[field.name] = _read(field, value, settings[field.name])
    # whatever has fields of its own is a dataclass, which no protocol can say
    return replace(cast("Mechanism", mechanism), **given) if given else mechanism  # type: ignore[type-var]


def _read(field: Field[object], now: object, written: Setting) -> object:
    """Return ``written`` as a value of the field, whose value in this version is ``now``."""
    if isinstance(now, Enum):
        known = {each.value: each for each in type(now)}
        if isinstance(written, str) and written in known:
            return known[written]
    elif callable(now):
        if written == _plain(now):
            return now
    elif isinstance(now, bool) or isinstance(written, bool):
        if isinstance(now, bool) and isinstance(written, bool):
            return written
    elif isinstance(now, int):
        if isinstance(written, int):
            return written
    elif isinstance(written, int | float) and math.isfinite(written):
        return float(written)
    elif written is None and "None" in str(field.type):
        return None
    raise UsageError(
        "a setting of a mechanism has a value that this version does not know",
        got=f"{field.name}={written!s:.40}",
        expected=f"a value such as {_plain(now)}",
    )
