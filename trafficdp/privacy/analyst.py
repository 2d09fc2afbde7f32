"""Who may ask priced questions, and how much of every vehicle's budget their questions may spend."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.privacy.loss import PureDP


@dataclass(frozen=True, slots=True)
class Analyst:
    """One role. ``budget`` is what a vehicle may lose through the questions of this role, over all time.

    The budgets of several roles may add up to more than a vehicle's own: that one binds all the same.
    """

    name: str
    budget: PureDP
