"""Half widths that were planned are those released; the least epsilon really is the least."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import UsageError
from trafficdp.model.statistic import Statistic
from trafficdp.planner.allocation import allocate
from trafficdp.planner.precision import Reach, least_loss, precision
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import PureDP, rounded_up


@pytest.fixture
def counts(counts_of):
    random = np.random.default_rng(4)
    return counts_of(random.poisson(3, (12, 30)) * (random.random((12, 30)) < 0.5))


@pytest.fixture
def asked(counts, bound_of):
    """``asked(epsilon, accounting)``: the allocation of a map of means and variances."""

    def asked(epsilon, accounting="best", level=0.95):
        tolerance = {Statistic.MEAN: 1.0, Statistic.VARIANCE: 60.0}
        request = Request(PureDP.of(epsilon), bound_of(60, "0.1"), tolerance, 3, level, accounting)
        return allocate(counts, request)

    return asked


@pytest.mark.parametrize("accounting", ["basic", "exact", "equal", "blocks"])
@pytest.mark.parametrize("reach", list(Reach))
def test_the_least_loss_is_within_and_a_percent_less_is_not(asked, accounting, reach):
    found = least_loss(lambda epsilon: asked(epsilon.epsilon, accounting), PureDP.of(1), 4.0, reach)
    assert precision(asked(found.epsilon, accounting)).at(reach) <= 4.0
    assert precision(asked(found.epsilon * 99 / 100, accounting)).at(reach) > 4.0


@pytest.mark.parametrize("start", ["0.000001", "0.3", "40", "1000000"])
def test_where_the_search_starts_does_not_matter(asked, start):
    def at(epsilon):
        return asked(epsilon.epsilon)

    found = least_loss(at, PureDP.of(start), 4.0, Reach.MEDIAN)
    assert found == least_loss(at, PureDP.of(2), 4.0, Reach.MEDIAN)


def test_no_epsilon_makes_up_for_the_rounding_of_speeds(asked):
    # a speed is rounded to hundredths of its unit, at most m/s (0.018 km/h), and to a step of 0.1 km/h (0.05)
    assert least_loss(lambda e: asked(e.epsilon), PureDP.of(1), 0.065, Reach.MEDIAN) is None
    assert least_loss(lambda e: asked(e.epsilon), PureDP.of(1), 0.08, Reach.MEDIAN) is not None


def test_a_half_width_must_be_positive(asked):
    for width in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="half_width"):
            least_loss(lambda e: asked(e.epsilon), PureDP.of(1), width, Reach.MEDIAN)


def test_a_higher_level_and_less_epsilon_make_intervals_wider(asked):
    assert precision(asked(4, level=0.99)).median > precision(asked(4)).median
    assert precision(asked(2)).worst > precision(asked(4)).worst


@given(st.floats(1e-6, 1e6))
@settings(max_examples=200)
def test_rounding_up_gives_three_digits_and_never_less(epsilon):
    text = rounded_up(epsilon)
    assert epsilon * (1 - 1e-9) <= float(text) <= epsilon * 1.011
    assert len(text.replace(".", "").strip("0")) <= 3
    assert "e" not in text
