"""Small cities for tests of the privacy core, built from plain tables."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.sensitive.contributions import Contributions


def _occupancy(table):
    counts = np.asarray(table, dtype=np.int64)
    counts = counts[counts.sum(axis=1) > 0]
    bins, users = np.nonzero(counts)
    return Occupancy(
        cell=np.arange(1, len(counts) + 1, dtype=np.uint64),
        slot=np.zeros(len(counts), dtype=np.int64),
        bin_index=bins.astype(np.int64),
        user_index=users.astype(np.int64),
        count=counts[bins, users],
        users=counts.shape[1],
    )


def _contributions(values, bound):
    occupancy = _occupancy([[len(of_user) for of_user in of_bin] for of_bin in values])
    pairs = [of_user for of_bin in values for of_user in of_bin if len(of_user)]
    return Contributions(
        occupancy=occupancy,
        total=np.array([sum(pair) for pair in pairs], dtype=np.int64),
        total_of_squares=np.array([sum(x * x for x in pair) for pair in pairs], dtype=np.int64),
        vehicle=np.arange(1, occupancy.users + 1, dtype=np.int64),
        bound=bound,
    )


@pytest.fixture(scope="session")
def occupancy_of():
    """``occupancy_of(table)``: counts with one row a bin and one column a vehicle; empty bins go."""
    return _occupancy


@pytest.fixture(scope="session")
def contributions_of():
    """``contributions_of(values, bound)``: ``values[bin][vehicle]`` is a list of speeds in whole steps."""
    return _contributions


@pytest.fixture(scope="session")
def bound_of():
    """``bound_of(upper, step)``: a bound in km/h, from texts or integers."""

    def build(upper, step=1):
        return ContributionBound(Fraction(upper), Fraction(step), SpeedUnit.KILOMETRES_PER_HOUR)

    return build
