"""Small cities of which single speeds are known."""

import numpy as np
import pytest

from trafficdp.sensitive import Samples


@pytest.fixture
def samples_of(contributions_of):
    """``samples_of(values, bound)``: speeds in steps by bin and vehicle."""

    def build(values, bound):
        city = contributions_of(values, bound)
        flat = [v for of_bin in values for of_user in of_bin for v in of_user]
        return Samples(city.counts, np.array(flat, dtype=np.int64), city.vehicle, bound)

    return build


@pytest.fixture
def city(contributions_of, bound_of):
    """Three bins, four vehicles; one bin with a single record, whose variance can only be 0."""
    values = [
        [[100, 310, 207], [599, 3], [], [18]],
        [[400], [222, 223], [17, 600, 333], []],
        [[], [], [], [123]],
    ]
    return contributions_of(values, bound_of(60, "1/10"))
