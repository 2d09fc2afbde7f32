"""From a request in rho and public counts to what will be executed. Nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.registry import mechanism_named
from trafficdp.mechanisms.separate.calibrated import RANGE, CalibratedSeparately, Part
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.planner.kept_bins import kept_bins
from trafficdp.privacy.loss import PICO
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.zcdp import ZCDP
from trafficdp.privacy.zcdp_event import ZCDPEvent

FloatArray = npt.NDArray[np.float64]
UNSPENT = 10**9
"""One part in so many of a rho may be left by rounding."""
LARGEST_PART = int(RANGE[LossKind.ZCDP][1] * PICO)


@dataclass(frozen=True)
class ZCDPRequest:
    """What is asked for: a total rho, and what shall be released with it. Fields as in ``Request``.

    ``mechanism`` names a zCDP mechanism a statistic. Every statistic is given the same rho.
    """

    rho: ZCDP
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]
    min_vehicles: int
    refuse_above: float
    interval_level: float
    mechanism: Mapping[Statistic, str]

    @property
    def allow_idealised(self) -> bool:
        """Never: all zCDP mechanisms have exact samplers."""
        return False


@dataclass(frozen=True)
class ZCDPAllocation:
    """What will be executed: see ``Allocation``, whose fields of the same names mean the same."""

    request: ZCDPRequest
    keep: npt.NDArray[np.bool_]
    counts: Counts
    calibrated: CalibratedSeparately
    event: ZCDPEvent
    reason: str

    @property
    def loss(self) -> ZCDP:
        """The guarantee: the largest loss of any vehicle, at most the rho asked for."""
        return self.event.loss

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every released bin, a statistic."""
        return self.calibrated.expected_errors(self.counts, self.request.bound)


def allocate_zcdp(counts: Counts, request: ZCDPRequest) -> ZCDPAllocation:
    """Return the allocation of ``request``: bins by public counts, exact losses.

    The loss that is charged never exceeds the rho asked for.
    Raises UsageError when no bin has ``min_vehicles`` vehicles, for a mechanism that cannot estimate its
    statistic, and when the noise cannot be drawn.
    """
    keep, kept = kept_bins(counts, request.min_vehicles)
    names = {statistic: request.mechanism[statistic] for statistic in request.tolerance}
    for statistic, name in names.items():
        require_zcdp(name, statistic)
    calibrated, event = _largest_parts(names, request, kept)
    return ZCDPAllocation(
        request, keep, kept, calibrated, event, f"{event.mechanism} by name, each with the same rho"
    )


def _largest_parts(
    names: Mapping[Statistic, str], request: ZCDPRequest, kept: Counts
) -> tuple[CalibratedSeparately, ZCDPEvent]:
    """Return the same rho for every statistic, the largest at which no vehicle loses more than is asked.

    That is more than an equal part of it where no vehicle is the one that loses most by every statistic.
    """

    def at(pico: int) -> tuple[CalibratedSeparately, ZCDPEvent]:
        rho = np.array(ZCDP(pico).number)
        parts = {statistic: Part(name, rho) for statistic, name in names.items()}
        calibrated = CalibratedSeparately(parts, LossKind.ZCDP)
        return calibrated, cast("ZCDPEvent", calibrated.event(kept, request.bound))

    asked = request.rho.pico
    part = asked // len(names)
    calibrated, event = at(part)
    if event.loss > request.rho:
        raise UsageError("no noise fits the rho", got=f"rho={request.rho}", todo="ask for a larger one")
    if event.loss.pico >= asked - asked // UNSPENT:
        return calibrated, event
    # every loss is proportional to the parts, but for rounding
    part = min(part * asked // event.loss.pico, LARGEST_PART)
    while True:
        found = at(part)
        excess = found[1].loss.pico - asked
        if excess <= 0:
            return found
        part -= excess


def require_zcdp(name: str, statistic: Statistic) -> None:
    """Raise UsageError unless the zCDP mechanism ``name`` can estimate ``statistic``."""
    known = mechanism_named(name, LossKind.ZCDP).statistics
    if statistic not in known:
        raise UsageError(
            f"{name} cannot estimate the {statistic.value.replace('_', ' ')}",
            expected=", ".join(each.value for each in known),
            todo="name another mechanism for it, or leave the statistic out",
        )
