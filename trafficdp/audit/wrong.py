"""Mechanisms that are wrong on purpose. An audit that does not catch them is worth nothing.

Each gives draws and the epsilon that the mistake would claim, with neighbours that bring it to light; most
have a right twin, which must not be caught. Never used outside audits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from trafficdp.audit.lower_bound import Draws
from trafficdp.audit.neighbours import Neighbours, extreme_neighbours, one_bin
from trafficdp.bounding.count_cap import CountCap
from trafficdp.bounding.interval import Partition
from trafficdp.mechanisms.array_means import ArrayLattice, ArrayMeans, Grouping
from trafficdp.mechanisms.baseline import Baseline
from trafficdp.mechanisms.integer_laplace import choice_scale
from trafficdp.mechanisms.quantile import TENTHS, private_position
from trafficdp.model.bound import ContributionBound
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mistake:
    """``wrong`` claims ``claim`` (epsilon) and breaks it on ``pairs``; ``right`` keeps it."""

    name: str
    claim: float
    wrong: Draws
    right: Draws | None
    pairs: list[Neighbours] = field(repr=False)


def mistakes(bound: ContributionBound) -> tuple[Mistake, ...]:
    """Return all mistakes on speeds of ``bound``, which needs at least 12 steps."""
    builders: tuple[Callable[[ContributionBound], Mistake], ...] = (
        half_the_scale,
        interval_of_wrap_around,
        quantile_without_half,
        exact_count_under_removal,
    )
    return tuple(build(bound) for build in builders)


def half_the_scale(bound: ContributionBound) -> Mistake:
    """The baseline with half of the noise that its epsilon needs."""

    def draws(samples: Samples, noise: NoiseSource, *, epsilon: float) -> FloatArray:
        share = np.full(samples.occupancy.bins, epsilon)
        return Baseline().estimate(samples, Statistic.MEAN, share, noise)

    pairs = extreme_neighbours(bound)[:2]
    return Mistake("half the scale", 1.0, partial(draws, epsilon=2.0), partial(draws, epsilon=1.0), pairs)


def interval_of_wrap_around(bound: ContributionBound) -> Mistake:
    """Levy's interval with exp(-eps c/4) although vehicles touch two arrays (erratum E3).

    Five vehicles fill arrays of three samples; three with two samples each share two more arrays, so the
    middle one moves both over the border of the first part.
    """

    def draws(samples: Samples, noise: NoiseSource, *, influence: int) -> FloatArray:
        lattice = ArrayLattice(Grouping.WRAP_AROUND.arrays(samples.occupancy, CountCap.MEDIAN), samples.bound)
        partition = Partition(lattice.top, -(-lattice.top // 6))
        cost = partition.costs(ArrayMeans.of(samples, lattice).y, lattice.arrays.array_bin)
        assumed = np.full(samples.occupancy.bins, influence, dtype=np.int64)
        # the interval's half of a total epsilon of 4
        scale = choice_scale(assumed, np.full(samples.occupancy.bins, 2.0))
        part = noise.choose(cost, np.ones_like(cost), partition.start, scale)[0]
        place: FloatArray = (part - partition.start[:-1]).astype(np.float64)
        return place

    quarter = bound.steps // 4
    sides = [one_bin([[quarter] * 3] * 5 + [[0, 0], [own, own], [0, 0]], bound) for own in (0, bound.steps)]
    pair = Neighbours("seven arrays, two of them touched by one vehicle", *sides)
    name = "WrapAround interval with exp(-eps c/4)"
    return Mistake(name, 2.0, partial(draws, influence=1), partial(draws, influence=2), [pair])


def quantile_without_half(bound: ContributionBound) -> Mistake:
    """Smith's quantile with exp(-eps |i - q n|) (erratum E6): the normaliser doubles the loss.

    Four vehicles of one sample, three of them at U/5, and the quantile 3/4: a vehicle that moves from 0
    to U makes positions below U/5 one rank worse and those above one rank better.
    """

    def draws(samples: Samples, noise: NoiseSource, *, epsilon: float) -> FloatArray:
        lattice = ArrayLattice(Grouping.BEST_FIT.arrays(samples.occupancy, CountCap.ARGMAX), samples.bound)
        means = ArrayMeans.of(samples, lattice)
        target = TENTHS * (lattice.arrays.per_bin - 1)
        share = np.full(samples.occupancy.bins, epsilon)
        position: FloatArray = private_position(means, target, share, noise, 1)[0].astype(np.float64)
        return position

    near = bound.steps // 5
    sides = [one_bin([[own]] + [[near]] * 3, bound) for own in (0, bound.steps)]
    pair = Neighbours("four vehicles, three of them at U/5", *sides)
    name = "quantile without the factor 1/2"
    return Mistake(name, 1.0, partial(draws, epsilon=2.0), partial(draws, epsilon=1.0), [pair])


def exact_count_under_removal(bound: ContributionBound) -> Mistake:
    """Noisy sum over the exact count, claimed for adding or removing a vehicle.

    Noise of scale U/eps hides the sum, but dividing it by the count shrinks it: tails tell how many
    vehicles there are. Sound only where counts are public.
    """

    def draws(samples: Samples, noise: NoiseSource) -> FloatArray:
        total = samples.contributions().total
        per_bin = np.bincount(samples.occupancy.bin_index, weights=total, minlength=samples.occupancy.bins)
        drawn = noise.discrete_laplace(np.full(samples.occupancy.bins, float(samples.bound.steps)))
        return np.asarray((per_bin + drawn) / samples.occupancy.samples_per_bin, dtype=np.float64)

    pair = Neighbours("a second vehicle or none", one_bin([[0], [bound.steps]], bound), one_bin([[0]], bound))
    return Mistake("exact count under add or remove", 1.0, draws, None, [pair])
