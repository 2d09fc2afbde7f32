"""The Huber minimiser against numeric minimisation, one bin at a time against all at once."""

import numpy as np
import pytest

from trafficdp.bounding.huber import huber_location, huber_point


def instances(seed, bins=3000):
    """Random bins of 1 to 11 vehicles; half of them on lattices, with ties and flat minima."""
    random = np.random.default_rng(seed)
    users = random.integers(1, 12, bins)
    where = np.repeat(np.arange(bins), users)
    lattice = (random.random(bins) < 0.5)[where]
    value = random.random(len(where)) * 10
    value = np.where(lattice, np.round(value), value)
    weight = np.where(lattice, random.integers(1, 4, len(where)), random.random(len(where)) + 0.01)
    weight = weight / np.bincount(where, weights=weight)[where]
    threshold = np.where(lattice, random.integers(1, 5, len(where)) / 2, random.random(len(where)) * 4 + 0.01)
    return value, weight, threshold, where, bins


def end_of_minimum(level, value, weight, threshold, where, bins):
    """Bisect for the last point whose gradient is at most ``level``."""
    low, high = np.full(bins, -1.0), np.full(bins, 11.0)
    for _ in range(100):
        middle = (low + high) / 2
        pull = weight * np.clip(middle[where] - value, -threshold, threshold)
        above = np.bincount(where, weights=pull, minlength=bins) > level
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return low


def test_three_thousand_minimisers_equal_numeric_minimisation():
    bins = instances(0)
    first, last = end_of_minimum(-1e-13, *bins), end_of_minimum(1e-13, *bins)
    assert (last - first > 1e-6).sum() > 10  # flat ones are among them
    np.testing.assert_allclose(huber_location(*bins), (first + last) / 2, atol=1e-9)


def test_a_bin_is_the_same_alone_and_among_others():
    value, weight, threshold, where, bins = instances(1, 200)
    together = huber_location(value, weight, threshold, where, bins)
    for g in range(bins):
        of = where == g
        alone = huber_location(value[of], weight[of], threshold[of], np.zeros(of.sum(), dtype=np.int64), 1)
        assert alone[0] == pytest.approx(together[g], abs=1e-11)


def test_the_minimiser_stays_within_the_values_and_moves_with_them():
    value, weight, threshold, where, bins = instances(2, 500)
    found = huber_location(value, weight, threshold, where, bins)
    first = np.searchsorted(where, np.arange(bins))
    assert np.all(found >= np.minimum.reduceat(value, first) - 1e-12)
    assert np.all(found <= np.maximum.reduceat(value, first) + 1e-12)
    np.testing.assert_allclose(
        huber_location(10 - value, weight, threshold, where, bins), 10 - found, atol=1e-9
    )


def test_equal_values_give_that_value_and_wide_thresholds_the_weighted_mean():
    value, weight, threshold, where, bins = instances(3, 300)
    np.testing.assert_allclose(
        huber_location(np.full(len(value), 0.1), weight, threshold, where, bins), 0.1, atol=1e-12
    )
    wide = huber_location(value, weight, np.full(len(value), 10.5), where, bins)
    np.testing.assert_allclose(wide, np.bincount(where, weights=weight * value), atol=1e-12)


def test_weiszfeld_equals_the_sweep_and_zeroes_the_gradient_in_the_plane():
    value, weight, threshold, where, bins = instances(4, 40)
    curved = threshold + 3.0
    line = huber_point(value[:, None], weight, curved, where, bins)
    np.testing.assert_allclose(line[:, 0], huber_location(value, weight, curved, where, bins), atol=1e-7)
    plane = np.stack([value, np.roll(value, 7)], axis=1)
    point = huber_point(plane, weight, curved, where, bins)
    offset = plane - point[where]
    distance = np.linalg.norm(offset, axis=1)
    pull = offset * (weight * np.minimum(1, curved / np.maximum(distance, 1e-12)))[:, None]
    for column in (0, 1):
        force = np.bincount(where, weights=pull[:, column])
        np.testing.assert_allclose(force, 0, atol=1e-8)
