"""[budget]: a total that must be chosen, and ceilings a year and a month that may be."""

from decimal import Decimal

import pytest

from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.loss import PureDP


def test_the_total_alone_never_refreshes(load, minimal):
    config = load(minimal)
    assert config.policy == BudgetPolicy(PureDP.of(8), time_zone="America/Chicago")
    assert config.policy.total == PureDP.of(8)
    assert not config.policy.periodic


def test_ceilings_a_year_and_a_month_follow_the_citys_calendar(load, changed, minimal):
    document = changed("budget.epsilon_per_vehicle_a_year", 4, minimal)
    document = changed("budget.epsilon_per_vehicle_a_month", Decimal("0.5"), document)
    policy = load(document).policy
    assert policy == BudgetPolicy(PureDP.of(8), PureDP.of(4), PureDP.of("0.5"), "America/Chicago")
    assert policy.periodic


@pytest.mark.parametrize("value", [0, -1, "much", True, Decimal("1e7")])
@pytest.mark.parametrize("key", ["epsilon_per_vehicle_a_year", "epsilon_per_vehicle_a_month"])
def test_a_ceiling_that_is_no_loss_is_refused(refusal, changed, minimal, key, value):
    message = refusal(changed(f"budget.{key}", value, minimal))
    assert message.startswith(f"[budget] {key} is not valid")


def test_a_ceiling_that_never_counts_is_refused(refusal, changed, minimal):
    message = refusal(changed("budget.epsilon_per_vehicle_a_year", 9, minimal))
    assert message.startswith("[budget] epsilon_per_vehicle_a_year is not valid")
    assert "at most 8" in message
    document = changed("budget.epsilon_per_vehicle_a_year", 2, minimal)
    message = refusal(changed("budget.epsilon_per_vehicle_a_month", 3, document))
    assert message.startswith("[budget] epsilon_per_vehicle_a_month is not valid")
    assert "at most 2" in message
