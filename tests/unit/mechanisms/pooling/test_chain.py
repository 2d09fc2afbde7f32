"""Each map starts from the one before: errors fall and stay low, and no map grows too sure of itself.

The sample city, other vehicles for every map: as many as there are, drawn with replacement. Its hexagons are
more alike than those that posteriors were tuned on, so that errors are stated too large with and without an
earlier map; what is tested is what the chain changes.
"""

from pathlib import Path

import numpy as np
import pytest

import trafficdp
from trafficdp.mechanisms.pooling.design import Design
from trafficdp.mechanisms.pooling.estimates import pooled
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import Counts, Knowledge, KnowledgeKind, KnownSpeeds, PlaceSpeeds, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind, PureDP
from trafficdp.sensitive import Contributions

pytestmark = [pytest.mark.store, pytest.mark.slow]
SAMPLE = Path(__file__).parents[4] / "data" / "sample"
EPSILON, LEAST_VEHICLES = 1, 5
SOURCE = Knowledge(kind=KnowledgeKind.RELEASE, name="r0001", sha256="0" * 64, share=0.6)


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    from trafficdp.engine.duckdb_reduce import read_samples
    from trafficdp.store.vault_fixes import data_version

    store = tmp_path_factory.mktemp("sample") / "store"
    city = trafficdp.open(SAMPLE / "trafficdp.toml", store=store, create=True)
    city.ingest(sorted(SAMPLE.glob("*.csv.gz")))
    grid = city.with_map(resolution=8).config.grid
    with city._curator("evaluation") as curator:
        asked = (grid, city.config.bound, data_version(curator.vault).ingest_id)
        return read_samples(curator.vault.connection, *asked).contributions()


def with_other_vehicles(data, draw):
    """As many vehicles as ``data`` has, drawn with replacement, in bins that enough of them visit."""
    counts = data.counts
    by_user = np.argsort(counts.user_index, kind="stable")
    first = np.searchsorted(counts.user_index[by_user], np.arange(counts.users + 1))
    drawn = draw.integers(counts.users, size=counts.users)
    pair = np.concatenate([by_user[first[each] : first[each + 1]] for each in drawn])
    user = np.repeat(np.arange(counts.users), np.diff(first)[drawn])
    enough = np.bincount(counts.bin_index[pair], minlength=counts.bins) >= LEAST_VEHICLES
    kept = enough[counts.bin_index[pair]]
    pair, user = pair[kept], user[kept]
    order = np.lexsort((user, counts.bin_index[pair]))
    pair, user = pair[order], user[order]
    there, index = np.unique(counts.bin_index[pair], return_inverse=True)
    return Contributions(
        counts=Counts(counts.cell[there], counts.slot[there], index, user, counts.count[pair], counts.users),
        total=data.total[pair],
        total_of_squares=data.total_of_squares[pair],
        vehicle=data.vehicle,
        bound=data.bound,
    )


def chain(city, maps, seed):
    """True and expected errors of every map, alone and from the one before, (maps, 2, 2)."""
    draw, before, found = np.random.default_rng(seed), None, []
    for number in range(maps):
        own = with_other_vehicles(city, draw)
        design = Design(own.counts, own.bound, LossKind.PURE, PureDP.of(EPSILON).pico, (Statistic.MEAN,))
        truth = true_statistic(own, Statistic.MEAN)
        known = KnownSpeeds.of([before] if before else [], own.counts.cell, own.counts.slot)
        both = []
        for each in (None, known):
            mean = pooled(design, own, SimulatedNoise(1000 * seed + number), each).means[Statistic.MEAN]
            both.append((np.abs(mean.value - truth).mean(), mean.error.mean()))
        found.append(both)
        before = PlaceSpeeds(SOURCE, own.counts.cell, None, mean.value)
    return np.array(found)


@pytest.mark.parametrize(("maps", "chains"), [(6, 4), pytest.param(30, 6, marks=pytest.mark.prove)])
def test_a_chain_stays_near_the_truth_and_as_sure_as_single_maps(city, maps, chains):
    found = np.mean([chain(city, maps, seed) for seed in range(chains)], axis=0)[1:]
    (alone, alone_said), (error, said) = found.mean(axis=0)
    assert error < 0.9 * alone
    assert 0.95 < (said / error) / (alone_said / alone) < 1.2
    late = found[-maps // 3 :, 1]
    assert late[:, 0].mean() < 1.15 * error
    assert 0.8 < (late[:, 1].mean() / late[:, 0].mean()) / (said / error) < 1.2
