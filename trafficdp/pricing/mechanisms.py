"""A second price of mechanisms of pure epsilon: counts, published epsilons, settings and whole numbers.

Nothing here shares code with what charges: how far a vehicle moves an integer is computed anew, a scale is
taken as the exact fraction that the float which is drawn with is, and the theorem is written anew. D is the
change of the integer by one vehicle, B the scale, e the epsilon of the bin, K = U/q:

============================  ===============================================================================
baseline, pooled              D/B: K m; K^2 k (N - k), floored to a spacing s: floor(D/s) + 1; K
array averaging               D/B, D = sum over its arrays of ceil(M r/w), M = m_UB K
levy                          e/2 for the interval where its arrays can be touched, and the most over all
                              parts j of D_j e/(2 max D_j), D_j = sum min(width_j, ceil(M r/w))
quantile                      e/4 for either end and e/2 for the noise, where its arrays can be touched
two stages                    e/2 for the interval and e u/(2 max u); e u/max u where nothing is selected
worst-case clipping           D/B, D = K m - 2 cut, what is left of the range of its sum
direct clipping               D/B, D the exact change of N Q - S^2 of samples clipped to [a_l, K - a_l]
AKMV                          e
Huber                         e in a bin by Huber, u K/B in another, 0 in one that is a constant
variance by two moments       that of the mean at its part of e, and of M2 at the rest
============================  ===============================================================================

A mechanism without a row is held to e for every visitor of a bin: less is refused.

Rows without a scale (AKMV, two stages, a bin by Huber) read no noise: they hold a charge to the theorem that
the mechanism claims at e, and say nothing of whether its noise keeps it. Which bins Huber's noise serves, and
the weights and scales of its other bins, are the mechanism's own.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.arrays.array_averaging import ArrayAveraging
from trafficdp.mechanisms.arrays.levy import Levy
from trafficdp.mechanisms.arrays.pooled import Pooled
from trafficdp.mechanisms.arrays.quantile import Quantile
from trafficdp.mechanisms.arrays.two_stage import TwoStage
from trafficdp.mechanisms.clipping.direct_clipping import DirectClipping
from trafficdp.mechanisms.clipping.worst_case_clipping import WorstCaseClipping
from trafficdp.mechanisms.huber.huber import Huber
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.moment import Moment
from trafficdp.mechanisms.two_moments import TwoMoments
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.arrays import Pieces, best_fitted, caps, wrapped
from trafficdp.pricing.exact import (
    Losses,
    as_ratio,
    by_noise,
    unsound,
)
from trafficdp.pricing.moves import clipped_change, integer_moves, rank_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]
WIDER = 1 + 2.0**-38
"""Noise is this much wider than an epsilon asks for, so that losses, rounded up, stay within it."""
SPENT = 1 - Fraction(1, 2**38)
"""The same for noise that is asked for this share of an epsilon."""
SQUARE_STEPS = 1 << 16
MEAN_PART = 2 / 3


def pure_losses(
    mechanism: Mechanism,
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
    if isinstance(mechanism, Pooled):
        return [_by_lattice(_capped(counts, mechanism), bound, statistic, mechanism.noise_terms(*asked))]
    if isinstance(mechanism, ArrayAveraging):
        pieces = _pieces(counts, mechanism)
        (term,) = mechanism.noise_terms(*asked)
        moved = _of_pairs(counts, pieces, _changes(counts, pieces, bound))
        return [by_noise(counts.user_index, moved, term.scale[counts.bin_index])]
    if isinstance(mechanism, Levy) and not mechanism.guaranteed:
        return _of_levy(mechanism, counts, bound, epsilon)
    if isinstance(mechanism, Quantile):
        return _of_quantile(counts, _pieces(counts, mechanism), epsilon)
    if isinstance(mechanism, TwoStage):
        return _of_two_stages(mechanism, counts, bound, statistic, epsilon)
    if isinstance(mechanism, WorstCaseClipping):
        return _of_clipping(mechanism, counts, bound, statistic, epsilon)
    if isinstance(mechanism, DirectClipping):
        (term,) = mechanism.noise_terms(*asked)
        moved = clipped_change(counts, bound, rank_of(epsilon))
        return [by_noise(counts.user_index, moved, term.scale[counts.bin_index])]
    if isinstance(mechanism, Huber):
        return _of_huber(mechanism, counts, bound, statistic, epsilon)
    # AKMV's own theorem, and all that is known of any other
    return [whole_epsilon(counts, epsilon, np.ones(counts.pairs, dtype=bool))]


def squares(bound: ContributionBound) -> ContributionBound:
    """Return the bound of (x - U/2)^2: U^2/4, in K^2 steps or SQUARE_STEPS."""
    upper = bound.upper * bound.upper / 4
    return ContributionBound(upper, upper / min(bound.steps**2, SQUARE_STEPS), bound.unit)


def whole_epsilon(
    counts: Counts, epsilon: FloatArray, who: npt.NDArray[np.bool_], part: Fraction = Fraction(1)
) -> Losses:
    """Return ``part`` of the bin's epsilon for the pairs ``who`` (P,)."""
    above, below = as_ratio(epsilon[counts.bin_index[who]])
    return Losses(counts.user_index[who], above, below).times(part)


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


def _capped(counts: Counts, mechanism: Pooled) -> Counts:
    cap = caps(counts, mechanism.cap.value)
    count = np.minimum(counts.count, cap[counts.bin_index])
    return Counts(
        cell=counts.cell,
        slot=counts.slot,
        bin_index=counts.bin_index,
        user_index=counts.user_index,
        count=count,
        users=counts.users,
    )


def _pieces(counts: Counts, mechanism: ArrayAveraging | Levy | Quantile) -> Pieces:
    cap = caps(counts, mechanism.cap.value)
    return wrapped(counts, cap) if mechanism.grouping == "wrap_around" else best_fitted(counts, cap)


def _changes(counts: Counts, pieces: Pieces, bound: ContributionBound) -> IntArray:
    """ceil(M r/w) of every piece: how far it moves the rounded mean of its array, in q/m_UB."""
    top = (pieces.cap * bound.steps)[counts.bin_index[pieces.pair]]
    return np.asarray(-(-top * pieces.take // pieces.fill), dtype=np.int64)


def _of_pairs(counts: Counts, pieces: Pieces, amount: IntArray) -> ObjectArray:
    total = np.zeros(counts.pairs, dtype=np.int64)
    np.add.at(total, pieces.pair, amount)
    return total.astype(object)


def _most(counts: Counts, amount: ObjectArray) -> IntArray:
    largest = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(largest, counts.bin_index, amount.astype(np.int64))
    return largest


def _of_levy(mechanism: Levy, counts: Counts, bound: ContributionBound, epsilon: FloatArray) -> list[Losses]:
    pieces = _pieces(counts, mechanism)
    change, top, index = _changes(counts, pieces, bound), pieces.cap * bound.steps, counts.bin_index
    upper = float(bound.upper)
    tau = upper * np.sqrt(np.log(2.0 * pieces.arrays / mechanism.gamma) / (2.0 * pieces.cap))
    width = np.clip(np.ceil(np.minimum(tau / upper, 1.0) * top).astype(np.int64), 1, top)
    parts = -(-top // width)
    selects = parts > 1
    # (numerator, denominator) of the worst part so far, compared crosswise
    best, over = np.zeros(counts.pairs, dtype=object), np.ones(counts.pairs, dtype=object)
    for part in range(int(parts.max(initial=0))):
        j = np.minimum(part, parts - 1)
        twice = j * width + np.minimum((j + 1) * width, top)
        reach = mechanism.halves * width
        low, high = np.maximum(-((reach - twice) // 2), 0), np.minimum((twice + reach) // 2, top)
        across = np.where(selects, high - low, top)
        moved = _of_pairs(counts, pieces, np.minimum(change, across[index[pieces.pair]]))
        share = np.where(selects, epsilon / 2, epsilon)
        scale = np.asarray(_most(counts, moved).astype(np.float64) / share * WIDER)
        own = by_noise(np.arange(counts.pairs), moved, scale[index])
        more = own.numerator * over[own.user] > best[own.user] * own.denominator
        best[own.user[more]], over[own.user[more]] = own.numerator[more], own.denominator[more]
    touched = pieces.touched(counts.pairs)
    reached = (touched > 0) & selects[index]
    return [
        Losses(counts.user_index, best, over),
        _of_choice(counts, touched, epsilon / 2, reached),
    ]


def _of_choice(counts: Counts, touched: IntArray, epsilon: FloatArray, who: npt.NDArray[np.bool_]) -> Losses:
    """2 c/scale of a noisy choice at ``epsilon`` for the pairs ``who``; c the most arrays one can touch."""
    most = _most(counts, touched.astype(object))
    scale = np.asarray(2.0 * most / epsilon * WIDER, dtype=np.float64)
    index = counts.bin_index[who]
    return by_noise(counts.user_index[who], (2 * most[index]).astype(object), scale[index])


def _of_quantile(counts: Counts, pieces: Pieces, epsilon: FloatArray) -> list[Losses]:
    touched = pieces.touched(counts.pairs)
    reached = touched > 0
    end = _of_choice(counts, touched, epsilon / 4, reached)
    one = np.ones(int(reached.sum()), dtype=np.int64).astype(object)
    scale = (1.0 / (epsilon / 2) * WIDER)[counts.bin_index[reached]]
    return [end, end, by_noise(counts.user_index[reached], one, scale)]


def _of_two_stages(
    mechanism: TwoStage,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    epsilon: FloatArray,
) -> list[Losses]:
    index, users = counts.bin_index, counts.users_per_bin
    order = np.lexsort((counts.count, index))
    median = counts.count[order][np.cumsum(users) - users + users // 2]
    sigma = float(bound.upper) / 2 if mechanism.sigma is None else mechanism.sigma
    tau = sigma * np.sqrt(2 * np.log(2 * users / mechanism.gamma) / median)
    whole = np.ceil(tau / float(bound.step)) >= bound.steps
    weight = counts.count if statistic is Statistic.MEAN else np.ones_like(counts.count)
    most = _most(counts, weight.astype(object))[index].astype(object)
    everyone = np.ones(counts.pairs, dtype=bool)
    second = whole_epsilon(counts, np.where(whole, epsilon, epsilon / 2), everyone, SPENT)
    noise = Losses(second.user, second.numerator * weight.astype(object), second.denominator * most)
    return [whole_epsilon(counts, epsilon / 2, ~whole[index], SPENT), noise]


def _of_huber(
    mechanism: Huber,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    epsilon: FloatArray,
) -> list[Losses]:
    index = counts.bin_index
    parts = mechanism.parts(counts, bound, statistic, epsilon)
    free = np.zeros(counts.bins, dtype=bool)
    if statistic is Statistic.VARIANCE:
        error = parts[1].clean + float(bound.upper) * parts[0].clean
        free = (counts.samples_per_bin == 1) | (error > float(bound.upper**2) / 8)
    found = []
    for power, part in enumerate(parts, 1):
        huber = (part.huber & ~free)[index]
        others = np.flatnonzero(~part.huber[index] & ~free[index])
        moved = part.laplace.used[others].astype(object) * bound.steps**power
        scale = part.laplace.scale(part.epsilon)[index[others]]
        found.append(whole_epsilon(counts, epsilon / len(parts), huber, SPENT))
        found.append(by_noise(counts.user_index[others], moved, scale))
    return found


def _of_clipping(
    mechanism: WorstCaseClipping,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    epsilon: FloatArray,
) -> list[Losses]:
    moments = [(Moment(bound.steps, float(bound.step)), epsilon)]
    if statistic is Statistic.VARIANCE:
        first = epsilon * MEAN_PART
        second = Moment(bound.steps**2, float(bound.step**2 / 4))
        moments = [(moments[0][0], first), (second, np.nextafter(epsilon - first, 0.0))]
    found = []
    for moment, part in moments:
        clipping = mechanism.clipping(counts, moment, part)
        whole = counts.count.astype(object) * moment.steps
        left = np.where(clipping.cut < 0, 0, whole - 2 * np.maximum(clipping.cut, 0).astype(object))
        found.append(by_noise(counts.user_index, left, clipping.scale[counts.bin_index]))
    return found
