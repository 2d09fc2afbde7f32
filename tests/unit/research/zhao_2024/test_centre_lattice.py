"""The lattice of centres: complete, as dense as it says, everywhere near."""

import itertools

import numpy as np
import pytest

from trafficdp.research.zhao_2024.vector_smooth_sensitivity import CentreLattice


@pytest.mark.parametrize("dimensions", range(1, 9))
def test_every_point_has_a_centre_within_the_covering_radius(dimensions):
    lattice = CentreLattice(dimensions, 0.7)
    points = np.random.default_rng(dimensions).uniform(-9, 9, (300, dimensions))
    nearest = [np.linalg.norm(lattice.around(point) - point, axis=1).min() for point in points]
    assert max(nearest) <= 0.7 * (1 + 1e-12)
    assert max(nearest) > 0.5 * 0.7  # the radius is not much larger than it need be


def test_the_covering_radius_is_attained_on_the_line_and_in_the_plane():
    line = CentreLattice(1, 1.0).within(np.zeros(1), 9.0)[:, 0]
    np.testing.assert_allclose(np.diff(np.sort(line)), 2.0)
    plane = CentreLattice(2, 1.0).within(np.zeros(2), 4.0)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 81)] * 2), axis=-1).reshape(-1, 1, 2)
    assert np.linalg.norm(grid - plane, axis=2).min(axis=1).max() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_centres_within_a_ball_are_all_of_them(dimensions):
    lattice = CentreLattice(dimensions, 1.0)
    # projections of all whole vectors; the last entry may be taken as 0, since (1, ..., 1) goes to 0
    whole = np.array(list(itertools.product(range(-14, 15), repeat=dimensions)))
    every = whole @ lattice.plane[:, :dimensions].T * lattice.scale
    for point in np.random.default_rng(3).uniform(-1, 1, (20, dimensions)):
        found = lattice.within(point, 2.3)
        expected = every[np.linalg.norm(every - point, axis=1) <= 2.3]
        assert len(found) == len(expected) > 0
        apart = np.linalg.norm(found[:, None] - expected, axis=2)
        assert apart.min(axis=1).max() < 1e-9


@pytest.mark.parametrize("dimensions", [2, 4, 8])
def test_their_number_is_bounded_without_looking(dimensions):
    lattice = CentreLattice(dimensions, 1.0)
    points = np.random.default_rng(4).uniform(-5, 5, (30, dimensions))
    most = max(len(lattice.within(point, 1.5)) for point in points)
    assert 1 <= most <= lattice.most_within(1.5)
    # of the whole space a cell takes so much: the bound without its margin
    assert most <= 3 * lattice.most_within(0.5)
