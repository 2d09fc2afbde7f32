"""The clause that makes a question a priced one, cut out so that sqlglot can parse the rest around it.

[EXPLAIN] SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (name = value, ...) columns FROM fixes ...
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from trafficdp.query.dialect import PARSER_FAILS, Priced, shown
from trafficdp.query.problems import Problems

LONGEST_QUESTION = 20_000
"""Characters."""
MOST_TOKENS = 4_000
DEEPEST_NESTING = 40
_FORM = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ...) columns FROM fixes ..."


@dataclass(frozen=True)
class Clause:
    """The parts of a priced question: its options as (name, value token texts), and the rest, parsed.

    ``select`` is None when there is nothing that can be read.
    """

    explain: bool
    options: tuple[tuple[str, str], ...]
    select: exp.Select | None


def mentions_clause(text: str) -> bool:
    """Return whether SELECT WITH DIFFERENTIAL_PRIVACY stands in ``text``, outside quotes and comments."""
    if len(text) > LONGEST_QUESTION:
        return False
    try:
        tokens = Priced().tokenize(text)
    except (*PARSER_FAILS, RecursionError):
        return False
    return any(_opens(tokens, place) for place in range(len(tokens)))


def cut(text: str, problems: Problems) -> Clause:
    """Return the parts of the priced question ``text``; what cannot be read is a problem."""
    nothing = Clause(False, (), None)
    if len(text) > LONGEST_QUESTION:
        problems.add(
            "the question is too long", f"{len(text)} characters", f"at most {LONGEST_QUESTION} characters"
        )
        return nothing
    try:
        tokens = Priced().tokenize(text)
    except (*PARSER_FAILS, RecursionError):
        problems.add("the question cannot be read: a quote or a comment does not end", None, _FORM)
        return nothing
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    explain = bool(tokens) and tokens[0].text.upper() == "EXPLAIN"
    start = 1 if explain else 0
    if len(tokens) > MOST_TOKENS or _depth(tokens) > DEEPEST_NESTING:
        problems.add("the question is too long or nested too deeply", f"{len(tokens)} words", _FORM)
        return Clause(explain, (), None)
    if not _opens(tokens, start):
        problems.add("a priced question stands alone and starts with its clause", shown(text), _FORM)
        return Clause(explain, (), None)
    options, position = _options(tokens, start + 3, problems)
    if position >= len(tokens):
        problems.add("the question ends after its clause", None, _FORM)
        return Clause(explain, options, None)
    return Clause(explain, options, _parsed("SELECT " + text[tokens[position].start :], problems))


def _opens(tokens: list[Token], place: int) -> bool:
    """Whether the clause begins at the token number ``place``."""
    words = [token.text.upper() for token in tokens[place : place + 3]]
    kinds = [token.token_type for token in tokens[place : place + 2]]
    return words == ["SELECT", "WITH", "DIFFERENTIAL_PRIVACY"] and kinds == [
        TokenType.SELECT,
        TokenType.WITH,
    ]


def _depth(tokens: list[Token]) -> int:
    depth = deepest = 0
    for token in tokens:
        opening = token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        closing = token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        depth += opening - closing
        deepest = max(deepest, depth)
    return deepest


def _options(
    tokens: list[Token], position: int, problems: Problems
) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return the options from the token number ``position`` on, and where the rest begins."""
    expected = "OPTIONS (epsilon = 1)"
    if position >= len(tokens) or tokens[position].text.upper() != "OPTIONS":
        # what is offered names the epsilon of the configuration: it asks the same
        problems.add("the clause has no options", None, expected, same=True)
        return (), position
    position += 1
    if position >= len(tokens) or tokens[position].token_type is not TokenType.L_PAREN:
        problems.add("the options stand in brackets", None, expected)
        return (), position
    end = position + 1
    while end < len(tokens) and tokens[end].token_type is not TokenType.R_PAREN:
        end += 1
    if end == len(tokens):
        problems.add("the brackets of the options do not end", None, expected)
        return (), end
    found: list[tuple[str, str]] = []
    part: list[Token] = []
    for token in [*tokens[position + 1 : end], None]:
        if token is not None and token.token_type is not TokenType.COMMA:
            part.append(token)
            continue
        if len(part) in (3, 4) and part[1].token_type is TokenType.EQ:
            found.append((part[0].text, "".join(each.text for each in part[2:])))
        elif part or token is not None:
            problems.add("an option is a name and a value", shown(" ".join(t.text for t in part)), expected)
        part = []
    return tuple(found), end + 1


def _parsed(text: str, problems: Problems) -> exp.Select | None:
    """Return the one SELECT that ``text`` holds, None for anything else."""
    try:
        statements = [each for each in Priced().parse(text) if each is not None]
    except (*PARSER_FAILS, RecursionError):
        problems.add("the question is not SQL as this dialect has it", shown(text), _FORM)
        return None
    if len(statements) != 1:
        problems.add("a priced question is one statement", f"{len(statements)} of them", "one")
    first = statements[0] if statements else None
    while first is not None and not isinstance(first, exp.Select):
        # UNION and its like, brackets, a Command: the first SELECT inside is what can be offered
        problems.add("a priced question is one SELECT and nothing around it", shown(text), _FORM)
        first = next((each for each in first.find_all(exp.Select)), None)
    return first
