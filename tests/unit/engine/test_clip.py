"""Every speed takes the step that exact fractions give, in a batch and in a stream."""

from fractions import Fraction
from math import floor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import ConfigError, StoreDamagedError
from trafficdp.model import Clip, ContributionBound, SpeedUnit


def exact(speed_centi: int, unit: SpeedUnit, bound: ContributionBound) -> int:
    speed = Fraction(speed_centi, 100) * unit.factor_to(bound.unit)
    clipped = min(max(speed, Fraction(0)), bound.upper)
    return floor(clipped / bound.step + Fraction(1, 2))


def steps_of(speeds: list[int], unit: SpeedUnit, bound: ContributionBound) -> list[int]:
    centi = pa.array(np.array(speeds, dtype=np.int64))
    return Clip(bound).steps_of(centi, pa.array([unit.value] * len(speeds))).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("own", SpeedUnit)
@pytest.mark.parametrize("unit", SpeedUnit)
@pytest.mark.parametrize(("upper", "step"), [("30", "0.1"), ("22.352", "0.004"), ("65", "1/3"), ("7", "7")])
def test_every_speed_takes_the_step_that_exact_fractions_give(upper, step, unit, own) -> None:
    bound = ContributionBound(Fraction(upper), Fraction(step), unit)
    top = int(bound.upper * 100 / own.factor_to(unit))
    speeds = [*range(-3, top + 200), -(2**63), 2**62, 2**63 - 1]
    found = steps_of(speeds, own, bound)
    assert found == [exact(speed, own, bound) for speed in speeds]
    assert min(found) == 0
    assert max(found) == bound.upper_steps


@given(
    speed=st.integers(-(2**63), 2**63 - 1),
    own=st.sampled_from(SpeedUnit),
    unit=st.sampled_from(SpeedUnit),
    numerator=st.integers(1, 2000),
    denominator=st.integers(1, 2000),
    steps=st.integers(1, 1_000_000),
)
def test_the_integer_formula_is_exact_or_refused(speed, own, unit, numerator, denominator, steps) -> None:
    step = Fraction(numerator, denominator)
    bound = ContributionBound(step * steps, step, unit)
    assert steps_of([speed], own, bound) == [exact(speed, own, bound)]


def test_steps_beyond_exact_arithmetic_are_refused() -> None:
    step = Fraction(10**9 + 7, 10**12 + 39)
    with pytest.raises(ConfigError, match="64 bits"):
        Clip(ContributionBound(step * 1_000_000, step, SpeedUnit.MILES_PER_HOUR))


def test_units_may_differ_from_fix_to_fix_and_an_unknown_one_is_refused() -> None:
    bound = ContributionBound(Fraction(60), Fraction(1), SpeedUnit.KILOMETRES_PER_HOUR)
    centi = pa.array([1000, 1000, 1000], type=pa.int64())
    units = pa.array(["ms", "kmh", "mph"]).dictionary_encode()
    assert Clip(bound).steps_of(centi, units).tolist() == [36, 10, 16]
    with pytest.raises(StoreDamagedError, match="unknown speed unit"):
        Clip(bound).steps_of(centi, pa.array(["ms", "knots", "kmh"]))
