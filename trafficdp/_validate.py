"""Checks of arguments. Each takes its value by keyword, so that the message can say ``name=value``."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from numbers import Real

from trafficdp.errors import UsageError


def _only(named: dict[str, object]) -> tuple[str, object]:
    ((name, value),) = named.items()
    return name, value


def finite(**named: object) -> float:
    """Return the one keyword argument as a float; raise UsageError unless it is a finite number."""
    name, value = _only(named)
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        # an integer beyond every float, perhaps too long to print
        number, value = math.inf, math.inf
    if not math.isfinite(number):
        raise UsageError(
            f"{name} is not a finite number", got=f"{name}={value!r}", expected="a finite number"
        )
    return number


def positive(**named: object) -> float:
    """Return the one keyword argument as a float; raise UsageError unless it is finite and above 0."""
    name, value = _only(named)
    number = finite(**{name: value})
    if number <= 0:
        raise UsageError(f"{name} is not positive", got=f"{name}={value!r}", expected="a number above 0")
    return number


def in_range(low: float, high: float, **named: object) -> float:
    """Return the one keyword argument as a float; raise UsageError unless low < value < high."""
    name, value = _only(named)
    number = finite(**{name: value})
    if not low < number < high:
        raise UsageError(
            f"{name} is out of range", got=f"{name}={value!r}", expected=f"{low} < {name} < {high}"
        )
    return number


def integer_between(low: int, high: int, **named: object) -> int:
    """Return the one keyword argument as an int; raise UsageError unless it is one in low..high."""
    name, value = _only(named)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(
            f"{name} is out of range", got=f"{name}={value!r}", expected=f"an integer from {low} to {high}"
        )
    return value


def did_you_mean(word: str, allowed: Collection[str]) -> str | None:
    """Return the question whether the nearest of ``allowed`` was meant; None when none is near."""
    near = difflib.get_close_matches(word, list(allowed), n=1)
    return f'did you mean "{near[0]}"?' if near else None


def one_of(allowed: Collection[str], **named: object) -> str:
    """Return the one keyword argument; raise UsageError unless it is one of ``allowed``."""
    name, value = _only(named)
    if not isinstance(value, str) or value not in allowed:
        raise UsageError(
            f"{name} is unknown",
            got=f"{name}={value!r}",
            expected="one of " + ", ".join(sorted(allowed)),
            todo=did_you_mean(value, allowed) if isinstance(value, str) else None,
        )
    return value
