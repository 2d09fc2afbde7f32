"""Named mechanisms, or ``auto``, calibrated: the epsilon of every statistic and bin, by counts alone.

The total is shared out over statistics in proportion to range / tolerance: noise grows with the range of a
statistic (U, U^2/4), so that errors relative to their tolerances come out alike. Within a statistic
``planner.fit`` gives the bins their epsilon; what is left, because the vehicle that loses most differs
between statistics, is then handed out in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.laplace.noise import LaplaceNoise
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.registry import PURE_MECHANISMS, pure_mechanism_named
from trafficdp.mechanisms.separate.calibrated import LARGEST_EPSILON, CalibratedSeparately, Part
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.planner.choose import choose, median_noisy
from trafficdp.planner.offer import offers
from trafficdp.planner.trial import Tries
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import CHARGE_STEP, PureDP

FloatArray = npt.NDArray[np.float64]
AUTO = "auto"
ATTEMPTS = 8


@dataclass(frozen=True)
class Fitted:
    """Calibrated mechanisms, their promise, worst expected errors and errors in simulated cities, and why."""

    calibrated: CalibratedSeparately
    event: PrivacyEvent
    error: Mapping[Statistic, FloatArray]
    tried: Mapping[Statistic, float]
    reason: str


def shares(
    total: PureDP, tolerance: Mapping[Statistic, float], bound: ContributionBound
) -> dict[Statistic, PureDP]:
    """Return the part of ``total`` of every statistic, in proportion to range / tolerance, rounded down."""
    weight = {s: Fraction(s.largest(bound.upper)) / Fraction(t) for s, t in tolerance.items()}
    whole = sum(weight.values())
    return {
        s: PureDP(int(total.pico * each / whole) // CHARGE_STEP * CHARGE_STEP) for s, each in weight.items()
    }


def fit_mechanisms(
    counts: Counts,
    bound: ContributionBound,
    total: PureDP,
    tolerance: Mapping[Statistic, float],
    wanted: Mapping[Statistic, str],
    *,
    tries: Tries | None,
    refuse_above: float,
    allow_idealised: bool = False,
) -> Fitted:
    """Return what releases the statistics of ``tolerance`` by the mechanisms that ``wanted`` names.

    No vehicle loses more than ``total``. "auto" chooses among those with an exact sampler. Raises UsageError
    for a mechanism that cannot estimate its statistic, has no exact sampler (unless ``allow_idealised``)
    or cannot meet its epsilon.
    """
    part_of = shares(total, tolerance, bound)
    parts: dict[Statistic, Part] = {}
    tried: dict[Statistic, float] = {}
    reasons = []
    for statistic in sorted(tolerance, key=list(Statistic).index):
        if part_of[statistic].pico <= 0:
            raise UsageError("no noise fits the epsilon", got=f"epsilon={total}", todo="ask for a larger one")
        candidates = _candidates(wanted[statistic], statistic, allow_idealised)
        if wanted[statistic] == AUTO:
            choice = choose(
                counts,
                bound,
                statistic,
                part_of[statistic],
                candidates,
                tries=tries,
                refuse_above=refuse_above,
            )
            offer, reason = choice.chosen, choice.reason
        else:
            (offer,) = offers(counts, bound, statistic, part_of[statistic], candidates, tries)
            reason = f"{offer.mechanism} was asked for by name"
        if offer.fit is None:
            raise UsageError(
                f"{offer.mechanism} cannot release this", got=offer.unavailable, todo="choose another"
            )
        parts[statistic] = Part(offer.mechanism, offer.fit.epsilon)
        tried[statistic] = offer.score
        reasons.append(f"{statistic.value.replace('_', ' ')}: {reason}")
    calibrated, event = _used_up(CalibratedSeparately(parts), counts, bound, total)
    error = {s: calibrated.expected_error(s, counts, bound) for s in calibrated.statistics}
    return Fitted(calibrated, event, error, tried, "; ".join(reasons))


def beats_laplace(
    fitted: Fitted,
    counts: Counts,
    bound: ContributionBound,
    tolerance: Mapping[Statistic, float],
    scales: Mapping[Statistic, FloatArray],
    error: Mapping[Statistic, FloatArray],
    *,
    tries: Tries | None,
    refuse_above: float,
) -> tuple[bool, str]:
    """Return whether ``fitted`` is better than joint noise of the average size ``scales``, and why.

    A map whose worst expected ``error`` says enough beats one whose does not; then the largest error in
    simulated cities relative to tolerances decides, and on a tie the joint noise, which is simpler.
    Block noise is tried as Laplace noise of its average size.
    """
    laplace = {}
    for statistic in tolerance:
        at_one = LaplaceNoise.of_sensitivity(counts, bound, {statistic: 1.0}).sizes()[statistic]
        scale = scales[statistic]
        inverse = np.divide(at_one, scale, out=np.full(len(scale), LARGEST_EPSILON), where=scale > 0)
        spent = np.clip(inverse, 1e-12, LARGEST_EPSILON)
        laplace[statistic] = (
            median_noisy(error[statistic]) if tries is None else tries.error(Baseline(), statistic, spent)
        )
    first = next(iter(s for s in _JUDGED if s in tolerance))
    enough = refuse_above * first.largest(bound.upper)
    says = [median_noisy(each[first]) <= enough for each in (fitted.error, error)]
    ours, theirs = (max(each[s] / tolerance[s] for s in tolerance) for each in (fitted.tried, laplace))
    better = says[0] if says[0] != says[1] else ours < theirs
    numbers = ", ".join(
        f"{s.value.replace('_', ' ')} {fitted.tried[s]:.3g} against {laplace[s]:.3g}" for s in tolerance
    )
    names = " + ".join(dict.fromkeys(part.mechanism for part in fitted.calibrated.parts.values()))
    text = (
        f"error in simulated cities of {names} at its share of epsilon against noise that prices all "
        f"statistics jointly: {numbers}"
    )
    if says[0] != says[1]:
        text += f"; only {'the former' if says[0] else 'the latter'} says enough at the worst values"
    return better, text


_JUDGED = (Statistic.MEAN, Statistic.VEHICLE_MEAN, Statistic.VARIANCE)
"""The first of them that is released is the one the refusal looks at."""


def require_releasable(name: str, statistic: Statistic, *, allow_idealised: bool) -> None:
    """Raise UsageError unless the mechanism ``name`` can estimate ``statistic`` with exact noise."""
    if name == AUTO:
        return
    mechanism = pure_mechanism_named(name)
    if statistic not in mechanism.statistics:
        others = ", ".join(each.name for each in PURE_MECHANISMS if statistic in each.statistics)
        raise UsageError(
            f"{name} cannot estimate the {statistic.value.replace('_', ' ')}",
            expected=f"{AUTO}, {others}",
            todo="name another mechanism for it, or leave the statistic out",
        )
    if mechanism.idealised and not allow_idealised:
        raise UsageError(
            f"{name} has no exact sampler: its noise is idealised",
            todo=f"release it with `trafficdp release --allow-idealised-noise {name}`, which the manifest "
            "records, or choose another mechanism",
        )


def _candidates(wanted: str, statistic: Statistic, allow_idealised: bool) -> Sequence[Mechanism]:
    require_releasable(wanted, statistic, allow_idealised=allow_idealised)
    if wanted == AUTO:
        return [each for each in PURE_MECHANISMS if not each.idealised]
    return [pure_mechanism_named(wanted)]


def _used_up(
    calibrated: CalibratedSeparately, counts: Counts, bound: ContributionBound, total: PureDP
) -> tuple[CalibratedSeparately, PrivacyEvent]:
    """Return it with all epsilons raised together as far as the total allows, and its event."""
    target = total.pico // CHARGE_STEP * CHARGE_STEP
    best, promise = calibrated, calibrated.event(counts, bound)
    current, loss = calibrated, promise.loss.pico
    for _ in range(ATTEMPTS):
        if loss == 0 or loss == target:
            break
        factor = target / loss * (1 - 1e-13)
        current = CalibratedSeparately(
            {
                s: replace(part, epsilon=np.minimum(part.epsilon * factor, LARGEST_EPSILON))
                for s, part in current.parts.items()
            }
        )
        event = current.event(counts, bound)
        loss = event.loss.pico
        if promise.loss.pico < loss <= target:
            best, promise = current, event
    return best, promise
