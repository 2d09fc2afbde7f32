"""From a request and public counts to an Allocation: scales, losses, expected errors. Nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.lattice import CHARGE_STEP, to_lattice
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.planner.ladder import Rung, floor_of_equal_scales, ladder
from trafficdp.planner.lattice_recipe import LatticeRecipe
from trafficdp.planner.recipe import Recipe
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import PICO, PureDP

FloatArray = npt.NDArray[np.float64]


HEADROOM = 1e-10
"""Share of epsilon kept free for rounding losses up."""


@dataclass(frozen=True)
class Request:
    """What is asked for: a total epsilon and what shall be released with it.

    ``tolerance`` a statistic, in its unit. ``refuse_above`` is a share of U. ``rung`` names the
    accounting to execute; "best" takes the one with the smallest worst noise.
    """

    epsilon: PureDP
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]
    min_vehicles: int
    refuse_above: float
    interval_level: float
    rung: str = "best"


@dataclass(frozen=True)
class Allocation:
    """What will be executed, and what it beat.

    ``keep`` (shape (all bins,)) marks the bins that are released; ``occupancy`` is theirs alone.
    ``recipe`` is what will be executed, ``event`` its promise with every user's own loss, ``error`` (a
    statistic, shape (G,)) what the refusal looks at. ``chosen`` and ``rungs`` are Laplace noise under
    every accounting, ``reason`` says in one sentence why the recipe is what it is.
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

    Scales are first those of the rung; while the exact, rounded-up loss exceeds the request they grow by
    the excess, so that the loss that is charged never exceeds the epsilon asked for.
    Raises UsageError when no bin has ``min_vehicles`` vehicles.
    """
    keep = occupancy.users_per_bin >= request.min_vehicles
    kept = occupancy.select(keep)
    if kept.bins == 0:
        raise UsageError(
            "no bin can be released",
            got=f"{occupancy.bins} bins, none with {request.min_vehicles} vehicles",
            expected=f"at least one bin with min_vehicles={request.min_vehicles}",
            todo="choose a coarser resolution, a longer slot or a smaller min_vehicles",
        )
    rungs = ladder(kept, request.bound, request.tolerance)
    chosen = choose_rung(rungs, request)
    # charges are whole steps: what is left over of the last one cannot be used
    target = request.epsilon.pico // CHARGE_STEP * CHARGE_STEP
    # a hair more noise from the start leaves room for rounding losses up to the very epsilon asked for
    epsilon = target / PICO
    epsilon -= min(epsilon * HEADROOM, CHARGE_STEP / PICO / 2)
    for _ in range(50 if target else 0):
        lattices = {
            statistic: to_lattice(statistic, kept, request.bound, scale)
            for statistic, scale in chosen.scales(epsilon).items()
        }
        recipe = LatticeRecipe(lattices)
        event = recipe.event(kept, request.bound)
        if event.loss.pico <= target:
            error = chosen.errors(float(request.epsilon.epsilon), request.bound)
            reason = f"baseline, accounting {chosen.name}: {_why(request)}"
            return Allocation(request, keep, kept, chosen, rungs, recipe, event, error, reason)
        epsilon *= target / event.loss.pico * (1 - 1e-13)
    raise UsageError(
        "no noise fits the epsilon", got=f"epsilon={request.epsilon}", todo="ask for a larger epsilon"
    )


def choose_rung(rungs: tuple[Rung, ...], request: Request) -> Rung:
    """Return the rung that ``request`` names, or the one with the smallest worst noise ("best").

    The choice is the same at every epsilon. Raises UsageError for an unknown name.
    """
    named = {rung.name: rung for rung in rungs}
    if request.rung in named:
        return named[request.rung]
    if request.rung != "best":
        raise UsageError("unknown rung", got=f"rung={request.rung!r}", expected=", ".join(("best", *named)))
    epsilon = float(request.epsilon.epsilon)
    # on a tie the later rung, whose accounting is sharper
    return min(reversed(rungs), key=lambda rung: rung.worst_relative_scale(epsilon, request.tolerance))


def _why(request: Request) -> str:
    if request.rung != "best":
        return "it was asked for by name"
    return "of the accountings of Laplace noise the one whose worst noise is least, by public counts"
