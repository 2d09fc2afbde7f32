"""Partial pooling where nothing about a vehicle is public, not even that it exists: what is asked, in order.

Neighbours differ by all records of one vehicle (ADD_OR_REMOVE_USER). Public are the places (H, the whole
study area), the bound U and the constants below; neither records nor vehicles of any place.

**Theorem (ADD_OR_REMOVE_USER).** Step k asks one vector a vehicle, a function of its own records and of
earlier noisy answers, brought into an l1 (pure) or l2 (rho) ball (``measurement.sets.AddRemoveBall``), with
noise that costs its share. Losses of the steps add up, adaptively chosen or not; shares are whole 10^-12 and
add up to the total. So every possible vehicle loses the total, whoever is there; what is computed from the
answers (``add_remove_map``) is free. *Proof.* ``measurement.sets`` and ``measurement.measure``. QED.

0. *Fleet and centre.* t_u = (mean speed - U/5)/(U/5), cut to -1..1, the mean over a vehicle's places (over
   its records, most of them where it is slow, it would lie below the map); the vector is ((1+t)/2, (1-t)/2),
   of l1 length 1. The sum of both answers says how many vehicles there are, their difference how fast.
1. *Weights.* w_uh = m_uh^p / |m_u^p|: one vector of length 1. W_h says how much is known of a place.
2. *Residuals,* in rounds: G_h w_uh (x_uh - K_h) for the newest map K, clipped to length C as one vector. The
   lift G is larger in places of little weight, and follows from the answers on weights (``add_remove_map``).
   Every round's C is 0.8 of the one before: the better the map, the shorter are residuals, and the noise.
3. *Length of residuals,* in pure epsilon: the logarithm to base 2 of how long the vector of step 2 is before
   it is clipped, over half of the centre, divided by LONG and cut to -1..1: one number a vehicle. What the
   clip leaves of a place's distance from the map follows from it; nothing is asked by it.
4. *Variance,* if asked for: the squares of a vehicle's records about the map, over what the map's level makes
   likely, less 1, cut to -1..1: one number a vehicle.
5. *Counts,* if asked for (``add_remove_counts``): how long vehicles' vectors are, then these.

A place is a hexagon or a zone, over all slots together, or, with ``separate_slots``, in one slot.
C and p grow with the fleet that the first answer tells of (``estimate_fleet``). Shares are 5, 16 and 79 %,
in pure epsilon 8, 26 and 63, and 3 % for the length; before that a variance takes 20 %, and before that
counts what they are given. Six rounds in rho; one in pure epsilon, where J of them cost sqrt(J) more noise.
Constants, in units of U where they are speeds, were chosen on days of Austin's buses (2015-03-07, 2016-11-24
to 27, 2017-03-16, 2017-03-21), unpaid: for these days nothing here is unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.binning.cells import parents_of
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.sets import AddRemoveBall, Step
from trafficdp.mechanisms.pooling.design import NORM, NoisySums, noise_for
from trafficdp.mechanisms.pooling.posterior import VariancePosterior, variance_posterior
from trafficdp.model import ContributionBound, NeighbouringRelation, resolution_of
from trafficdp.privacy.conversion import LEAST_SD
from trafficdp.privacy.loss import PICO, LossKind

RELATION = NeighbouringRelation.ADD_OR_REMOVE_USER
VARIANCE_SHARE = 20
"""Per cent of all but counts."""
FLEET_SHARE = {LossKind.PURE: 8, LossKind.ZCDP: 5}
"""Per cent of what means are given, as are the next."""
WEIGHT_SHARE = {LossKind.PURE: 26, LossKind.ZCDP: 16}
LENGTH_SHARE, LONG = 3, 1.5
"""The share of the length of residuals, and by how many times 2 it can be longer or shorter than c/2."""
COUNTS_SHARES = 10, 45
"""Per cent of the share of counts: lengths, vehicles; records have the rest."""
MOST_AN_ASKING = GRAINS**2 / (2 * LEAST_SD**2) * (1 - 1e-9)
"""Rho: with more its noise would have less than LEAST_SD grains (``measurement.sets``)."""
ROUNDS = 6
"""Rounds of residuals with Gaussian noise; with Laplace noise one."""
VARIANCE_SD, LEAST_VARIANCE, FEW_RECORDS = 0.5, 0.1, 1.5
"""The prior deviation of a, the least it counts as, and how many times further variances spread than with
many records, as nobody knows how many there are. The last was chosen on all days and cities but Warsaw."""


@dataclass(frozen=True)
class AddRemoveDesign(NoisySums):
    """The questions asked of all ``places`` (rising) where not even the presence of a vehicle is public.

    ``total`` is the whole loss in 10^-12 of ``kind``. ``separate_slots`` (slots,), rising, are the time
    slots measured each on its own; empty: all slots of a place together. ``counts_percent`` is
    the part of the loss spent on counts.
    Raises UsageError when there is no place, they are not in order, or the total is too small to share out.
    """

    places: npt.NDArray[np.uint64]
    bound: ContributionBound
    kind: LossKind
    total: int
    variance: bool
    separate_slots: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    counts_percent: int = 0
    relation = RELATION

    def __post_init__(self) -> None:
        if not len(self.places) or not bool(np.all(self.places[1:] > self.places[:-1])):
            raise UsageError("there is nothing to pool", expected="places in rising order, each once")
        if min(self.loss_shares) <= 0:
            raise UsageError("the budget is too small to be shared out", todo="ask for a larger one")

    @property
    def pure(self) -> bool:
        """Whether losses are pure epsilon, with Laplace noise; else rho, with Gaussian noise."""
        return self.kind is LossKind.PURE

    @property
    def norm(self) -> int:
        """The norm in which vehicles' vectors are clipped: 1 (l1) in pure epsilon, 2 (l2) in rho."""
        return NORM[self.kind]

    @property
    def upper(self) -> float:
        """U: the largest speed, in the unit of ``bound``."""
        return float(self.bound.upper)

    @property
    def size(self) -> int:
        """H: the number of places, or of (place, slot) bins where slots are measured separately."""
        return len(self.places) * max(1, len(self.separate_slots))

    def place_numbers(self, cell: npt.NDArray[np.uint64], slot: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the number 0..H-1 of every bin (``cell``, ``slot``), and whether the bin is measured at
        all.
        """
        at = np.minimum(np.searchsorted(self.places, cell), len(self.places) - 1).astype(np.int64)
        there = self.places[at] == cell
        if not len(self.separate_slots):
            return at, there
        slots = self.separate_slots
        when = np.minimum(np.searchsorted(slots, slot), len(slots) - 1).astype(np.int64)
        return at * len(slots) + when, there & (slots[when] == slot)

    @cached_property
    def cell(self) -> IntArray:
        """The position in ``places`` of each of the H measured sums, shape (H,)."""
        return np.repeat(np.arange(len(self.places)), max(1, len(self.separate_slots)))

    @cached_property
    def parent_number(self) -> IntArray:
        """A number for the H3 parent hexagon (in the same slot) of each of H places, shape (H,).

        Places of one parent are taken to have similar speeds. Zones and hexagons of resolution 0 have no
        parent, and each gets a number of its own.
        """
        finest = int(resolution_of(self.places).min())
        above = parents_of(self.places, finest - 1) if finest else self.places
        _, parent = np.unique(above, return_inverse=True)
        slots = max(1, len(self.separate_slots))
        return (parent.astype(np.int64)[:, None] * slots + np.arange(slots)).ravel()

    @property
    def rounds(self) -> int:
        """The number of rounds in which residual speeds are measured: 1 in pure epsilon, else ROUNDS."""
        return 1 if self.pure else ROUNDS

    @cached_property
    def loss_shares(self) -> tuple[int, ...]:
        """The privacy loss of every step in 10^-12, in order; they add up to the total.

        Fleet, weights, each round, length (pure epsilon only); then, where asked for, the variance and the
        three steps of counts.
        """
        counted = self.total * self.counts_percent // 100
        spread = (self.total - counted) * VARIANCE_SHARE // 100 if self.variance else 0
        means = self.total - spread - counted
        first = [means * share // 100 for share in (FLEET_SHARE[self.kind], WEIGHT_SHARE[self.kind])]
        length = [means * LENGTH_SHARE // 100] if self.pure else []
        left = means - sum(first) - sum(length)
        rounds = [left // self.rounds] * (self.rounds - 1)
        more = [*length, spread] if self.variance else length
        if self.counts_percent:
            own = [counted * share // 100 for share in COUNTS_SHARES]
            more += [*own, counted - sum(own)]
        return (*first, *rounds, left - sum(rounds), *more)

    @property
    def length_index(self) -> int:
        """The position in ``loss_shares`` of the step that measures the usual vector length.

        Only in pure epsilon.
        """
        return 2 + self.rounds

    @property
    def variance_index(self) -> int:
        """The position in ``loss_shares`` of the step that measures the variance.

        Those before it are for means.
        """
        return self.length_index + self.pure

    @property
    def counts_index(self) -> int:
        """The position in ``loss_shares`` of the first of the three steps that measure counts."""
        return self.variance_index + self.variance

    @property
    def lengths_bound(self) -> float:
        """The largest length of a vector of two numbers in 0..1: 2 in l1, sqrt(2) in l2."""
        return 2.0 if self.pure else 2.0**0.5

    def step(self, index: int, size: int, bound: float) -> Step:
        """Return step ``index`` of ``loss_shares``: ``size`` noisy sums of vehicles' vectors, clipped to
        ``bound``.
        """
        ball = AddRemoveBall(size, self.norm, bound)
        return Step(ball, noise_for(self.kind, self.relation, self.loss_shares[index], size))

    def sd(self, index: int, bound: float) -> float:
        """Return the noise standard deviation of step ``index`` of ``loss_shares``, in units of ``bound``."""
        return self.noise_sd(self.loss_shares[index], bound)

    def steps(self) -> tuple[Step, ...]:
        """Return all measurement steps.

        Their privacy losses do not depend on the clipping lengths used later. Raises UsageError for a total
        that is too large for Gaussian noise in whole numbers.
        """
        if not self.pure and max(self.loss_shares) > MOST_AN_ASKING * PICO:
            raise UsageError(
                "so much is asked for at once that Gaussian noise would be too little to account for",
                got=f"rho {max(self.loss_shares) / PICO:.4g} for one asking",
                expected=f"at most {MOST_AN_ASKING:.4g}",
                todo="ask for a smaller epsilon",
            )
        many = self.size
        found = [self.step(0, 2, 1.0), self.step(1, many, 1.0)]
        found += [self.step(2 + each, many, self.upper) for each in range(self.rounds)]
        found += [self.step(each, 1, 1.0) for each in range(len(found), self.counts_index)]
        if self.counts_percent:
            found.append(self.step(self.counts_index, 2, self.lengths_bound))
            found += [self.step(self.counts_index + each, many, 1.0) for each in (1, 2)]
        return tuple(found)

    def likely_variance(self, centre: float, mean: FloatArray) -> FloatArray:
        """Return the prior variance of speeds in each place, (U^2/30) (c/(U/5)) clip(mean/c, 0.2, 3)^(1/4).

        ``mean`` is the map of mean speeds, c the city's mean speed ``centre``, taken as at least U/15.
        """
        centre = max(centre, self.upper / 15)
        relative = np.clip(mean / centre, 0.2, 3.0) ** 0.25
        return np.asarray(self.upper**2 / 30 * (centre / (self.upper / 5)) * relative)

    def variances(
        self, ratio: float, vehicles: float, centre: float, mean: FloatArray, scale: float = 1.0
    ) -> VariancePosterior:
        """Return the posterior of each place's variance from the city's noisy ``ratio`` to what is likely.

        Each variance is a times ``likely_variance``; a has the prior N(1, 1/4), and ``ratio`` is its noisy
        measurement over ``vehicles``. ``centre`` is the city's mean speed, ``mean`` the map, and ``scale``
        how many times farther apart means lie than usual.
        """
        upper, prior = self.upper, VARIANCE_SD**2
        noise = (self.sd(self.variance_index, 1.0) / vehicles) ** 2
        city = max(1 + (ratio - 1) * prior / (prior + noise), LEAST_VARIANCE)
        return variance_posterior(
            city * self.likely_variance(centre, mean),
            float(np.sqrt(prior * noise / (prior + noise))) / city,
            np.full(len(mean), np.inf),
            mean / max(centre, upper / 15),
            (mean * (upper - mean), upper**2 / 4),
            FEW_RECORDS * max(scale, 1.0),
        )
