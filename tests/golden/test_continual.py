"""Golden vectors of continual mean estimation (paper 002)."""

import numpy as np
import pytest

from trafficdp.research.george_2022.arrivals import Arrivals, best_plan, level_size, paper_plan
from trafficdp.research.george_2022.paper_means import activation, collectable
from trafficdp.stream.tree import bit_length

ORDER = np.array([1, 1, 2, 1, 1, 2, 3, 1, 2, 2]) - 1
VALUE = np.array([5, 3, 2, 4, 6, 8, 1, 7, 9, 10])


@pytest.fixture
def arrivals():
    return Arrivals(ORDER, VALUE, users=3, samples=8, upper_steps=10)


def test_streams_of_the_levels(arrivals):
    elements = arrivals.elements
    streams = [elements.value[elements.level == level].tolist() for level in range(4)]
    assert streams == [[5, 2, 1], [3, 8], [10, 19], []]


def test_samples_and_sum_inside_after_every_arrival(arrivals):
    elements = arrivals.elements
    fed = np.searchsorted(elements.sample, np.arange(1, 11))
    inside = np.concatenate([[0], np.cumsum(level_size(elements.level))])[fed]
    total = np.concatenate([[0], np.cumsum(elements.value)])[fed]
    expected = [(1, 5), (2, 8), (3, 10), (3, 10), (5, 20), (6, 28), (7, 29), (7, 29), (7, 29), (9, 48)]
    assert list(zip(inside.tolist(), total.tolist(), strict=True)) == expected


def test_bit_lengths():
    assert bit_length(np.array([1, 7, 8, 1000, 1024])).tolist() == [1, 3, 4, 10, 11]


def test_the_small_plan():
    plan = paper_plan(1024, 16, 1, 1.0, 0.05)
    assert plan.median_epsilon.tolist() == [0, *[0.125] * 4]
    assert plan.counter_epsilon == pytest.approx(0.1)
    assert plan.width.tolist() == [1, 1, 2, 4, 8]
    assert not plan.truncated.any()
    assert plan.scales() == pytest.approx([110, 110, 220, 440, 880])
    assert plan.arrays[2:].tolist() == [828, 828, 879]


def test_the_large_plan():
    plan = paper_plan(1000, 256, 65, 1.0, 0.05)
    assert plan.median_epsilon[1:] == pytest.approx(0.0625)
    assert plan.counter_epsilon == pytest.approx(1 / 18)
    assert (plan.width[8], plan.arrays[8], plan.size[8]) == (8320, 2291, 128)
    assert plan.scales()[8] == pytest.approx(1_497_600)


def test_truncation_pays_from_elements_of_256_samples_on():
    assert not paper_plan(1000, 256, 65, 1.0, 0.05).truncated.any()
    plan = paper_plan(1000, 256, 65, 1.0, 0.05)
    assert 2 * plan.half_width[8] / (65 * 128) >= 1
    large = paper_plan(1000, 4096, 65, 1.0, 0.05)
    ratio = 2 * large.half_width / (65 * large.size)
    assert ratio[[9, 10, 12]] == pytest.approx([0.75, 0.53, 0.27], abs=0.015)
    best = best_plan(1000, 256, 65, 1.0, 0.05)
    assert not best.median_epsilon.any()
    assert best.counter_epsilon.sum() == pytest.approx(1)


def test_the_best_split_over_levels():
    width = np.array([1, 2, 5, 9])
    share = width ** (2 / 3) / (width ** (2 / 3)).sum()
    assert ((width / share) ** 2).sum() == pytest.approx(952, abs=0.5)
    assert ((width * 4) ** 2).sum() == 1776


def test_activation_counts():
    counts = [5, 1, 3, 8]
    user = np.repeat(np.arange(4), counts)
    arrivals = Arrivals(user, np.zeros(17, dtype=int), 4, 8, 1)
    assert collectable(arrivals, 4, aligned=False)[-1] == 12
    assert activation(arrivals, 4, 3, aligned=False) == 13
    assert activation(arrivals, 4, 4, aligned=False) == 18
