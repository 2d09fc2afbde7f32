"""The verbs: measure, select, and both of what is only claimed. Each meters before it draws.

**Theorem.** If every step of a release is metered, chosen adaptively or not, and no vehicle's metered losses
add up to more than its charge, then the release and everything computed from it costs no vehicle more than
its charge. *Proof.* Each step costs every vehicle at most its metered loss, given what was drawn before
(``sets``), because it reads of a vehicle nothing but its part of
the values; losses of one kind add up under adaptive composition (pure epsilon: Theorem A of
``privacy.loss.sum_per_user``; rho: Bun and Steinke 2016, Lemma 2.3). QED.

Under ADD_OR_REMOVE_USER a step of anything but a ``HiddenBall`` is refused: nothing else has a theorem there.
So all that such a store pays in rho is discrete Gaussian noise of sd >= LEAST_SD, which is what its rho
becomes (epsilon, delta) by (``privacy.conversion.gaussian_to_approx``).

Of what is no sum over vehicles, and no rank among them, a mechanism *claims* the cost (``Claim``, and any set
that is not of ENFORCED). The theorem it names is taken at its word, and what is made of it is marked as
unenforced wherever it is shown; all that is enforced is that noise is drawn and metered by the same claim.

Metered losses depend on sets, scales and earlier noisy numbers only; so does an error raised here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trafficdp.errors import AllocationError, UsageError
from trafficdp.measurement.laws import LARGEST_SUM, FloatArray, IntArray, Law, Values, shifted_sum
from trafficdp.measurement.sets import Ball, Box, HiddenBall, Moments, Ranks
from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive.values import Entries, Handed

ENFORCED = (Box, Moments, Ball, HiddenBall)
"""The sets that a vehicle's numbers are brought into, whatever they are. A step of any other is a claim."""


class Set(Protocol):
    """What a step sums."""

    def sums(self, values: Any) -> IntArray:  # noqa: ANN401
        """Return the sums (C,) of ``values``, brought into the set first."""

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses under ``law``, shape (users,), of sums times 2^``shift`` (C,)."""


@dataclass(frozen=True)
class Step:
    """Sums over vehicles of what is in ``of``, times 2^``shift`` (C,), with noise of ``law``.

    Raises UsageError when sums or noise do not fit each other, or 64 bits.
    """

    of: Set
    law: Law
    shift: IntArray

    def __post_init__(self) -> None:
        largest, farthest = self.of.largest(), 62 if isinstance(self.of, Box | Moments) else 0
        fits = self.shift.shape == largest.shape and int(np.abs(self.shift).max(initial=0)) <= farthest
        if not fits or float(np.ldexp(largest.astype(np.float64), self.shift).max(initial=0)) >= LARGEST_SUM:
            raise UsageError("sums and their noise do not fit", todo="choose a larger speed_step")

    @property
    def kind(self) -> LossKind:
        """What the loss is counted in."""
        return self.law.kind

    def loss(self) -> IntArray:
        """Return what every vehicle loses, in whole 10^-12, rounded up, shape (users,)."""
        return self.of.loss(self.law, self.shift)

    def exact(self, values: Handed) -> IntArray:
        """Return the sums without noise, shape (C,), over ``values``, brought into the set first."""
        if isinstance(self.of, HiddenBall) != isinstance(values, Entries):
            raise UsageError("a step was handed what it does not read", expected="entries for a hidden ball")
        return shifted_sum(self.of.sums(values), self.shift)

    def draw(self, source: NoiseSource, values: Handed) -> IntArray:
        """Return the noisy sums, shape (C,)."""
        return self.law.add(self.exact(values), source)


def plain(of: Set, law: Law) -> Step:
    """Return the step without multiples."""
    return Step(of, law, np.zeros_like(of.largest()))


class Claim(Protocol):
    """What a vehicle loses by noise that no set bounds, as ``theorem`` says."""

    @property
    def kind(self) -> LossKind:
        """What the loss is counted in."""

    @property
    def theorem(self) -> str:
        """What it rests on."""

    def loss(self) -> IntArray:
        """Return what every vehicle loses if the claim is true, in whole 10^-12, shape (users,)."""


class Scores(Claim, Protocol):
    """A choice with probability proportional to exp(-cost/``scale``), ``scale`` (C,)."""

    @property
    def scale(self) -> FloatArray:
        """One a coordinate."""


Priced = Step | Ranks | Claim


class Measure(Protocol):
    """All that a mechanism sees of noise. ``SimulatedNoise`` has the verbs too, and meters nothing."""

    def measure(self, step: Step, values: Handed) -> IntArray:
        """Return the noisy sums of ``step``, shape (C,), over ``values``, brought into its set first."""

    def select(self, ranks: Ranks, values: Values) -> IntArray:
        """Return a private quantile of every coordinate, shape (C,)."""

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return the chosen position of every coordinate, shape (C,); unenforced. See ``noise.choice``."""

    def pay_claimed(self, noise: Claim) -> None:
        """Meter noise without an exact sampler, which is made of ``uniform_below``; unenforced."""

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return independent uniform whole numbers in 0..``count`` - 1, free: they depend on no value."""


class Metered:
    """A release's way to noise. ``charge`` (users,) is what each vehicle is charged, in whole 10^-12.

    ``hidden``, under ADD_OR_REMOVE_USER, it has one entry, for any possible vehicle.

    ``kind`` is what it is counted in; ``spent`` (users,) is what was metered so far.
    """

    def __init__(
        self, source: NoiseSource, charge: IntArray, kind: LossKind, *, hidden: bool = False
    ) -> None:
        self._source, self._charge, self._kind, self._hidden = source, charge, kind, hidden
        self.spent = np.zeros_like(charge)

    def measure(self, step: Step, values: Handed) -> IntArray:
        """Meter, then measure."""
        self._meter(step)
        return step.draw(self._source, values)

    def select(self, ranks: Ranks, values: Values) -> IntArray:
        """Meter, then select."""
        self._meter(ranks)
        return ranks.draw(self._source, values)

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Meter what is claimed, then choose."""
        self._meter(scores)
        return np.asarray(self._source.choose(cost, weight, start, scores.scale)[0])

    def pay_claimed(self, noise: Claim) -> None:
        """Meter what is claimed."""
        self._meter(noise)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Draw; there is nothing to meter."""
        return self._source.uniform_below(count)

    def _meter(self, what: Priced) -> None:
        if what.kind is not self._kind:
            raise UsageError("losses of different kinds do not add up", got=what.kind, expected=self._kind)
        of = what.of if isinstance(what, Step) else what
        if self._hidden and not isinstance(of, HiddenBall):
            raise UsageError("no theorem prices this where presence is hidden", got=type(of).__name__)
        self.spent = self.spent + what.loss()
        if bool(np.any(self.spent > self._charge)):
            raise AllocationError(
                "a step of the release would cost a vehicle more than it was charged",
                todo="report it: the charge and the steps of this mechanism disagree",
            )
