"""Loss against error: what every accounting must spend for one worst noise, over a range of it.

``accounting_curves`` compares the accountings a release can execute, for all statistics of the request.
``full_curves`` compares every accounting of ``full_comparison`` for a map of the means alone, solvers
included; it takes as long as it is given. Errors are the largest expected absolute noise of the main
statistic over the bins, bias included where an accounting has one, before anything is clamped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trafficdp.errors import UsageError, positive
from trafficdp.mechanisms.blocks.calibrated import blocks_of
from trafficdp.model import Statistic
from trafficdp.planner.allocation import Allocation
from trafficdp.planner.compare.full_comparison import MEANS, FullComparison, Limits, full_comparison

SPAN = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the planned noise that curves run over."""
ACCOUNTINGS = (
    "basic",
    "grid_count",
    "clip_user",
    "suppression",
    "exact",
    "suppressed",
    "equal",
    "blocks",
    "joint",
    "gaussian",
)


@dataclass(frozen=True, slots=True)
class Curve:
    """``points`` (error, epsilon) of one accounting, errors rising."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class FullCurves:
    """Every accounting for the means alone; ``comparisons`` are what was computed, errors rising.

    ``complete``: whether the time allowed for all of them.
    """

    curves: tuple[Curve, ...]
    comparisons: tuple[FullComparison, ...]
    complete: bool


def accounting_curves(allocation: Allocation) -> tuple[Curve, ...]:
    """Return a curve for every accounting of ``allocation``; none where nothing needs noise."""
    statistic = allocation.request.main
    noise = _largest_noise(allocation, statistic)
    if noise <= 0:
        return ()
    curves = []
    for accounting in allocation.accountings:
        at_one = float(accounting.scales(1.0)[statistic].max())
        curves.append(
            Curve(accounting.name, tuple((share * noise, at_one / (share * noise)) for share in SPAN))
        )
    return tuple(curves)


def full_curves(allocation: Allocation, seconds: float, computed: Callable[[int, int], None]) -> FullCurves:
    """Return every accounting of the means alone, around the noise of ``allocation``.

    ``seconds`` bounds every solver call and what is begun; the planned noise comes first. ``computed`` is
    told (done, all) points. Raises UsageError when the main statistic is not the mean.
    """
    positive(seconds=seconds)
    counts, bound = allocation.counts, allocation.request.bound
    if allocation.request.main is not Statistic.MEAN:
        raise UsageError("the full comparison is about means", todo='add "mean" to [map] statistics')
    noise = _largest_noise(allocation, Statistic.MEAN)
    # what a bin of the paper spends for the planned noise in its worst bin
    share = counts.largest_count_per_bin / counts.samples_per_bin
    centre = float(share.max()) * float(bound.upper) / noise
    began = time.monotonic()
    blocks = blocks_of(counts, bound, MEANS)
    limits = Limits(relaxation_seconds=seconds / 8, milp_seconds=seconds / 20)
    comparisons: list[FullComparison] = []
    # from the middle outwards
    order = sorted(SPAN, key=lambda each: (max(each, 1 / each), each))
    for number, multiple in enumerate(order):
        if comparisons and time.monotonic() - began > seconds:
            break
        comparisons.append(full_comparison(counts, bound, centre / multiple, limits=limits, blocks=blocks))
        computed(number + 1, len(order))
    comparisons.sort(key=lambda each: each.error)
    return FullCurves(
        tuple(_curve(name, comparisons) for name in ACCOUNTINGS),
        tuple(comparisons),
        len(comparisons) == len(SPAN),
    )


def _largest_noise(allocation: Allocation, statistic: Statistic) -> float:
    epsilon = float(allocation.request.loss.exact)
    return float(allocation.chosen.scales(epsilon)[statistic].max(initial=0.0))


def _curve(name: str, comparisons: list[FullComparison]) -> Curve:
    points = ((each.error, getattr(each, name)) for each in comparisons)
    return Curve(name, tuple((error, float(epsilon)) for error, epsilon in points if epsilon is not None))
