"""From a file to a TOML document within limits, and its tables; what is said of a wrong one."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from trafficdp._durable import MACHINE, from_os_error, read_regular
from trafficdp.errors import ConfigError, UsageError, did_you_mean
from trafficdp.model import parse_speed_unit, zone_of
from trafficdp.privacy.loss import Loss, PureDP

# From a file to a TOML document within limits, and its values: numbers stay exact.


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
        raise _not_toml(text, name, error) from error


def _not_toml(text: str, name: str, error: Exception) -> ConfigError:
    """Return the error that says in which line ``text`` is not TOML, and what is most often wrong there."""
    place = re.search(r"\(at line (\d+), column \d+\)", str(error))
    line = text.splitlines()[int(place[1]) - 1] if place else ""
    got = f"line {place[1]}: {shown(line.strip())}" if place else "a number that is too long, or a torn end"
    if re.search(r"=\s*[-+]?\d+,\d", line):
        todo = "write decimals with a point (2.5, not 2,5)"
    else:
        todo = 'write key = value, with text in "quotes"'
    return ConfigError(f"{name} is not TOML", got=got, todo=todo)


def shown(value: object) -> str:
    """Return a value as the reader wrote it, cut to 60 characters."""
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
    """Return the text with ? for what does not print."""
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


# Tables of the configuration as pydantic reads them, and what is said of a wrong one.
#
# A table is a model: pydantic knows which keys there are, which must be given and where each error lies. What
# a key accepts is written beside it, as ``Reads`` or as the ``description`` of its ``Field``; every message
# names ``[table] key`` and says so.


WRONG, MISSING = " is not valid", " is missing"
_KINDS = {"missing": MISSING, "model_type": " is not a table"}
PLACEHOLDER = "CHOOSE"
"""How the values of the template begin that somebody has to choose."""
_EARLIEST, _LATEST = date(1970, 1, 1), date(2199, 12, 31)

Key = tuple[str | int, ...]
"""Where a value lies in the document: names of keys, and numbers in lists from 0."""
Result = TypeVar("Result")


class Table(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


Model = TypeVar("Model", bound=Table)


class Refused(ValueError):
    """The value of ``key``, counted from the table that is read, is wrong.

    ``said`` overrides what a ConfigError says of it by itself: ``what`` (after the name of the key), ``got``,
    ``expected`` and ``todo``.
    """

    def __init__(self, *key: str | int, **said: Any) -> None:  # noqa: ANN401 - as ConfigError takes them
        super().__init__(said)
        self.key, self.said = key, {name: each for name, each in said.items() if each is not None}


@contextmanager
def naming(*key: str | int) -> Iterator[None]:
    """Let a UsageError from inside come out as Refused, with all that it says, of ``key``."""
    try:
        yield
    except UsageError as error:
        said = {"got": error.got, "expected": error.expected, "todo": error.todo}
        raise Refused(*key, what=f": {error.what}", **said) from error


@dataclass(frozen=True)
class Reads:
    """A value is what ``parse`` makes of it. None, or a UsageError, means: ``expected`` was something else.

    ``words`` are those of which the nearest is proposed.
    """

    parse: Callable[[Any], object]
    expected: str
    words: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, *_: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, value: object) -> object:
        with suppress(UsageError):
            if (found := self.parse(value)) is not None:
                return found
        near = did_you_mean(value, self.words) if isinstance(value, str) else None
        raise Refused(expected=self.expected, todo=near)


@dataclass(frozen=True)
class Built:
    """A value is a table, and what ``build`` makes of it, which raises Refused for keys that do not agree."""

    table: type[Table]
    build: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.build, handler.generate_schema(self.table))


def line(value: object) -> str | None:
    """Return one line of text, stripped; None for anything else, and for no text at all."""
    return value.strip() or None if isinstance(value, str) and value.isprintable() else None


def text(expected: str) -> Reads:
    """Read one line of text, not empty."""
    return Reads(line, expected)


def choice(words: Iterable[str]) -> Reads:
    """Read one of the ``words``, or one of an enumeration."""
    known = {str(word): word for word in words}
    expected = "one of " + ", ".join(f'"{word}"' for word in known)
    return Reads(lambda value: known.get(line(value) or ""), expected, (*known,))


def whole(low: int, high: int, alias: str | None = None) -> Any:  # noqa: ANN401 - as pydantic types Field
    """Read an integer from ``low`` to ``high``."""
    return Field(strict=True, ge=low, le=high, alias=alias, description=f"an integer from {low} to {high}")


SWITCH = Field(strict=True, description="true or false, without quotes")
"""Of a key that is true or false."""


def number(expected: str, fits: Callable[[Fraction], bool] = lambda number: number > 0) -> Reads:
    """Read an exact number that ``fits``: above 0 unless said otherwise."""

    def parse(value: object) -> Fraction | None:
        found = exact_number(value)
        return found if found is not None and fits(found) else None

    return Reads(parse, expected)


def loss(example: str, kind: type[Loss] = PureDP) -> Reads:
    """Read a loss of the ``kind``: epsilon or rho, which have as many decimals."""
    expected = f"a number above 0, at most 1,000,000, with at most 12 decimals, such as {example}"
    return Reads(lambda value: kind.of(n) if (n := exact_number(value)) else None, expected)


def _day(value: object) -> date | None:
    with suppress(ValueError):
        value = date.fromisoformat(value.strip()) if isinstance(value, str) else value
    # datetime is a kind of date in Python
    return value if type(value) is date and _EARLIEST <= value <= _LATEST else None


def _once(items: tuple[Result, ...]) -> tuple[Result, ...]:
    if len(set(items)) != len(items):
        raise Refused(got="an item given twice")
    return items


Once = AfterValidator(_once)
Day = Annotated[date, Reads(_day, "a date such as 2016-11-24, from 1970-01-01 to 2199-12-31")]
UNIT = Reads(
    lambda value: parse_speed_unit(value, where=""), '"m/s", "km/h" or "mph"', ("m/s", "km/h", "mph")
)
ZONE = Reads(
    lambda value: word if (word := line(value)) and zone_of(word) else None,
    'an IANA time zone such as "America/Chicago"',
)


def require_other_names(section: str, names: Sequence[str]) -> None:
    """Raise Refused for a name that another table of the section has."""
    for i, name in enumerate(names):
        if name in names[:i]:
            other = f"another name for every {section.removesuffix('s')}"
            raise Refused(section, i, "name", what=" is given twice", expected=other, todo="rename one")


def read(
    table: type[Model], document: dict[str, object], folder: Path, build: Callable[[Model], Result]
) -> Result:
    """Return what ``build`` makes of the document, read as ``table``; files are relative to ``folder``.

    Raises ConfigError for the first thing that is wrong, keys that nobody knows before all others.
    """
    try:
        return build(table.model_validate(document, context=folder))
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        refused = first.get("ctx", {}).get("error", Refused())
        raise _wrong(table, document, (*first["loc"], *refused.key), first["type"], refused) from error
    except Refused as error:
        raise _wrong(table, document, error.key, "", error) from error


def refuse_placeholders(document: Mapping[str, object], *, name: str) -> None:
    """Raise one ConfigError that lists every key whose value still is a placeholder of the template."""
    waiting = list(dict.fromkeys(_where(key, document) for key in _placeholders(document)))
    if waiting:
        raise ConfigError(
            f"{name} has {len(waiting)} key{'s'[: len(waiting) > 1]} still to be chosen",
            got=", ".join(waiting),
            todo='replace every "CHOOSE ..." by your choice; the comments above it explain the options',
        )


def _placeholders(value: object, key: Key = ()) -> Iterator[Key]:
    # dotted keys may nest without end; the configuration has four levels
    if isinstance(value, str) and value.strip().startswith(PLACEHOLDER):
        yield key
    elif isinstance(value, list) and len(key) <= 8:
        for item in value:
            yield from _placeholders(item, key)
    elif isinstance(value, dict) and len(key) <= 8:
        for step, item in value.items():
            yield from _placeholders(item, (*key, step))


def keys_of(table: type[Table]) -> dict[str, FieldInfo]:
    """Return the fields of a table by the keys of the file."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def _table_in(*kinds: object) -> type[Table] | None:
    """Return the table that an annotation speaks of, itself or inside a tuple."""
    for kind in kinds:
        if isinstance(kind, Built):
            return kind.table
        if isinstance(kind, type) and issubclass(kind, Table):
            return kind
        if (found := _table_in(*get_args(kind))) is not None:
            return found
    return None


def _where(key: Key, document: Mapping[str, Any]) -> str:
    """Return how messages name a key: ``[map] tolerance.mean``, ``[[source]] "buses" speed_unit[2].to``."""
    section, *rest = key
    content = document.get(str(section))
    if not rest:
        return str(section)
    head = f"[{section}]"
    if isinstance(content, list):
        head = f"[[{section}]]"
        if isinstance(rest[0], int):
            item, number = content[rest[0]], rest.pop(0)
            # the name of a layer is a column of its file
            named = "file" if section == "context" else "name"
            name = line(item.get(named)) if isinstance(item, dict) else None
            head += f" {shown(name) if name else int(number) + 1}"
    inside = "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in rest)
    return f"{head} {inside.lstrip('.')}".rstrip()


def _wrong(
    table: type[Table], document: Mapping[str, object], key: Key, kind: str, refused: Refused
) -> ConfigError:
    """Return the error in the words of all configuration errors; ``kind`` is pydantic's, if it found it."""
    known, field, inner = keys_of(table), FieldInfo(), None
    value: Any = document
    for depth, step in enumerate(key):
        if isinstance(step, str):
            known = keys_of(inner or table)
            field = known.get(step, FieldInfo())
            inner = _table_in(field.annotation, *field.metadata)
        if not isinstance(value, dict if isinstance(step, str) else list):
            # a word that stands for a whole table is itself what is wrong
            key = key[:depth]
            break
        value = value.get(step) if isinstance(value, dict) else value[int(step)]
    place = _where(key, document)
    if kind == "extra_forbidden":
        place = _where((*key[:-1], printable(str(key[-1])[:60])), document)
        near = difflib.get_close_matches(str(key[-1]), known, n=1, cutoff=0.5)
        return ConfigError(
            f"unknown key {place}",
            expected=near[0] if near else f"one of {', '.join(known)}",
            todo="correct its spelling, move it to its table, or delete it",
        )
    expected = field.description or next((e.expected for e in field.metadata if isinstance(e, Reads)), "")
    if inner is not None:
        expected = expected or f"a table with the keys {', '.join(keys_of(inner))}"
        place = place if len(key) > 1 else f"[[{place}]]" if field.annotation is not inner else f"[{place}]"
    said = {"what": _KINDS.get(kind, WRONG)} | refused.said
    usual: dict[str, Any] = {}
    if kind == "tuple_type" and place.startswith("[[") and len(key) == 1:
        said = {"what": " is not a list of tables"}
        usual = {"got": shown(value), "expected": f"every one under a line {place}"}
    elif said["what"] == MISSING:
        todo = f"add {key[-1]} = ... there" if inner is None or len(key) > 1 else "add it"
        usual = {"expected": expected, "todo": todo}
    elif said["what"] == WRONG:
        if isinstance(key[-1], int) and field.description:
            # of one of several values: what all of them shall be
            said["expected"] = field.description
        got = f"{re.split('[ .]', place)[-1]} = {shown(value)}"
        usual = {"got": got, "expected": expected, "todo": "correct the configuration file"}
    elif kind == "model_type":
        usual = {"got": shown(value), "expected": expected}
    return ConfigError(place + said.pop("what"), **(usual | said))
