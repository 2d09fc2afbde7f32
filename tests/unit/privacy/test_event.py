from dataclasses import replace

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.model import COUNTS_PUBLIC, NeighbouringRelation, Statistic
from trafficdp.privacy.event import PrivacyEvent, compose
from trafficdp.privacy.loss import ZCDP, LossKind, PureDP


@pytest.fixture
def event(bound_of):
    return PrivacyEvent(
        mechanism="gaussian_twin",
        statistics=(Statistic.MEAN,),
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        unit="vehicle",
        bins=1,
        bound=bound_of(30),
        assumptions=(COUNTS_PUBLIC,),
        loss_per_user=np.array([1, 5, 0], dtype=np.int64),
        kind=LossKind.ZCDP,
    )


def test_losses_add_up_user_by_user(event):
    assert compose([event, event], 3).tolist() == [2, 10, 0]
    assert event.loss == ZCDP(5)
    assert replace(event, kind=LossKind.PURE).loss == PureDP(5)
    assert compose([], 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    "change", [{"kind": LossKind.PURE}, {"relation": NeighbouringRelation.ADD_OR_REMOVE_USER}]
)
def test_other_kinds_are_refused(event, change):
    with pytest.raises(UsageError, match="different kinds"):
        compose([event, replace(event, **change)], 3)


@pytest.mark.parametrize(
    "change",
    [
        {"loss_per_user": np.array([1, 2], dtype=np.int64)},
        {"loss_per_user": np.array([1, -2, 0], dtype=np.int64)},
        {"loss_per_user": np.array([1.0, 2.0, 0.0])},
        {"loss_per_user": np.array([1, 10**18 + 1, 0], dtype=np.int64)},
    ],
)
def test_what_cannot_be_accounted_for_is_refused(event, change):
    with pytest.raises(UsageError):
        compose([replace(event, **change)], 3)


def test_totals_cannot_wrap_around(event):
    large = replace(event, loss_per_user=np.full(3, 10**18, dtype=np.int64))
    assert compose([large], 3).max() == 10**18
    with pytest.raises(UsageError, match="too large"):
        compose([large, large], 3)
