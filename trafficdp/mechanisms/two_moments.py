"""A variance from any mechanism of means: it releases the mean, and the mean of squared distances from U/2.

Paper 003 treats means; a variance by two of them is its section on (mean, variance) made explicit, with the
epsilon shared out (erratum E9: the pair costs what both cost). As in ``moment``:

    Var = M2 - (mean - U/2)^2,   |Var' - Var| <= |e2| + U |e1|,

M2 the mean of y = (x - U/2)^2 in [0, U^2/4]. The mean gets two thirds of epsilon: with errors of equal shares
of the ranges U and U^2/4, U^2/x + (U^2/4)/(1 - x) is least at x = 2/3. y lies on a lattice of at most
LARGEST_STEPS steps, to which it is rounded record by record, before anything is added up.

Theorem (REPLACE_USER_VALUES). Counts, and with them all sensitivities, are public and the same for both runs;
a vehicle's losses by the theorem of the mechanism of means add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.known_error import KnownTerms, NoiseTerm
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.moment import variance_from
from trafficdp.mechanisms.promise import promise
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
MEAN_SHARE = 2 / 3
LARGEST_STEPS = 1 << 16


class KnownMeans(Mechanism, KnownTerms, Protocol):
    """A mechanism of means whose errors are sums of terms that counts decide."""


@dataclass(frozen=True)
class TwoMoments:
    """``means`` with a variance besides. Everything else is its own."""

    means: Mechanism

    @property
    def name(self) -> str:
        """Key in the registry: that of ``means``."""
        return self.means.name

    @property
    def citation(self) -> str:
        """Of ``means``."""
        return self.means.citation

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Those of ``means`` and the variance, in the order of Statistic."""
        return tuple(
            each for each in Statistic if each is Statistic.VARIANCE or each in self.means.statistics
        )

    @property
    def idealised(self) -> bool:
        """As ``means``."""
        return self.means.idealised

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism: for a variance both events add up, vehicle by vehicle."""
        if statistic is not Statistic.VARIANCE:
            return self.means.event(counts, bound, statistic, epsilon)
        first, second = shares(epsilon)
        one = self.means.event(counts, bound, Statistic.MEAN, first)
        two = self.means.event(counts, squares_bound(bound), Statistic.MEAN, second)
        moved = two.sensitivity[Statistic.MEAN] + float(bound.upper) * one.sensitivity[Statistic.MEAN]
        return promise(
            self.name,
            statistic,
            counts,
            bound,
            np.minimum(moved, statistic.largest(bound.upper)),
            one.loss_per_user + two.loss_per_user,
            idealised=self.idealised,
        )

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism: |e2| + U |e1| and the rounding of speeds, at most the range."""
        if statistic is not Statistic.VARIANCE:
            return self.means.expected_error(counts, bound, statistic, epsilon)
        first, second = shares(epsilon)
        e1 = self.means.expected_error(counts, bound, Statistic.MEAN, first)
        e2 = self.means.expected_error(counts, squares_bound(bound), Statistic.MEAN, second)
        error = e2 + float(bound.upper) * e1 + rounding_bias(statistic, bound)
        return np.minimum(error, statistic.largest(bound.upper))

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism. The variance of a single record is 0."""
        if statistic is not Statistic.VARIANCE:
            return self.means.estimate(samples, statistic, epsilon, noise)
        first, second = shares(epsilon)
        mean = self.means.estimate(samples, Statistic.MEAN, first, noise)
        squares = self.means.estimate(squares_of(samples), Statistic.MEAN, second, noise)
        variance = variance_from(mean, squares, float(samples.bound.upper))
        return np.where(samples.counts.samples_per_bin == 1, 0.0, variance)


@dataclass(frozen=True)
class KnownTwoMoments(TwoMoments):
    """The same of ``means`` with known terms, whose variance has known terms too."""

    means: KnownMeans

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms: |e2| + U |e1| for a variance."""
        if statistic is not Statistic.VARIANCE:
            return self.means.noise_terms(counts, bound, statistic, epsilon)
        first, second = shares(epsilon)
        weight, rounding = float(bound.upper), rounding_bias(statistic, bound)
        ones = self.means.noise_terms(counts, bound, Statistic.MEAN, first)
        twos = self.means.noise_terms(counts, squares_bound(bound), Statistic.MEAN, second)
        scaled = [NoiseTerm(term.scale, weight * term.step, weight * term.bias) for term in ones]
        scaled[0] = NoiseTerm(scaled[0].scale, scaled[0].step, scaled[0].bias + rounding)
        return (*scaled, *twos)


def shares(epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the parts of the mean and of M2, which together are never more than ``epsilon``."""
    first = epsilon * MEAN_SHARE
    with np.errstate(invalid="ignore"):
        rest = np.nextafter(epsilon - first, 0.0)
    return first, np.where(np.isfinite(epsilon), rest, epsilon)


def squares_bound(bound: ContributionBound) -> ContributionBound:
    """Return the bound of y = (x - U/2)^2: U^2/4 in at most LARGEST_STEPS steps."""
    upper = bound.upper**2 / 4
    return ContributionBound(upper, upper / Fraction(min(bound.steps**2, LARGEST_STEPS)), bound.unit)


def squares_of(samples: Samples) -> Samples:
    """Return the samples of y, each rounded to the nearest step (half up): (2 k - K)^2 of K^2 as a share."""
    top, target = samples.bound.steps, squares_bound(samples.bound)
    whole = (2 * samples.value - top) ** 2
    value = (2 * whole * target.steps + top**2) // (2 * top**2)
    return type(samples)(samples.counts, value, samples.vehicle, target)
