"""Plain words about a guarantee, by neighbouring relation."""

from __future__ import annotations

import math

from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.loss import Loss, decimal_text

_VALUES = NeighbouringRelation.REPLACE_USER_VALUES
_PRESENCE = NeighbouringRelation.ADD_OR_REMOVE_USER

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
    """Return one sentence on what epsilon means: the largest factor e^epsilon between probabilities."""
    factor = _factor(epsilon.pico / 10**12)
    return (
        f"{_changed(relation)}, the probability of any published result would have changed by a factor of "
        f"at most {factor} (e to the power of epsilon = {decimal_text(epsilon.pico)})."
    )


def zcdp_in_words(relation: NeighbouringRelation, rho: str, epsilon: str, delta: str) -> str:
    """Return what rho means: for every order a > 1 a bound of a rho, hence (epsilon, delta)."""
    return (
        f"{_changed(relation)}, the Renyi divergence of order a between the two laws of all published "
        f"results would have been at most a times {rho}, for every a above 1. So, but for a probability of "
        f"at most {delta} (delta), the probability of any published result would have changed by a factor "
        f"of at most {_factor(float(epsilon))} (e to the power of epsilon = {epsilon})."
    )


def _changed(relation: NeighbouringRelation) -> str:
    if relation is _VALUES:
        return "If all speeds of one vehicle had been different"
    return "If one vehicle had been added or left out"


def _factor(exponent: float) -> str:
    if exponent < 20:
        return format(math.ceil(100 * math.exp(exponent)) / 100, ".12g")
    # beyond the reach of floating point a power of ten says enough
    return f"10 to the power of {math.ceil(exponent / math.log(10))}"
