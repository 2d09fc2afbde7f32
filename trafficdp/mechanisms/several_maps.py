"""What several maps of one city say together, from what is published: how bins changed, and their mean.

Lambda is that of ``pooling.posterior``. Nothing of this is guaranteed: it is right as far as cities change
like the days that its constants were chosen on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.mechanisms.pooling import posterior

CHANGE_SD, OF_SLOTS = 0.15, 0.2
"""Of lambda: how far a bin's mean usually changes from one map to the next, and a slot's beside that, of
which maps hardly tell. Chosen on pairs of days in Austin, 2015-03-07 to 2017-03-21."""
FAR_SD, FAR_DAYS = 0.13, 30.0
"""How much further bins of maps of other seasons lie apart, and how soon. On the same days pairs 110 days
apart differ as much as pairs two years apart do, so that this ends, unlike a random walk."""
CHANGED = 0.05
"""By this share of its speed a bin has become slower, or faster, where the chance of it is told."""


@dataclass(frozen=True)
class Difference:
    """How much faster G bins have become, (G,) each; ``ends`` are those of intervals of LEVELS.

    ``slower`` and ``faster`` are the chances to be so by CHANGED of the speed.
    """

    value: FloatArray
    ends: dict[float, tuple[FloatArray, FloatArray]]
    slower: FloatArray
    faster: FloatArray


def change_between_maps(
    before: tuple[FloatArray, FloatArray],
    after: tuple[FloatArray, FloatArray],
    upper: float,
    *,
    slots: bool,
    days: float = 0.0,
) -> Difference:
    """Return the posterior of how much faster each bin has become between two maps, ``days`` apart.

    ``before`` and ``after`` are lower and upper ends of the maps' 80 % intervals, (G,) each; ``upper`` is the
    speed bound. Lambda of a bin is taken as normal in either map, m and m' with s and s'. Both maps start
    from the same city, as if its places were drawn anew for each: but a place stays what it is, so that d,
    how far lambda has moved, is N(0, t^2) before, t^2 = CHANGE_SD^2 + FAR_SD^2 (1 - exp(-days / FAR_DAYS)).
    After both maps it is N(k (m' - m), k (s^2 + s'^2)), with k = t^2 / (t^2 + s^2 + s'^2). In ``slots`` their
    own change joins both variances. A later map that starts from the earlier is nearer to it than its records
    are: so k is rather too small there.
    """
    (first, own), (last, other) = (_middle_and_sd(each, upper) for each in (before, after))
    noise, further = own**2 + other**2, OF_SLOTS**2 * slots
    usual = float(_moved(np.array(days))) + further
    kept = usual / (usual + noise)
    moved, sd = kept * (last - first), np.sqrt(kept * noise + further)
    # where both maps together say that it is
    middle = (first * other**2 + last * own**2) / noise

    def faster_by(moves: FloatArray) -> FloatArray:
        return posterior.speed_of(middle + moves / 2, upper) - posterior.speed_of(middle - moves / 2, upper)

    def chance(share: float) -> FloatArray:
        speed = posterior.speed_of(middle, upper)
        limit = posterior.lambda_of((1 + share) * speed, upper) - posterior.lambda_of(speed, upper)
        return np.asarray(ndtr((limit - moved) / sd))

    wide = {level: float(ndtri((1 + level) / 2)) * sd for level in posterior.LEVELS}
    ends = {level: (faster_by(moved - half), faster_by(moved + half)) for level, half in wide.items()}
    return Difference(faster_by(moved), ends, chance(-CHANGED), 1 - chance(CHANGED))


def _moved(days: FloatArray) -> FloatArray:
    """The variance t^2 of how far lambda of a place moves in ``days``."""
    return np.asarray(CHANGE_SD**2 + FAR_SD**2 * -np.expm1(-np.abs(days) / FAR_DAYS))


def change_variance(days: Sequence[float], slots: bool) -> float:
    """Return the prior variance of a bin's change of lambda, averaged over all pairs of maps at times
    ``days``.

    With ``slots`` it includes that of time slots.
    """
    apart = np.subtract.outer(days, days)[np.triu_indices(len(days), 1)]
    return float(_moved(apart).mean()) + 2 * OF_SLOTS**2 * slots


# The mean over the periods of several maps.

SPREADS, AROUND = np.geomspace(0.1, 0.8, 25), np.geomspace(0.05, 0.6, 6)
"""Of lambda, what may be: how far places lie from where maps expect them, and how far that is from one
number for the city."""
MOST_DECIDING = 500
"""Bins that decide both."""
LEAST_SHARE = 0.02
"""Of what a map says, its records have at least that."""
MAPS_SHARE = 0.5
"""How much of a value is the mean of the maps' own values; the rest is the posterior's."""
_CHANCES = (np.arange(100) + 0.5) / 100


@dataclass(frozen=True)
class MapOfPeriod:
    """One map of G bins: ``value`` and both ends of their 80 % intervals, (G,) each, NaN without a number.

    ``weight`` (G,) is what it counts for in the mean; 0 everywhere for a map that others started from, and
    that is no part of it. ``shrunk``: whether numbers are drawn to where the map expected them.
    ``starts_from``: maps before it in the list that it started from, by number, each with its share.
    """

    value: FloatArray
    ends: tuple[FloatArray, FloatArray]
    weight: FloatArray
    shrunk: bool = True
    starts_from: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class PooledMeans:
    """Means over several periods, (G,) each; ``ends`` of intervals of LEVELS, ``error`` as expected.

    ``informed``: whether an interval is at most MOST_OF_ONE of what it would be without any map.
    """

    value: FloatArray
    ends: dict[float, tuple[FloatArray, FloatArray]]
    error: FloatArray
    informed: BoolArray

    @property
    def widest(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the widest intervals, those of the last of LEVELS, shape (G,) each."""
        return self.ends[posterior.LEVELS[-1]]

    @property
    def inner(self) -> dict[str, FloatArray]:
        """Lower and upper ends of the narrower intervals, by the column names that they are published
        under.
        """
        return posterior.inner_ends(self.ends)


def pool(maps: Sequence[MapOfPeriod], place: IntArray, upper: float, change_variance: float) -> PooledMeans:
    """Return the posterior of the weighted mean speed over the periods of several ``maps``, for G bins.

    ``place`` (G,) is the cell of each bin, ``upper`` the speed bound, ``change_variance`` that of the
    difference of two periods. Lambda of a bin in period i is p + u + d_i: p where all maps expect it, N(L,
    a^2); u, how far it lies from there in all periods; d_i, N(0, ``change_variance``/2), its own. u + d_i is
    N(0, b^2). Records say y_i of it, and what a map says is m_i = p + k_i (y_i - p), with variance s_i^2 and
    k_i = 1 - s_i^2 / b^2. p is in every map, but counts once here: m and the weighted mean T are normal with

        Cov(m_i, m_j) = a^2 + k_i k_j (b^2 - Var d) + [i = j] (k_i^2 Var d + k_i s_i^2)
        Cov(T, m_i)   = a^2 + k_i (b^2 - Var d) + w_i k_i Var d

    and T is estimated from m. L is the mean of all m; a and b are integrated out over AROUND and SPREADS by
    the likelihood of m. A map that started from others, with shares q, expects (1 - sum q) p + sum q m_j: so
    for m_i is taken m_i - (1 - k_i) sum q m_j. A map that is not shrunk has k_i = 1 and y_i of variance
    s_i^2.
    """
    own = _Model.of(maps, place, upper, change_variance / 2)
    share = own.share_of_spreads()
    many = len(place)
    mean, square, before = (np.zeros(many) for _ in range(3))
    for start in range(0, many, posterior.AT_ONCE):
        rows = np.arange(start, min(start + posterior.AT_ONCE, many))
        for (spread, around), weight in share.items():
            told, variance, without = own.mean(rows, spread, around)
            mean[rows] += weight * told
            square[rows] += weight * (told**2 + variance)
            before[rows] += weight * without
    sd = np.sqrt(np.maximum(square - mean**2, 1e-12))

    def quantile(chance: float) -> FloatArray:
        return posterior.speed_of(mean + float(ndtri(chance)) * sd, upper)

    ends = {level: (quantile((1 - level) / 2), quantile((1 + level) / 2)) for level in posterior.LEVELS}
    value = MAPS_SHARE * own.mean_of_values() + (1 - MAPS_SHARE) * quantile(0.5)
    value = np.clip(value, *ends[posterior.LEVELS[1]])
    error = sum(np.abs(quantile(chance) - value) for chance in _CHANCES.tolist()) / len(_CHANCES)
    return PooledMeans(value, ends, np.asarray(error), sd <= posterior.MOST_OF_ONE * np.sqrt(before))


@dataclass(frozen=True)
class _Model:
    """Maps of ``pool``: numbers are (n, G), ``middle`` about ``level``, infinite variance without a number.

    ``drawn`` (n,) is 1 where a map is shrunk. ``start`` is what of its numbers is that of earlier maps,
    ``share`` how far it started from them. ``own`` is the variance of what is of one period alone.
    """

    level: float
    value: FloatArray
    middle: FloatArray
    variance: FloatArray
    weight: FloatArray
    drawn: FloatArray
    start: FloatArray
    share: FloatArray
    own: float

    @classmethod
    def of(cls, maps: Sequence[MapOfPeriod], place: IntArray, upper: float, own: float) -> _Model:
        """Return the normal model of ``maps``, centred.

        ``own`` is the prior variance of one period's own part.
        """
        there = np.array([~np.isnan(each.value) for each in maps])
        middle, sd = (
            np.array(each) for each in zip(*(_middle_and_sd(each.ends, upper) for each in maps), strict=True)
        )
        level = float(middle[there].mean())
        middle = np.where(there, middle - level, 0.0)
        weight = np.where(there, [each.weight for each in maps], 0.0)
        start, share = np.zeros_like(middle), np.zeros_like(middle)
        for row, each in enumerate(maps):
            for other, by in each.starts_from:
                number = np.bincount(place, there[other])[place]
                # all slots of a place move together
                moved = np.bincount(place, middle[other])[place] / np.maximum(number, 1)
                start[row] += by * moved
                share[row] += by * (number > 0)
        return cls(
            level,
            np.where(there, [each.value for each in maps], 0.0),
            middle,
            np.where(there, sd**2, np.inf),
            weight / weight.sum(axis=0),
            np.array([float(each.shrunk) for each in maps]),
            start,
            share,
            own,
        )

    def mean_of_values(self) -> FloatArray:
        """Return the weighted mean of the maps' own values in every bin, shape (G,), a speed."""
        return np.asarray((self.weight * self.value).sum(axis=0))

    def share_of_spreads(self) -> dict[tuple[float, float], float]:
        """Return the posterior probability of each likely pair (b, a) of spreads, given the maps."""
        bins = self.middle.shape[1]
        rows = np.unique(np.linspace(0, bins - 1, min(bins, MOST_DECIDING)).astype(np.int64))
        log = {
            (spread, around): float(self._normal(rows, spread, around).log_likelihood.sum())
            for spread in SPREADS.tolist()
            for around in AROUND.tolist()
        }
        most = max(log.values())
        found = {each: np.exp(value - most) for each, value in log.items() if value > most - 7}
        total = sum(found.values())
        return {each: float(value / total) for each, value in found.items()}

    def mean(self, rows: IntArray, spread: float, around: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return posterior mean, posterior variance and prior variance of the mean over periods, (n,) each.

        For bins ``rows`` (n,), in lambda, where the spreads b and a are ``spread`` and ``around``.
        """
        found = self._normal(rows, spread, around)
        return self.level + found.mean, found.variance, found.without

    def _normal(self, rows: IntArray, spread: float, around: float) -> _Normal:
        """What maps say of some bins if spreads are these."""
        variance, weight = self.variance[:, rows], self.weight[:, rows]
        drawn = self.drawn[:, None]
        there = np.isfinite(variance)
        variance = np.where(there, variance, 0.0)
        kept = np.where(drawn > 0, np.clip(1 - variance / spread**2, LEAST_SHARE, 1.0), 1.0) * there
        expected = (1 - kept) * (1 - self.share[:, rows]) + kept
        told = self.middle[:, rows] - (1 - kept) * self.start[:, rows] * there
        always = max(spread**2 - self.own, 1e-4)
        alone = kept**2 * self.own + np.where(drawn > 0, kept, 1.0) * variance
        return _Normal(
            told,
            np.divide(1.0, alone, out=np.zeros_like(alone), where=there),
            (around * expected, np.sqrt(always) * kept),
            around**2 * expected + kept * (always + weight * self.own),
            around**2 + always + self.own * (weight**2).sum(axis=0),
        )


@dataclass(frozen=True)
class _Normal:
    """Numbers ``told``, (maps, G), of covariance diag(1 / ``precision``) + sum of r r' for r in ``roots``.

    ``with_mean`` is their covariance with what is asked for, ``without`` its variance, (G,), without them. A
    precision of 0 is no number. Inverted by Woodbury's identity, in time linear in the number of maps.
    """

    told: FloatArray
    precision: FloatArray
    roots: tuple[FloatArray, FloatArray]
    with_mean: FloatArray
    without: FloatArray

    def _product(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """One' C^-1 other, (G,), of the diagonal part C alone."""
        return np.asarray((one * self.precision * other).sum(axis=0))

    @cached_property
    def _inner(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The symmetric matrix I + R' C^-1 R, by its entries, and its determinant."""
        first, second = self.roots
        one, both, two = (
            self._product(*pair) for pair in ((first, first), (first, second), (second, second))
        )
        return 1 + one, both, 1 + two, (1 + one) * (1 + two) - both**2

    def _form(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Return one' S^-1 other of every bin, shape (G,); both are (maps, G), S is the whole covariance."""
        a, b, c, determinant = self._inner
        (u, v), (x, y) = ([self._product(root, each) for root in self.roots] for each in (one, other))
        return self._product(one, other) - (c * u * x - b * (u * y + v * x) + a * v * y) / determinant

    @property
    def log_likelihood(self) -> FloatArray:
        """The log likelihood of every bin's numbers ``told``, up to a constant, shape (G,)."""
        scale = np.log(self.precision, out=np.zeros_like(self.precision), where=self.precision > 0)
        return np.asarray(scale.sum(axis=0) - np.log(self._inner[3]) - self._form(self.told, self.told)) / 2

    @property
    def mean(self) -> FloatArray:
        """The conditional mean of what is asked for, given the numbers ``told``, shape (G,)."""
        return self._form(self.with_mean, self.told)

    @property
    def variance(self) -> FloatArray:
        """The conditional variance of what is asked for, given the numbers ``told``, shape (G,)."""
        return np.maximum(self.without - self._form(self.with_mean, self.with_mean), 0.0)


def _middle_and_sd(ends: tuple[FloatArray, FloatArray], upper: float) -> tuple[FloatArray, FloatArray]:
    """Lambda in the middle of 80 % intervals, and the deviation of a normal that has them."""
    low, high = (posterior.lambda_of(each, upper) for each in ends)
    return (low + high) / 2, np.maximum((high - low) / 2 / float(ndtri(0.9)), 1e-6)
