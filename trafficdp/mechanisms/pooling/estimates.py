"""Three askings, and what is made of their answers: a map of means with its posterior, and a variance.

C's answer y_c = s (noisy sum) / e_c has the noise's variance and q_c about the cell's distance from the map
so far; under the fixed prior N(0, (s tau_c)^2) the cell moves by k_c y_c, k_c = prior/(prior + both). With
Gaussian noise four rounds ask about the newest map each time, within bounds of 0.7 of the round before; their
answers are averaged, weighed by their noise. That is the map that later rounds and levels ask about.

**Posterior** (``posterior``), of the places of the last level. Prior: about the map that this level asked
about first, of spread SPREAD (vehicles / 30)^-FALL, cut to 0.3..3 times SPREAD; what is unknown of that map,
by level, slope and the level before, joins it in quadrature. Likelihood: every round by itself, answer_j =
A_j(|D|) D + noise, D the distance from the map that it asked about, A_j the share of it that the bounds
leave, others as guessed (``kept_by_clipping``); q_c joins the noise. A slot that no level asks for is moved
with the map from its place, SLOT spreads more, of at least SPREAD each. A mean over vehicles is moved from
that over records. Last comes N(0, TARGET_SD^2): vehicles differ, and weigh more or less in the answer.

**Variance.** r_ug = mean of (x - estimate_g)^2 over a vehicle's records, in units of
base_g = (U^2/30) lev clip(estimate_g / (lev U/5), 0.2, 3)^(1/4), lev the city's level over U/5. One number a
for the city, posterior mean under N(1, 1/4): the variance is a base_g. Where data is thick, cells as in C.
With the doubt of a it has a posterior by how many records there are, how fast they are, and how far means
lie apart (``posterior.variance_posterior``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.pooling import design as pooling_design
from trafficdp.mechanisms.pooling import posterior
from trafficdp.model import KnownSpeeds, Statistic
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Contributions

SPREAD, FALL = 0.2, 0.25
"""Of lambda: how far the mean of a place of 30 vehicles lies from the map before, and how that falls."""
SLOT = 0.8
"""How far a slot that no level asks for lies from its place, in spreads of the place."""
TARGET_SD = 0.1
"""Of lambda: the mean over records about that of vehicles by their weights, whose own means differ."""
SLOPE_SD = 0.45
"""Of lambda: how far bins lie from one number for the city by what the slope on dwell would say."""
LEAST_APART = 1 / 30
"""Of U: slots of a cell differ by half of that at least, however many vehicles it has."""
VARIANCE_UNIT = 1 / 30
"""Of U^2, at the level U/5: 30 (m/s)^2 at 6 m/s."""
VARIANCE_SPREAD, LEAST_VARIANCE = 0.5, 0.1
"""The prior deviation of a, and the least it counts as."""
VARIANCE_POWER = 4.6 / 30
"""What a unit of relative variance counts for in the cells' vector."""


@dataclass(frozen=True)
class PooledEstimates:
    """Posteriors over G bins: of the means, and of the variance if it is asked for."""

    means: dict[Statistic, posterior.Posterior]
    variance: posterior.VariancePosterior | None


@dataclass(frozen=True)
class Round:
    """What one round said of places, shape (C,): the answer, how far the map had moved, variance of noise."""

    answer: FloatArray
    moved: FloatArray
    noise: FloatArray


@dataclass(frozen=True)
class Cells:
    """What was said of the places of ``level``: ``move`` (C,), ``pull`` k, ``noise`` of all rounds, before q.

    ``before`` is the map (G,) that the first round asked about.
    """

    level: pooling_design.Level
    before: FloatArray
    move: FloatArray
    pull: FloatArray
    noise: FloatArray
    rounds: tuple[Round, ...] = ()

    @classmethod
    def unmeasured(cls, level: pooling_design.Level, before: FloatArray) -> Cells:
        """Return the estimate of the places of ``level`` when nothing was measured: no move from
        ``before`` (G,).
        """
        nothing = np.zeros(level.size)
        return cls(level, before, nothing, nothing, nothing)


def pooled_estimates(
    design: pooling_design.Design,
    contributions: Contributions,
    measure: Measure,
    known: KnownSpeeds | None = None,
) -> PooledEstimates:
    """Measure the private ``contributions`` with noise, and return the posterior of every bin's statistics.

    The result follows from public counts, ``known`` public speeds and the noisy sums of ``measure`` alone.
    """
    counts, upper = design.counts, float(design.bound.upper)
    x = contributions.total * float(design.bound.step) / counts.count
    centre, base, beta, slope_variance = _base(design, x, measure)
    dwell = posterior.SlowTraffic(design.covariates[:, 1], np.ones(counts.bins, dtype=np.bool_), used=True)
    vehicles = counts.users_per_bin.astype(np.float64)
    base = posterior.known_centre(known, base, vehicles, design.cells.places.of_bin, upper, dwell)
    unit = max((centre + beta[0]) / (pooling_design.LEVEL * upper), pooling_design.LEAST_UNIT)
    around = design.covariates**2 @ slope_variance
    mean, told = _levels(design, x, base, unit, measure)
    slope = float(np.hypot(beta[1], np.sqrt(slope_variance[1])))
    least = pooling_design.LEAST_UNIT * pooling_design.LEVEL * upper
    city = CityLevel(max(centre + beta[0], least), unit, slope)
    means = {Statistic.MEAN: _posterior(design, told, city, around, (mean, mean), np.zeros(counts.bins))}
    if Statistic.VEHICLE_MEAN in design.statistics:
        own, further = _over_vehicles(design.for_vehicle_means, x, mean, unit, measure)
        means[Statistic.VEHICLE_MEAN] = _posterior(design, told, city, around, (mean, own), further)
    variance = None
    if Statistic.VARIANCE in design.statistics:
        level = (centre + beta[0]) / (pooling_design.LEVEL * upper)
        scale = means[Statistic.MEAN].scale
        variance = _variance(design, contributions, mean, level, scale, measure)
    return PooledEstimates({each: means[each] for each in means if each in design.statistics}, variance)


@dataclass(frozen=True)
class CityLevel:
    """What A and B say of the whole city: its ``level``, the ``unit`` s, and by how much dwell moves it."""

    level: float
    unit: float
    slope: float


def city_wide_posterior(design: pooling_design.Design, value: float, variance: float) -> posterior.Posterior:
    """Return the posterior of every bin's mean when only one speed for the whole city is known.

    ``value`` is that speed and ``variance`` its variance, both from a noisy sum: no private value is read.
    """
    bins, upper = design.counts.bins, float(design.bound.upper)
    everywhere, around = np.full(bins, value), np.full(bins, variance)
    slope = SLOPE_SD * (upper / 30 + value)
    city = CityLevel(
        max(value, pooling_design.LEAST_UNIT * pooling_design.LEVEL * upper),
        max(value / (pooling_design.LEVEL * upper), pooling_design.LEAST_UNIT),
        slope,
    )
    told = [Cells.unmeasured(design.cells, everywhere)]
    both = everywhere, everywhere
    return _posterior(design, told, city, around + slope**2, both, np.zeros(bins))


def _posterior(
    design: pooling_design.Design,
    told: Sequence[Cells],
    city: CityLevel,
    around: FloatArray,
    maps: tuple[FloatArray, FloatArray],
    further: FloatArray,
) -> posterior.Posterior:
    """The posterior of every bin by the answers of the last of ``told``.

    ``around`` (G,) is the variance of the map before all of them. ``maps`` (G,) are that after them, and
    where it was moved to, with ``further`` (G,) the spread of that move.
    """
    last, upper, unit = told[-1], float(design.bound.upper), city.unit
    level, place = last.level, last.level.places.of_bin
    inside = np.bincount(place, minlength=level.size)
    for cells in told[:-1]:
        around = around + ((1 - cells.pull) * (unit * cells.level.cell_sd) ** 2)[cells.level.places.of_bin]
    # means over a place, weighed as its sum is
    weighed = level.weights.entry / level.weights.records * (level.bin_weights @ last.before)
    before = np.divide(
        *(np.bincount(level.support.coordinate, each, level.size) for each in (weighed, level.weights.entry))
    )
    doubt = posterior.lambda_sd(np.sqrt(np.bincount(place, around, level.size) / inside), before, upper)
    vehicles = np.bincount(level.support.coordinate, minlength=level.size)
    sigma = SPREAD * np.clip((vehicles / 30) ** -FALL, 0.3, 3.0)
    places = posterior.Places(
        before, sigma, doubt, _likelihood(last, before, unit), np.full(level.size, bool(last.rounds))
    )
    # hours differ however many vehicles a place has
    apart = SLOT * np.maximum(sigma, SPREAD) * (design.counts.bins > level.size)
    mean, own = maps
    bins = posterior.Bins(
        place=place,
        shift=posterior.lambda_of(last.before, upper)
        - posterior.lambda_of(before, upper)[place]
        + posterior.lambda_of(own, upper)
        - posterior.lambda_of(mean, upper),
        sd=np.sqrt(apart[place] ** 2 + posterior.lambda_sd(further, own, upper) ** 2 + TARGET_SD**2),
        map=own,
    )
    flat = posterior.OneNumber(
        level=city.level,
        growing=sigma[place],
        fixed=np.hypot(apart[place], posterior.lambda_sd(np.array(city.slope), np.array(city.level), upper)),
    )
    # one number for the city is painted as it is
    share = posterior.MAP_SHARE if last.rounds else 1.0
    return posterior.posterior(places, bins, flat, upper, share)


def _likelihood(cells: Cells, before: FloatArray, unit: float) -> Callable[[IntArray], FloatArray]:
    """How likely the answers of all rounds are at every speed of the grid, for some places."""
    level, upper = cells.level, float(cells.level.bound.upper)
    left, distances = level.kept_by_clipping if cells.rounds else np.empty(0), pooling_design.DISTANCES
    sampling, speeds = unit**2 * level.weights.sampling, posterior.speed_of(posterior.LAMBDA, upper)

    def log_likelihood(own: IntArray) -> FloatArray:
        found = np.zeros((len(own), posterior.POINTS))
        for each, table in zip(cells.rounds, left, strict=True):
            away = speeds - (before + each.moved)[own, None]
            # what the bounds leave of it, between the distances that are tabled
            distance = np.abs(away) / (unit * upper)
            at = np.clip(np.searchsorted(distances, distance) - 1, 0, len(distances) - 2)
            part = np.clip((distance - distances[at]) / (distances[at + 1] - distances[at]), 0.0, 1.0)
            share = table[own[:, None], at] * (1 - part) + table[own[:, None], at + 1] * part
            off = each.answer[own, None] - share * away
            if level.kind is LossKind.PURE:
                scale = np.sqrt(each.noise / 2)
                found += posterior.log_laplace_normal(off, scale[own, None], sampling[own, None])
            else:
                # q is one and the same in all rounds, so that it counts once
                spread = each.noise * (1 + sampling / cells.noise)
                found -= off**2 / (2 * spread)[own, None]
        return found

    return log_likelihood


def expected_variances(design: pooling_design.Design) -> posterior.VariancePosterior:
    """Return the posterior of variances that is expected before anything is measured, from public counts."""
    upper = float(design.bound.upper)
    mean = np.full(design.counts.bins, pooling_design.LEVEL * upper)
    return _variance_posterior(design, mean, 1.0, 1.0, VARIANCE_UNIT * upper**2)


def expected_map_error(design: pooling_design.Design, statistic: Statistic = Statistic.MEAN) -> FloatArray:
    """Return the root mean square error expected of every bin's mean before anything is measured, (G,).

    From public counts and prior guesses, in the unit of speed. ``statistic`` is the mean over records or the
    mean over vehicles.
    """
    half, nowhere = float(design.bound.upper) / 2, np.zeros(design.counts.bins)
    around = (design.noise_sd(design.parts.city, half) / design.vehicles) ** 2
    maps = [(design, design.levels, around)]
    if statistic is not Statistic.MEAN:
        own = design.for_vehicle_means
        noise, prior = _distance(own, 1.0)
        maps.append((own, own.levels if own.thick else (), prior * noise / (prior + noise)))
    found = []
    for each, levels, around in maps:
        told = [] if levels else [Cells.unmeasured(each.cells, nowhere)]
        for level in levels:
            of_one = level.noise_sd(level.part // len(level.clip_bounds), 1.0)
            # of all rounds together, in the unit of T
            sd = float(np.sum(np.power([of_one * reach for reach in level.clip_bounds], -2.0)) ** -0.5)
            of_cells, of_noise = level.cell_sd**2, (sd / level.weights.place) ** 2
            pull = of_cells / (of_cells + of_noise + level.weights.sampling)
            told.append(Cells(level, nowhere, np.zeros(level.size), pull, of_noise))
        found.append(_error(each, told, 1.0, np.full(len(nowhere), around)))
    return found[0] if statistic is Statistic.MEAN else np.hypot(*found)


def city_wide_error(design: pooling_design.Design) -> FloatArray:
    """Return the mean absolute error expected of every bin when all get one number for the city, (G,).

    That number is given the whole privacy budget. From public counts and prior guesses, in the unit of speed.
    """
    upper = float(design.bound.upper)
    noise = (design.noise_sd(design.total, upper / 2) / design.vehicles) ** 2
    prior = upper**2 / 36
    around = np.full(design.counts.bins, noise * prior / (noise + prior))
    told = [Cells.unmeasured(design.cells, np.zeros_like(around))]
    return np.asarray(np.sqrt(2 / np.pi) * _error(design, told, 1.0, around))


def _base(
    design: pooling_design.Design, x: FloatArray, measure: Measure
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Askings A and B: the city's level, the map by it and by slope (G,); means and variances of both (2,).

    Means and variances are the posterior's.
    """
    upper, part = float(design.bound.upper), design.parts.city
    level = pooling_design.LEVEL * upper
    own = design.pair_sums(x, design.covariates[:, 0]) - upper / 2
    ends = np.full(design.vehicles, upper / 2)
    step = design.step(design.vehicle_entries(1), upper / 2, ends, ends, part)
    found = measure.measure(step, own)[0] * (upper / 2 / GRAINS) / design.vehicles + upper / 2
    noise_of_city = (design.noise_sd(part, upper / 2) / design.vehicles) ** 2
    spread = (upper / 6) ** 2
    centre = float(np.clip(level + (found - level) * spread / (spread + noise_of_city), 0.0, upper))
    doubt = spread * noise_of_city / (spread + noise_of_city) + (upper / 30) ** 2
    # B, about that level
    part, grown = design.parts.dwell, max(centre / level, 1.0)
    bound = pooling_design.SLOPE_BOUND * upper * grown
    up, down = design.largest_moves
    below, above = centre * up + (upper - centre) * down, (upper - centre) * up + centre * down
    step = design.step(design.vehicle_entries(2), bound, below, above, part)
    own = design.pair_sums(x - centre, design.covariates).T.ravel()
    answer = measure.measure(step, own) * (bound / GRAINS)
    noise = (design.noise_sd(part, bound) / design.vehicles) ** 2
    noise = noise + (grown * upper / 30) ** 2 / design.vehicles
    prior = np.array([doubt, (grown * upper / 10) ** 2])
    beta = answer / design.vehicles * prior / (prior + noise)
    base = np.clip(centre + design.covariates @ beta, 0.0, upper)
    return centre, base, beta, prior * noise / (prior + noise)


def _levels(
    design: pooling_design.Design, x: FloatArray, base: FloatArray, unit: float, measure: Measure
) -> tuple[FloatArray, list[Cells]]:
    """Asking C, level by level, each in rounds: the map after it, (G,), and what was told of each."""
    upper, found, mean = float(design.bound.upper), [], base
    for level in design.levels:
        part, place = level.part // len(level.clip_bounds), level.places.of_bin
        of_record = level.weights.entry / level.weights.records / unit
        prior, sampling = (unit * level.cell_sd) ** 2, unit**2 * level.weights.sampling
        precision, told, move = (np.zeros(level.size) for _ in range(3))
        pull = move
        own = of_record * level.pair_sums(x, np.ones(len(mean)))
        rounds = []
        for bound in level.clip_bounds:
            noise = (level.noise_sd(part, bound) * unit / level.weights.place) ** 2
            below = of_record * (level.bin_weights @ np.clip(mean + move[place], 0.0, upper))
            above = level.weights.entry * (upper / unit) - below
            step = level.step(level.support, bound, below, above, part)
            # as large as all entries: no more of them are kept than must be
            del above
            answer = measure.measure(step, np.subtract(own, below, out=below)) * (bound / GRAINS)
            del step, below
            answer = answer * unit / level.weights.place
            rounds.append(Round(answer, move, noise))
            precision, told = precision + 1 / noise, told + (answer + move) / noise
            pull = prior / (prior + 1 / precision + sampling)
            move = pull * told / precision
        found.append(Cells(level, mean, move, pull, 1 / precision, tuple(rounds)))
        mean = np.clip(mean + move[place], 0.0, upper)
    return mean, found


def _over_vehicles(
    design: pooling_design.Design, x: FloatArray, mean: FloatArray, unit: float, measure: Measure
) -> tuple[FloatArray, FloatArray]:
    """Return the mean over vehicles, and how far off its distance from the mean may be; (G,) each."""
    upper, part = float(design.bound.upper), design.parts.vehicles[0]
    below, bound = design.bin_weights @ mean, pooling_design.SLOPE_BOUND * upper * unit
    step = design.step(design.vehicle_entries(1), bound, below, design.bin_weights @ (upper - mean), part)
    own = design.pair_sums(x, design.covariates[:, 0]) - below
    answer = float(measure.measure(step, own)[0]) * bound / GRAINS / design.vehicles
    noise, prior = _distance(design, unit)
    own = np.clip(mean + answer * prior / (prior + noise), 0.0, upper)
    told = [Cells.unmeasured(design.cells, own)]
    if design.thick:
        own, told = _levels(design, x, own, unit, measure)
    around = np.full(design.counts.bins, prior * noise / (prior + noise))
    return own, _error(design, told, unit, around)


def _distance(design: pooling_design.Design, unit: float) -> tuple[float, float]:
    """Of how far vehicles' means lie above those of records in the city: variances of noise and prior."""
    upper, part = float(design.bound.upper), design.parts.vehicles[0]
    noise = design.noise_sd(part, pooling_design.SLOPE_BOUND * upper * unit) / design.vehicles
    return noise**2, (unit * pooling_design.VEHICLES_SD * upper / 2) ** 2


def _error(
    design: pooling_design.Design, told: Sequence[Cells], unit: float, around: FloatArray
) -> FloatArray:
    """e of every bin, shape (G,): the mean square error of the map if cities differ as guessed.

    After a level e^2 = (1 - k A)^2 ((s tau)^2 + e^2 before it) + k^2 (noise + q), from ``around`` on; for
    slots that no level asks for (s max(tau, U/30) / 2)^2 + (s U/5)^2 / N more.
    """
    found, upper = np.zeros(design.counts.bins), float(design.bound.upper)
    for cells in told:
        level, place = cells.level, cells.level.places.of_bin
        square = ((unit * level.cell_sd) ** 2)[place] + found
        left = np.ones(level.size)
        if cells.pull.any():
            # of a usual deviation, what the bounds of all rounds leave
            share, usual = np.array([bound**-2 for bound in level.clip_bounds]), np.zeros(level.size)
            for kept, part in zip(level.kept_by_clipping, share / share.sum(), strict=True):
                usual += part * kept[:, 1]
            left = 1 - cells.pull * usual
        added = cells.pull**2 * (cells.noise + unit**2 * level.weights.sampling)
        found = (left**2)[place] * square + added[place]
    found = found + around
    if design.counts.bins > told[-1].level.size:
        apart = np.maximum(design.cells.cell_sd, LEAST_APART * upper)[design.cells.places.of_bin] / 2
        found = found + (unit * apart) ** 2
        found = found + (unit * pooling_design.RECORD_SD * upper) ** 2 / design.bin_sizes
    return np.asarray(np.sqrt(found))


def _variance(
    design: pooling_design.Design,
    contributions: Contributions,
    mean: FloatArray,
    level: float,
    scale: float,
    measure: Measure,
) -> posterior.VariancePosterior:
    """The variance of every bin, a function of its mean; ``scale`` is the likely factor of means' spread."""
    counts, upper = design.counts, float(design.bound.upper)
    step, part = float(design.bound.step), design.parts.variance[0]
    level = max(level, pooling_design.LEAST_UNIT)
    relative = np.clip(mean / (level * pooling_design.LEVEL * upper), 0.2, 3.0) ** 0.25
    base = VARIANCE_UNIT * upper**2 * level * relative
    about = counts.per_pair(mean)
    squares = contributions.total_of_squares * step**2 - 2 * about * contributions.total * step
    own = (squares / counts.count + about**2) / counts.per_pair(base)
    ends = np.ones(design.vehicles)
    ask = design.step(design.vehicle_entries(1), 1.0, ends, ends, part)
    one = design.pair_sums(own, design.covariates[:, 0]) - 1
    answer = float(measure.measure(ask, one)[0]) / GRAINS / design.vehicles
    doubt = _variance_doubt(design)
    city = max(1 + answer * (1 - doubt / VARIANCE_SPREAD**2), LEAST_VARIANCE)
    if design.thick:
        # how much more the cell of a bin varies than the function says, as a share
        cells, factor = design.variance_cells, VARIANCE_POWER * upper
        weights, bound = cells.weights, cells.clip_bounds[0]
        sums = cells.pair_sums(own / city - 1, np.ones(counts.bins))
        more = weights.entry / weights.records * sums * factor
        far = np.full(len(more), bound)
        ask = cells.step(cells.support, bound, far, far, cells.part)
        told = measure.measure(ask, more) * (bound / GRAINS)
        noise = (cells.noise_sd(cells.part, bound) / weights.place) ** 2
        prior = cells.cell_sd**2
        share = told / weights.place * prior / (prior + noise + weights.sampling) / factor
        base = base * (1 + np.maximum(share, -0.9)[cells.places.of_bin])
    return _variance_posterior(design, mean, level, city, base, scale)


def _variance_posterior(
    design: pooling_design.Design,
    mean: FloatArray,
    level: float,
    city: float,
    base: FloatArray | float,
    scale: float = 1.0,
) -> posterior.VariancePosterior:
    """The posterior where a is ``city``, and the city's level over U/5 is ``level``."""
    upper = float(design.bound.upper)
    return posterior.variance_posterior(
        city * base + np.zeros(len(mean)),
        float(np.sqrt(_variance_doubt(design)) / city),
        posterior.independent_records(design.counts),
        mean / (level * pooling_design.LEVEL * upper),
        (mean * (upper - mean), upper**2 / 4),
        scale,
    )


def _variance_doubt(design: pooling_design.Design) -> float:
    """The posterior variance of the city's number a."""
    noise = (design.noise_sd(design.parts.variance[0], 1.0) / design.vehicles) ** 2
    return float(noise * VARIANCE_SPREAD**2 / (VARIANCE_SPREAD**2 + noise))
