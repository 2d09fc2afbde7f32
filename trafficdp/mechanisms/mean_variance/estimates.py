"""Variances from noisy means and noisy sums of x (U - x): values, intervals, errors, from any such noise.

With mean^ the released mean, in [0, U], and w^ the noisy W/N, var^ = mean^ (U - mean^) - w^. Let e1 = mean^ -
mean and e2 = w^ - W/N before anything but the mean is clamped. Then

    var^ - var = (U - mean^ - mean) e1 - e2,   |U - mean^ - mean| <= U.

**Theorem.** Let X, the noise of the mean before it is clamped, and Y, that of W/N, be independent and
symmetric, and the density of Y fall away from 0. Then P(|var^ - var| > h) <= P(|U X + Y| > h). *Proof.* Given
X, t = (U - mean^ - mean) e1 has |t| <= U |e1| <= U |X| (clamping moves no mean away from one in [0, U]), and
P(|t - Y| > h) = 1 - P(t - h <= Y <= t + h) grows with |t|; the sign of U X does not matter. QED. The same
holds for E min(|var^ - var|, H), the integral of that tail. *Discrete* noise is at most continuous noise and
a shift: P(|t + s Z| > h) <= P(|t + s L| > h - s d) for every t (``noise.sum_tail``, both signs), so with
U s Z + s' Z' for U X + Y the continuous tail holds at h - U s d - s' d'.

Intervals are around var^ clamped to [0, U^2/4], which moves it away from no variance; rounding
speeds (``publish.rounding_bias``) and flooring W to a spacing widen them. The published value is moreover at
most mean^ (U - mean^) (Bhatia and Davis); as that is noisy too, only the lower end follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.publish import Drawn, estimate, largest_variance
from trafficdp.model.bound import ContributionBound
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.release import Estimate

FloatArray = npt.NDArray[np.float64]
POST_PROCESSING = (
    "variances are mean (U - mean) by the released mean, less the noisy average of x (U - x), put into "
    "0 .. mean (U - mean) (their stated expected error is that before this upper limit); a lower end of an "
    "interval above the limit follows it"
)


@dataclass(frozen=True)
class VarianceNoise:
    """The noise of variances over G bins, in their unit; 0 where a variance can only be 0.

    ``varies`` (G,) marks the others; ``scale`` is at least the expected absolute value of U X + Y,
    ``noise_error`` at least E min(|U X + Y|, U^2/4), ``bias`` what rounding and flooring add. From counts.
    """

    varies: npt.NDArray[np.bool_]
    scale: FloatArray
    noise_error: FloatArray
    bias: FloatArray

    def error(self, reach: float) -> FloatArray:
        """Return the worst-case expected error before the Bhatia-Davis limit, shape (G,)."""
        return np.where(self.varies, np.minimum(self.noise_error + self.bias, reach), 0.0)


def variance_estimate(
    mean: Estimate,
    products: FloatArray,
    noise: VarianceNoise,
    half_width: FloatArray,
    bound: ContributionBound,
    uninformative_above: float,
    columns: dict[str, npt.NDArray[Any]],
) -> Estimate:
    """Return the variances from released means and noisy averages ``products`` of x (U - x), shape (G,)."""
    limit = largest_variance(mean.value, float(bound.upper))
    drawn = Drawn(
        value=np.where(noise.varies, limit - products, 0.0),
        half_width=half_width,
        noise_scale=noise.scale,
        expected_error=noise.error(Statistic.VARIANCE.largest(bound.upper)),
        noise=columns,
    )
    return estimate(Statistic.VARIANCE, drawn, bound, uninformative_above, mean)
