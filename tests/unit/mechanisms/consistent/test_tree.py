"""Consistency on trees against dense linear algebra, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from trafficdp.errors import UsageError
from trafficdp.mechanisms.consistent.tree import Tree, half_widths, make_consistent


def random_tree(random, depth=3):
    """Two trees with one to four children a node; leaves hold 1 to 30 records. Nodes in random order."""
    parent, levels = [-1, -1], [[0, 1]]
    for _ in range(depth - 1):
        level = []
        for node in levels[-1]:
            for _ in range(random.integers(0, 5)):
                level.append(len(parent))
                parent.append(node)
        levels.append(level)
    parent = np.array(parent)
    samples = np.zeros(len(parent), dtype=np.int64)
    for node in reversed(range(len(parent))):
        if node not in parent:
            samples[node] = random.integers(1, 31)
        if parent[node] >= 0:
            samples[parent[node]] += samples[node]
    place = random.permutation(len(parent))
    moved, sizes = np.empty_like(parent), np.empty_like(samples)
    moved[place] = np.where(parent >= 0, place[parent], -1)
    sizes[place] = samples
    return Tree(moved, sizes)


def leaf_weights(tree):
    """Every node's truth as a weighted mean of leaves: matrix (T, leaves)."""
    leaves = np.setdiff1d(np.arange(len(tree.parent)), tree.parent)
    matrix = np.zeros((len(tree.parent), len(leaves)))
    for column, leaf in enumerate(leaves):
        node = leaf
        while node >= 0:
            matrix[node, column] = tree.samples[leaf] / tree.samples[node]
            node = tree.parent[node]
    return matrix


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50)
def test_it_is_the_dense_least_squares_solution(seed):
    random = np.random.default_rng(seed)
    tree = random_tree(random)
    value = random.uniform(0, 60, len(tree.parent))
    variance = random.uniform(0.1, 20, len(tree.parent))
    design = leaf_weights(tree)
    information = design.T @ (design / variance[:, None])
    covariance = design @ np.linalg.inv(information) @ design.T
    expected = covariance @ (value / variance)
    found = make_consistent(tree, value, variance)
    assert found.value == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert found.variance == pytest.approx(np.diag(covariance), rel=1e-9)
    assert np.all(found.variance <= variance * (1 + 1e-12))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=50)
def test_missing_numbers_are_left_out_as_in_the_dense_solution(seed):
    random = np.random.default_rng(seed)
    tree = random_tree(random)
    variance = random.uniform(0.1, 20, len(tree.parent))
    variance[random.random(len(tree.parent)) < 0.3] = np.inf
    value = random.uniform(0, 60, len(tree.parent))
    design = leaf_weights(tree)
    measured = np.isfinite(variance)
    information = design[measured].T @ (design[measured] / variance[measured, None])
    inverse = np.linalg.pinv(information)
    # what can be estimated at all: rows in the span of the measured ones
    span = np.linalg.norm(design - design @ inverse @ information, axis=1) < 1e-8
    covariance = design @ inverse @ design.T
    expected = design @ inverse @ design[measured].T @ (value[measured] / variance[measured])
    found = make_consistent(tree, value, variance)
    assert np.array_equal(np.isfinite(found.variance), span)
    assert np.array_equal(np.isnan(found.value), ~span)
    assert found.value[span] == pytest.approx(expected[span], rel=1e-7, abs=1e-7)
    assert found.variance[span] == pytest.approx(np.diag(covariance)[span], rel=1e-7)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_children_make_up_their_parent_afterwards(seed):
    random = np.random.default_rng(seed)
    tree = random_tree(random)
    size = len(tree.parent)
    found = make_consistent(tree, random.uniform(0, 60, size), random.uniform(0.1, 20, size))
    inner = tree.parent >= 0
    mass = np.zeros(size)
    np.add.at(mass, tree.parent[inner], (found.value * tree.samples)[inner])
    parents = np.unique(tree.parent[inner])
    assert mass[parents] / tree.samples[parents] == pytest.approx(found.value[parents])


def test_the_two_level_formula_of_the_specification():
    tree = Tree(np.array([-1, 0, 0]), np.array([10, 4, 6]))
    found = make_consistent(tree, np.array([30.0, 20.0, 50.0]), np.array([2.0, 3.0, 5.0]))
    v_a = 0.4**2 * 3 + 0.6**2 * 5
    aggregate = 0.4 * 20 + 0.6 * 50
    parent = (aggregate / v_a + 30 / 2) / (1 / v_a + 1 / 2)
    assert found.value[0] == pytest.approx(parent)
    assert found.variance[0] == pytest.approx(1 / (1 / v_a + 1 / 2))
    assert found.value[1] == pytest.approx(20 + 3 * 0.4 / v_a * (parent - aggregate))


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_intervals_of_consistent_numbers_hold(level):
    random = np.random.default_rng(7)
    tree = Tree(np.array([-1, 0, 0, 0, 1, 1, 2, 2, 2, 3]), np.array([60, 20, 30, 10, 15, 5, 10, 10, 10, 10]))
    truth = leaf_weights(tree) @ random.uniform(0, 60, 6)
    scale = random.uniform(0.5, 4, 10)
    runs, covered = 20_000, np.zeros(10)
    width = half_widths(make_consistent(tree, truth, 2 * scale**2).variance, 1 - level)
    for _ in range(runs):
        found = make_consistent(tree, truth + random.laplace(0, scale), 2 * scale**2)
        covered += np.abs(found.value - truth) <= width
    # false alarm of all together below 1e-9
    assert np.all(binom.cdf(covered, runs, level) > 1e-10)


def test_counts_that_do_not_add_up_are_refused():
    with pytest.raises(UsageError, match="do not make up"):
        Tree(np.array([-1, 0, 0]), np.array([10, 4, 5]))


def test_parents_in_a_circle_are_refused():
    with pytest.raises(UsageError, match="circle"):
        make_consistent(Tree(np.array([1, 0]), np.array([3, 3])), np.ones(2), np.ones(2))


def test_a_variance_of_nothing_is_refused():
    with pytest.raises(UsageError, match="not positive"):
        make_consistent(Tree(np.array([-1]), np.array([3])), np.ones(1), np.zeros(1))
