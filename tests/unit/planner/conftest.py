"""What the tests of planning share."""

import numpy as np
import pytest


@pytest.fixture
def town(counts_of):
    """Forty vehicles in twelve bins."""
    rng = np.random.default_rng(7)
    counts = rng.choice([0, 1, 3, 9], (12, 40))
    counts[:, 0] = 2
    return counts_of(counts.tolist())
