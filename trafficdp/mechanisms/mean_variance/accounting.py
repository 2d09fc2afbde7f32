"""The accounting ``moments``: equal noise on sums of x and of x (U - x), for mean and variance together.

With Laplace scale b on every mean and c U b on every average of x (U - x) a vehicle loses
cost(c) sum_g U m/(N b) (``price``; in a bin of one record, which has no variance, 1 for cost),
and a variance's noise is at most

    U b phi(c) in expected absolute value,   phi(c) = (1 + c + c^2)/(1 + c).

Relative to the tolerances the worst noise is b max(1/t_mean, U phi(c)/t_var), at a price proportional to
cost(c)/b: so c minimises cost(c) max(1/t_mean, U phi(c)/t_var), whatever the counts. cost falls to 1 at c = 1
and phi grows; cost phi is least at c* = 0.5652 (2 c^2 + 2 c^3 = 1). Hence c is the solution of
U phi(c)/t_var = 1/t_mean put into [c*, 1]. At t_var >= 1.5 U t_mean variances are free (c = 1), and at
t_var = U t_mean the worst relative noise is 1.3048 times that of means alone, where S and N Q - S^2 take 2
times as much, or 1.5 times in a block of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.sensitivity import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import CalibratedPure
from trafficdp.mechanisms.laplace.accountings import with_headroom
from trafficdp.mechanisms.laplace.baseline import expected_error
from trafficdp.mechanisms.laplace.lattice import Lattice, to_lattice
from trafficdp.mechanisms.mean_variance.calibrated import NAME, CalibratedMoments
from trafficdp.mechanisms.mean_variance.lattice import to_product_lattice
from trafficdp.mechanisms.mean_variance.price import relative_price
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.sum_tail import two_noises_error, two_noises_mean
from trafficdp.privacy.loss import PureDP

FloatArray = npt.NDArray[np.float64]
LEAST_RATIO = 0.5651977173836394
"""c*, where cost(c) phi(c) is least."""


@dataclass(frozen=True)
class MomentsAccounting:
    """See Accounting: means at scale ``share`` E, products at ``ratio`` U times it, E = ``factor``/epsilon.

    ``varies`` (G,) marks the bins that have a variance; ``vehicle_mean`` is its tolerance, None without it.
    """

    factor: float
    share: float
    ratio: float
    upper: float
    varies: npt.NDArray[np.bool_]
    vehicle_mean: float | None

    name = NAME

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting: for variances the expected absolute noise."""
        mean, second = self._pair(epsilon)
        found = {
            Statistic.MEAN: mean,
            Statistic.VARIANCE: two_noises_mean(np.where(self.varies, self.upper * mean, 0.0), second),
        }
        if self.vehicle_mean is not None:
            found[Statistic.VEHICLE_MEAN] = np.full(
                len(self.varies), self.factor / epsilon * self.vehicle_mean
            )
        return found

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        scales = self.scales(epsilon)
        return max(float(scales[s].max(initial=0.0)) / tolerance[s] for s in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Accounting: E min(|U X + Y|, U^2/4) for variances (``estimates``)."""
        mean, second = self._pair(epsilon)
        found = {
            statistic: expected_error(statistic, scale, self.upper)
            for statistic, scale in self.scales(epsilon).items()
        }
        first = np.where(self.varies, self.upper * mean, 0.0)
        found[Statistic.VARIANCE] = two_noises_error(first, second, Statistic.VARIANCE.largest(bound.upper))
        return found

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """See Accounting: while the exact, rounded-up loss exceeds the target, scales grow by the excess."""
        epsilon = with_headroom(target)
        for _ in range(50 if target.pico else 0):
            scales = self.scales(epsilon)
            lattices: dict[Statistic, Lattice] = {
                s: to_lattice(s, counts, bound, scale)
                for s, scale in scales.items()
                if s is not Statistic.VARIANCE
            }
            lattices[Statistic.VARIANCE] = to_product_lattice(
                counts, bound, lattices[Statistic.MEAN], self.ratio
            )
            calibrated = CalibratedMoments(lattices)
            spent = calibrated.event(counts, bound).loss.pico
            if spent <= target.pico:
                return calibrated
            epsilon *= target.pico / spent * (1 - 1e-13)
        raise UsageError(
            "no noise fits the epsilon", got=f"epsilon={target}", todo="ask for a larger epsilon"
        )

    def _pair(self, epsilon: float) -> tuple[FloatArray, FloatArray]:
        """Scales of the means and of the averages of products."""
        mean = np.full(len(self.varies), self.factor / epsilon * self.share)
        return mean, np.where(self.varies, self.ratio * self.upper * mean, 0.0)


def moments_accounting(
    counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]
) -> MomentsAccounting:
    """Return the accounting for the statistics of ``tolerance`` (mean and variance at least) in all bins."""
    upper = float(bound.upper)
    ratio = best_ratio(upper, tolerance[Statistic.MEAN], tolerance[Statistic.VARIANCE])
    share = 1 / max(1 / tolerance[Statistic.MEAN], upper * spread(ratio) / tolerance[Statistic.VARIANCE])
    varies = counts.samples_per_bin > 1
    place = counts.bin_index
    price = np.where(varies, relative_price(bound.steps, ratio), 1.0)[place]
    loss = mean_sensitivity(counts.count, counts.samples_per_bin[place], upper) * price / share
    allowed = tolerance.get(Statistic.VEHICLE_MEAN)
    if allowed is not None:
        loss = loss + vehicle_mean_sensitivity(counts.users_per_bin[place], upper) / allowed
    factor = float(counts.total_per_user(loss).max(initial=0.0))
    return MomentsAccounting(factor, share, ratio, upper, varies, allowed)


def spread(ratio: float) -> float:
    """Return phi(c): the expected absolute noise of a variance over that of U times the mean."""
    return (1 + ratio + ratio**2) / (1 + ratio)


def best_ratio(upper: float, mean: float, variance: float) -> float:
    """Return the c that makes the worst noise relative to the tolerances ``mean`` and ``variance`` least."""
    above = variance / (upper * mean) - 1
    if above <= 0:
        return LEAST_RATIO
    # c^2 - above c - above = 0
    return min(max((above + math.sqrt(above**2 + 4 * above)) / 2, LEAST_RATIO), 1.0)
