"""What a store promises to every vehicle, as its ledger says it.

The first entry of a ledger is a promise; a later one of the same kind changes it and says why. The newest is
in force. So a ceiling that stood when something was charged never changes without a word: whoever reads the
ledger, or any later release, sees from what to what it went, when and why. Relation and kind of loss never
change: what was charged under one means nothing under another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from trafficdp.errors import UsageError
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.analyst import Analyst
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.disclosure import BudgetChange, ChangedFact
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.loss import LOSSES, Loss, LossKind, PureDP

KIND = "promise"
"""What the ledger calls it."""
NONE = "none"
FOR_LIFE = ("neighbouring relation", "kind of loss")
"""What of a promise never changes."""
LONGEST_REASON = 500
LARGEST_EPSILON = PureDP.of(20)
LARGEST_DELTA = "0.0001"
"""Beyond these, and beyond a delta of 1 / (number of vehicles), a promise is weak."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The ceilings of ``policy`` under its relation, the bound on speeds, and each analyst's own ceiling."""

    policy: BudgetPolicy
    speed_bound: str
    analysts: tuple[Analyst, ...] = ()

    def facts(self) -> dict[str, object]:
        """Return the promise as plain JSON values, as an entry of the ledger holds them."""
        policy = self.policy
        return {
            "relation": policy.relation.value,
            "loss_kind": policy.kind.value,
            **policy.facts(),
            **({"time_zone": policy.time_zone} if policy.periodic else {}),
            "speed_bound": self.speed_bound,
            "analysts": {each.name: each.budget.pico for each in self.analysts},
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> Promise:
        """Return the promise that ``facts`` wrote."""
        loss_of = LOSSES[LossKind(str(facts["loss_kind"]))]
        stem = "budget" if loss_of is PureDP else "budget_rho"

        def ceiling(key: str) -> Loss | None:
            return loss_of(int(str(facts[key]))) if key in facts else None

        analysts = facts["analysts"]
        ceilings = analysts if isinstance(analysts, dict) else {}
        return cls(
            BudgetPolicy(
                loss_of(int(str(facts[f"{stem}_pico"]))),
                ceiling(f"{stem}_a_year_pico"),
                ceiling(f"{stem}_a_month_pico"),
                str(facts.get("time_zone", "UTC")),
                None if "delta" not in facts else str(facts["delta"]),
                NeighbouringRelation(str(facts["relation"])),
            ),
            str(facts["speed_bound"]),
            tuple(Analyst(str(name), loss_of(int(pico))) for name, pico in ceilings.items()),
        )

    def stated(self) -> dict[str, str]:
        """Return every fact in words, by what it is called; one that is not there is left out."""
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
        """Return what ``other`` says otherwise, in words."""
        before, after = self.stated(), other.stated()
        return tuple(
            ChangedFact(what=what, before=before.get(what, NONE), after=after.get(what, NONE))
            for what in dict.fromkeys([*before, *after])
            if before.get(what) != after.get(what)
        )

    def analyst(self, name: str) -> Analyst:
        """Return the role called ``name``; raise UsageError when the store has promised nothing of it."""
        found = [each for each in self.analysts if each.name == name]
        if not found:
            raise UsageError("there is no such analyst", got=f"{name:.60}", todo="add it to [[analysts]]")
        return found[0]


def weaknesses(policy: BudgetPolicy, vehicles: int | None = None) -> tuple[str, ...]:
    """Return in words why the promise of ``policy`` is weak, a sentence a reason; empty when it is not.

    ``vehicles``: how many there are, as far as this is public; None: not known. Delta is compared with
    1 / vehicles, because delta may be the chance that one of them is not protected at all.
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
    """Return how the promise changed; ``entries`` are those of a ledger that promise, in order."""
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
    """Return ``text`` as every later release shows it; raise UsageError unless it says something."""
    reason = text.strip()
    says_nothing = reason.casefold() in ("", "unknown")
    if says_nothing or not reason.isprintable() or len(reason) > LONGEST_REASON:
        raise UsageError(
            "a budget is changed for a reason, which every later release shows",
            expected=f"one line of text, at most {LONGEST_REASON} letters",
            todo='say why, as in --reason "the council decided on 3 May to publish weekly"',
        )
    return reason
