"""What consistency with a parent does to its children: exact least squares over every parent and them.

Children c of a parent P and P itself lie in one block: noises z_j = W_j r u_j with a common radius r, W_j the
half width in the statistic's unit, so their variances are in proportion to W_j^2, and they are uncorrelated.
The parent's truth is the weighted mean of its children's, w_c = N_c/N_P. With S = sum w_c^2 W_c^2 and
agg = sum w_c z_c, generalised least squares (Hay, Rastogi, Miklau, Suciu, "Boosting the Accuracy of
Differentially Private Histograms Through Consistency", 2010) gives

    P^ = agg + g (z_P - agg),   g = S / (S + W_P^2),        variance in proportion to S W_P^2/(S + W_P^2),
    c^ = z_c + q_c (z_P - agg), q_c = g W_c^2 w_c / S,

and sum w_c c^ = P^. So c^ combines the noises of its family with the coefficients 1 - q_c w_c for itself,
-q_c w_j for its sisters and q_c for the parent; ``noise.block`` bounds such a combination. The
variance of no child grows. Only the best linear rule is claimed.

**Intervals.** Two hold with the level asked for: the interval of the number before consistency, around that
number, and one around the consistent number. Which is published is decided by their half widths, that is by
counts and scales alone; the first is made longer where it does not hold the consistent number.

**Errors.** E|clip(c^) - t| <= E min(|c^ - f|, R/2) + |f - t| as for one noise, because the combination is
symmetric too; ``noise.block`` bounds the first term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.spread import NumberLaw, Spread
from trafficdp.mechanisms.consistent.parents import Parents
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.block import (
    combination_absolute,
    combination_absolute_error,
    combination_half_width,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Combination:
    """The consistent children, shape (C,), in the unit of W a radius.

    ``spread`` sqrt(sum_j (A_j W_j)^2 / 3) and ``absolute`` b of ``noise.block``; ``own`` and
    ``pull`` are 1 - q_c w_c and q_c.
    """

    spread: FloatArray
    absolute: FloatArray
    own: FloatArray
    pull: FloatArray


def combine(parents: Parents, samples: IntArray, reach: FloatArray) -> Combination:
    """Return how the noises combine; ``samples`` (G,) are records, ``reach`` (G + P,) the W of all."""
    bins, of, weight = len(parents.of), parents.of[parents.children], parents.weights(samples)
    child, above = reach[parents.children], reach[bins:]
    part = (weight * child) ** 2
    together = parents.total(part)
    share = together / (together + above**2)
    pull = (share / together)[of] * child**2 * weight
    own = 1 - pull * weight
    squares = (own * child) ** 2 + pull**2 * (np.maximum(together[of] - part, 0.0) + above[of] ** 2)
    spread = np.sqrt(squares / 3)
    largest = np.maximum(own * child, pull * above[of])
    return Combination(spread, combination_absolute(spread, largest), own, pull)


def combined_bias(parents: Parents, samples: IntArray, found: Combination, bias: FloatArray) -> FloatArray:
    """Return sum_j |A_j| bias_j of every child, shape (C,); ``bias`` (G + P,)."""
    bins, of, weight = len(parents.of), parents.of[parents.children], parents.weights(samples)
    child, above = bias[parents.children], bias[bins:]
    sisters = np.maximum(parents.total(weight * child)[of] - weight * child, 0.0)
    return np.asarray(found.own * child + found.pull * (sisters + above[of]))


@dataclass(frozen=True)
class Family:
    """The means of G bins with P parents: ``raw`` is the noise of both as they are drawn, shape (G + P,).

    ``samples`` (G,) are the records of the bins.
    """

    raw: Spread
    parents: Parents
    samples: IntArray
    bound: ContributionBound

    @cached_property
    def combination(self) -> Combination:
        """How the noises of the children combine."""
        return combine(self.parents, self.samples, self.raw.reach)

    def law(self, level: float | None) -> tuple[NumberLaw, npt.NDArray[np.bool_]]:
        """Return the law of the consistent means, shape (G,), bounds where there is a parent.

        And which intervals lie around the consistent number, not the one before; None as in ``Spread.law``.
        """
        parents, statistic, children = self.parents, Statistic.MEAN, self.parents.children
        bins, most = len(parents.of), float(Statistic.MEAN.largest(self.bound.upper))
        plain = self.raw.law(statistic, self.bound, level)
        law = NumberLaw(*(values[:bins].copy() for values in vars(plain).values()))
        around = np.zeros(bins, dtype=np.bool_)
        if not len(children):
            return law, around
        found, size, scale = self.combination, self.raw.size[children], self.raw.scale
        bias = combined_bias(parents, self.samples, found, self.raw.flooring) + rounding_bias(
            statistic, self.bound
        )
        noise = combination_absolute_error(found.absolute, size, scale, np.full(len(children), most / 2))
        law.scale[children] = found.absolute * (scale * (size + 1) + 1.5)
        law.error[children] = np.minimum(noise + bias, most)
        if level is not None:
            own = combination_half_width(found.spread, size, scale, 1 - level) + bias
            around[children] = own < law.half_width[children]
            law.half_width[children] = np.minimum(own, law.half_width[children])
        law.bias[children] = np.maximum(law.bias[children], bias)
        return law, around

    def values(self, raw: FloatArray) -> FloatArray:
        """Return the consistent numbers (G,) from noisy ones of bins and parents (G + P,), not clamped."""
        parents, children = self.parents, self.parents.children
        bins, value = len(parents.of), raw[: len(parents.of)].copy()
        gap = raw[bins:] - parents.total(parents.weights(self.samples) * raw[children])
        value[children] += self.combination.pull * gap[parents.of[children]]
        return value
