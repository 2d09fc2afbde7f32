from fractions import Fraction

import pytest

from trafficdp.errors import ConfigError
from trafficdp.model import ContributionBound, SpeedUnit

MS = SpeedUnit.METRES_PER_SECOND


@pytest.mark.parametrize(("upper", "step", "steps"), [("30", "0.1", 300), ("1", "1/3", 3), ("65", "65", 1)])
def test_the_bound_is_a_whole_number_of_steps(upper, step, steps):
    assert ContributionBound(Fraction(upper), Fraction(step), MS).upper_steps == steps


@pytest.mark.parametrize(("upper", "step"), [("1", "0.6"), ("30", "0.7"), ("30", "29.9999")])
def test_a_step_that_could_carry_a_value_past_the_bound_is_refused(upper, step):
    with pytest.raises(ConfigError, match="not a multiple"):
        ContributionBound(Fraction(upper), Fraction(step), MS)


@pytest.mark.parametrize(("upper", "step"), [("0", "1"), ("-1", "1"), ("1", "0"), ("1", "-1"), ("1", "2")])
def test_bounds_and_steps_that_are_not_positive_are_refused(upper, step):
    with pytest.raises(ConfigError, match="out of range"):
        ContributionBound(Fraction(upper), Fraction(step), MS)


def test_a_step_that_is_too_fine_is_refused():
    assert ContributionBound(Fraction(1), Fraction(1, 1_000_000), MS).upper_steps == 1_000_000
    with pytest.raises(ConfigError, match="too fine"):
        ContributionBound(Fraction(1), Fraction(1, 1_000_001), MS)
