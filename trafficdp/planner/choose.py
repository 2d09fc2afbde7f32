"""What ``auto`` chooses: the mechanism that is least off at the worst values, by public counts alone.

No function of this file is given a value, so no choice can depend on one. Expected errors of
``Mechanism.expected_error`` hold for all values; so a mechanism that does well on values that agree (an
interval, a quantile) is compared by what it does on those that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trafficdp.errors import UsageError
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.registry import MECHANISMS
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.planner.offer import Offer, offers
from trafficdp.privacy.loss import PureDP

TIE = 0.01
"""Medians that differ by no more than this share are equal: the one listed first, the simpler, is taken."""
SAYS_NOTHING = 0.95
"""From this share of a constant's worst error on, a map is hardly better than the constant."""


@dataclass(frozen=True)
class Choice:
    """All offers for a statistic in the order of the registry, the chosen one, and why in one sentence."""

    statistic: Statistic
    offers: tuple[Offer, ...]
    chosen: Offer
    reason: str


def choose(
    occupancy: Occupancy,
    bound: ContributionBound,
    statistic: Statistic,
    total: PureDP,
    mechanisms: Sequence[Mechanism] = MECHANISMS,
) -> Choice:
    """Return the offer with the least median over bins of the expected error, at the worst values.

    The median is what decides whether a map is refused as uninformative. Only mechanisms with an exact
    sampler and an event in pure epsilon can be chosen; a tie goes to the one listed first. Raises
    UsageError when there is none, or no bin.
    """
    found = offers(occupancy, bound, statistic, total, mechanisms)
    chosen = best_of(found)
    return Choice(statistic, found, chosen, _reason(found, chosen, bound))


def best_of(found: Sequence[Offer]) -> Offer:
    """Return the first eligible offer whose median error is the least, but for TIE.

    Raises UsageError without one.
    """
    eligible = [offer for offer in found if offer.eligible]
    if not eligible:
        raise UsageError(
            "no mechanism can release this",
            got="; ".join(f"{o.mechanism}: {o.unavailable or 'no exact sampler'}" for o in found) or "none",
            expected="one with an exact sampler that fits the epsilon",
        )
    least = min(offer.median_error for offer in eligible)
    return next(offer for offer in eligible if offer.median_error <= least * (1 + TIE))


def constant_error(statistic: Statistic, bound: ContributionBound) -> float:
    """Return how far a constant in the middle of the range is off at worst: U/2, or U^2/8."""
    return statistic.largest(bound.upper) / 2


def _reason(found: Sequence[Offer], chosen: Offer, bound: ContributionBound) -> str:
    unit = bound.unit.label if chosen.statistic is not Statistic.VARIANCE else f"({bound.unit.label})^2"
    text = (
        f"{chosen.mechanism} has the least median expected error at the worst values, "
        f"{chosen.median_error:.3g} {unit}"
    )
    others = [offer for offer in found if offer.eligible and offer is not chosen]
    if others:
        second = min(others, key=lambda offer: offer.median_error)
        text += f"; {second.mechanism} has {second.median_error:.3g}"
        if second.median_error <= chosen.median_error * (1 + TIE):
            text += f", which is the same within {TIE:.0%}, and is listed after it"
    closed = [offer.mechanism for offer in found if offer.idealised]
    if closed:
        text += f"; not considered, without an exact sampler: {', '.join(closed)}"
    if chosen.median_error > SAYS_NOTHING * constant_error(chosen.statistic, bound):
        text += f"; a constant would be {constant_error(chosen.statistic, bound):.3g} off: it says little"
    return text
