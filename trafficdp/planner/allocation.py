"""From a request and public counts to an Allocation: scales, losses, expected errors. Nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.clip_user.recipe import NAME as CLIP_USER
from trafficdp.mechanisms.clip_user.rung import SuppressionRung
from trafficdp.mechanisms.consistent.recipe import NAME as CONSISTENT
from trafficdp.mechanisms.consistent.rung import ConsistentRung
from trafficdp.mechanisms.laplace.baseline import NAME as BASELINE
from trafficdp.mechanisms.laplace.ladder import (
    BY_NAME,
    WITH_VARIANCES,
    LaplaceRung,
    Rung,
    floor_of_equal_scales,
)
from trafficdp.mechanisms.laplace.lattice import CHARGE_STEP
from trafficdp.mechanisms.mean_variance.block_recipe import NAME as MOMENT_BLOCKS
from trafficdp.mechanisms.recipe import PureRecipe, Recipe
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.planner.kept_bins import kept_bins
from trafficdp.planner.mechanism_allocation import AUTO, beats_laplace, fit_mechanisms
from trafficdp.planner.rungs import all_rungs
from trafficdp.planner.trial import Trial
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import PureDP

FloatArray = npt.NDArray[np.float64]


OTHER_NOISE = {
    "blocks": "block noise",
    "moments": "Laplace noise on sums of x and of x (U - x)",
    MOMENT_BLOCKS: "block noise on sums of x and of x (U - x)",
    CLIP_USER: "vehicles left out of bins, noise for the rest",
    CONSISTENT: "block noise, numbers made consistent with those of larger hexagons",
}
HAIR = 1e-3
"""Block noise is chosen when it gains more than this share over Laplace noise."""


@dataclass(frozen=True)
class Request:
    """What is asked for: a total epsilon and what shall be released with it.

    ``tolerance`` a statistic, in its unit. ``refuse_above`` is a share of U. ``rung`` names the
    accounting to execute; "best" takes the one with the smallest worst noise. ``mechanism`` names a
    mechanism of the registry a statistic, or "auto"; left out, it is "baseline": Laplace noise that prices
    all statistics jointly, by ``rung``. ``trial`` makes cities up to compare mechanisms in (without one
    they are compared by their worst expected errors). ``allow_idealised`` lets a named mechanism without an
    exact sampler through; "auto" never takes one.
    """

    epsilon: PureDP
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]
    min_vehicles: int
    refuse_above: float
    interval_level: float
    rung: str = "best"
    mechanism: Mapping[Statistic, str] = field(default_factory=dict)
    trial: Trial | None = None
    allow_idealised: bool = False

    def mechanism_of(self, statistic: Statistic) -> str:
        """Return what ``statistic`` is to be released by: a name of the registry, or "auto"."""
        return self.mechanism.get(statistic, BASELINE)

    @property
    def free_to_choose(self) -> bool:
        """Whether noise by ``rung`` may be executed: only then says what would pass by it what would pass."""
        return {self.mechanism_of(statistic) for statistic in self.tolerance} <= {BASELINE, AUTO}


@dataclass(frozen=True)
class Allocation:
    """What will be executed, and what it beat.

    ``keep`` (shape (all bins,)) marks the bins that are released; ``occupancy`` is theirs alone.
    ``recipe`` is what will be executed, ``event`` its promise with every user's own loss, ``error`` (a
    statistic, shape (G,)) what the refusal looks at. ``chosen`` and ``rungs`` are noise under every
    accounting, ``reason`` says in one sentence why the recipe is what it is.
    """

    request: Request
    keep: npt.NDArray[np.bool_]
    occupancy: Occupancy
    chosen: Rung
    rungs: tuple[Rung, ...]
    recipe: Recipe
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
        return floor_of_equal_scales(self.occupancy, self.request.bound, float(self.request.epsilon.epsilon))

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every released bin, a statistic."""
        return dict(self.error)


def allocate(occupancy: Occupancy, request: Request) -> Allocation:
    """Return the Allocation for ``request``: bins by public counts, the best rung, exact losses.

    The loss that is charged never exceeds the epsilon asked for.
    Raises UsageError when no bin has ``min_vehicles`` vehicles, or no noise fits the epsilon.
    """
    keep, kept = kept_bins(occupancy, request.min_vehicles)
    rungs = rungs_for(kept, request)
    chosen, recipe = _executed(rungs, kept, request)
    event = recipe.event(kept, request.bound)
    error = chosen.errors(float(request.epsilon.epsilon), request.bound)
    plain = Allocation(request, keep, kept, chosen, rungs, recipe, event, error, _why(chosen, request))
    wanted = {statistic: request.mechanism_of(statistic) for statistic in request.tolerance}
    return plain if set(wanted.values()) == {BASELINE} else _with_mechanisms(plain, wanted)


def _with_mechanisms(plain: Allocation, wanted: Mapping[Statistic, str]) -> Allocation:
    """Return ``plain`` with the mechanisms that are ``wanted``, or as it is where "auto" prefers it."""
    request, kept = plain.request, plain.occupancy
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
    return replace(plain, recipe=fitted.recipe, event=fitted.event, error=fitted.error, reason=reason)


def _executed(rungs: tuple[Rung, ...], kept: Occupancy, request: Request) -> tuple[Rung, PureRecipe]:
    """Return the rung that is chosen and its noise; where "best" cannot be drawn, the best that can."""
    # charges are whole steps: what is left over of the last one cannot be used
    target = PureDP(request.epsilon.pico // CHARGE_STEP * CHARGE_STEP)
    chosen = choose_rung(rungs, request)
    try:
        return chosen, chosen.recipe(kept, request.bound, target)
    except UsageError:
        if request.rung != "best" or isinstance(chosen, LaplaceRung):
            raise
    chosen = choose_rung(tuple(rung for rung in rungs if isinstance(rung, LaplaceRung)), request)
    return chosen, chosen.recipe(kept, request.bound, target)


def rungs_for(kept: Occupancy, request: Request) -> tuple[Rung, ...]:
    """Return every rung, and the one that ``request`` names where it is not one that is always looked at."""
    rungs = all_rungs(kept, request.bound, request.tolerance)
    if request.rung == CLIP_USER:
        return (*rungs, SuppressionRung(kept, request.bound, request.tolerance))
    if request.rung == CONSISTENT:
        return (*rungs, ConsistentRung(kept, request.bound, request.tolerance))
    return rungs


def choose_rung(rungs: tuple[Rung, ...], request: Request) -> Rung:
    """Return the rung that ``request`` names, or the one with the smallest worst noise ("best").

    The choice is the same at every epsilon. Raises UsageError for an unknown name.
    """
    named = {rung.name: rung for rung in rungs}
    if request.rung in named:
        return named[request.rung]
    if request.rung in WITH_VARIANCES:
        raise UsageError(
            f"the rung {request.rung} releases mean and variance together",
            got=", ".join(statistic.value for statistic in request.tolerance),
            expected="mean and variance" + (" alone" if request.rung == MOMENT_BLOCKS else ""),
            todo='release both, or choose rung = "best"',
        )
    if request.rung != "best":
        raise UsageError("unknown rung", got=f"rung={request.rung!r}", expected=", ".join(("best", *BY_NAME)))
    epsilon = float(request.epsilon.epsilon)

    def worst(rung: Rung) -> tuple[float, bool]:
        # a hair's difference is no reason to leave plain Laplace noise
        elaborate = not isinstance(rung, LaplaceRung)
        scale = rung.worst_relative_scale(epsilon, request.tolerance)
        return scale * (1 + HAIR) if elaborate else scale, elaborate

    # on a tie the later rung, whose accounting is sharper
    return min(reversed(rungs), key=worst)


def _why(chosen: Rung, request: Request) -> str:
    what = OTHER_NOISE.get(chosen.name, f"baseline, accounting {chosen.name}")
    if isinstance(chosen, ConsistentRung):
        return f"{what}: it was asked for by name; {chosen.in_words()}"
    if request.rung != "best":
        return f"{what}: it was asked for by name"
    return f"{what}: of all noise the one whose worst expected size is least, by public counts"
