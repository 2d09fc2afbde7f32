"""Mechanisms that are wrong on purpose. An audit that does not catch them is worth nothing.

Each gives draws and the epsilon that the mistake would claim, with neighbours that bring it to light; most
have a right twin, which must not be caught. Never used outside audits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.audit.lower_bound import Draws, unmetered
from trafficdp.audit.neighbours import Neighbours, extreme_neighbours, one_bin
from trafficdp.bounding.arrays import CountCap, IntervalPartition
from trafficdp.bounding.huber import HuberParameters, huber_location, smooth_sensitivity
from trafficdp.mechanisms import means
from trafficdp.mechanisms.blocks.noise import BlockNoise, calibrated_block_noise
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.means import choice_scale
from trafficdp.mechanisms.per_statistic import arrays
from trafficdp.mechanisms.per_statistic.two_stage import exponential_quantile
from trafficdp.mechanisms.simulated_cities import repeat_bins
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise import smooth_gaussian, student_t
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import PureDP
from trafficdp.sensitive import Samples


@dataclass(frozen=True)
class Mistake:
    """``wrong`` claims ``claim`` (epsilon, at ``delta``) and breaks it on ``pairs``; ``right`` keeps it."""

    name: str
    claim: float
    wrong: Draws
    right: Draws | None
    pairs: list[Neighbours] = field(repr=False)
    delta: float = 0.0


def mistakes(bound: ContributionBound) -> tuple[Mistake, ...]:
    """Return all mechanisms that are wrong on purpose, for speeds of ``bound`` of at least 12 steps."""
    return (
        half_the_scale(bound),
        interval_of_wrap_around(bound),
        quantile_without_half(bound),
        exact_count_under_removal(bound),
        median_with_the_other_sensitivity(bound),
        huber_with_the_quoted_gaussian(bound),
        separate_noises_charged_as_a_block(bound),
    )


def half_the_scale(bound: ContributionBound) -> Mistake:
    """Return the baseline mechanism with half of the noise that its epsilon needs."""

    def draws(samples: Samples, times: int, noise: NoiseSource, *, epsilon: float) -> FloatArray:
        share, mechanism = np.full(times, epsilon), cast("Any", Baseline())
        return np.asarray(mechanism.estimate(repeat_bins(samples, times), Statistic.MEAN, share, noise))

    pairs = extreme_neighbours(bound)[:2]
    return Mistake("half the scale", 1.0, partial(draws, epsilon=2.0), partial(draws, epsilon=1.0), pairs)


def interval_of_wrap_around(bound: ContributionBound) -> Mistake:
    """Return Levy's interval with exp(-eps c/4) although vehicles touch two arrays (erratum E3).

    Five vehicles fill arrays of three samples; three with two samples each share two more arrays, so the
    middle one moves both over the border of the first part.
    """

    def draws(one: Samples, times: int, noise: NoiseSource, *, influence: int) -> FloatArray:
        samples = repeat_bins(one, times)
        grouped = arrays.Grouping.WRAP_AROUND.arrays(samples.counts, CountCap.MEDIAN)
        lattice = arrays.ArrayLattice(grouped, samples.bound)
        partition = IntervalPartition(lattice.top, -(-lattice.top // 6))
        cost = partition.costs(arrays.ArrayMeans.of(samples, lattice).y, lattice.arrays.array_bin)
        assumed = np.full(samples.counts.bins, influence, dtype=np.int64)
        # the interval's half of a total epsilon of 4
        scale = choice_scale(assumed, np.full(samples.counts.bins, 2.0))
        part = noise.choose(cost, np.ones_like(cost), partition.start, scale)[0]
        return np.asarray((part - partition.start[:-1]).astype(np.float64))

    quarter = bound.upper_steps // 4
    sides = [
        one_bin([[quarter] * 3] * 5 + [[0, 0], [own, own], [0, 0]], bound) for own in (0, bound.upper_steps)
    ]
    pair = Neighbours("seven arrays, two of them touched by one vehicle", *sides)
    name = "WrapAround interval with exp(-eps c/4)"
    return Mistake(name, 2.0, partial(draws, influence=1), partial(draws, influence=2), [pair])


def quantile_without_half(bound: ContributionBound) -> Mistake:
    """Return Smith's quantile with exp(-eps |i - q n|) (erratum E6): the normaliser doubles the loss.

    Four vehicles of one sample, three of them at U/5, and the quantile 3/4: a vehicle that moves from 0 to U
    makes positions below U/5 one rank worse and those above one rank better.
    """

    def draws(one: Samples, times: int, noise: NoiseSource, *, epsilon: float) -> FloatArray:
        samples = repeat_bins(one, times)
        grouped = arrays.Grouping.BEST_FIT.arrays(samples.counts, CountCap.ARGMAX)
        lattice = arrays.ArrayLattice(grouped, samples.bound)
        means = arrays.ArrayMeans.of(samples, lattice)
        target = arrays.TENTHS * (lattice.arrays.per_bin - 1)
        everywhere, share = np.ones(len(target), dtype=bool), np.full(len(target), epsilon)
        choice = arrays.array_choice(lattice, everywhere, share, arrays.TENTHS)
        measure = unmetered(noise, samples.counts.users)
        return arrays.private_position(means, target, choice, measure).astype(np.float64)

    near = bound.upper_steps // 5
    sides = [one_bin([[own]] + [[near]] * 3, bound) for own in (0, bound.upper_steps)]
    pair = Neighbours("four vehicles, three of them at U/5", *sides)
    name = "quantile without the factor 1/2"
    return Mistake(name, 1.0, partial(draws, epsilon=2.0), partial(draws, epsilon=1.0), [pair])


def exact_count_under_removal(bound: ContributionBound) -> Mistake:
    """Return a noisy sum over the exact count, claimed for adding or removing a vehicle.

    Noise of scale U/eps hides the sum, but dividing it by the count shrinks it: tails tell how many vehicles
    there are. Sound only where counts are public.
    """

    def draws(samples: Samples, times: int, noise: NoiseSource) -> FloatArray:
        drawn = noise.discrete_laplace(np.full(times, float(samples.bound.upper_steps)))
        return np.asarray((samples.value.sum() + drawn) / len(samples.value), dtype=np.float64)

    pair = Neighbours(
        "a second vehicle or none", one_bin([[0], [bound.upper_steps]], bound), one_bin([[0]], bound)
    )
    return Mistake("exact count under add or remove", 1.0, draws, None, [pair])


def median_with_the_other_sensitivity(bound: ContributionBound) -> Mistake:
    """Return a median with scores divided by max(q, 1 - q) = 1/2 (erratum E22 of paper 004's code).

    That is the rank sensitivity of adding or removing a value. Where one replaces another it is 1, and the
    released median loses up to twice the epsilon that is claimed.
    """

    def draws(samples: Samples, times: int, noise: NoiseSource, *, sensitivity: float) -> FloatArray:
        ordered, users = np.sort(samples.value), len(samples.value)
        drawn = exponential_quantile(
            np.tile(ordered, times),
            np.arange(times + 1, dtype=np.int64) * users,
            np.zeros(times, dtype=np.int64),
            np.full(times, samples.bound.upper_steps, dtype=np.int64),
            np.full(times, users // 2, dtype=np.int64),
            np.full(times, 2 * sensitivity),
            noise,
        )
        return drawn.astype(np.float64)

    # the few numbers near U come one rank closer to the middle when the vehicle moves there, all others go
    near = bound.upper_steps - max(1, bound.upper_steps // 16)
    sides = [one_bin([[own], [0], [near], [bound.upper_steps]], bound) for own in (0, bound.upper_steps)]
    pair = Neighbours("four vehicles, at 0, near U and at U, and one that moves", *sides)
    name = "median with the sensitivity of adding a vehicle"
    return Mistake(name, 1.0, partial(draws, sensitivity=0.5), partial(draws, sensitivity=1.0), [pair])


def huber_with_the_quoted_gaussian(bound: ContributionBound) -> Mistake:
    """Return Huber with Gaussian noise of the constants quoted for one dimension (erratum E17 of paper 001).

    alpha = eps/sqrt(ln(1/delta)), beta = eps/(2 ln(1/delta)), at a delta of 1 % so that few draws show it. Of
    120 vehicles 119 agree; the last lies two fifths of a threshold below them, or beyond a threshold above:
    that moves the centre by all of the smooth sensitivity and stretches the noise by nearly all of e^beta.
    """
    epsilon, delta, users, threshold = 3.0, 0.01, 120, bound.upper_steps // 6
    quoted = epsilon / math.sqrt(math.log(1 / delta))
    beta = epsilon / (2 * math.log(1 / delta))
    one = np.zeros(users, dtype=np.int64)
    shape = HuberParameters(
        np.full(users, 1 / users), np.full(users, float(threshold)), one, 1, float(bound.upper_steps)
    )

    def draws(samples: Samples, times: int, noise: NoiseSource, *, alpha: float) -> FloatArray:
        value = samples.value.astype(np.float64)
        centre = huber_location(value, shape.weight, shape.threshold, one, 1)[0]
        smooth = smooth_sensitivity(value, shape, np.array([beta]))[0]
        drawn = student_t.normals(times, noise.uniform_below)
        return np.asarray(centre + smooth / alpha * drawn, dtype=np.float64)

    middle = bound.upper_steps // 2
    places = (middle - 2 * threshold // 5, middle + 3 * threshold // 2)
    sides = [one_bin([[own]] + [[middle]] * (users - 1), bound) for own in places]
    pair = Neighbours("120 vehicles, one of them at both sides of the others", *sides)
    name = "Huber with the quoted Gaussian pair"
    right = smooth_gaussian.largest_alpha(epsilon, delta, beta)
    return Mistake(
        name, epsilon, partial(draws, alpha=quoted), partial(draws, alpha=right), [pair], delta=delta
    )


def separate_noises_charged_as_a_block(bound: ContributionBound) -> Mistake:
    """Return independent Laplace noises in two hours of a cell, charged once as l-infinity block noise is.

    The output is the larger of the two estimates: a vehicle at 0 in both hours keeps both down.
    """

    def two_hours(own: int) -> Samples:
        counts = Counts(
            cell=np.ones(2, dtype=np.uint64),
            slot=np.arange(2, dtype=np.int64),
            users_per_bin=np.array([2, 2], dtype=np.int64),
            user_index=np.array([0, 1, 0, 1], dtype=np.int64),
            count=np.ones(4, dtype=np.int64),
            users=2,
        )
        value = np.array([own, bound.upper_steps // 2] * 2, dtype=np.int64)
        return Samples(counts, value, np.arange(1, 3), bound)

    def apart(samples: Samples, times: int, noise: NoiseSource) -> FloatArray:
        many = repeat_bins(samples, times)
        measure = unmetered(noise, many.counts.users)
        found = Baseline().estimate(many, Statistic.MEAN, np.ones(many.counts.bins), measure)
        return np.asarray(found.reshape(times, 2).max(axis=1), dtype=np.float64)

    def together(samples: Samples, times: int, noise: NoiseSource) -> FloatArray:
        many, both = repeat_bins(samples, times), np.zeros(2, dtype=np.int64)
        of, wide = means.box_of(Statistic.MEAN, samples.counts, bound), np.full(2, float(bound.upper_steps))
        one = calibrated_block_noise(of, both, wide, PureDP.of(1))
        width, shift = np.tile(one.half_width, times), np.tile(one.shift, times)
        repeated = BlockNoise(np.arange(2 * times) // 2, width, shift, one.scale)
        step = repeated.step(means.box_of(Statistic.MEAN, many.counts, bound))
        found = step.draw(noise, means.values_of(Statistic.MEAN, many.contributions()))
        return np.asarray(found.reshape(times, 2).max(axis=1), dtype=np.float64)

    pair = Neighbours("two hours, a vehicle at 0 or at U in both", two_hours(0), two_hours(bound.upper_steps))
    return Mistake("separate noises charged as a block", 1.0, apart, together, [pair])
