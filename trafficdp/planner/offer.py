"""What a mechanism offers for a total loss: how far its numbers may be off, from public counts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.protocol import Mechanism, unenforced
from trafficdp.mechanisms.separate.fit import Fit, Split, fit
from trafficdp.mechanisms.simulated.trial import SimulatedCities
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.loss import Loss, LossKind

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Offer:
    """One mechanism for one statistic, at the better of its splits of epsilon among bins, or with all rho.

    ``error`` (shape (G,), statistic's unit) bounds E|estimate - statistic| over all values. ``idealised``:
    its noise has no exact sampler, so it is shown and never chosen. ``fit`` is None when the mechanism
    cannot do it; then ``unavailable`` says why and ``error`` is empty. ``tried`` is its error in simulated
    cities, None when it was not tried. ``unenforced`` names the theorem where what one vehicle moves is only
    claimed.
    """

    mechanism: str
    statistic: Statistic
    idealised: bool
    fit: Fit | None
    error: FloatArray
    unavailable: str | None = None
    tried: float | None = None
    unenforced: str | None = None

    @property
    def eligible(self) -> bool:
        """Whether it may be chosen: exact noise, within the total."""
        return self.fit is not None and not (self.idealised or self.fit.event.idealised)

    @property
    def median_error(self) -> float:
        """Median over bins of the worst expected error; infinite when it is not available."""
        return float(np.median(self.error)) if self.error.size else float("inf")

    @property
    def score(self) -> float:
        """What is compared: the error in simulated cities where it was tried, else the median error."""
        return self.median_error if self.tried is None else self.tried

    @property
    def worst_error(self) -> float:
        """Largest over bins of the worst expected error; infinite when it is not available."""
        return float(self.error.max()) if self.error.size else float("inf")


def offers(
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    mechanisms: Sequence[Mechanism],
    tries: SimulatedCities | None = None,
) -> tuple[Offer, ...]:
    """Return the offers of all ``mechanisms`` that know ``statistic``, in their order.

    Each spends the whole ``total`` on this statistic: no vehicle loses more. Of the two splits the one with
    the smaller ``score`` is taken (equal noise on a tie). Raises UsageError when there is no bin.
    """
    if counts.bins == 0:
        raise UsageError("there is no bin to release", todo="lower min_vehicles or widen area and period")
    return tuple(
        _offer(mechanism, counts, bound, statistic, total, tries)
        for mechanism in mechanisms
        if statistic in mechanism.statistics
    )


def _offer(
    mechanism: Mechanism,
    counts: Counts,
    bound: ContributionBound,
    statistic: Statistic,
    total: Loss,
    tries: SimulatedCities | None,
) -> Offer:
    best: Offer | None = None
    reason = ""
    rho = total.kind is LossKind.ZCDP
    for split in (None,) if rho else (Split.EQUAL_NOISE, Split.SAME_EPSILON):
        try:
            found = fit(mechanism, counts, bound, statistic, total, split)
            error = mechanism.expected_error(counts, bound, statistic, found.given)
            tried = None
            if tries is not None:
                tried = tries.error(mechanism, statistic, found.given)
        except UsageError as refusal:
            reason = str(refusal)
            continue
        claim = unenforced(mechanism, counts, bound, statistic, found.given)
        offer = Offer(mechanism.name, statistic, mechanism.idealised, found, error, None, tried, claim)
        if best is None or offer.score < best.score:
            best = offer
    if best is None:
        return Offer(mechanism.name, statistic, mechanism.idealised, None, np.empty(0), reason)
    return best
