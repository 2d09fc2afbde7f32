"""From a request and public counts to an Allocation: scales, losses, expected errors. Nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    Accounting,
    LaplaceAccounting,
    floor_of_equal_scales,
)
from trafficdp.mechanisms.simulated.trial import SimulatedCities
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.planner.accountings import all_accountings
from trafficdp.planner.kept_bins import kept_bins
from trafficdp.planner.mechanism_allocation import beats_laplace, fit_mechanisms
from trafficdp.planner.request import BASELINE, Request
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import CHARGE_STEP, Loss, PureDP
from trafficdp.privacy.loss_kind import LossKind

FloatArray = npt.NDArray[np.float64]


OTHER_NOISE = {
    "blocks": "block noise",
    CLIP_USER: "vehicles left out of bins, noise for the rest",
    CONSISTENT: "block noise, numbers made consistent with those of larger hexagons",
}
HAIR = 1e-3
"""Block noise is chosen when it gains more than this share over Laplace noise."""


@dataclass(frozen=True)
class Allocation:
    """What will be executed, and what it beat.

    ``keep`` (shape (all bins,)) marks the bins that are released; ``counts`` is theirs alone.
    ``calibrated`` is what will be executed, ``event`` its promise with every user's own loss, ``error`` (a
    statistic, shape (G,)) what the refusal looks at, ``reason`` says in one sentence why the calibrated
    mechanism is what it is. In epsilon ``best`` and ``accountings`` are noise under every accounting.
    """

    request: Request
    keep: npt.NDArray[np.bool_]
    counts: Counts
    calibrated: Calibrated
    event: PrivacyEvent
    error: Mapping[Statistic, FloatArray]
    reason: str
    accountings: tuple[Accounting, ...] = ()
    best: Accounting | None = None

    @property
    def loss(self) -> Loss:
        """The guarantee: the largest loss of any vehicle, at most the one asked for."""
        return self.event.loss

    @property
    def chosen(self) -> Accounting:
        """The best accounting, or the one that was asked for; raise UsageError where losses are rho."""
        if self.best is None:
            raise UsageError("accountings are about pure epsilon", got="losses in rho")
        return self.best

    @property
    def floor(self) -> float:
        """G U / (L epsilon), below which no equal scales of means go."""
        return floor_of_equal_scales(self.counts, self.request.bound, float(self.request.loss.exact))

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every released bin, a statistic."""
        return dict(self.error)


def allocate(counts: Counts, request: Request) -> Allocation:
    """Return the Allocation for ``request``: bins by public counts, the best noise, exact losses.

    The loss that is charged never exceeds the one asked for.
    Raises UsageError when no bin has ``min_vehicles`` vehicles, or no noise fits the loss.
    """
    keep, kept = kept_bins(counts, request.min_vehicles)
    plain = _by_accounting(keep, kept, request) if request.kind is LossKind.PURE else None
    if plain and {request.mechanism_of(statistic) for statistic in request.tolerance} == {BASELINE}:
        return plain
    tries = SimulatedCities(kept, request.bound) if request.simulate else None
    fitted = fit_mechanisms(kept, request, tries)
    made = Allocation(request, keep, kept, fitted.calibrated, fitted.event, fitted.error, fitted.reason)
    if plain is None:
        return made
    made = replace(made, accountings=plain.accountings, best=plain.best)
    if not request.free_to_choose:
        return made
    scales = plain.chosen.scales(float(request.loss.exact))
    better, comparison = beats_laplace(fitted, kept, request, scales, plain.error, tries)
    taken = made if better else plain
    return replace(taken, reason=f"auto: {taken.reason}; {comparison}")


def _by_accounting(keep: npt.NDArray[np.bool_], kept: Counts, request: Request) -> Allocation:
    """Noise that prices all statistics jointly, by the best accounting or the one that is named."""
    accountings = accountings_for(kept, request)
    chosen, calibrated = _executed(accountings, kept, request)
    event = calibrated.event(kept, request.bound)
    error = chosen.errors(float(request.loss.exact), request.bound)
    why = _why(chosen, request)
    return Allocation(request, keep, kept, calibrated, event, error, why, accountings, chosen)


def _executed(
    accountings: tuple[Accounting, ...], kept: Counts, request: Request
) -> tuple[Accounting, CalibratedPure]:
    """Return the accounting that is chosen and its noise; where "best" cannot be drawn, the best that can."""
    # charges are whole steps: what is left over of the last one cannot be used
    target = PureDP(request.loss.pico // CHARGE_STEP * CHARGE_STEP)
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


def accountings_for(kept: Counts, request: Request, *, thorough: bool = True) -> tuple[Accounting, ...]:
    """Return every accounting, and the one that ``request`` names where it is not always looked at.

    Not ``thorough``: blocks as for maps that are only looked at.
    """
    accountings = all_accountings(kept, request.bound, request.tolerance, thorough=thorough)
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
    if request.accounting == "blocks":
        raise UsageError(
            "the accounting blocks releases means and vehicle means, or mean and variance alone",
            got=", ".join(statistic.value for statistic in request.tolerance),
            todo='release these, or choose accounting = "best"',
        )
    if request.accounting != "best":
        raise UsageError(
            "unknown accounting",
            got=f"accounting={request.accounting!r}",
            expected=", ".join(("best", *BY_NAME)),
        )
    epsilon = float(request.loss.exact)

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
