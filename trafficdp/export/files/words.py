"""Plain words about a guarantee, by neighbouring relation."""

from __future__ import annotations

import math

from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.loss import Loss, decimal_text

_VALUES = NeighbouringRelation.REPLACE_USER_VALUES
_PRESENCE = NeighbouringRelation.ADD_OR_REMOVE_USER
_PRACTICALLY_NEVER = 1e-6

PROTECTED = {
    _VALUES: "How fast any one vehicle drove: all its speeds, in all cells and time slots at once.",
    _PRESENCE: "Any one vehicle as a whole: whether it is in the data, where, when and how fast it drove.",
}

NOT_PROTECTED = {
    _VALUES: (
        "Whether a vehicle is in the data, where and when it drove, and how many records it sent: these "
        "counts are treated as public.",
        "Whether a record carried a usable speed.",
        "What many vehicles have in common: that traffic in a cell was slow is what the map shows.",
        "A person or a company with several vehicles, or a vehicle under several identifiers: each "
        "identifier is protected separately, and the losses add up.",
    ),
    _PRESENCE: (
        "What many vehicles have in common: that traffic in a cell was slow is what the map shows.",
        "A person or a company with several vehicles, or a vehicle under several identifiers: each "
        "identifier is protected separately, and the losses add up.",
    ),
}

BIN_LIST = {
    _VALUES: "public under the counts assumption: every bin that any vehicle visited; "
    "bins not listed had no record",
    _PRESENCE: "declared: every cell of the study area in every slot, whether visited or not",
}

COUNTS_REVEALED = {
    _VALUES: "The list of bins, the withheld bins and the published noise scales reveal how often vehicles "
    "visited a bin, even when the counts themselves are not published.",
    _PRESENCE: "The list of bins and the noise scales were declared in advance and reveal no visit counts.",
}


def guarantee_in_words(relation: NeighbouringRelation, epsilon: Loss) -> str:
    """Return what epsilon means to whoever guesses about a vehicle.

    Of two equally likely accounts, the best guess after the release is right with probability at most
    e^epsilon / (1 + e^epsilon): a release is at most e^epsilon times as likely under one as under the other.
    """
    return f"{_guess(relation, epsilon.pico / 10**12, 0.0)} (epsilon = {decimal_text(epsilon.pico)})."


def zcdp_in_words(relation: NeighbouringRelation, rho: str, epsilon: str, delta: str) -> str:
    """Return the same of rho, by the (epsilon, delta) that follows: (e^epsilon + delta) / (1 + e^epsilon).

    Best of all rules, P(right) = (1 + TV) / 2, and TV <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
    """
    guess = _guess(relation, float(epsilon), float(delta))
    return f"{guess} (rho = {rho}, and so epsilon = {epsilon} at delta = {delta})."


def _guess(relation: NeighbouringRelation, epsilon: float, delta: float) -> str:
    """Return the sentence without what stands in brackets; the probability is rounded up."""
    accounts = (
        "how fast one vehicle drove" if relation is _VALUES else "one vehicle: here, or not here at all"
    )
    # 1 - (e^epsilon + delta) / (1 + e^epsilon), which keeps its digits however large epsilon is
    wrong = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    right = "practically always" if wrong < _PRACTICALLY_NEVER else f"{_percent(wrong)} % of the time"
    return (
        f"Say somebody has two guesses about {accounts}, and both are equally likely. Whoever sees "
        f"everything that this release publishes, and chooses as well as can be, is right at most {right}; "
        "whoever sees nothing of it, 50 %"
    )


def _percent(wrong: float) -> str:
    """Return 100 (1 - wrong), rounded up where two digits of ``wrong`` end."""
    digits = max(0, 1 - math.floor(math.log10(100 * wrong)))
    return f"{100 - math.floor(100 * wrong * 10**digits) / 10**digits:.{digits}f}"
