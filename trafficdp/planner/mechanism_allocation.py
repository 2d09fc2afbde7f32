"""Named mechanisms, or ``auto``, one a statistic: what every statistic and bin is given, by counts alone.

An epsilon is shared out over statistics in proportion to range / tolerance: noise grows with the range of a
statistic (U, U^2/4), so that errors relative to their tolerances come out alike. Of rho all get the same.
Within a statistic ``separate.fit`` gives the bins their epsilon; what is left, because the vehicle that loses
most differs between statistics, is then handed out in proportion (``CalibratedSeparately.calibrate``).
"""

from __future__ import annotations

from fractions import Fraction

from trafficdp.errors import UsageError
from trafficdp.mechanisms.names import AUTO
from trafficdp.mechanisms.separate.calibrated import Part, mechanism_named, too_small, tried_by_auto
from trafficdp.mechanisms.simulated.trial import SimulatedCities
from trafficdp.model import Counts, Statistic
from trafficdp.planner.choose import choose
from trafficdp.planner.offer import offers
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import Loss, LossKind


def shares(request: Request) -> dict[Statistic, Loss]:
    """Return the part of the total of every statistic, rounded down: see the module."""
    total, weight = request.loss, dict.fromkeys(request.tolerance, Fraction(1))
    if request.kind is LossKind.PURE:
        reach = {s: Fraction(s.largest(request.bound.upper)) for s in weight}
        weight = {s: reach[s] / Fraction(t) for s, t in request.tolerance.items()}
    whole = sum(weight.values())
    return {s: type(total)(int(total.pico * each / whole)).chargeable for s, each in weight.items()}


def fit_mechanisms(
    counts: Counts, request: Request, tries: SimulatedCities | None
) -> tuple[dict[Statistic, Part], str]:
    """Return by what the statistics of ``request`` are released, at its share of the loss each, and why.

    "auto" chooses among those with an exact sampler. Raises UsageError
    for a mechanism that cannot estimate its statistic, has no exact sampler (unless ``allow_idealised``)
    or cannot meet its share.
    """
    bound, kind, part_of = request.bound, request.kind, shares(request)
    parts: dict[Statistic, Part] = {}
    reasons = []
    for statistic in sorted(request.tolerance, key=list(Statistic).index):
        part, wanted = part_of[statistic], request.mechanism_of(statistic)
        if part.pico <= 0:
            raise too_small(request.loss)
        if wanted == AUTO:
            choice = choose(
                counts,
                bound,
                statistic,
                part,
                tried_by_auto(kind),
                tries=tries,
            )
            offer, reason = choice.chosen, choice.reason
        else:
            # in epsilon what is tried decides between two splits
            cities = tries if kind is LossKind.PURE else None
            (offer,) = offers(counts, bound, statistic, part, [mechanism_named(wanted, kind)], cities)
            reason = f"{offer.mechanism} was asked for by name"
        if offer.fit is None:
            raise UsageError(
                f"{offer.mechanism} cannot release this", got=offer.unavailable, todo="choose another"
            )
        parts[statistic] = Part(offer.mechanism, offer.fit.given)
        reasons.append(f"{statistic.value.replace('_', ' ')}: {reason}")
    return parts, "; ".join(reasons)
