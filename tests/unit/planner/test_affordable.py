"""Who can pay: each vehicle its own loss out of its own account."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples
from small_city import plan_request

from trafficdp.mechanisms.laplace.calibrated import LaplaceNoise
from trafficdp.model import Statistic
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import affordable
from trafficdp.privacy.loss import PureDP

PICO = 10**12
TOLERANCE = {Statistic.MEAN: 1.0}


@pytest.fixture(scope="session")
def planned(counts_of, bound_of):
    """``planned(table, epsilon, accounting)``: an allocation, and how to plan it at another epsilon."""

    def planned(table, epsilon, accounting="best"):
        counts = counts_of(table)

        def at(total):
            # this accounting is for mean and variance together
            more = {Statistic.VARIANCE: 60.0} if "moment" in accounting else {}
            request = plan_request(bound_of(60), total, {**TOLERANCE, **more}, accounting=accounting)
            return allocate(counts, request)

        return at(PureDP.of(epsilon)), at

    return planned


BUSY = [[4, 1, 0], [4, 1, 0], [4, 0, 1]]
"""Vehicle 0 is everywhere and loses most."""


def test_with_full_accounts_everyone_pays(planned):
    allocation, at = planned(BUSY, 4)
    found = affordable(allocation, np.full(3, 4 * PICO), at)
    assert (found.paying, found.short, found.empty) == (3, 0, 0)
    assert found.loss == PureDP.of(4)
    assert found.bins_without_empty == 3


def test_a_vehicle_with_little_left_that_loses_little_is_not_in_the_way(planned):
    allocation, at = planned(BUSY, 4)
    left = np.full(3, 4 * PICO)
    left[2] = int(allocation.event.loss_per_user[2])
    assert left[2] < 4 * PICO
    assert affordable(allocation, left, at).loss == PureDP.of(4)


@pytest.mark.parametrize("accounting", ["basic", "grid_count", "exact", "equal", "blocks"])
def test_the_epsilon_for_all_is_affordable_and_hardly_more_is_not(planned, accounting):
    allocation, at = planned(BUSY, 4, accounting)
    left = np.array([PICO, 2 * PICO, PICO // 10], dtype=np.int64)
    found = affordable(allocation, left, at)
    assert found.short > 0
    assert np.all(at(found.loss).event.loss_per_user <= left)
    more = PureDP(int(found.loss.pico * 1.001))
    assert np.any(at(more).event.loss_per_user > left)


def test_vehicles_with_nothing_left_are_counted_with_the_bins_they_spare(planned):
    allocation, at = planned(BUSY, 4)
    found = affordable(allocation, np.array([4 * PICO, 4 * PICO, 0]), at)
    assert (found.short, found.empty, found.loss) == (1, 1, None)
    # it drives in the third bin alone
    assert found.bins_without_empty == 2


@pytest.mark.slow
@given(
    table=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4).filter(
        lambda rows: any(map(any, rows))
    ),
    left=st.lists(st.integers(1, 40), min_size=3, max_size=3),
)
@settings(max_examples=examples(60))
def test_equal_scales_are_the_best_laplace_scales_under_personal_ceilings(
    counts_of, bound_of, planned, table, left
):
    """The theorem: at the noise that all can pay, some vehicle pays all it has, whatever the scales."""
    allocation, at = planned(table, 4, "equal")
    accounts = np.array(left, dtype=np.int64) * (PICO // 10)
    found = affordable(allocation, accounts, at)
    assert found.loss is not None
    noise = float(at(found.loss).chosen_accounting.scales(float(found.loss.exact))[Statistic.MEAN].max())
    counts = counts_of(table)
    # any scales with a largest of b: the loss is least when all are b
    at_most = LaplaceNoise.cheapest_within(counts, bound_of(60), {Statistic.MEAN: noise * (1 - 1e-6)}).loss()
    ceilings = np.minimum(accounts, 4 * PICO) / PICO
    assert np.any(at_most >= ceilings * (1 - 1e-8))
