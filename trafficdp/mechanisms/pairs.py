"""Variances from noisy pairs, sums of x and of x (U - x): what the pair costs, values, intervals, errors.

**Price.** With Laplace scale b on the average of x and c U b on that of x (U - x), a vehicle with m of N
records loses cost(c) U m/(N b) (``measurement.sets``), K = U/q steps, t = d/K:

    cost(c) = max over d = 0..K of t + t (1 - t)/c,   in real t 1 for c >= 1, else (1 + c)^2/(4 c),

and a variance's noise is at most, in expected absolute value,

    U b phi(c),   phi(c) = (1 + c + c^2)/(1 + c).

To keep a mean's noise within t and a variance's within v, b = min(t, v/(U phi(c))) at a price proportional to
cost(c)/b: so c minimises cost(c) max(1/t, U phi(c)/v), whatever the counts. cost falls to 1 at c = 1 and phi
grows; cost phi is least at c* = 0.5652 (2 c^2 + 2 c^3 = 1), the best for a variance alone. Hence c is the
solution of U phi(c)/v = 1/t put into [c*, 1]. At v >= 1.5 U t variances are free (c = 1); at v = U t noise is
1.3048 times that of means alone.

**Value.** With mean^ the released mean, in [0, U], and w^ the noisy W/N, var^ = mean^ (U - mean^) - w^. Let
e1 = mean^ - mean and e2 = w^ - W/N before anything but the mean is clamped. Then

    var^ - var = (U - mean^ - mean) e1 - e2,   |U - mean^ - mean| <= U.

**Theorem.** Let X, the noise of the mean before it is clamped, and Y, that of W/N, be independent and
symmetric, and the density of Y fall away from 0. Then P(|var^ - var| > h) <= P(|U X + Y| > h). *Proof.* Given
X, t = (U - mean^ - mean) e1 has |t| <= U |e1| <= U |X| (clamping moves no mean away from one in [0, U]), and
P(|t - Y| > h) = 1 - P(t - h <= Y <= t + h) grows with |t|; the sign of U X does not matter. QED. The same
holds for E min(|var^ - var|, H), the integral of that tail. *Discrete* noise is at most continuous noise and
a shift: P(|t + s Z| > h) <= P(|t + s L| > h - s d) for every t (``noise.tail``, both signs), so with
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
from trafficdp.model import ContributionBound, Statistic
from trafficdp.privacy.estimate import Estimate

FloatArray = npt.NDArray[np.float64]
LEAST_RATIO = 0.5651977173836394
"""c*, where cost(c) phi(c) is least."""
CITATION = "here; the limit of variances by Bhatia, Davis: A Better Bound on the Variance, 2000"
SENSITIVITY = (
    "a record that moves by d moves the sum of x by d and the sum of x (U - x) by at most d (U - d); a "
    "vehicle pays for both, at the d that costs most, times its records"
)
DISTRIBUTION = (
    "mean (U - mean) less the average of x (U - x), both with discrete Laplace noise on integers: at most U "
    "times the mean's noise, and that of the products; the noise scale is the expected absolute sum"
)
INTERVALS = "tail of the sum of two discrete Laplace noises, widened by the worst-case bias"
POST_PROCESSING = (
    "variances are mean (U - mean) by the noisy mean, less the noisy average of x (U - x), put into "
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
    return estimate(Statistic.VARIANCE, drawn, bound, mean)


def relative_price(steps: int, ratio: float | FloatArray) -> FloatArray:
    """Return cost(c), the price of both sums over that of the first; c is ``ratio`` > 0, K ``steps``."""
    top = np.minimum(np.floor(steps * (1 + np.asarray(ratio)) / 2), steps)
    shares = [d / steps for d in (top, np.minimum(top + 1, steps))]
    return np.asarray(np.maximum(*(t + t * (1 - t) / ratio for t in shares)))


def spread(ratio: float | FloatArray) -> FloatArray:
    """Return phi(c): the expected absolute noise of a variance over that of U times the mean."""
    return np.asarray((1 + ratio + np.square(ratio)) / (1 + ratio))


def best_ratio(upper: float, mean: float | FloatArray, variance: float | FloatArray) -> FloatArray:
    """Return the c that costs least where noise may be as large as ``mean`` t and ``variance`` v.

    An infinite ``mean`` is one that nobody asked for.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.asarray(variance / (upper * np.asarray(mean)) - 1)
        # c^2 - above c - above = 0
        root = (above + np.sqrt(above**2 + 4 * above)) / 2
        return np.where(above > 0, np.clip(root, LEAST_RATIO, 1.0), LEAST_RATIO)
