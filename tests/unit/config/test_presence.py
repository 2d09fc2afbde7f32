"""The configuration where nothing about a vehicle is public: one account, in epsilon or by delta in rho."""

from fractions import Fraction

import pytest

from trafficdp.model import NeighbouringRelation, Statistic
from trafficdp.privacy.budget import Analyst
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import LossKind, PureDP


@pytest.fixture
def hidden(minimal, changed):
    """The least configuration under that relation."""
    found = changed("privacy.relation", "add_or_remove_user", minimal)
    found = changed("budget.epsilon_per_vehicle", ..., found)
    found = changed("privacy.epsilon", 4, found)
    return changed("budget.epsilon", 8, found)


def test_epsilon_alone_is_pure(load, hidden):
    config = load(hidden)
    assert config.relation is NeighbouringRelation.ADD_OR_REMOVE_USER
    assert (config.policy.kind, config.loss, config.policy.total) == (
        LossKind.PURE,
        PureDP.of(4),
        PureDP.of(8),
    )
    request = config.request()
    assert request.relation.hides_presence
    assert (request.min_vehicles, request.mechanism_of(Statistic.MEAN)) == (1, "add_remove_pooling")


def test_with_delta_both_become_the_largest_rho_that_keeps_to_them(load, hidden, changed):
    config = load(changed("privacy.delta", 1e-6, hidden))
    assert config.policy.kind is LossKind.ZCDP
    for epsilon, rho in ((4, config.loss), (8, config.policy.total)):
        assert rho == approx_to_rho(ApproxDP(PureDP.of(epsilon).pico, Fraction(1, 10**6)), config.relation)
    assert config.policy.delta == "0.000001"
    # a wish in epsilon is turned as the configured one is
    assert config.request(PureDP.of(4)).loss == config.loss
    assert float(config.loss.exact) == pytest.approx(0.351004, abs=1e-6)


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("map.min_vehicles", 5, "nothing is known is marked"),
        ("map.mechanism", "auto", "one mechanism"),
        ("map.accounting", "exact", "one mechanism"),
        ("map.resolutions", [6, 7], "the same for all"),
        ("budget.kind", "zcdp", "delta beside it"),
        ("budget.epsilon_per_vehicle", 8, "share one budget"),
        ("budget.epsilon_per_vehicle_a_month", 8, "share one budget"),
        ("privacy.rho", 0.5, "delta beside it"),
        ("stream", {"records_per_vehicle": 60, "publish_every": 5}, "now and then"),
    ],
)
def test_what_rests_on_public_counts_is_refused(refusal, hidden, changed, key, value, instead):
    message = refusal(changed(key, value, hidden))
    assert key.split(".")[-1] in message
    # what to do under this relation, never to take the weaker one
    assert "replace_user_values" not in message
    assert 'relation = "add_or_remove_user"' in message
    assert instead in message


def test_what_the_template_says_anyway_is_none(load, hidden, changed):
    assert load(changed("map.publish_counts", False, hidden)) == load(hidden)
    assert load(changed("map.publish_counts", True, hidden)).request().counts_percent == 30
    assert load(changed("map.fleet", 2500, hidden)).request().fleet == 2500


def test_analysts_have_shares_that_are_counted_as_the_account_is(load, hidden, changed):
    asked = changed("analysts", [{"name": "newsroom", "epsilon_per_vehicle": 1}], hidden)
    assert load(asked).analysts == (Analyst("newsroom", PureDP.of(1)),)
    config = load(changed("privacy.delta", 1e-6, asked))
    (of_rho,) = config.analysts
    assert of_rho.budget == approx_to_rho(ApproxDP(PureDP.of(1).pico, Fraction(1, 10**6)), config.relation)


def test_a_missing_ceiling_is_asked_for(refusal, hidden, changed):
    assert "[budget] epsilon is missing" in refusal(changed("budget.epsilon", ..., hidden))


@pytest.mark.parametrize("statistics", [["variance"], ["mean", "vehicle_mean"]])
def test_a_mean_is_always_there_and_no_vehicle_mean(refusal, hidden, changed, statistics):
    assert "[map] statistics" in refusal(changed("map.statistics", statistics, hidden))
