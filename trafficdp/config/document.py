"""From a file to a TOML document within limits; its values, where numbers stay exact; the places it names.

What says only where a store lies loads nothing else: tables are read by ``table`` and ``file``.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from trafficdp._durable import MACHINE, from_os_error, read_regular
from trafficdp.errors import ConfigError, UsageError

LARGEST = 10**12
"""Numbers beyond this, or with more than twelve decimals, are taken for mistakes."""

LARGEST_FILE = 256 << 10
"""Bytes of a configuration file."""
LONGEST_KEY = 16
"""Words that dots join to one key; the configuration has four levels."""

_WORD = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_TOO_DEEP = re.compile(rf"(?<![A-Za-z0-9_\\-]){_WORD}(?:[ \t]*+\.[ \t]*+{_WORD}){{{LONGEST_KEY},}}")

_UNREADABLE: dict[type[Exception], tuple[str, str | None]] = {
    FileNotFoundError: ("does not exist", None),
    IsADirectoryError: ("is a directory", "a file"),
    UnicodeDecodeError: ("is not UTF-8 text", "UTF-8"),
}


def read_text(path: Path, *, what: str, todo: str, largest: int = LARGEST_FILE) -> str:
    """Return the UTF-8 text of a file (a byte order mark is dropped).

    Raises ConfigError if there is none, or if it has more than ``largest`` bytes, and StoreUnavailableError
    where the machine fails.
    """
    try:
        content = read_regular(path, largest + 1)
        if len(content) > largest:
            raise ConfigError(
                f"{what} is too large", got=path, expected=f"at most {largest >> 10:,} KiB", todo=todo
            )
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise from_os_error(error, f"reading {what}") from error
        reason = f"cannot be read ({getattr(error, 'strerror', None) or 'no such path'})", None
        is_so, expected = _UNREADABLE.get(type(error), reason)
        raise ConfigError(f"{what} {is_so}", got=path, expected=expected, todo=todo) from error


def _not_toml(text: str, name: str, error: Exception) -> ConfigError:
    """Return the error that says in which line ``text`` is not TOML, and what is most often wrong there."""
    place, lines = re.search(r"\(at line (\d+), column \d+\)", str(error)), text.splitlines()
    twice = re.search("overwrite|twice|mutate", str(error))
    number = int(place[1]) if place else len(lines)
    line = lines[number - 1] if lines else ""
    got = (
        f"line {number}: {shown(line.strip())}"
        if place or twice
        else "a number that is too long, or a torn end"
    )
    if twice:
        todo = "name every key, and every [table], once"
    elif re.search(r"=\s*[-+]?\d+,\d", line):
        todo = "write decimals with a point (2.5, not 2,5)"
    else:
        todo = 'write key = value, with text in "quotes"'
    return ConfigError(f"{name} is not TOML", got=got, todo=todo)


def shown(value: object) -> str:
    """Return ``value`` as a message repeats it: in TOML's spelling, printable, cut to 60 characters.

    A table or a long list is only named.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        text = f"[{', '.join(map(shown, value[:10]))}]"
        return text if len(value) <= 10 and len(text) <= 60 else f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number beyond 10^12"
    text = printable(f'"{value}"' if isinstance(value, str) else str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def printable(text: str) -> str:
    """Return ``text`` with "?" for each character that does not print."""
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
    if isinstance(value, Decimal):
        # a small text may stand for an astronomically large integer: look at the exponent first
        _, digits, exponent = value.as_tuple()
        if not (isinstance(exponent, int) and abs(exponent) <= 100 and len(digits) <= 100):
            return None
    number = Fraction(value)
    return number if abs(number) <= LARGEST and (number * LARGEST).denominator == 1 else None


# What a document names before any table is read.


PLACES = ("store", "key_file")
TABLES = (
    *("city", "privacy", "budget", "map", "stream", "publish"),
    *("source", "analysts", "areas", "context", "knowledge"),
)
"""All keys of the file, with PLACES."""


def load_document(path: Path) -> dict[str, object]:
    """Return the parsed TOML of the configuration file, decimals as Decimal.

    Raises ConfigError where it cannot be read; with the line, where it is no TOML; and for a dotted key of
    very many parts, before it is parsed: that would take time with the square of their number.
    """
    text = read_text(path, what="the configuration file", todo="run `trafficdp init` or give --config FILE")
    if (found := _TOO_DEEP.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigError(
            f"{path.name} is nested too deeply",
            got=f"more than {LONGEST_KEY} words joined by dots in line {line}",
            expected="tables as the template has them",
        )
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except RecursionError as error:
        raise ConfigError(
            f"{path.name} is nested too deeply", expected="tables as the template has them"
        ) from error
    except (ValueError, ArithmeticError) as error:
        raise _not_toml(text, path.name, error) from error


def read_places(path: Path) -> tuple[Path | None, Path | None]:
    """Return (store, key_file) that a configuration file names, whose other keys may still be unset.

    Raises ConfigError for a file that cannot be read, is not TOML, or names a wrong place.
    """
    return places(load_document(path), path.parent)


def places(document: Mapping[str, object], folder: Path) -> tuple[Path | None, Path | None]:
    """Return (store, key_file) that ``document`` names, relative to ``folder``; None for one it does not.

    Raises ConfigError for an unknown top-level key, for what is no path, and for a key inside the store.
    """
    for key in document:
        if key not in (*PLACES, *TABLES):
            raise unknown_key_error(printable(key[:60]), key, (*PLACES, *TABLES))
    store, key_file = (_place(key, document[key], folder) if key in document else None for key in PLACES)
    # realpath, unlike Path.resolve, takes a loop of links and an overlong name as they are
    inside = store and key_file and Path(os.path.realpath(key_file)).is_relative_to(os.path.realpath(store))
    if inside:
        raise ConfigError(
            "key_file is not valid",
            got=f"key_file = {shown(document['key_file'])}",
            expected="a file outside the store",
            todo="keep the key apart from the store",
        )
    return store, key_file


def _place(key: str, value: object, folder: Path) -> Path:
    if (name := one_line_text(value)) is None or Path(name).name in ("", ".."):
        raise ConfigError(
            f"{key} is not valid",
            got=f"{key} = {shown(value)}",
            expected="a path with a name of its own, relative to the configuration file",
            todo="correct the configuration file",
        )
    return folder / name


def store_and_key(
    config: Path, store_option: Path | None, store: Path | None, key_file: Path | None
) -> tuple[Path, Path]:
    """Return (folder of the store, its key file): ``store_option``, else ``store``, else city.store.

    ``config`` is the path of the configuration file, beside which city.store lies; ``store`` and ``key_file``
    are what it says. The key lies beside the store by default. Raises UsageError for a key inside the store,
    and for a store whose path is not UTF-8 without NUL, which DuckDB cannot take.
    """
    store = store_option or store or config.parent / "city.store"
    try:
        usable = b"\0" not in os.path.abspath(store).encode("utf-8")
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise UsageError(
            "the path of the store cannot be used",
            got=str(store),
            expected="letters in UTF-8",
            todo="rename it",
        )
    key_file = key_file or store.with_name(store.name + ".key")
    # realpath, unlike Path.resolve, takes a loop of links as it is
    if Path(os.path.realpath(key_file)).is_relative_to(os.path.realpath(store)):
        raise UsageError(
            "the key must not lie in the store", got=str(key_file), todo="set key_file to another folder"
        )
    return store, key_file


def one_line_text(value: object) -> str | None:
    """Return ``value`` stripped if it is one line of text that is not empty; else None."""
    return value.strip() or None if isinstance(value, str) and value.isprintable() else None


def unknown_key_error(place: str, key: str, known: Collection[str]) -> ConfigError:
    """Return (do not raise) the error for an unknown ``key`` of the table ``place``; it names a near one.

    ``known`` are the keys that the table has.
    """
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return ConfigError(
        f"unknown key {place}",
        expected=near[0] if near else f"one of {', '.join(known)}",
        todo="correct its spelling, move it to its table, or delete it",
    )
