"""Huber with Gaussian noise, and from how many vehicles on it pays.

Huber with Gaussian noise: the (epsilon, delta) form of paper 001, exactly calibrated.

Zhao et al., arXiv 2405.13453, whose noise is Gaussian; the constants that are quoted for it are not
sufficient (erratum E17), so alpha is calibrated in ``noise.smooth_gaussian``. It needs about ten
times as many vehicles a bin as the Student-t form of ``mechanisms.huber.huber``, and where T is large against
U (10 of 65, say) it is never better than Laplace noise: for comparison, not for use.

Theorem (REPLACE_USER_VALUES). Let S be beta-smooth and at least the local sensitivity of the robust mean
(``bounding.huber``). Centre plus S/alpha times N(0, 1) is (epsilon, delta)-DP for every vehicle
of a bin, alpha the largest for which that is proved. Over bins both parts add up.

From how many vehicles on the Huber mechanism pays: a public rule, so that refusing costs nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.bounding.huber import HuberParameters, typical_smooth_sensitivity
from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.huber import Huber
from trafficdp.noise import smooth_gaussian


@dataclass(frozen=True)
class GaussianHuber:
    """N(0, 1) noise; ``delta`` is spent on every bin.

    beta is ``beta_multiple`` times epsilon / (8 ln(2/delta)): 1 is best with many thousands of vehicles, 3 to
    4 with about a thousand.
    """

    delta: float = 1e-6
    beta_multiple: float = 1.0

    def calibrated(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return alpha and beta, (G,) each, of Gaussian noise of sd S/alpha for a beta-smooth S, and E|N(0,
        1)|.

        ``epsilon`` (G,) is finite.
        """
        distinct, which = np.unique(epsilon, return_inverse=True)
        beta = self.beta_multiple * smooth_gaussian.default_beta(1.0, self.delta) * distinct
        alpha = [
            smooth_gaussian.largest_alpha(one, self.delta, b)
            for one, b in zip(distinct.tolist(), beta.tolist(), strict=True)
        ]
        return np.array(alpha)[which], beta[which], math.sqrt(2 / math.pi)


MOST_VEHICLES = 2**20


def least_vehicles(
    upper: float, threshold: float, epsilon: float, mechanism: Huber | GaussianHuber | None = None
) -> int:
    """Return from how many equal vehicles on the Huber mechanism beats Laplace noise U/(n epsilon), on
    typical data.

    The least n with S(n, T, U, Z = 0.4 T) E|xi| / alpha below U/(n epsilon); found by doubling, then halving,
    since the left side falls off faster. About 100/epsilon for T/U = 0.15. Raises UsageError where
    ``threshold`` reaches ``upper`` or MOST_VEHICLES are not enough.
    """
    if not 0 < threshold < upper:
        raise UsageError(
            "the Huber threshold is out of range", got=f"threshold={threshold}", expected="0 < T < U"
        )
    settings = mechanism or Huber()
    one = np.array([epsilon])
    alpha, beta, mean_absolute = settings.calibrated(one)

    def pays(vehicles: int) -> bool:
        weight, thresholds = np.full(vehicles, 1 / vehicles), np.full(vehicles, threshold)
        shape = HuberParameters(weight, thresholds, np.zeros(vehicles, dtype=np.int64), 1, upper)
        error = typical_smooth_sensitivity(shape, beta)[0] * mean_absolute / alpha[0]
        return bool(error < upper / (vehicles * epsilon))

    high = 4
    while not pays(high):
        high *= 2
        if high > MOST_VEHICLES:
            raise UsageError("no number of vehicles is enough", got=f"epsilon={epsilon}")
    return bisect_left(range(high), True, high // 2 + 1, key=pays)
