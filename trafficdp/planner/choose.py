"""What every statistic is given, and by which mechanism: by public counts and simulated cities alone.

No function of this file is given a value, so no choice can depend on one.

**Fit.** What a mechanism is given, so that no vehicle loses more than the total. One that counts in rho is
given all of it, for all bins together. One of pure epsilon is asked for its event at ``k * shape`` (shape
(G,), epsilons a bin), and k is raised until the largest exact loss of a vehicle is the total. Losses are
homogeneous in k but for rounding, and but for mechanisms whose clipping depends on epsilon: so k is first
guessed by proportion, then bracketed. What is returned never costs more than the total.

**Choose.** Two things are known of an offer: the expected error at the worst values there could be
(``Mechanism.expected_error``, a theorem), and its error in simulated cities. The simulated cities decide. By
the theorem alone, mechanisms that clip would never show what they are good for where bounds saturate at half
of the range.

**Share out.** An epsilon is shared out over statistics in proportion to range / tolerance: noise grows with
the range of a statistic (U, U^2/4), so that errors relative to their tolerances come out alike. Of rho all
get the same. What is left, because the vehicle that loses most differs between statistics, is then handed out
in proportion (``PerStatisticMechanism.calibrate``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import cast

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError
from trafficdp.mechanisms import per_statistic_map
from trafficdp.mechanisms.names import AUTO
from trafficdp.mechanisms.protocol import RANGE, Mechanism, StatisticRequest, event_of, unenforced_theorems
from trafficdp.mechanisms.simulated_cities import SimulatedCities
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import Loss, LossKind, PrivacyEvent

LOSS_FIT_TOLERANCE = 1e-6
"""A loss within this share of the total is as good as the total."""
ATTEMPTS = 30
BRACKET = 1e-4
"""Where the loss jumps over the total, the search ends when the factor is known this well."""
LARGEST_EPSILON = RANGE[LossKind.PURE][1]


class Split(StrEnum):
    """How epsilon is divided among bins.

    SAME_EPSILON gives every bin the same epsilon, as in the papers. EQUAL_NOISE gives every bin an epsilon in
    proportion to its sensitivity, so that all bins get the same noise scale.
    """

    SAME_EPSILON = "same_epsilon"
    EQUAL_NOISE = "equal_noise"


@dataclass(frozen=True)
class Fit:
    """What a mechanism is ``given``, and the privacy event at it; ``event.loss`` is at most the total.

    In epsilon, ``given`` holds one epsilon a bin, shape (G,), divided by ``split``. In rho it is one rho for
    all bins jointly, shape (), and ``split`` is None.
    """

    split: Split | None
    given: FloatArray
    event: PrivacyEvent


def fit(
    mechanism: Mechanism,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    split: Split | None,
) -> Fit:
    """Return the largest epsilons of bins whose exact total loss is at most ``total``, from public counts.

    ``split`` says whether bins get equal epsilons or equal noise. A ``total`` in rho is given whole. Raises
    UsageError for a mechanism of another kind of loss, when nothing fits, and where the mechanism cannot draw
    its noise.
    """
    if mechanism.kind is not total.kind:
        raise UsageError(
            f"an event does not count in {total.kind.quantity}",
            got=mechanism.name,
            todo="convert its loss by name",
        )
    if total.kind is LossKind.ZCDP:
        rho = cast("FloatArray", np.float64(total.number))
        return Fit(None, rho, event_of(mechanism, StatisticRequest(counts, bound, statistic, rho)))
    shape = np.ones(counts.bins)
    if split is Split.EQUAL_NOISE:
        shape = _equal_noise(fit(mechanism, counts, bound, statistic, total, Split.SAME_EPSILON))
    low: tuple[float, Fit] | None = None
    high: float | None = None
    # by the grid count of the papers no vehicle pays more than this
    factor = float(total.exact) / max(1, int(counts.bins_per_user.max(initial=0))) / float(shape.max())
    for _ in range(ATTEMPTS):
        epsilon = np.minimum(factor * shape, LARGEST_EPSILON)
        event = event_of(mechanism, StatisticRequest(counts, bound, statistic, epsilon))
        loss = event.loss.pico
        if loss <= total.pico:
            low = (factor, Fit(split, epsilon, event))
            if loss >= total.pico * (1 - LOSS_FIT_TOLERANCE) or bool(np.all(epsilon == LARGEST_EPSILON)):
                break
        else:
            high = factor
        factor = _next(factor, loss, total.pico, None if low is None else low[0], high)
        if low is not None and high is not None and high <= low[0] * (1 + BRACKET):
            break
    if low is None:
        raise UsageError("no epsilon a bin fits the total", got=f"{mechanism.name} at epsilon={total}")
    return low[1]


def _next(factor: float, loss: int, target: int, low: float | None, high: float | None) -> float:
    """Return the next factor to try: by proportion where that stays inside the bracket, else its middle."""
    # a hair less, so that rounding losses up does not spoil it
    proportion = factor * 8 if loss == 0 else factor * (target / loss) * (1 - LOSS_FIT_TOLERANCE / 8)
    if low is None:
        return min(proportion, factor / 2) if high is not None and proportion >= high else proportion
    if high is None:
        return max(proportion, low * (1 + LOSS_FIT_TOLERANCE))
    return proportion if low < proportion < high else float(np.sqrt(low * high))


def _equal_noise(same: Fit) -> FloatArray:
    """Return the sensitivities at equal epsilons, relative to the largest; 0 only where nothing varies."""
    (own,) = same.event.sensitivity.values()
    largest = float(own.max(initial=0.0))
    if largest == 0:
        return np.ones_like(own)
    # an epsilon of 0 is none: a bin that cannot vary costs nothing, whatever it is given
    return np.maximum(own / largest, 2.0**-20)


@dataclass(frozen=True)
class Offer:
    """One mechanism for one statistic, at the better of its splits of epsilon among bins, or with all rho.

    ``error`` (shape (G,), statistic's unit) bounds E|estimate - statistic| over all values. ``idealised``:
    its noise has no exact sampler, so it is shown and never chosen. ``fit`` is None when the mechanism
    cannot do it; then ``unavailable`` says why and ``error`` is empty. ``tried`` is its error in simulated
    cities, None when it was not tried. ``unenforced`` names the theorem where what one vehicle moves is only
    claimed.
    """

    mechanism: str
    statistic: Statistic
    idealised: bool
    fit: Fit | None
    error: FloatArray
    unavailable: str | None = None
    tried: float | None = None
    unenforced: str | None = None

    @property
    def eligible(self) -> bool:
        """Whether the mechanism may be chosen: its noise has an exact sampler and it fits the total loss."""
        return self.fit is not None and not (self.idealised or self.fit.event.idealised)

    @property
    def median_error(self) -> float:
        """The median over bins of the worst-case expected error, in the statistic's unit.

        Infinite if unavailable.
        """
        return float(np.median(self.error)) if self.error.size else float("inf")

    @property
    def score(self) -> float:
        """The error by which mechanisms are compared, in the statistic's unit: in simulated cities if tried
        there.

        Else ``median_error``.
        """
        return self.median_error if self.tried is None else self.tried

    @property
    def worst_error(self) -> float:
        """The largest over bins of the worst-case expected error; infinite if unavailable."""
        return float(self.error.max()) if self.error.size else float("inf")


def offers(
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    mechanisms: Sequence[Mechanism],
    cities: SimulatedCities | None = None,
) -> tuple[Offer, ...]:
    """Return what each of ``mechanisms`` that can estimate ``statistic`` achieves at ``total``, in their
    order.

    Each spends the whole ``total`` on this statistic: no vehicle loses more. Of the two splits the one with
    the smaller ``score`` is taken (equal noise on a tie). With simulated ``cities`` errors are tried in them.
    Raises UsageError when there is no bin.
    """
    if counts.bins == 0:
        raise UsageError("there is no bin to release", todo="lower min_vehicles or widen area and period")
    return tuple(
        _offer(mechanism, counts, bound, statistic, total, cities)
        for mechanism in mechanisms
        if statistic in mechanism.statistics
    )


def _offer(
    mechanism: Mechanism,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    tries: SimulatedCities | None,
) -> Offer:
    best: Offer | None = None
    reason = ""
    rho = total.kind is LossKind.ZCDP
    for split in (None,) if rho else (Split.EQUAL_NOISE, Split.SAME_EPSILON):
        try:
            found = fit(mechanism, counts, bound, statistic, total, split)
            request = StatisticRequest(counts, bound, statistic, found.given)
            error = mechanism.expected_error(request)
            tried = None if tries is None else tries.error(mechanism, statistic, found.given)
        except UsageError as refusal:
            reason = str(refusal)
            continue
        claim = unenforced_theorems(mechanism, request)
        offer = Offer(mechanism.name, statistic, mechanism.idealised, found, error, None, tried, claim)
        if best is None or offer.score < best.score:
            best = offer
    if best is None:
        return Offer(mechanism.name, statistic, mechanism.idealised, None, np.empty(0), reason)
    return best


SCORE_TOLERANCE = 10 * LOSS_FIT_TOLERANCE
"""Scores are not known more closely than epsilons are fitted: what is nearer is a tie."""
SIMULATED_ERROR_TOLERANCE = 0.03
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
    cities: SimulatedCities | None = None,
    display_unit: SpeedUnit | None = None,
) -> Choice:
    """Return the mechanism with the least error for ``statistic`` at ``total``, and why, from public counts.

    Errors are those in the simulated ``cities``, else medians of worst-case expected errors. Without
    ``mechanisms`` all of the total's kind are compared, and those of ``tried_by_auto`` can be chosen. Only
    those with an exact sampler can be; a tie goes to the one listed first. Errors are worded in
    ``display_unit``. Raises UsageError when there is none, or no bin.
    """
    known = per_statistic_map.mechanisms_of(total.kind) if mechanisms is None else mechanisms
    found = offers(counts, bound, statistic, total, known, cities)
    tried = per_statistic_map.tried_by_auto(total.kind) if mechanisms is None else mechanisms
    free = {each.name for each in tried}
    eligible = [offer for offer in found if offer.mechanism in free]
    chosen = best_of(eligible)
    return Choice(statistic, found, chosen, _reason(found, chosen, bound, display_unit or bound.unit))


def best_of(found: Sequence[Offer]) -> Offer:
    """Return the first eligible mechanism whose score is within a tolerance of the least score.

    The relative tolerance is SIMULATED_ERROR_TOLERANCE for errors in simulated cities, else SCORE_TOLERANCE.
    Raises UsageError when none is eligible.
    """
    eligible = [offer for offer in found if offer.eligible]
    if not eligible:
        raise UsageError(
            "no mechanism can release this",
            got="; ".join(f"{o.mechanism}: {o.unavailable or 'no exact sampler'}" for o in found) or "none",
            expected="one with an exact sampler that fits the loss",
        )
    least = min(eligible, key=lambda offer: offer.score)
    same = SCORE_TOLERANCE if least.tried is None else SIMULATED_ERROR_TOLERANCE
    return next(offer for offer in eligible if offer.score <= least.score * (1 + same))


def constant_error(statistic: Statistic, bound: ContributionBound) -> float:
    """Return the worst error of a constant in the middle of the range: U/2 for a mean, U^2/8 for a
    variance.
    """
    return statistic.largest(bound.upper) / 2


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


def shares(request: Request) -> dict[Statistic, Loss]:
    """Return the part of the total loss that each statistic gets, rounded down to what can be charged.

    In epsilon, parts are in proportion to the statistic's largest value over its tolerance; in rho they are
    equal.
    """
    total, weight = request.loss, dict.fromkeys(request.tolerance, Fraction(1))
    if request.loss.kind is LossKind.PURE:
        max_value = {s: Fraction(s.largest(request.bound.upper)) for s in weight}
        weight = {s: max_value[s] / Fraction(t) for s, t in request.tolerance.items()}
    whole = sum(weight.values())
    return {s: type(total)(int(total.pico * each / whole)).chargeable for s, each in weight.items()}


def fit_mechanisms(
    counts: Counts, request: Request, cities: SimulatedCities | None
) -> tuple[dict[Statistic, per_statistic_map.StatisticMechanism], str]:
    """Return each statistic's mechanism with the epsilons or rho that it is given, and the reasons in words.

    Each statistic gets its part of the loss (``shares``). "auto" chooses among mechanisms with an exact
    sampler, by simulated ``cities`` where given. Raises UsageError for a mechanism that cannot estimate its
    statistic, has no exact sampler (unless ``allow_idealised``) or cannot meet its share.
    """
    bound, kind, part_of = request.bound, request.loss.kind, shares(request)
    parts: dict[Statistic, per_statistic_map.StatisticMechanism] = {}
    reasons = []
    for statistic in sorted(request.tolerance, key=list(Statistic).index):
        part, wanted = part_of[statistic], request.mechanism_of(statistic)
        if part.pico <= 0:
            raise per_statistic_map.too_small(request.loss)
        if wanted == AUTO:
            choice = choose(
                counts, bound, statistic, part, per_statistic_map.tried_by_auto(kind), cities=cities
            )
            offer, reason = choice.chosen, choice.reason
        else:
            # in epsilon what is tried decides between two splits
            tried_in = cities if kind is LossKind.PURE else None
            (offer,) = offers(
                counts, bound, statistic, part, [per_statistic_map.mechanism_named(wanted, kind)], tried_in
            )
            reason = f"{offer.mechanism} was asked for by name"
        if offer.fit is None:
            raise UsageError(
                f"{offer.mechanism} cannot release this", got=offer.unavailable, todo="choose another"
            )
        parts[statistic] = per_statistic_map.StatisticMechanism(offer.mechanism, offer.fit.given)
        reasons.append(f"{statistic.value.replace('_', ' ')}: {reason}")
    return parts, "; ".join(reasons)
