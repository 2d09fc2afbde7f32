"""Which bins share a parent, what parents count, and what consistency with them does to noise."""

from __future__ import annotations

from dataclasses import replace

import h3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import UsageError
from trafficdp.mechanisms.consistent.family import combine, combined_bias
from trafficdp.mechanisms.consistent.parents import Parents, h3_families


def children_of(cell):
    return sorted(h3.str_to_int(each) for each in h3.cell_to_children(cell))


TOWN = h3.latlng_to_cell(30.27, -97.74, 5)


def test_families_are_the_h3_parents_of_each_slot(counts_of):
    first, second = children_of(TOWN)[:2]
    fine = children_of(h3.int_to_str(first))
    # bins of three resolutions and two slots, in no order
    bins = [(fine[3], 0), (second, 0), (fine[0], 0), (fine[0], 7), (first, 7), (h3.str_to_int(TOWN), 0)]
    counts = replace(
        counts_of([[1]] * len(bins)),
        cell=np.array([cell for cell, _ in bins], dtype=np.uint64),
        slot=np.array([slot for _, slot in bins], dtype=np.int64),
    )
    family = h3_families(counts).tolist()
    above = [(h3.cell_to_parent(h3.int_to_str(cell)), slot) for cell, slot in bins]
    for one, mine in enumerate(above):
        for other, its in enumerate(above):
            assert (family[one] == family[other]) == (mine == its)
    assert sorted(set(family)) == list(range(len(set(above))))


def test_cells_without_a_parent_have_no_family(counts_of):
    coarsest = np.array([h3.str_to_int(each) for each in sorted(h3.get_res0_cells())[:2]], dtype=np.uint64)
    assert h3_families(replace(counts_of([[1], [2]]), cell=coarsest)).tolist() == [-1, -1]


@pytest.mark.parametrize("of", [[0, -1], [0, 0, 2, 2], [-2, 0, 0], [0, 0, 1]])
def test_parents_of_one_bin_or_with_gaps_are_refused(of):
    with pytest.raises(UsageError, match="at least two children"):
        Parents(np.array(of))


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_parents_count_what_their_children_count(counts_of, seed):
    random = np.random.default_rng(seed)
    table = random.poisson(0.7, (7, 5)) + np.eye(7, 5, dtype=int)
    table[5:, 0] += 1
    of = random.permutation(np.array([0, 0, 0, 1, 1, -1, -1]))
    parents, counts = Parents(of), counts_of(table)
    parent, user, _ = parents.pairs(counts)
    dense = np.zeros((2, 5), dtype=int)
    dense[parent, user] = parents.sums(counts, counts.count)
    np.testing.assert_array_equal(dense, [table[of == each].sum(axis=0) for each in range(2)])
    np.testing.assert_array_equal(parents.records(counts.samples_per_bin), dense.sum(axis=1))
    assert np.all(np.diff(parent * 5 + user) > 0)
    assert np.all(parents.sums(counts, counts.count) > 0)
    np.testing.assert_allclose(parents.total(parents.weights(counts.samples_per_bin)), 1.0)


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_combinations_are_those_of_dense_least_squares(seed):
    random = np.random.default_rng(seed)
    of = np.array([0, -1, 1, 0, 1, 0, -1])
    parents, bins = Parents(of), len(of)
    samples, reach = random.integers(1, 50, bins), random.uniform(0.05, 5, bins + 2)
    bias = random.uniform(0, 1, bins + 2)
    found = combine(parents, samples, reach)
    spread_bias = combined_bias(parents, samples, found, bias)
    for parent in range(2):
        mine = np.flatnonzero(of == parent)
        weight = samples[mine] / samples[mine].sum()
        items = [*mine.tolist(), bins + parent]
        design = np.vstack([np.eye(len(mine)), weight])
        precision = np.diag(1 / reach[items] ** 2)
        solve = np.linalg.solve(design.T @ precision @ design, design.T @ precision)
        place = np.flatnonzero(of[parents.children] == parent)
        np.testing.assert_allclose(
            found.spread[place], np.sqrt(np.sum((solve * reach[items]) ** 2, axis=1) / 3), rtol=1e-9
        )
        np.testing.assert_allclose(found.own[place], np.diag(solve[:, :-1]), rtol=1e-9)
        np.testing.assert_allclose(found.pull[place], solve[:, -1], rtol=1e-9)
        np.testing.assert_allclose(spread_bias[place], np.abs(solve) @ bias[items], rtol=1e-9)
        # no child is noisier than before
        assert np.all(found.spread[place] <= reach[mine] / np.sqrt(3) * (1 + 1e-12))
