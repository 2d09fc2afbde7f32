"""PLAN over all bins at once: one clipped vector a vehicle, noise shaped to every bin's spread.

Paper 004: Aumueller, Lebeda, Nelson, Pagh, "PLAN: Variance-Aware Private Mean Estimation", arXiv 2306.08745;
the formulation for sparse visits is ours. With L vehicles and a private centre c_g of every bin, vehicle l
has the vector

    z[l, g] = (L / N_g) (S[g, l] - m[g, l] c_g)  where it was,  0 where it was not,

and (1/L) sum_l z[l] + c is exactly the vector of bin means. Centring visitors only keeps vectors short.

1. c_g: private median of the visitors' own means, rho_c/G_1 a bin, G_1 the most bins of one vehicle: a
   vehicle pays for its own bins only.
2. Spread of the visitors' means in bin g: private median of their squared distances from c_g, rho_v/G_1 a
   bin (PRIVATE; the paper takes differences of pairs of visitors, which no set of one vehicle holds), or
   taken as equal (PUBLIC); times (1/N_g) sqrt(L sum m^2) that is the spread of z[., g].
   s_g = spread^(-2/(p+2)): the printed Sigma^(-1/(p+2)) is a power of variances (erratum E19). NONE: s = 1.
3. Length C: private quantile of |s z_l|, over [0, max_l B_l], B_l = |s_g L m[g, l] U / N_g|_2 (public).
4. Sum of s z_l clipped to C, plus discrete Gaussian noise for l2 sensitivity B = max_l min(2 C, B_l).

Theorem (REPLACE_USER_VALUES). rho-zCDP for every vehicle: all four read of a vehicle nothing but its own
numbers, in sets of the measurement layer whose sensitivities are those above (``measurement.sets``). A
vehicle with G_l bins pays (rho_c + rho_v) G_l/G_1 and at most the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import numpy as np
from scipy.special import gammaincinv

from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import GRAINS, EntryIndex, Gaussian
from trafficdp.measurement.sets import Ball, Measure, Priced, Ranks, Step
from trafficdp.mechanisms.means import support_of
from trafficdp.mechanisms.protocol import StatisticRequest, require_statistic
from trafficdp.model import Counts, Statistic
from trafficdp.privacy.loss import PICO, ZCDP, LossKind
from trafficdp.sensitive import Samples

TOP = 1 << 50
"""Quantiles are whole numbers of a range's 2^-50."""
OCTAVES = 32
"""Squares are told apart down to 2^-32 of the largest."""
SIXTEENTHS = {True: (1, 3, 3), False: (4, 0, 3)}
"""Of rho for centre, spread and clipping length, where the spread is private and where not; the rest is
noise."""
RANK_STEPS = 20
"""T of the rank allowance."""
FAILURE = 0.1
"""beta of the rank allowance."""


class Scaling(StrEnum):
    """Where the spread of a bin comes from: the visitors' own means, public counts, or nowhere."""

    PRIVATE = "private"
    PUBLIC = "public"
    NONE = "none"


@dataclass(frozen=True)
class RhoShares:
    """Whole 10^-12 of rho: a bin for ``centre`` and ``spread``, once for ``clipping`` and ``noise``."""

    centre: int
    spread: int
    clipping: int
    noise: int


@dataclass(frozen=True)
class PlanMechanism:
    """PLAN for bin means; ``power`` p of the error norm it aims at."""

    scaling: Scaling = Scaling.PRIVATE
    power: int = 2

    citation = (
        "Aumueller, Lebeda, Nelson, Pagh: PLAN: Variance-Aware Private Mean Estimation, arXiv 2306.08745"
    )
    statistics = (Statistic.MEAN,)
    kind = LossKind.ZCDP
    enforced = True
    idealised = False

    @property
    def name(self) -> str:
        """The mechanism's name in the registry."""
        stem = {Scaling.PRIVATE: "plan", Scaling.PUBLIC: "plan_public_scaling"}
        return stem.get(self.scaling, "plan_without_scaling") + ("" if self.power == 2 else f"_l{self.power}")

    def parts(self, counts: Counts, loss: FloatArray) -> RhoShares:
        """Return the part of rho ``loss`` that each step may cost.

        UsageError for a rho that cannot be shared out.
        """
        total, most = ZCDP.of(float(loss)).pico, int(counts.bins_per_user.max(initial=1))
        private = self.scaling is Scaling.PRIVATE
        centre, spread, clipping = (each * total // 16 for each in SIXTEENTHS[private])
        centre, spread = centre // most, spread // most
        if not (centre and clipping and (spread or not private)):
            raise UsageError("no noise fits the rho", got=f"rho={float(loss):g}", todo="ask for a larger one")
        return RhoShares(centre, spread, clipping, total - clipping - most * (centre + spread))

    def steps(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the measurement steps, with their prices, from public counts: nothing is measured here.

        They are the private centres, the private spreads (where ``scaling`` is PRIVATE), the clipping length
        and the noisy sum. The sum is the dearest that can follow: every vehicle pays for a vector as long as
        the clipping length.
        """
        counts = request.counts
        require_statistic(self.name, request.statistic, self.statistics)
        parts = self.parts(counts, request.loss)
        spread = (_medians(counts, parts.spread),) if self.scaling is Scaling.PRIVATE else ()
        whole = np.full(counts.pairs, GRAINS, dtype=np.int64)
        ball = Ball(support_of(counts), 2, 1.0, -whole, whole)
        sd = np.full(counts.bins, 2 * GRAINS / _root(parts.noise) * (1 + 2.0**-40))
        return (
            _medians(counts, parts.centre),
            *spread,
            _longest(counts, parts.clipping),
            Step(ball, Gaussian(sd)),
        )

    def expected_error(self, request: StatisticRequest) -> FloatArray:
        """Return U for every bin, shape (G,): how much clipping costs depends on values.

        Compare by simulation on synthetic values.
        """
        require_statistic(self.name, request.statistic, self.statistics)
        return np.full(request.counts.bins, float(request.bound.upper) if np.isfinite(request.loss) else 0.0)

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``loss`` is one rho for all bins (infinite: no clip, no
        noise); ``measure`` draws all noise and, in a release, charges for it.
        """
        require_statistic(self.name, statistic, self.statistics)
        counts, step, upper = samples.counts, float(samples.bound.step), float(samples.bound.upper)
        total: FloatArray = samples.contributions().total.astype(np.float64) * step
        if np.isinf(loss) or counts.bins == 0:
            return _per_bin(counts, total) / counts.samples_per_bin
        parts, own = self.parts(counts, loss), total / counts.count
        drawn = measure.select(_medians(counts, parts.centre), np.minimum(own / upper, 1.0) * TOP)
        centre = np.asarray(drawn * (upper / TOP), dtype=np.float64)
        weight = self._weights(counts, own - centre[counts.bin_index], upper, parts.spread, measure)
        vehicles = int(np.count_nonzero(counts.bins_per_user))
        factor = weight * (vehicles / counts.samples_per_bin)
        y = factor[counts.bin_index] * (total - counts.count * centre[counts.bin_index])
        shift = _clipped_sums(counts, y, factor * centre, factor * (upper - centre), parts, measure)
        return np.asarray(np.clip(centre + shift / (weight * vehicles), 0.0, upper))

    def _weights(
        self, counts: Counts, distance: FloatArray, upper: float, pico: int, measure: Measure
    ) -> FloatArray:
        """s_g, shape (G,), from ``distance`` (P,) of the visitors' means from the centre."""
        if self.scaling is Scaling.NONE:
            return np.ones(counts.bins)
        spread = np.full(counts.bins, upper / np.sqrt(12))
        if self.scaling is Scaling.PRIVATE:
            share = np.maximum((distance / upper) ** 2, 2.0**-OCTAVES)
            drawn = measure.select(_medians(counts, pico), (np.log2(share) / OCTAVES + 1) * TOP)
            square = np.exp2((drawn / TOP - 1) * OCTAVES) / chi_square_factor(1)
            # one visitor's distance from a median of itself says nothing
            spread = np.where(counts.users_per_bin > 1, upper * np.sqrt(square), spread)
        squares = _per_bin(counts, counts.count.astype(np.float64) ** 2)
        vehicles = int(np.count_nonzero(counts.bins_per_user))
        of_vector = spread * np.sqrt(vehicles * squares) / counts.samples_per_bin
        return scaling(of_vector + of_vector.mean(), self.power)


def _clipped_sums(
    counts: Counts, y: FloatArray, below: FloatArray, above: FloatArray, parts: RhoShares, measure: Measure
) -> FloatArray:
    """The noisy sums (G,) of clipped vectors ``y`` (P,), whose entries lie in -``below`` m .. ``above`` m."""
    present = counts.bins_per_user > 0
    sides = (below + above)[counts.bin_index] * counts.count
    limit = float(np.sqrt(counts.sum_per_user(sides**2)).max())
    length = np.sqrt(counts.sum_per_user(y**2))[present]
    (drawn,) = measure.select(_longest(counts, parts.clipping), np.minimum(length / limit, 1.0) * TOP)
    # the upper end of the step, never 0
    clip = (float(drawn) + 1) / TOP * limit
    low, high = (
        np.ceil(np.minimum(side[counts.bin_index] * counts.count / (clip / GRAINS), GRAINS)).astype(np.int64)
        for side in (below, above)
    )
    ball = Ball(support_of(counts), 2, clip, -low, high)
    apart = min(2 * GRAINS, float(np.sqrt(counts.sum_per_user((low + high).astype(np.float64) ** 2)).max()))
    # a hair more than the dearest step has, so that rounding never makes it dearer
    sd = np.full(counts.bins, apart / _root(parts.noise) * (1 + 2.0**-39))
    return np.asarray(measure.measure(Step(ball, Gaussian(sd)), y) * (ball.bound / GRAINS), dtype=np.float64)


def scaling(spread: FloatArray, power: int) -> FloatArray:
    """Return PLAN's scaling s = spread^(-2/(p+2)) of each coordinate, for the l_p error with p = ``power``.

    ``spread`` > 0 are the coordinates' standard deviations.
    """
    return np.asarray(spread ** (-2 / (power + 2)))


def rank_allowance(vectors: int, rho: float) -> float:
    """Return how many of ``vectors`` may be longer than the clipping length: sqrt(n) + sqrt(T
    ln(2T/beta)/rho).
    """
    return float(np.sqrt(vectors) + np.sqrt(RANK_STEPS * np.log(2 * RANK_STEPS / FAILURE) / rho))


def chi_square_factor(group: int) -> float:
    """Return median(chi2_k)/k, k = ``group``: the median of an average of k squared Gaussians of variance 1.

    Exact; the approximation (1 - 2/(9k))^3 of the authors' code is 3.4 % high at k = 1.
    """
    return float(cast("float", gammaincinv(group / 2, 0.5))) * 2 / group


def choice_scale(pico: int) -> float:
    """Return the scale of a private selection by ranks that costs at most ``pico`` 10^-12 of rho."""
    return 2 / math.sqrt(8 * pico / PICO) * (1 + 2.0**-40)


def _medians(counts: Counts, pico: int) -> Ranks:
    """The medians of the visitors' numbers 0..TOP in every bin."""
    scale = np.full(counts.bins, choice_scale(pico))
    top = np.full(counts.bins, TOP, dtype=np.int64)
    half, rest = np.divmod(counts.users_per_bin, 2)
    return Ranks(support_of(counts), top, half, half + rest, scale, LossKind.ZCDP)


def _longest(counts: Counts, pico: int) -> Ranks:
    """The length 0..TOP that few vehicles' vectors are longer than."""
    user = np.flatnonzero(counts.bins_per_user).astype(np.int64)
    vehicles = len(user)
    rank = max(vehicles - int(np.ceil(rank_allowance(vehicles, pico / PICO))), vehicles // 2)
    support = EntryIndex(user, np.zeros(vehicles, dtype=np.int64), counts.users, 1)
    top, ranks, scale = np.array([TOP]), np.array([rank]), np.array([choice_scale(pico)])
    return Ranks(support, top, ranks, ranks, scale, LossKind.ZCDP)


def _root(pico: int) -> float:
    """sqrt(2 rho)."""
    return math.sqrt(2 * pico / PICO)


def _per_bin(counts: Counts, values: FloatArray) -> FloatArray:
    return np.bincount(counts.bin_index, values, counts.bins).astype(np.float64)
