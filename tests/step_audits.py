"""Every step of a mechanism against its own price: half of the noise of one is seen, however small its share.

Among all that a mechanism measures a cheap step hides behind the dear ones. Here each is drawn alone, many
times, on both of two neighbouring data sets, **given the same answers before it**. What a step is said to
cost (``Mechanism.steps``) holds whatever was answered before, so a bound above that refutes it. Two draws are
compared by their exact likelihood ratio, as in ``lower_bound``.

What costs rho is held to what follows from it: Gaussian noise to an epsilon at delta, a choice to
sqrt(8 rho) in pure epsilon, for rho is an eighth of the square of what it costs (``measurement.sets``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.audit import lower_bound
from trafficdp.audit.neighbours import Neighbours, one_bin
from trafficdp.mechanisms.protocol import ClaimedNoise, Mechanism, StatisticRequest
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.conversion import zcdp_to_approx
from trafficdp.privacy.loss import PICO, ZCDP, LossKind
from trafficdp.sensitive import Samples

TRIALS = 2_000
"""So many draws a pair of data sets choose which tells most of a step."""
AT_ONCE = 1_000
"""Draws side by side: all their candidates together are counted in 64 bits."""


def busy_neighbours(bound: ContributionBound, records: int = 36) -> list[Neighbours]:
    """Return pairs in which every vehicle has so many records that no step is left out for want of them.

    The first of 4 or 10 vehicles goes from 0 to U, which tells most of a mean, or to U/2, which moves the
    square of its distance from U/2; all others stand near where it begins, or near where it ends, or at
    U/2. On one of these pairs at least every choice of an interval, a rank or a length is made, and tells
    most of what it may. Two pairs more are of what is seldom: one record alone, and many vehicles of uneven
    counts at all speeds, so that arrays are not all full and means lie in every part of the range.
    """
    most, middle = bound.upper_steps, bound.upper_steps // 2
    near = [most // 64, most // 16, most // 8, most // 4]
    moves = [(most, place) for place in (0, *near, middle, most - near[1], most - near[0])]
    moves += [(middle, place) for place in (0, *near, middle - near[1], middle)]
    pairs = []
    for users in (4, 10):
        for end, place in moves:
            rest = [[place] * records] * (users - 1)
            sides = [one_bin([[own] * records, *rest], bound) for own in (0, end)]
            label = f"one of {users} vehicles moves from 0 to {end}, the others stand at {place}"
            pairs.append(Neighbours(f"{label}, {records} records each", *sides))
    speeds = [most * number // 64 for number in range(1, 65)]
    uneven = [[place] * (1 + number * 5 % 7) for number, place in enumerate(speeds)]
    for others, label in (([], "nobody else"), (uneven, "64 vehicles of uneven counts at all speeds")):
        sides = [one_bin([[own], *others], bound) for own in (0, most)]
        pairs.append(Neighbours(f"one record moves, {label}", *sides))
    return pairs


@dataclass(frozen=True)
class StepBound:
    """The lower bound ``found`` for one step of a mechanism, which claims epsilon ``claim`` at ``delta``.

    ``place`` is the number of the step from 0; ``verb`` is the noise source's method that it calls:
    "laplace", "gaussian" or "choose".
    """

    place: int
    verb: str
    claim: float
    delta: float
    found: lower_bound.LowerBound


@dataclass(frozen=True)
class NoiseRequest:
    """The call of a noise source that one step makes: the method ``verb`` and its arguments ``given``.

    ``given`` are exact sums and noise scales, or the costs, weights, starts and scale of one choice.
    """

    verb: str
    given: tuple[npt.NDArray[np.generic], ...]

    def repeat_on(self, draws: lower_bound.ReplayedDraws, times: int) -> None:
        """Make the recorded call on ``draws``, for ``times`` copies side by side; it keeps the answers."""
        if self.verb != "choose":
            sums, scale = (np.repeat(each, times) for each in self.given)
            getattr(draws, self.verb)(sums, scale)
            return
        cost, weight, _, scale = self.given
        many = np.tile(weight, times)
        ends = np.arange(times + 1, dtype=np.int64) * len(weight)
        draws.uniform_below(many[draws.choose(np.tile(cost, times), many, ends, np.repeat(scale, times))[0]])


class RecordedDraws(lower_bound.ReplayedDraws):
    """A ``ReplayedDraws`` for one copy that also lists in ``asked`` the calls that a mechanism makes."""

    def __init__(self, source: NoiseSource, said: Sequence[IntArray] = ()) -> None:
        super().__init__(source, 1, said)
        self.asked: list[NoiseRequest] = []

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Record this call in ``asked``; return ``sums`` plus Laplace noise, as ``ReplayedDraws`` does."""
        self.asked.append(NoiseRequest("laplace", (sums, scale)))
        return super().laplace(sums, scale)

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Record this call in ``asked``; return ``sums`` plus Gaussian noise, as ``ReplayedDraws`` does."""
        self.asked.append(NoiseRequest("gaussian", (sums, sd)))
        return super().gaussian(sums, sd)

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Record this call in ``asked``; return the chosen candidates, as ``ReplayedDraws`` does."""
        self.asked.append(NoiseRequest("choose", (cost, weight, start, scale)))
        return super().choose(cost, weight, start, scale, runs)


def audit_steps(
    mechanism: Mechanism,
    statistic: Statistic,
    loss: float,
    pairs: Sequence[Neighbours],
    noise: NoiseSource,
    *,
    draws: int = 20_000,
    confidence: float = 0.999,
    delta: float = 0.01,
) -> list[StepBound]:
    """Return a lower bound on epsilon for every step of ``mechanism`` that costs a vehicle privacy loss.

    ``loss`` is an epsilon or a rho, as the mechanism counts; each of ``pairs`` has one bin, and every step
    is tested on the pair that promises most. Each bound holds with probability ``confidence``. Noise
    without an exact sampler is no step here: its estimates are audited (``lower_bound.audit_mechanism``).
    """
    best: dict[int, tuple[float, StepBound, tuple[NoiseRequest, NoiseRequest], str]] = {}
    for pair in pairs:
        claims = _claims(mechanism, statistic, loss, pair, delta)
        for one, other in ((pair.left, pair.right), (pair.right, pair.left)):
            first, again = _questions(mechanism, statistic, loss, (one, other), noise)
            for place, (cost, two) in enumerate(zip(claims, zip(first, again, strict=True), strict=True)):
                claim, at = cost[two[0].verb != "gaussian"]
                if claim > 0:
                    hope = (
                        lower_bound.expected_lower_bound(_ratios(two, TRIALS, noise), draws // 2, at) / claim
                    )
                    if place not in best or hope > best[place][0]:
                        none = lower_bound.LowerBound(0.0, confidence, draws, pair.label, "none")
                        best[place] = (hope, StepBound(place, two[0].verb, claim, at, none), two, pair.label)
    result = []
    for place in sorted(best):
        _, bound, two, label = best[place]
        sides = _ratios(two, draws, noise), -_ratios((two[1], two[0]), draws, noise)
        found, event = lower_bound.lower_bound_from_draws(*sides, 1 - confidence, bound.delta)
        kept = lower_bound.LowerBound(found, confidence, draws, label, event)
        result.append(StepBound(place, bound.verb, bound.claim, bound.delta, kept))
    return result


def _claims(
    mechanism: Mechanism, statistic: Statistic, loss: float, pair: Neighbours, delta: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """What every step claims, and at which delta: of Gaussian noise, and of all else."""
    counts, bound = pair.left.counts, pair.left.bound
    found = []
    for step in mechanism.steps(StatisticRequest(counts, bound, statistic, _given(mechanism, loss))):
        if not isinstance(step, ClaimedNoise):
            pico = int(step.loss().max(initial=0))
            if mechanism.kind is LossKind.PURE:
                found.append(((pico / PICO, 0.0), (pico / PICO, 0.0)))
            else:
                at_delta = float(zcdp_to_approx(ZCDP(pico), delta).epsilon) if pico else 0.0
                found.append(((at_delta, delta), (sqrt(8 * pico / PICO), 0.0)))
    return found


def _questions(
    mechanism: Mechanism,
    statistic: Statistic,
    loss: float,
    sides: tuple[Samples, Samples],
    noise: NoiseSource,
) -> tuple[list[NoiseRequest], list[NoiseRequest]]:
    """What the steps ask on both data sets, given the answers on the first."""
    drawn = RecordedDraws(noise)
    mechanism.estimate(sides[0], statistic, _given(mechanism, loss), drawn)
    again = RecordedDraws(noise, drawn.said)
    mechanism.estimate(sides[1], statistic, _given(mechanism, loss), again)
    return drawn.asked, again.asked


def _ratios(two: tuple[NoiseRequest, NoiseRequest], times: int, noise: NoiseSource) -> FloatArray:
    """Log likelihood ratios of so many draws of the first, against the second."""
    parts = []
    for done in range(0, times, AT_ONCE):
        now = min(AT_ONCE, times - done)
        drawn = lower_bound.ReplayedDraws(noise, now)
        two[0].repeat_on(drawn, now)
        again = lower_bound.ReplayedDraws(noise, now, drawn.said)
        two[1].repeat_on(again, now)
        parts.append(
            np.clip(
                drawn.log_likelihood - again.log_likelihood, -lower_bound.CERTAIN, lower_bound.CERTAIN
            ).round(9)
        )
    return np.concatenate(parts)


def _given(mechanism: Mechanism, loss: float) -> FloatArray:
    return np.full(1, loss) if mechanism.kind is LossKind.PURE else np.array(loss)
