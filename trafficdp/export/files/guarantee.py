"""The manifest's group ``guarantee``, of either kind of loss, and what is read from it."""

from __future__ import annotations

from fractions import Fraction

from trafficdp.errors import UsageError
from trafficdp.export.files.words import guarantee_in_words, zcdp_in_words
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.conversion import rho_to_approx
from trafficdp.privacy.disclosure import CONCENTRATED, PURE, Guarantee
from trafficdp.privacy.loss import ZCDP, Loss, LossKind, decimal_text

CONVERSION = {
    NeighbouringRelation.REPLACE_USER_VALUES: "Canonne, Kamath, Steinke 2020, Proposition 12",
    NeighbouringRelation.ADD_OR_REMOVE_USER: "Gaussian noise alone: Balle, Wang 2018, Theorem 8, "
    "at mu^2 = 2 rho (1 + 10^-9) and epsilon less 10^-30, because noise is drawn in whole numbers",
}
"""How rho becomes (epsilon, delta), by relation (``privacy.conversion``)."""


def guarantee_group(
    relation: NeighbouringRelation, loss: Loss, after: int, budget: BudgetPolicy
) -> Guarantee:
    """Return the group; ``after`` is the sum of all releases' largest losses, this one included (10^-12).

    In zCDP, ``epsilon`` is what ``rho`` implies at ``delta``, and all sums and budgets are rho.
    Raises UsageError for a loss in rho without a budget that names delta.
    """
    sums = {"sum_of_maxima": decimal_text(after), "budget_per_vehicle": str(budget.total)}
    if loss.kind is LossKind.PURE:
        return Guarantee(
            definition=PURE, epsilon=str(loss), in_words=guarantee_in_words(relation, loss), **sums
        )
    epsilon, delta = budget.epsilon(loss), budget.delta
    if delta is None:
        raise UsageError("a loss in rho needs a budget in rho", todo="set [budget] kind, rho and delta")
    return Guarantee(
        definition=CONCENTRATED,
        rho=str(loss),
        epsilon=str(epsilon),
        delta=delta,
        conversion=CONVERSION[relation],
        epsilon_of_sum=str(budget.epsilon(type(loss)(after))),
        in_words=zcdp_in_words(relation, str(loss), str(epsilon), delta),
        **sums,
    )


def conversion_holds(relation: NeighbouringRelation, guarantee: Guarantee) -> bool:
    """Return whether the guarantee is pure, or both epsilons are what the relation's conversion gives."""
    stated = (guarantee.rho, guarantee.delta, guarantee.epsilon_of_sum, guarantee.conversion)
    if guarantee.definition == PURE:
        return stated == (None,) * 4
    rho, delta, of_sum, conversion = stated
    if rho is None or delta is None or of_sum is None or conversion != CONVERSION[relation]:
        return False
    return all(
        rho_to_approx(ZCDP.at_least(Fraction(loss)), delta, relation).epsilon == Fraction(epsilon)
        for loss, epsilon in ((rho, guarantee.epsilon), (guarantee.sum_of_maxima, of_sum))
    )
