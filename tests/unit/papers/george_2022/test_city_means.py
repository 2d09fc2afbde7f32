"""Means of many bins under one budget: the joint price is exact, and far below bins times the dearest."""

import numpy as np
import pytest

from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.papers.george_2022.arrivals import Arrivals
from trafficdp.papers.george_2022.city_means import CityMeans, PricedElements, equal_scales, loss_per_vehicle
from trafficdp.papers.george_2022.levelled import levelled_means
from trafficdp.papers.george_2022.levels import prior_plan
from trafficdp.papers.george_2022.withhold import WithholdRelease
from trafficdp.stream.tree import Tree, TreeKind

STEPS = 20


class Silent(SimulatedNoise):
    def discrete_laplace(self, scale):
        return np.zeros(scale.shape, dtype=np.int64)


def city(seed, vehicles=6, bins=4, records=300):
    """Pairs (bin * vehicles + vehicle), their bins and vehicles, and samples in the order of arrival."""
    random = np.random.default_rng(seed)
    pair = random.integers(0, bins * vehicles, records)
    number = np.arange(bins * vehicles)
    return pair, number // vehicles, number % vehicles, random.integers(0, STEPS + 1, records)


def test_every_bin_is_algorithm_five_on_its_own_samples():
    pair, pair_bin, _, value = city(1)
    means = CityMeans(4, 24, STEPS, 3, 3, np.full(7, 5.0))
    for part in np.array_split(np.arange(300), 9):
        means.append(pair[part], pair_bin, value[part])
    found = means.publish(Silent(1))
    for g in range(4):
        mine = pair_bin[pair] == g
        own = Arrivals(pair[mine] % 6, value[mine], 6, 64, STEPS)
        plan = prior_plan(6, 64, STEPS, 1.0, 0.1, prior=False)
        assert found[g] == levelled_means(own, plan, Silent(1), 1, np.array([mine.sum()]))[0, 0]
        assert means.contained()[g] >= mine.sum() / 2


def test_publications_are_free_and_the_same_until_samples_come():
    pair, pair_bin, _, value = city(2)
    means, source = CityMeans(4, 24, STEPS, 3, 3, np.full(7, 50.0)), SimulatedNoise(1)
    assert means.publish(source).tolist() == [STEPS / 2] * 4
    means.append(pair, pair_bin, value)
    first = means.publish(source)
    np.testing.assert_array_equal(means.publish(source), first)
    assert means.publish(SecureNoise()).shape == (4,)


@pytest.mark.parametrize("seed", range(4))
def test_the_joint_price_is_the_sum_over_elements_of_the_nodes_that_hold_them(seed):
    pair, pair_bin, pair_vehicle, value = city(seed, records=120)
    scale = np.random.default_rng(seed).uniform(3, 9, (4, 6))
    means = CityMeans(4, 24, STEPS, 5, 2, scale)
    priced = means.append(pair, pair_bin, value)
    loss = loss_per_vehicle(priced, pair_vehicle, 6) / 1e12
    used = Tree(5, TreeKind.SIGNED).touches(12)
    elements = WithholdRelease(24).append(pair, value)
    seen, expected = {}, np.zeros(6)
    for who, level in zip(elements.pair.tolist(), elements.level.tolist(), strict=True):
        g = who // 6
        place = seen[g, level] = seen.get((g, level), 0) + 1
        expected[who % 6] += STEPS * 2 ** max(level - 1, 0) * used[place - 1] / scale[g, level]
    np.testing.assert_allclose(loss, expected, rtol=1e-9)
    assert (loss >= expected - 1e-15).all()


def test_nobody_pays_more_than_the_budget_of_equal_scales():
    vehicles, bins, samples = 13, 5, 8
    scale = equal_scales(STEPS, samples, 3, bins, 1.0)
    pair = np.tile(np.arange(bins * vehicles), samples)
    number = np.arange(bins * vehicles)
    means = CityMeans(bins, bins * vehicles, STEPS, 3, 3, scale)
    priced = means.append(pair, number // vehicles, np.zeros(len(pair), dtype=int))
    loss = loss_per_vehicle(priced, number % vehicles, vehicles)
    assert loss.max() <= 10**12
    # the first vehicle everywhere touches all heights of all trees; others pay less
    assert loss[0] == pytest.approx(10**12, rel=1e-9)
    assert loss.mean() < 0.8 * 10**12


def test_the_price_of_the_next_element_covers_it():
    pair, pair_bin, _, value = city(5)
    means = CityMeans(4, 24, STEPS, 5, 2, np.linspace(3, 9, 7))
    for each, x in zip(pair, value, strict=True):
        ask = means.price_of_next(np.array([each]), pair_bin)[0]
        released = means.append(np.array([each]), pair_bin, np.array([x]))
        assert isinstance(released, PricedElements)
        assert (released.loss <= ask).all()
