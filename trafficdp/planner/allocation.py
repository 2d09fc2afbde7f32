"""From a request and public counts to an Allocation: scales, losses, expected errors. Nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import Calibrated, CalibratedPure
from trafficdp.mechanisms.clip_user.accounting import SuppressionAccounting
from trafficdp.mechanisms.clip_user.calibrated import NAME as CLIP_USER
from trafficdp.mechanisms.consistent.accounting import ConsistentAccounting
from trafficdp.mechanisms.consistent.calibrated import NAME as CONSISTENT
from trafficdp.mechanisms.laplace.accountings import (
    BY_NAME,
    WITH_VARIANCES,
    Accounting,
    LaplaceAccounting,
    floor_of_equal_scales,
)
from trafficdp.mechanisms.laplace.baseline import NAME as BASELINE
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.planner.accountings import all_accountings
from trafficdp.planner.kept_bins import kept_bins
from trafficdp.planner.mechanism_allocation import AUTO, beats_laplace, fit_mechanisms
from trafficdp.planner.trial import Trial
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import CHARGE_STEP, PureDP

FloatArray = npt.NDArray[np.float64]


OTHER_NOISE = {
    "blocks": "block noise",
    "moments": "Laplace noise on sums of x and of x (U - x)",
    CLIP_USER: "vehicles left out of bins, noise for the rest",
    CONSISTENT: "block noise, numbers made consistent with those of larger hexagons",
}
HAIR = 1e-3
"""Block noise is chosen when it gains more than this share over Laplace noise."""


@dataclass(frozen=True)
class Request:
    """What is asked for: a total epsilon and what shall be released with it.

    ``tolerance`` a statistic, in its unit. ``refuse_above`` is a share of U. ``accounting`` names the
    accounting to execute; "best" takes the one with the smallest worst noise. ``mechanism`` names a
    mechanism of the registry a statistic, or "auto"; left out, it is "baseline": Laplace noise that prices
    all statistics jointly, by ``accounting``. ``trial`` simulates cities to compare mechanisms in (without
    one they are compared by their worst expected errors). ``allow_idealised`` lets a named mechanism without
    an exact sampler through; "auto" never takes one.
    """

    epsilon: PureDP
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]
    min_vehicles: int
    refuse_above: float
    interval_level: float
    accounting: str = "best"
    mechanism: Mapping[Statistic, str] = field(default_factory=dict)
    trial: Trial | None = None
    allow_idealised: bool = False

    def mechanism_of(self, statistic: Statistic) -> str:
        """Return what ``statistic`` is to be released by: a name of the registry, or "auto"."""
        return self.mechanism.get(statistic, BASELINE)

    @property
    def free_to_choose(self) -> bool:
        """Whether noise by ``accounting`` may be executed: only then what passes by it would pass."""
        return {self.mechanism_of(statistic) for statistic in self.tolerance} <= {BASELINE, AUTO}


@dataclass(frozen=True)
class Allocation:
    """What will be executed, and what it beat.

    ``keep`` (shape (all bins,)) marks the bins that are released; ``counts`` is theirs alone.
    ``calibrated`` is what will be executed, ``event`` its promise with every user's own loss, ``error`` (a
    statistic, shape (G,)) what the refusal looks at. ``chosen`` and ``accountings`` are noise under every
    accounting, ``reason`` says in one sentence why the calibrated mechanism is what it is.
    """

    request: Request
    keep: npt.NDArray[np.bool_]
    counts: Counts
    chosen: Accounting
    accountings: tuple[Accounting, ...]
    calibrated: Calibrated
    event: PrivacyEvent
    error: Mapping[Statistic, FloatArray]
    reason: str

    @property
    def loss(self) -> PureDP:
        """The guarantee: the largest loss of any vehicle, at most the epsilon asked for."""
        return self.event.loss

    @property
    def floor(self) -> float:
        """G U / (L epsilon), below which no equal scales of means go."""
        return floor_of_equal_scales(self.counts, self.request.bound, float(self.request.epsilon.epsilon))

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every released bin, a statistic."""
        return dict(self.error)


def allocate(counts: Counts, request: Request) -> Allocation:
    """Return the Allocation for ``request``: bins by public counts, the best accounting, exact losses.

    The loss that is charged never exceeds the epsilon asked for.
    Raises UsageError when no bin has ``min_vehicles`` vehicles, or no noise fits the epsilon.
    """
    keep, kept = kept_bins(counts, request.min_vehicles)
    accountings = accountings_for(kept, request)
    chosen, calibrated = _executed(accountings, kept, request)
    event = calibrated.event(kept, request.bound)
    error = chosen.errors(float(request.epsilon.epsilon), request.bound)
    plain = Allocation(
        request, keep, kept, chosen, accountings, calibrated, event, error, _why(chosen, request)
    )
    wanted = {statistic: request.mechanism_of(statistic) for statistic in request.tolerance}
    return plain if set(wanted.values()) == {BASELINE} else _with_mechanisms(plain, wanted)


def _with_mechanisms(plain: Allocation, wanted: Mapping[Statistic, str]) -> Allocation:
    """Return ``plain`` with the mechanisms that are ``wanted``, or as it is where "auto" prefers it."""
    request, kept = plain.request, plain.counts
    tries = None if request.trial is None else request.trial(kept, request.bound)
    fitted = fit_mechanisms(
        kept,
        request.bound,
        request.epsilon,
        request.tolerance,
        wanted,
        tries=tries,
        refuse_above=request.refuse_above,
        allow_idealised=request.allow_idealised,
    )
    reason = fitted.reason
    if request.free_to_choose:
        scales = plain.chosen.scales(float(request.epsilon.epsilon))
        better, comparison = beats_laplace(
            fitted,
            kept,
            request.bound,
            request.tolerance,
            scales,
            plain.error,
            tries=tries,
            refuse_above=request.refuse_above,
        )
        if not better:
            return replace(plain, reason=f"auto: {plain.reason}; {comparison}")
        reason = f"auto: {reason}; {comparison}"
    return replace(plain, calibrated=fitted.calibrated, event=fitted.event, error=fitted.error, reason=reason)


def _executed(
    accountings: tuple[Accounting, ...], kept: Counts, request: Request
) -> tuple[Accounting, CalibratedPure]:
    """Return the accounting that is chosen and its noise; where "best" cannot be drawn, the best that can."""
    # charges are whole steps: what is left over of the last one cannot be used
    target = PureDP(request.epsilon.pico // CHARGE_STEP * CHARGE_STEP)
    chosen = choose_accounting(accountings, request)
    try:
        return chosen, chosen.calibrate(kept, request.bound, target)
    except UsageError:
        if request.accounting != "best" or isinstance(chosen, LaplaceAccounting):
            raise
    chosen = choose_accounting(
        tuple(accounting for accounting in accountings if isinstance(accounting, LaplaceAccounting)), request
    )
    return chosen, chosen.calibrate(kept, request.bound, target)


def accountings_for(kept: Counts, request: Request) -> tuple[Accounting, ...]:
    """Return every accounting, and the one that ``request`` names where it is not always looked at."""
    accountings = all_accountings(kept, request.bound, request.tolerance)
    if request.accounting == CLIP_USER:
        return (*accountings, SuppressionAccounting(kept, request.bound, request.tolerance))
    if request.accounting == CONSISTENT:
        return (*accountings, ConsistentAccounting(kept, request.bound, request.tolerance))
    return accountings


def choose_accounting(accountings: tuple[Accounting, ...], request: Request) -> Accounting:
    """Return the accounting that ``request`` names, or the one with the smallest worst noise ("best").

    The choice is the same at every epsilon. Raises UsageError for an unknown name.
    """
    named = {accounting.name: accounting for accounting in accountings}
    if request.accounting in named:
        return named[request.accounting]
    released = {"blocks": "means and vehicle means, or mean and variance alone"}
    released |= dict.fromkeys(WITH_VARIANCES, "mean and variance together")
    if request.accounting in released:
        raise UsageError(
            f"the accounting {request.accounting} releases {released[request.accounting]}",
            got=", ".join(statistic.value for statistic in request.tolerance),
            todo='release these, or choose accounting = "best"',
        )
    if request.accounting != "best":
        raise UsageError(
            "unknown accounting",
            got=f"accounting={request.accounting!r}",
            expected=", ".join(("best", *BY_NAME)),
        )
    epsilon = float(request.epsilon.epsilon)

    def worst(accounting: Accounting) -> tuple[float, bool]:
        # a hair's difference is no reason to leave plain Laplace noise
        elaborate = not isinstance(accounting, LaplaceAccounting)
        scale = accounting.worst_relative_scale(epsilon, request.tolerance)
        return scale * (1 + HAIR) if elaborate else scale, elaborate

    # on a tie the later accounting, whose accounting is sharper
    return min(reversed(accountings), key=worst)


def _why(chosen: Accounting, request: Request) -> str:
    what = OTHER_NOISE.get(chosen.name, f"baseline, accounting {chosen.name}")
    if isinstance(chosen, ConsistentAccounting):
        return f"{what}: it was asked for by name; {chosen.in_words()}"
    if request.accounting != "best":
        return f"{what}: it was asked for by name"
    return f"{what}: of all noise the one whose worst expected size is least, by public counts"
