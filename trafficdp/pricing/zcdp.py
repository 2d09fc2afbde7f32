"""A second price of zCDP mechanisms: from counts, published rhos and settings, in whole numbers.

Nothing here shares code with what charges. With D the change of a bin's integer by one vehicle and sd the
exact fraction that the float which is drawn with is:

* Gaussian twin: the sum over its bins of D^2/(2 sd^2).
* PLAN: (rho_c + rho_v) G_l/G_1 and the rest in full, for a vehicle that is in G_l bins, G_1 the most.
* Variance by two moments: that of the mean at 716 thousandths of rho, and of M2 at the rest.

Any other is held to rho for every vehicle that was anywhere (which is IOME's theorem): less is refused.
For PLAN and those others no noise is read: a charge is held to what their theorems say of rho.
"""

from __future__ import annotations

from dataclasses import astuple
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.plan.plan import Plan
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism
from trafficdp.mechanisms.zcdp_two_moments import ZCDPTwoMoments
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.exact import PICO, Losses, by_noise, unsound
from trafficdp.pricing.mechanisms import squares
from trafficdp.pricing.moves import integer_moves

MEAN_PART = Fraction(716, 1000)


def zcdp_losses(
    mechanism: ZCDPMechanism,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    rho: float,
) -> list[Losses]:
    """Return every vehicle's losses by ``mechanism`` at ``rho``, all of which add up.

    Raises AllocationError for a rho that is not above 0 and finite, and where noise is missing.
    """
    if not (rho > 0 and np.isfinite(rho)):
        raise unsound("a statistic without a rho")
    # rhos are read as the decimals that they are written as, whole 10^-12
    exact = Fraction(int(Fraction(str(rho)) * PICO), PICO)
    if isinstance(mechanism, ZCDPTwoMoments):
        means = mechanism.means
        if statistic is not Statistic.VARIANCE:
            return zcdp_losses(means, counts, bound, statistic, rho)
        first = Fraction(int(exact * MEAN_PART * PICO), PICO)
        return zcdp_losses(means, counts, bound, Statistic.MEAN, _number(first)) + zcdp_losses(
            means, counts, squares(bound), Statistic.MEAN, _number(exact - first)
        )
    if isinstance(mechanism, GaussianTwin):
        sd = mechanism.standard_deviation(counts, bound, statistic, rho)[counts.bin_index]
        change = integer_moves(statistic, bound, counts)
        ratio = by_noise(counts.user_index, change, sd)
        return [Losses(ratio.user, ratio.numerator**2, 2 * ratio.denominator**2)]
    if isinstance(mechanism, Plan):
        return [_of_plan(mechanism, counts, exact)]
    visits = counts.bins_per_user.astype(object)
    return [_of_vehicles(counts, np.minimum(visits, 1), exact)]


def _of_plan(mechanism: Plan, counts: Counts, rho: Fraction) -> Losses:
    shares = [Fraction(each) for each in astuple(mechanism.budget)]
    if min(shares) < 0 or sum(shares) != 1:
        raise unsound("shares of rho that do not add up to 1")
    of_bins = shares[0] + shares[1]
    most = int(counts.bins_per_user.max(initial=1))
    visits = counts.bins_per_user.astype(object)
    # rho (of_bins G_l/G_1 + the rest) is rho/(d G_1) times this whole number
    times = of_bins.numerator * visits + (of_bins.denominator - of_bins.numerator) * most
    weight = np.where(visits > 0, times, 0)
    return _of_vehicles(counts, weight, rho / (of_bins.denominator * most))


def _of_vehicles(counts: Counts, weight: npt.NDArray[np.object_], rho: Fraction) -> Losses:
    one = np.ones(counts.users, dtype=object)
    return Losses(np.arange(counts.users), weight * rho.numerator, one * rho.denominator)


def _number(rho: Fraction) -> float:
    """The float nearest to ``rho``, or the next below where its decimal would be read as more."""
    nearest = float(rho)
    return nearest if Fraction(str(nearest)) <= rho else float(np.nextafter(nearest, 0.0))
