"""Every accounting at the same worst-case error: what the paper's error costs under ever better planning.

E is the paper's: the largest U m*_g/(N_g eps) over bins when every bin spends eps. At that E a release of
all means costs, in total,

==============  ====================================================================================
accounting            epsilon
==============  ====================================================================================
basic           G eps
grid_count      G_1 eps                                      (paper 003, Theorem II.3)
clip_user       K eps                                        (arXiv 2405.06261)
suppression     K eps with the best K found; ``least_bins`` proves that no K is smaller
exact           max_l sum_g loss of l, the paper's own noise (Theorem A)
suppressed      the same after the best suppression
equal           max_l sum_g D_{g,l} / E                      (equal scales)
blocks          the same with l-infinity blocks; ``blocks_bound`` proves that no blocks are smaller
joint           narrower ranges and scales together, bias + scale <= E (E < U/2 only)
==============  ====================================================================================

and for comparison the Gaussian twin of equal scales at (epsilon, delta). Nothing is spent: counts alone.

# Curves

Loss against error: what every accounting must spend for one worst noise, over a range of it.

``accounting_curves`` compares the accountings a release can execute, for all statistics of the request.
``full_curves`` compares every accounting of ``full_comparison`` for a map of the means alone, solvers
included; it takes as long as it is given. Errors are the largest expected absolute noise of the main
statistic over the bins, bias included where an accounting has one, before anything is clamped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import BoolArray
from trafficdp.bounding.worst_case import mean_sensitivity
from trafficdp.errors import UsageError, positive
from trafficdp.mechanisms.blocks.blocks import Blocks, best_blocks
from trafficdp.mechanisms.blocks.calibrated import find_blocks
from trafficdp.mechanisms.blocks.partition import Items
from trafficdp.mechanisms.clip_user import ceiling, clip_user
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.planner.allocation import Allocation
from trafficdp.privacy.conversion import gaussian_to_approx
from trafficdp.privacy.loss import ZCDP
from trafficdp.research.joint_ranges import best_ranges_and_scales
from trafficdp.research.optimal_suppression import suppress_to_fewest_bins

MEANS = {Statistic.MEAN: 1.0}
DELTA = 1e-6


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the comparison's effort.

    The linear programs run only up to so many (bin, vehicle) pairs; solver calls have so many seconds;
    blocks are improved by at most ``effort`` moves.
    """

    pairs_of_suppression: int = 50_000
    pairs_of_joint: int = 10_000
    relaxation_seconds: float = 60.0
    milp_seconds: float = 10.0
    joint_steps: int = 8
    effort: int = 40_000


@dataclass(frozen=True, slots=True)
class FullComparison:
    """The total epsilon of the most exposed vehicle under each accounting, for the same error in all of them.

    ``error`` is the largest worst-case error of a bin's mean, in the unit of the bound. None: not computed.
    """

    epsilon_per_bin: float
    error: float
    bins: int
    bins_per_user: int
    clip_user_bins: int
    best_bins: int
    least_bins: int | None
    basic: float
    grid_count: float
    clip_user: float
    suppression: float
    exact: float
    suppressed: float
    equal: float
    blocks: float
    blocks_bound: float
    joint: float | None
    gaussian: float


def full_comparison(
    counts: Counts,
    bound: ContributionBound,
    epsilon: float,
    *,
    limits: Limits | None = None,
    blocks: Blocks | None = None,
) -> FullComparison:
    """Return the total epsilon of every accounting for the means of all bins, from public counts alone.

    All keep the largest worst-case error of a mean where every bin spends ``epsilon``. ``blocks`` may be
    given, as they do not depend on epsilon. Raises UsageError when there is no bin.
    """
    positive(epsilon=epsilon)
    if not counts.bins:
        raise UsageError("there is no bin to release", todo="lower min_vehicles or widen area and period")
    within = limits or Limits()
    accountings = {accounting.name: accounting for accounting in laplace_accountings(counts, bound, MEANS)}
    error = ceiling(counts, bound, epsilon).error
    shared = blocks or best_blocks(counts, bound, MEANS, effort=within.effort)
    greedy = clip_user(counts, bound, epsilon)
    best, least = greedy, None
    if counts.pairs <= within.pairs_of_suppression:
        certified = suppress_to_fewest_bins(
            counts,
            bound,
            epsilon,
            seconds=within.milp_seconds,
            relaxation_seconds=within.relaxation_seconds,
        )
        best, least = certified.suppression, certified.lower_bound
    joint = None
    if error < float(bound.upper) / 2 and counts.pairs <= within.pairs_of_joint:
        joint = best_ranges_and_scales(counts, bound, error, steps=within.joint_steps).epsilon
    return FullComparison(
        epsilon_per_bin=epsilon,
        error=error,
        bins=counts.bins,
        bins_per_user=int(counts.bins_per_user.max()),
        clip_user_bins=greedy.bins_per_user,
        best_bins=best.bins_per_user,
        least_bins=least,
        basic=accountings["basic"].factor * epsilon,
        grid_count=accountings["grid_count"].factor * epsilon,
        clip_user=greedy.bins_per_user * epsilon,
        suppression=best.bins_per_user * epsilon,
        exact=accountings["exact"].factor * epsilon,
        suppressed=suppressed_loss(counts, bound, epsilon, best.kept),
        equal=accountings["equal"].factor / error,
        blocks=shared.factor / error,
        blocks_bound=shared.lower_bound / error,
        joint=joint,
        gaussian=gaussian_epsilon(shared.items, error, DELTA),
    )


def suppressed_loss(counts: Counts, bound: ContributionBound, epsilon: float, kept: BoolArray) -> float:
    """Return the largest loss epsilon of a vehicle when only the (bin, vehicle) pairs ``kept`` (P,) stay.

    Every bin spends ``epsilon``. A vehicle with m of its records kept loses epsilon m / (largest m of the
    bin) there, hence the result is the largest sum of these over vehicles.
    """
    count = np.where(kept, counts.count, 0)
    largest = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(largest, counts.bin_index, count)
    # noise of the kept: b = U max/(n eps), so a kept user loses eps * m / max
    loss = mean_sensitivity(count, np.maximum(largest, 1)[counts.bin_index], 1.0) * epsilon
    return float(counts.sum_per_user(loss).max(initial=0.0))


def gaussian_rho(items: Items, error: float) -> float:
    """Return the rho at which every item's expected absolute noise is ``error`` times its tolerance.

    With Gaussian noise of one sd for all items (over their tolerance) user l loses
    rho_l = sum_i D_{i,l}^2 / (2 sd^2) (Bun, Steinke 2016), so rho = max_l |D_l|_2^2 / (2 sd^2), and no other
    sds with the same maximum are better, by the argument for equal scales. E|z| = sd sqrt(2/pi).
    """
    positive(error=error)
    squares = np.bincount(items.user, weights=items.cost**2, minlength=items.users)
    return float(squares.max(initial=0.0)) / (math.pi * error**2)


def gaussian_epsilon(items: Items, error: float, delta: float) -> float:
    """Return the exact epsilon at ``delta`` of the Gaussian noise of ``gaussian_rho``, from its ``error``.

    All items together are one Gaussian release in as many dimensions.
    """
    rho = gaussian_rho(items, error)
    return float(gaussian_to_approx(ZCDP.of(rho), delta).epsilon) if rho > 0 else 0.0


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
    """The (error, epsilon) pairs of one accounting, called ``name``, in order of rising error."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class FullCurves:
    """The error-epsilon curves of all accountings for means; ``comparisons`` are the points computed.

    ``complete``: whether all points were computed in the time allowed.
    """

    curves: tuple[Curve, ...]
    comparisons: tuple[FullComparison, ...]
    complete: bool


def accounting_curves(allocation: Allocation) -> tuple[Curve, ...]:
    """Return (error, epsilon) curves of the accountings of ``allocation``, for the main statistic.

    The error runs over SPAN times the planned noise scale of the noisiest bin; none where no noise is
    needed.
    """
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
    """Return (error, epsilon) curves of every accounting of the means alone, around the noise of
    ``allocation``.

    ``seconds`` bounds every solver call and the whole; the planned noise comes first. ``computed`` is called
    with the numbers of points done and of all. Raises UsageError when the main statistic is not the mean.
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
    blocks = find_blocks(counts, bound, MEANS)
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
    return float(allocation.chosen_accounting.scales(epsilon)[statistic].max(initial=0.0))


def _curve(name: str, comparisons: list[FullComparison]) -> Curve:
    points = ((each.error, getattr(each, name)) for each in comparisons)
    return Curve(name, tuple((error, float(epsilon)) for error, epsilon in points if epsilon is not None))
