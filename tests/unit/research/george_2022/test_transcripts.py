"""Sensitivity of whole transcripts: what is claimed equals brute force over arrival orders and values."""

from functools import lru_cache
from itertools import permutations, product

import numpy as np
import pytest

from trafficdp.research.george_2022.arrivals import Arrivals, paper_plan, prior_plan
from trafficdp.research.george_2022.paper_means import (
    Centre,
    known_prior_half_width,
    known_prior_scale,
    naive_price,
    single_price,
    truncate,
)


def nodes(elements):
    """All nodes that Algorithm 1 ever makes, in order, from the printed text."""
    live, made = {}, []
    for t, x in enumerate(elements, start=1):
        i = (t & -t).bit_length() - 1
        live[i] = sum(live.pop(j) for j in range(i)) + x
        made.append(live[i])
    return made


@lru_cache
def orders(users, samples):
    return sorted(set(permutations([u for u in range(users) for _ in range(samples)])))


def neighbours(order, samples, steps):
    """Values of vehicle 0 in both data sets, those of the others 0 or all steps."""
    own = [np.array(each) for each in product((0, steps), repeat=samples)]
    user = np.array(order)
    for others in (0, steps):
        for left in own:
            value = np.full(len(order), others)
            value[user == 0] = left
            yield value


def largest_change(transcripts):
    """The largest l1 distance of two of them."""
    stacked = np.array(transcripts)
    return max(int(np.abs(stacked - each).sum(axis=1).max()) for each in stacked)


@pytest.mark.slow
@pytest.mark.parametrize(("users", "samples"), [(1, 3), (2, 2), (3, 2), (2, 3), (2, 4), (4, 2)])
def test_the_naive_transcript_moves_by_exactly_its_price(users, samples):
    steps, worst = 3, 0
    for order in orders(users, samples):
        found = [nodes(value) for value in neighbours(order, samples, steps)]
        half = len(found) // 2
        worst = max(worst, largest_change(found[:half]), largest_change(found[half:]))
    assert worst == steps * naive_price(users, samples)
    assert naive_price(users, samples) <= samples * (users * samples).bit_length()


def level_elements(order, value, users, samples, steps):
    return Arrivals(np.array(order), value, users, samples, steps).elements


@pytest.mark.slow
@pytest.mark.parametrize(("users", "samples"), [(1, 4), (2, 2), (3, 2), (2, 4), (2, 3)])
def test_the_transcript_of_a_single_counter_moves_by_exactly_its_price(users, samples):
    steps, worst = 2, 0
    plan = prior_plan(users, samples, steps, 1.0, 0.1, prior=False)
    for order in orders(users, samples):
        found = []
        for value in neighbours(order, samples, steps):
            elements = level_elements(order, value, users, samples, steps)
            found.append(nodes(elements.value.tolist()))
        half = len(found) // 2
        worst = max(worst, largest_change(found[:half]), largest_change(found[half:]))
    # a stream of 3 samples never completes a third level, nor one of its vehicles
    if samples in (2, 4):
        assert worst == single_price(plan)
    assert worst <= single_price(plan) <= (users * len(plan.width)).bit_length() * plan.width.sum()


@pytest.mark.parametrize(("users", "samples"), [(1, 4), (2, 2), (3, 2), (2, 4), (2, 3)])
def test_the_transcript_of_a_counter_a_level_loses_exactly_what_is_claimed(users, samples):
    steps, worst = 2, 0.0
    plan = prior_plan(users, samples, steps, 1.0, 0.1, prior=False, best_split=True)
    scale = plan.scales()
    for order in orders(users, samples):
        weighted = []
        for value in neighbours(order, samples, steps):
            elements = level_elements(order, value, users, samples, steps)
            transcript = []
            for level in range(len(scale)):
                made = nodes(elements.value[elements.level == level].tolist())
                transcript += [each / scale[level] for each in made]
            weighted.append(transcript)
        half = len(weighted) // 2
        for part in (np.array(weighted[:half]), np.array(weighted[half:])):
            worst = max(worst, *(np.abs(part - each).sum(axis=1).max() for each in part))
    assert worst == pytest.approx(float(plan.loss().exact), rel=1e-9)
    assert worst <= 1.0


@pytest.mark.parametrize("numerator", [0, 1, 17, 40, 79, 80])
@pytest.mark.parametrize(("size", "half_width"), [(1, 3), (2, 5), (8, 11), (8, 30), (8, 200)])
def test_a_truncated_element_moves_by_at_most_its_width_and_can(size, half_width, numerator):
    steps = 10
    every = np.arange(steps * size + 1)
    centre = Centre(np.array([numerator]), 8)
    found = truncate(every, size, half_width, steps, centre)[0]
    width = min(steps * size, 2 * half_width)
    assert found.max() - found.min() <= width
    assert ((found == every) | (np.abs(8 * every - size * numerator) > 8 * half_width)).all()
    middle = size * numerator
    inside = middle % 8 == 0 and half_width * 8 <= middle <= 8 * (steps * size - half_width)
    if inside:
        assert found.max() - found.min() == width


def test_the_literal_number_of_levels_is_caught_by_brute_force():
    users, samples, steps = 2, 4, 2
    literal = paper_plan(users, samples, steps, 1.0, 0.1, counter_levels=2)
    right = paper_plan(users, samples, steps, 1.0, 0.1)
    for plan, expected in ((literal, 0.75), (right, 0.5)):
        # counters alone claim half of epsilon
        scale, worst = plan.scales(), 0.0
        for order in orders(users, samples):
            both = []
            for own in (0, steps):
                value = np.where(np.array(order) == 0, own, 0)
                elements = level_elements(order, value, users, samples, steps)
                both.append(
                    [n / scale[j] for j in range(3) for n in nodes(elements.value[elements.level == j])]
                )
            worst = max(worst, float(np.abs(np.array(both[0]) - both[1]).sum()))
        assert worst == pytest.approx(expected, rel=1e-9)


def test_the_wishful_counter_takes_one_element_a_vehicle():
    half_width = known_prior_half_width(50, 400, 10, 0.1)
    assert 2 * half_width < 10 * 400
    assert known_prior_scale(50, 400, 10, 1.0, 0.1) == pytest.approx(2 * half_width * 6, rel=1e-9)
    # few samples: the range itself
    assert known_prior_scale(50, 4, 10, 1.0, 0.1) == pytest.approx(40 * 6, rel=1e-9)
