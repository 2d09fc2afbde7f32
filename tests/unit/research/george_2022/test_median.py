"""Private medians: their exact loss by enumeration, under vehicles that touch one array or two."""

from itertools import product

import numpy as np
import pytest

from trafficdp.bounding.arrays import IntervalPartition
from trafficdp.noise.choice import probabilities

STEPS = 2


def log_probabilities(sums, size, parts, scale):
    """The law of ``private_part``."""
    cut = IntervalPartition(np.array([size * STEPS * parts]), np.array([size * STEPS]))
    cost = cut.costs(np.array(sums) * parts, np.zeros(len(sums), dtype=int))
    one = np.ones(parts, dtype=np.int64)
    return np.log(probabilities(cost, one, cut.start, np.array([scale])))


def worst_loss(arrays, parts, touched, scale):
    """The largest |log ratio| over all array sums (at 0, the middle or full) and changes of ``touched``."""
    size, worst = 2, 0.0
    levels = (0, size * STEPS // 2, size * STEPS)
    law = {sums: log_probabilities(sums, size, parts, scale) for sums in product(levels, repeat=arrays)}
    for sums, mine in law.items():
        for change in product(levels, repeat=touched):
            other = law[change + sums[touched:]]
            worst = max(worst, float(np.abs(mine - other).max()))
    return worst


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("arrays", [3, 5, 6])
@pytest.mark.parametrize("touched", [1, 2])
def test_a_median_never_costs_more_than_its_epsilon(arrays, parts, touched):
    epsilon = 1.2
    assert worst_loss(arrays, parts, touched, 2 * touched / epsilon) <= epsilon + 1e-12


def test_most_of_its_epsilon_is_really_spent_with_many_arrays():
    # costs that move by the whole influence on either side of a part
    assert worst_loss(6, 3, 1, 2 / 1.2) > 0.5 * 1.2
    assert worst_loss(6, 3, 2, 4 / 1.2) > 0.5 * 1.2


def test_the_exponent_for_one_array_is_too_large_where_vehicles_touch_two():
    epsilon = 1.2
    assert worst_loss(6, 3, 2, 2 / epsilon) > epsilon
