"""All that counts decide before a speed is read: weights of vehicles, what is asked, at which price.

Partial pooling [N] asks three times, each time for one vector a vehicle, clipped as a whole
(``measurement.sets``); everything else is a function of counts or of earlier noisy numbers.

A. Where the city lies. A vehicle's number is the average of its bins' means x_ug with weights f1_ug,
   proportional to its share of the bin's records, m_ug / N_g, and adding up to 1. No clipping: all lie in
   [0, U]. c0 is the posterior mean under N(U/5, (U/6)^2).
B. Level and slope on dwell: sum_g f1_ug (x_ug - c0) X_g, X_g = (1, log(N_g / L_g)) centred and scaled so that
   sum W X X' = n I. Many records a vehicle mean slow traffic: this covariate is the largest single gain.
C. Cells (``level``): sum over the bins of cell c of f_uc (m_ug / m_uc)(x_ug - base_g) / s, where base_g is
   the map so far and s its level over U/5. Where cells are thin coarser hexagons are asked for before them,
   where bins are thick these after them.

A mean over vehicles leans on the map of means, as it differs little from it: one number more, by how much
vehicles' own means lie above the map on average (weights as if every vehicle had one record in every bin,
m_ug = 1), and where data is thick how far cells lie from that, asked for as in C.

**Loss.** In each asking a vehicle loses at most the asking's share of the budget, and at most that times the
lengths of its numbers' intervals over twice the bound: c0 and base_g are kept in [0, U], so that every
interval contains 0 (``measurement.sets``).

Constants, in units of U: level 1/5, sd of single records 1/5, bound of B 1/5; those of C stand in ``level``.
They were chosen on ten days of Austin's buses (2015-03-07 to 2017-03-21); for these days nothing below is
unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Support
from trafficdp.measurement.measure import Step
from trafficdp.mechanisms.pooling.level import THICK, AskingOfCounts, Level, around, levels_of
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.loss import PICO, LossKind

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LEVEL = SLOPE_BOUND = 1 / 5
VARIANCE_SHARE = 0.3
VEHICLES_SHARE, THICK_VEHICLES_SHARE = 0.1, 0.25
"""Of what means are given: for the distance of the mean over vehicles, and where it is asked for in cells.
Chosen by looking at 2016-11-24 to -27 in Austin."""


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

    def __post_init__(self) -> None:
        if not self.counts.bins or min(self.parts) <= 0:
            raise UsageError(
                "there is nothing to pool", got=f"{self.counts.bins} bins", todo="ask for a larger budget"
            )

    @property
    def variance(self) -> bool:
        """Whether a variance is asked for."""
        return Statistic.VARIANCE in self.statistics

    @property
    def over_vehicles(self) -> bool:
        """Whether a mean over vehicles is asked for."""
        return Statistic.VEHICLE_MEAN in self.statistics

    @cached_property
    def by_vehicle(self) -> Design:
        """This design with the weights of a mean over vehicles."""
        return replace(self, weighs=Statistic.VEHICLE_MEAN)

    @cached_property
    def count(self) -> IntArray:
        """m_ug of every pair, shape (P,); 1 for a mean over vehicles."""
        own = self.counts.count
        return own if self.weighs is Statistic.MEAN else np.ones_like(own)

    @cached_property
    def per_bin(self) -> IntArray:
        """Their sum in every bin, shape (G,)."""
        counts = self.counts
        return counts.samples_per_bin if self.weighs is Statistic.MEAN else counts.users_per_bin

    @cached_property
    def row(self) -> IntArray:
        """The number 0..n-1 of every pair's vehicle, among those that are anywhere, shape (P,)."""
        found: IntArray = np.cumsum(self.counts.bins_per_user > 0) - 1
        return found[self.counts.user_index]

    @cached_property
    def vehicles(self) -> int:
        """n."""
        return int(np.count_nonzero(self.counts.bins_per_user))

    @cached_property
    def strength(self) -> float:
        """r: how much may be learnt of a cell."""
        loss = self.learnt / PICO
        return (
            self.vehicles * (loss if self.pure else (2 * loss) ** 0.5 / 0.22) / len(self.counts.visits.cell)
        )

    @property
    def learnt(self) -> int:
        """What is given to means of either kind, 10^-12."""
        return int(self.total * (1 - VARIANCE_SHARE)) if self.variance else self.total

    @property
    def means(self) -> int:
        """What the map of means is given, 10^-12: A, B and C."""
        if not self.over_vehicles:
            return self.learnt
        return int(self.learnt * (1 - (THICK_VEHICLES_SHARE if self.thick else VEHICLES_SHARE)))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Shares of the total, 10^-12: A, B, C, those of a mean over vehicles, those of a variance.

        Each of the last two has one number, and cells where data is thick.

        In pure epsilon A and B take less where there are many vehicles: their noise falls with n.
        """
        means = self.means
        first, second = 0.1 * means, 0.25 * means
        if self.pure:
            first = min(0.4 * means, max(min(first, 60 * PICO / self.vehicles), 36 * PICO / self.vehicles))
            second = min(second, 60 * PICO / self.vehicles)
        found = [int(first), int(second), means - int(first) - int(second)]
        for asked, rest in (
            (self.over_vehicles, self.learnt - means),
            (self.variance, self.total - self.learnt),
        ):
            level = int(0.3 * rest) if self.thick else rest
            found += [level, rest - level][: (1 + self.thick) * asked]
        return tuple(found)

    @property
    def vehicles_parts(self) -> tuple[int, ...]:
        """Those of a mean over vehicles."""
        return self.parts[3 : 3 + (1 + self.thick) * self.over_vehicles]

    @property
    def variance_parts(self) -> tuple[int, ...]:
        """Those of the variance."""
        return self.parts[3 + len(self.vehicles_parts) :]

    @property
    def thick(self) -> bool:
        """Whether cells are asked for beyond those of means."""
        return self.strength >= THICK

    @cached_property
    def share(self) -> FloatArray:
        """f1_ug of every pair, shape (P,): a vehicle's add up to 1."""
        share = self.count / self.per_bin[self.counts.bin_index]
        return np.asarray(share / np.bincount(self.row, share, self.vehicles)[self.row])

    @cached_property
    def dwell(self) -> FloatArray:
        """X of every bin, shape (G, 2): 1, and the centred and scaled logarithm of records a vehicle."""
        counts = self.counts
        weight = np.bincount(counts.bin_index, self.share, counts.bins)
        log = np.log(counts.samples_per_bin / counts.users_per_bin)
        log = log - np.average(log, weights=weight)
        spread = np.sqrt(max(float(np.average(log**2, weights=weight)), 1e-12))
        return np.stack([np.ones(counts.bins), log / spread], axis=1)

    def of_vehicles(self, value: FloatArray, dwell: FloatArray) -> FloatArray:
        """Return sums of ``value`` (P,) over a vehicle, and of it times ``dwell`` (G,), shape (2 n,)."""
        both = value, value * dwell[self.counts.bin_index]
        return np.concatenate([np.bincount(self.row, each, self.vehicles) for each in both])

    @cached_property
    def lean(self) -> tuple[FloatArray, FloatArray]:
        """How far a faster record moves level and slope, upwards and downwards: shape (2 n,) each."""
        up, down = (self.of_vehicles(self.share, np.maximum(side * self.dwell[:, 1], 0)) for side in (1, -1))
        down[: self.vehicles] = 0
        return up, down

    @cached_property
    def cells(self) -> Level:
        """C, if it were asked of cells alone; of a mean over vehicles where that is asked for in cells."""
        part = self.parts[2] if self.weighs is Statistic.MEAN else self.vehicles_parts[-1]
        return self._cells(part)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """What C asks, one level after the other."""
        return levels_of(self.cells)

    @cached_property
    def variance_cells(self) -> Level:
        """The cells of a variance, where data is thick."""
        return self._cells(self.variance_parts[1])

    @property
    def _dearest_cells(self) -> list[Step]:
        return [step for level in self.levels for step in level.dearest()]

    def _cells(self, part: int) -> Level:
        return Level(self.counts, self.bound, self.kind, self.counts.visits, part, self.strength, self.weighs)

    def everyone(self, coordinates: int) -> Support:
        """Return the entries of all vehicles that are anywhere, in every one of ``coordinates``."""
        user = np.flatnonzero(self.counts.bins_per_user > 0).astype(np.int64)
        place = np.repeat(np.arange(coordinates), len(user))
        return Support(np.tile(user, coordinates), place, self.counts.users, coordinates)

    def dearest_steps(self) -> tuple[Step, ...]:
        """Return every asking with the longest intervals that earlier numbers can make of them.

        What is drawn later costs every vehicle as much or less: bounds only grow with the level of the city,
        and s is at least LEAST_UNIT.
        """
        upper, one = self.upper, self.everyone(1)
        half = np.full(self.vehicles, upper / 2)
        first = self.step(one, upper / 2, half, half, self.parts[0])
        slope, (up, down) = SLOPE_BOUND * upper, self.lean
        second = self.step(self.everyone(2), slope, *around((up + down) * upper, slope), self.parts[1])
        found = [first, second, *self._dearest_cells]
        if self.over_vehicles:
            whole = np.full(self.vehicles, slope)
            found.append(self.step(one, slope, whole, whole, self.vehicles_parts[0]))
        if self.over_vehicles and self.thick:
            found += self.by_vehicle._dearest_cells
        if self.variance:
            found.append(
                self.step(one, 1.0, np.ones(self.vehicles), np.ones(self.vehicles), self.variance_parts[0])
            )
        if self.variance and self.thick:
            cells = self.variance_cells
            far = np.full(len(cells.support.user), cells.reach)
            found.append(cells.asking(far, far, cells.part))
        return tuple(found)
