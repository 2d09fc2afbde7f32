"""The manifest's group ``guarantee``, of either kind of loss, and what is read from it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from trafficdp.errors import UsageError
from trafficdp.export.files.words import guarantee_in_words, zcdp_in_words
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.conversion import zcdp_to_approx
from trafficdp.privacy.loss import PICO, PureDP, decimal_text
from trafficdp.privacy.zcdp import ZCDP
from trafficdp.privacy.zcdp_budget import ZCDPBudget

PURE = "pure epsilon-differential privacy, user level"
CONCENTRATED = "rho-zero-concentrated differential privacy (zCDP), user level"
CONVERSION = "Canonne, Kamath, Steinke 2020, Proposition 12"


def guarantee_group(
    relation: NeighbouringRelation,
    loss: PureDP | ZCDP,
    after: int,
    budget: PureDP | ZCDP,
    policy: BudgetPolicy | ZCDPBudget | None,
) -> dict[str, object]:
    """Return the group; ``after`` is the sum of all releases' largest losses, this one included (10^-12).

    In zCDP, ``epsilon`` is what ``rho`` implies at ``delta``, and all sums and budgets are rho.
    Raises UsageError for a loss in rho without a budget that names delta.
    """
    sums = {"sum_of_maxima": decimal_text(after), "budget_per_vehicle": decimal_text(budget.pico)}
    if isinstance(loss, PureDP):
        return {
            "definition": PURE,
            "epsilon": decimal_text(loss.pico),
            **sums,
            "in_words": guarantee_in_words(relation, loss),
        }
    if not isinstance(policy, ZCDPBudget):
        raise UsageError("a loss in rho needs a budget in rho", todo="set [budget] kind, rho and delta")
    epsilon, together = (decimal_text(int(policy.epsilon(each) * PICO)) for each in (loss, ZCDP(after)))
    return {
        "definition": CONCENTRATED,
        "rho": decimal_text(loss.pico),
        "epsilon": epsilon,
        "delta": policy.delta,
        "conversion": CONVERSION,
        **sums,
        "epsilon_of_sum": together,
        "in_words": zcdp_in_words(relation, decimal_text(loss.pico), epsilon, policy.delta),
    }


def loss_text(guarantee: Mapping[str, object]) -> str:
    """Return the loss that adds up: epsilon, or rho where the guarantee is in rho."""
    return str(guarantee["rho"] if "rho" in guarantee else guarantee["epsilon"])


def in_short(guarantee: Mapping[str, object]) -> str:
    """Return the loss as people read it: "epsilon 4", or rho with the (epsilon, delta) that follows."""
    if "rho" not in guarantee:
        return f"epsilon {guarantee['epsilon']}"
    return f"rho {guarantee['rho']} (epsilon {guarantee['epsilon']} at delta {guarantee['delta']})"


def conversion_holds(guarantee: Mapping[str, object]) -> bool:
    """Return whether both epsilons are what the tight conversion gives for rho and its sum."""
    if "rho" not in guarantee:
        return True
    pairs = (("rho", "epsilon"), ("sum_of_maxima", "epsilon_of_sum"))
    return all(
        zcdp_to_approx(ZCDP.at_least(Fraction(str(guarantee[rho]))), str(guarantee["delta"])).epsilon
        == Fraction(Decimal(str(guarantee[epsilon])))
        for rho, epsilon in pairs
    )
