"""What each analyst has spent: charges carry the name of the role that asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import AnalystBudgetError
from trafficdp.privacy.analyst import Analyst
from trafficdp.privacy.loss import LOSSES, Loss
from trafficdp.store import promises, vault_ledger
from trafficdp.store.vault import Vault

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AnalystSpending:
    """What one role has spent: its charges, the most any vehicle lost by them, the sum of their maxima."""

    name: str
    charges: int
    largest_spent: Loss
    sum_of_maxima: Loss


def charges_by(vault: Vault) -> dict[str, list[int]]:
    """Return the numbers of the charges that each analyst made, by name; those of nobody are left out."""
    found: dict[str, list[int]] = {}
    for row in vault_ledger.charges(vault):
        facts = row.facts
        if facts["kind"] == "charge" and "analyst" in facts:
            found.setdefault(str(facts["analyst"]), []).append(row.sequence)
    return found


def left(vault: Vault, vehicle: IntArray, analyst: Analyst) -> IntArray:
    """Return what each vehicle may still lose through ``analyst``, in 10^-12 of its kind, at least 0."""
    spent = vault_ledger.spent(vault, vehicle, charges_by(vault).get(analyst.name, []))
    return np.maximum(analyst.budget.pico - spent, 0)


def require_budget(vault: Vault, vehicle: IntArray, loss: IntArray, analyst: Analyst) -> None:
    """Raise AnalystBudgetError unless every vehicle may pay ``loss`` (10^-12) through ``analyst``.

    To be called inside the transaction that charges. Spending exactly the budget succeeds.
    """
    remaining = left(vault, vehicle, analyst)
    excess = np.where(loss > 0, loss - remaining, np.iinfo(np.int64).min)
    if excess.size and int(excess.max()) > 0:
        worst, loss_of = int(np.argmax(excess)), type(analyst.budget)
        raise AnalystBudgetError(
            analyst=analyst.name,
            remaining=loss_of(int(remaining[worst])).exact,
            requested=loss_of(int(loss[worst])).exact,
            quantity=analyst.budget.kind.quantity,
            shared=promises.relation_of(vault).hides_presence,
        )


def spending(vault: Vault) -> list[AnalystSpending]:
    """Return what every analyst who was ever charged has spent, by name. No vehicle is named."""
    found = []
    for name, charges in sorted(charges_by(vault).items()):
        loss_of = LOSSES[promises.promised(vault).policy.kind]
        totals = vault_ledger.totals(vault, charges)
        largest, maxima = loss_of(totals.largest), loss_of(totals.sum_of_maxima)
        found.append(AnalystSpending(name, len(charges), largest, maxima))
    return found
