"""Typed reading of TOML tables: one reader a type, every error names ``[table] key``. Numbers stay exact."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from trafficdp._durable import read_regular
from trafficdp._validate import did_you_mean
from trafficdp.errors import ConfigError, UsageError
from trafficdp.model.period import zone_of

PLACEHOLDER = "CHOOSE"
"""How the values of the template begin that somebody has to choose."""

LARGEST = 10**12
"""Numbers beyond this, or with more than twelve decimals, are taken for mistakes."""

LARGEST_FILE = 256 << 10
"""Bytes of a configuration file."""
LONGEST_KEY = 16
"""Words that dots join to one key; the configuration has four levels."""

_WORD = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_TOO_DEEP = re.compile(rf"(?<![A-Za-z0-9_\\-]){_WORD}(?:[ \t]*+\.[ \t]*+{_WORD}){{{LONGEST_KEY},}}")
_EARLIEST, _LATEST = date(1970, 1, 1), date(2199, 12, 31)


def read_text(path: Path, *, what: str, todo: str, largest: int = LARGEST_FILE) -> str:
    """Return the UTF-8 text of a file (a byte order mark is dropped).

    Raises ConfigError if there is none, or if it has more than ``largest`` bytes.
    """
    try:
        content = read_regular(path, largest + 1)
        if len(content) > largest:
            raise ConfigError(
                f"{what} is too large", got=path, expected=f"at most {largest >> 10:,} KiB", todo=todo
            )
        return content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{what} does not exist", got=path, todo=todo) from error
    except IsADirectoryError as error:
        raise ConfigError(f"{what} is a directory", got=path, expected="a file", todo=todo) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{what} is not UTF-8 text", got=path, expected="UTF-8", todo="save it as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such path"
        raise ConfigError(f"{what} cannot be read", got=f"{path} ({reason})", todo=todo) from error


def parse_toml(text: str, *, name: str) -> dict[str, object]:
    """Return the document, decimals as Decimal; raise ConfigError with the line if it is not TOML.

    A key of very many words is refused unread: the parser takes time with the square of their number.
    """
    if (found := _TOO_DEEP.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigError(
            f"{name} is nested too deeply",
            got=f"more than {LONGEST_KEY} words joined by dots in line {line}",
            expected="tables as the template has them",
        )
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except RecursionError as error:
        raise ConfigError(
            f"{name} is nested too deeply", expected="tables as the template has them"
        ) from error
    except (ValueError, ArithmeticError) as error:
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number is too long"
        raise ConfigError(
            f"{name} is not TOML", got=reason, todo='write key = value, with text in "quotes"'
        ) from error


def refuse_placeholders(document: Mapping[str, object], *, name: str) -> None:
    """Raise one ConfigError that lists every key whose value still is a placeholder of the template."""
    waiting = list(dict.fromkeys(_placeholders(document, "")))
    if waiting:
        raise ConfigError(
            f"{name} has {len(waiting)} keys still to be chosen",
            got=", ".join(waiting),
            todo='replace every "CHOOSE ..." by your choice; the comments above it explain the options',
        )


def _placeholders(value: object, where: str, depth: int = 0) -> Iterator[str]:
    # dotted keys may nest without end; the configuration has four levels
    if depth > 8:
        return
    if isinstance(value, str) and value.strip().startswith(PLACEHOLDER):
        yield where
    elif isinstance(value, list):
        for item in value:
            yield from _placeholders(item, where, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _placeholders(item, _inside(where, key, item), depth + 1)


def _inside(where: str, key: str, item: object) -> str:
    if where == "" and isinstance(item, dict):
        return f"[{key}]"
    if where == "" and isinstance(item, list):
        return f"[[{key}]]"
    return f"{where}{' ' if where.endswith(']') else '.' if where else ''}{key}"


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Let a UsageError from inside come out as a ConfigError that begins with ``where``."""
    try:
        yield
    except UsageError as error:
        raise ConfigError(
            f"{where}: {error.what}", got=error.got, expected=error.expected, todo=error.todo
        ) from error


def shown(value: object) -> str:
    """Return a value as the reader wrote it, cut to 60 characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number beyond 10^12"
    text = _printable(f'"{value}"' if isinstance(value, str) else str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def exact_number(value: object) -> Fraction | None:
    """Return a TOML number, or a string that holds a decimal number, exactly; None if it is not one."""
    if isinstance(value, str):
        if not (value.isascii() and value.strip("+-.eE0123456789") == "" and len(value) <= 40):
            return None
        try:
            value = Decimal(value)
        except ArithmeticError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    # a small text may stand for an astronomically large integer: look at the exponent first
    if isinstance(value, Decimal) and not (value.is_finite() and _short(value)):
        return None
    number = Fraction(value)
    return number if abs(number) <= LARGEST and (number * LARGEST).denominator == 1 else None


def _short(value: Decimal) -> bool:
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and abs(exponent) <= 100 and len(digits) <= 100


class Table:
    """One TOML table, read key by key. ``prefix`` is what an error puts before a key: ``"[map] "``.

    Raises ConfigError when ``content`` is not a table or has a key that is not ``known``. The readers
    raise ConfigError for a missing key (one that is given no default) and for a value of another kind.
    """

    def __init__(self, content: object, prefix: str, known: Collection[str]) -> None:
        if not isinstance(content, dict):
            raise ConfigError(
                f"{prefix.rstrip(' .') or 'the file'} is not a table",
                got=shown(content),
                expected=f"a table with the keys {', '.join(known)}",
            )
        self._content: dict[str, object] = content
        self._prefix = prefix
        for key in content:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                raise ConfigError(
                    f"unknown key {self.where(_printable(key[:60]))}",
                    expected=near[0] if near else f"one of {', '.join(known)}",
                    todo="correct its spelling, move it to its table, or delete it",
                )

    def where(self, key: str) -> str:
        """Return how messages name a key of this table."""
        return f"{self._prefix}{key}"

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return key in self._content

    def take(self, key: str, expected: str) -> object:
        """Return the value of a key; raise ConfigError, with what was ``expected``, when it is missing."""
        if key not in self._content:
            raise ConfigError(
                f"{self.where(key)} is missing", expected=expected, todo=f"add {key} = ... there"
            )
        return self._content[key]

    def wrong(self, key: str, expected: str, *, got: object = None, todo: str | None = None) -> ConfigError:
        """Return the error that the value of ``key`` is not what was ``expected``."""
        return ConfigError(
            f"{self.where(key)} is not valid",
            got=f"{key} = {shown(self._content.get(key))}" if got is None else got,
            expected=expected,
            todo=todo or "correct the configuration file",
        )

    def text(self, key: str, expected: str, default: str | None = None, *, empty: bool = False) -> str:
        """Return one line of text, stripped; not empty unless ``empty`` says it may be."""
        if default is not None and key not in self._content:
            return default
        value = self.take(key, expected)
        if not isinstance(value, str) or not value.isprintable() or not (empty or value.strip()):
            raise self.wrong(key, expected)
        return value.strip()

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return one of the ``allowed`` words."""
        expected = "one of " + ", ".join(f'"{word}"' for word in allowed)
        value = self.text(key, expected, default)
        if value not in allowed:
            raise self.wrong(key, expected, todo=did_you_mean(value, allowed))
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._content.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false, without quotes")
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """Return an integer from ``low`` to ``high``."""
        if default is not None and key not in self._content:
            return default
        expected = f"an integer from {low} to {high}"
        value = self.take(key, expected)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, expected)
        return value

    def positive(self, key: str, expected: str, default: Fraction | None = None) -> Fraction:
        """Return an exact number above 0."""
        if default is not None and key not in self._content:
            return default
        number = exact_number(self.take(key, expected))
        if number is None or number <= 0:
            raise self.wrong(key, expected)
        return number

    def day(self, key: str) -> date:
        """Return a date from 1970 to 2199, given as a TOML date or as text."""
        expected = "a date such as 2016-11-24, from 1970-01-01 to 2199-12-31"
        value = self.take(key, expected)
        if isinstance(value, str):
            try:
                value = date.fromisoformat(value.strip())
            except ValueError as error:
                raise self.wrong(key, expected) from error
        # datetime is a kind of date in Python
        if type(value) is not date or not _EARLIEST <= value <= _LATEST:
            raise self.wrong(key, expected)
        return value

    def time_zone(self, key: str) -> str:
        """Return the name of an IANA time zone."""
        expected = 'an IANA time zone such as "America/Chicago"'
        name = self.text(key, expected)
        try:
            zone_of(name)
        except ConfigError as error:
            raise self.wrong(key, expected) from error
        return name

    def items(self, key: str, expected: str) -> list[object]:
        """Return a list that is not empty."""
        value = self.take(key, expected)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, expected)
        return value

    def texts(self, key: str, expected: str) -> tuple[str, ...]:
        """Return a list of one-line texts, none empty, at least one, none twice."""
        words = [item for item in self.items(key, expected) if isinstance(item, str) and item.isprintable()]
        stripped = tuple(word.strip() for word in words)
        if len(words) != len(self.items(key, expected)) or "" in stripped:
            raise self.wrong(key, expected)
        if len(set(stripped)) != len(stripped):
            raise self.wrong(key, f"{expected}, none of them twice")
        return stripped

    def table(self, key: str, known: Collection[str]) -> Table:
        """Return the table inside ``key``; messages name its keys ``key.inner``."""
        expected = f"a table with {', '.join(known)}"
        return Table(self.take(key, expected), f"{self.where(key)}.", known)

    def section(self, key: str, known: Collection[str]) -> Table:
        """Return the section ``[key]`` of the file."""
        if key not in self._content:
            raise ConfigError(
                f"[{key}] is missing", expected=f"the table [{key}] with {', '.join(known)}", todo="add it"
            )
        return Table(self._content[key], f"[{key}] ", known)
