"""An empirical lower bound on epsilon: what draws on two neighbouring data sets prove at a confidence.

Half of the draws choose an event (output at most, or at least, a threshold; in which direction the sets
are compared). The other half, independent of the choice, bounds its two probabilities by Clopper-Pearson
limits p_low and q_high, each at half the error probability. Then epsilon >= ln((p_low - delta)/q_high) with
the stated confidence, whatever the mechanism is (delta is 0 for pure epsilon). Over several pairs the error
probability is divided among them. A bound above the claim refutes the claim; one below it refutes nothing.

**What draws are compared by.** All that a mechanism measures, as one number: how much likelier it is on one
data set than on the other, ln P(answers | one) - ln P(answers | other). No event tells the two apart better
(Neyman and Pearson), and the estimate follows from these answers. P is computed, not drawn: laws of noise are
known, and so are the probabilities of choices (``noise.choice.probabilities``). Where later steps follow from
earlier answers, the mechanism is run a second time, on the other data, and is told the answers of the first
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from statistics import NormalDist

import numpy as np
from scipy.special import betaincinv

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.audit import neighbours
from trafficdp.errors import in_range
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.mechanisms.known_error import KnownTerms
from trafficdp.mechanisms.protocol import ClaimedNoise, Mechanism, StatisticRequest
from trafficdp.mechanisms.simulated_cities import repeat_bins
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise import choice
from trafficdp.noise.source import NoiseSource, SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Contributions, Samples

AT_ONCE = 25_000
"""Copies of a data set side by side."""
ROWS_AT_ONCE = 500_000
"""Rows of their vehicles, where every copy has many."""
AGREEING, AGREEING_RECORDS = 110, 400
"""So many vehicles, divided by epsilon, with so many records each make a bin that Huber takes as Huber."""
CERTAIN = 1e9
"""A log likelihood ratio that nothing measures."""


def runs_one_at_a_time(mechanism: Mechanism) -> bool:
    """Return whether ``mechanism`` must run on one data set at a time, not on many copies side by side.

    True for mechanisms that count in rho, whose noise depends on all bins and vehicles together; not for
    those that are ``KnownTerms``, whose noise depends only on the vehicle with the largest loss.
    """
    return mechanism.kind is LossKind.ZCDP and not isinstance(mechanism, KnownTerms)


def likelihood_ratios(
    mechanism: Mechanism, statistic: Statistic, loss: float, pairs: Sequence[neighbours.Neighbours]
) -> Draws:
    """Return a ``Draws`` function of a mechanism's log likelihood ratio on the data sets of ``pairs``.

    It is ln P(answers | left) - ln P(answers | right), in nats, of all noisy answers. ``loss`` is an epsilon
    or a rho, as the mechanism counts. Where ``runs_one_at_a_time`` is true the mechanism runs once for each
    draw, else for many copies at once.
    """
    most, pure = 1 if runs_one_at_a_time(mechanism) else AT_ONCE, mechanism.kind is LossKind.PURE

    def run(samples: Samples, times: int, measure: ReplayedDraws) -> None:
        many = samples if times == 1 else repeat_bins(samples, times, copy_vehicles=not pure)
        given = np.full(many.counts.bins, loss) if pure else np.array(loss)
        mechanism.estimate(many, statistic, given, measure)

    def outputs(samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        return np.concatenate(
            [
                replayed_ratio(run, pairs, samples, min(most, times - done), source)
                for done in range(0, times, most)
            ]
        )

    return outputs


def replayed_ratio(
    run: Callable[[Samples, int, ReplayedDraws], object],
    pairs: Sequence[neighbours.Neighbours],
    samples: Samples,
    times: int,
    source: NoiseSource,
) -> FloatArray:
    """Return ``times`` draws of ln P(answers | left) - ln P(answers | right), in nats, shape (times,).

    ``samples`` is the left or the right data set of one of ``pairs``, on which ``run`` draws the answers; it
    runs again on the other one, and is told the same answers.
    """
    pair = next(each for each in pairs if samples is each.left or samples is each.right)
    drawn = ReplayedDraws(source, times)
    run(samples, times, drawn)
    again = ReplayedDraws(source, times, drawn.said)
    run(pair.right if samples is pair.left else pair.left, times, again)
    # equal ratios that were added up in another order are one number, so that no event parts them
    more = np.clip(drawn.log_likelihood - again.log_likelihood, -CERTAIN, CERTAIN).round(9)
    return more if samples is pair.left else -more


class ReplayedDraws(SimulatedNoise):
    """A noise source that records its answers in ``said``, or gives the answers ``said`` of an earlier run.

    ``log_likelihood``, shape (times,), is ln P(answers) for each of ``times`` copies of one data set, up to a
    constant that is the same on both data sets of a pair. A choice is recorded as a whole number: a
    candidate of weight w stands for w units, and the number is the place of the unit that was drawn.
    """

    def __init__(self, source: NoiseSource, times: int, said: Sequence[IntArray] = ()) -> None:
        super().__init__(0)
        self._source, self._again, self._left = source, bool(said), list(said)
        self.said: list[IntArray] = []
        self._within: IntArray = np.zeros(0, dtype=np.int64)
        self.log_likelihood = np.zeros(times)

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Return ``sums`` plus Laplace noise of ``scale``, or the recorded answer.

        The logarithm of its probability is added to ``log_likelihood``.
        """
        said = self._left.pop(0) if self._again else self._source.laplace(sums, scale)
        self._keep(said, _over(np.abs(said - sums), scale))
        return said

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Return ``sums`` plus Gaussian noise of standard deviation ``sd``, or the recorded answer.

        The logarithm of its probability is added to ``log_likelihood``.
        """
        said = self._left.pop(0) if self._again else self._source.gaussian(sums, sd)
        self._keep(said, _over(said - sums, sd) ** 2 / 2)
        return said

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Return the index of the candidate chosen in each group, shape (1, groups).

        Group i has the candidates ``start[i]`` to ``start[i + 1]`` - 1, each with a ``cost`` and a
        ``weight``. The choice is drawn by the exponential mechanism of ``scale``, or is the recorded one. The
        logarithm of its probability is added to ``log_likelihood``.
        """
        ends = np.cumsum(weight)
        first = np.append(0, ends)[start[:-1]]
        if self._again:
            said = self._left.pop(0)
            chosen = np.searchsorted(ends, first + said, side="right")
            self._within = said - (ends[chosen] - weight[chosen] - first)
        else:
            chosen = self._source.choose(cost, weight, start, scale, runs)[0]
            said = ends[chosen] - weight[chosen] - first
        chance = choice.probabilities(cost, weight, start, scale)[chosen] / weight[chosen]
        with np.errstate(divide="ignore"):
            self._keep(said, -np.log(chance))
        return np.asarray(chosen[None, :])

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return, for each choice just made, a uniform unit in 0..``count`` - 1 of the chosen candidate.

        Drawn, or as recorded. ``log_likelihood`` does not change: ``choose`` has counted the unit's
        probability already.
        """
        if self._again or not len(count):
            return self._within if len(count) else count
        drawn = self._source.uniform_below(count)
        self.said[-1] = self.said[-1] + drawn
        return drawn

    def _keep(self, said: IntArray, minus_log: FloatArray) -> None:
        """Record what was ``said``, and ``minus_log``, its -ln P."""
        self.said.append(said)
        self.log_likelihood -= minus_log.reshape(-1, len(self.log_likelihood)).sum(axis=0)


def _over(move: IntArray, scale: FloatArray) -> FloatArray:
    """``move`` / ``scale``; where nothing is drawn, nothing else than what is there can be said."""
    drawn = scale > 0
    missed = np.where(move == 0, 0.0, np.inf)
    return np.asarray(np.where(drawn, move / np.where(drawn, scale, 1.0), missed), dtype=np.float64)


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
    """A lower bound ``epsilon`` on a mechanism's privacy loss, which holds with probability ``confidence``.

    ``label`` names the pair of data sets, ``event`` the event whose two probabilities give the bound, and
    ``draws`` is the number of draws on each data set.
    """

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
    """Return the largest proven lower bound on epsilon at ``delta`` of ``mechanism`` run at ``loss``.

    ``loss`` is an epsilon or a rho, as the mechanism counts; for rho see ``privacy.conversion``. Pairs of
    synthetic neighbouring data sets are compared by the likelihood ratio of all noisy answers. Where noise
    has no exact sampler, the estimate is compared too, on pairs for which such noise is drawn.
    """
    pairs: Sequence[neighbours.Neighbours] = [
        *neighbours.extreme_neighbours(bound),
        *neighbours.ranked_neighbours(bound),
    ]
    most = 2
    if runs_one_at_a_time(mechanism):
        pairs, most = neighbours.slow_mechanism_neighbours(bound), 1
    outputs = likelihood_ratios(mechanism, statistic, loss, pairs)
    # the vehicle that moves from one side of the others to the other tells most
    many = neighbours.agreeing_neighbours(bound, max(20, ceil(AGREEING / loss)), AGREEING_RECORDS)[1:2]
    idealised = has_lossy_step(mechanism, statistic, loss, many, ClaimedNoise)
    # two audits that hold together
    each = 1 - (1 - confidence) / 2 if idealised else confidence
    best = _best(outputs, pairs, noise, draws, delta)[:most]
    found = audit_draws(outputs, best, noise, draws=draws, confidence=each, delta=delta)
    if idealised:
        estimates = estimate_draws(mechanism, statistic, loss)
        more = audit_draws(estimates, many, noise, draws=draws, confidence=each, delta=delta)
        found = max(found, more, key=lambda bound: bound.epsilon)
    return replace(found, confidence=confidence)


@dataclass(frozen=True, repr=False)
class SumSamples(Samples):
    """Samples that hold one sum of speeds (``value``, in steps) for each (bin, vehicle) pair, not records."""

    def contributions(self) -> Contributions:
        """Return the sums of speeds of all pairs, shape (P,); sums of squares are unknown and set to 0."""
        return Contributions(self.counts, self.value, np.zeros_like(self.value), self.vehicle, self.bound)


def has_lossy_step(
    mechanism: Mechanism,
    statistic: Statistic,
    loss: float,
    pairs: Sequence[neighbours.Neighbours],
    *step_types: type,
) -> bool:
    """Return whether ``mechanism`` has a step of one of ``step_types`` that costs any vehicle a loss.

    Steps are those on the data sets of ``pairs``; ``loss`` is that of the whole statistic, an epsilon or a
    rho as the mechanism counts.
    """
    given = np.full(1, loss) if mechanism.kind is LossKind.PURE else np.array(loss)
    return any(
        isinstance(step, step_types) and bool(step.loss().any())
        for pair in pairs
        for step in mechanism.steps(StatisticRequest(pair.left.counts, pair.left.bound, statistic, given))
    )


def _best(
    ratios: Draws, pairs: Sequence[neighbours.Neighbours], noise: NoiseSource, draws: int, delta: float
) -> Sequence[neighbours.Neighbours]:
    """``pairs``, those first that promise most, by log likelihood ratios that are not used again."""
    trials = min(max(draws // 10, FEWEST), MOST_TRIALS)

    def most(pair: neighbours.Neighbours) -> float:
        both = ratios(pair.left, trials, noise), -ratios(pair.right, trials, noise)
        return max(expected_lower_bound(side, draws // 2, delta) for side in both)

    return sorted(pairs, key=most, reverse=True)


def expected_lower_bound(ratio: FloatArray, draws: int, delta: float) -> float:
    """Return about which lower bound on epsilon ``draws`` draws would prove, as a guide to the best pair.

    ``ratio`` holds log likelihood ratios ln P(x | one) - ln P(x | other) of x drawn on the first data set.
    For the event that the ratio is at least t, p is the share of such draws, and q on the other data set is
    the mean over all draws of exp(-ratio) where the event holds, else 0. The result is the best of ln((p -
    ``delta``)/q), with p and q moved by SURE standard deviations.
    """
    ordered = np.sort(np.maximum(ratio, -50.0))[::-1]
    p = np.arange(1, len(ordered) + 1) / len(ordered)
    q = np.cumsum(np.exp(-ordered)) / len(ordered)
    sure = p - SURE * np.sqrt(p / draws) - delta
    found = np.log(np.maximum(sure, 1e-300) / (q + SURE * np.sqrt(q / draws)))
    return float(found[min(FEWEST, len(found)) - 1 :].max())


def estimate_draws(mechanism: Mechanism, statistic: Statistic, epsilon: float) -> Draws:
    """Return a ``Draws`` function of the estimates of a bin, at ``epsilon`` for each bin.

    Called with a data set of one bin, it returns ``times`` independent estimates, shape (times,), from that
    many copies. For mechanisms whose estimate follows from the vehicles' sums.
    """

    def estimate(samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        most = max(1, ROWS_AT_ONCE // samples.counts.pairs)
        return np.concatenate(
            [several(samples, min(most, times - done), source) for done in range(0, times, most)]
        )

    def several(samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        sums = repeat_bins(replace(samples, value=samples.contributions().total), times)
        many = SumSamples(sums.counts, sums.value, sums.vehicle, sums.bound)
        measure = unmetered(source, many.counts.users, mechanism.kind)
        return mechanism.estimate(many, statistic, np.full(many.counts.bins, epsilon), measure)

    return estimate


def unmetered(
    noise: NoiseSource, users: int, kind: LossKind = LossKind.PURE
) -> PrivacyMeter | SimulatedNoise:
    """Return ``noise`` as a mechanism expects it, with practically no limit on any vehicle's privacy loss.

    A simulated source is returned unchanged; another becomes a meter for ``users`` vehicles, of losses of
    ``kind``.
    """
    if isinstance(noise, SimulatedNoise):
        return noise
    return PrivacyMeter(noise, np.full(users, 2**62, dtype=np.int64), kind)


def audit_draws(
    outputs: Draws,
    pairs: Sequence[neighbours.Neighbours],
    noise: NoiseSource,
    *,
    draws: int = 20_000,
    confidence: float = 0.999,
    delta: float = 0.0,
) -> LowerBound:
    """Return the largest lower bound on epsilon at ``delta`` over ``pairs`` of data sets.

    ``outputs`` draws ``draws`` numbers on each data set. The bounds of all pairs hold together with
    probability ``confidence``. Raises UsageError unless 0 < confidence < 1 and 0 <= delta < 1.
    """
    error = 1 - in_range(0, 1, confidence=confidence)
    if delta:
        in_range(0, 1, delta=delta)
    best: LowerBound | None = None
    for pair in pairs:
        left, right = (outputs(side, draws, noise) for side in (pair.left, pair.right))
        found, event = lower_bound_from_draws(left, right, error / len(pairs), delta)
        if best is None or found > best.epsilon:
            best = LowerBound(found, confidence, draws, pair.label, event)
    return best or LowerBound(0.0, confidence, 0, "no pair", "none")


def lower_bound_from_draws(
    left: FloatArray, right: FloatArray, error: float, delta: float = 0.0
) -> tuple[float, str]:
    """Return a lower bound on epsilon, max(0, ln((p_low - delta)/q_high)), and the name of its event.

    ``left`` and ``right`` are outputs on two data sets, shape (n,). The first halves choose the event, a
    threshold on the output; the second halves give the limits p_low and q_high of its two probabilities,
    which fail with probability ``error`` together.
    """
    choose = [side[: len(side) // 2] for side in (left, right)]
    test = [side[len(side) // 2 :] for side in (left, right)]
    candidates = np.unique(np.concatenate(choose))
    if len(candidates) > THRESHOLDS:
        place = np.unique(np.linspace(0, len(candidates) - 1, THRESHOLDS).astype(np.int64))
        # extremes matter most: tails of either side
        tails = [np.quantile(side, q) for side in choose for q in np.geomspace(1e-4, 0.5, 40)]
        tails += [np.quantile(side, 1 - q) for side in choose for q in np.geomspace(1e-4, 0.5, 40)]
        candidates = np.unique(np.concatenate([candidates[place], tails]))

    def counts(sides: list[FloatArray], at_most: bool, threshold: FloatArray) -> list[IntArray]:
        ordered = [np.sort(side) for side in sides]
        if at_most:
            return [np.searchsorted(side, threshold, side="right") for side in ordered]
        return [len(side) - np.searchsorted(side, threshold) for side in ordered]

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
    """Return the Clopper-Pearson lower limit: the p at which P(at least ``hits`` of ``trials``) = error.

    P is the regularised incomplete beta function I_p(hits, trials - hits + 1); rounded down.
    """
    return float(betaincinv(hits, trials - hits + 1, error)) * (1 - 1e-12) if hits else 0.0


def proportion_high(hits: int, trials: int, error: float) -> float:
    """Return the Clopper-Pearson upper limit: the p at which P(at most ``hits`` of ``trials``) = error."""
    return 1.0 - proportion_low(trials - hits, trials, error)
