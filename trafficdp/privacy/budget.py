"""How much a vehicle may lose: over all time, and if so wished in every calendar year and month.

A policy has a ceiling on the total, which nothing refreshes, and may have ceilings a calendar year and a
calendar month of the city's time zone. All of them hold at once: a release is charged only when no vehicle
would pass any. A charge counts in the month and year in which its release is created, not in those in which
the vehicles drove.

**What is protected.** Releases add up (Theorem A), so by all releases of one calendar year together a vehicle
loses at most the ceiling of the year, by all of a month at most that of the month, and by all there ever are
at most the total.

**What is not.** A ceiling a year says nothing about several years: n of them may cost n times as much, up to
the total. Twelve months that are no calendar year touch two years and may cost twice the ceiling of one;
likewise months. Records of one year that are released in two years are charged in both. And who can set the
computer's clock can choose the month: entries of a ledger only ever move forward in time (see
``vault_ledger``), which stops going back, not going ahead. Only the total holds whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import InsufficientBudgetError, UsageError
from trafficdp.model.grid import zone_of
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.conversion import delta_of, rho_to_approx
from trafficdp.privacy.loss import PICO, ZCDP, Loss, LossKind, PureDP

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which a vehicle may lose ``ceiling``: instants from ``start`` up to ``end``.

    ``name`` says which in words ("in all", "in 2026", "in 2026-11"); None: open on that side.
    """

    name: str
    ceiling: Loss
    start: datetime | None = None
    end: datetime | None = None

    def contains(self, instant: datetime) -> bool:
        """Return whether a charge of that instant counts."""
        return (self.start is None or self.start <= instant) and (self.end is None or instant < self.end)


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """Ceilings on what one vehicle may lose, of one kind: see the module. ``time_zone`` is an IANA name.

    ``delta``, as text, only where losses are rho: at which (epsilon, delta) is stated, by the conversion of
    the store's ``relation``.
    Raises UsageError unless 10^-300 <= delta < 1 there.
    """

    total: Loss
    a_year: Loss | None = None
    a_month: Loss | None = None
    time_zone: str = "UTC"
    delta: str | None = None
    relation: NeighbouringRelation = NeighbouringRelation.REPLACE_USER_VALUES

    def __post_init__(self) -> None:
        if self.delta is not None or self.kind is LossKind.ZCDP:
            delta_of(self.delta or "0")

    @property
    def kind(self) -> LossKind:
        """The kind of its losses."""
        return self.total.kind

    def epsilon(self, loss: Loss) -> PureDP | None:
        """Return the epsilon that ``loss`` implies at ``delta``, rounded up.

        None where losses are epsilon anyway.
        """
        if self.delta is None or not isinstance(loss, ZCDP):
            return None
        return PureDP(rho_to_approx(loss, self.delta, self.relation).pico)

    @property
    def periodic(self) -> bool:
        """Whether a ceiling depends on the calendar."""
        return self.a_year is not None or self.a_month is not None

    def windows(self, at: datetime) -> tuple[Window, ...]:
        """Return the windows in which a charge at ``at`` counts, the one of all time first.

        Raises UsageError for an instant without offset.
        """
        if at.tzinfo is None:
            raise UsageError("an instant has no offset from UTC", got=at.isoformat())
        local = at.astimezone(zone_of(self.time_zone))
        found = [Window("in all", self.total)]
        if self.a_year is not None:
            ends = date(local.year, 1, 1), date(local.year + 1, 1, 1)
            found.append(self._window(f"in {local.year}", self.a_year, *ends))
        if self.a_month is not None:
            first = date(local.year, local.month, 1)
            ends = first, date(local.year + local.month // 12, local.month % 12 + 1, 1)
            found.append(self._window(f"in {first:%Y-%m}", self.a_month, *ends))
        return tuple(found)

    def _window(self, name: str, ceiling: Loss, first: date, end: date) -> Window:
        zone = zone_of(self.time_zone)
        start, stop = (datetime.combine(day, time(), zone).astimezone(UTC) for day in (first, end))
        return Window(name, ceiling, start, stop)

    def facts(self) -> dict[str, object]:
        """Return the policy as plain JSON values, losses in 10^-12 of its kind, without what is not set."""
        stem = "budget" if self.kind is LossKind.PURE else "budget_rho"
        ceilings = {
            f"{stem}_pico": self.total,
            f"{stem}_a_year_pico": self.a_year,
            f"{stem}_a_month_pico": self.a_month,
        }
        facts: dict[str, object] = {name: each.pico for name, each in ceilings.items() if each is not None}
        return facts if self.delta is None else {**facts, "delta": self.delta}


def left(windows: Sequence[Window], spent: Sequence[IntArray]) -> IntArray:
    """Return what each vehicle may still lose in 10^-12 of its kind, at least 0, shape (vehicles,).

    ``spent`` holds, for every window, what each vehicle has spent in it: the least remainder counts.
    """
    remainders = [window.ceiling.pico - each for window, each in zip(windows, spent, strict=True)]
    least: IntArray = np.maximum(np.min(remainders, axis=0), 0).astype(np.int64)
    return least


def check_windows(
    windows: Sequence[Window], spent: Sequence[IntArray], cost: IntArray, *, shared: bool = False
) -> None:
    """Raise InsufficientBudgetError unless spent + cost <= ceiling in every window for all who pay.

    ``spent`` and ``cost`` are 10^-12 of the vehicles of the release, shape (vehicles,) each. The
    error tells what the vehicle that is hit worst has left and would pay. Spending exactly a ceiling
    succeeds. ``shared``: all vehicles have one account.
    """
    paying = cost > 0
    for window, each in zip(windows, spent, strict=True):
        excess = np.where(paying, each + cost - window.ceiling.pico, np.iinfo(np.int64).min)
        if excess.size and int(excess.max()) > 0:
            worst = int(np.argmax(excess))
            raise InsufficientBudgetError(
                remaining=Fraction(max(0, window.ceiling.pico - int(each[worst])), PICO),
                requested=Fraction(int(cost[worst]), PICO),
                window=None if window.end is None else window.name,
                quantity=window.ceiling.kind.quantity,
                shared=shared,
            )
