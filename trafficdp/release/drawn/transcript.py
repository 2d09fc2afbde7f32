"""What was measured, kept; and measured again from what was kept, with what lies between: the noise.

``Recorded`` keeps every answer of the waist as it was drawn, before anything was made of it. ``Replayed``
gives the same answers to the same mechanism, computes the exact sums anew, and so knows every draw and what
every choice was among: whether they are of the laws that were charged is asked by ``residuals``. Answers are
noisy and paid for, exact sums are not: what is kept may be kept wherever the release is, and ``Replayed`` may
exist only beside the vault.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import VerificationError
from trafficdp.measurement.laws import FloatArray, IntArray, Law
from trafficdp.measurement.sets import Claim, Measure, Ranks, Scores, Step
from trafficdp.sensitive.values import MeasureInput


class Recorded:
    """The verbs of ``measure``, whose answers are kept."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._answers: list[npt.NDArray[Any]] = []

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
    below what each was drawn.

    Raises VerificationError where the mechanism asks for what was not kept.
    """

    def __init__(self, kept: bytes) -> None:
        with np.load(io.BytesIO(kept), allow_pickle=False) as file:
            self._answers = [file[name] for name in file.files]
        self._answers.reverse()
        self.noise: list[tuple[Law, IntArray]] = []
        self.chosen: list[Chosen] = []
        self.uniform: list[tuple[IntArray, IntArray]] = []

    @property
    def over(self) -> bool:
        """Whether every answer was asked for."""
        return not self._answers

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
        if not self._answers or self._answers[-1].size != size:
            raise VerificationError("something else was measured than this mechanism measures")
        return np.asarray(self._answers.pop())
