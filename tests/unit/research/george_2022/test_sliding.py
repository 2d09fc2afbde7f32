"""Sums of the last hour: fresh noise every hour, and the account of every vehicle."""

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.george_2022.better_means import SlidingWindow, best_window
from trafficdp.stream.tree import Tree, TreeKind

WINDOWS = [
    SlidingWindow(1, Tree(2)),
    SlidingWindow(4, Tree(5)),
    SlidingWindow(12, Tree(2)),
    SlidingWindow(12, Tree(3, TreeKind.SIGNED)),
    SlidingWindow(60, Tree(7, TreeKind.SIGNED)),
]


class Silent(SimulatedNoise):
    def discrete_laplace(self, scale):
        return np.zeros(scale.shape, dtype=np.int64)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_without_noise_a_window_is_the_sum_of_its_steps(window):
    total = np.random.default_rng(1).integers(0, 50, 150)
    expected = [total[max(0, s - window.steps) : s].sum() for s in range(1, 151)]
    assert window.sums(total, 3.0, Silent(1), 2).tolist() == [expected] * 2
    assert window.sums(total[:0], 3.0, Silent(1), 2).shape == (2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_noise_has_the_variance_that_is_said_and_does_not_grow(window):
    size = window.steps
    noise = window.sums(np.zeros(4 * size, dtype=int), 20.0, SimulatedNoise(2), 20_000)
    expected = window.variance() * 2 * 20.0**2
    for block in (1, 2, 3):
        found = noise[:, block * size : (block + 1) * size].var(axis=0)
        np.testing.assert_allclose(found, expected, rtol=0.1)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_blocks_are_independent_and_a_step_moves_only_the_windows_that_hold_it(window):
    size, length = window.steps, 3 * window.steps
    base = window.sums(np.zeros(length, dtype=int), 9.0, SimulatedNoise(4), 1)[0]
    for step in range(length):
        moved = np.zeros(length, dtype=int)
        moved[step] = 1
        change = window.sums(moved, 9.0, SimulatedNoise(4), 1)[0] - base
        holds = (np.arange(length) >= step) & (np.arange(length) < step + size)
        np.testing.assert_allclose(change, holds, atol=1e-9)


def test_a_vehicle_pays_for_the_hours_in_which_it_drives():
    window = SlidingWindow(12, Tree(3, TreeKind.SIGNED))
    scale = window.scale(records=5, upper_steps=30, epsilon=0.5)
    # vehicle 0: 5 records in the dearest step of two hours; 1: one record; 2: none
    dearest = int(window.nodes_per_step.argmax()) + 1
    user = np.array([0] * 10 + [1])
    step = np.array([dearest] * 5 + [12 + dearest] * 5 + [1])
    loss = window.loss_per_vehicle(user, step, 30, scale, 3) / 1e12
    assert loss[0] == pytest.approx(1.0, rel=1e-9)
    assert loss[0] <= 1
    assert loss[1] == pytest.approx(0.1 * window.nodes_per_step[0] / window.price, rel=1e-9)
    assert loss[2] == 0


def test_the_best_window_beats_noise_a_step_and_the_binary_tree():
    for steps, gain in [(60, 1.05), (240, 1.5)]:
        best = best_window(steps).mean_error()
        assert best * gain < SlidingWindow(steps, Tree(steps + 1)).mean_error()
        assert best * 1.3 < SlidingWindow(steps, Tree(2)).mean_error()
    # few steps: one draw a step is best
    assert best_window(4).mean_error() == pytest.approx(np.sqrt(2 * 4))


@pytest.mark.parametrize(("steps", "tree"), [(0, Tree(2)), (9, Tree(3, TreeKind.AVERAGED))])
def test_windows_that_cannot_be_made_are_refused(steps, tree):
    with pytest.raises(UsageError):
        SlidingWindow(steps, tree)
