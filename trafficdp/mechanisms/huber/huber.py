"""Huber: the robust mean of vehicle means, with noise by its smooth sensitivity.

Paper 001: "A Huber Loss Minimization Approach to Mean Estimation under User-level Differential Privacy"
(Zhao et al., arXiv 2405.13453). Estimator and weights: ``bounding.huber_loss``, ``bounding.huber_weights``;
smooth sensitivity with its proof: ``bounding.smooth_sensitivity``. We depart from the paper in five ways:
pure-epsilon Student-t noise (``noise.student_t``) instead of Gaussian noise whose quoted constants are not
sufficient (E17; ``GaussianHuber`` has the exactly calibrated form); the weighted mean in the lemmas (E15);
outliers counted against a threshold that does not depend on their number (E16); the least S over many k0;
and a bin takes Huber only where public numbers say that it pays, else Laplace noise on a weighted mean
(capped or plain weights, whichever has the smaller ``clean_error``).

Theorem (REPLACE_USER_VALUES). A bin by Huber is epsilon[g]-DP for each of its vehicles (``noise.student_t``);
one by Laplace costs vehicle i epsilon[g] u_i / max u; bins add up. Which of the two a bin takes depends on
counts, U, epsilon and settings alone. The variance releases both moments with half of epsilon each.

Idealised: mu0, S and the Student-t variable are floats. S and the distance behind it are never published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding import huber_weights
from trafficdp.bounding.huber_loss import huber_location
from trafficdp.bounding.smooth_sensitivity import (
    HuberShape,
    clean_smooth_sensitivity,
    smooth_sensitivity,
)
from trafficdp.mechanisms.laplace.integer_laplace import charge
from trafficdp.mechanisms.laplace.weighted_mean import FINER, SPENT, WeightedMean
from trafficdp.mechanisms.moment import (
    Moment,
    first_moment,
    first_totals,
    second_moment,
    second_totals,
    variance_from,
)
from trafficdp.mechanisms.promise import promise
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise import student_t
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import round_up

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class HuberPart:
    """How one moment of all bins is released: public throughout.

    ``huber`` (G,) marks the bins by Huber, with ``shape``, ``alpha`` and ``beta`` (G,) of all bins;
    ``laplace`` is the weighted mean of the others. ``clean`` and ``worst`` (G,) are expected errors.
    """

    moment: Moment
    shape: HuberShape
    huber: BoolArray
    laplace: WeightedMean
    alpha: FloatArray
    beta: FloatArray
    epsilon: FloatArray
    clean: FloatArray
    worst: FloatArray


@dataclass(frozen=True)
class Huber:
    """Paper 001 with pure-epsilon Student-t noise of ``degrees`` degrees of freedom.

    ``beta_divisor``: smoothness beta = epsilon / beta_divisor (6; 9 with many vehicles; above ``degrees``).
    ``cap_ratio``: a vehicle weighs at most this many times the average count. ``factor``: thresholds T_i
    are this many radii. ``sigma``: a public standard deviation of single speeds (the bound's unit);
    without it thresholds come from U alone.
    """

    degrees: float = 3.0
    beta_divisor: float = 6.0
    cap_ratio: float = 2.0
    factor: float = 2.0
    sigma: float | None = None
    name: str = "huber"
    citation: str = (
        "Zhao et al., A Huber Loss Minimization Approach to Mean Estimation under User-level Differential "
        "Privacy, arXiv 2405.13453 (paper 001)"
    )
    statistics: tuple[Statistic, ...] = (Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN)
    idealised: bool = True

    def by_huber(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> BoolArray:
        """Return which bins take Huber (for the variance: their mean does), shape (G,). Public.

        The others have too few vehicles for this epsilon, or thresholds that reach U.
        """
        return self.parts(counts, bound, statistic, epsilon)[0].huber

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism. A vehicle's loss: epsilon[g] in a bin by Huber, its weight's share in another.

        Raises UsageError when an epsilon is not positive or noise of its size cannot be drawn.
        """
        parts = self.parts(counts, bound, statistic, epsilon)
        pair = np.zeros(counts.pairs)
        for part in parts:
            loss = np.where(
                part.huber[counts.bin_index],
                (part.epsilon * SPENT)[counts.bin_index],
                part.laplace.loss(part.epsilon),
            )
            pair = pair + loss
        free = _free(counts, statistic, parts, bound)
        total = np.where(free[counts.bin_index], 0.0, round_up(pair))
        change = [np.where(p.huber, p.moment.upper, p.laplace.sensitivity) for p in parts]
        largest = change[0]
        if statistic is Statistic.VARIANCE:
            largest = np.minimum(change[1] + float(bound.upper) * change[0], statistic.largest(bound.upper))
        return promise(
            self.name,
            statistic,
            counts,
            bound,
            np.where(free, 0.0, largest),
            charge(counts, total),
            idealised=self.idealised,
        )

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism. Bins by Huber have no useful worst case: see ``clean_error`` for what they give.

        Their S is U on adversarial values. With symmetric noise and clipping E|error| is at most
        max(|mu0 - truth|, U/2), and |mu0 - truth| <= U/2 for equal weights and thresholds: half the range.
        With unequal ones the robust centre can be further off, and the bound is the whole range.
        """
        parts = self.parts(counts, bound, statistic, epsilon)
        worst = _combined(counts, bound, statistic, parts, [part.worst for part in parts])
        return np.minimum(worst + rounding_bias(statistic, bound), statistic.largest(bound.upper))

    def clean_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """Return the expected error where vehicles agree to within 0.4 thresholds, shape (G,). Public.

        Noise, and for capped weights the root mean square of their bias when all samples are independent
        and follow one law. Its worst case is in ``expected_error``.
        """
        parts = self.parts(counts, bound, statistic, epsilon)
        return _combined(counts, bound, statistic, parts, [part.clean for part in parts])

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        counts, bound = samples.counts, samples.bound
        contributions = samples.contributions()
        parts = self.parts(counts, bound, statistic, epsilon)
        mean = self._released(parts[0], first_totals(contributions), noise)
        if statistic is not Statistic.VARIANCE:
            return mean
        second = self._released(parts[1], second_totals(contributions), noise)
        variance = variance_from(mean, second, float(bound.upper))
        variance[_constant(statistic, parts, bound)] = statistic.largest(bound.upper) / 2
        variance[counts.samples_per_bin == 1] = 0.0
        return variance

    def calibrated(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return alpha and beta for every bin, and the mean absolute value of the noise variable."""
        beta = np.where(np.isinf(epsilon), 0.0, epsilon / self.beta_divisor)
        distinct, which = np.unique(epsilon, return_inverse=True)
        alpha = student_t.largest_alpha(
            self.degrees, np.where(np.isinf(distinct), 0.0, distinct / self.beta_divisor), distinct * SPENT
        )[which]
        return alpha, beta, student_t.mean_absolute(self.degrees)

    def drawn(self, size: int, noise: NoiseSource) -> FloatArray:
        """Return ``size`` independent noise variables, which are then multiplied by S / alpha."""
        return student_t.draw(self.degrees, size, noise.uniform_below)

    def parts(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> list[HuberPart]:
        """Return how each moment of the statistic is released, from public numbers alone."""
        if statistic is not Statistic.VARIANCE:
            return [self._part(counts, first_moment(bound), statistic, epsilon, self.sigma)]
        # |(x - U/2)^2 - (x' - U/2)^2| <= U |x - x'|
        sigma = None if self.sigma is None else self.sigma * float(bound.upper)
        return [
            self._part(counts, first_moment(bound), statistic, epsilon / 2, self.sigma),
            self._part(counts, second_moment(bound), statistic, epsilon / 2, sigma),
        ]

    def _part(
        self,
        counts: Counts,
        moment: Moment,
        statistic: Statistic,
        epsilon: FloatArray,
        sigma: float | None,
    ) -> HuberPart:
        """Decide from public numbers how one moment is released."""
        index, bins, upper = counts.bin_index, counts.bins, moment.upper
        used = huber_weights.used_count(counts.count, index, bins, self.cap_ratio)
        if sigma is None:
            threshold = huber_weights.range_threshold(used, index, bins, upper, self.factor)
        else:
            threshold = huber_weights.scale_threshold(used, index, bins, upper, sigma, self.factor)
        by_vehicle = statistic is Statistic.VEHICLE_MEAN
        counted = np.ones_like(used) if by_vehicle else used
        target = huber_weights.normalised(np.ones_like(used) if by_vehicle else counts.count, index, bins)
        capped = WeightedMean(counts, moment, FINER * counted)
        plain = capped if by_vehicle else WeightedMean(counts, moment, counts.count)
        shape = HuberShape(capped.weight, threshold, index, bins, upper)
        drift = _clean_bias(shape, target, self.factor)
        even_noise, plain_noise = capped.error(epsilon, capped.weight), plain.error(epsilon, plain.weight)
        better = even_noise + drift < plain_noise
        laplace = WeightedMean(counts, moment, np.where(better[index], capped.used, plain.used))
        worst = np.minimum(laplace.error(epsilon, target), upper)

        alpha, beta, mean_absolute = self.calibrated(epsilon)
        clean = drift + clean_smooth_sensitivity(shape, beta) * mean_absolute / alpha
        least = np.full(bins, np.inf)
        np.minimum.at(least, index, threshold)
        by_laplace = np.minimum(even_noise + drift, plain_noise)
        huber = (least < upper) & (clean < by_laplace) & np.isfinite(epsilon)
        clean = np.where(huber, clean, by_laplace)
        # see expected_error
        even = shape.balanced & (huber_weights.weight_distance(shape.weight, target, index, bins) == 0)
        worst = np.where(huber, np.where(even, upper / 2, upper), worst)
        return HuberPart(moment, shape, huber, laplace, alpha, beta, epsilon, clean, worst)

    def _released(self, part: HuberPart, totals: IntArray, noise: NoiseSource) -> FloatArray:
        """Return the noisy moment of every bin, clipped to its range, shape (G,)."""
        result = part.laplace.estimate(totals, part.epsilon, noise)
        if part.huber.any():
            pairs = part.huber[part.shape.bin_index]
            shape = part.shape.select(part.huber)
            mean = (totals / part.laplace.counts.count * part.moment.unit)[pairs]
            centre = huber_location(mean, shape.weight, shape.threshold, shape.bin_index, shape.bins)
            smooth = smooth_sensitivity(mean, shape, part.beta[part.huber])
            drawn = self.drawn(shape.bins, noise)
            noisy = centre + smooth / part.alpha[part.huber] * drawn
            result[part.huber] = np.clip(noisy, 0.0, part.moment.upper)
        return result


def _clean_bias(shape: HuberShape, target: FloatArray, factor: float) -> FloatArray:
    """Return the root mean square of sum (w_i - p_i) y_i for independent samples, shape (G,)."""
    deviation = shape.threshold / (factor * np.sqrt(2 * np.log(40.0 * shape.users[shape.bin_index])))
    square = ((shape.weight - target) * deviation) ** 2
    result: FloatArray = np.sqrt(np.bincount(shape.bin_index, weights=square, minlength=shape.bins))
    return result


def _combined(
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    parts: list[HuberPart],
    errors: list[FloatArray],
) -> FloatArray:
    """Return the statistic's error from those of its moments: |e2| + U |e1| for the variance."""
    if statistic is not Statistic.VARIANCE:
        return errors[0]
    reach = statistic.largest(bound.upper)
    error = np.minimum(errors[1] + float(bound.upper) * errors[0], reach)
    error = np.where(_constant(statistic, parts, bound), reach / 2, error)
    return np.where(counts.samples_per_bin == 1, 0.0, error)


def _constant(statistic: Statistic, parts: list[HuberPart], bound: ContributionBound) -> BoolArray:
    """Return the bins whose variance is no better than half its range even without outliers: public."""
    if statistic is not Statistic.VARIANCE:
        return np.zeros(len(parts[0].huber), dtype=np.bool_)
    clean = parts[1].clean + float(bound.upper) * parts[0].clean
    hopeless: BoolArray = clean > statistic.largest(bound.upper) / 2
    return hopeless


def _free(
    counts: Counts, statistic: Statistic, parts: list[HuberPart], bound: ContributionBound
) -> BoolArray:
    """Return the bins that are released as a constant and cost nothing."""
    single = (statistic is Statistic.VARIANCE) & (counts.samples_per_bin == 1)
    free: BoolArray = _constant(statistic, parts, bound) | single
    return free
