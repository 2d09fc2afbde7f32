"""What was measured, kept; and whether what was drawn is of the law that was priced."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, gammainc, gammaincc, gammainccinv, gammaincinv

from trafficdp.errors import VerificationError
from trafficdp.measurement.laws import Block, FloatArray, Gaussian, IntArray, Laplace, Law
from trafficdp.measurement.sets import Claim, Measure, Ranks, Scores, Step
from trafficdp.noise.choice import block_rank, choice_rank, gaussian_rank, laplace_rank, probabilities
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import MeasureInput

# What was measured, kept; and measured again from what was kept, with what lies between: the noise.
#
# ``Recorded`` keeps every answer of the measurement layer as it was drawn. ``Replayed`` gives the
# same answers to the same mechanism, computes the exact sums anew, and so knows every draw and what every
# choice was among: whether they are of the laws that were charged is asked by ``residuals``. Answers
# are noisy and paid for, exact sums are not: what is kept may be kept wherever the release is, and
# ``Replayed`` may exist only beside the vault.


@dataclass(frozen=True)
class Recorded:
    """The verbs of ``measure``, whose answers are kept."""

    _measure: Measure
    _answers: list[npt.NDArray[Any]] = field(default_factory=list, init=False)

    def to_bytes(self) -> bytes:
        """Return the answers in their order."""
        sink = io.BytesIO()
        # drawn noise hardly packs
        np.savez(sink, *self._answers, allow_pickle=False)
        return sink.getvalue()

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Measure, and keep it."""
        return self._kept(self._measure.measure(step, values))

    def select(self, ranks: Ranks, values: npt.NDArray[Any]) -> IntArray:
        """Select, and keep it."""
        return self._kept(self._measure.select(ranks, values))

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Choose, and keep it."""
        return self._kept(self._measure.select_claimed(scores, cost, weight, start))

    def charge_unverified(self, noise: Claim) -> None:
        """Meter; what it is made of is kept as uniform numbers."""
        self._measure.charge_unverified(noise)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Draw, and keep it."""
        return self._kept(self._measure.uniform_below(count))

    def _kept(self, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self._answers.append(answer.copy())
        return answer


@dataclass(frozen=True, repr=False)
class Chosen:
    """Choices of one step: what they were among (``noise.choice``), which position, and where in its weight.

    The candidate that was drawn takes ``low`` to ``low`` + ``span`` of the position's share.
    """

    cost: IntArray
    weight: IntArray
    start: IntArray
    scale: FloatArray
    cell: IntArray
    low: FloatArray
    span: FloatArray


class Replayed:
    """The verbs again, with the answers of ``kept``. ``noise`` are the law and the draws of every step.

    ``chosen`` are the choices of every selection, claimed ones too; ``uniform`` are uniform numbers, and
    below what each was drawn. ``left`` is what was not asked for yet, the next of it last.

    Raises VerificationError where the mechanism asks for what was not kept.
    """

    def __init__(self, kept: bytes) -> None:
        with np.load(io.BytesIO(kept), allow_pickle=False) as file:
            self.left = [file[name] for name in reversed(file.files)]
        self.noise: list[tuple[Law, IntArray]] = []
        self.chosen: list[Chosen] = []
        self.uniform: list[tuple[IntArray, IntArray]] = []

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Return what was measured."""
        answer = self._next(len(step.shift))
        self.noise.append((step.law, answer - step.exact(values)))
        return answer

    def select(self, ranks: Ranks, values: npt.NDArray[Any]) -> IntArray:
        """Return what was selected."""
        answer = self._next(len(ranks.high))
        if bool(np.any((answer < 0) | (answer > ranks.high))):
            raise VerificationError("something was selected that no vehicle can have")
        begin, cost, weight, start = ranks.cells(values)
        # of cells that begin with the same number all but the last are empty
        upto = np.add.reduceat(begin <= np.repeat(answer, np.diff(start)), start[:-1], dtype=np.int64)
        cell = start[:-1] + upto - 1
        low, span = (answer - begin[cell]) / weight[cell], 1.0 / weight[cell]
        self.chosen.append(Chosen(cost, weight, start, ranks.scale, cell, low, span))
        return answer

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return what was chosen."""
        answer = self._next(len(scores.scale))
        if bool(np.any((answer < start[:-1]) | (answer >= start[1:]))):
            raise VerificationError("something was chosen that there was not")
        low, span = np.zeros(len(answer)), np.ones(len(answer))
        self.chosen.append(Chosen(cost, weight, start, scores.scale, answer, low, span))
        return answer

    def charge_unverified(self, noise: Claim) -> None:
        """Nothing: what was drawn are uniform numbers."""

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return what was drawn."""
        answer = self._next(count.size)
        self.uniform.append((np.ravel(count), np.ravel(answer)))
        return answer.reshape(count.shape)

    def _next(self, size: int) -> npt.NDArray[Any]:
        if not self.left or self.left[-1].size != size:
            raise VerificationError("something else was measured than this mechanism measures")
        return np.asarray(self.left.pop())


# Is what was drawn of the law that was priced? All of a release together, wrong by chance once in 10^9.
#
# A draw's rank in its law is uniform, and independent of all others (``noise.choice``); so for n draws the
# sums of -log(rank) and of -log(1 - rank) each have the law Gamma(n, 1), and the signs of draws that are not
# 0 are fair coins. Choices, ranked by their costs, and uniform numbers have such sums too. **Theorem.** If
# every draw, choice and uniform number is of its law, ``plausible`` is false with probability at most
# FALSE_ALARM: fourteen equal tails. (Apart from the 10^-5 of ``noise.choice``: the tails leave room for it.)
# One draw is a coordinate of Laplace or Gaussian noise, or a block of block noise; one choice is that of a
# coordinate, given all that was drawn before.
#
# **Power.** Laplace noise of f times its scale puts the first sum near f times its law:
# ``detection_probability(n, f)`` is the probability that this alone is found, so a lower bound. Halved noise
# is found with probability 0.99 from 180 draws on, noise of 0.9 times its scale from 7,083. Gaussian and
# block noise show it in fewer draws.
# The cost of a choice among numbers that lie close, over its scale, is of nearly the exponential law, like
# Laplace noise: the same numbers hold. Where few numbers can be chosen, one of them is chosen at any scale,
# and nothing is found; which it is depends on the values, and is not told.
#
# Noise without an exact sampler follows from uniform numbers, and so does which of many equal candidates is
# taken. ``uniform_detection_probability`` is the probability that uniform numbers on one half only are found:
# 0.99 from 196 on. That floats round what is made of them is not tested.


FALSE_ALARM = 7e-10
_TAIL = FALSE_ALARM / 14
Uniform = tuple[IntArray, IntArray]
"""Below what each number was drawn, and the numbers."""


def plausible(
    noise: Iterable[tuple[Law, IntArray]], chosen: Iterable[Chosen] = (), uniform: Iterable[Uniform] = ()
) -> bool:
    """Return whether draws, choices and uniform numbers may be of their laws; no more is said of them."""
    # any uniform numbers that do not depend on the draws; the same each time, and so is the verdict
    random = SimulatedNoise(0)
    ranks, above, many = [], 0, 0
    for law, z in noise:
        drawn, draws = draws_of(law)
        if bool(np.any(z[~drawn])):
            return False
        own, within = z[drawn], _uniform(random, draws)
        if isinstance(law, Block):
            ranks.append(block_rank(own, law.half_width[drawn], law.block[drawn], law.scale, within))
        elif isinstance(law, Gaussian):
            ranks.append(gaussian_rank(own, law.sd[drawn], within))
        else:
            ranks.append(laplace_rank(own, law.scale[drawn], within))
        above += int(np.count_nonzero(own > 0))
        many += int(np.count_nonzero(own))
    choices = []
    for each in chosen:
        within = each.low + each.span * _uniform(random, len(each.cell))
        among = (each.cost, each.weight, each.start, each.scale)
        if len(each.cell) and bool(np.any(probabilities(*among)[each.cell] == 0)):
            return False
        outside, inside = choice_rank(among, each.cell, within)
        choices.append((outside[each.scale > 0], inside[each.scale > 0]))
    whole = []
    for below, number in uniform:
        if bool(np.any((number < 0) | (number >= below))):
            return False
        within = _uniform(random, len(number))
        # 53 bits of either side are exact
        whole.append((np.log((number + within) / below), np.log((below - number - within) / below)))
    tails = [float(bdtr(side, many, 0.5)) for side in (above, many - above) if many]
    for logs in filter(None, (ranks, choices, whole)):
        for side in zip(*logs, strict=True):
            sums = -np.concatenate(side)
            # how probable a sum as small is, and one as large
            tails += [float(tail(len(sums), sums.sum())) for tail in (gammainc, gammaincc) if len(sums)]
    return min(tails, default=1.0) >= _TAIL


def _uniform(random: SimulatedNoise, many: int) -> FloatArray:
    return (random.uniform_below(np.full(many, 2**53)).astype(np.float64) + 0.5) / 2.0**53


def detection_probability(draws: int, factor: float) -> float:
    """Return at least how probably Laplace noise of ``factor`` times its scale is found in ``draws``."""
    if not draws:
        return 0.0
    few, much = gammaincinv(draws, _TAIL), gammainccinv(draws, _TAIL)
    return float(gammainc(draws, few / factor) if factor < 1 else gammaincc(draws, much / factor))


def uniform_detection_probability(numbers: int) -> float:
    """Return at least how probably ``numbers`` are found that are uniform on a half of their range."""
    if not numbers:
        return 0.0
    return float(gammaincc(numbers, max(gammainccinv(numbers, _TAIL) - numbers * np.log(2), 0.0)))


def probability_text(probability: float) -> str:
    """Return what is at most ``probability``, in two decimals."""
    return f"{math.floor(100 * probability) / 100:.2f}"


def draws_of(law: Law) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], int]:
    """Return which coordinates vary, and of how many draws they are: as many, or as there are blocks."""
    if isinstance(law, Block):
        return law.block >= 0, law.blocks
    drawn = (law.scale if isinstance(law, Laplace) else law.sd) > 0
    return drawn, int(np.count_nonzero(drawn))
