"""`trafficdp ledger`: every entry, its chain checked, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from trafficdp.cli.options import Settings, minute_in_words, with_local_offset
from trafficdp.cli.plan_words import LossText, Words
from trafficdp.model import Schema, as_json
from trafficdp.privacy.budget import BudgetChange
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.loss import LossKind, decimal_text
from trafficdp.release.status import Status

AT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?[+-][0-9]{2}:[0-9]{2}$"
KINDS = [
    "promise",
    "charge",
    "publication",
    "withdrawal",
    "stream",
    "stream_publication",
    "stream_end",
    "forgetting",
]


@dataclass(frozen=True, kw_only=True)
class WindowFacts:
    """The ceiling of the present year or month."""

    window: Annotated[str, Schema(pattern="^in [0-9]{4}(-[0-9]{2})?$")]
    budget: LossText
    largest_spent: LossText


@dataclass(frozen=True, kw_only=True)
class AnalystFacts:
    """One analyst: how many questions were charged, the most that a vehicle lost, the sum of the largest."""

    name: Words
    charges: Annotated[int, Schema(minimum=1)]
    largest_spent: LossText
    sum_of_maxima: LossText


@dataclass(frozen=True, kw_only=True)
class EntryFacts:
    """One entry. ``epsilon``: the largest loss of any vehicle, of charges and streams only, in the ledger's
    quantity. ``analyst``: who asked; null for the curator's own releases. ``release``: null where the
    store promised something, or vehicles were forgotten."""

    SCHEMA: ClassVar = Schema(
        {
            "if": {"properties": {"kind": {"enum": ["charge", "stream"]}}},
            "then": {"properties": {"epsilon": {"type": "string"}}},
            "else": {"properties": {"epsilon": {"type": "null"}}},
        }
    )

    sequence: Annotated[int, Schema(minimum=1)]
    kind: Annotated[str, Schema(enum=KINDS)]
    release: Words | None
    at: Annotated[str, Schema(format="date-time", pattern=AT)]
    epsilon: LossText | None
    analyst: Words | None
    head_hash: Annotated[str, Schema(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, kw_only=True)
class LedgerFacts:
    """Losses are exact decimal text. ``budget_per_vehicle``: the ceiling on what any vehicle may spend;
    ``largest_spent``: what the busiest has spent; ``sum_of_maxima``: the sum over releases of the largest
    loss; ``delta``: at which epsilon is told where losses are rho, else null; ``budget_changes``: how the
    store's promise was changed, in order. Every object is closed: a property that is not named here is an
    error. No vehicle's own spending is named."""

    budget_per_vehicle: LossText
    largest_spent: LossText
    sum_of_maxima: LossText
    quantity: Annotated[str, Schema(enum=[kind.quantity for kind in LossKind])]
    delta: Words | None
    windows: tuple[WindowFacts, ...]
    analysts: tuple[AnalystFacts, ...]
    budget_changes: tuple[BudgetChange, ...]
    entries: tuple[EntryFacts, ...]


def ledger(context: typer.Context) -> None:
    """Show the ledger: what was promised, charged, published and withdrawn."""
    settings: Settings = context.obj
    workspace = settings.workspace()
    totals, zone = workspace.status(), workspace.config.grid.period.time_zone
    facts = ledger_facts(workspace.ledger(), totals, zone)
    named = any(each.analyst is not None for each in facts.entries)
    settings.output.table(
        "Ledger",
        ["#", "entry", "release", totals.quantity, *(["analyst"] if named else []), f"at ({zone})", "head"],
        [
            [
                each.sequence,
                each.kind,
                each.release or "",
                each.epsilon or "",
                *([each.analyst or ""] if named else []),
                minute_in_words(each.at, zone),
                each.head_hash[:12],
            ]
            for each in facts.entries
        ],
    )
    if workspace.config.relation.hides_presence:
        who = "the budget that all vehicles share"
        settings.output.say(
            f"All vehicles share one budget: it may spend {totals.quantity} {totals.budget}, and has spent "
            f"{totals.largest_spent}."
        )
    else:
        who = "this vehicle"
        settings.output.say(
            f"A vehicle may spend {totals.quantity} {totals.budget}; the most that one has spent is "
            f"{totals.largest_spent}. The releases' largest losses sum to {totals.sum_of_maxima}."
        )
    if totals.epsilon_in_words is not None:
        settings.output.say(f"What {who} has spent is {totals.epsilon_in_words}.")
    for window in totals.windows:
        settings.output.say(
            f"{window.name.capitalize()} it may spend {window.ceiling}; the most that one has spent is "
            f"{window.largest_spent}."
        )
    for each in totals.analysts:
        settings.output.say(
            f"Analyst {each.name} has spent at most {each.largest_spent} of a vehicle, by {each.charges} "
            f"{'question' if each.charges == 1 else 'questions'} whose largest losses sum to "
            f"{each.sum_of_maxima}."
        )
    for change in totals.budget_changes:
        settings.output.say(f"The budget was changed at entry {change.entry}, {change.in_words}.")
    settings.output.result(as_json(facts))


def ledger_facts(rows: list[LedgerRow], totals: Status, time_zone: str) -> LedgerFacts:
    """Return the ledger as plain values, its times by the clocks of ``time_zone``."""

    def spent(of: Any) -> dict[str, str]:  # noqa: ANN401 - whatever has both
        return {"largest_spent": str(of.largest_spent), "sum_of_maxima": str(of.sum_of_maxima)}

    return LedgerFacts(
        budget_per_vehicle=str(totals.budget),
        **spent(totals),
        quantity=totals.quantity,
        delta=totals.delta,
        windows=tuple(
            WindowFacts(window=each.name, budget=str(each.ceiling), largest_spent=str(each.largest_spent))
            for each in totals.windows
        ),
        analysts=tuple(
            AnalystFacts(name=each.name, charges=each.charges, **spent(each)) for each in totals.analysts
        ),
        budget_changes=totals.budget_changes,
        entries=tuple(_entry_facts(row, time_zone) for row in rows),
    )


def _entry_facts(row: LedgerRow, time_zone: str) -> EntryFacts:
    facts = row.facts
    pico = next((facts[kind.pico_key] for kind in LossKind if kind.pico_key in facts), None)
    return EntryFacts(
        sequence=row.sequence,
        kind=str(facts["kind"]),
        release=str(facts["release"]) if "release" in facts else None,
        at=with_local_offset(str(facts["at"]), time_zone),
        epsilon=decimal_text(pico) if isinstance(pico, int) else None,
        analyst=str(facts["analyst"]) if "analyst" in facts else None,
        head_hash=row.head_hash,
    )
