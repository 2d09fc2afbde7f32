"""Who may ask priced questions, and how much of every vehicle's budget their questions may spend."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.privacy.loss import Loss


@dataclass(frozen=True, slots=True)
class Analyst:
    """One role. ``budget`` is what a vehicle may lose through the questions of this role, over all time.

    It is of the store's kind. Where an epsilon and a delta are counted in rho, the largest rho that keeps to
    both: so all questions of the role together cost at most that epsilon at that delta.
    The budgets of several roles may add up to more than a vehicle's own: that one binds all the same.
    """

    name: str
    budget: Loss
