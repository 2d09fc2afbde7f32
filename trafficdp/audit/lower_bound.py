"""An empirical lower bound on epsilon: what draws on two neighbouring data sets prove at a confidence.

Half of the draws choose an event (output at most, or at least, a threshold; in which direction the sets
are compared). The other half, independent of the choice, bounds its two probabilities by Clopper-Pearson
limits p_low and q_high, each at half the error probability. Then epsilon >= ln((p_low - delta)/q_high) with
the stated confidence, whatever the mechanism is (delta is 0 for pure epsilon). Over several pairs the error
probability is divided among them. A bound above the claim refutes the claim; one below it refutes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from trafficdp.audit.likelihood import Likelihoods, whole
from trafficdp.audit.neighbours import Neighbours, extreme_neighbours, ranked_neighbours, whole_neighbours
from trafficdp.errors import in_range
from trafficdp.measurement.measure import Metered
from trafficdp.mechanisms.claims import ClaimedNoise
from trafficdp.mechanisms.protocol import Mechanism
from trafficdp.mechanisms.simulated.accuracy import repeated
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.protocol import NoiseSource
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive.values import Samples

FloatArray = npt.NDArray[np.float64]
Draws = Callable[[Samples, int, NoiseSource], FloatArray]
"""So many independent outputs on one data set (any number computed from the whole output), shape (n,)."""
THRESHOLDS = 512
FEWEST = 20
"""Events rarer than this many of the choosing draws on both sides are not considered."""
MOST_TRIALS = 2_000
"""A tenth as many draws a side choose among pairs, FEWEST at least and so many at most."""
SURE = 3.5
"""Standard deviations that are kept from an estimate."""


@dataclass(frozen=True)
class LowerBound:
    """``epsilon`` is the lower bound, found with ``event`` on the pair ``label``; ``draws`` a side."""

    epsilon: float
    confidence: float
    draws: int
    label: str
    event: str


def audit_mechanism(
    mechanism: Mechanism,
    statistic: Statistic,
    loss: float,
    bound: ContributionBound,
    noise: NoiseSource,
    *,
    delta: float = 0.0,
    draws: int = 20_000,
    confidence: float = 0.999,
) -> LowerBound:
    """Return the largest lower bound on epsilon at ``delta`` that the best neighbours give at ``loss``.

    ``loss`` is an epsilon or a rho, as the mechanism counts; for rho see ``privacy.conversion``. All that is
    measured is attacked (``likelihood``); where that has no probability, being idealised noise, the estimate.
    """
    pairs: Sequence[Neighbours] = [*extreme_neighbours(bound), *ranked_neighbours(bound)]
    most = 2
    if whole(mechanism):
        pairs, most = whole_neighbours(bound), 1
    outputs: Draws = Likelihoods(mechanism, statistic, loss, pairs)
    if measures(mechanism, statistic, loss, pairs, ClaimedNoise):
        outputs = draws_of(mechanism, statistic, loss)
    else:
        pairs = _best(outputs, pairs, noise, draws, delta)[:most]
    return audit_draws(outputs, pairs, noise, draws=draws, confidence=confidence, delta=delta)


def measures(
    mechanism: Mechanism, statistic: Statistic, loss: float, pairs: Sequence[Neighbours], *what: type
) -> bool:
    """Return whether it costs anybody of ``pairs`` anything that a step is one of ``what``."""
    given = np.full(1, loss) if mechanism.kind is LossKind.PURE else np.array(loss)
    return any(
        isinstance(step, what) and bool(step.loss().any())
        for pair in pairs
        for step in mechanism.steps(pair.left.counts, pair.left.bound, statistic, given)
    )


def _best(
    ratios: Draws, pairs: Sequence[Neighbours], noise: NoiseSource, draws: int, delta: float
) -> Sequence[Neighbours]:
    """``pairs``, those first that promise most, by log likelihood ratios that are not used again."""
    trials = min(max(draws // 10, FEWEST), MOST_TRIALS)

    def most(pair: Neighbours) -> float:
        both = ratios(pair.left, trials, noise), -ratios(pair.right, trials, noise)
        return max(promised(side, draws // 2, delta) for side in both)

    return sorted(pairs, key=most, reverse=True)


def promised(ratio: FloatArray, draws: int, delta: float) -> float:
    """Return about what ``draws`` would prove, from log likelihood ratios drawn on the likelier data set.

    Of an event that the ratio is at least t, the probability p there is the share of such draws, and that on
    the other data set the mean of exp(-ratio) over them.
    """
    ordered = np.sort(np.maximum(ratio, -50.0))[::-1]
    p = np.arange(1, len(ordered) + 1) / len(ordered)
    q = np.cumsum(np.exp(-ordered)) / len(ordered)
    sure = p - SURE * np.sqrt(p / draws) - delta
    found = np.log(np.maximum(sure, 1e-300) / (q + SURE * np.sqrt(q / draws)))
    return float(found[min(FEWEST, len(found)) - 1 :].max())


def draws_of(mechanism: Mechanism, statistic: Statistic, epsilon: float) -> Draws:
    """Return draws of the first bin's estimate: one estimate of as many copies, each at ``epsilon``."""

    def estimate(samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        many = repeated(samples, times)
        measure = unmetered(source, many.counts.users, mechanism.kind)
        return mechanism.estimate(many, statistic, np.full(many.counts.bins, epsilon), measure)

    return estimate


def unmetered(noise: NoiseSource, users: int, kind: LossKind = LossKind.PURE) -> Metered | SimulatedNoise:
    """Return ``noise`` as a mechanism sees it, for ``users`` vehicles that may lose anything."""
    if isinstance(noise, SimulatedNoise):
        return noise
    return Metered(noise, np.full(users, 2**62, dtype=np.int64), kind)


def audit_draws(
    outputs: Draws,
    pairs: Sequence[Neighbours],
    noise: NoiseSource,
    *,
    draws: int = 20_000,
    confidence: float = 0.999,
    delta: float = 0.0,
) -> LowerBound:
    """Return the largest lower bound over the pairs; together they hold with ``confidence``.

    Raises UsageError unless 0 < confidence < 1 and 0 <= delta < 1.
    """
    error = 1 - in_range(0, 1, confidence=confidence)
    if delta:
        in_range(0, 1, delta=delta)
    best: LowerBound | None = None
    for pair in pairs:
        left, right = (outputs(side, draws, noise) for side in (pair.left, pair.right))
        found, event = distinguish(left, right, error / len(pairs), delta)
        if best is None or found > best.epsilon:
            best = LowerBound(found, confidence, draws, pair.label, event)
    return best or LowerBound(0.0, confidence, 0, "no pair", "none")


def distinguish(left: FloatArray, right: FloatArray, error: float, delta: float = 0.0) -> tuple[float, str]:
    """Return ln((p_low - delta)/q_high), at least 0, of the event that the first halves chose; its name."""
    choose = [side[: len(side) // 2] for side in (left, right)]
    test = [side[len(side) // 2 :] for side in (left, right)]
    candidates = np.unique(np.concatenate(choose))
    if len(candidates) > THRESHOLDS:
        place = np.unique(np.linspace(0, len(candidates) - 1, THRESHOLDS).astype(np.int64))
        # extremes matter most: tails of either side
        tails = [np.quantile(side, q) for side in choose for q in np.geomspace(1e-4, 0.5, 40)]
        tails += [np.quantile(side, 1 - q) for side in choose for q in np.geomspace(1e-4, 0.5, 40)]
        candidates = np.unique(np.concatenate([candidates[place], tails]))

    def counts(sides: list[FloatArray], at_most: bool, threshold: FloatArray) -> list[npt.NDArray[np.int64]]:
        found: list[npt.NDArray[np.int64]] = []
        for side in sides:
            ordered = np.sort(side)
            if at_most:
                found.append(np.searchsorted(ordered, threshold, side="right").astype(np.int64))
            else:
                found.append((len(ordered) - np.searchsorted(ordered, threshold)).astype(np.int64))
        return found

    best, chosen, away = -np.inf, (True, 0, candidates[0]), -NormalDist().inv_cdf(error / 2)
    for at_most in (True, False):
        both = counts(choose, at_most, candidates)
        for first in (0, 1):
            many, few = both[first], both[1 - first]
            # about the bound that counts like these would give
            sure = many - away * np.sqrt(many) - delta * len(choose[first])
            ratio = np.log(np.maximum(sure, 0.5)) - np.log(few + away * np.sqrt(few) + away**2 / 2)
            ratio = np.where(many >= FEWEST, ratio, -np.inf)
            if ratio.max() > best:
                best = float(ratio.max())
                chosen = (at_most, first, candidates[int(ratio.argmax())])
    at_most, first, threshold = chosen
    hits = [int(n[0]) for n in counts(test, at_most, np.array([threshold]))]
    sizes = [len(side) for side in test]
    low = proportion_low(hits[first], sizes[first], error / 2) - delta
    high = proportion_high(hits[1 - first], sizes[1 - first], error / 2)
    name = f"output {'<=' if at_most else '>='} {float(threshold):.6g}, {('left', 'right')[first]} over other"
    return (max(0.0, log(low / high)) if low > 0 else 0.0), name


def proportion_low(hits: int, trials: int, error: float) -> float:
    """Return the Clopper-Pearson lower limit: the p at which P(at least ``hits`` of ``trials``) = error."""
    if hits == 0:
        return 0.0
    return _solve(partial(_tail_at_least, hits, trials), error)


def proportion_high(hits: int, trials: int, error: float) -> float:
    """Return the Clopper-Pearson upper limit."""
    return 1.0 - proportion_low(trials - hits, trials, error)


def _tail_at_least(hits: int, trials: int, p: float) -> float:
    """P(Binomial(trials, p) >= hits), summed in logarithms."""
    k = np.arange(hits, trials + 1)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    logs = factorial[trials] - factorial[k] - factorial[trials - k] + k * log(p) + (trials - k) * np.log1p(-p)
    top = float(logs.max())
    return min(1.0, exp(top) * float(np.exp(logs - top).sum()))


def _solve(tail: Callable[[float], float], error: float) -> float:
    """Bisect for the p with tail(p) = error, rounded down; tail increases with p."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if tail(middle) > error:
            high = middle
        else:
            low = middle
    return low
