from dataclasses import replace

import numpy as np
import pytest

from trafficdp.model import COUNTS_PUBLIC, NeighbouringRelation, Statistic
from trafficdp.privacy.loss import ZCDP, LossKind, PrivacyEvent, PureDP


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


def test_the_guarantee_is_the_largest_loss_in_its_own_kind(event):
    assert event.loss == ZCDP(5)
    assert replace(event, kind=LossKind.PURE).loss == PureDP(5)
    assert replace(event, loss_per_user=event.loss_per_user[:0]).loss == ZCDP(0)
