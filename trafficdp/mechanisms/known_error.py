"""How far off a number can be where counts decide it: noise of a known law, and a worst-case bias.

Theorem. Let |estimate - statistic| <= sum over t of (step_t |Z_t| + bias_t) before the estimate is clamped
to the statistic's range, Z_t discrete Laplace of scale B_t, or discrete Gaussian of standard deviation B_t.
With T terms and h_t the least whole number with P(|Z_t| > h_t) <= (1 - level)/T (``noise.tail``),
the interval estimate +- sum (step_t h_t + bias_t) holds the statistic with at least
``level``, whatever the values: all |Z_t| <= h_t at once with that probability, and clamping moves no estimate
away from a statistic of the same range.

A mechanism states its terms. Where it selects from values first, the bias is the whole range, and so is the
interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.mechanisms.protocol import Mechanism, StatisticRequest
from trafficdp.mechanisms.publish import NumberLaw
from trafficdp.noise.tail import gaussian_absolute_error, gaussian_half_width, half_width

BY_TAIL = "exact tail of the discrete Laplace noise, widened by the worst-case bias"
BY_TAILS = "exact tails of two discrete Laplace noises at half of the error probability each, and their bias"
BY_GAUSSIAN = (
    "tail of the discrete Gaussian noise (Canonne, Kamath, Steinke 2020), widened by the worst-case bias"
)
BY_GAUSSIANS = (
    "tails of two discrete Gaussian noises (Canonne, Kamath, Steinke 2020) at half of the error probability "
    "each, and their bias"
)
BY_RANGE = "the whole range of the statistic: nothing narrower is proved for values chosen against it"


@dataclass(frozen=True)
class NoiseTerm:
    """One term of the error, arrays of shape (G,): ``step`` |Z| + ``bias``, Z of ``scale`` in whole steps.

    ``step`` and ``bias`` are in the statistic's unit. Scale 0: no noise. Z is Laplace noise, or ``gaussian``.
    """

    scale: FloatArray
    step: FloatArray
    bias: FloatArray
    gaussian: bool = False

    def half_width(self, level: float) -> FloatArray:
        """Return a bound that the term's absolute value stays below with probability ``level``, shape (G,).

        In the statistic's unit: the noise's tail plus the bias.
        """
        tail = gaussian_half_width if self.gaussian else half_width
        return np.asarray(tail(self.scale, level) * self.step + self.bias)

    @property
    def mean_absolute_noise(self) -> FloatArray:
        """An upper bound of the mean absolute noise, in the statistic's unit, shape (G,).

        A Laplace scale as it is.
        """
        size = gaussian_absolute_error(self.scale) if self.gaussian else self.scale
        return np.asarray(size * self.step)


@runtime_checkable
class KnownTerms(Protocol):
    """A mechanism whose error is a sum of terms that counts decide."""

    def noise_terms(self, request: StatisticRequest, /) -> tuple[NoiseTerm, ...]:
        """Return the noises and biases whose sum bounds each bin's error before clamping, from public counts.

        Rounding of speeds is in the bias. Where a bin's error has no such bound, the bias is the whole range.
        """


def law_of_mechanism(mechanism: Mechanism, request: StatisticRequest, level: float) -> tuple[NumberLaw, str]:
    """Return how far off the numbers of ``request`` may be, from public counts, and what intervals rest on.

    Intervals hold with ``level``; half widths are at most the range, and are the range for a mechanism that
    is not one of ``KnownTerms``. Scales are NaN where there is none that is public, or more than one. Raises
    UsageError unless 0 < level < 1.
    """
    max_value, unknown = request.range, np.full(request.counts.bins, np.nan)
    error = mechanism.expected_error(request)
    if not isinstance(mechanism, KnownTerms):
        whole = np.full(request.counts.bins, max_value)
        return NumberLaw(unknown, error, whole, whole), BY_RANGE
    terms = mechanism.noise_terms(request)
    each = 1 - (1 - level) / len(terms)
    half = np.sum([term.half_width(each) for term in terms], axis=0)
    bias = np.minimum(np.sum([term.bias for term in terms], axis=0), max_value)
    known = (bias < max_value) & (len(terms) == 1)
    names = (BY_GAUSSIAN, BY_GAUSSIANS) if terms[0].gaussian else (BY_TAIL, BY_TAILS)
    basis = BY_RANGE if np.all(bias >= max_value) else names[len(terms) > 1]
    scale = np.where(known, terms[0].mean_absolute_noise, np.nan)
    return NumberLaw(scale, error, bias, np.minimum(half, max_value)), basis
