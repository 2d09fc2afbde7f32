"""One epsilon for a vehicle's whole stream: exact, and never passed."""

from fractions import Fraction
from itertools import product

import pytest

from trafficdp.errors import UsageError
from trafficdp.privacy.loss import PureDP
from trafficdp.stream.service import Allowance


def allowance(**changes):
    chosen = {
        "epsilon": PureDP.of("0.7"),
        "value_steps": 30,
        "arity": 3,
        "heights": 4,
        "records_per_vehicle": 9,
    }
    return Allowance(**{**chosen, "products": True, **changes})


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 30])
def test_the_second_sum_is_free_by_brute_force(steps):
    subject = allowance(value_steps=steps)
    first, second = Fraction(subject.mean_scale), Fraction(subject.product_scale)
    worst = max(
        abs(x - z) / first + abs(x * (steps - x) - z * (steps - z)) / second
        for x, z in product(range(steps + 1), repeat=2)
    )
    assert worst == Fraction(steps) / first


@pytest.mark.parametrize("epsilon", ["0.000001", "0.7", "1", "3.3", "1000"])
@pytest.mark.parametrize("records", [1, 9, 1000])
def test_the_whole_allowance_costs_at_most_epsilon_and_less_noise_would_not_do(epsilon, records):
    subject = allowance(epsilon=PureDP.of(epsilon), records_per_vehicle=records)
    assert subject.loss(subject.nodes_per_vehicle) <= subject.epsilon
    if subject.mean_scale > 1:
        exact = Fraction(subject.nodes_per_vehicle * subject.value_steps, subject.mean_scale - 1)
        assert exact > subject.epsilon.exact


def test_a_loss_is_rounded_up_to_whole_pico_epsilons():
    subject = allowance(epsilon=PureDP.of(1), value_steps=1, heights=1, records_per_vehicle=3)
    assert subject.mean_scale == 3
    assert subject.loss(1) == PureDP(333_333_333_334)
    assert subject.loss(0) == PureDP(0)


def test_sums_that_64_bits_might_not_hold_are_refused_before_a_stream_begins():
    # no vehicle can have more records than that in one element, so none fails later
    chosen = {"value_steps": 10**6, "products": False, "epsilon": PureDP.of("1000")}
    assert allowance(records_per_vehicle=2**61 // 10**12, **chosen).records_per_vehicle == 2_305_843
    with pytest.raises(UsageError, match="could leave 64 bits"):
        allowance(records_per_vehicle=2**61 // 10**12 + 1, **chosen)
    with pytest.raises(UsageError, match="could leave 64 bits"):
        allowance(records_per_vehicle=2**23, **chosen | {"value_steps": 2**19})


def test_noise_that_cannot_be_drawn_exactly_is_refused():
    with pytest.raises(UsageError, match="cannot be drawn exactly"):
        allowance(value_steps=10**6, records_per_vehicle=10**6)
