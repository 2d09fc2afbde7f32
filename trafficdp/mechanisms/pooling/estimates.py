"""Three askings, and what is made of their answers: a map of means, its intervals, and a variance.

C's answer y_c = s (noisy sum) / e_c has the noise's variance and q_c about the cell's distance from the map
so far; under the fixed prior N(0, (s tau_c)^2) the cell moves by k_c y_c, k_c = prior/(prior + both). With
Gaussian noise four rounds ask about the newest map each time, within bounds of 0.7 of the round before; their
answers are averaged, weighed by their noise.

**Interval.** After a level e(w)^2 = (1 - k A(w))^2 ((w s tau)^2 + e(w)^2 before it) + k^2 (noise + q), from
0 on; reach(w)^2 = e(w)^2 + X' var(beta) X, and for slots that no level asks for
(w s max(tau, U/30) / 2)^2 + (s U/5)^2 / N more: the mean square error of this very estimator if cells differ
w times as much as guessed, A(w) the share that clipping leaves. Published are 2.2 reach(1.5) downwards and
2.2 reach(4) upwards: rare cells are fast roads. This is **calibrated** (at least 95 % of bins on average, on
days that chose nothing), not a theorem: counts cannot bound what clipping and shrinking do.

**Variance.** r_ug = mean of (x - estimate_g)^2 over a vehicle's records, in units of
base_g = (U^2/30) lev clip(estimate_g / (lev U/5), 0.2, 3)^(1/4), lev the city's level over U/5. One number a
for the city, posterior mean under N(1, 1/4): the variance is a base_g. Where data is thick, cells as in C.
Its interval is 0 to (2.5 a + 2.2 posterior deviations of a) base_g, calibrated likewise: on a motorway all
may drive alike, so nothing holds from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.pooling.design import (
    LEAST_UNIT,
    LEVEL,
    RECORD_SD,
    SLOPE_BOUND,
    VEHICLES_SD,
    Design,
    Level,
)
from trafficdp.model import Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions

FloatArray = npt.NDArray[np.float64]
WIDE = (1.5, 4.0)
"""How much more than guessed cells may differ, downwards and upwards; with REACH chosen on days of Austin."""
REACH = 2.2
LEAST_APART = 1 / 30
"""Of U: slots of a cell differ by half of that at least, however many vehicles it has."""
VARIANCE_UNIT = 1 / 30
"""Of U^2, at the level U/5: 30 (m/s)^2 at 6 m/s."""
VARIANCE_SPREAD, VARIANCE_WIDE = 0.5, 2.5
"""The prior deviation of a, and how many times what is found a bin may vary: chosen by looking at 2015-03-07,
2016-11-24 to -27, 2017-03-16 and -21 in Austin."""
VARIANCE_POWER = 4.6 / 30
"""What a unit of relative variance counts for in the cells' vector."""


@dataclass(frozen=True)
class PooledEstimates:
    """Numbers over G bins: the means asked for, with both ends; a variance and its high end if asked for."""

    means: dict[Statistic, tuple[FloatArray, FloatArray, FloatArray]]
    variance: tuple[FloatArray, FloatArray] | None


@dataclass(frozen=True)
class Cells:
    """A posterior of places: ``move`` (C,), ``pull`` k, ``noise`` the variance of the answer before q."""

    level: Level
    move: FloatArray
    pull: FloatArray
    noise: FloatArray

    @classmethod
    def unasked(cls, level: Level) -> Cells:
        """Return what is known of the places of ``level`` when nothing was asked: that they lie at 0."""
        nothing = np.zeros(level.size)
        return cls(level, nothing, nothing, nothing)


def pooled(design: Design, contributions: Contributions, measure: Measure) -> PooledEstimates:
    """Ask and return the map. The numbers are functions of counts and of what ``measure`` gives back."""
    counts, upper = design.counts, design.upper
    x = contributions.total * float(design.bound.step) / counts.count
    centre, doubt = _centre(design, x, measure)
    base, beta, slope_variance = _base(design, x, centre, doubt, measure)
    unit = max((centre + beta[0]) / (LEVEL * upper), LEAST_UNIT)
    around = design.dwell**2 @ slope_variance
    mean, told = _levels(design, x, base, unit, measure)
    reach = np.stack([_reach(design, told, unit, around, wide) for wide in WIDE])
    means = {Statistic.MEAN: _with_ends(mean, reach, upper)}
    if design.over_vehicles:
        own, further = _over_vehicles(design.by_vehicle, x, mean, unit, measure)
        means[Statistic.VEHICLE_MEAN] = _with_ends(own, np.hypot(reach, further), upper)
    variance = None
    if design.variance:
        variance = _variance(design, contributions, mean, (centre + beta[0]) / (LEVEL * upper), measure)
    return PooledEstimates({each: means[each] for each in means if each in design.statistics}, variance)


def _with_ends(
    mean: FloatArray, reach: FloatArray, upper: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    low, high = REACH * reach
    return mean, np.clip(mean - low, 0.0, upper), np.clip(mean + high, 0.0, upper)


def expected_error(design: Design, of: Statistic = Statistic.MEAN) -> FloatArray:
    """Return the error that is expected before anything is asked, shape (G,): from counts and the guesses.

    ``of`` the mean over records, or over vehicles where that is asked for: the mean absolute value of a
    normal error of mean square reach(1)^2 at the level U/5.
    """
    return np.asarray(np.sqrt(2 / np.pi) * _foreseen(design, of, 1.0))


def foreseen_reach(design: Design, of: Statistic) -> FloatArray:
    """Return how far intervals of the mean ``of`` go upwards, the longer side, at the level U/5; (G,)."""
    return np.minimum(REACH * _foreseen(design, of, max(WIDE)), design.upper)


def foreseen_variance_reach(design: Design) -> float:
    """Return the same of variances."""
    reach = VARIANCE_WIDE - 1 + REACH * np.sqrt(_variance_doubt(design))
    return float(min(reach * VARIANCE_UNIT, 1 / 4) * design.upper**2)


def _foreseen(design: Design, of: Statistic, wide: float) -> FloatArray:
    """reach(w) of a bin's mean at the level U/5, over records or over vehicles."""
    around = (design.asked_sd(design.upper / 2, design.parts[0]) / design.vehicles) ** 2
    found = _foreseen_cells(design, True, around, wide)
    if of is Statistic.MEAN:
        return found
    own = design.by_vehicle
    noise, prior = _distance(own, 1.0)
    return np.hypot(found, _foreseen_cells(own, own.thick, prior * noise / (prior + noise), wide))


def _foreseen_cells(design: Design, asked: bool, around: float, wide: float) -> FloatArray:
    told = [Cells.unasked(design.cells)]
    if asked:
        told = []
        for level in design.levels:
            prior, noise = level.cell_sd**2, (level.rounds_sd / level.cell_weight) ** 2
            told.append(Cells(level, np.zeros(level.size), prior / (prior + noise + level.sampling), noise))
    return _reach(design, told, 1.0, np.full(design.counts.bins, around), wide)


def flat_error(design: Design) -> FloatArray:
    """Return the error that is expected of one number for the city at the whole budget, shape (G,)."""
    noise, prior = (
        (design.asked_sd(design.upper / 2, design.means) / design.vehicles) ** 2,
        design.upper**2 / 36,
    )
    around = noise * prior / (noise + prior)
    return np.asarray(np.sqrt(2 / np.pi) * _foreseen_cells(design, False, around, 1.0))


def _centre(design: Design, x: FloatArray, measure: Measure) -> tuple[float, float]:
    """Asking A: the posterior mean of the city's level, and its variance."""
    upper, part = design.upper, design.parts[0]
    own = np.bincount(design.row, design.share * x, design.vehicles) - upper / 2
    ends = np.full(design.vehicles, upper / 2)
    step = design.step(design.everyone(1), upper / 2, ends, ends, part)
    found = measure.measure(step, own)[0] * (upper / 2 / GRAINS) / design.vehicles + upper / 2
    noise, prior = (design.asked_sd(upper / 2, part) / design.vehicles) ** 2, (upper / 6) ** 2
    level = LEVEL * upper
    centre = float(np.clip(level + (found - level) * prior / (prior + noise), 0.0, upper))
    return centre, prior * noise / (prior + noise) + (upper / 30) ** 2


def _base(
    design: Design, x: FloatArray, centre: float, doubt: float, measure: Measure
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Asking B: the map by level and slope (G,), their posterior means and variances (2,)."""
    upper, part = design.upper, design.parts[1]
    grown = max(centre / (LEVEL * upper), 1.0)
    bound = SLOPE_BOUND * upper * grown
    up, down = design.lean
    below, above = centre * up + (upper - centre) * down, (upper - centre) * up + centre * down
    step = design.step(design.everyone(2), bound, below, above, part)
    own = design.of_vehicles(design.share * (x - centre), design.dwell[:, 1])
    answer = measure.measure(step, own) * (bound / GRAINS)
    noise = (design.asked_sd(bound, part) / design.vehicles) ** 2
    noise = noise + (grown * upper / 30) ** 2 / design.vehicles
    prior = np.array([doubt, (grown * upper / 10) ** 2])
    beta = answer / design.vehicles * prior / (prior + noise)
    base = np.clip(centre + design.dwell @ beta, 0.0, upper)
    return base, beta, prior * noise / (prior + noise)


def _levels(
    design: Design, x: FloatArray, base: FloatArray, unit: float, measure: Measure
) -> tuple[FloatArray, list[Cells]]:
    """Asking C, level by level: the map after it, (G,), and what was told of each."""
    told, mean = [], base
    for level in design.levels:
        told.append(_cells(level, x, mean, unit, measure))
        mean = np.clip(mean + told[-1].move[level.place], 0.0, design.upper)
    return mean, told


def _cells(level: Level, x: FloatArray, base: FloatArray, unit: float, measure: Measure) -> Cells:
    """One level, in rounds."""
    bin_index, upper, part = level.counts.bin_index, level.upper, level.part // level.rounds
    of_pair = level.weight[level.entry] * level.count / level.records[level.entry] / unit
    prior, sampling = (unit * level.cell_sd) ** 2, unit**2 * level.sampling
    precision, told, move = (np.zeros(level.size) for _ in range(3))
    pull = move
    own, most = level.of_entries(of_pair * x), level.of_entries(of_pair) * upper
    for each in range(level.rounds):
        noise = (level.noise_sd(part, each) * unit / level.cell_weight) ** 2
        map_now = np.clip(base + move[level.place], 0.0, upper)[bin_index]
        below = level.of_entries(of_pair * map_now)
        step = level.asking(below, most - below, part, each)
        answer = measure.measure(step, own - below) * (level.reach_in(each) / GRAINS)
        answer = answer * unit / level.cell_weight
        precision, told = precision + 1 / noise, told + (answer + move) / noise
        pull = prior / (prior + 1 / precision + sampling)
        move = pull * told / precision
    return Cells(level, move, pull, 1 / precision)


def _over_vehicles(
    design: Design, x: FloatArray, mean: FloatArray, unit: float, measure: Measure
) -> tuple[FloatArray, FloatArray]:
    """Return the mean over vehicles (G,), and how much further than the mean's its ends reach, (2, G)."""
    upper, part = design.upper, design.vehicles_parts[0]
    now, bound = mean[design.counts.bin_index], SLOPE_BOUND * upper * unit

    def of_vehicles(value: FloatArray) -> FloatArray:
        return np.bincount(design.row, design.share * value, design.vehicles).astype(np.float64, copy=False)

    step = design.step(design.everyone(1), bound, of_vehicles(now), of_vehicles(upper - now), part)
    answer = float(measure.measure(step, of_vehicles(x - now))[0]) * bound / GRAINS / design.vehicles
    noise, prior = _distance(design, unit)
    own = np.clip(mean + answer * prior / (prior + noise), 0.0, upper)
    told = [Cells.unasked(design.cells)]
    if design.thick:
        own, told = _levels(design, x, own, unit, measure)
    around = np.full(design.counts.bins, prior * noise / (prior + noise))
    return own, np.stack([_reach(design, told, unit, around, wide) for wide in WIDE])


def _distance(design: Design, unit: float) -> tuple[float, float]:
    """Of how far vehicles' means lie above those of records in the city: variances of noise and prior."""
    noise = design.asked_sd(SLOPE_BOUND * design.upper * unit, design.vehicles_parts[0]) / design.vehicles
    return noise**2, (unit * VEHICLES_SD * design.upper / 2) ** 2


def _reach(design: Design, told: Sequence[Cells], unit: float, around: FloatArray, wide: float) -> FloatArray:
    """reach(w) of every bin, shape (G,)."""
    found = np.zeros(design.counts.bins)
    for cells in told:
        level = cells.level
        square = ((wide * unit * level.cell_sd) ** 2)[level.place] + found
        left = 1 - cells.pull * _left_by_clipping(level, wide)
        added = cells.pull**2 * (cells.noise + unit**2 * level.sampling)
        found = (left**2)[level.place] * square + added[level.place]
    found = found + around
    if design.counts.bins > told[-1].level.size:
        apart = np.maximum(design.cells.cell_sd, LEAST_APART * design.upper)[design.cells.place] / 2
        found = found + (wide * unit * apart) ** 2
        found = found + (unit * RECORD_SD * design.upper) ** 2 / design.per_bin
    return np.asarray(np.sqrt(found))


def _left_by_clipping(level: Level, wide: float) -> FloatArray:
    """A(w): the share of a place's deviation that the bounds T leave, shape (C,), from counts.

    Every round is thought of as if it asked about the map before the first.
    """
    user, place = level.support.user, level.support.coordinate
    spread = (RECORD_SD * level.upper) ** 2 / level.records
    own = np.sqrt((wide * level.cell_sd[place]) ** 2 + spread) * level.weight
    length = np.bincount(user, own**level.norm, level.support.users) ** (1 / level.norm)
    length = np.maximum(length * (0.8 if level.pure else 1.0), 1e-9)
    reach = np.array([level.reach_in(each) for each in range(level.rounds)])
    kept = np.zeros(len(length))
    for each, share in zip(reach, reach**-2 / np.sum(reach**-2), strict=True):
        kept += share * np.mean(
            [np.minimum(1.0, each / (length * t)) for t in (0.6, 0.8, 1.0, 1.25, 1.6)], axis=0
        )
    return np.asarray(np.bincount(place, level.weight * kept[user], level.size) / level.cell_weight)


def _variance(
    design: Design, contributions: Contributions, mean: FloatArray, level: float, measure: Measure
) -> tuple[FloatArray, FloatArray]:
    """The variance of every bin, a function of its mean, and its high end; shape (G,) each."""
    counts, upper = design.counts, design.upper
    place, step, part = counts.bin_index, float(design.bound.step), design.variance_parts[0]
    level = max(level, LEAST_UNIT)
    relative = np.clip(mean / (level * LEVEL * upper), 0.2, 3.0) ** 0.25
    base = VARIANCE_UNIT * upper**2 * level * relative
    squares = contributions.total_of_squares * step**2 - 2 * mean[place] * contributions.total * step
    own = (squares / counts.count + mean[place] ** 2) / base[place]
    ends = np.ones(design.vehicles)
    ask = design.step(design.everyone(1), 1.0, ends, ends, part)
    one = np.bincount(design.row, design.share * own, design.vehicles) - 1
    answer = float(measure.measure(ask, one)[0]) / GRAINS / design.vehicles
    doubt = _variance_doubt(design)
    city = max(1 + answer * (1 - doubt / VARIANCE_SPREAD**2), 0.0)
    if design.thick:
        base = base * (1 + _variance_cells(design.variance_cells, own / max(city, 0.1) - 1, measure))
    found = np.clip(city * base, 0.0, np.minimum(upper**2 / 4, mean * (upper - mean)))
    return found, np.clip((VARIANCE_WIDE * city + REACH * np.sqrt(doubt)) * base, found, upper**2 / 4)


def _variance_doubt(design: Design) -> float:
    """The posterior variance of the city's number a."""
    noise = (design.asked_sd(1.0, design.variance_parts[0]) / design.vehicles) ** 2
    return float(noise * VARIANCE_SPREAD**2 / (VARIANCE_SPREAD**2 + noise))


def _variance_cells(cells: Level, own: FloatArray, measure: Measure) -> FloatArray:
    """How much more the cell of a bin varies than the function says, as a share, shape (G,)."""
    factor = VARIANCE_POWER * cells.upper
    share = cells.count / cells.records[cells.entry]
    values = cells.weight * cells.of_entries(share * own) * factor
    far = np.full(len(values), cells.reach)
    answer = measure.measure(cells.asking(far, far, cells.part), values) * (cells.reach / GRAINS)
    noise, prior = (cells.noise_sd(cells.part) / cells.cell_weight) ** 2, cells.cell_sd**2
    found = answer / cells.cell_weight * prior / (prior + noise + cells.sampling) / factor
    return np.maximum(found, -0.9)[cells.place]
