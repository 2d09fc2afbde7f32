"""Tables of the configuration as pydantic reads them, and what is said of a wrong one.

A table is a model: pydantic knows which keys there are, which must be given and where each error lies. What
a key accepts is written beside it, as ``Reads`` or as the ``description`` of its ``Field``; every message
names ``[table] key`` and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from trafficdp.config.document import exact_number, one_line_text, printable, shown, unknown_key_error
from trafficdp.errors import ConfigError, UsageError, did_you_mean
from trafficdp.model import parse_speed_unit, zone_of
from trafficdp.privacy.loss import Loss, PureDP

WRONG, MISSING = " is not valid", " is missing"
_KINDS = {"missing": MISSING, "model_type": " is not a table"}
PLACEHOLDER = "CHOOSE"
"""How the values of the template begin that somebody has to choose."""
_EARLIEST, _LATEST = date(1970, 1, 1), date(2199, 12, 31)

Key = tuple[str | int, ...]
"""Where a value lies in the document: names of keys, and numbers in lists from 0."""
Result = TypeVar("Result")


class Table(BaseModel):
    """Base class of the tables of the configuration file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Refused(ValueError):
    """The value of ``key`` is wrong; the path starts at the table that is being read.

    ``said`` replaces parts of the ConfigError that is made of it: ``what`` (after the name of the key),
    ``got``, ``expected`` and ``todo``.
    """

    def __init__(self, *key: str | int, **said: Any) -> None:  # noqa: ANN401 - as ConfigError takes them
        super().__init__(said)
        self.key, self.said = key, {name: each for name, each in said.items() if each is not None}


@contextmanager
def naming(*key: str | int) -> Iterator[None]:
    """Context manager: raise Refused for ``key`` in place of a UsageError of the block, with its texts."""
    try:
        yield
    except UsageError as error:
        said = {"got": error.got, "expected": error.expected, "todo": error.todo}
        raise Refused(*key, what=f": {error.what}", **said) from error


@dataclass(frozen=True)
class Reads:
    """A validator for one value: the result is ``parse(value)``.

    Refused, with the text ``expected``, when ``parse`` returns None or raises UsageError, or when ``fits``
    is false of the result; the nearest of ``words`` is then proposed.
    """

    parse: Callable[[Any], object]
    expected: str
    words: tuple[str, ...] = ()
    fits: Callable[[Any], bool] = lambda found: True

    def __get_pydantic_core_schema__(self, *_: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, value: object) -> object:
        with suppress(UsageError):
            if (found := self.parse(value)) is not None and self.fits(found):
                return found
        near = did_you_mean(value, self.words) if isinstance(value, str) else None
        raise Refused(expected=self.expected, todo=near)


@dataclass(frozen=True)
class Built:
    """A validator for a table: its keys are read as ``table``, and the result is ``build`` of that.

    ``build`` raises Refused for keys that contradict one another.
    """

    table: type[Table]
    build: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.build, handler.generate_schema(self.table))


def text(expected: str) -> Reads:
    """Return a validator for one line of text that is not empty; the result is the text without outer spaces.

    ``expected`` says in messages what is wanted.
    """
    return Reads(one_line_text, expected)


def choice(words: Iterable[str]) -> Reads:
    """Return a validator for a text that is exactly one of ``words`` (case counts, spaces around it do not).

    The result is the item of ``words`` itself: the member where ``words`` is an enumeration of strings.
    """
    known = {str(word): word for word in words}
    expected = "one of " + ", ".join(f'"{word}"' for word in known)
    return Reads(lambda value: known.get(one_line_text(value) or ""), expected, (*known,))


def whole(low: int, high: int, alias: str | None = None) -> Any:  # noqa: ANN401 - as pydantic types Field
    """Return a field for an integer from ``low`` to ``high``, called ``alias`` in the file."""
    return Field(strict=True, ge=low, le=high, alias=alias, description=f"an integer from {low} to {high}")


SWITCH = Field(strict=True, description="true or false, without quotes")
"""Of a key that is true or false."""


def number(expected: str, fits: Callable[[Fraction], bool] = lambda number: number > 0) -> Reads:
    """Return a validator for an exact number for which ``fits`` is true: above 0 by default.

    It may be given as number or text; the result is a Fraction; ``expected`` says in messages what is wanted.
    """
    return Reads(exact_number, expected, fits=fits)


def loss(example: str, kind: type[Loss] = PureDP) -> Reads:
    """Return a validator for a privacy loss, given as number or text; the result is a loss of class ``kind``.

    That is epsilon (PureDP, the default) or rho; ``example`` is shown in messages.
    """
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
    lambda value: word if (word := one_line_text(value)) and zone_of(word) else None,
    'an IANA time zone such as "America/Chicago"',
)


def refuse_placeholders(document: Mapping[str, object], *, name: str) -> None:
    """Raise one ConfigError that lists every key whose value still is a placeholder of the template."""
    found: list[Key] = []
    left: list[tuple[Key, object]] = [((), document)]
    while left:
        key, value = left.pop()
        # dotted keys may nest without end; the configuration has four levels
        if isinstance(value, str) and value.strip().startswith(PLACEHOLDER):
            found.append(key)
        elif isinstance(value, list) and len(key) <= 8:
            left += [(key, item) for item in reversed(value)]
        elif isinstance(value, Mapping) and len(key) <= 8:
            left += [((*key, step), item) for step, item in reversed([*value.items()])]
    waiting = list(dict.fromkeys(_where(key, document) for key in found))
    if waiting:
        raise ConfigError(
            f"{name} has {len(waiting)} key{'s'[: len(waiting) > 1]} still to be chosen",
            got=", ".join(waiting),
            todo='replace every "CHOOSE ..." by your choice; the comments above it explain the options',
        )


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
            name = one_line_text(item.get(named)) if isinstance(item, dict) else None
            head += f" {shown(name) if name else int(number) + 1}"
    inside = "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in rest)
    return f"{head} {inside.lstrip('.')}".rstrip()


def config_error(
    table: type[Table], document: Mapping[str, object], key: Key, kind: str, refused: Refused
) -> ConfigError:
    """Return (do not raise) the ConfigError for one wrong ``key`` of ``table``, in the words of all of them.

    ``document`` is what was read, ``kind`` pydantic's type of the error, ``refused`` what a validator said.
    """
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
        return unknown_key_error(place, str(key[-1]), known)
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
