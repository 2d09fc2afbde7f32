"""The budget of a store that counts in rho: one ceiling over all time, and the delta at which it is told.

Accounts hold whole numbers of 10^-12 rho as those of other stores hold 10^-12 epsilon. Both kinds add up
vehicle by vehicle, so that the ledger's rules are the same; they never meet, because the kind belongs to a
store and is fixed with its first file (``store.loss_kind``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from trafficdp.errors import UsageError
from trafficdp.privacy.budget import Window
from trafficdp.privacy.conversion import zcdp_to_approx
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.zcdp import ZCDP


@dataclass(frozen=True, slots=True)
class ZCDPBudget:
    """At most ``total`` a vehicle over all releases; (epsilon, delta) is stated at ``delta``, as text.

    Raises UsageError unless 10^-300 <= delta < 1.
    """

    total: ZCDP
    delta: str

    def __post_init__(self) -> None:
        zcdp_to_approx(ZCDP(0), self.delta)

    @property
    def kind(self) -> LossKind:
        """The unit of its numbers."""
        return LossKind.ZCDP

    @property
    def periodic(self) -> bool:
        """Whether a ceiling depends on the calendar: never."""
        return False

    def windows(self, at: datetime) -> tuple[Window, ...]:
        """Return the one window, of all time. Raises UsageError for an instant without offset."""
        if at.tzinfo is None:
            raise UsageError("an instant has no offset from UTC", got=at.isoformat())
        return (Window("in all", self.total),)

    def facts(self) -> dict[str, object]:
        """Return the budget as plain JSON values, in 10^-12 rho."""
        return {"budget_rho_pico": self.total.pico, "delta": self.delta}

    def epsilon(self, rho: ZCDP) -> Fraction:
        """Return the epsilon that ``rho`` implies at ``delta``, by the tight conversion, rounded up."""
        return zcdp_to_approx(rho, self.delta).epsilon
