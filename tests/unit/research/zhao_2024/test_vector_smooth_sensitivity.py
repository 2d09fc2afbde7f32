"""Vectors: distances against all subsets; S against every neighbour on lattices; the lemmas' constants."""

import itertools
import math

import numpy as np
import pytest

from trafficdp.bounding.huber import huber_point
from trafficdp.errors import UsageError
from trafficdp.research.zhao_2024.vector_smooth_sensitivity import (
    MARGIN,
    VectorHuberParameters,
    minimiser,
    typical_vector_sensitivity,
    vector_distance,
    vector_smooth_sensitivity,
)

FAR = 1e4
AROUND = FAR * np.array([[math.cos(a), math.sin(a)] for a in np.arange(24) * math.pi / 12])
PLACES = np.array([[0.0, 0.0], [1.0, 0.3], [0.2, 1.1], [-12.0, 15.0]])


def equal(users, threshold=4.0, dimensions=2, radius=20.0):
    return VectorHuberParameters(np.full(users, 1 / users), np.full(users, threshold), dimensions, radius)


def points(sets, shape):
    """Huber points of many data sets (k, n, d) of the same vehicles."""
    bins, users, dimensions = sets.shape
    where = np.repeat(np.arange(bins), users)
    weight, threshold = np.tile(shape.weight, bins), np.tile(shape.threshold, bins)
    return huber_point(
        sets.reshape(-1, dimensions), weight, threshold, where, bins, tolerance=1e-9, most_steps=20_000
    )


def smooth(y, shape, beta):
    return vector_smooth_sensitivity(y, shape, minimiser(y, shape), beta)


def worst_replacement(y, shape, users, places=AROUND):
    """The most that replacing one of ``users`` by one of ``places`` moves the estimate."""
    changed = np.repeat(y[None], len(users) * len(places), axis=0)
    for row, (user, place) in enumerate(itertools.product(users, places)):
        changed[row, user] = place
    moved = points(changed, shape) - points(y[None], shape)
    return float(np.linalg.norm(moved, axis=1).max())


def multisets(sizes, places):
    """All data sets of groups of like vehicles, as counts of each place, (groups, places)."""

    def compositions(total, parts):
        cuts = itertools.combinations(range(total + parts - 1), parts - 1)
        return [np.diff([-1, *cut, total + parts - 1]) - 1 for cut in cuts]

    return [np.array(rows) for rows in itertools.product(*(compositions(n, places) for n in sizes))]


CASES = [
    ((9,), [1 / 9], [4.0], PLACES, 0.4),
    ((12,), [1 / 12], [4.0], PLACES[[0, 1, 3]], 0.7),
    ((2, 7), [2 / 11, 1 / 11], [3.6, 4.0], PLACES[[0, 2, 3]], 0.4),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "weight", "threshold", "places", "beta"), CASES)
def test_s_bounds_the_local_sensitivity_and_is_smooth_on_whole_lattices(
    sizes, weight, threshold, places, beta
):
    group = np.repeat(np.arange(len(sizes)), sizes)
    shape = VectorHuberParameters(np.array(weight)[group], np.array(threshold)[group], 2, 20.0)
    table = {}
    below = 0
    for counts in multisets(sizes, len(places)):
        which = np.concatenate([np.repeat(np.arange(len(places)), row) for row in counts])
        y = places[which]
        found = table[counts.tobytes()] = smooth(y, shape, beta)
        if found < shape.upper:
            below += 1
            of_each = np.unique(np.stack([group, which]), axis=1, return_index=True)[1]
            local = worst_replacement(y, shape, of_each, np.concatenate([AROUND[::2], places]))
            assert local <= found * (1 + 1e-9)
    assert below > len(table) / 10  # the test is not about U alone
    ratios = [1.0]
    for key, found in table.items():
        counts = np.frombuffer(key, dtype=np.int64).reshape(len(sizes), len(places))
        for g, a, b in itertools.product(range(len(sizes)), range(len(places)), range(len(places))):
            if a != b and counts[g, a]:
                neighbour = counts.copy()
                neighbour[g, [a, b]] += [-1, 1]
                ratios.append(found / table[neighbour.tobytes()])
    assert max(ratios) <= math.exp(beta) * (1 + 1e-9)
    assert max(ratios) >= math.exp(beta) * (1 - 1e-6)  # attained


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_distance_equals_all_subsets_and_all_centres(dimensions):
    random = np.random.default_rng(dimensions)
    reached = set()
    for _ in range(12):
        users = int(random.integers(7, 10))
        weight = random.uniform(0.8, 1.2, users)
        shape = VectorHuberParameters(weight / weight.sum(), random.uniform(4, 5, users), dimensions, 20.0)
        y = random.normal(0, 0.7, (users, dimensions))
        y[: random.integers(0, 3)] += 6
        centre = minimiser(y, shape)
        every = shape.lattice.within(np.zeros(dimensions), 9.0 if dimensions < 3 else 4.0)
        apart = np.linalg.norm(every[:, None] - y, axis=2)
        for level in shape.levels:
            near = apart <= level.share * shape.threshold
            pull = apart * shape.weight

            def good(kept, near=near, pull=pull, limit=level.mean_limit):
                return bool((near[:, kept].all(axis=1) & (pull[:, kept].sum(axis=1) <= limit)).any())

            brute = next(
                (
                    size
                    for size in range(level.k0)
                    if any(good(list(kept)) for kept in itertools.combinations(range(users), users - size))
                ),
                level.k0,
            )
            found = vector_distance(
                y,
                shape.weight,
                level.share * shape.threshold,
                level.mean_limit,
                shape.lattice,
                centre,
                level.max_distance,
                level.k0,
            )
            assert found == brute
            reached.add(found)
    assert len(reached) >= 3


def test_the_minimiser_is_as_near_to_a_good_centre_as_the_search_assumes():
    random = np.random.default_rng(9)
    shape = equal(12)
    for level in shape.levels:
        for k in range(level.k0):
            y = random.normal(0, 1, (12, 2))
            y *= np.minimum(1, 0.99 * level.mean_limit / np.linalg.norm(y, axis=1).mean())
            lengths = np.linalg.norm(y, axis=1)
            y *= np.minimum(1, level.share * 4.0 / lengths)[:, None]
            y[:k] = AROUND[3] / FAR * 19
            assert np.linalg.norm(minimiser(y, shape)) <= level.max_distance[k]


def test_lemma_3_is_attained():
    shape = equal(8)
    y = np.concatenate([[[1.0, 0.0]], np.zeros((6, 2)), [[-1.0, 0.0]]])
    local = worst_replacement(y, shape, range(8))
    assert local == pytest.approx((4 + 1) / 7, rel=1e-6)
    assert local <= smooth(y, shape, 50.0) <= local * (1 + 1e-5)


def test_the_bound_beside_an_outlier_is_nearly_attained():
    # one replacement away from all equal: the outlier jumps to the other side
    shape = equal(9)
    y = np.concatenate([np.zeros((8, 2)), [[0.0, 18.0]]])
    local = worst_replacement(y, shape, [8])
    assert local == pytest.approx(2 * 4 / (9 - 1), rel=1e-6)
    assert local <= smooth(y, shape, 50.0) <= 1.1 * local


def test_the_iterate_is_within_what_is_added_of_the_minimiser():
    random = np.random.default_rng(4)
    shape = equal(40, dimensions=3)
    for _ in range(20):
        y = random.normal(0, 0.5, (40, 3))
        y[: random.integers(0, 4)] = random.normal(0, 9, 3)
        exact = huber_point(
            y,
            shape.weight,
            shape.threshold,
            np.zeros(40, dtype=np.int64),
            1,
            tolerance=1e-13,
            most_steps=10_000,
        )[0]
        assert smooth(y, shape, 1.0) < shape.upper
        # curvature above 1/2
        assert np.linalg.norm(minimiser(y, shape) - exact) <= 2 * shape.tolerance
    assert 4 * shape.tolerance < 1e-5 * smooth(np.zeros((40, 3)), shape, 1.0)


def test_the_steps_that_are_allowed_are_far_more_than_are_needed():
    shape = equal(12)
    y = np.concatenate([np.zeros((8, 2)), np.full((4, 2), 14.0)])
    few = huber_point(
        y,
        shape.weight,
        shape.threshold,
        np.zeros(12, dtype=np.int64),
        1,
        tolerance=shape.tolerance,
        most_steps=300,
    )[0]
    np.testing.assert_allclose(few, minimiser(y, shape))
    assert shape.most_steps > 2 * 40 * 4 / (MARGIN * 4) ** 2


def test_two_clusters_and_too_few_vehicles_have_no_bound_but_the_range():
    shape = equal(12)
    halves = np.concatenate([np.zeros((6, 2)), np.full((6, 2), 14.0)])
    assert smooth(halves, shape, 0.3) == shape.upper
    for users in (1, 2):
        assert smooth(np.zeros((users, 2)), equal(users), 0.3) == 40.0
    dominated = VectorHuberParameters(np.array([0.6, 0.1, 0.1, 0.1, 0.1]), np.full(5, 4.0), 2, 20.0)
    assert smooth(np.zeros((5, 2)), dominated, 0.3) == 40.0


@pytest.mark.parametrize("dimensions", [2, 4, 8])
def test_clean_sensitivity_is_about_that_of_normal_vectors(dimensions):
    users = 400
    normal = np.random.default_rng(6).normal(0, 1, (users, dimensions))
    largest = np.linalg.norm(normal, axis=1).max()
    shape = equal(users, threshold=4 * largest, dimensions=dimensions, radius=400.0)
    clean = typical_vector_sensitivity(shape, 0.1, spread=0.25, mean_spread=0.25 * 0.6)
    assert clean / 3 < smooth(normal, shape, 0.1) <= clean


def test_more_dimensions_keep_to_the_number_of_centres():
    for dimensions in range(1, 9):
        shape = equal(100, dimensions=dimensions)
        assert shape.levels
        assert all(shape.lattice.most_within(level.max_distance[-1]) <= 2_000_000 for level in shape.levels)


@pytest.mark.parametrize(
    ("weight", "threshold", "dimensions", "radius", "message"),
    [
        ([0.5, 0.6], [1, 1], 2, 5.0, "add up to 1"),
        ([1.5, -0.5], [1, 1], 2, 5.0, "add up to 1"),
        ([0.5, 0.5], [1, 1e-9], 2, 5.0, "threshold is too small"),
        ([0.5, 0.5], [1, math.inf], 2, 5.0, "threshold is too small"),
        ([0.5, 0.5], [1, 1, 1], 2, 5.0, "do not fit"),
        ([0.5, 0.5], [1, 1], 9, 5.0, "dimensions is out of range"),
        ([0.5, 0.5], [1, 1], 2, 0.0, "radius is not positive"),
    ],
)
def test_shapes_that_prove_nothing_are_refused(weight, threshold, dimensions, radius, message):
    with pytest.raises(UsageError, match=message):
        VectorHuberParameters(np.array(weight), np.array(threshold, dtype=float), dimensions, radius)


@pytest.mark.slow
@pytest.mark.parametrize(("dimensions", "users"), [(2, 60), (3, 40)])
def test_the_search_by_halves_finds_what_all_centres_give(dimensions, users):
    random = np.random.default_rng(12)
    shape = equal(users, dimensions=dimensions)
    reached = set()
    for _ in range(6):
        y = random.normal(0, random.uniform(0.3, 1.2), (users, dimensions))
        y[: users // 5, 0] += random.uniform(0, 4)
        centre = minimiser(y, shape)
        for level in shape.levels[::5]:
            arguments = (shape.weight, level.share * shape.threshold, level.mean_limit, shape.lattice)
            found = vector_distance(y, *arguments, centre, level.max_distance, level.k0)
            every = shape.lattice.within(centre, float(level.max_distance[-1]))
            brute = min(level.k0, int(_costs(every, y, *arguments[:3]).min()))
            assert found == brute
            reached.add(found)
    assert len(reached) > 3


def _costs(centres, y, weight, radius, mean_limit):
    """Replace whoever is outside, then the longest, until all is well: one centre at a time."""
    found = []
    for centre in centres:
        distance = np.linalg.norm(y - centre, axis=1)
        pull = np.sort((weight * distance)[distance <= radius])
        kept = np.searchsorted(np.cumsum(pull), mean_limit * (1 + 1e-12), side="right")
        found.append(len(y) - kept)
    return np.array(found)
