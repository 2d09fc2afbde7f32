"""The accounting ``clip_user``: vehicles are left out of bins where that harms least, so the rest costs less.

For some epsilons a bin Clip-User says which pairs to leave out. With what is left, every number may be off by
E t: its bias, and noise b_g = E t - bias_g, as much as that allows. A vehicle then pays Theorem A's sum over
its kept bins, which falls as E grows, so the least E at which nobody pays more than epsilon is found by
bisection; the best of all candidates is taken. Nothing left out is one of them: never worse than ``equal``.

Errors are bounds over all speeds there could be. On Austin's maps this accounting beats blocks only where
both say little (E near U/2, erratum E11): so "best" leaves it aside, and it is carried out when asked for by
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import CalibratedPure
from trafficdp.mechanisms.clip_user.calibrated import NAME, CalibratedSuppression, Suppressing, judged
from trafficdp.mechanisms.clip_user.clip_user import clip_user
from trafficdp.mechanisms.clip_user.estimates import Imputed, imputed, kept_counts, suppressed_error
from trafficdp.mechanisms.laplace.accountings import HEADROOM, pair_loss
from trafficdp.mechanisms.laplace.lattice import to_lattice
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import CHARGE_STEP, PICO, PureDP

FloatArray = npt.NDArray[np.float64]
EPSILONS_PER_BIN = tuple(2.0**power for power in range(-4, 5))
"""What Clip-User is tried at."""
CLOSE = 1e-12


@dataclass(frozen=True)
class _Candidate:
    """One suppression: the epsilon a bin it was found at, the pairs left out, what stays."""

    epsilon_per_bin: float
    left_out: npt.NDArray[np.int64]
    rest: Counts
    by: Mapping[Statistic, Imputed]


@dataclass(frozen=True)
class SuppressionAccounting:
    """See Accounting. ``scales`` are those of the noise alone; the worst relative scale includes the bias."""

    counts: Counts
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]

    name = NAME

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """See Accounting."""
        candidate, error = self._best(epsilon)
        return self._noise(candidate, error)

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting: E, bias included."""
        return self._best(epsilon)[1]

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """See Accounting: the least that any candidate costs at that E."""
        costs = [self._cost(each, relative_scale) for each in self._candidates]
        return min(costs) if relative_scale > 0 else 0.0

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """See Accounting: saturating, at the worst bias."""
        candidate, error = self._best(epsilon)
        return {
            statistic: suppressed_error(statistic, self.counts, candidate.rest, self.bound, scale)
            for statistic, scale in self._noise(candidate, error).items()
        }

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """See Accounting: scales grow by the excess while the exact loss exceeds the target."""
        epsilon = target.pico / PICO
        epsilon -= min(epsilon * HEADROOM, CHARGE_STEP / PICO / 2)
        if target.pico:
            candidate, error = self._best(epsilon)
            noise = self._noise(candidate, error)
            suppressing = Suppressing(candidate.epsilon_per_bin, candidate.left_out)
            factor = 1.0
            for _ in range(50):
                lattices = {
                    statistic: to_lattice(
                        statistic, candidate.rest, bound, factor * _kept_scale(scale, candidate.by[statistic])
                    )
                    for statistic, scale in noise.items()
                }
                calibrated = CalibratedSuppression(lattices, suppressing)
                spent = calibrated.event(counts, bound).loss.pico
                if spent <= target.pico:
                    return calibrated
                factor *= spent / target.pico * (1 + 1e-13)
        raise UsageError(
            "no noise fits the epsilon", got=f"epsilon={target}", todo="ask for a larger epsilon"
        )

    @cached_property
    def _candidates(self) -> tuple[_Candidate, ...]:
        statistics = judged(tuple(self.tolerance))
        found = [self._candidate(0.0, np.ones(self.counts.pairs, dtype=np.bool_))]
        for epsilon in EPSILONS_PER_BIN:
            kept = clip_user(self.counts, self.bound, epsilon, statistics).kept
            found.append(self._candidate(epsilon, kept))
        return tuple(found)

    def _candidate(self, epsilon: float, kept: npt.NDArray[np.bool_]) -> _Candidate:
        rest = kept_counts(self.counts, kept)
        by = {each: imputed(each, self.counts, rest, self.bound) for each in self.tolerance}
        return _Candidate(epsilon, np.flatnonzero(~kept).astype(np.int64), rest, by)

    def _noise(self, candidate: _Candidate, error: float) -> dict[Statistic, FloatArray]:
        """b_g = E t - bias_g of the published numbers; 0 where what is kept can only be one number."""
        noise = {}
        for statistic, allowed in self.tolerance.items():
            scale = np.maximum(error * allowed - candidate.by[statistic].bias, 0.0)
            if statistic is Statistic.VARIANCE:
                scale = np.where(candidate.rest.samples_per_bin > 1, scale, 0.0)
            noise[statistic] = scale
        return noise

    def _cost(self, candidate: _Candidate, error: float) -> float:
        """The largest loss of any vehicle at E; infinite where a bias leaves no room for noise."""
        noise = self._noise(candidate, error)
        for statistic, scale in noise.items():
            varies = candidate.rest.samples_per_bin > 1 if statistic is Statistic.VARIANCE else scale >= 0
            if bool(np.any(varies & (scale <= 0))):
                return float("inf")
        kept = {statistic: _kept_scale(scale, candidate.by[statistic]) for statistic, scale in noise.items()}
        losses = candidate.rest.total_per_user(pair_loss(candidate.rest, self.bound, kept))
        return float(losses.max(initial=0.0))

    def _best(self, epsilon: float) -> tuple[_Candidate, float]:
        """The candidate with the least E, and that E; on a tie the first."""
        best: tuple[_Candidate, float] | None = None
        for candidate in self._candidates:
            high = 1.0 if best is None else best[1]
            if best is not None and self._cost(candidate, high * (1 - CLOSE)) > epsilon:
                continue
            while self._cost(candidate, high) > epsilon:
                high *= 2
            low = 0.0
            while high - low > CLOSE * high:
                middle = (low + high) / 2
                low, high = (low, middle) if self._cost(candidate, middle) <= epsilon else (middle, high)
            best = candidate, high
        if best is None:
            raise UsageError("there is nothing to release", expected="at least one bin")
        return best


def _kept_scale(scale: FloatArray, by: Imputed) -> FloatArray:
    """The scale of the kept statistic, of which the published number has ``scale``."""
    return scale / by.share
