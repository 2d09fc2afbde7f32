from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace import baseline
from trafficdp.mechanisms.laplace.lattice import to_lattice
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.accountant import compose
from trafficdp.privacy.loss import LARGEST_LOSS, PureDP


@pytest.fixture
def event(occupancy_of, bound_of):
    occupancy, bound = occupancy_of([[3, 1, 0], [0, 2, 2]]), bound_of(60)
    lattice = to_lattice(Statistic.MEAN, occupancy, bound, np.array([20.0, 30.0]))
    return baseline.event(occupancy, bound, {Statistic.MEAN: lattice})


@pytest.fixture
def with_losses(event):
    return lambda *losses: replace(event, loss_per_user=np.array(losses, dtype=np.int64))


def test_nothing_costs_nothing():
    assert compose([], 3).tolist() == [0, 0, 0]


def test_each_users_losses_add_and_different_users_never_do(with_losses):
    assert compose([with_losses(1, 0, 5), with_losses(2, 7, 0)], 3).tolist() == [3, 7, 5]


def test_the_order_of_events_does_not_matter(with_losses, event):
    events = [event, with_losses(1, 10**15, 5), with_losses(0, 0, 10**17)]
    totals = {tuple(compose(order, 3).tolist()) for order in permutations(events)}
    assert len(totals) == 1


def test_composing_does_not_change_the_events(event):
    before = event.loss_per_user.copy()
    compose([event, event], 3)
    np.testing.assert_array_equal(event.loss_per_user, before)


def test_the_events_loss_is_its_largest_personal_one(with_losses):
    assert with_losses(1, 9, 5).loss == PureDP(9)


@pytest.mark.parametrize("unknown", [None, 1.0, "baseline", PureDP(1), object()])
def test_unknown_kinds_of_events_are_refused(unknown, event):
    with pytest.raises(UsageError, match="unknown kind of privacy event"):
        compose([event, unknown], 3)


def test_an_idealised_event_is_refused(event):
    with pytest.raises(UsageError, match=r"without an exact sampler.*baseline"):
        compose([replace(event, idealised=True)], 3)


def test_events_of_another_relation_are_refused(event):
    other = replace(event, relation=NeighbouringRelation.ADD_OR_REMOVE_USER)
    with pytest.raises(UsageError, match=r"relations do not compose.*add_or_remove_user"):
        compose([event, other], 3)


@pytest.mark.parametrize("users", [0, 1, 2, 4])
def test_events_about_other_users_are_refused(event, users):
    with pytest.raises(UsageError, match="about other users"):
        compose([event], users)


def test_losses_that_are_no_whole_picos_are_refused(event):
    for kind in (np.float64, np.int32, np.uint64):
        with pytest.raises(UsageError, match="int64"):
            compose([replace(event, loss_per_user=np.ones(3, dtype=kind))], 3)


def test_negative_losses_are_refused(with_losses):
    with pytest.raises(UsageError, match="negative"):
        compose([with_losses(5, 5, 5), with_losses(-1, 0, 0)], 3)


@pytest.mark.parametrize("huge", [LARGEST_LOSS + 1, 9 * 10**18, np.iinfo(np.int64).max])
def test_totals_that_would_wrap_around_are_refused(with_losses, huge):
    with pytest.raises(UsageError, match="too large to account for"):
        compose([with_losses(LARGEST_LOSS, 0, 0), with_losses(huge, 0, 0)], 3)


def test_the_largest_total_is_accepted_and_one_pico_more_is_not(with_losses):
    events = [with_losses(LARGEST_LOSS - 1, 0, 0), with_losses(1, 0, 0)]
    assert compose(events, 3)[0] == LARGEST_LOSS
    with pytest.raises(UsageError, match="too large"):
        compose([*events, with_losses(1, 0, 0)], 3)
