"""How a priced question is told from free SQL, without loading the parser for the latter."""

from __future__ import annotations

import re

_HINT = re.compile(r"\bselect\b.{0,200}?\bwith\b", re.IGNORECASE | re.DOTALL)
_START = re.compile(r"\s*+(?:explain\s++)?select\s++with\s++differential_privacy\b", re.IGNORECASE)


def is_priced(text: str) -> bool:
    """Return whether ``text`` says SELECT WITH DIFFERENTIAL_PRIVACY anywhere outside quotes and comments.

    Anything else is free SQL on what is released: nothing that this overlooks can reach a record.
    """
    if _START.match(text):
        return True
    if not _HINT.search(text):
        return False
    # the parser takes a moment to load: only a statement that may need it waits for that
    from trafficdp.query.statement import mentions_clause

    return mentions_clause(text)
