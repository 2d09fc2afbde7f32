"""Trees of any arity: unbiased sums, exact prices, and which is best."""

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.source import SimulatedNoise
from trafficdp.stream.tree import BINARY, Tree, TreeKind, best_tree, bit_length, mean_error

TREES = [Tree(k, TreeKind.PLAIN) for k in (2, 3, 4, 7)]
TREES += [Tree(k, TreeKind.AVERAGED) for k in (2, 3, 5)]
TREES += [Tree(k, TreeKind.SIGNED) for k in (3, 5, 7)]


class Recorded:
    """Unit vectors instead of noise: run r has noise 1 on draw number r and 0 on all others."""

    def __init__(self, runs):
        self.runs, self.seen = runs, 0

    def discrete_laplace(self, scale):
        size = len(scale) // self.runs
        node = np.zeros((self.runs, size), dtype=int)
        for i in range(size):
            node[self.seen + i, i] = 1
        self.seen += size
        return node.ravel()


def decoder(tree, length):
    """L[t - 1, node]: how much of each node's noise is in the running sum at t."""
    nodes = 4 * length + 20
    recorded = Recorded(nodes)
    path = tree.draw_noise(np.arange(1, length + 1), length, 1.0, recorded, nodes)
    return path[: recorded.seen].T


def encoder(tree, length):
    """R[node, element - 1], in the order in which nodes are drawn."""
    ends, starts = tree.edges(np.arange(length + 1), length)
    rows = []
    for j, (end, start) in enumerate(zip(ends, starts, strict=True)):
        size = tree.arity**j
        for i in range(max(end.max(), start.max())):
            row = np.zeros(length)
            row[i * size : (i + 1) * size] = 1
            rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 27, 31])
def test_sums_of_nodes_are_running_sums_and_the_variance_is_theirs(tree, length):
    decode = decoder(tree, length)
    # the future cancels
    np.testing.assert_allclose(decode @ encoder(tree, length), np.tri(length), atol=1e-12)
    at = np.arange(1, length + 1)
    np.testing.assert_allclose((decode**2).sum(axis=1), tree.variance(at, length), rtol=1e-12)


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 13, 14, 27, 40])
def test_the_price_is_the_number_of_used_nodes_that_hold_an_element(tree, length):
    used = np.any(decoder(tree, length) != 0, axis=0)
    held = encoder(tree, length)[used].sum(axis=0)
    np.testing.assert_array_equal(tree.nodes_per_element(length), held)
    assert held.max() <= tree.heights(length)


def test_the_tree_of_arity_two_is_the_binary_mechanism():
    for heights in range(1, 8):
        length = 2**heights - 1
        position = np.arange(1, length + 1)
        # the zeros among the lowest bits of position - 1
        bits = (position[:, None] - 1 >> np.arange(heights)) & 1
        np.testing.assert_array_equal(BINARY.nodes_per_element(length), heights - bits.sum(axis=1))
        assert BINARY.heights(length) == bit_length(length) == heights
    ones = [t.bit_count() for t in range(101)]
    np.testing.assert_array_equal(BINARY.variance(np.arange(101), 100), ones)


def test_averaging_is_the_best_of_all_estimates_from_below():
    # generalised least squares of a node from all nodes of its subtree
    tree = Tree(3, TreeKind.AVERAGED)
    rows = np.concatenate([np.eye(9), np.kron(np.eye(3), np.ones(3)), np.ones((1, 9))])
    covariance = np.linalg.inv(rows.T @ rows)
    assert tree.own_weights(3)[2] == pytest.approx(np.ones(9) @ covariance @ np.ones(9), rel=1e-12)


@pytest.mark.slow
def test_the_noise_has_the_variance_that_is_said():
    for tree in (BINARY, Tree(5, TreeKind.SIGNED), Tree(3, TreeKind.AVERAGED)):
        at = np.array([1, 7, 20, 50])
        path = tree.draw_noise(at, 50, 30.0, SimulatedNoise(8), 40_000)
        expected = tree.variance(at, 50) * 2 * 30.0**2
        np.testing.assert_allclose(path.var(axis=0), expected, rtol=0.05)
        np.testing.assert_allclose(path.mean(axis=0), 0, atol=5 * np.sqrt(expected.max() / 40_000))


@pytest.mark.slow
def test_the_best_tree_is_far_better_than_the_binary_mechanism():
    for length, gain in [(1_000, 1.9), (100_000, 2.2)]:
        best = best_tree(length)
        assert best.kind is TreeKind.SIGNED
        assert mean_error(BINARY, length) / mean_error(best, length) > gain
        adaptive = best_tree(length, adaptive=True)
        assert adaptive.kind is TreeKind.AVERAGED
        assert mean_error(best, length) < mean_error(adaptive, length) < mean_error(BINARY, length)


@pytest.mark.parametrize(("arity", "kind"), [(1, TreeKind.PLAIN), (4, TreeKind.SIGNED)])
def test_trees_that_do_not_exist_are_refused(arity, kind):
    with pytest.raises(UsageError):
        Tree(arity, kind)


def test_heights_may_have_noise_of_their_own_unless_they_are_averaged():
    tree, at = Tree(3, TreeKind.SIGNED), np.arange(1, 14)
    scales = np.array([5.0, 20.0, 80.0])
    path = tree.draw_noise(at, 13, scales, SimulatedNoise(1), 60_000)
    ends, starts = tree.edges(at, 13)
    expected = sum(2 * s**2 * np.abs(e - b) for s, e, b in zip(scales, ends, starts, strict=True))
    np.testing.assert_allclose(path.var(axis=0), expected, rtol=0.06)
    with pytest.raises(UsageError, match="not averaged"):
        Tree(3, TreeKind.AVERAGED).draw_noise(at, 13, scales, SimulatedNoise(1))


def test_bit_lengths_are_the_golden_ones():
    assert bit_length(np.array([1, 7, 8, 1000, 1024])).tolist() == [1, 3, 4, 10, 11]
    assert bit_length(0) == 0
    assert bit_length(2**40) == 41


def test_the_error_of_one_element_is_that_of_one_draw():
    # one node of scale 1, whose variance is 2
    assert mean_error(BINARY, 1) == pytest.approx(2**0.5, rel=1e-12)
    # the two largest accounts; sums of one node, one and two
    assert mean_error(BINARY, 3, 2) == pytest.approx(
        BINARY.nodes_per_element(3)[:2].sum() * (2 * 4 / 3) ** 0.5, rel=1e-12
    )
