"""No claim without a proof: order, times and changes follow from disjoint intervals and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.export.report.certainty import compared_rows
from trafficdp.export.report.findings import changed_rows, findings, furthest_apart, proven_order

NUMBERS = st.floats(0, 100).map(lambda number: round(number, 1))


@st.composite
def intervals(draw):
    ends = draw(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12))
    return np.array([min(e) for e in ends]), np.array([max(e) for e in ends])


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(intervals())
def test_every_claimed_order_is_one_of_disjoint_intervals(ends):
    low, high = ends
    order = proven_order(low, high)
    for standings, is_told in (
        (order.low, lambda i, j: high[i] < low[j]),
        (order.high, lambda i, j: low[i] > high[j]),
    ):
        for each in standings:
            told = [j for j in range(len(low)) if j != each.position and is_told(each.position, j)]
            assert len(told) == each.others > 0
    below = [sum(high[i] < low[j] for j in range(len(low))) for i in range(len(low))]
    above = [sum(low[i] > high[j] for j in range(len(low))) for i in range(len(low))]
    half = max((len(low) - 1) / 2, 1)
    assert order.low_half == sum(each >= half for each in below)
    assert order.high_half == sum(each >= half for each in above)
    assert order.proves_nothing == (not any(below))
    assert {each.position for each in order.low} == {i for i in range(len(low)) if below[i] > above[i]}


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(intervals(), NUMBERS)
def test_nothing_is_claimed_where_all_intervals_share_a_point(ends, point):
    low, high = np.minimum(ends[0], point), np.maximum(ends[1], point)
    order = proven_order(low, high)
    assert order.proves_nothing
    assert order.low_half == order.high_half == 0
    assert furthest_apart(low, high) is None


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(intervals())
def test_two_times_are_told_apart_only_by_a_gap_between_their_intervals(ends):
    low, high = ends
    found = furthest_apart(low, high)
    gaps = low[None, :] - high[:, None]
    if found is None:
        assert gaps.max() <= 0
    else:
        lowest, highest, gap = found
        assert gap == low[highest] - high[lowest] == gaps.max() > 0


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 30)), min_size=1, max_size=15))
def test_nothing_has_changed_where_the_interval_of_the_difference_holds_0(pairs):
    low = np.array([start for start, _ in pairs])
    high = low + np.array([width for _, width in pairs])
    fell, rose = changed_rows(low, high)
    assert set(fell.tolist()) == {i for i in range(len(low)) if high[i] < 0}
    assert set(rose.tolist()) == {i for i in range(len(low)) if low[i] > 0}
    assert list(high[fell]) == sorted(high[fell])
    assert list(-low[rose]) == sorted(-low[rose])


def test_times_without_a_number_are_left_out():
    nan = np.nan
    assert furthest_apart(np.array([nan, 1, 9]), np.array([nan, 2, 10])) == (1, 2, 7)
    assert furthest_apart(np.array([nan, nan]), np.array([nan, nan])) is None


def test_the_error_of_the_page_is_shared_out_over_all_that_is_compared(city, earlier_city):
    alone, both = findings(city, None), findings(city, earlier_city)
    compared = [len(compared_rows(city, each.statistic)) for each in alone.statistics]
    assert alone.intervals == sum(compared)
    assert both.intervals == sum(compared) + compared[0]
    for one, other in zip(alone.statistics, both.statistics, strict=True):
        assert np.all(other.certain.low <= one.certain.low)
        assert np.all(other.certain.high >= one.certain.high)


def test_only_released_numbers_are_compared(city):
    for each in findings(city, None).statistics:
        status = city.estimates[each.statistic].status
        assert set(status[each.certain.rows]) == {"released"}
        assert len(each.certain.rows) == np.count_nonzero(status == "released")


def test_a_release_that_keeps_its_noise_to_itself_is_not_compared(city):
    estimates = {
        statistic: replace(estimate, noise={"epsilon": np.ones(city.bins)})
        for statistic, estimate in city.estimates.items()
    }
    found = findings(replace(city, estimates=estimates), None)
    assert all(each.certain is each.order is each.average is None for each in found.statistics)


def test_releases_that_measure_different_things_are_refused(city, rush_hours):
    with pytest.raises(UsageError, match="slots"):
        findings(city, replace(rush_hours, id="R0000"))
