"""What a map knows of every bin: a posterior, from noisy answers and public facts alone, so that it is free.

Everything is on a grid of POINTS equal steps of lambda = log(1 + 30 v / U): there spreads are alike for slow
and for fast places, so that rare fast roads are no special case. Nothing is drawn and nothing is searched
for: the same answers give the same bits.

**Prior.** The mean of a place is Student (4 degrees of freedom) about the map that there was before places
were asked about, of spread hypot(a sigma, doubt): sigma is a guess, doubt what is unknown of that map. The
factor a is common to all places. It has SCALES points and the prior N(0, ``Places.scale_sd``^2) of its
logarithm, and is integrated out by the marginal likelihood of the places that decide it (``Places.decides``).

**Likelihood.** Handed over as log densities on the grid (``Places.log_likelihood``). The clip of a vehicle's
vector belongs into it: far places are clipped more (``estimates``, ``add_remove_map``).

**Bins** follow from places: moved by so much of lambda, with N(0, sd^2) added (``Bins``).

Nothing of this is guaranteed: it is right as far as cities are like the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, ndtri, stdtrit

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.model import Counts, KnowledgeKind, KnownSpeeds

POINTS, RANGE = 161, 30.0
LAMBDA = np.linspace(0.0, np.log1p(RANGE), POINTS)
STEP = float(LAMBDA[1])
NORMAL_ENDS = 9.0
"""exp(-9^2 / 2) is less than is rounded off."""
SCALES = np.exp(np.linspace(np.log(0.4), np.log(5.0), 11))
SCALE_SD = 0.6
LEVELS = (0.5, 0.8, 0.95)
"""Of the intervals that are published."""
MAP_SHARE = 0.75
"""How much of a value is the map that is had without all this; the rest is the median. It is kept within the
80 % interval."""
MOST_OF_ONE = 0.9
NINE_TENTHS = 1.533206274
"""The quantile of a Student of 4 degrees of freedom that an 80 % interval ends at."""
APART = 0.2
"""By this share of the city's speed a bin is slower, or faster, where the chance of it is published."""
FEW_PLACES, AGREES, AGREES_SD, BELIEVED = 10, 0.4, 0.1, 0.7
"""From so many places on a timetable is believed if its speeds and signs of slow traffic correlate by so
much, with that deviation from one to another; how likely that is before. Chosen on eight sets of days in
Austin, 2015-03-07 to 2017-03-21, by right timetables and by shuffled ones."""
USUAL_SPREAD = 0.3
"""Of lambda: how far places of a city usually lie apart. What a file says is trusted less if it varies more,
as one of mixed units does. Chosen on five of those days."""
FARTHEST_KNOWN = 3.0
"""How many times slower or faster a place can be expected to be by what is known before."""
WEIGHTS, EM_STEPS, MOST_FITTED = 25, 60, 20_000
"""Points of the prior of weights, steps that fit it, and weights that it is fitted to: quantiles, if more."""
AT_ONCE, MOST_KEPT = 256, 20_000
"""Places that are worked on together; of so many at most the likelihood is kept, in 26 MB."""
VARIANCE_SHIFT, VARIANCE_UP, VARIANCE_DOWN, VARIANCE_FAST = 0.15, 0.25, 0.28, 2.0
"""Of the logarithm of a variance: by how much bins usually lie below what is found, how far they spread about
that, Student (4 degrees) upwards and downwards, and how the lower spread grows where it is faster than in the
city, up to twice: on a motorway all may drive alike."""
RECORDS_ALIKE, KURTOSIS = 0.25, 5.0
"""How alike records of one vehicle in a bin are, and the kurtosis of speeds: more than a normal's 3, as
vehicles stand or drive. Chosen on 2015-03-07, 2016-11-24 to -27, 2017-03-16 and -21 in Austin, the kurtosis
on 2015-03-18 and -19 too."""
VARIANCE_CHANCES = (np.arange(100) + 0.5) / 100


@dataclass(frozen=True)
class Places:
    """P places: ``centre`` (a speed), ``sigma`` and ``doubt`` (of lambda), shape (P,) each.

    ``log_likelihood`` of some of them, by their numbers, is (n, POINTS). ``decides`` (P,): which decide a,
    of whose logarithm ``scale_sd`` is the deviation before.
    """

    centre: FloatArray
    sigma: FloatArray
    doubt: FloatArray
    log_likelihood: Callable[[IntArray], FloatArray]
    decides: BoolArray
    scale_sd: float = SCALE_SD


@dataclass(frozen=True)
class Bins:
    """G bins: each is ``place`` moved by ``shift`` with N(0, ``sd``^2) added, both of lambda; (G,) each.

    ``map`` (G,) is what is had without all this.
    """

    place: IntArray
    shift: FloatArray
    sd: FloatArray
    map: FloatArray


@dataclass(frozen=True)
class OneNumber:
    """One speed ``level`` for the city, and how far bins lie from it, of lambda: with a, and without."""

    level: float
    growing: FloatArray
    fixed: FloatArray


@dataclass(frozen=True)
class Posterior:
    """What is published of G bins, shape (G,) each; ``ends`` are both ends of the intervals of LEVELS.

    ``error`` is the expected absolute error of ``value``; ``slower`` and ``faster`` are the chances to be
    slower, or faster, than the speed ``city`` by APART of it. ``informed``: whether the 80 % interval is at
    most MOST_OF_ONE of that of one number for the city. ``scale`` is the likely a.
    """

    value: FloatArray
    ends: dict[float, tuple[FloatArray, FloatArray]]
    error: FloatArray
    slower: FloatArray
    faster: FloatArray
    informed: BoolArray
    city: float
    scale: float


@dataclass(frozen=True)
class VariancePosterior:
    """What is published of variances of G bins, shape (G,) each, as in ``Posterior``."""

    value: FloatArray
    ends: dict[float, tuple[FloatArray, FloatArray]]
    error: FloatArray


@dataclass(frozen=True)
class SlowTraffic:
    """A sign of slow traffic in G bins that no speed is read for: many vehicles, or long stays.

    ``value`` (G,) is larger where it is slow; ``tells`` (G,) says where it is no mere noise. ``used``:
    whether centres are as exact as it is, so that what a source says by it they say already.
    """

    value: FloatArray
    tells: BoolArray
    used: bool


def inner_ends(ends: dict[float, tuple[FloatArray, FloatArray]]) -> dict[str, FloatArray]:
    """Return the interval ends of all levels but the widest, by column name, such as "low_80" and "high_80".

    ``ends`` maps a level to arrays of lower and upper ends.
    """
    found: dict[str, FloatArray] = {}
    for level, (low, high) in ends.items():
        if level != LEVELS[-1]:
            found |= {f"low_{round(100 * level)}": low, f"high_{round(100 * level)}": high}
    return found


def lambda_of(speed: FloatArray, upper: float) -> FloatArray:
    """Return lambda = log(1 + 30 speed / ``upper``), the scale on which posteriors are computed.

    ``speed`` is 0..``upper``, the speed bound, in any shape.
    """
    return np.asarray(np.log1p(np.maximum(speed, 0.0) * RANGE / upper))


def speed_of(position: FloatArray, upper: float) -> FloatArray:
    """Return the speed at the lambda ``position``: (e^position - 1) ``upper`` / 30, cut to 0..``upper``."""
    return np.asarray(np.clip(np.expm1(position) * upper / RANGE, 0.0, upper))


def lambda_sd(sd: FloatArray, speed: FloatArray, upper: float) -> FloatArray:
    """Return the standard deviation of lambda that corresponds to ``sd`` of speeds near ``speed``.

    That is sd times the slope of ``lambda_of`` at ``speed``; ``upper`` is the speed bound.
    """
    return np.asarray(sd / (upper / RANGE + speed))


def known_centre(
    known: KnownSpeeds | None,
    centre: FloatArray,
    weight: FloatArray,
    place: IntArray,
    upper: float,
    slow: SlowTraffic | None = None,
) -> FloatArray:
    """Return the prior centre of every bin's speed, (G,): ``centre`` moved towards publicly known speeds.

    Source by source: the known speeds are scaled to the same mean as the centres of their bins (weighed by
    ``weight``, shape (G,)), and lambda of a bin moves by the source's ``share`` of the difference, or by less
    where a timetable disagrees with signs of ``slow`` traffic. No speed becomes more than FARTHEST_KNOWN
    times slower or faster. ``place`` (G,) is the cell of each bin. All of it is public or noisy: it costs no
    privacy.
    """
    for source, speed in [] if known is None else zip(known.sources, known.speed, strict=True):
        there = np.flatnonzero(~np.isnan(speed))
        if len(there):
            mass, before = weight[there], lambda_of(centre, upper)
            own = lambda_of(speed[there] * (mass @ centre[there]) / (mass @ speed[there]), upper)
            if source.kind is KnowledgeKind.RELEASE:
                moves = _of_places(own - before[there], mass, place, there)
            else:
                moves = _as_far_as_it_agrees(own, mass, place, there, slow)
            moved = speed_of(before + source.share * moves, upper)
            centre = np.clip(moved, centre / FARTHEST_KNOWN, centre * FARTHEST_KNOWN)
    return np.minimum(centre, upper)


def _of_places(far: FloatArray, mass: FloatArray, place: IntArray, there: IntArray) -> FloatArray:
    """How far, by ``far`` (n,) in the bins ``there``, lambda lies from what was expected in a bin's place.

    On average by ``mass`` (n,): all slots of a place move alike. A map of the same places is believed.
    """
    at, size = place[there], int(place.max()) + 1
    away = np.bincount(at, mass * far, size)
    return np.asarray((away / np.maximum(np.bincount(at, mass, size), 1e-300))[place])


def _as_far_as_it_agrees(
    own: FloatArray, mass: FloatArray, place: IntArray, there: IntArray, slow: SlowTraffic | None
) -> FloatArray:
    """How far ``own`` (n,), of lambda in the bins ``there``, lies from what ``slow`` makes likely, each bin.

    What a file says may be of another time, or of other traffic: it is cut by how well it agrees with
    ``slow`` (``_agreement``). It counts from its mean or, where centres use the sign already, from its
    regression on it.
    """
    moves = np.zeros(len(place))
    tells = np.zeros(len(there), dtype=np.bool_) if slow is None else slow.tells[there]
    if slow is None or not tells.any():
        return moves
    sign = slow.value[there]
    told, value, at = own[tells], sign[tells], place[there][tells]
    # slots of a place are alike, and are no further evidence; but a timetable must be right in them too
    belief = min(_agreement(told, value, each) for each in (at, np.arange(len(at))))
    if belief:
        share = mass[tells] / mass[tells].sum()
        # what spreads beyond usual is error: so much of its variance is not
        belief *= min(1.0, USUAL_SPREAD**2 / float(share @ (told - share @ told) ** 2))
        slope = share @ ((value - share @ value) * told) / (share @ (value - share @ value) ** 2)
        moves[there] = belief * (own - share @ told - slow.used * slope * (sign - share @ value))
    return moves


def _agreement(position: FloatArray, slow: FloatArray, place: IntArray) -> float:
    """How likely it is, 0..1, that a source's lambda says something of speeds.

    r is its correlation with signs of slow traffic over n places. Before that it is BELIEVED. -r is
    N(0, 1/n) of what says nothing, N(AGREES, 1/n + AGREES_SD^2) of what does, and beyond AGREES as likely as
    there. 0 with less than FEW_PLACES.
    """
    names, number = np.unique(place, return_inverse=True)
    many = len(names)
    if many < FEW_PLACES:
        return 0.0
    inside = np.bincount(number)
    pair = np.stack([np.bincount(number, each) / inside for each in (position, slow)])
    if not np.all(pair.std(axis=1) > 1e-9):
        return 0.0
    r, nothing = -float(np.asarray(np.corrcoef(pair))[0, 1]), 1 / many
    something = nothing + AGREES_SD**2
    log_odds = r**2 / nothing - min(r - AGREES, 0.0) ** 2 / something - np.log(something / nothing)
    return float(1 / (1 + (1 - BELIEVED) / BELIEVED * np.exp(-log_odds / 2)))


def posterior(
    places: Places, bins: Bins, city_number: OneNumber, upper: float, share: float = MAP_SHARE
) -> Posterior:
    """Return the posterior mean speed of every bin, from noisy answers and priors on ``places`` and ``bins``.

    ``city_number`` is one speed for the city, to compare with; ``upper`` the speed bound. The published value
    is ``share`` times the map of ``bins`` plus the rest times the posterior median, within the 80 % interval.
    """
    if len(places.centre) <= MOST_KEPT:
        every = np.array_split(np.arange(len(places.centre)), 1 + len(places.centre) // AT_ONCE)
        kept = np.concatenate([places.log_likelihood(own) for own in every])
        places = replace(places, log_likelihood=kept.__getitem__)
    speeds, scale_share = speed_of(LAMBDA, upper), _scale_share(places, upper)
    scale = float(np.exp(scale_share @ np.log(SCALES)))
    order = np.argsort(bins.place, kind="stable")
    found = {name: np.empty(len(order)) for name in ("value", "error", "slower", "faster")}
    ends = {level: (np.empty(len(order)), np.empty(len(order))) for level in LEVELS}
    for start in range(0, len(order), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        own, which = np.unique(bins.place[rows], return_inverse=True)
        # of the places, a integrated out: rows sum to 1
        likelihood, of_place = _likelihood(places, own), np.zeros((len(own), POINTS))
        for each, chance in zip(SCALES, scale_share, strict=True):
            if chance > 1e-3:
                scaled = _prior(places, own, each, upper) * likelihood
                of_place += chance / scaled.sum(axis=1, keepdims=True) * scaled
        weight = (of_place / of_place.sum(axis=1, keepdims=True))[which]
        weight = _moved(weight, bins.shift[rows], bins.sd[rows])
        total = np.cumsum(weight, axis=1)
        for level in LEVELS:
            for end, chance in zip(ends[level], ((1 - level) / 2, (1 + level) / 2), strict=True):
                end[rows] = _quantile(weight, total, chance, upper)
        value = share * bins.map[rows] + (1 - share) * _quantile(weight, total, 0.5, upper)
        value = np.clip(value, *(end[rows] for end in ends[LEVELS[1]]))
        found["value"][rows] = value
        found["error"][rows] = (weight * np.abs(speeds - value[:, None])).sum(axis=1)
        # the chance of less than both speeds, a step of the grid being shared out
        apart = lambda_of(city_number.level * np.array([1 - APART, 1 + APART]), upper)
        less = np.clip((apart[:, None] - LAMBDA) / STEP + 0.5, 0.0, 1.0)
        found["slower"][rows] = (weight * less[0]).sum(axis=1)
        found["faster"][rows] = 1 - (weight * less[1]).sum(axis=1)
    low, high = ends[0.8]
    middle = float(lambda_of(np.array(city_number.level), upper))
    sd = np.hypot(scale * city_number.growing, city_number.fixed)
    alone = speed_of(middle + NINE_TENTHS * sd, upper) - speed_of(middle - NINE_TENTHS * sd, upper)
    informed = np.asarray(high - low <= MOST_OF_ONE * alone)
    return Posterior(**found, ends=ends, informed=informed, city=city_number.level, scale=scale)


def _scale_share(places: Places, upper: float) -> FloatArray:
    """The posterior of a on SCALES."""
    log = -((np.log(SCALES) / places.scale_sd) ** 2) / 2
    deciding = np.flatnonzero(places.decides)
    for start in range(0, len(deciding), AT_ONCE):
        own = deciding[start : start + AT_ONCE]
        likelihood = _likelihood(places, own)
        for number, scale in enumerate(SCALES):
            log[number] += np.log((_prior(places, own, scale, upper) * likelihood).sum(axis=1)).sum()
    share = np.exp(log - log.max())
    return np.asarray(share / share.sum())


def _likelihood(places: Places, own: IntArray) -> FloatArray:
    log = places.log_likelihood(own)
    # a place that lies off the grid of the likelihood has the prior's ends, not none
    return np.asarray(np.exp(np.maximum(log - log.max(axis=1, keepdims=True), -600.0)))


def _prior(places: Places, own: IntArray, scale: float, upper: float) -> FloatArray:
    sd = np.hypot(scale * places.sigma[own], places.doubt[own])
    z = (LAMBDA - lambda_of(places.centre[own], upper)[:, None]) / (2 * sd)[:, None]
    z *= z
    z += 1.0
    density = 1 / (z * z * np.sqrt(z))
    return np.asarray(density / density.sum(axis=1, keepdims=True))


def _moved(weight: FloatArray, shift: FloatArray, sd: FloatArray) -> FloatArray:
    """``weight`` shifted and with a normal added; what leaves the ends stays at them."""
    if not (np.any(shift) or np.any(sd)):
        return weight
    half = POINTS // 2
    wave = np.fft.rfftfreq(2 * POINTS, d=STEP) * 2 * np.pi
    # of faster waves a normal leaves nothing
    wave = wave[: np.searchsorted(wave, NORMAL_ENDS / max(float(sd.min()), 1e-9))]
    padded = np.zeros((len(weight), 2 * POINTS))
    padded[:, half : half + POINTS] = weight
    turn = np.exp(-0.5 * (sd[:, None] * wave) ** 2 - 1j * wave * shift[:, None])
    turned = np.fft.rfft(padded, axis=1)[:, : len(wave)] * turn
    full = np.maximum(np.fft.irfft(turned, 2 * POINTS, axis=1), 0.0)
    found = full[:, half : half + POINTS].copy()
    found[:, 0] += full[:, :half].sum(axis=1)
    found[:, -1] += full[:, half + POINTS :].sum(axis=1)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _quantile(weight: FloatArray, total: FloatArray, chance: float, upper: float) -> FloatArray:
    at = np.minimum((total < chance).sum(axis=1), POINTS - 1)
    row = np.arange(len(at))
    before = total[row, at] - weight[row, at]
    inside = np.clip((chance - before) / np.maximum(weight[row, at], 1e-12), 0.0, 1.0)
    return speed_of(LAMBDA[at] + (inside - 0.5) * STEP, upper)


def independent_records(counts: Counts) -> FloatArray:
    """Return each bin's effective number of independent records, shape (G,), from public counts.

    Records of one vehicle are taken to be correlated by 0.25 (Kish's design effect): records / (1 + 0.25
    (records per vehicle - 1)).
    """
    records = counts.samples_per_bin
    return np.asarray(records / (1 + RECORDS_ALIKE * (records / counts.users_per_bin - 1)))


def variance_posterior(
    estimate: FloatArray,
    log_sd: float,
    records: FloatArray,
    relative_speed: FloatArray,
    largest: tuple[FloatArray, float],
    scale: float = 1.0,
    published: FloatArray | None = None,
) -> VariancePosterior:
    """Return the posterior of every bin's variance around a noisy ``estimate`` (G,).

    ``log_sd`` is the standard deviation of its logarithm from noise, ``records`` (G,) the effective number of
    independent records, ``relative_speed`` (G,) the bin's speed over the city's, and ``largest`` the largest
    possible values (G,) and the largest variance. Spreads of traffic, of sampling (chi-squared with 2 (N -
    1)/(KURTOSIS - 1) degrees of freedom) and noise add in quadrature. The published value is ``published``,
    or else (N - 1)/N ``estimate``. ``scale`` >= 1 widens the spread where means lie that much farther apart
    than usual.
    """
    within = 1 - 1 / np.maximum(records, 2.0)
    # chi-squared over its degrees of freedom, to the power of a third: Wilson and Hilferty, 1931
    cube_variance = (KURTOSIS - 1) / (9 * np.maximum(records - 1, 1.0))
    up = VARIANCE_UP * max(scale, 1.0)
    down = VARIANCE_DOWN * max(scale, 1.0) * np.clip(relative_speed, 1.0, 2.0) ** VARIANCE_FAST

    def log_of_sample(z: float) -> FloatArray:
        return np.asarray(3 * np.log(np.maximum(1 - cube_variance + z * np.sqrt(cube_variance), 0.1)))

    middle = log_of_sample(0.0)
    median = np.exp(middle - VARIANCE_SHIFT) * within * estimate

    def quantile(chance: float) -> FloatArray:
        z, of_traffic = float(ndtri(chance)), (up if chance > 0.5 else down) * stdtrit(4, chance)
        away = np.sqrt(of_traffic**2 + (log_sd * z) ** 2 + (log_of_sample(z) - middle) ** 2)
        return np.asarray(np.minimum(median * np.exp(np.copysign(away, z)), largest[1]))

    value = np.minimum(within * estimate if published is None else published, largest[0])
    ends = {}
    for level in LEVELS:
        low, high = (quantile((1 + side * level) / 2) for side in (-1, 1))
        ends[level] = np.minimum(low, value), np.maximum(high, value)
    error = sum(np.abs(quantile(chance) - value) for chance in VARIANCE_CHANCES.tolist())
    return VariancePosterior(value, ends, np.asarray(error / len(VARIANCE_CHANCES)))


def log_laplace_normal(deviation: FloatArray, scale: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the log density at ``deviation`` of a Laplace(``scale``) plus an independent N(0, ``variance``)
    variable.

    Up to a constant for each scale and variance; elementwise.
    """
    sd = np.sqrt(np.maximum(variance, 1e-12))
    left, right = (
        side * deviation / scale + log_ndtr(-(side * deviation / sd + sd / scale)) for side in (1, -1)
    )
    return np.asarray(np.logaddexp(left, right))


def fit_weight_prior(weight: FloatArray, sd: float, pure: bool) -> tuple[FloatArray, FloatArray]:
    """Fit a discrete prior for the true weights of places to their noisy ``weight`` (H,), by EM.

    Returns its points, from 0 up, and their probabilities. ``sd`` is the noise's standard deviation; ``pure``
    says that it is Laplace, else Gaussian.
    """
    if len(weight) > MOST_FITTED:
        weight = np.sort(weight)[np.linspace(0, len(weight) - 1, MOST_FITTED).astype(np.int64)]
    farthest = np.log(max(float(weight.max()), 2 * sd) / sd)
    points = np.append(0.0, sd * np.exp(np.linspace(np.log(0.1), farthest, WEIGHTS - 1)))
    likelihood = np.exp(log_noise(weight[:, None] - points, sd, pure))
    mass = np.full(WEIGHTS, 1 / WEIGHTS)
    for _ in range(EM_STEPS):
        found = 1 / np.maximum(likelihood @ mass, 1e-300)
        mass = (mass * (found @ likelihood) + 0.5) / (len(weight) + 0.5 * WEIGHTS)
    return points, mass


def log_noise(deviation: FloatArray, sd: float, pure: bool) -> FloatArray:
    """Return the log density at ``deviation``, up to a constant, of noise of standard deviation ``sd``.

    The noise is Laplace where ``pure``, else Gaussian.
    """
    return np.asarray(-np.sqrt(2) * np.abs(deviation) / sd if pure else -0.5 * (deviation / sd) ** 2)
