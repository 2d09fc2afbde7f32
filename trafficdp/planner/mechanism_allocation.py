"""Named mechanisms, or ``auto``, calibrated: what every statistic and bin is given, by counts alone.

An epsilon is shared out over statistics in proportion to range / tolerance: noise grows with the range of a
statistic (U, U^2/4), so that errors relative to their tolerances come out alike. Of rho all get the same.
Within a statistic ``planner.fit`` gives the bins their epsilon; what is left, because the vehicle that loses
most differs between statistics, is then handed out in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import cast

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import Calibrated
from trafficdp.mechanisms.mechanism import RANGE
from trafficdp.mechanisms.names import AUTO
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately, Part
from trafficdp.mechanisms.separate.listed import mechanism_named, tried_by_auto
from trafficdp.mechanisms.simulated.trial import SimulatedCities
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.planner.choose import choose
from trafficdp.planner.offer import offers
from trafficdp.planner.request import Request
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import PICO, ZCDP, Loss
from trafficdp.privacy.loss_kind import LossKind

FloatArray = npt.NDArray[np.float64]
ATTEMPTS = 8
LARGEST_EPSILON = RANGE[LossKind.PURE][1]
UNSPENT = 10**9
"""One part in so many of a rho may be left by rounding."""
LARGEST_PART = int(RANGE[LossKind.ZCDP][1] * PICO)


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
) -> tuple[Mapping[Statistic, str], Calibrated, PrivacyEvent, str]:
    """Return by what the statistics of ``request`` are released, calibrated, its promise, and why.

    No vehicle loses more than its total. "auto" chooses among those with an exact sampler. Raises UsageError
    for a mechanism that cannot estimate its statistic, has no exact sampler (unless ``allow_idealised``)
    or cannot meet its share.
    """
    bound, kind, part_of = request.bound, request.kind, shares(request)
    names: dict[Statistic, str] = {}
    given: dict[Statistic, FloatArray] = {}
    reasons = []
    for statistic in sorted(request.tolerance, key=list(Statistic).index):
        part, wanted = part_of[statistic], request.mechanism_of(statistic)
        if part.pico <= 0:
            raise _too_small(request.loss)
        if wanted == AUTO:
            choice = choose(
                counts,
                bound,
                statistic,
                part,
                tried_by_auto(kind),
                tries=tries,
                refuse_above=request.refuse_above,
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
        names[statistic], given[statistic] = offer.mechanism, offer.fit.given
        reasons.append(f"{statistic.value.replace('_', ' ')}: {reason}")
    calibrated, event = _used_up(names, given, counts, request)
    return names, calibrated, event, "; ".join(reasons)


def _used_up(
    names: Mapping[Statistic, str], given: Mapping[Statistic, FloatArray], counts: Counts, request: Request
) -> tuple[Calibrated, PrivacyEvent]:
    """Return what is ``given``, all raised together as far as the total allows, calibrated; and its event.

    Losses of rho are in proportion to what is given but for rounding, so that one in UNSPENT may be left.
    """
    kind, target = request.kind, request.loss.chargeable.pico
    enough = target if kind is LossKind.PURE else target - target // UNSPENT
    best: tuple[Calibrated, PrivacyEvent] | None = None
    for _ in range(ATTEMPTS + 1):
        calibrated = CalibratedSeparately({s: Part(name, given[s]) for s, name in names.items()}, kind)
        event = calibrated.event(counts, request.bound)
        loss = event.loss.pico
        if loss <= target and (best is None or best[1].loss.pico < loss):
            best = calibrated, event
        if loss == 0 or enough <= loss <= target:
            break
        given = {statistic: _times(each, target, loss, kind) for statistic, each in given.items()}
    if best is None:
        raise _too_small(request.loss)
    return best


def _times(given: FloatArray, target: int, loss: int, kind: LossKind) -> FloatArray:
    """``given`` times target / loss, within what can be given; rho a whole number of 10^-12."""
    if kind is LossKind.PURE:
        return np.minimum(given * (target / loss * (1 - 1e-13)), LARGEST_EPSILON)
    raised = ZCDP(min(ZCDP.of(float(given)).pico * target // loss, LARGEST_PART))
    return cast("FloatArray", np.float64(raised.number))


def _too_small(total: Loss) -> UsageError:
    quantity = total.kind.quantity
    return UsageError(f"no noise fits the {quantity}", got=f"{quantity}={total}", todo="ask for a larger one")
