"""What partial pooling measures, and with which noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from trafficdp import model
from trafficdp.arrays import FloatArray, IntArray
from trafficdp.binning.cells import parents_of
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import Ball, Step
from trafficdp.privacy.loss import PICO, LossKind, round_up

# Noise for an asking: one vector a vehicle in a ball (``measurement.sets``), under either relation.
#
# Another vector of the same vehicle lies up to two bounds away, a vehicle that comes or goes moves the sums
# by one. So at the same loss adding or removing a vehicle needs half the noise of replacing its values.


BOUNDS_MOVED = {
    model.NeighbouringRelation.REPLACE_USER_VALUES: 2,
    model.NeighbouringRelation.ADD_OR_REMOVE_USER: 1,
}


NORM = {LossKind.PURE: 1, LossKind.ZCDP: 2}
"""Of the vehicles' vectors: Laplace noise for pure epsilon, else Gaussian."""


def noise_for(
    kind: LossKind, relation: model.NeighbouringRelation, pico: int, coordinates: int
) -> Laplace | Gaussian:
    """Return Laplace noise (pure epsilon) or Gaussian noise (rho) whose privacy loss is ``pico`` 10^-12.

    It is for sums over vehicles of vectors clipped to a ball, in ``coordinates`` coordinates; scales are in
    grains, the ball's bound / 2^20. Under ``relation`` a vehicle moves the sums by one bound (added or
    removed) or by two (values replaced).
    """
    move, loss = BOUNDS_MOVED[relation] * GRAINS, pico / PICO * (1 - 2.0**-40)
    if kind is LossKind.PURE:
        return Laplace(round_up(np.full(coordinates, move / loss)))
    return Gaussian(round_up(np.full(coordinates, move / np.sqrt(2 * loss))))


class NoisySums:
    """Noisy sums over vehicles of vectors clipped to a ball, at losses of ``kind``, under ``relation``."""

    kind: LossKind
    relation: ClassVar[model.NeighbouringRelation]

    def noise_sd(self, pico: int, bound: float) -> float:
        """Return the standard deviation of the noise on sums of vectors clipped to ``bound``, in its unit.

        ``pico`` is the privacy loss in 10^-12 of ``kind``.
        """
        law = noise_for(self.kind, self.relation, pico, 1)
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


class WeightedVehicleSums(NoisySums):
    """Weighted sums over vehicles where counts are public: R entries, each one vehicle's part of one sum."""

    counts: model.Counts
    relation = model.NeighbouringRelation.REPLACE_USER_VALUES

    @cached_property
    def bin_weights(self) -> sparse.csc_matrix:
        """The public weight of each of G bins in each of R entries, a sparse matrix, shape (R, G)."""
        raise NotImplementedError

    def pair_sums(self, values: FloatArray, factors: FloatArray) -> FloatArray:
        """Return, for each of R entries, the weighted sum of ``values`` times ``factors`` over the entry's
        bins.

        ``values`` (P,) has one number a (bin, vehicle) pair and may be private; ``factors`` one a bin, (G,),
        or several columns, (G, k): sums have the shape (R,) or (R, k).
        """
        rows = self.bin_weights
        return np.asarray(self.counts.matrix(rows.data * values, rows.indices, rows.shape[0]) @ factors)

    def step(self, support: EntryIndex, bound: float, low: FloatArray, high: FloatArray, pico: int) -> Step:
        """Return the measurement step that sums the vehicles' vectors, each clipped to length ``bound``.

        Entry e of a vector (as in ``support``) is clipped to -|``low``[e]|..|``high``[e]|, in whole grains of
        ``bound``, cut off toward 0. The noise costs at most ``pico`` 10^-12 of privacy loss.
        """
        ends = []
        for each in (low, high):
            grains = np.abs(each)
            grains /= bound
            grains *= GRAINS
            ends.append(np.minimum(grains, GRAINS, out=grains).astype(np.int64))
        below, above = ends
        np.negative(below, out=below)
        ball = Ball(support, NORM[self.kind], bound, below, above)
        return Step(ball, noise_for(self.kind, self.relation, pico, support.coordinates))


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
class Level(WeightedVehicleSums):
    """One level of noisy sums over ``places`` (sets of bins), at a loss of ``part`` 10^-12 of ``kind``.

    ``strength`` (r) says how much may be learnt of a cell. ``guessed`` is the share of the guessed variance
    between cells that lies between these places, 1 where there is one level alone.
    """

    counts: model.Counts
    bound: model.ContributionBound
    kind: LossKind
    places: model.Visits
    part: int
    strength: float
    weighs: model.Statistic = model.Statistic.MEAN
    guessed: float = 1.0

    @property
    def size(self) -> int:
        """C, the number of places (cells, coarser hexagons, or bins) of this level."""
        return len(self.places.cell)

    @cached_property
    def support(self) -> EntryIndex:
        """The E (place, vehicle) pairs in which the vehicle has records, from public counts."""
        return EntryIndex(self.places.user, self.places.place, self.counts.users, self.size)

    @cached_property
    def bin_weights(self) -> sparse.csc_matrix:
        """Records of each entry's vehicle in each bin (1 for a mean over vehicles), sparse, shape (E, G).

        An entry is a (place, vehicle) pair of ``support``; from public counts.
        """
        own = self.counts.count if self.weighs is model.Statistic.MEAN else np.ones_like(self.counts.count)
        return self.counts.matrix(own, self.places.of_pair, len(self.support.user))

    @cached_property
    def cell_sd(self) -> FloatArray:
        """Prior standard deviation of each place's mean about the map so far, shape (C,), from public counts.

        In the unit of speed, at a city level of U/5; larger for places with few vehicles.
        """
        many = np.bincount(self.support.coordinate, minlength=self.size) / 30
        sd = CELL_SD if self.weighs is model.Statistic.MEAN else VEHICLES_SD
        return np.asarray(self.guessed**0.5 * sd * float(self.bound.upper) * np.clip(many**-0.5, 0.3, 3.0))

    @cached_property
    def clip_bounds(self) -> tuple[float, ...]:
        """The length to which each vehicle's vector is clipped, one for each round of this level.

        One round in pure epsilon, else ROUNDS of falling bounds; vectors are residuals over the city's level.
        """
        first = 1.2 * float(self.guessed**0.5 * max(1.0, self.strength / THICK) ** 0.4)
        return tuple(first * NARROWER**each for each in range(1 if self.kind is LossKind.PURE else ROUNDS))

    @cached_property
    def kept_by_clipping(self) -> FloatArray:
        """The share of a place's deviation from the map that clipping is expected to leave, per round.

        Shape (rounds, C, len(DISTANCES)): for each of C places, at the deviations DISTANCES (in units of U).
        From counts, with other places deviating as their prior guesses.
        """
        user, place, norm = self.support.user, self.support.coordinate, NORM[self.kind]
        less, upper = 0.8 if self.kind is LossKind.PURE else 1.0, float(self.bound.upper)
        spread = (RECORD_SD * upper) ** 2 / self.weights.records
        usual = (less * self.weights.entry * np.sqrt(self.cell_sd[place] ** 2 + spread)) ** norm
        whole = np.bincount(user, usual, self.support.users)
        found = np.zeros((len(self.clip_bounds), self.size, len(DISTANCES)))
        for start in range(0, len(user), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            weight, at = self.weights.entry[part], place[part]
            others = np.maximum(whole[user[part]] - usual[part], 0.0)
            for number, distance in enumerate(DISTANCES * upper):
                own = (weight * np.sqrt(distance**2 + less**2 * spread[part])) ** norm
                length = np.maximum((others + own) ** (1 / norm), 1e-9)
                for of_round, bound in zip(found, self.clip_bounds, strict=True):
                    kept = sum(np.minimum(t, bound / length) / t for t in (0.6, 1.0, 1.6)) / 3
                    total = np.bincount(at - at[0], weight * kept)
                    of_round[at[0] : at[-1] + 1, number] += total
        return found / self.weights.place[:, None]

    @cached_property
    def weights(self) -> Weights:
        """Weights of vehicles in the noisy sums of places, from public counts.

        A vehicle's weight in a place follows from its share of the place's records, scaled so that its vector
        has expected length 1. In pure epsilon with few data the weights are also tuned to lower the posterior
        deviations.
        """
        user, place, users = self.support.user, self.support.coordinate, self.support.users
        records = np.asarray(self.bin_weights @ np.ones(self.counts.bins))
        whole: FloatArray = np.bincount(place, records, self.size).astype(np.float64)
        spread = (RECORD_SD * float(self.bound.upper)) ** 2
        expected = np.sqrt(self.cell_sd[place] ** 2 + spread / records)
        share = records / whole[place]
        if self.kind is LossKind.PURE:
            expected = 0.8 * expected
            part = share * expected
            part = part / np.bincount(user, part, users)[user]
            noise = self.noise_sd(self.part, self.clip_bounds[0]) ** 2
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


def _halves(cells: Level, *places: model.Visits) -> tuple[Level, ...]:
    """Both levels, for the part of ``cells``."""
    first = int(FIRST * cells.part)
    return tuple(
        replace(
            cells, places=each, part=part, strength=cells.strength * cells.size / len(each.cell), guessed=HALF
        )
        for each, part in zip(places, (first, cells.part - first), strict=True)
    )


def _above(cells: Level) -> model.Visits | None:
    """The finest hexagons above thin ``cells`` of r >= THIN, or else the coarsest that are several."""
    own, found = cells.places, None
    finest = int(model.resolution_of(own.cell).min()) if cells.strength < THIN else 0
    for resolution in reversed(range(finest)):
        above, of_cell = np.unique(parents_of(own.cell, resolution), return_inverse=True)
        if len(above) == 1:
            break
        of_cell = of_cell.ravel().astype(np.int64)
        place, user, of_entry = model.number_pairs(
            of_cell[own.place], own.user, len(above), cells.counts.users
        )
        found = model.Visits(above, of_cell[own.of_bin], place, user, of_entry[own.of_pair])
        if cells.strength * cells.size >= THIN * len(above):
            break
    return found


def _bins(cells: Level) -> model.Visits | None:
    """Every bin as a place of its own, where bins are thick and not cells themselves."""
    counts = cells.counts
    if counts.bins == cells.size or cells.strength * cells.size < THICK * counts.bins:
        return None
    bins, pairs = (np.arange(many, dtype=np.int64) for many in (counts.bins, counts.pairs))
    user = counts.user_index.astype(np.int64)
    return model.Visits(bins.astype(np.uint64), bins, counts.bin_index, user, pairs)


def around_zero(length: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
    """Return (half, half), so that the interval -half..half is at least as long as ``length``, elementwise.

    It exceeds ``length`` by two grains of ``bound`` and a rounding allowance. Of all intervals of that length
    that hold 0, none costs a vehicle more.
    """
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
class Design(WeightedVehicleSums):
    """What will be asked of ``counts``; ``total`` is the whole loss in 10^-12 of ``kind``.

    ``weighs``: whose cells its weights are for, the mean over records or that over vehicles.

    Raises UsageError when there is no bin, or the budget is too small to be shared out.
    """

    counts: model.Counts
    bound: model.ContributionBound
    kind: LossKind
    total: int
    statistics: tuple[model.Statistic, ...]
    weighs: model.Statistic = model.Statistic.MEAN
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
        over_vehicles = model.Statistic.VEHICLE_MEAN in self.statistics
        variance = model.Statistic.VARIANCE in self.statistics
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
    def for_vehicle_means(self) -> Design:
        """This design with the weights of a mean over vehicles instead of a mean over records."""
        return replace(self, weighs=model.Statistic.VEHICLE_MEAN)

    @cached_property
    def bin_sizes(self) -> IntArray:
        """Public number of records in every bin, or of vehicles for a mean over vehicles, shape (G,)."""
        counts = self.counts
        return counts.samples_per_bin if self.weighs is model.Statistic.MEAN else counts.users_per_bin

    @cached_property
    def covariates(self) -> FloatArray:
        """Covariates of the regression of bin means, shape (G, 2), from public counts.

        Column 0 is 1; column 1 is the logarithm of records per vehicle, centred and scaled to variance 1.
        """
        counts = self.counts
        weight = self.bin_weights.T @ np.ones(self.vehicles)
        log = np.log(counts.samples_per_bin / counts.users_per_bin)
        log = log - np.average(log, weights=weight)
        spread = np.sqrt(max(float(np.average(log**2, weights=weight)), 1e-12))
        return np.stack([np.ones(counts.bins), log / spread], axis=1)

    @cached_property
    def bin_weights(self) -> sparse.csc_matrix:
        """Weight of each of G bins in each vehicle's mean, sparse, (n, G); each vehicle's weights sum to 1.

        For the n vehicles with records; proportional to the vehicle's share of the bin's records.
        """
        counts = self.counts
        row = (np.cumsum(counts.bins_per_user > 0, dtype=np.int32) - np.int32(1))[counts.user_index]
        own = counts.count if self.weighs is model.Statistic.MEAN else np.ones_like(counts.count)
        share = own / counts.per_pair(self.bin_sizes)
        share /= np.bincount(row, share, self.vehicles)[row]
        return counts.matrix(share, row, self.vehicles)

    @cached_property
    def largest_moves(self) -> tuple[FloatArray, FloatArray]:
        """How much faster speeds move each vehicle's numbers for the two covariates: (upward, downward).

        Per unit of speed, shape (2 n,) each, from public counts: n numbers for column 0 of ``covariates``,
        then n for column 1.
        """
        up, down = (self.bin_weights @ np.maximum(side * self.covariates[:, 1], 0) for side in (1, -1))
        level = self.bin_weights @ np.ones(self.counts.bins)
        return np.concatenate([level, up]), np.concatenate([np.zeros_like(level), down])

    @cached_property
    def cells(self) -> Level:
        """The level whose places are the H3 cells, as if it were the only level to be measured."""
        part = self.parts.cells if self.weighs is model.Statistic.MEAN else self.parts.vehicles[-1]
        return Level(self.counts, self.bound, self.kind, self.counts.visits, part, self.strength, self.weighs)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels to be measured, in order: ``cells`` alone, or two levels that share its privacy loss.

        With few data coarser hexagons come before the cells; with many, single bins come after them.
        """
        cells = self.cells
        above, bins = _above(cells), _bins(cells)
        if above is not None:
            return _halves(cells, above, cells.places)
        return (cells,) if bins is None else _halves(cells, cells.places, bins)

    @cached_property
    def variance_cells(self) -> Level:
        """The level of H3 cells that is measured for the variance; only where data is ``thick``."""
        return replace(self.cells, part=self.parts.variance[1])

    def vehicle_entries(self, coordinates: int) -> EntryIndex:
        """Return one entry for each pair of a coordinate (0..``coordinates`` - 1) and a vehicle with
        records.
        """
        user = np.flatnonzero(self.counts.bins_per_user > 0).astype(np.int64)
        place = np.repeat(np.arange(coordinates), len(user))
        return EntryIndex(np.tile(user, coordinates), place, self.counts.users, coordinates)

    def most_expensive_steps(self) -> tuple[Step, ...]:
        """Return every measurement step at its largest possible privacy loss, from public counts alone.

        Clipping bounds that follow from earlier noisy answers only lower the loss of a later step.
        """
        upper, one = float(self.bound.upper), self.vehicle_entries(1)
        half = np.full(self.vehicles, upper / 2)
        first = self.step(one, upper / 2, half, half, self.parts.city)
        slope, (up, down) = SLOPE_BOUND * upper, self.largest_moves
        second = self.step(
            self.vehicle_entries(2),
            slope,
            *around_zero((up + down) * upper, slope),
            self.parts.dwell,
        )
        found = [first, second]
        over_vehicles = model.Statistic.VEHICLE_MEAN in self.statistics
        for design in (self, self.for_vehicle_means) if over_vehicles else (self,):
            if design is not self:
                whole = np.full(self.vehicles, slope)
                found.append(self.step(one, slope, whole, whole, self.parts.vehicles[0]))
            for level in design.levels if design is self or self.thick else ():
                long, part = level.weights.entry * upper / LEAST_UNIT, level.part // len(level.clip_bounds)
                for bound in level.clip_bounds:
                    found.append(level.step(level.support, bound, *around_zero(long, bound), part))
        if model.Statistic.VARIANCE in self.statistics:
            ends = np.ones(self.vehicles)
            found.append(self.step(one, 1.0, ends, ends, self.parts.variance[0]))
        if model.Statistic.VARIANCE in self.statistics and self.thick:
            cells = self.variance_cells
            far = np.full(len(cells.support.user), cells.clip_bounds[0])
            found.append(cells.step(cells.support, cells.clip_bounds[0], far, far, cells.part))
        return tuple(found)
