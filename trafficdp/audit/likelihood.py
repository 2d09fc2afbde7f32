"""All that a mechanism measures, as one number: how much likelier it is on one data set than on the other.

The statistic is ln P(answers | one) - ln P(answers | other): no event tells the two apart better (Neyman and
Pearson), and the estimate follows from these answers. P is computed, not drawn: laws of noise are known, and
so are the probabilities of choices (``noise.choice.probabilities``). Where later steps follow from earlier
answers, the mechanism is run a second time, on the other data, and is told the answers of the first time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trafficdp.audit.neighbours import Neighbours
from trafficdp.mechanisms.known_error import KnownTerms
from trafficdp.mechanisms.protocol import Mechanism
from trafficdp.mechanisms.simulated.accuracy import repeated
from trafficdp.model import Statistic
from trafficdp.noise import choice
from trafficdp.noise.protocol import NoiseSource
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive.values import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
AT_ONCE = 25_000
"""Copies of a data set side by side."""
CERTAIN = 1e9
"""A log likelihood ratio that nothing measures."""


def whole(mechanism: Mechanism) -> bool:
    """Return whether it looks at all bins and vehicles together: copies side by side would be one data set.

    Of what counts in rho only that does not whose noise follows from the dearest vehicle alone.
    """
    return mechanism.kind is LossKind.ZCDP and not isinstance(mechanism, KnownTerms)


class Likelihoods:
    """Draws of the log likelihood ratio of each of ``pairs``: to be called as ``lower_bound.Draws``."""

    def __init__(
        self, mechanism: Mechanism, statistic: Statistic, loss: float, pairs: Sequence[Neighbours]
    ) -> None:
        self._mechanism, self._statistic, self._loss, self._pairs = mechanism, statistic, loss, pairs

    def __call__(self, samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        """Return so many draws on ``samples``, one of the data sets of a pair, shape (times,).

        What looks at all vehicles together runs once a draw (``whole``).
        """
        pair = next(each for each in self._pairs if samples is each.left or samples is each.right)
        most = 1 if whole(self._mechanism) else AT_ONCE
        return np.concatenate(
            [self._ratio(pair, samples, min(most, times - done), source) for done in range(0, times, most)]
        )

    def _ratio(self, pair: Neighbours, samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        drawn = Told(source, times)
        self._run(samples, times, drawn)
        again = Told(source, times, drawn.said)
        self._run(pair.right if samples is pair.left else pair.left, times, again)
        # equal ratios that were added up in another order are one number, so that no event parts them
        more = np.clip(again.surprise - drawn.surprise, -CERTAIN, CERTAIN).round(9)
        return more if samples is pair.left else -more

    def _run(self, samples: Samples, times: int, measure: Told) -> None:
        each = self._mechanism.kind is LossKind.PURE
        many = samples if times == 1 else repeated(samples, times, apart=not each)
        loss = np.full(many.counts.bins, self._loss) if each else np.array(self._loss)
        self._mechanism.estimate(many, self._statistic, loss, measure)


class Told(SimulatedNoise):
    """What ``source`` draws for ``times`` bins side by side, or once more what was ``said``.

    ``surprise`` (times,) is -ln P of it, but for what depends on the law alone where every law is the same on
    both data sets: scales follow from public facts and earlier answers. A choice is said as the place of the
    unit that was chosen: a candidate of weight w is w units, of which ``uniform_below`` takes one.
    """

    def __init__(self, source: NoiseSource, times: int, said: Sequence[IntArray] = ()) -> None:
        super().__init__(0)
        self._source, self._again, self._left = source, bool(said), list(said)
        self.said: list[IntArray] = []
        self._within: IntArray = np.zeros(0, dtype=np.int64)
        self.surprise = np.zeros(times)

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Say noisy sums."""
        said = self._left.pop(0) if self._again else self._source.laplace(sums, scale)
        self._keep(said, _over(np.abs(said - sums), scale))
        return said

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Say noisy sums."""
        said = self._left.pop(0) if self._again else self._source.gaussian(sums, sd)
        self._keep(said, _over(said - sums, sd) ** 2 / 2)
        return said

    def choose(
        self, cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray, runs: int = 1
    ) -> IntArray:
        """Say what is chosen."""
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
        """Say which unit of what was just chosen; it surprises nobody."""
        if self._again or not len(count):
            return self._within if len(count) else count
        drawn = self._source.uniform_below(count)
        self.said[-1] = self.said[-1] + drawn
        return drawn

    def _keep(self, said: IntArray, surprise: FloatArray) -> None:
        self.said.append(said)
        self.surprise += surprise.reshape(-1, len(self.surprise)).sum(axis=0)


def _over(move: IntArray, scale: FloatArray) -> FloatArray:
    """``move`` / ``scale``; where nothing is drawn, nothing else than what is there can be said."""
    drawn = scale > 0
    missed = np.where(move == 0, 0.0, np.inf)
    return np.asarray(np.where(drawn, move / np.where(drawn, scale, 1.0), missed), dtype=np.float64)
