"""What would pass where a request is refused: coarser cells, longer slots, fewer bins, more epsilon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trafficdp.binning.slots import hours_of_day
from trafficdp.model.counts import Counts
from trafficdp.model.grid import Grid
from trafficdp.model.slot import SlotKind
from trafficdp.planner.allocation import allocate
from trafficdp.planner.refusal import SkilledMaps, judge, passing_epsilon, passing_min_vehicles
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import Loss
from trafficdp.privacy.loss_kind import LossKind

COARSEST = 3
"""Hexagons of resolution 3 and coarser hold whole cities."""


@dataclass(frozen=True, slots=True)
class Suggestions:
    """For each lever the mildest setting that passes with the rest unchanged; None when none does."""

    epsilon: float | None
    min_vehicles: int | None
    resolution: int | None
    slot_kind: SlotKind | None
    fleet: int | None = None
    by_skill: bool = False

    def in_words(self, left: Loss | None = None) -> str:
        """Return the suggestions as one phrase for an error's "what to do".

        ``left`` is what every vehicle can still spend: an epsilon beyond it is said to be beyond it.
        """
        levers = []
        if self.resolution is not None:
            levers.append(f"resolution {self.resolution}")
        if self.slot_kind is not None:
            levers.append(f'slot "{self.slot_kind.value}"')
        if self.min_vehicles is not None:
            levers.append(f"min_vehicles {self.min_vehicles}")
        if self.epsilon is not None:
            beyond = left is not None and self.epsilon > float(left.exact)
            levers.append(
                f"epsilon {self.epsilon:.3g}"
                + (f", but every vehicle has only {left} left" if beyond else "")
            )
        if self.fleet is not None:
            levers.append(f"a fleet of {self.fleet:,} vehicles")
        if not levers:
            return (
                "no single setting passes: gather more days or more vehicles"
                ' - or release one number for the whole city, mechanism "flat", which is never refused'
                if self.by_skill
                else "no single setting passes: gather more days or more vehicles"
            )
        return "any one of these would pass: " + ", ".join(levers) + " (--force releases it anyway, marked)"


def suggest(
    grid: Grid,
    request: Request,
    counts_of: Callable[[Grid], Counts],
    guess_of: Callable[[Grid], Counts],
) -> Suggestions:
    """Return what would pass. ``counts_of`` gives the public counts of any grid; no value is read.

    ``guess_of`` gives nearly these at once: only where they pass are the exact ones asked for.
    """

    def passes(candidate: Grid) -> bool:
        return all(_passes(of(candidate), request) for of in (guess_of, counts_of))

    if not request.judged_by_error:
        return _by_skill(grid, request, counts_of, guess_of)
    here = counts_of(grid)
    coarser = (grid.at(r) for r in _coarser(grid, 0))
    longer = (replace(grid, slot_kind=kind) for kind in grid.slot_kind.longer)
    by_resolution = next((candidate for candidate in coarser if passes(candidate)), None)
    by_slot = next((candidate for candidate in longer if passes(candidate)), None)
    needed = passing_epsilon(here, request)
    return Suggestions(
        epsilon=None if needed is None else _rounded_up(needed),
        min_vehicles=passing_min_vehicles(here, request),
        resolution=None if by_resolution is None else by_resolution.resolution,
        slot_kind=None if by_slot is None else by_slot.slot_kind,
    )


def suggest_of_anyone(
    grid: Grid, request: Request, counts_of: Callable[[Grid], Counts], epsilon_of: Callable[[Loss], float]
) -> Suggestions:
    """Return what would pass where nothing about a vehicle is public, by the reference city.

    ``counts_of`` lists the bins of any grid, ``epsilon_of`` says a loss as the epsilon that is asked for.
    """
    here = counts_of(grid)

    def passes(counts: Counts, wish: Request) -> bool:
        return not judge(allocate(counts, wish)).refused

    def more(times: float) -> Request:
        power = 1 if request.kind is LossKind.PURE else 2
        return replace(request, loss=type(request.loss)(round(request.loss.pico * times**power)))

    def larger(times: float) -> Request:
        return replace(request, fleet=_two_digits_up(request.fleet * times))

    loss = _least(lambda times: passes(here, more(times)))
    fleet = _least(lambda times: passes(here, larger(times)))
    coarser = (grid.at(r) for r in _coarser(grid, 0)[:3])
    by_resolution = next((each for each in coarser if passes(counts_of(each), request)), None)
    return Suggestions(
        epsilon=None if loss is None else _rounded_up(epsilon_of(more(loss).loss)),
        min_vehicles=None,
        resolution=None if by_resolution is None else by_resolution.resolution,
        slot_kind=None,
        fleet=None if fleet is None else larger(fleet).fleet,
    )


def _coarser(grid: Grid, coarsest: int) -> range:
    """Return coarser resolutions, the next one first; none of zones."""
    return range(0) if grid.resolution is None else range(grid.resolution - 1, coarsest - 1, -1)


def _least(passes: Callable[[float], bool]) -> float | None:
    """Return the least of a few factors from 1.2 to 100 that passes, by halving; None when none does."""
    factors = [1.2**each for each in range(1, 26)]
    low, high = 0, len(factors)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(factors[middle]) else (middle + 1, high)
    return factors[low] if low < len(factors) else None


def _two_digits_up(number: float) -> int:
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return int(-(-number // unit)) * unit


def _by_skill(
    grid: Grid,
    request: Request,
    counts_of: Callable[[Grid], Counts],
    guess_of: Callable[[Grid], Counts],
) -> Suggestions:
    """The same for what is refused by skill: more vehicles a bin are not looked for."""

    def passes(candidate: Grid) -> bool:
        return all(
            maps_of(of(candidate), candidate, request).passes(request.loss) for of in (guess_of, counts_of)
        )

    coarser = (grid.at(r) for r in _coarser(grid, COARSEST + 1))
    longer = (replace(grid, slot_kind=kind) for kind in grid.slot_kind.longer)
    by_resolution = next((candidate for candidate in coarser if passes(candidate)), None)
    by_slot = next((candidate for candidate in longer if passes(candidate)), None)
    needed = maps_of(counts_of(grid), grid, request).least()
    return Suggestions(
        epsilon=None if needed is None else float(needed.exact),
        min_vehicles=None,
        resolution=None if by_resolution is None else by_resolution.resolution,
        slot_kind=None if by_slot is None else by_slot.slot_kind,
        by_skill=True,
    )


def maps_of(counts: Counts, grid: Grid, request: Request) -> SkilledMaps:
    """Return what is asked whether maps of ``grid`` pass by skill."""
    return SkilledMaps(counts, request, hours_of_day(grid, counts.slot))


def _passes(counts: Counts, request: Request) -> bool:
    needed = passing_epsilon(counts, request)
    return needed is not None and needed <= float(request.loss.exact)


def _rounded_up(epsilon: float) -> float:
    """Return the next larger number of three significant digits, so that what is suggested passes."""
    nearest = float(f"{epsilon:.2e}")
    exponent = int(f"{epsilon:e}".partition("e")[2])
    return nearest if nearest >= epsilon * (1 + 1e-9) else float(f"{nearest + 10.0 ** (exponent - 2):.2e}")
