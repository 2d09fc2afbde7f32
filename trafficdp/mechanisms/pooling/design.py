"""What partial pooling measures, and with which noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.binning.cells import parents_of
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import Ball, Step
from trafficdp.model import (
    ContributionBound,
    Counts,
    NeighbouringRelation,
    Statistic,
    Visits,
    number_pairs,
    resolution_of,
)
from trafficdp.privacy.loss import PICO, LossKind, round_up

# Noise for an asking: one vector a vehicle in a ball (``measurement.sets``), under either relation.
#
# Another vector of the same vehicle lies up to two bounds away, a vehicle that comes or goes moves the sums
# by one. So at the same loss adding or removing a vehicle needs half the noise of replacing its values.


BOUNDS_MOVED = {NeighbouringRelation.REPLACE_USER_VALUES: 2, NeighbouringRelation.ADD_OR_REMOVE_USER: 1}


NORM = {LossKind.PURE: 1, LossKind.ZCDP: 2}
"""Of the vehicles' vectors: Laplace noise for pure epsilon, else Gaussian."""


def noise_for(
    kind: LossKind, relation: NeighbouringRelation, part: int, coordinates: int
) -> Laplace | Gaussian:
    """Return noise, in grains, at which the largest move of one vehicle costs ``part`` 10^-12 and no more."""
    move, loss = BOUNDS_MOVED[relation] * GRAINS, part / PICO * (1 - 2.0**-40)
    if kind is LossKind.PURE:
        return Laplace(round_up(np.full(coordinates, move / loss)))
    return Gaussian(round_up(np.full(coordinates, move / np.sqrt(2 * loss))))


def noise_sd(kind: LossKind, relation: NeighbouringRelation, part: int, bound: float) -> float:
    """Return the standard deviation of that noise, in the unit of ``bound``."""
    law = noise_for(kind, relation, part, 1)
    grains = np.sqrt(2) * law.scale[0] if isinstance(law, Laplace) else law.sd[0]
    return float(grains * bound / GRAINS)


# All that counts decide before a speed is read: weights of vehicles, what is asked, at which price.
#
# Partial pooling [N] asks three times, each time for one vector a vehicle, clipped as a whole
# (``measurement.sets``); everything else is a function of counts or of earlier noisy numbers.
#
# A. Where the city lies. A vehicle's number is the average of its bins' means x_ug with weights f1_ug,
#    proportional to its share of the bin's records, m_ug / N_g, and adding up to 1. No clipping: all lie in
#    [0, U]. c0 is the posterior mean under N(U/5, (U/6)^2).
# B. Level and slope on dwell: sum_g f1_ug (x_ug - c0) X_g, X_g = (1, log(N_g / L_g)) centred and scaled so
# that
#    sum W X X' = n I. Many records a vehicle mean slow traffic: this covariate is the largest single gain.
# C. Cells (below): sum over the bins of cell c of f_uc (m_ug / m_uc)(x_ug - base_g) / s, where base_g is
#    the map so far and s its level over U/5. Where cells are thin coarser hexagons are asked for before them,
#    where bins are thick these after them.
#
# A mean over vehicles leans on the map of means, as it differs little from it: one number more, by how much
# vehicles' own means lie above the map on average (weights as if every vehicle had one record in every bin,
# m_ug = 1), and where data is thick how far cells lie from that, asked for as in C.
#
# **Loss.** In each asking a vehicle loses at most the asking's share of the budget, and at most that times
# the lengths of its numbers' intervals over twice the bound: c0 and base_g are kept in [0, U], so that every
# interval contains 0 (``measurement.sets``).
#
# Constants, in units of U: level 1/5, sd of single records 1/5, bound of B 1/5; those of C stand below.
# They were chosen on ten days of Austin's buses (2015-03-07 to 2017-03-21); for these days nothing below is
# unbiased.
#
# # C, for the places of one level: cells, coarser hexagons, or bins (``Level``)
#
# **Levels.** r = n epsilon / C says how much can be learnt of C places (zCDP: n sqrt(2 rho) / (0.22 C)).
# Where cells have r >= 6, they alone are asked for. Where r is less, their ancestors come first, the finest
# of r >= 6 or else the coarsest of more than one; where bins themselves have r >= 12 (slots of a large
# fleet), cells come first and bins second. Of two levels the first is given 0.3 of C's part; each takes half
# of the guessed variance (sd times sqrt 1/2) and a bound T of sqrt 1/2 as much; the second asks about the map
# that the first left.
#
# **Weights.** f_uc follow the shares of records m_uc / N_c, every vehicle rescaled to expected l1 (zCDP: l2)
# length 1; where r < 6, ten multiplicative steps move them to where they earn most.
#
# T = 1.2 max(1, r/12)^0.4 without unit, in rho 0.7 of it in every round after the first of four; a cell of 30
# vehicles lies U/15 from the regression, in sd. Constants were chosen on days of Austin's buses: 2015-03-07,
# 2016-11-24 to -27, 2017-03-16, 2017-03-21 and more.


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
RELATION = NeighbouringRelation.REPLACE_USER_VALUES
DISTANCES = np.array([0.0, 1.5, 3.0, 5.0, 8.0, 12.0, 18.0, 26.0]) / 30
"""Of U: the distances |D| / s for which it is tabled what the bounds leave."""
RECORD_SD = 1 / 5
CELL_SD, VEHICLES_SD = 1 / 15, 1 / 30
"""Of U: how far the mean of a cell of 30 vehicles may be from the map so far, and how far the distance of its
mean over vehicles from the city's, whose own sd is half of it (chosen on 2016-11-24 to -27)."""
LEAST_UNIT = 1 / 3
"""s, the city's level over U/5, counts as at least this: the charge of asking C is computed with it."""
THIN, MULTIPLICATIVE_STEPS = 6.0, 10
THICK = 12.0
"""From this r on bins are asked for, and variances and means over vehicles not for the city alone."""
ROUNDS, NARROWER = 4, 0.7
"""Of Gaussian noise; T of a round over that of the one before: residuals about a better map are shorter. The
second was chosen on 2015-03-07, 2016-11-24 to -27, 2017-03-16, 2017-03-21 and more."""
AT_ONCE = 1 << 15
"""Entries that are worked on together: they stay in the processor's cache."""
FIRST, HALF = 0.3, 0.5
"""Of two levels: what the first is given, and the part of the guessed variance that each takes."""


class AskingOfCounts:
    """A question to the vehicles when counts are public: R entries, each a vehicle's share in one sum."""

    counts: Counts
    kind: LossKind

    @cached_property
    def by_bin(self) -> sparse.csc_matrix:
        """The weight of every bin in each entry, sparse, shape (R, G), from counts."""
        raise NotImplementedError

    def of_pairs(self, value: FloatArray, of_bins: FloatArray) -> FloatArray:
        """Return sums over an entry's pairs of ``value`` (P,) times ``of_bins`` (G,) by weights, (R,)."""
        rows = self.by_bin
        return np.asarray(self.counts.matrix(rows.data * value, rows.indices, rows.shape[0]) @ of_bins)

    def step(self, support: EntryIndex, bound: float, low: FloatArray, high: FloatArray, part: int) -> Step:
        """Return the asking of vectors of at most ``bound`` with entries in ``low``..``high`` (E,), around 0.

        What lies beyond the bound is of no use and not promised.
        """
        ends = [np.minimum(np.abs(each) / bound * GRAINS, GRAINS).astype(np.int64) for each in (low, high)]
        ball = Ball(support, NORM[self.kind], bound, -ends[0], ends[1])
        return Step(ball, noise_for(self.kind, RELATION, part, support.coordinates))


class Weights(NamedTuple):
    """How much vehicles weigh in the sums of a level's places, by counts."""

    records: FloatArray
    """m_uc of every entry, shape (E,)."""
    entry: FloatArray
    """f_uc of every entry, shape (E,): expected length of a vehicle's vector 1."""
    place: FloatArray
    """e_c, the sum of the vehicles' weights, shape (C,)."""
    sampling: FloatArray
    """q_c: what a place's weighted mean is off its records' mean, a variance, shape (C,)."""


@dataclass(frozen=True)
class Level(AskingOfCounts):
    """One level of noisy sums over ``places`` (sets of bins), at a loss of ``part`` 10^-12 of ``kind``.

    ``strength`` (r) says how much may be learnt of a cell. ``guessed`` is the share of the guessed variance
    between cells that lies between these places, 1 where there is one level alone.
    """

    counts: Counts
    bound: ContributionBound
    kind: LossKind
    places: Visits
    part: int
    strength: float
    weighs: Statistic = Statistic.MEAN
    guessed: float = 1.0

    @property
    def size(self) -> int:
        """C, the number of places."""
        return len(self.places.cell)

    @cached_property
    def support(self) -> EntryIndex:
        """Which vehicle was in which place: E entries."""
        return EntryIndex(self.places.user, self.places.place, self.counts.users, self.size)

    @cached_property
    def by_bin(self) -> sparse.csc_matrix:
        """Records of each entry's vehicle in each bin (1 for a mean over vehicles), sparse, shape (E, G)."""
        own = self.counts.count if self.weighs is Statistic.MEAN else np.ones_like(self.counts.count)
        return self.counts.matrix(own.astype(np.float64), self.places.of_pair, len(self.support.user))

    @cached_property
    def cell_sd(self) -> FloatArray:
        """The prior standard deviation of places about the map so far, shape (C,), in the unit of answers.

        A guess from public counts; larger for places with few vehicles.
        """
        many = np.bincount(self.support.coordinate, minlength=self.size) / 30
        sd = CELL_SD if self.weighs is Statistic.MEAN else VEHICLES_SD
        return np.asarray(self.guessed**0.5 * sd * float(self.bound.upper) * np.clip(many**-0.5, 0.3, 3.0))

    @cached_property
    def reach(self) -> tuple[float, ...]:
        """The clipping bound T of a vehicle's vector, in the unit of answers; pure epsilon has one round."""
        first = 1.2 * float(self.guessed**0.5 * max(1.0, self.strength / THICK) ** 0.4)
        return tuple(first * NARROWER**each for each in range(1 if self.kind is LossKind.PURE else ROUNDS))

    @cached_property
    def left_by_bounds(self) -> FloatArray:
        """A_j: the share of a place's distance that the bound of a round leaves, by DISTANCES.

        Shape (rounds, C, len(DISTANCES)), from counts, other places as far off as guessed.
        """
        user, place, norm = self.support.user, self.support.coordinate, NORM[self.kind]
        less, upper = 0.8 if self.kind is LossKind.PURE else 1.0, float(self.bound.upper)
        spread = (RECORD_SD * upper) ** 2 / self.weights.records
        usual = (less * self.weights.entry * np.sqrt(self.cell_sd[place] ** 2 + spread)) ** norm
        whole = np.bincount(user, usual, self.support.users)
        found = np.zeros((len(self.reach), self.size, len(DISTANCES)))
        for start in range(0, len(user), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            weight, at = self.weights.entry[part], place[part]
            others = np.maximum(whole[user[part]] - usual[part], 0.0)
            for number, distance in enumerate(DISTANCES * upper):
                own = (weight * np.sqrt(distance**2 + less**2 * spread[part])) ** norm
                length = np.maximum((others + own) ** (1 / norm), 1e-9)
                for of_round, bound in zip(found, self.reach, strict=True):
                    kept = sum(np.minimum(t, bound / length) / t for t in (0.6, 1.0, 1.6)) / 3
                    total = np.bincount(at - at[0], weight * kept)
                    of_round[at[0] : at[-1] + 1, number] += total
        return found / self.weights.place[:, None]

    @cached_property
    def weights(self) -> Weights:
        """The weights of vehicles in the noisy sums, from counts: arrays over entries (E,) and places (C,).

        A vehicle's weight follows from its share of the place's records, scaled so that its vector has
        expected length 1. In pure epsilon with few data the weights are also tuned to lower the posterior
        deviations.
        """
        user, place, users = self.support.user, self.support.coordinate, self.support.users
        records = np.asarray(self.by_bin @ np.ones(self.counts.bins))
        whole: FloatArray = np.bincount(place, records, self.size).astype(np.float64)
        spread = (RECORD_SD * float(self.bound.upper)) ** 2
        expected = np.sqrt(self.cell_sd[place] ** 2 + spread / records)
        share = records / whole[place]
        if self.kind is LossKind.PURE:
            expected = 0.8 * expected
            part = share * expected
            part = part / np.bincount(user, part, users)[user]
            noise = noise_sd(self.kind, RELATION, self.part, self.reach[0]) ** 2
            bins: FloatArray = np.bincount(self.places.of_bin, minlength=self.size).astype(np.float64)
            for _ in range(MULTIPLICATIVE_STEPS if self.strength < THIN else 0):
                gain = self._gain(part / expected, records, noise, bins, spread) / expected
                part = part * np.sqrt(np.maximum(gain, 1e-30))
                part = np.maximum(part / np.bincount(user, part, users)[user], 1e-12)
                part = part / np.bincount(user, part, users)[user]
            weight = part / expected
        else:
            weight = share / np.sqrt(np.bincount(user, (share * expected) ** 2, users))[user]
        total = np.maximum(np.bincount(place, weight, self.size), 1e-9)
        squares = np.bincount(place, weight**2 / records, self.size) / total**2
        sampling = np.maximum((squares - 1 / whole) * spread, 1e-3)
        return Weights(records, weight, total, sampling)

    def _gain(
        self, weight: FloatArray, records: FloatArray, noise: float, bins: FloatArray, spread: float
    ) -> FloatArray:
        """The fall of sum B_c (posterior sd)_c for a little more of every weight, shape (E,)."""
        place = self.support.coordinate
        total = np.bincount(place, weight, self.size) + 1e-9
        both = noise + np.bincount(place, weight**2 * spread / records, self.size)
        left = np.maximum(both / total**2 - spread / np.bincount(place, records, self.size), 1e-6)
        prior = self.cell_sd**2
        worth = bins * prior**1.5 / np.sqrt(left) / (prior + left) ** 1.5
        slope = (both / total**3)[place] - weight * spread / records / total[place] ** 2
        return np.asarray(worth[place] * slope)


def _halves(cells: Level, *places: Visits) -> tuple[Level, ...]:
    """Both levels, for the part of ``cells``."""
    first = int(FIRST * cells.part)
    return tuple(
        replace(
            cells, places=each, part=part, strength=cells.strength * cells.size / len(each.cell), guessed=HALF
        )
        for each, part in zip(places, (first, cells.part - first), strict=True)
    )


def _above(cells: Level) -> Visits | None:
    """The finest hexagons above thin ``cells`` of r >= THIN, or else the coarsest that are several."""
    own, found = cells.places, None
    finest = int(resolution_of(own.cell).min()) if cells.strength < THIN else 0
    for resolution in reversed(range(finest)):
        above, of_cell = np.unique(parents_of(own.cell, resolution), return_inverse=True)
        if len(above) == 1:
            break
        of_cell = of_cell.ravel().astype(np.int64)
        place, user, of_entry = number_pairs(of_cell[own.place], own.user, len(above), cells.counts.users)
        found = Visits(above, of_cell[own.of_bin], place, user, of_entry[own.of_pair])
        if cells.strength * cells.size >= THIN * len(above):
            break
    return found


def _bins(cells: Level) -> Visits | None:
    """Every bin as a place of its own, where bins are thick and not cells themselves."""
    counts = cells.counts
    if counts.bins == cells.size or cells.strength * cells.size < THICK * counts.bins:
        return None
    bins, pairs = (np.arange(many, dtype=np.int64) for many in (counts.bins, counts.pairs))
    return Visits(bins.astype(np.uint64), bins, counts.bin_index, counts.user_index, pairs)


def around(length: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
    """Return an interval that is at least as long, in grains, as any of this length that holds 0."""
    half = length / 2 * (1 + 2.0**-30) + bound / GRAINS
    return half, half


LEVEL = SLOPE_BOUND = 1 / 5
VARIANCE_SHARE = 0.3
VEHICLES_SHARE, THICK_VEHICLES_SHARE = 0.1, 0.25
"""Of what means are given: for the distance of the mean over vehicles, and where it is asked for in cells.
Chosen by looking at 2016-11-24 to -27 in Austin."""


class Parts(NamedTuple):
    """Of a loss, 10^-12: for A, B and C, those of a mean over vehicles, those of a variance.

    Each of the last two has one number, and one for cells where data is thick; none where it is not asked.
    """

    city: int
    dwell: int
    cells: int
    vehicles: tuple[int, ...]
    variance: tuple[int, ...]


@dataclass(frozen=True)
class Design(AskingOfCounts):
    """What will be asked of ``counts``; ``total`` is the whole loss in 10^-12 of ``kind``.

    ``weighs``: whose cells its weights are for, the mean over records or that over vehicles.

    Raises UsageError when there is no bin, or the budget is too small to be shared out.
    """

    counts: Counts
    bound: ContributionBound
    kind: LossKind
    total: int
    statistics: tuple[Statistic, ...]
    weighs: Statistic = Statistic.MEAN
    vehicles: int = field(init=False)
    """n."""
    strength: float = field(init=False)
    """r: how much may be learnt of a cell."""
    thick: bool = field(init=False)
    """Whether cells are asked for beyond those of means."""
    parts: Parts = field(init=False)
    """Shares of the total."""

    def __post_init__(self) -> None:
        refused = UsageError(
            "there is nothing to pool", got=f"{self.counts.bins} bins", todo="ask for a larger budget"
        )
        if not self.counts.bins:
            raise refused
        vehicles = int(np.count_nonzero(self.counts.bins_per_user))
        over_vehicles = Statistic.VEHICLE_MEAN in self.statistics
        variance = Statistic.VARIANCE in self.statistics
        # what is given to means of either kind
        learnt = means = int(self.total * (1 - VARIANCE_SHARE)) if variance else self.total
        pure, loss = self.kind is LossKind.PURE, learnt / PICO
        rate = loss if pure else (2 * loss) ** 0.5 / 0.22
        strength = vehicles * rate / len(self.counts.visits.cell)
        thick = strength >= THICK
        if over_vehicles:
            means = int(means * (1 - (THICK_VEHICLES_SHARE if thick else VEHICLES_SHARE)))
        first, second = 0.1 * means, 0.25 * means
        if pure:
            # the noise of the city and of dwell falls with n
            first = min(0.4 * means, max(min(first, 60 * PICO / vehicles), 36 * PICO / vehicles))
            second = min(second, 60 * PICO / vehicles)
        further = []
        for asked, rest in ((over_vehicles, learnt - means), (variance, self.total - learnt)):
            level = int(0.3 * rest) if thick else rest
            further.append((level, rest - level)[: (1 + thick) * asked])
        parts = Parts(int(first), int(second), means - int(first) - int(second), *further)
        if min((*parts[:3], *parts.vehicles, *parts.variance)) <= 0:
            raise refused
        of_counts = {"vehicles": vehicles, "strength": strength, "thick": thick, "parts": parts}
        for name, value in of_counts.items():
            object.__setattr__(self, name, value)

    @cached_property
    def by_vehicle(self) -> Design:
        """This design with the weights of a mean over vehicles."""
        return replace(self, weighs=Statistic.VEHICLE_MEAN)

    @cached_property
    def per_bin(self) -> IntArray:
        """Records of every bin, or vehicles for a mean over vehicles, shape (G,); from counts."""
        counts = self.counts
        return counts.samples_per_bin if self.weighs is Statistic.MEAN else counts.users_per_bin

    @cached_property
    def dwell(self) -> FloatArray:
        """X of every bin, shape (G, 2): 1, and the centred and scaled logarithm of records a vehicle."""
        counts = self.counts
        weight = np.bincount(counts.bin_index, self.by_bin.data, counts.bins)
        log = np.log(counts.samples_per_bin / counts.users_per_bin)
        log = log - np.average(log, weights=weight)
        spread = np.sqrt(max(float(np.average(log**2, weights=weight)), 1e-12))
        return np.stack([np.ones(counts.bins), log / spread], axis=1)

    @cached_property
    def by_bin(self) -> sparse.csc_matrix:
        """f1_ug, shape (n, G), of the vehicles that are anywhere: each one's add up to 1."""
        counts = self.counts
        row = (np.cumsum(counts.bins_per_user > 0, dtype=np.int32) - np.int32(1))[counts.user_index]
        own = counts.count if self.weighs is Statistic.MEAN else np.ones_like(counts.count)
        share = own / self.per_bin[counts.bin_index]
        return counts.matrix(share / np.bincount(row, share, self.vehicles)[row], row, self.vehicles)

    @cached_property
    def lean(self) -> tuple[FloatArray, FloatArray]:
        """How far a faster record moves level and slope, upwards and downwards: shape (2 n,) each."""
        up, down = (self.by_bin @ np.maximum(side * self.dwell[:, 1], 0) for side in (1, -1))
        level = self.by_bin @ np.ones(self.counts.bins)
        return np.concatenate([level, up]), np.concatenate([np.zeros_like(level), down])

    @cached_property
    def cells(self) -> Level:
        """The level whose places are the cells, as if no other level were measured."""
        part = self.parts.cells if self.weighs is Statistic.MEAN else self.parts.vehicles[-1]
        return Level(self.counts, self.bound, self.kind, self.counts.visits, part, self.strength, self.weighs)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels measured for cells, in order: ``cells`` alone, or two levels that share its loss."""
        cells = self.cells
        above, bins = _above(cells), _bins(cells)
        if above is not None:
            return _halves(cells, above, cells.places)
        return (cells,) if bins is None else _halves(cells, cells.places, bins)

    @cached_property
    def variance_cells(self) -> Level:
        """The level of cells for the variance; only for a ``thick`` design."""
        return replace(self.cells, part=self.parts.variance[1])

    def everyone(self, coordinates: int) -> EntryIndex:
        """Return one entry for each vehicle with records and each of ``coordinates``, vehicles in order."""
        user = np.flatnonzero(self.counts.bins_per_user > 0).astype(np.int64)
        place = np.repeat(np.arange(coordinates), len(user))
        return EntryIndex(np.tile(user, coordinates), place, self.counts.users, coordinates)

    def dearest_steps(self) -> tuple[Step, ...]:
        """Return every measurement step at its largest possible loss, from counts alone.

        Clipping bounds that follow from earlier noisy answers only lower the loss of a later step.
        """
        upper, one = float(self.bound.upper), self.everyone(1)
        half = np.full(self.vehicles, upper / 2)
        first = self.step(one, upper / 2, half, half, self.parts.city)
        slope, (up, down) = SLOPE_BOUND * upper, self.lean
        second = self.step(self.everyone(2), slope, *around((up + down) * upper, slope), self.parts.dwell)
        found = [first, second]
        over_vehicles = Statistic.VEHICLE_MEAN in self.statistics
        for design in (self, self.by_vehicle) if over_vehicles else (self,):
            if design is not self:
                whole = np.full(self.vehicles, slope)
                found.append(self.step(one, slope, whole, whole, self.parts.vehicles[0]))
            for level in design.levels if design is self or self.thick else ():
                long, part = level.weights.entry * upper / LEAST_UNIT, level.part // len(level.reach)
                for bound in level.reach:
                    found.append(level.step(level.support, bound, *around(long, bound), part))
        if Statistic.VARIANCE in self.statistics:
            ends = np.ones(self.vehicles)
            found.append(self.step(one, 1.0, ends, ends, self.parts.variance[0]))
        if Statistic.VARIANCE in self.statistics and self.thick:
            cells = self.variance_cells
            far = np.full(len(cells.support.user), cells.reach[0])
            found.append(cells.step(cells.support, cells.reach[0], far, far, cells.part))
        return tuple(found)
