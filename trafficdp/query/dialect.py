"""The words of the dialect: how a question is cut into them, and which a refusal may repeat."""

from __future__ import annotations

import logging
from typing import ClassVar

from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

LONGEST_SHOWN = 60
"""Characters."""
PARSER_FAILS = (SqlglotError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
_OWN = """
    fixes records cell h3 slot slot_label slot_start slot_end status speed vehicle plate vehicle_id
    latitude longitude time date weekday hour area in_box count avg sum min max median var_pop var_samp
    stddev stddev_pop stddev_samp vehicle_avg quantile quantile_cont quantile_disc percentile percentile_cont
    percentile_disc within group dp_interval_low dp_interval_high dp_rank_low dp_rank_high
    differential_privacy options
    epsilon delta min_vehicles interval_level speed_bound force privacy_unit_column
"""
_OMITTED = "..."

# the parser's remarks on odd SQL are not for our standard error
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


class Priced(Dialect):
    """Plain SQL: no commands, no templates, no hints; an order puts nulls last."""

    NULL_ORDERING = "nulls_are_last"

    class Tokenizer(tokens.Tokenizer):
        """Its words."""

        KEYWORDS = {  # noqa: RUF012 - sqlglot reads it as it stands
            word: kind
            for word, kind in tokens.Tokenizer.KEYWORDS.items()
            if word not in ("EXPLAIN", "/*+") and not word.startswith(("{", "%", "+%", "-%", "+}", "-}"))
        }
        COMMANDS: ClassVar[set[TokenType]] = set()


_WORDS = frozenset(_OWN.upper().split()) | Priced.Tokenizer.KEYWORDS.keys()
_SIGNS = frozenset(Priced.Tokenizer.SINGLE_TOKENS) - {"'", '"'}


def shown(text: str) -> str | None:
    """Return what a refusal may repeat of part of a question; None when that is nothing.

    Words and signs of the dialect alone, cut to LONGEST_SHOWN characters: texts, numbers, names of the
    asker's own and comments are left out, for a vehicle may be written in any of them.
    """
    try:
        found = Priced().tokenize(text)
    except (*PARSER_FAILS, RecursionError):
        return None
    flat, end = "", -1
    for token in found:
        kept = token.text if token.text.upper() in _WORDS or token.text in _SIGNS else _OMITTED
        gap = " " if flat and token.start > end + 1 else ""
        if not (kept == _OMITTED and flat.endswith(_OMITTED)):
            flat += gap + kept
        end = token.end
    if not flat.strip(f"{_OMITTED} "):
        return None
    return flat if len(flat) <= LONGEST_SHOWN else f"{flat[: LONGEST_SHOWN - 3]}..."
