"""PLAN over all bins at once: one clipped vector a vehicle, noise shaped to every bin's spread.

Paper 004: Aumueller, Lebeda, Nelson, Pagh, "PLAN: Variance-Aware Private Mean Estimation", arXiv 2306.08745;
the formulation for sparse visits is ours. With L vehicles and a private centre c_g of every bin, vehicle l
has the vector

    z[l, g] = (L / N_g) (S[g, l] - m[g, l] c_g)  where it was,  0 where it was not,

and (1/L) sum_l z[l] + c is exactly the vector of bin means. Centring visitors only keeps vectors short.

1. c_g: private median of the visitors' own means, rho_c/G_1 a bin, G_1 the most bins of one vehicle: a
   vehicle pays for its own bins only.
2. Spread of the visitors' means in bin g: private median of squared half differences of random pairs of
   visitors, rho_v/G_1 a bin (PRIVATE), or taken as equal (PUBLIC); times (1/N_g) sqrt(L sum m^2) that is
   the spread of z[., g]. s_g = spread^(-2/(p+2)), as in ``plan_vectors``; NONE: s = 1.
3. Length C: private quantile of |s z_l|, over [0, max_l B_l], B_l = |s_g L m[g, l] U / N_g|_2 (public).
4. Sum of s z_l clipped to C, plus discrete Gaussian noise for l2 sensitivity B = max_l min(2 C, B_l):
   clipping is a projection, hence moves no two vectors apart; rounding to the lattice adds sqrt(G_l) steps.

Theorem (REPLACE_USER_VALUES). rho-zCDP for every vehicle: the sensitivities are those above. A vehicle with
G_l bins pays (rho_c + rho_v) G_l/G_1 and the rest in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.arrays.private_quantile import exponential_quantile
from trafficdp.mechanisms.plan.clipped_vectors import LATTICE_BITS
from trafficdp.mechanisms.plan.plan_vectors import SCALED, UNSCALED, PlanBudget, rank_allowance, scaling
from trafficdp.mechanisms.plan.private_variance import chi_square_factor, random_order
from trafficdp.mechanisms.promise import require_statistic
from trafficdp.mechanisms.zcdp_promise import zcdp_promise
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import ZCDP

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
QUANTILE_BITS = 50
OCTAVES = 32


class Scaling(StrEnum):
    """Where the spread of a bin comes from: private pairs of visitors, public counts, or nowhere."""

    PRIVATE = "private"
    PUBLIC = "public"
    NONE = "none"


@dataclass(frozen=True)
class Plan:
    """PLAN for bin means; ``power`` p of the error norm it aims at."""

    scaling: Scaling = Scaling.PRIVATE
    power: int = 2

    citation = (
        "Aumueller, Lebeda, Nelson, Pagh: PLAN: Variance-Aware Private Mean Estimation, arXiv 2306.08745"
    )
    statistics = (Statistic.MEAN,)
    idealised = False

    @property
    def name(self) -> str:
        """Key in the registry."""
        stem = {Scaling.PRIVATE: "plan", Scaling.PUBLIC: "plan_public_scaling"}
        return stem.get(self.scaling, "plan_without_scaling") + ("" if self.power == 2 else f"_l{self.power}")

    @property
    def budget(self) -> PlanBudget:
        """Shares of rho."""
        return SCALED if self.scaling is Scaling.PRIVATE else UNSCALED

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> PrivacyEvent:
        """See ZCDPMechanism. Exact: centre and spread are a quarter of rho in either budget."""
        require_statistic(self.name, statistic, self.statistics)
        total, most = ZCDP.of(rho).pico, int(counts.bins_per_user.max(initial=1))
        visited = counts.bins_per_user
        loss = [-(-total * (int(v) + 3 * most) // (4 * most)) if v else 0 for v in visited]
        return zcdp_promise(self.name, statistic, counts, bound, np.array(loss, dtype=np.int64))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """See ZCDPMechanism. No formula: what clipping costs depends on values; the trivial bound U.

        Compare by simulation on synthetic values.
        """
        require_statistic(self.name, statistic, self.statistics)
        return np.full(counts.bins, float(bound.upper) if np.isfinite(rho) else 0.0)

    def estimate(self, samples: Samples, statistic: Statistic, rho: float, noise: NoiseSource) -> FloatArray:
        """See ZCDPMechanism. An infinite ``rho`` clips nothing and adds no noise."""
        require_statistic(self.name, statistic, self.statistics)
        counts, step = samples.counts, float(samples.bound.step)
        total: FloatArray = samples.contributions().total.astype(np.float64) * step
        if rho == np.inf or counts.bins == 0:
            return _per_bin(counts, total) / counts.samples_per_bin
        # a little less, so that the parts never add up to more
        rho = float(ZCDP.of(rho).rho) * (1 - 2.0**-40)
        share = self.budget
        a_bin = rho / int(counts.bins_per_user.max())
        own: FloatArray = total / counts.count
        centre = _centres(counts, own, float(samples.bound.upper), share.centre * a_bin, noise)
        weight = self._weights(counts, own, samples.bound, share.spread * a_bin, noise)
        found: FloatArray = centre + self._shift(samples, centre, weight, total, rho, noise)
        return np.asarray(np.clip(found, 0.0, float(samples.bound.upper)), dtype=np.float64)

    def _weights(
        self, counts: Counts, own: FloatArray, bound: ContributionBound, rho: float, noise: NoiseSource
    ) -> FloatArray:
        """s_g, shape (G,)."""
        if self.scaling is Scaling.NONE:
            return np.ones(counts.bins)
        spread = np.full(counts.bins, float(bound.upper) / np.sqrt(12))
        if self.scaling is Scaling.PRIVATE:
            spread = _spreads(counts, own, float(bound.upper), rho, noise)
        squares = _per_bin(counts, counts.count.astype(np.float64) ** 2)
        of_vector = spread * np.sqrt(counts.users * squares) / counts.samples_per_bin
        return scaling(of_vector + of_vector.mean(), self.power)

    def _shift(
        self,
        samples: Samples,
        centre: FloatArray,
        weight: FloatArray,
        total: FloatArray,
        rho: float,
        noise: NoiseSource,
    ) -> FloatArray:
        """Steps 3 and 4: the noisy (1/(L s)) sum of clipped vectors."""
        counts, users = samples.counts, samples.counts.users
        bin_index, upper = counts.bin_index, float(samples.bound.upper)
        y = weight[bin_index] * masked_vectors(counts, total, centre)
        longest = largest_lengths(counts, weight, upper)
        limit = float(longest.max())
        length: FloatArray = vector_lengths(counts, y)
        for_clipping = rho * self.budget.clipping
        rank = int(max(users - np.ceil(rank_allowance(users, for_clipping)), users // 2))
        whole = np.sort(np.minimum(length / limit, 1.0) * 2.0**QUANTILE_BITS).astype(np.int64)
        drawn = exponential_quantile(
            whole,
            np.array([0, users], dtype=np.int64),
            np.array([0], dtype=np.int64),
            np.array([2**QUANTILE_BITS], dtype=np.int64),
            np.array([rank], dtype=np.int64),
            np.array([2 / np.sqrt(8 * for_clipping)]),
            noise,
        )
        # the upper end of the step, never 0
        clip = (float(drawn[0]) + 1) * 2.0**-QUANTILE_BITS * limit
        # shorter by more than a float sum of so many squares can be off
        shrink = 1 - 2.0**-40 - int(counts.bins_per_user.max()) * 2.0**-52
        factor = np.minimum(1.0, clip / np.where(length > 0, length, 1.0)) * shrink
        unit = clip * 2.0**-LATTICE_BITS
        lattice = np.trunc(y * factor[counts.user_index] / unit).astype(np.int64)
        rounding = np.sqrt(counts.bins_per_user.astype(np.float64))
        moved = np.minimum(2.0 * 2.0**LATTICE_BITS, longest / unit + rounding)
        sd = float(moved.max()) / np.sqrt(2 * rho * self.budget.noise) * (1 + 2.0**-40)
        sums = noise.discrete_gaussian(np.full(counts.bins, sd))
        np.add.at(sums, bin_index, lattice)
        return np.asarray(sums * unit / weight / users)


def masked_vectors(counts: Counts, total: FloatArray, centre: FloatArray) -> FloatArray:
    """Return z[l, g] = (L/N_g)(S - m c_g) of every pair, shape (P,); (1/L) sum_l z + c are the means."""
    per_sample = counts.users / counts.samples_per_bin
    return np.asarray(per_sample[counts.bin_index] * (total - counts.count * centre[counts.bin_index]))


def vector_lengths(counts: Counts, y: FloatArray) -> FloatArray:
    """Return the l2 length of every vehicle's vector, shape (users,)."""
    return np.asarray(np.sqrt(counts.total_per_user(y**2)), dtype=np.float64)


def largest_lengths(counts: Counts, weight: FloatArray, upper: float) -> FloatArray:
    """Return B_l = |s_g L m U / N_g|_2: how far apart two vectors of vehicle l can be, shape (users,)."""
    per_sample = weight * counts.users * upper / counts.samples_per_bin
    return vector_lengths(counts, per_sample[counts.bin_index] * counts.count)


def noise_per_bin(length: float, rho: float, users: int, weight: FloatArray) -> FloatArray:
    """Return the sd of the released means for clipping length C alone: 2 C / (sqrt(2 rho) L s_g)."""
    return np.asarray(2 * length / np.sqrt(2 * rho) / users / weight)


def _centres(counts: Counts, own: FloatArray, upper: float, rho: float, noise: NoiseSource) -> FloatArray:
    """A private median of the visitors' own means in every bin, shape (G,)."""
    step = upper * 2.0**-QUANTILE_BITS
    whole = np.minimum(own / step, 2.0**QUANTILE_BITS).astype(np.int64)
    order = np.lexsort((whole, counts.bin_index))
    drawn = _medians(counts.users_per_bin, whole[order], 2**QUANTILE_BITS, rho, noise)
    return np.asarray(drawn * step, dtype=np.float64)


def _spreads(counts: Counts, own: FloatArray, upper: float, rho: float, noise: NoiseSource) -> FloatArray:
    """A private standard deviation of the visitors' own means in every bin; U/sqrt(12) without a pair."""
    shuffled = random_order(counts.pairs, noise)
    order = shuffled[np.argsort(counts.bin_index[shuffled], kind="stable")]
    visitors = counts.users_per_bin
    first = np.cumsum(visitors) - visitors
    place = np.arange(counts.pairs) - first[counts.bin_index]
    # places 0, 1 make a pair, 2, 3 the next; a last single visitor has none
    starts = np.flatnonzero((place % 2 == 0) & (place + 1 < visitors[counts.bin_index]))
    half = (own[order[starts]] - own[order[starts + 1]]) ** 2 / 2
    top = float(np.log2(upper**2 / 2))
    octaves = np.log2(np.maximum(half, 2.0 ** (top - OCTAVES))) - (top - OCTAVES)
    scale = 2.0**QUANTILE_BITS / OCTAVES
    whole = np.clip(octaves * scale, 0, 2.0**QUANTILE_BITS).astype(np.int64)
    bins = counts.bin_index[starts]
    pairs = np.bincount(bins, minlength=counts.bins).astype(np.int64)
    drawn = _medians(pairs, whole[np.lexsort((whole, bins))], 2**QUANTILE_BITS, rho, noise)
    variance = np.exp2(drawn / scale + top - OCTAVES) / chi_square_factor(1)
    return np.asarray(np.where(pairs > 0, np.sqrt(variance), upper / np.sqrt(12)), dtype=np.float64)


def _medians(sizes: IntArray, values: IntArray, high: int, rho: float, noise: NoiseSource) -> IntArray:
    bins = len(sizes)
    return exponential_quantile(
        values,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.zeros(bins, dtype=np.int64),
        np.full(bins, high, dtype=np.int64),
        sizes // 2,
        np.full(bins, 2 / np.sqrt(8 * rho)),
        noise,
    )


def _per_bin(counts: Counts, values: FloatArray) -> FloatArray:
    return np.bincount(counts.bin_index, values, counts.bins).astype(np.float64)
