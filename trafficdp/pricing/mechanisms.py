"""A second price of mechanisms of pure epsilon: counts, published epsilons, settings and whole numbers.

A mechanism that states its steps is priced by them (``_of_step``): by moves of their sets over the exact
fractions that the scales which are drawn with are. For the others D, the change of the integer by one
vehicle, is computed anew (``moves``); B is the scale, K = U/q:

============================  ===============================================================================
baseline                      D/B: K m; K^2 k (N - k), floored to a spacing s: floor(D/s) + 1; K
block noise                   the most over a block of ceil(D 2^shift/a)/s, once
variance by two moments       that of the mean at its part of epsilon, and of M2 at the rest
============================  ===============================================================================

Any other is held to epsilon for every visitor of a bin: less is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.box import Box
from trafficdp.measurement.claims import ClaimedNoise, ClaimedSums
from trafficdp.measurement.laws import Laplace
from trafficdp.measurement.measure import Priced, Step
from trafficdp.measurement.ranks import Ranks
from trafficdp.mechanisms.blocks.linf_block import LinfBlock
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.means import Means
from trafficdp.mechanisms.two_moments import TwoMoments
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.exact import Losses, as_ratio, by_noise, unsound
from trafficdp.pricing.moves import integer_moves

FloatArray = npt.NDArray[np.float64]
SQUARE_STEPS = 1 << 16
MEAN_PART = 2 / 3


def pure_losses(
    mechanism: Any,  # until families state their steps
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    epsilon: FloatArray,
) -> list[Losses]:
    """Return every vehicle's losses by ``mechanism`` at ``epsilon`` (G,), all of which add up.

    Raises AllocationError for an epsilon that is not above 0 and finite, and where noise is missing.
    """
    if epsilon.shape != (counts.bins,) or not bool(np.all((epsilon > 0) & np.isfinite(epsilon))):
        raise unsound("a bin without an epsilon")
    if isinstance(mechanism, TwoMoments):
        means = mechanism.means
        if statistic is not Statistic.VARIANCE:
            return pure_losses(means, counts, bound, statistic, epsilon)
        first = epsilon * MEAN_PART
        rest = np.nextafter(epsilon - first, 0.0)
        return pure_losses(means, counts, bound, Statistic.MEAN, first) + pure_losses(
            means, counts, squares(bound), Statistic.MEAN, rest
        )
    asked = (counts, bound, statistic, epsilon)
    if isinstance(mechanism, Baseline):
        return [_by_lattice(counts, bound, statistic, mechanism.noise_terms(*asked))]
    if isinstance(mechanism, Means):
        return [_of_step(step) for step in mechanism.steps(*asked)]
    if isinstance(mechanism, LinfBlock):
        return [_of_blocks(mechanism, counts, bound, statistic, epsilon)]
    above, below = as_ratio(epsilon[counts.bin_index])
    return [Losses(counts.user_index, above, below)]


def squares(bound: ContributionBound) -> ContributionBound:
    """Return the bound of (x - U/2)^2: U^2/4, in K^2 steps or SQUARE_STEPS."""
    upper = bound.upper * bound.upper / 4
    return ContributionBound(upper, upper / min(bound.steps**2, SQUARE_STEPS), bound.unit)


def _of_step(step: Priced) -> Losses:
    """What every entry of a step loses: its move over the scale, or what is claimed."""
    if isinstance(step, ClaimedNoise):
        above, below = as_ratio(step.loss_per_entry)
        return Losses(step.support.user, above, below)
    if isinstance(step, Step):
        if not (isinstance(step.of, Box | ClaimedSums) and isinstance(step.law, Laplace)) or step.shift.any():
            raise unsound("a step that has no second price")
        support, scale = step.of.support, step.law.scale
        move = (step.of.high if isinstance(step.of, Box) else step.of.move).astype(object)
    else:
        # a number of every vehicle moves scores by 1
        support, scale = step.support, step.scale
        change = np.ones(len(scale)) if isinstance(step, Ranks) else step.change
        move = 2 * change.astype(np.int64)[support.coordinate].astype(object)
    return by_noise(support.user, move, scale[support.coordinate])


def _by_lattice(
    counts: Counts, bound: ContributionBound, statistic: Statistic, terms: tuple[NoiseTerm, ...]
) -> Losses:
    (term,) = terms
    index = counts.bin_index
    change = integer_moves(statistic, bound, counts)
    if statistic is Statistic.VARIANCE:
        # one step of noise is a power of two times one of N Q - S^2
        one = float(bound.step) ** 2 / counts.samples_per_bin.astype(np.float64) ** 2
        exponent = np.rint(np.log2(term.step / one)).astype(np.int64)[index]
        coarse = (change > 0) & (exponent > 0)
        change = (change >> np.maximum(exponent, 0).astype(object)) + coarse
    return by_noise(counts.user_index, change, term.scale[index])


def _of_blocks(
    mechanism: LinfBlock,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    epsilon: FloatArray,
) -> Losses:
    plan = mechanism.plan(counts, bound, (statistic,), epsilon)
    change = integer_moves(statistic, bound, counts)
    pairs = np.flatnonzero(change > 0)
    place = counts.bin_index[pairs]
    if int(plan.block[place].min(initial=0)) < 0 or int(plan.half_width[place].min(initial=1)) < 1:
        raise unsound("a number that can vary would have no noise")
    finer, coarser = (np.maximum(sign * plan.shift[place], 0).astype(object) for sign in (1, -1))
    moved = ((change[pairs] << finer) >> coarser) + (coarser > 0)
    units = -(-moved // plan.half_width[place].astype(object))
    key = counts.user_index[pairs] * max(1, len(plan.scale)) + plan.block[place]
    group, where = np.unique(key, return_inverse=True)
    most = np.zeros(len(group), dtype=np.int64)
    np.maximum.at(most, where, units.astype(np.int64))
    user, block = np.divmod(group, max(1, len(plan.scale)))
    return by_noise(user, most.astype(object), plan.scale[block])
