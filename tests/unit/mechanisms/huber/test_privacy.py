"""The whole mechanism on whole lattices: the densities of all neighbours differ by at most e^epsilon."""

import numpy as np
import pytest

from trafficdp.bounding.huber import HuberParameters, huber_location, smooth_sensitivity
from trafficdp.noise import student_t


def neighbours(lattice, weight, threshold, upper, beta):
    """All pairs (f, S, f', S') of data sets on the lattice that differ in one vehicle, once each."""
    users, values = len(weight), len(lattice)
    bins = values**users
    index = np.stack(np.unravel_index(np.arange(bins), (values,) * users), axis=1)
    rows = np.asarray(lattice, dtype=float)[index].ravel()
    shape = HuberParameters(
        np.tile(weight, bins), np.tile(threshold, bins), np.repeat(np.arange(bins), users), bins, upper
    )
    centre = huber_location(rows, shape.weight, shape.threshold, shape.bin_index, bins)
    smooth = smooth_sensitivity(rows, shape, np.full(bins, beta))
    table = np.stack([centre, smooth], axis=1).reshape((values,) * users + (2,))
    pairs = []
    for axis in range(users):
        moved = np.moveaxis(table, axis, 0)
        for a in range(values):
            for b in range(values):
                if a != b:
                    pairs.append(np.concatenate([moved[a], moved[b]], axis=-1).reshape(-1, 4))
    found = np.concatenate(pairs).round(9)
    # as np.unique does by rows, which takes longer than all the rest
    found = found[np.lexsort(found.T)]
    return found[np.append(True, np.any(found[1:] != found[:-1], axis=1))]


def largest_log_ratio(pairs, alpha, degrees=3.0):
    """Largest |log density ratio| over outputs, at the stationary points of the ratio and far out."""
    f, s, g, t = pairs.T
    scale, other = s / alpha, t / alpha
    # stationary, with y = z - f: -h y^2 + (h^2 + nu (o^2 - s^2)) y + nu s^2 h = 0
    h, nu = g - f, degrees
    a, c = h, nu * scale**2 * h
    with np.errstate(divide="ignore", invalid="ignore"):
        b = h**2 + nu * (other**2 - scale**2)
        root = np.sqrt(b**2 + 4 * a * c)
        points = np.stack(
            [(b + root) / (2 * a), (b - root) / (2 * a), np.zeros_like(h), h, np.full_like(h, 1e9)]
        )
    points = np.where(np.isfinite(points), points, 0.0)
    log = (nu + 1) / 2 * (
        np.log1p((points - h) ** 2 / (nu * other**2)) - np.log1p(points**2 / (nu * scale**2))
    ) + np.log(other / scale)
    return np.abs(log).max()


EQUAL = np.full(7, 1 / 7)
UNEQUAL = np.array([10, 10, 10, 12, 12, 9, 9]) / 72


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
@pytest.mark.parametrize(
    ("lattice", "weight", "threshold", "upper"),
    [
        ([0, 1, 3, 20], EQUAL, np.full(7, 4.0), 20.0),
        ([0, 2, 6], EQUAL, np.full(7, 4.0), 6.0),
        ([0, 1, 3, 20], UNEQUAL, np.array([4, 4, 4, 3.5, 3.5, 4.2, 4.5]), 20.0),
    ],
)
def test_no_neighbours_on_the_lattice_lose_more_than_epsilon(lattice, weight, threshold, upper, epsilon):
    beta = epsilon / 6
    alpha = student_t.largest_alpha(3, np.array([beta]), np.array([epsilon]))[0]
    pairs = neighbours(lattice, weight, threshold, upper, beta)
    loss = largest_log_ratio(pairs, alpha)
    assert loss <= epsilon * (1 + 1e-6)
    assert loss > 0.3 * epsilon


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [2.0, 6.0])
def test_noise_scaled_by_the_local_sensitivity_instead_would_be_caught(epsilon):
    # S taken at k = 0 alone (beta without end) jumps where good data sets end
    alpha = student_t.largest_alpha(3, np.array([epsilon / 6]), np.array([epsilon]))[0]
    pairs = neighbours([0, 1, 3, 20], EQUAL, np.full(7, 4.0), 20.0, 50.0)
    assert largest_log_ratio(pairs, alpha) > epsilon
