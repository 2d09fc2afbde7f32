"""The verbs: measure, select, and both of what is only claimed. Each meters before it draws.

**Theorem.** If every step of a release is metered, chosen adaptively or not, and no vehicle's metered losses
add up to more than its charge, then the release and everything computed from it costs no vehicle more than
its charge. *Proof.* Each step costs every vehicle at most its metered loss, given what was drawn before
(``sets``), because it reads of a vehicle nothing but its part of
the values; losses of one kind add up under adaptive composition (pure epsilon: Theorem A of
``privacy.loss.sum_per_user``; rho: Bun and Steinke 2016, Lemma 2.3). QED.

Under ADD_OR_REMOVE_USER a step of anything but an ``AddRemoveBall`` is refused: nothing else has a theorem
there. So all that such a store pays in rho is discrete Gaussian noise of sd >= LEAST_SD, which is what its
rho becomes (epsilon, delta) by (``privacy.conversion.gaussian_to_approx``).

Of what is no sum over vehicles, and no rank among them, a mechanism *claims* the cost (``Claim``, and any set
that is not of ENFORCED). The theorem it names is taken at its word, and what is made of it is marked as
unenforced wherever it is shown; all that is enforced is that noise is drawn and metered by the same claim.

Metered losses depend on sets, scales and earlier noisy numbers only; so does an error raised here.
"""

from __future__ import annotations

import numpy as np

from trafficdp.arrays import IntArray
from trafficdp.errors import AllocationError, UsageError
from trafficdp.measurement.laws import Values
from trafficdp.measurement.sets import AddRemoveBall, Claim, Priced, Ranks, Scores, Step
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import MeasureInput


class PrivacyMeter:
    """A release's way to noise. ``charge`` (users,) is what each vehicle is charged, in whole 10^-12.

    ``hidden``, under ADD_OR_REMOVE_USER, it has one entry, for any possible vehicle.

    ``kind`` is what it is counted in; ``spent`` (users,) is what was metered so far.
    """

    def __init__(
        self, source: NoiseSource, charge: IntArray, kind: LossKind, *, hidden: bool = False
    ) -> None:
        self._source, self._charge, self._kind, self._hidden = source, charge, kind, hidden
        self.spent = np.zeros_like(charge)

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Add the privacy loss of ``step`` to ``spent``, then return its noisy sums, one a coordinate.

        ``values`` are private and are clipped into the step's set. Raises AllocationError, before any noise
        is drawn, if some vehicle would lose more in all than it was charged.
        """
        self._meter(step)
        return step.draw(self._source, values)

    def select(self, ranks: Ranks, values: Values) -> IntArray:
        """Add the loss of ``ranks`` to ``spent``.

        Return one privately selected quantile for every coordinate. ``values`` are private, one whole number
        an entry. Raises AllocationError, before any draw, if some vehicle would lose more than it was
        charged.
        """
        self._meter(ranks)
        return ranks.draw(self._source, values)

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Add the loss that ``scores`` claims to ``spent``, then draw candidates by the exponential
        mechanism.

        Candidate i has probability proportional to ``weight``[i] exp(-``cost``[i] / scale); those of
        coordinate c are ``start``[c]:``start``[c + 1]. Returns the position of the drawn one for every
        coordinate.
        """
        self._meter(scores)
        return np.asarray(self._source.choose(cost, weight, start, scores.scale)[0])

    def charge_unverified(self, noise: Claim) -> None:
        """Add the claimed loss of ``noise``, which is drawn elsewhere and not enforced here, to ``spent``."""
        self._meter(noise)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return independent uniform whole numbers in 0..``count`` - 1, one for each entry of ``count``.

        They depend on no private value, so they cost no privacy.
        """
        return self._source.uniform_below(count)

    def _meter(self, what: Priced) -> None:
        if what.kind is not self._kind:
            raise UsageError("losses of different kinds do not add up", got=what.kind, expected=self._kind)
        of = what.of if isinstance(what, Step) else what
        if self._hidden and not isinstance(of, AddRemoveBall):
            raise UsageError("no theorem prices this where presence is hidden", got=type(of).__name__)
        self.spent = self.spent + what.loss()
        if bool(np.any(self.spent > self._charge)):
            raise AllocationError(
                "a step of the release would cost a vehicle more than it was charged",
                todo="report it: the charge and the steps of this mechanism disagree",
            )
