"""What ``auto`` chooses: by public counts and simulated cities alone, never by a value.

No function of this file is given a value, so no choice can depend on one. Two things are known of an offer:
the expected error at the worst values there could be (``Mechanism.expected_error``, a theorem), and its error
in simulated cities. The simulated cities decide. By the theorem alone, mechanisms that clip would never show
what they are good for where bounds saturate at half of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.protocol import Mechanism
from trafficdp.mechanisms.separate.calibrated import mechanisms_of, tried_by_auto
from trafficdp.mechanisms.separate.fit import CLOSE
from trafficdp.mechanisms.simulated.trial import SimulatedCities
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.planner.offer import Offer, offers
from trafficdp.privacy.loss import Loss

DUST = 10 * CLOSE
"""Scores are not known more closely than epsilons are fitted: what is nearer is a tie."""
BLURRED = 0.03
"""An error in a simulated city is the mean of about 2,000 estimates, known to about this share."""
SAYS_NOTHING = 0.95
"""From this share of a constant's worst error on, a bound is hardly better than the constant's."""


@dataclass(frozen=True)
class Choice:
    """All offers for a statistic in the order of the registry, the chosen one, and why in one sentence."""

    statistic: Statistic
    offers: tuple[Offer, ...]
    chosen: Offer
    reason: str


def choose(
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    mechanisms: Sequence[Mechanism] | None = None,
    *,
    tries: SimulatedCities | None = None,
    shown: SpeedUnit | None = None,
) -> Choice:
    """Return the offer with the least error in simulated cities.

    Without ``tries`` the median over bins of the worst expected error is compared. Without ``mechanisms``
    all are looked at that count in the kind of ``total``, and those of ``tried_by_auto`` can be chosen. Only
    those with an exact sampler can be; a tie goes to the one listed first, the simpler. The reason tells
    errors in ``shown``. Raises UsageError when there is none, or no bin.
    """
    known = mechanisms_of(total.kind) if mechanisms is None else mechanisms
    found = offers(counts, bound, statistic, total, known, tries)
    free = {each.name for each in (tried_by_auto(total.kind) if mechanisms is None else mechanisms)}
    eligible = [offer for offer in found if offer.mechanism in free]
    chosen = best_of(eligible)
    return Choice(statistic, found, chosen, _reason(found, chosen, bound, shown or bound.unit))


def best_of(found: Sequence[Offer]) -> Offer:
    """Return the first eligible offer of least score, as far as scores can be told apart.

    To DUST, or to BLURRED where they were tried. Raises UsageError without an eligible one.
    """
    eligible = [offer for offer in found if offer.eligible]
    if not eligible:
        raise UsageError(
            "no mechanism can release this",
            got="; ".join(f"{o.mechanism}: {o.unavailable or 'no exact sampler'}" for o in found) or "none",
            expected="one with an exact sampler that fits the loss",
        )
    least = min(eligible, key=lambda offer: offer.score)
    return next(offer for offer in eligible if offer.score <= least.score * (1 + _tie(least)))


def _tie(offer: Offer) -> float:
    """By what share scores may differ and be the same."""
    return DUST if offer.tried is None else BLURRED


def constant_error(statistic: Statistic, bound: ContributionBound) -> float:
    """Return how far a constant in the middle of the range is off at worst: U/2, or U^2/8."""
    return statistic.largest(bound.upper) / 2


def median_noisy(error: npt.NDArray[np.float64]) -> float:
    """Return the median over the bins that have an error at all (shape (G,)); 0 when none has."""
    noisy = error[error > 0]
    return float(np.median(noisy)) if noisy.size else 0.0


def _reason(found: Sequence[Offer], chosen: Offer, bound: ContributionBound, shown: SpeedUnit) -> str:
    unit = chosen.statistic.unit(shown)
    factor = chosen.statistic.factor(bound.unit, shown)
    by = "median expected error at the worst values" if chosen.tried is None else "error in simulated cities"
    had = {offer.mechanism: f"{offer.score * factor:.3g}" for offer in found if offer.eligible}
    text = f"{chosen.mechanism} has the least {by}, {chosen.score * factor:.3g} {unit}"
    others = [offer for offer in found if offer.eligible and offer is not chosen]
    if others:
        second = min(others, key=lambda offer: offer.score)
        if second.score <= chosen.score:
            text += f"; {second.mechanism} has {had[second.mechanism]}, which cannot be told from it, and is "
            text += "listed after it"
        else:
            text += f"; {second.mechanism} has {second.score * factor:.3g}"
    closed = [offer.mechanism for offer in found if offer.idealised]
    if closed:
        text += f"; not considered, without an exact sampler: {', '.join(closed)}"
    constant = constant_error(chosen.statistic, bound)
    if chosen.median_error > SAYS_NOTHING * constant:
        text += f"; at the worst values a constant is no further off, {constant * factor:.3g}"
    return text
