"""Huber: the robust mean of vehicle means, with noise by its smooth sensitivity.

Paper 001: "A Huber Loss Minimization Approach to Mean Estimation under User-level Differential Privacy"
(Zhao et al., arXiv 2405.13453). Estimator and weights: ``bounding.huber``;
smooth sensitivity with its proof: ``bounding.huber``. We depart from the paper in five ways:
pure-epsilon Student-t noise (``noise.student_t``) instead of Gaussian noise whose quoted constants are not
sufficient (E17; ``research.zhao_2024.gaussian_huber`` has the exactly calibrated form); the weighted mean in
the lemmas (E15); outliers counted against a threshold that does not depend on their number (E16); the least
S over many k0; and a bin takes Huber only where public numbers say that it pays, else Laplace noise on a
weighted mean (capped or plain weights, whichever has the smaller ``typical_error``).

Theorem (REPLACE_USER_VALUES). One vehicle moves centre and S only as ``bounding.huber`` says, so
that a bin by Huber costs each of its vehicles epsilon[g] (``noise.student_t``); one by Laplace costs vehicle
i epsilon[g] u_i / max u; bins add up. Which of the two a bin takes depends on counts, U, epsilon and
settings alone.

Idealised: mu0, S and the Student-t variable are floats. S and the distance behind it are never published.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray
from trafficdp.bounding import huber as bounding_huber
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms import means, publish
from trafficdp.mechanisms.protocol import ClaimedNoise, StatisticRequest
from trafficdp.model import Counts, Statistic
from trafficdp.noise import student_t
from trafficdp.noise.tail import clamped_laplace_error
from trafficdp.sensitive import Samples

THEOREM = "centre plus S/alpha times a Student-t variable, S beta-smooth: noise.student_t"


@dataclass(frozen=True)
class HuberPlan:
    """How every bin is released: public throughout.

    ``huber`` (G,) marks the bins by Huber, those of a finite epsilon where some vehicle's threshold is below
    U and ``typical_error`` is smaller so; with ``shape``, ``alpha`` and ``beta`` (G,) of all bins, at
    ``epsilon``. ``weighted`` and ``laplace`` are the weights and the noisy sum of the others.
    ``typical_error`` (G,) is the expected error where vehicles agree, in the unit of speed. In bins by Huber,
    with every vehicle's mean within 0.4 thresholds of the bin's: the expected noise, plus the root mean
    square of the bias of capped weights when all samples are independent and follow one law. In the others:
    that of Laplace noise by the weights that give less.
    """

    shape: bounding_huber.HuberParameters
    huber: BoolArray
    weighted: means.Weighting
    laplace: means.LaplaceSumQuery
    alpha: FloatArray
    beta: FloatArray
    typical_error: FloatArray


@dataclass(frozen=True)
class Huber(means.Means):
    """Paper 001 with pure-epsilon Student-t noise of ``degrees`` degrees of freedom.

    ``beta_divisor``: smoothness beta = epsilon / beta_divisor (6; 9 with many vehicles; above ``degrees``).
    ``cap_ratio``: a vehicle weighs at most this many times the average count. ``factor``: thresholds T_i
    are this many radii. ``spread`` U is a public standard deviation of single samples.
    """

    degrees: float = 3.0
    beta_divisor: float = 6.0
    cap_ratio: float = 2.0
    factor: float = 2.0
    spread: float = 0.5

    name = "huber"
    citation = (
        "Zhao et al., A Huber Loss Minimization Approach to Mean Estimation under User-level Differential "
        "Privacy, arXiv 2405.13453 (paper 001)"
    )
    statistics = (Statistic.MEAN, Statistic.VEHICLE_MEAN)
    idealised = True
    enforced = False

    def steps_before_sum(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the Student-t noise of the bins estimated by Huber, with its price, from public counts.

        It takes the whole epsilon of these bins; nothing is drawn here.
        """
        return (self._noise(self.plan(request), request.counts, request.loss),)

    def sum_query(self, request: StatisticRequest) -> means.LaplaceSumQuery:
        """Return the query for the weighted sums of the bins estimated by Laplace noise.

        From public counts, nothing is drawn; the other bins add nothing. Bins by Huber have the whole range
        as bias: their smooth sensitivity is U on adversarial values. What they give otherwise is the
        ``typical_error`` of the plan.
        """
        return self.plan(request).laplace

    def sensitivity(self, request: StatisticRequest) -> FloatArray:
        """Return the most that one vehicle changes each mean before noise, (G,); U for bins by Huber."""
        huber = self.plan(request).huber
        return np.where(huber, float(request.bound.upper), super().sensitivity(request))

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``epsilon`` (G,) is each bin's loss; ``measure`` draws all
        noise and, in a release, charges for it.
        """
        counts, bound, total = samples.counts, samples.bound, samples.contributions().total
        plan = self.plan(StatisticRequest(counts, bound, statistic, epsilon))
        drawn = self._noise(plan, counts, epsilon).draw(int(plan.huber.sum()), measure)
        result = plan.laplace.means(plan.weighted.values(total), measure, bound)
        if plan.huber.any():
            shape = plan.shape.select(plan.huber)
            mean = (total / counts.count * float(bound.step))[plan.huber[counts.bin_index]]
            centre = bounding_huber.huber_location(
                mean, shape.weight, shape.threshold, shape.bin_index, shape.bins
            )
            smooth = bounding_huber.smooth_sensitivity(mean, shape, plan.beta[plan.huber])
            noisy = centre + smooth / plan.alpha[plan.huber] * drawn
            result[plan.huber] = np.clip(noisy, 0.0, float(bound.upper))
        return result

    def calibrated(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return alpha and beta, (G,) each, of noise S/alpha times Student-t by a beta-smooth S, and
        E|Student-t|.
        """
        beta = np.where(np.isinf(epsilon), 0.0, epsilon / self.beta_divisor)
        distinct, which = np.unique(epsilon, return_inverse=True)
        alpha = student_t.largest_alpha(
            self.degrees, np.where(np.isinf(distinct), 0.0, distinct / self.beta_divisor), _spent(distinct)
        )[which]
        return alpha, beta, student_t.mean_absolute(self.degrees)

    def plan(self, request: StatisticRequest) -> HuberPlan:
        """Return how every bin is released, decided from public counts alone."""
        counts, bound, statistic, epsilon = request.counts, request.bound, request.statistic, request.loss
        self._require(request)
        index, bins, upper = counts.bin_index, counts.bins, float(bound.upper)
        used = bounding_huber.used_count(counts.count, index, bins, self.cap_ratio)
        threshold = bounding_huber.scale_threshold(used, index, bins, upper, self.spread * upper, self.factor)
        plain = means.weighting(counts, bound, statistic)
        counted = used if statistic is Statistic.MEAN else np.ones_like(used)
        capped = means.Weighting(counts, bound, means.FINER * counted)
        shape = bounding_huber.HuberParameters(capped.weight, threshold, index, bins, upper)
        drift = _typical_bias(shape, plain.weight, self.factor)
        noise = [_error(each, epsilon, each.bias(each.weight)) for each in (capped, plain)]
        better = noise[0] + drift < noise[1]
        by_laplace = np.minimum(noise[0] + drift, noise[1])

        alpha, beta, mean_absolute = self.calibrated(epsilon)
        typical_error = drift + bounding_huber.typical_smooth_sensitivity(shape, beta) * mean_absolute / alpha
        least = np.full(bins, np.inf)
        np.minimum.at(least, index, threshold)
        huber = (least < upper) & (typical_error < by_laplace) & np.isfinite(epsilon)
        weighted = means.Weighting(counts, bound, np.where(better[index], capped.used, plain.used))
        bias = weighted.bias(plain.weight) + publish.rounding_bias(statistic, bound)
        # nothing of a bin by Huber is in the sum
        top = np.where(huber, 0, bound.upper_steps)
        laplace = weighted.sum_query(epsilon, np.where(huber, upper, bias), high=top)
        return HuberPlan(
            shape, huber, weighted, laplace, alpha, beta, np.where(huber, typical_error, by_laplace)
        )

    def _noise(self, plan: HuberPlan, counts: Counts, epsilon: FloatArray) -> ClaimedNoise:
        loss = np.where(plan.huber, _spent(epsilon), 0.0)[counts.bin_index]
        sampler = partial(student_t.draw, self.degrees)
        return ClaimedNoise(means.support_of(counts), loss, self.kind, THEOREM, sampler)


def _spent(epsilon: FloatArray) -> FloatArray:
    """A little less than epsilon, so that losses, each rounded up, stay within it."""
    return epsilon * (1 - means.HEADROOM)


def _error(weighted: means.Weighting, epsilon: FloatArray, bias: FloatArray) -> FloatArray:
    """The bias and the worst expected error of clipped Laplace noise without one."""
    noisy, upper = weighted.sum_query(epsilon, bias), float(weighted.bound.upper)
    return bias + clamped_laplace_error(noisy.term.mean_absolute_noise, np.zeros_like(bias), upper)


def _typical_bias(shape: bounding_huber.HuberParameters, target: FloatArray, factor: float) -> FloatArray:
    """Return the root mean square of sum (w_i - p_i) y_i for independent samples, shape (G,)."""
    deviation = shape.threshold / (factor * np.sqrt(2 * np.log(40.0 * shape.users[shape.bin_index])))
    square = ((shape.weight - target) * deviation) ** 2
    return np.asarray(np.sqrt(np.bincount(shape.bin_index, weights=square, minlength=shape.bins)))
