"""IOME over all bins: what is drawn costs what is charged, and no vehicle moves the sum further than 2 C."""

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.plan import iome as iome_module
from trafficdp.mechanisms.plan import iome_vectors
from trafficdp.mechanisms.plan.clipped_vectors import BLOCK_CELLS, LATTICE_BITS, row_blocks
from trafficdp.mechanisms.plan.iome import IOME
from trafficdp.mechanisms.plan.iome_vectors import mean_in_place, padded_columns, rotate
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive.samples import Samples

MEAN = Statistic.MEAN


class Recorded(SimulatedNoise):
    """Keeps the standard deviations of all Gaussian draws; adds nothing where it is told so."""

    def __init__(self, seed, quiet=False):
        super().__init__(seed)
        self.sds, self.quiet = [], quiet

    def discrete_gaussian(self, sd):
        self.sds.append(np.array(sd))
        return np.zeros(sd.shape, dtype=np.int64) if self.quiet else super().discrete_gaussian(sd)


@pytest.fixture
def city_of(counts_of, bound_of):
    def build(seed, users=30, bins=6, busy=0.5):
        random = np.random.default_rng(seed)
        numbers = random.geometric(0.3, (bins, users)) * (random.random((bins, users)) < busy)
        numbers[:, 0] = 1
        counts, bound = counts_of(numbers), bound_of(60, "1/10")
        value = random.integers(0, bound.steps + 1, int(counts.count.sum()))
        return Samples(counts, value, np.arange(users), bound)

    return build


@pytest.mark.parametrize("rho", [1e-6, 0.3, 40.0])
@pytest.mark.parametrize("bins", [1, 5, 8])
def test_what_is_drawn_costs_what_is_charged(rho, bins, city_of):
    """One rank of every coordinate and of the lengths moves by 1, the sum by 2 * 2^30 steps: D^2/(2 sd^2)."""
    samples, noise = city_of(1, bins=bins), Recorded(2)
    IOME().estimate(samples, MEAN, rho, noise)
    *searches, of_sum = noise.sds
    assert [each.shape for each in searches] == [(20, padded_columns(bins)), (20, 1)]
    cost = sum((1 / (2 * each**2)).sum() for each in searches)
    # all entries of the sum get the same noise, for a sensitivity in l2
    assert len(np.unique(of_sum)) == 1
    assert of_sum.shape == (padded_columns(bins),)
    cost += (2 * 2.0**LATTICE_BITS) ** 2 / (2 * of_sum[0] ** 2)
    assert rho * (1 - 1e-9) <= cost <= rho
    event = IOME().event(samples.counts, samples.bound, MEAN, rho)
    assert np.all(event.loss_per_user[samples.counts.bins_per_user > 0] / 1e12 >= cost)


@pytest.mark.parametrize("clip", [0.01, 0.3, 1.0])
def test_no_row_moves_the_noisy_sum_by_more_than_its_noise_covers(clip, monkeypatch):
    """Signs, centre and length held fixed: at most 2 * 2^30 steps, and rows that turn round reach it."""
    random, rho, reach, shape = np.random.default_rng(1), 0.7, 50.0, (9, 16)
    centre = random.normal(0, 1, 16)
    monkeypatch.setattr(
        iome_vectors,
        "binary_search_quantiles",
        lambda x, low, *rest: np.array([clip * reach]) if low == 0 else centre,
    )
    signs = 2.0 * SimulatedNoise(3).uniform_below(np.full(48, 2, dtype=np.int64)).reshape(3, 16) - 1
    unit = clip * reach / 2.0**LATTICE_BITS
    x = random.normal(0, 10, shape)
    moved = []
    for trial in range(60):
        ends = []
        for side in (1, -1):
            x[trial % 9] = random.normal(0, 40, 16) if trial % 2 else side * reach * np.eye(16)[trial % 16]
            noise = Recorded(3, quiet=True)
            found = rotate(mean_in_place(x.copy(), reach, rho, noise)[None], signs)
            ends.append(found * len(x) / unit)
        moved.append(np.linalg.norm(ends[1] - ends[0]))
        assert moved[-1] <= noise.sds[-1][0] * np.sqrt(2 * rho * 0.75 * 0.99)
    assert max(moved) > 0.9 * 2 * 2.0**LATTICE_BITS


def test_no_vector_is_longer_than_the_public_range(city_of, monkeypatch):
    seen = {}

    def spied(vectors, reach, rho, noise):
        seen["lengths"], seen["reach"] = np.linalg.norm(vectors, axis=1), reach
        seen["mean"] = vectors.mean(axis=0)
        return np.zeros(vectors.shape[1])

    monkeypatch.setattr(iome_module, "mean_in_place", spied)
    samples = city_of(4)
    counts, steps = samples.counts, samples.bound.steps
    for constant in (0, steps):
        extreme = Samples(counts, np.full_like(samples.value, constant), samples.vehicle, samples.bound)
        IOME().estimate(extreme, MEAN, 1.0, SimulatedNoise(1))
        assert seen["lengths"].max() == pytest.approx(seen["reach"], rel=1e-12)
    IOME().estimate(samples, MEAN, 1.0, SimulatedNoise(1))
    assert np.all(seen["lengths"] <= seen["reach"] * (1 + 1e-12))
    total = np.bincount(counts.bin_index, samples.contributions().total) * 0.1
    # U/2 and the mean of all vectors are the means, exactly
    np.testing.assert_allclose(30 + seen["mean"][: counts.bins], total / counts.samples_per_bin)


def test_vehicles_that_were_nowhere_are_no_rows(counts_of, bound_of):
    counts = np.array([[3, 1, 2], [1, 0, 4]])
    more = np.insert(counts, 1, 0, axis=1)
    value, bound = np.random.default_rng(1).integers(0, 61, counts.sum()), bound_of(60)
    few = Samples(counts_of(counts), value, np.arange(3), bound)
    many = Samples(counts_of(more), value, np.arange(4), bound)
    np.testing.assert_allclose(
        IOME().estimate(few, MEAN, 5.0, SimulatedNoise(1)),
        IOME().estimate(many, MEAN, 5.0, SimulatedNoise(1)),
        rtol=1e-9,
    )
    assert IOME().event(many.counts, bound, MEAN, 5.0).loss_per_user.tolist() == [
        5 * 10**12,
        0,
        5 * 10**12,
        5 * 10**12,
    ]


def test_a_city_too_large_to_rotate_is_refused_when_it_is_priced(city_of, monkeypatch):
    samples = city_of(1)
    monkeypatch.setattr(iome_module, "LARGEST_CELLS", 30 * 8)
    IOME().event(samples.counts, samples.bound, MEAN, 1.0)
    monkeypatch.setattr(iome_module, "LARGEST_CELLS", 30 * 8 - 1)
    for call in (
        lambda: IOME().event(samples.counts, samples.bound, MEAN, 1.0),
        lambda: IOME().estimate(samples, MEAN, 1.0, SimulatedNoise(1)),
    ):
        with pytest.raises(UsageError, match="too large for iome") as refusal:
            call()
        assert "30 vehicles, 6 bins" in str(refusal.value)
        assert "coarser" in str(refusal.value)


def test_rows_and_columns_in_blocks_are_all_of_them():
    for rows, columns in ((1, 1), (7, BLOCK_CELLS), (1_000, 300), (3, 2 * BLOCK_CELLS)):
        taken = np.concatenate([np.arange(rows)[block] for block in row_blocks(rows, columns)])
        np.testing.assert_array_equal(taken, np.arange(rows))
    assert [padded_columns(n) for n in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]


def test_blocks_of_columns_are_searched_like_the_whole(monkeypatch):
    x = np.random.default_rng(1).normal(5, 3, (40, 16))
    found = []
    for cells in (1 << 20, 100):
        monkeypatch.setattr(iome_vectors, "COLUMN_CELLS", cells)
        found.append(mean_in_place(x.copy(), 30.0, 1e6, SimulatedNoise(1)))
    np.testing.assert_allclose(*found, atol=0.02)
