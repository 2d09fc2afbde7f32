"""A statement with priced questions, cut into them, and the options of each: what it may spend.

[EXPLAIN] SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (name = value, ...) columns FROM records ...

Such a SELECT may stand in another one, in brackets: then the rest of the text is left as it is, for DuckDB.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from trafficdp.config.document import exact_number
from trafficdp.errors import TrafficdpError
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, PureDP, decimal_text
from trafficdp.query.dialect import PARSER_FAILS, Priced, RefusedError, repeatable_text

LONGEST_STATEMENT = 20_000
"""Characters."""
MOST_TOKENS = 4_000
DEEPEST_NESTING = 40
MOST_QUESTIONS = 20
LARGEST_MIN_VEHICLES = 10**9
_FORM = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) AVG(speed) FROM records"
_OPTIONS = "OPTIONS (epsilon = 1)"
_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)


@dataclass(frozen=True, slots=True)
class PricedPart:
    """One SELECT WITH DIFFERENTIAL_PRIVACY: where it stands in the text, its options as written, the rest."""

    start: int
    end: int
    options: tuple[tuple[str, str], ...]
    select: exp.Select


@dataclass(frozen=True, slots=True)
class PricedStatement:
    """A whole statement without EXPLAIN; ``explain`` says whether that stood before it."""

    text: str
    explain: bool
    parts: tuple[PricedPart, ...]


def mentions_clause(text: str) -> bool:
    """Return whether SELECT WITH DIFFERENTIAL_PRIVACY stands in ``text``, outside quotes and comments."""
    if len(text) > LONGEST_STATEMENT:
        return False
    try:
        tokens = Priced().tokenize(text)
    except (*PARSER_FAILS, RecursionError):
        return False
    return any(_opens(tokens, place) for place in range(len(tokens)))


def read_statement(text: str) -> PricedStatement:
    """Return the priced questions of ``text``; raises RefusedError for what cannot be read as a statement."""
    if len(text) > LONGEST_STATEMENT:
        raise RefusedError("the question is too long", f"at most {LONGEST_STATEMENT:,} characters")
    try:
        tokens = Priced().tokenize(text)
    except (*PARSER_FAILS, RecursionError):
        raise RefusedError("the question cannot be read: a quote or comment does not end", _FORM) from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    deepest = max(accumulate(map(_step, tokens)), default=0)
    if len(tokens) > MOST_TOKENS or deepest > DEEPEST_NESTING:
        raise RefusedError("the question is too long or nested too deeply", "fewer words and brackets")
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise RefusedError("a priced question is one statement", "one at a time, without ;")
    explain = bool(tokens) and tokens[0].text.upper() == "EXPLAIN"
    tokens = tokens[explain:]
    if not tokens or not any(_opens(tokens, place) for place in range(len(tokens))):
        raise RefusedError("a priced question says so first", _FORM, repeatable_text(text))
    start, end = tokens[0].start, tokens[-1].end + 1
    parts = tuple(
        replace(part, start=part.start - start, end=part.end - start) for part in _parts(text, tokens)
    )
    if len(parts) > MOST_QUESTIONS:
        raise RefusedError("too many priced questions in one statement", f"at most {MOST_QUESTIONS}")
    return PricedStatement(text[start:end], explain, parts)


def _parts(text: str, tokens: list[Token]) -> Iterator[PricedPart]:
    place = 0
    while place < len(tokens):
        if not _opens(tokens, place):
            place += 1
            continue
        options, first = _options(tokens, place + 3)
        last = _end(tokens, first)
        if first >= last:
            raise RefusedError("the question ends after its clause", _FORM)
        if any(_opens(tokens, inner) for inner in range(first, last)):
            raise RefusedError(
                "a priced SELECT cannot stand in another one", "two in brackets, JOINed by name"
            )
        end = tokens[last - 1].end + 1
        yield PricedPart(
            tokens[place].start, end, options, _parsed(f"SELECT {text[tokens[first].start : end]}")
        )
        place = last


def _opens(tokens: list[Token], place: int) -> bool:
    """Whether the clause begins at the token number ``place``."""
    words = [token.text.upper() for token in tokens[place : place + 3]]
    kinds = [token.token_type for token in tokens[place : place + 2]]
    return words == ["SELECT", "WITH", "DIFFERENTIAL_PRIVACY"] and kinds == [
        TokenType.SELECT,
        TokenType.WITH,
    ]


def _step(token: Token) -> int:
    opening = token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
    return opening - (token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET))


def _end(tokens: list[Token], place: int) -> int:
    """Return the number of the token before which the SELECT that goes on at ``place`` ends."""
    depth = 0
    for number in range(place, len(tokens)):
        depth += _step(tokens[number])
        if depth < 0 or (not depth and tokens[number].token_type in _SET_OPERATIONS):
            return number
    return len(tokens)


def _options(tokens: list[Token], position: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return the options from the token number ``position`` on, and where the rest begins."""
    if position >= len(tokens) or tokens[position].text.upper() != "OPTIONS":
        raise RefusedError("the clause has no options", _OPTIONS, clause="OPTIONS")
    position += 1
    if position >= len(tokens) or tokens[position].token_type is not TokenType.L_PAREN:
        raise RefusedError("they stand in brackets", _OPTIONS, clause="OPTIONS")
    end = position + 1
    while end < len(tokens) and tokens[end].token_type is not TokenType.R_PAREN:
        end += 1
    if end == len(tokens):
        raise RefusedError("the brackets do not end", _OPTIONS, clause="OPTIONS")
    found: list[tuple[str, str]] = []
    part: list[Token] = []
    for token in [*tokens[position + 1 : end], None]:
        if token is not None and token.token_type is not TokenType.COMMA:
            part.append(token)
            continue
        if len(part) in (3, 4) and part[1].token_type is TokenType.EQ:
            found.append((part[0].text, "".join(each.text for each in part[2:])))
        elif part or token is not None:
            got = repeatable_text(" ".join(each.text for each in part))
            raise RefusedError("an option is a name and a value", _OPTIONS, got, "OPTIONS")
        part = []
    return tuple(found), end + 1


def _parsed(text: str) -> exp.Select:
    """Return the one SELECT that ``text`` holds."""
    try:
        statements = [each for each in Priced().parse(text) if each is not None]
    except (*PARSER_FAILS, RecursionError):
        raise RefusedError("this is not SQL", _FORM, repeatable_text(text)) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise RefusedError("this is not one SELECT", _FORM, repeatable_text(text))
    return statements[0]


@dataclass(frozen=True, slots=True)
class Options:
    """What the clause says. None: as the configuration has it.

    ``speed_bound`` is in the configuration's unit of speed. ``force`` releases what is too inaccurate.
    """

    epsilon: PureDP
    min_vehicles: int | None = None
    interval_level: Fraction | None = None
    speed_bound: Fraction | None = None
    force: bool = False

    def to_sql(self) -> str:
        """Return the clause's OPTIONS (...), in one spelling."""
        parts = [f"epsilon = {decimal_text(self.epsilon.pico)}"]
        if self.min_vehicles is not None:
            parts.append(f"min_vehicles = {self.min_vehicles}")
        if self.interval_level is not None:
            parts.append(f"interval_level = {_decimal(self.interval_level)}")
        if self.speed_bound is not None:
            parts.append(f"speed_bound = {_decimal(self.speed_bound)}")
        if self.force:
            parts.append("force = TRUE")
        return f"OPTIONS ({', '.join(parts)})"


def read_options(pairs: tuple[tuple[str, str], ...], default: PureDP, *, needed: bool) -> Options:
    """Return the options that ``pairs`` of (name, value) say; ``needed`` says whether epsilon must be there.

    Raises RefusedError for any that is wrong.
    """
    found: dict[str, Any] = {"epsilon": default}
    seen: set[str] = set()
    for written, value in pairs:
        name = _ALIASES.get(written.lower(), written.lower())
        if name in seen:
            raise RefusedError("an option is given twice", _OPTIONS, repeatable_text(name))
        seen.add(name)
        if name in _REFUSED:
            raise RefusedError(f"there is no option {name}", _REFUSED[name])
        if name == "privacy_unit_column":
            if value.lower() != "vehicle":
                raise RefusedError(
                    "the privacy unit is the vehicle", f"{name} = vehicle", repeatable_text(value)
                )
        elif name == "delta":
            if exact_number(value) != 0:
                raise RefusedError("the guarantee is pure epsilon", _OPTIONS)
        elif name in _READERS:
            read = _READERS[name](value)
            if read is None:
                raise RefusedError(f"option {name} is not valid", WORKS[name])
            found[name] = read
        else:
            near = difflib.get_close_matches(name, _READERS, n=1)
            raise RefusedError(
                "there is no such option", WORKS[near[0] if near else "epsilon"], repeatable_text(name)
            )
    if needed and "epsilon" not in seen:
        raise RefusedError("epsilon is missing", _OPTIONS)
    return Options(**found)


def _decimal(value: Fraction) -> str:
    return decimal_text(int(value * PICO))


def _number(text: str, fits: Callable[[Fraction], bool]) -> Fraction | None:
    number = exact_number(text)
    return number if number is not None and number > 0 and fits(number) else None


def _whole(text: str) -> int | None:
    number = _number(text, lambda number: number.denominator == 1 and number <= LARGEST_MIN_VEHICLES)
    return None if number is None else int(number)


def _epsilon(text: str) -> PureDP | None:
    number = _number(text, lambda number: number * PICO <= LARGEST_LOSS)
    with suppress(TrafficdpError):
        return None if number is None else PureDP.of(number)
    return None


_READERS: dict[str, Callable[[str], object]] = {
    "epsilon": _epsilon,
    "min_vehicles": _whole,
    "interval_level": lambda text: _number(text, lambda number: number < 1),
    "speed_bound": lambda text: _number(text, lambda number: True),
    "force": lambda text: {"true": True, "false": False}.get(text.lower()),
}
WORKS = {
    "epsilon": "epsilon = 1, above 0, with at most 12 decimals",
    "min_vehicles": "min_vehicles = 3, a whole number",
    "interval_level": "interval_level = 0.9, between 0 and 1",
    "speed_bound": "speed_bound = 50, a multiple of the configured speed_step",
    "force": "force = TRUE",
}
_ALIASES = {"min_privacy_units_per_group": "min_vehicles", "confidence_level": "interval_level"}
_REFUSED = {
    "max_groups_contributed": f"{_OPTIONS}: every vehicle pays for the hexagons that it was in, exactly",
    "max_rows_contributed": f"{_OPTIONS}: every vehicle pays for its own records, exactly",
    "group_selection_strategy": f"{_OPTIONS}: which hexagons were visited is public here",
    "contribution_bounds_per_group": "speed_bound = 50: speeds are clipped to 0 .. speed_bound",
    "contribution_bounds_per_row": "speed_bound = 50: speeds are clipped to 0 .. speed_bound",
}
