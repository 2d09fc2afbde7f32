"""How much a vehicle may lose, who may spend of it, and what a store promises to every vehicle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from trafficdp.arrays import IntArray
from trafficdp.errors import InsufficientBudgetError, UsageError
from trafficdp.model.counts import NeighbouringRelation
from trafficdp.model.grid import zone_of
from trafficdp.model.json_codec import Counted, Moment, Schema, Text, as_json, from_json
from trafficdp.privacy.conversion import delta_of, rho_to_approx
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.loss import LOSS_TEXT, PICO, ZCDP, Loss, LossKind, PureDP

# How much a vehicle may lose: over all time, and if so wished in every calendar year and month.
#
# A policy has a ceiling on the total, which nothing refreshes, and may have ceilings a calendar year and a
# calendar month of the city's time zone. All of them hold at once: a release is charged only when no vehicle
# would pass any. A charge counts in the month and year in which its release is created, not in those in which
# the vehicles drove.
#
# **What is protected.** Releases add up (Theorem A), so by all releases of one calendar year together a
# vehicle loses at most the ceiling of the year, by all of a month at most that of the month, and by all there
# ever are at most the total.
#
# **What is not.** A ceiling a year says nothing about several years: n of them may cost n times as much, up
# to the total. Twelve months that are no calendar year touch two years and may cost twice the ceiling of one;
# likewise months. Records of one year that are released in two years are charged in both. And who can set the
# computer's clock can choose the month: entries of a ledger only ever move forward in time (see
# ``vault_ledger``), which stops going back, not going ahead. Only the total holds whatever the clock says.


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which a vehicle may lose ``ceiling``.

    ``months`` says which: what its months begin with ("2026", "2026-11"), nothing for all time. Months are
    those of ``time_zone`` (``month_of``).
    """

    months: str
    ceiling: Loss
    time_zone: str = "UTC"

    @property
    def name(self) -> str:
        """The window in words: "in all", "in 2026" or "in 2026-11"."""
        return f"in {self.months or 'all'}"


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """Ceilings on what one vehicle may lose, of one kind: see the module. ``time_zone`` is an IANA name.

    ``delta``, as text, only where losses are rho: at which (epsilon, delta) is stated, by the conversion of
    the store's ``relation``.
    Raises UsageError unless 10^-300 <= delta < 1 there.
    """

    total: Annotated[Loss, LOSS_TEXT]
    a_year: Annotated[Loss | None, LOSS_TEXT] = None
    a_month: Annotated[Loss | None, LOSS_TEXT] = None
    time_zone: str = "UTC"
    delta: str | None = None
    relation: NeighbouringRelation = NeighbouringRelation.REPLACE_USER_VALUES
    kind: LossKind = field(init=False, repr=False)
    """The kind of its losses."""
    periodic: bool = field(init=False, repr=False)
    """Whether a ceiling depends on the calendar."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.total.kind)
        object.__setattr__(self, "periodic", self.a_year is not None or self.a_month is not None)
        if self.delta is not None or self.kind is LossKind.ZCDP:
            delta_of(self.delta or "0")

    def epsilon(self, loss: Loss) -> PureDP | None:
        """Return the epsilon that a ``loss`` of rho implies at this policy's delta, rounded up.

        None for a loss that is an epsilon itself.
        """
        if self.delta is None or not isinstance(loss, ZCDP):
            return None
        return PureDP(rho_to_approx(loss, self.delta, self.relation).pico)

    def windows(self, at: datetime) -> tuple[Window, ...]:
        """Return the budget windows (all time, year, month) in which a charge at the time ``at`` counts.

        Raises UsageError for a time without an offset from UTC.
        """
        if at.tzinfo is None:
            raise UsageError("an instant has no offset from UTC", got=at.isoformat())
        month = month_of(at, self.time_zone)
        found = [Window("", self.total)]
        if self.a_year is not None:
            found.append(Window(month.partition("-")[0], self.a_year, self.time_zone))
        if self.a_month is not None:
            found.append(Window(month, self.a_month, self.time_zone))
        return tuple(found)


def month_of(at: datetime, time_zone: str) -> str:
    """Return the calendar month of the instant ``at`` in ``time_zone`` as text, such as "2026-11".

    A Window's ``months`` are the beginning of such texts.
    """
    return f"{at.astimezone(zone_of(time_zone)):%Y-%m}"


def remaining_loss(windows: Sequence[Window], spent: Sequence[IntArray]) -> IntArray:
    """Return what each vehicle may still lose, in 10^-12, at least 0, shape (vehicles,).

    It is the least, over ``windows``, of the ceiling minus what the vehicle has ``spent`` in the window.
    """
    remainders = [window.ceiling.pico - each for window, each in zip(windows, spent, strict=True)]
    least: IntArray = np.maximum(np.min(remainders, axis=0), 0).astype(np.int64)
    return least


def check_windows(
    windows: Sequence[Window], spent: Sequence[IntArray], cost: IntArray, *, shared: bool = False
) -> None:
    """Raise InsufficientBudgetError unless spent + cost <= ceiling in every window for every vehicle charged.

    ``spent`` (one array a window) and ``cost`` are in 10^-12, shape (vehicles,) each. The error tells what
    the vehicle that is hit worst has left and would pay. Spending exactly a ceiling succeeds. ``shared``: all
    vehicles have one account.
    """
    paying = cost > 0
    for window, each in zip(windows, spent, strict=True):
        excess = np.where(paying, each + cost - window.ceiling.pico, np.iinfo(np.int64).min)
        if excess.size and int(excess.max()) > 0:
            worst = int(np.argmax(excess))
            raise InsufficientBudgetError(
                remaining=Fraction(max(0, window.ceiling.pico - int(each[worst])), PICO),
                requested=Fraction(int(cost[worst]), PICO),
                window=window.name if window.months else None,
                quantity=window.ceiling.kind.quantity,
                shared=shared,
            )


# Who may ask priced questions, and how much of every vehicle's budget their questions may spend.


@dataclass(frozen=True, slots=True)
class Analyst:
    """One role. ``budget`` is what a vehicle may lose through the questions of this role, over all time.

    It is of the store's kind. Where an epsilon and a delta are counted in rho, the largest rho that keeps to
    both: so all questions of the role together cost at most that epsilon at that delta.
    The budgets of several roles may add up to more than a vehicle's own: that one binds all the same.
    """

    name: str
    budget: Annotated[Loss, LOSS_TEXT]


# What a store promises to every vehicle, as its ledger says it.
#
# The first entry of a ledger is a promise; a later one of the same kind changes it and says why. The newest
# is in force. So a ceiling that stood when something was charged never changes without a word: whoever reads
# the ledger, or any later release, sees from what to what it went, when and why. Relation and kind of loss
# never change: what was charged under one means nothing under another.


KIND = "promise"
"""What the ledger calls it."""
NONE = "none"
FOR_LIFE = ("neighbouring relation", "kind of loss")
"""What of a promise never changes."""
LONGEST_REASON = 500
LARGEST_EPSILON = PureDP.of(20)
LARGEST_DELTA = "0.0001"
"""Beyond these, and beyond a delta of 1 / (number of vehicles), a promise is weak."""


@dataclass(frozen=True, kw_only=True)
class ChangedFact:
    """One fact of a store's promise that was changed, in words."""

    what: Text
    before: Text
    after: Text


@dataclass(frozen=True, kw_only=True)
class BudgetChange:
    """A change of what the store promises, as its ledger has it at ``entry``: from what to what, and why."""

    entry: Counted
    at: Moment
    reason: Text
    changed: Annotated[tuple[ChangedFact, ...], Schema({"minItems": 1})]

    @property
    def in_words(self) -> str:
        """The change as one sentence, with its date and reason, such as "on 2026-03-05: ..."."""
        facts = "; ".join(f"{each.what} from {each.before} to {each.after}" for each in self.changed)
        return f"on {self.at[:10]}: {facts}. Reason: {self.reason}"


@dataclass(frozen=True, slots=True)
class Promise:
    """The ceilings of ``policy`` under its relation, the bound on speeds, and each analyst's own ceiling."""

    policy: BudgetPolicy
    speed_bound: str
    analysts: tuple[Analyst, ...] = ()

    def facts(self) -> dict[str, object]:
        """Return the promise as the ledger stores it: relation and kind of loss explicitly, then all."""
        policy = self.policy
        return {"relation": policy.relation.value, "loss_kind": policy.kind.value, "promise": as_json(self)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Promise:
        """Return the promise that a ledger entry states: the inverse of ``facts``."""
        policy = {**facts["promise"]["policy"], "relation": facts["relation"]}
        return from_json(cls, {**facts["promise"], "policy": policy})

    def in_words(self) -> dict[str, str]:
        """Return each part of the promise in words, by its name; a part that is not set is left out."""
        policy = self.policy
        whose = "for all vehicles together" if policy.relation.hides_presence else "a vehicle"

        def words(loss: Loss) -> str:
            epsilon = policy.epsilon(loss)
            implied = "" if epsilon is None else f" (epsilon {epsilon} at delta {policy.delta})"
            return f"{loss.kind.quantity} {loss}{implied}"

        return {
            FOR_LIFE[0]: policy.relation.value,
            FOR_LIFE[1]: policy.kind.quantity,
            f"budget {whose}": words(policy.total),
            **({} if policy.a_year is None else {"budget a year": words(policy.a_year)}),
            **({} if policy.a_month is None else {"budget a month": words(policy.a_month)}),
            **({"time zone of years and months": policy.time_zone} if policy.periodic else {}),
            **({} if policy.delta is None else {"delta": policy.delta}),
            "speed bound": self.speed_bound,
            **{f"budget of analyst {each.name}": words(each.budget) for each in self.analysts},
        }

    def changes_to(self, other: Promise) -> tuple[ChangedFact, ...]:
        """Return the parts in which ``other`` differs from this promise, each in words before and after."""
        before, after = self.in_words(), other.in_words()
        return tuple(
            ChangedFact(what=what, before=before.get(what, NONE), after=after.get(what, NONE))
            for what in dict.fromkeys([*before, *after])
            if before.get(what) != after.get(what)
        )

    def analyst(self, name: str) -> Analyst:
        """Return the analyst's role called ``name``.

        Raise UsageError when the store has none of that name.
        """
        found = [each for each in self.analysts if each.name == name]
        if not found:
            raise UsageError("there is no such analyst", got=f"{name:.60}", todo="add it to [[analysts]]")
        return found[0]


def weaknesses(policy: BudgetPolicy, vehicles: int | None = None) -> tuple[str, ...]:
    """Return the reasons why the privacy promise of ``policy`` is weak, a sentence each; empty if it is not.

    ``vehicles``: how many there are, as far as this is public; None: not known. Delta is compared with 1 /
    vehicles, because delta may be the chance that one of them is not protected at all.
    """
    epsilon = policy.epsilon(policy.total) or policy.total
    found = []
    if epsilon.pico > LARGEST_EPSILON.pico:
        found.append(
            f"The budget of epsilon {epsilon} is larger than {LARGEST_EPSILON}: when it is spent, a vehicle "
            "is hardly protected."
        )
    if policy.delta is None:
        return tuple(found)
    if Fraction(policy.delta) > Fraction(LARGEST_DELTA):
        found.append(
            f"Delta {policy.delta} is larger than {LARGEST_DELTA}: with that chance a vehicle may not be "
            "protected."
        )
    if vehicles is not None and Fraction(policy.delta) * vehicles > 1:
        found.append(
            f"Delta {policy.delta} is larger than one divided by the number of vehicles: one of them may be "
            "without any protection."
        )
    return tuple(found)


def changes_in(entries: Sequence[LedgerRow]) -> tuple[BudgetChange, ...]:
    """Return how the privacy promise changed between the ledger ``entries`` that state one, in order."""
    return tuple(
        BudgetChange(
            entry=row.sequence,
            at=str(row.facts["at"]),
            reason=str(row.facts["reason"]),
            changed=Promise.from_facts(before.facts).changes_to(Promise.from_facts(row.facts)),
        )
        for before, row in pairwise(entries)
    )


def checked_reason(text: str) -> str:
    """Return ``text``, the reason for a change, stripped; raise UsageError unless it says something."""
    reason = text.strip()
    says_nothing = reason.casefold() in ("", "unknown")
    if says_nothing or not reason.isprintable() or len(reason) > LONGEST_REASON:
        raise UsageError(
            "a budget is changed for a reason, which every later release shows",
            expected=f"one line of text, at most {LONGEST_REASON} letters",
            todo='say why, as in --reason "the council decided on 3 May to publish weekly"',
        )
    return reason
