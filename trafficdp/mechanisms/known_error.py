"""How far off a number can be where counts decide it: noise of a known law, and a worst-case bias.

Theorem. Let |estimate - statistic| <= sum over t of (step_t |Z_t| + bias_t) before the estimate is clamped
to the statistic's range, Z_t discrete Laplace of scale B_t. With T terms and h_t the least whole number with
P(|Z_t| > h_t) <= (1 - level)/T (``noise.tail``), the interval estimate +- sum (step_t h_t + bias_t) holds
the statistic with at least ``level``, whatever the values: all |Z_t| <= h_t at once with that probability,
and clamping moves no estimate away from a statistic of the same range.

Where a mechanism promises no such terms (it selects from values), Markov's inequality on the proved bound
e of E|estimate - statistic| gives P(|estimate - statistic| >= e/(1 - level)) <= 1 - level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.tail import half_width

FloatArray = npt.NDArray[np.float64]
BY_TAIL = "exact tail of the discrete Laplace noise, widened by the worst-case bias"
BY_TAILS = "exact tails of two discrete Laplace noises at half of the error probability each, and their bias"
BY_RANGE = "the whole range of the statistic: nothing narrower is proved for values chosen against it"
BY_MARKOV = "Markov's inequality on the proved worst-case expected error: valid, and wide"


@dataclass(frozen=True)
class NoiseTerm:
    """One term of the error, arrays of shape (G,): ``step`` |Z| + ``bias``, Z of ``scale`` in whole steps.

    ``step`` and ``bias`` are in the statistic's unit. Scale 0: no noise.
    """

    scale: FloatArray
    step: FloatArray
    bias: FloatArray


@runtime_checkable
class KnownTerms(Protocol):
    """A mechanism whose error is a sum of terms that counts decide."""

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """Return the terms, which bound the error before clamping; rounding of speeds is in the bias.

        Where a bin's error has no such bound, the bias is the whole range.
        """


@dataclass(frozen=True)
class ErrorFacts:
    """What counts say of the numbers of one statistic, arrays of shape (G,), in its unit.

    ``half_width`` of the interval, at most the range; ``noise_scale``, the Laplace scale (NaN where there
    is none that is public, or more than one); ``worst_case_bias``; ``basis`` in words.
    """

    half_width: FloatArray
    noise_scale: FloatArray
    worst_case_bias: FloatArray
    basis: str


def error_facts(
    mechanism: Mechanism,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    epsilon: FloatArray,
    level: float,
) -> ErrorFacts:
    """Return half widths that hold with ``level``, and what is known of the noise; no value is needed.

    Raises UsageError unless 0 < level < 1.
    """
    reach = statistic.largest(bound.upper)
    unknown = np.full(counts.bins, np.nan)
    if isinstance(mechanism, KnownTerms):
        terms = mechanism.noise_terms(counts, bound, statistic, epsilon)
        each = 1 - (1 - level) / len(terms)
        half = np.zeros(counts.bins)
        bias = np.zeros(counts.bins)
        for term in terms:
            half += half_width(term.scale, each) * term.step + term.bias
            bias += term.bias
        bias = np.minimum(bias, reach)
        scale = terms[0].scale * terms[0].step if len(terms) == 1 else unknown
        scale = np.where(bias < reach, scale, np.nan)
        basis = BY_TAIL if len(terms) == 1 else BY_TAILS
        return ErrorFacts(np.minimum(half, reach), scale, bias, BY_RANGE if np.all(bias >= reach) else basis)
    whole = np.full(counts.bins, reach)
    error = mechanism.expected_error(counts, bound, statistic, epsilon)
    basis = BY_RANGE if np.all(error >= reach) else BY_MARKOV
    return ErrorFacts(np.minimum(error / (1 - level), reach), unknown, whole, basis)
