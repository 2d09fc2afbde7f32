"""`trafficdp ledger`: every entry, its chain checked, and what is left."""

from __future__ import annotations

import typer

from trafficdp.cli.words.output import minute
from trafficdp.cli.words.settings import Settings
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.loss import decimal_text
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.release.outcomes import Status


def ledger(context: typer.Context) -> None:
    """Show the ledger: what was charged, published and withdrawn."""
    settings: Settings = context.obj
    workspace = settings.workspace()
    rows, totals = workspace.ledger(), workspace.status()
    named = any("analyst" in row.facts for row in rows)
    settings.output.table(
        "Ledger",
        ["#", "entry", "release", totals.quantity, *(["analyst"] if named else []), "at (UTC)", "head"],
        [
            [
                row.sequence,
                str(row.facts["kind"]),
                str(row.facts["release"]),
                _epsilon(row) or "",
                *([str(row.facts.get("analyst", ""))] if named else []),
                minute(str(row.facts["at"])),
                row.head_hash[:12],
            ]
            for row in rows
        ],
    )
    settings.output.say(
        f"A vehicle may spend {totals.quantity} {totals.budget}; the busiest has spent "
        f"{totals.largest_spent}. The releases' largest losses sum to {totals.sum_of_maxima}."
    )
    if totals.in_epsilon is not None:
        settings.output.say(f"What the busiest vehicle has spent is {totals.in_epsilon}.")
    for window in totals.windows:
        settings.output.say(
            f"{window.name.capitalize()} it may spend {window.ceiling}; the busiest has spent "
            f"{window.largest_spent}."
        )
    for each in totals.analysts:
        settings.output.say(
            f"Analyst {each.name} has spent at most {each.largest_spent} of a vehicle, by {each.charges} "
            f"{'question' if each.charges == 1 else 'questions'} whose largest losses sum to "
            f"{each.sum_of_maxima}."
        )
    settings.output.result(ledger_facts(rows, totals))


def ledger_facts(rows: list[LedgerRow], totals: Status) -> dict[str, object]:
    """Return the ledger as plain JSON values: ledger.schema.json. No vehicle's own spending is named."""
    return {
        "budget_per_vehicle": str(totals.budget),
        "largest_spent": str(totals.largest_spent),
        "sum_of_maxima": str(totals.sum_of_maxima),
        "quantity": totals.quantity,
        "delta": totals.delta,
        "windows": [
            {"window": each.name, "budget": str(each.ceiling), "largest_spent": str(each.largest_spent)}
            for each in totals.windows
        ],
        "analysts": [
            {
                "name": each.name,
                "charges": each.charges,
                "largest_spent": str(each.largest_spent),
                "sum_of_maxima": str(each.sum_of_maxima),
            }
            for each in totals.analysts
        ],
        "entries": [
            {
                "sequence": row.sequence,
                "kind": row.facts["kind"],
                "release": row.facts["release"],
                "at": row.facts["at"],
                "epsilon": _epsilon(row),
                "analyst": row.facts.get("analyst"),
                "head_hash": row.head_hash,
            }
            for row in rows
        ],
    }


def _epsilon(row: LedgerRow) -> str | None:
    pico = next((row.facts[kind.pico_key] for kind in LossKind if kind.pico_key in row.facts), None)
    return decimal_text(pico) if isinstance(pico, int) else None
