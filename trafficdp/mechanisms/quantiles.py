"""Quantiles over vehicles, for answers to questions.

How many ranks a private quantile may miss (``measurement.sets``): from counts alone.

**Theorem (rank error).** cost(t) <= k with at least the probability p for k + 1 >= scale ln(high p/(1 - p)).
*Proof.* One candidate costs 0 and has weight 1, at most ``high`` cost k + 1 or more and weigh together at
most W = high exp(-(k + 1)/scale) <= (1 - p)/p; one of these is drawn with probability at most W/(1 + W). QED.
With equality where all vehicles have one number, above = k + 1 and n - rank = k + 1.

The calibrated mechanism ``vehicle_quantiles``: medians and percentiles of the vehicles' own mean speeds.

Every vehicle of a bin has one number, its mean speed; a quantile is selected among some CANDIDATES speeds
0..U by how many vehicles it misses (``measurement.sets``), all means rounded to these: fewer candidates miss
fewer vehicles, as the logarithm of their number. A vehicle in several bins pays for each:

**Theorem (REPLACE_USER_VALUES).** With B_g the most bins that any vehicle of bin g is in, Q quantiles, and
loss/(Q B_g) a selection, no vehicle loses more than ``loss``. *Proof.* A vehicle in B bins loses the sum over
these of loss/B_g, and B_g >= B in each of them. QED. One that is in the most bins of all loses all of it.

What holds is a statement on **ranks**: with the interval's level, the number lies between the speeds of the
vehicles number ``rank_low`` and ``rank_high``, counted from the slowest (0: the speed 0; one more than there
are: the speed U). For q n a whole number that is q n - k .. q n + k + 1, k the rank error. How far apart in
speed these are, only the speeds could tell: a theorem in speeds has the whole range alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.measurement.sets import Measure, Ranks
from trafficdp.mechanisms import means, names, protocol, publish
from trafficdp.mechanisms.pooling.calibrated import JointMechanism
from trafficdp.model import QUANTILES, ContributionBound, Statistic
from trafficdp.privacy.estimate import Estimate, IntervalKind
from trafficdp.privacy.loss import PICO, LossKind
from trafficdp.sensitive import SensitiveInputs


def rank_error(step: Ranks, level: float) -> IntArray:
    """Return the most vehicles by which a selected quantile misses its rank with probability ``level``, (G,).

    From the public ranks and scales of ``step``, by the tail of the exponential mechanism.
    """
    odds = np.log(np.maximum(step.high, 1) * (level / (1 - level)))
    return np.asarray(np.maximum(np.ceil(step.scale * odds * (1 + 2.0**-40)) - 1, 0), dtype=np.int64)


CANDIDATES = 250
"""At least; twice as many at most, where the speed step is not coarser."""


@dataclass(frozen=True)
class CalibratedQuantiles(JointMechanism):
    """Quantiles of all bins, for ``pico`` 10^-12 of ``loss_kind``, in equal parts a quantile."""

    kind: ClassVar[str] = names.BY_RANK
    citation: ClassVar[str | None] = (
        "McSherry, Talwar: Mechanism Design via Differential Privacy, 2007; for quantiles Smith, STOC 2011"
    )
    sensitivity: ClassVar[str] = "one vehicle moves by at most 1 how many vehicles a speed misses"
    composition: ClassVar[str] = (
        "a selection a bin and quantile, which costs each vehicle there the same: the loss over the most "
        "bins that any of them is in, added over bins; the largest is the guarantee"
    )
    distribution: ClassVar[str] = (
        "exponential mechanism over all speeds in whole steps, by the number of vehicles that a speed misses"
    )
    estimable: ClassVar[tuple[Statistic, ...]] = tuple(QUANTILES)
    intervals: ClassVar[str] = (
        "ranks: the tail of the selection at the speeds that are worst for it; of speeds only the whole range"
    )

    def steps(self) -> tuple[Ranks, ...]:
        """Return one private selection for each quantile, each with an equal part of the loss.

        Raises UsageError for a loss that cannot be shared out.
        """
        counts, bound = self.public.counts, self.public.bound
        for each in self.statistics:
            protocol.require_statistic(self.kind, each, self.estimable)
        share = self._share
        if int(share.min(initial=1)) < 1:
            quantity = self.loss_kind.quantity
            raise UsageError(f"no noise fits the {quantity}", todo="ask for a larger one")
        loss = share / PICO
        epsilon = loss if self.loss_kind is LossKind.PURE else np.sqrt(8 * loss)
        scale = means.choice_scale(np.ones(counts.bins), epsilon)
        support, high = means.support_of(counts), np.full(counts.bins, -(-bound.upper_steps // _grain(bound)))
        found = []
        for part in (QUANTILES[each] for each in self.statistics):
            slower, over = np.divmod(counts.users_per_bin * part.numerator, part.denominator)
            found.append(Ranks(support, high, slower, slower + (over > 0), scale, self.loss_kind))
        return tuple(found)

    def ranks(self, level: float) -> dict[Statistic, tuple[IntArray, IntArray]]:
        """Return lowest and highest rank, of the bin's vehicles, that each quantile's interval holds, (G,)
        each.

        It holds with probability ``level``. From public counts alone.
        """
        many = self.public.counts.users_per_bin
        found = {}
        for statistic, step in zip(self.statistics, self.steps(), strict=True):
            missed = rank_error(step, level)
            low, high = np.maximum(step.above - missed, 0), np.minimum(step.rank + missed, many) + 1
            found[statistic] = low, high
        return found

    def rank_widths(self, level: float) -> dict[Statistic, FloatArray]:
        """Return the width of each quantile's rank interval at ``level`` as a share of the bin's
        vehicles, (G,).
        """
        return {
            each: np.asarray((high - low) / self.public.counts.users_per_bin)
            for each, (low, high) in self.ranks(level).items()
        }

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[Statistic, Estimate]:
        """Select private quantiles of the vehicles' own means, and return them with the ranks that they
        may have.
        """
        contributions = values.contributions
        counts, bound = self.public.counts, self.public.bound
        grain = _grain(bound)
        own = (2 * contributions.total + counts.count * grain) // (2 * counts.count * grain)
        ranks = self.ranks(interval_level)
        spanned = self.rank_widths(interval_level)
        errors = self.expected_errors()
        given = np.full(counts.bins, self.pico / PICO / len(self.statistics))
        if self.loss_kind is LossKind.PURE:
            given = self._share / PICO
        found = {}
        for statistic, step in zip(self.statistics, self.steps(), strict=True):
            low, high = ranks[statistic]
            value = np.minimum(measure.select(step, own) * grain, bound.upper_steps).astype(np.float64)
            found[statistic] = Estimate(
                statistic=statistic,
                value=value * float(bound.step),
                low=np.zeros(counts.bins),
                high=np.full(counts.bins, float(bound.upper)),
                noise_scale=np.full(counts.bins, np.nan),
                expected_error=errors[statistic],
                status=publish.rank_status(spanned[statistic]),
                noise={self.loss_kind.quantity: given, "rank_low": low, "rank_high": high},
            )
        return found

    def expected_errors(self) -> dict[Statistic, FloatArray]:
        """Return U, the whole range of speeds, as the expected error of each quantile, (G,).

        No theorem bounds the speeds between neighbouring ranks.
        """
        counts, bound = self.public.counts, self.public.bound
        return {each: np.full(counts.bins, float(bound.upper)) for each in self.statistics}

    def half_widths(self, interval_level: float) -> dict[Statistic, FloatArray]:
        """Return U for each quantile, (G,), in the unit of speed: the whole range 0..U, not half of it.

        Intervals are proved for ranks only (see ``ranks``), whatever the ``interval_level``.
        """
        return self.expected_errors()

    def statement(self, statistic: Statistic) -> protocol.Statement:
        """Return how the quantile ``statistic`` is selected, in words and numbers, for the manifest."""
        return replace(
            super().statement(statistic),
            interval_kind=IntervalKind.RANKS,
            share=1 / len(self.statistics),
            sampler="random bits of the operating system and exact comparisons (exponential mechanism)",
        )

    @property
    def _share(self) -> IntArray:
        """What a selection may cost each vehicle of the bin, whole 10^-12, shape (G,)."""
        counts = self.public.counts
        most = np.ones(counts.bins, dtype=np.int64)
        np.maximum.at(most, counts.bin_index, counts.bins_per_user[counts.user_index])
        return np.asarray(self.pico // (len(self.statistics) * most))


def _grain(bound: ContributionBound) -> int:
    """How many steps there are from one candidate to the next."""
    return max(1, bound.upper_steps // CANDIDATES)
