"""Variances from pairs of sums, or from any mechanism of means.

Variances from noisy pairs, sums of x and of x (U - x): what the pair costs, values, intervals, errors.

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

A variance from any mechanism of means: it releases the mean, and the mean of squared distances from U/2.

Paper 003 treats means; a variance by two of them is its section on (mean, variance) made explicit, with the
loss shared out (erratum E9: the pair costs what both cost). For a mean in [0, U] with error e1, M2 with e2:

    Var = M2 - (mean - U/2)^2,   |Var' - Var| <= |e2| + U |e1|,

M2 the mean of y = (x - U/2)^2 in [0, U^2/4]. Noise is a range over epsilon, or over sqrt(rho): the sum of the
two errors is least where the mean gets x of epsilon, U^2/x + (U^2/4)/(1 - x), x = 2/3; or r of rho,
U^2/sqrt(r) + (U^2/4)/sqrt(1 - r), r = 4^(2/3)/(1 + 4^(2/3)) = 0.716. y lies on a lattice of at most
LARGEST_STEPS steps, to which it is rounded record by record, before anything is added up. (One vector of both
moments, clipped and noised once, would be covered by the same proof; PLAN's variances of Austin's buses were
then 0.94 to 1.4 times as far off.)

Theorem (REPLACE_USER_VALUES). Counts, and with them all sensitivities, are public and the same for both runs;
a vehicle's losses by the theorem of the mechanism of means add up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.known_error import KnownTerms, NoiseTerm
from trafficdp.mechanisms.protocol import Mechanism, StatisticRequest, sensitivity_of
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Statistic
from trafficdp.privacy.loss import ZCDP, LossKind
from trafficdp.sensitive import Samples

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


def relative_price(steps: int, ratio: float | FloatArray) -> FloatArray:
    """Return the privacy loss of the sums of x and x (U - x) together over that of the first alone.

    ``ratio`` c is the second's noise scale over U/q times the first's; ``steps`` is U/q, the largest speed in
    steps.
    """
    top = np.minimum(np.floor(steps * (1 + np.asarray(ratio)) / 2), steps)
    shares = [d / steps for d in (top, np.minimum(top + 1, steps))]
    return np.asarray(np.maximum(*(t + t * (1 - t) / ratio for t in shares)))


def spread(ratio: float | FloatArray) -> FloatArray:
    """Return the expected absolute noise of a variance over that of U times the mean: (1 + c + c^2)/(1 + c).

    ``ratio`` c is the noise scale of W/N over that of U times the mean.
    """
    return np.asarray((1 + ratio + np.square(ratio)) / (1 + ratio))


def best_ratio(upper: float, mean: float | FloatArray, variance: float | FloatArray) -> FloatArray:
    """Return the ``ratio`` c of the two noise scales that costs least, for tolerances ``mean`` and
    ``variance``.

    An infinite ``mean`` is one that nobody asked for; ``upper`` is the speed bound.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.asarray(variance / (upper * np.asarray(mean)) - 1)
        # c^2 - above c - above = 0
        root = (above + np.sqrt(above**2 + 4 * above)) / 2
        return np.where(above > 0, np.clip(root, LEAST_RATIO, 1.0), LEAST_RATIO)


MEAN_SHARE = {LossKind.PURE: Fraction(2, 3), LossKind.ZCDP: Fraction(716, 1000)}
LARGEST_STEPS = 1 << 16


class KnownMeans(Mechanism, KnownTerms, Protocol):
    """A mechanism of means whose errors are sums of terms that counts decide."""


@dataclass(frozen=True)
class TwoMoments:
    """A mechanism of means with variances added: from the mean of x and of (x - U/2)^2 (M2)."""

    means: Mechanism

    @property
    def name(self) -> str:
        """The name of the mechanism of means that it extends, its key in the registry."""
        return self.means.name

    @property
    def citation(self) -> str:
        """The citation of the mechanism of means that it extends."""
        return self.means.citation

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics of the mechanism of means and the variance, in the order of the enum Statistic."""
        return tuple(
            each for each in Statistic if each is Statistic.VARIANCE or each in self.means.statistics
        )

    @property
    def kind(self) -> LossKind:
        """The kind of privacy loss of the mechanism of means that it extends."""
        return self.means.kind

    @property
    def enforced(self) -> bool:
        """Whether the mechanism of means clips every vehicle's contribution.

        If not, some loss is only claimed.
        """
        return self.means.enforced

    @property
    def idealised(self) -> bool:
        """Whether the noise of the mechanism of means lacks an exact sampler."""
        return self.means.idealised

    def steps(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the measurement steps of the mean; for a variance, of the mean and then of (x - U/2)^2."""
        if request.statistic is not Statistic.VARIANCE:
            return self.means.steps(request)
        first, second = self._requests(request)
        return (*self.means.steps(first), *self.means.steps(second))

    def sensitivity(self, request: StatisticRequest) -> FloatArray:
        """Return the most that one vehicle changes each bin's number, shape (G,), at most the range.

        For a variance: that of the mean of (x - U/2)^2 plus U times that of the mean.
        """
        if request.statistic is not Statistic.VARIANCE:
            return sensitivity_of(self.means, request)
        one, two = (sensitivity_of(self.means, each) for each in self._requests(request))
        return np.asarray(np.minimum(two + float(request.bound.upper) * one, request.range))

    def expected_error(self, request: StatisticRequest) -> FloatArray:
        """Return a bound on each bin's expected absolute error, shape (G,), in the statistic's unit.

        For a variance: error of the mean of (x - U/2)^2, plus U times that of the mean, plus rounding; at
        most the range.
        """
        if request.statistic is not Statistic.VARIANCE:
            return self.means.expected_error(request)
        e1, e2 = (self.means.expected_error(each) for each in self._requests(request))
        bound = request.bound
        error = e2 + float(bound.upper) * e1 + rounding_bias(request.statistic, bound)
        return np.minimum(error, request.range)

    def _requests(self, request: StatisticRequest) -> tuple[StatisticRequest, StatisticRequest]:
        """What is asked of ``means`` for a variance: the mean, and M2."""
        first, second = split_loss(self.kind, request.loss)
        mean = replace(request, statistic=Statistic.MEAN, loss=first)
        return mean, replace(mean, bound=squares_bound(request.bound), loss=second)

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy estimates of ``statistic`` in all bins, shape (G,), in its unit, clamped to its range.

        ``samples`` hold the private speeds and ``loss`` is an epsilon a bin (G,) or one rho for all bins;
        ``measure`` draws all noise and, in a release, charges for it. The variance of one record is 0.
        """
        if statistic is not Statistic.VARIANCE:
            return self.means.estimate(samples, statistic, loss, measure)
        first, second = split_loss(self.kind, loss)
        mean = self.means.estimate(samples, Statistic.MEAN, first, measure)
        squares = self.means.estimate(squares_of(samples), Statistic.MEAN, second, measure)
        upper = float(samples.bound.upper)
        variance = publish.clamp_to_range(Statistic.VARIANCE, squares - (mean - upper / 2) ** 2, upper, mean)
        return np.where(samples.counts.samples_per_bin == 1, 0.0, variance)


@dataclass(frozen=True)
class KnownTwoMoments(TwoMoments):
    """The same of ``means`` with known terms, whose variance has known terms too."""

    means: KnownMeans

    def noise_terms(self, request: StatisticRequest) -> tuple[NoiseTerm, ...]:
        """Return noises and biases that bound the error before clamping.

        Of a variance those of both its means.
        """
        bound = request.bound
        if request.statistic is not Statistic.VARIANCE:
            return self.means.noise_terms(request)
        weight, rounding = float(bound.upper), rounding_bias(request.statistic, bound)
        ones, twos = (self.means.noise_terms(each) for each in self._requests(request))
        scaled = [replace(term, step=weight * term.step, bias=weight * term.bias) for term in ones]
        scaled[0] = replace(scaled[0], bias=scaled[0].bias + rounding)
        return (*scaled, *twos)


def split_loss(kind: LossKind, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split ``loss`` into the parts for the mean of x and for that of (x - U/2)^2.

    They never exceed it together. Parts of a rho are whole 10^-12. Raises UsageError unless a rho is
    infinite, or from 2 * 10^-12 to one million.
    """
    if kind is LossKind.ZCDP and not bool(np.all(np.isinf(loss))):
        total = ZCDP.of(float(loss)).pico
        part = int(total * MEAN_SHARE[kind])
        return np.array(ZCDP(part).number), np.array(ZCDP(total - part).number)
    first = np.asarray(loss * float(MEAN_SHARE[kind]))
    with np.errstate(invalid="ignore"):
        rest = np.nextafter(loss - first, 0.0)
    return first, np.where(np.isfinite(loss), rest, loss)


def squares_bound(bound: ContributionBound) -> ContributionBound:
    """Return the bound of y = (x - U/2)^2 for speeds x in ``bound``: 0..U^2/4 in at most LARGEST_STEPS
    steps.
    """
    upper = bound.upper**2 / 4
    return ContributionBound(upper, upper / Fraction(min(bound.upper_steps**2, LARGEST_STEPS)), bound.unit)


def squares_of(samples: Samples) -> Samples:
    """Return the private samples of y = (x - U/2)^2 for speeds x, each rounded to the nearest step of its
    bound.
    """
    top, target, value = samples.bound.upper_steps, squares_bound(samples.bound), samples.value

    def rounded(steps: IntArray) -> IntArray:
        return (2 * (2 * steps - top) ** 2 * target.upper_steps + top**2) // (2 * top**2)

    # where there are fewer speeds than records, each speed is worked out once
    value = rounded(np.arange(top + 1))[value] if top < len(value) else rounded(value)
    return type(samples)(samples.counts, value, samples.vehicle, target)
