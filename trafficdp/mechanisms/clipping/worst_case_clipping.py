"""Worst-case optimal clipping of users' sums (OPT), for means and by two moments for variances.

Paper 000: Rameshwar, Tandon, "Bounding User Contributions for User-Level Differentially Private Mean
Estimation", arXiv 2502.04749. The interval, its optimality, the errors and what the paper's text gets wrong
are in ``bounding.worst_case``. We depart from the paper in this: sums are integers, intervals are rounded
inward to whole steps and the noise is discrete Laplace; the charge is each vehicle's own,
width_l / scale instead of T / scale; T may minimise the exact error instead of the paper's bound; and a
variance is released by the second-moment route, M2 - (mean - U/2)^2 with M2 the mean of (x - U/2)^2.

Theorem (REPLACE_USER_VALUES). The clipped sum of user l lies in an interval of width w_l, its sensitivity
(public: it depends on counts only), so that the noisy total's probabilities change by at most e^(w_l/B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.worst_case import clip_cut, least_error_threshold, worst_case_threshold
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.integer_laplace import charge, checked_epsilon, laplace_loss, laplace_scale
from trafficdp.mechanisms.moment import (
    Moment,
    check_sums,
    first_moment,
    first_totals,
    second_moment,
    second_totals,
    variance_from,
)
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.worst_case_error import clamped_laplace_error
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import round_up

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MEAN_SHARE = 2 / 3
"""Share of epsilon that a variance gives to the mean: its error is U |e1| + |e2|, the ranges are U and
U^2/4, and U^2/x + (U^2/4)/(1 - x) is least at x = 2/3."""


@dataclass(frozen=True)
class Clipping:
    """Public facts of one clipped total, in steps: ``cut`` and ``width`` (P,), ``scale`` (G,).

    A cut of -1 says that nothing is kept and the bin is the constant in the middle.
    """

    moment: Moment
    cut: IntArray
    width: IntArray
    scale: FloatArray


@dataclass(frozen=True)
class WorstCaseClipping:
    """OPT of paper 000. ``least_exact_error`` chooses T by the exact error; False is the paper's T."""

    least_exact_error: bool = False

    @property
    def name(self) -> str:
        """Key in the registry."""
        return "worst_case_clipping_exact" if self.least_exact_error else "worst_case_clipping"

    citation = (
        "Rameshwar, Tandon: Bounding User Contributions for User-Level Differentially Private Mean "
        "Estimation, arXiv 2502.04749, Theorem III.1"
    )
    statistics = (Statistic.MEAN, Statistic.VARIANCE)
    idealised = False

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism. A vehicle pays width/scale a bin: less than epsilon if its interval is narrower."""
        loss = np.zeros(counts.pairs)
        moves = []
        for moment, part in self._parts(counts, bound, statistic, epsilon):
            clipping = self.clipping(counts, moment, part)
            loss = loss + laplace_loss(clipping.width, clipping.scale[counts.bin_index])
            widest = np.zeros(counts.bins)
            np.maximum.at(widest, counts.bin_index, clipping.width * moment.unit)
            moves.append(widest / counts.samples_per_bin)
        loss = np.where(loss > 0, round_up(loss), 0.0)
        sensitivity = moves[0]
        if statistic is Statistic.VARIANCE:
            combined = moves[1] + float(bound.upper) * moves[0]
            sensitivity = np.minimum(combined, statistic.largest(bound.upper))
        return promise(self.name, statistic, counts, bound, sensitivity, charge(counts, loss))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism. Variance: |e2| + U |e1| of the two moments."""
        parts = self._parts(counts, bound, statistic, epsilon)
        terms = [self._term(counts, moment, part) for moment, part in parts]
        reach = statistic.largest(bound.upper)
        rounding = rounding_bias(statistic, bound)
        if statistic is Statistic.MEAN:
            noisy = clamped_laplace_error(terms[0].scale * terms[0].step, terms[0].bias + rounding, reach)
            # the middle is as near to speeds that were never rounded
            middle = (terms[0].scale == 0) & np.isfinite(parts[0][1])
            return np.where(middle, terms[0].bias, noisy)
        first, second = (
            clamped_laplace_error(term.scale * term.step, term.bias, moment.upper)
            for term, (moment, _) in zip(terms, parts, strict=True)
        )
        return np.minimum(second + float(bound.upper) * first + rounding, reach)

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms: for a variance |e2| + U |e1|."""
        parts = self._parts(counts, bound, statistic, epsilon)
        terms = [self._term(counts, moment, part) for moment, part in parts]
        weights = (1.0,) if statistic is Statistic.MEAN else (float(bound.upper), 1.0)
        # rounding of the speeds counts once
        rounding = (rounding_bias(statistic, bound), 0.0)
        return tuple(
            NoiseTerm(term.scale, weight * term.step, weight * term.bias + more)
            for term, weight, more in zip(terms, weights, rounding, strict=False)
        )

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism. A bin with fewer than ceil(2/eps) vehicles is U/2 under the paper's T."""
        contributions = samples.contributions()
        counts, bound = samples.counts, samples.bound
        parts = self._parts(counts, bound, statistic, epsilon)
        totals = [first_totals(contributions), second_totals(contributions)]
        found = [
            self._release(counts, moment, total, part, noise)
            for (moment, part), total in zip(parts, totals, strict=False)
        ]
        if statistic is Statistic.MEAN:
            return found[0]
        return variance_from(found[0], found[1], float(bound.upper))

    def clipping(self, counts: Counts, moment: Moment, epsilon: FloatArray) -> Clipping:
        """Return where every vehicle's total is clipped and how much noise follows, from counts alone.

        Raises UsageError when a bin's sum could leave 62 bits.
        """
        check_sums(moment, int(counts.samples_per_bin.max(initial=0)))
        threshold = self._threshold(counts, moment, epsilon)
        reach = moment.steps * counts.count
        cut = clip_cut(counts.count, counts.bin_index, threshold, moment.steps)
        # T = 0 keeps nothing: all of the reach is cut, and the bin is U/2
        kept = threshold[counts.bin_index] > 0
        width = np.where(kept, reach - 2 * cut, 0)
        widest = np.zeros(counts.bins, dtype=np.int64)
        np.maximum.at(widest, counts.bin_index, width)
        return Clipping(moment, np.where(kept, cut, -1), width, laplace_scale(widest, epsilon))

    def _parts(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> list[tuple[Moment, FloatArray]]:
        """The moments that a statistic needs, each with its epsilon; their sum is at most ``epsilon``."""
        require_statistic(self.name, statistic, self.statistics)
        checked_epsilon(epsilon, counts)
        if statistic is Statistic.MEAN:
            return [(first_moment(bound), epsilon)]
        first = epsilon * MEAN_SHARE
        with np.errstate(invalid="ignore"):
            # rounded down, so that both together never exceed epsilon
            rest = np.nextafter(epsilon - first, 0.0)
        second = np.where(np.isfinite(epsilon), rest, epsilon)
        return [(first_moment(bound), first), (second_moment(bound), second)]

    def _threshold(self, counts: Counts, moment: Moment, epsilon: FloatArray) -> IntArray:
        count, bin_index, bins = counts.count, counts.bin_index, counts.bins
        if not self.least_exact_error:
            return moment.steps * worst_case_threshold(count, bin_index, bins, epsilon)
        finite = np.isfinite(epsilon)
        best = least_error_threshold(count, bin_index, bins, np.where(finite, epsilon, 1.0))
        largest = moment.steps * counts.largest_count_per_bin
        steps = np.clip(np.rint(best * moment.steps), 1, largest).astype(np.int64)
        return np.where(finite, steps, largest)

    def _term(self, counts: Counts, moment: Moment, epsilon: FloatArray) -> NoiseTerm:
        """The error of one moment, in its own unit, but for rounding of the speeds."""
        clipping = self.clipping(counts, moment, epsilon)
        per_unit = moment.unit / counts.samples_per_bin
        lost = np.where(clipping.cut < 0, moment.steps * counts.count / 2, clipping.cut)
        bias = np.bincount(counts.bin_index, lost, counts.bins) * per_unit
        return NoiseTerm(clipping.scale, per_unit, bias)

    def _release(
        self, counts: Counts, moment: Moment, total: IntArray, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        clipping = self.clipping(counts, moment, epsilon)
        constant = clipping.cut < 0
        cut = np.where(constant, 0, clipping.cut)
        clipped = np.where(constant, 0, np.clip(total, cut, moment.steps * counts.count - cut))
        noisy = noise.discrete_laplace(clipping.scale)
        np.add.at(noisy, counts.bin_index, clipped)
        value = noisy * (moment.unit / counts.samples_per_bin)
        empty = np.zeros(counts.bins, dtype=bool)
        empty[counts.bin_index[constant]] = True
        return np.where(empty, moment.upper / 2, np.clip(value, 0.0, moment.upper))
