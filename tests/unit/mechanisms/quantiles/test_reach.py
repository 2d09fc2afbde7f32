"""How many ranks a selection misses, against all speeds and all numbers that can be drawn."""

import itertools

import numpy as np
import pytest

from trafficdp.measurement.laws import EntryIndex
from trafficdp.measurement.sets import Ranks
from trafficdp.mechanisms.quantiles import rank_error
from trafficdp.privacy.loss import LossKind


def missed(values, t, rank, above):
    """By how many of ``values`` the number ``t`` misses the ranks, written out."""
    slower, upto = sum(v < t for v in values), sum(v <= t for v in values)
    return max(0, slower - rank, above - upto)


@pytest.mark.parametrize("scale", [0.2, 0.7, 1.5])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_quantile_misses_no_more_ranks_than_its_reach_says_and_some_miss_as_many(scale, level):
    high, users = 3, 6
    worst = dict.fromkeys(range(users + 1), 0.0)
    for values in itertools.combinations_with_replacement(range(high + 1), users):
        costs = [missed(values, t, 3, 3) for t in range(high + 1)]
        weight = np.exp(-np.array(costs) / scale)
        for k in worst:
            beyond = float(weight[np.array(costs) > k].sum() / weight.sum())
            worst[k] = max(worst[k], beyond)
    places = EntryIndex(np.arange(users), np.zeros(users, dtype=np.int64), users, 1)
    ends = (np.array([each]) for each in (high, 3, 3, scale))
    found = int(rank_error(Ranks(places, *ends, LossKind.PURE), level)[0])
    assert found >= users or worst[found] <= 1 - level
    # all vehicles alike: the bound is attained, so that one rank less holds only where it says so
    odds = high * np.exp(-3 / scale)
    assert worst[2] == pytest.approx(odds / (1 + odds))
    assert (found <= 2) == (odds / (1 + odds) <= 1 - level)
