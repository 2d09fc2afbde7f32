from dataclasses import replace

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.model.privacy_unit import COUNTS_PUBLIC, NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.zcdp_event import ZCDPEvent, compose_zcdp


@pytest.fixture
def event(bound_of):
    return ZCDPEvent(
        mechanism="gaussian_twin",
        statistics=(Statistic.MEAN,),
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        unit="vehicle",
        bins=1,
        bound=bound_of(30),
        assumptions=(COUNTS_PUBLIC,),
        loss_per_user=np.array([1, 5, 0], dtype=np.int64),
    )


def test_losses_add_up_user_by_user(event):
    assert compose_zcdp([event, event], 3).tolist() == [2, 10, 0]
    assert event.loss.pico == 5
    assert compose_zcdp([], 2).tolist() == [0, 0]


def test_other_kinds_are_refused(event):
    with pytest.raises(UsageError, match="different kinds"):
        compose_zcdp([event, "pure"], 3)


@pytest.mark.parametrize(
    "change",
    [
        {"idealised": True},
        {"relation": NeighbouringRelation.ADD_OR_REMOVE_USER},
        {"loss_per_user": np.array([1, 2], dtype=np.int64)},
        {"loss_per_user": np.array([1, -2, 0], dtype=np.int64)},
        {"loss_per_user": np.array([1.0, 2.0, 0.0])},
        {"loss_per_user": np.array([1, 10**18 + 1, 0], dtype=np.int64)},
    ],
)
def test_what_cannot_be_accounted_for_is_refused(event, change):
    with pytest.raises(UsageError):
        compose_zcdp([replace(event, **change)], 3)


def test_totals_cannot_wrap_around(event):
    large = replace(event, loss_per_user=np.full(3, 10**18, dtype=np.int64))
    assert compose_zcdp([large], 3).max() == 10**18
    with pytest.raises(UsageError, match="too large"):
        compose_zcdp([large, large], 3)
