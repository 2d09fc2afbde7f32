"""The accounting ``clip_user``: vehicles are left out of bins where that harms least, so the rest costs less.

For some epsilons a bin Clip-User says which pairs to leave out. With what is left, every number may be off by
E t: its bias, and noise as much as that allows. A vehicle then pays Theorem A's sum over its kept bins, which
falls as E grows, so the least E at which nobody pays more than epsilon is found by bisection; the best of all
candidates is taken. Nothing left out is one of them: never worse than ``equal``.

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
from trafficdp.mechanisms.clip_user.calibrated import (
    CalibratedSuppression,
    Imputed,
    Suppressing,
    imputed,
    kept_counts,
)
from trafficdp.mechanisms.clip_user.clip_user import clip_user
from trafficdp.mechanisms.laplace.accountings import fitted
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.mechanisms.protocol import CLIP_USER, CalibratedMechanism, PublicFacts
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.loss import PICO, Loss

FloatArray = npt.NDArray[np.float64]
EPSILONS_PER_BIN = tuple(2.0**power for power in range(-4, 5))
"""What Clip-User is tried at."""
CLOSE = 1e-12


@dataclass(frozen=True)
class _Candidate:
    """One suppression: the epsilon a bin it was found at, the pairs left out, what stays."""

    suppressing: Suppressing
    rest: Counts
    by: Mapping[Statistic, Imputed]


@dataclass(frozen=True)
class SuppressionAccounting:
    """Accounting after suppression. ``scales`` are of the noise; the worst relative scale includes bias."""

    counts: Counts
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]

    name = CLIP_USER
    composition = CalibratedSuppression.composition

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return the expected absolute noise of every bin at ``epsilon``."""
        candidate, error = self._best(epsilon)
        return {s: kept * candidate.by[s].share for s, kept in self._noise(candidate, error).sizes().items()}

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return E, the largest scale with its bias over its tolerance, at ``epsilon``."""
        return self._best(epsilon)[1]

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the least that any candidate costs at that ``relative_scale``."""
        costs = [self._cost(each, relative_scale) for each in self._candidates]
        return min(costs) if relative_scale > 0 else 0.0

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every bin at ``epsilon``: saturating, at the worst bias."""
        candidate, error = self._best(epsilon)
        kept = self._noise(candidate, error).errors()
        return {s: candidate.by[s].error(s, each, self.bound) for s, each in kept.items()}

    def calibrate(self, loss: Loss) -> CalibratedMechanism:
        """Return the noise as it will be drawn: scales grow while the exact loss exceeds ``loss``."""
        asked = loss.pico / PICO
        candidate, error = self._best(max(asked, 1 / PICO))
        noise = self._noise(candidate, error)

        def at(epsilon: float) -> CalibratedMechanism:
            drawn = CalibratedLaplace.of(noise.times(asked / epsilon))
            return CalibratedSuppression(PublicFacts(self.counts, self.bound), drawn, candidate.suppressing)

        return fitted(at, loss)

    @cached_property
    def _candidates(self) -> tuple[_Candidate, ...]:
        found = [self._candidate(0.0, np.ones(self.counts.pairs, dtype=np.bool_))]
        for epsilon in EPSILONS_PER_BIN:
            found.append(self._candidate(epsilon, clip_user(self.counts, self.bound, epsilon).kept))
        return tuple(found)

    def _candidate(self, epsilon: float, kept: npt.NDArray[np.bool_]) -> _Candidate:
        rest = kept_counts(self.counts, kept)
        by = {each: imputed(each, self.counts, rest, self.bound) for each in self.tolerance}
        return _Candidate(Suppressing(epsilon, np.flatnonzero(~kept).astype(np.int64)), rest, by)

    def _noise(self, candidate: _Candidate, error: float) -> LaplaceNoise:
        """Noise of the kept statistics that leaves published numbers off by E t, bias included."""
        room = {
            statistic: np.maximum(error * allowed - candidate.by[statistic].bias, 0.0)
            / candidate.by[statistic].share
            for statistic, allowed in self.tolerance.items()
        }
        return LaplaceNoise.within(candidate.rest, self.bound, room)

    def _cost(self, candidate: _Candidate, error: float) -> float:
        """The largest loss of any vehicle at E; infinite where a bias leaves no room for noise."""
        return float(self._noise(candidate, error).loss().max(initial=0.0))

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
