import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.plan import plan as plan_module
from trafficdp.mechanisms.plan.clipped_vectors import LATTICE_BITS, clip_to_length, noisy_sum
from trafficdp.mechanisms.plan.iome_vectors import hadamard, iome_mean, rotate, rotate_back
from trafficdp.mechanisms.plan.plan import Plan, Scaling
from trafficdp.mechanisms.plan.plan_vectors import plan_mean
from trafficdp.mechanisms.plan.private_variance import pair_variances, private_variances
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.papers.aumuller_2023 import plan_binary_mean
from trafficdp.sensitive.samples import Samples

MEAN = Statistic.MEAN
PLANS = [Plan(), Plan(power=1), Plan(Scaling.PUBLIC), Plan(Scaling.NONE)]


class Quiet(SimulatedNoise):
    """Records standard deviations and adds nothing."""

    def discrete_gaussian(self, sd):
        self.sd = sd
        return np.zeros(sd.shape, dtype=np.int64)


@pytest.fixture
def city_of(counts_of, bound_of):
    def build(seed, users=30, bins=6, busy=0.5):
        random = np.random.default_rng(seed)
        numbers = random.geometric(0.3, (bins, users)) * (random.random((bins, users)) < busy)
        numbers[:, 0] = 1
        numbers[0] = np.maximum(numbers[0], 1)
        counts, bound = counts_of(numbers), bound_of(60, "1/10")
        value = random.integers(0, bound.steps + 1, int(counts.count.sum()))
        return Samples(counts, value, np.arange(users), bound)

    return build


def means(samples):
    total = samples.contributions().total * float(samples.bound.step)
    return np.bincount(samples.counts.bin_index, total) / samples.counts.samples_per_bin


def test_a_vehicle_in_few_bins_pays_less_for_centres(counts_of, bound_of):
    counts = counts_of([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]])
    loss = Plan().event(counts, bound_of(60), MEAN, 1.0).loss_per_user / 1e12
    np.testing.assert_allclose(loss, [1, 0.25 / 4 + 0.75, 0])


@pytest.mark.parametrize("mechanism", PLANS, ids=lambda m: m.name)
@pytest.mark.parametrize("rho", [1e-6, 0.5, 1e6])
def test_estimates_stay_in_range_and_repeat_with_their_seed(mechanism, rho, city_of):
    samples = city_of(3)
    found = [mechanism.estimate(samples, MEAN, rho, SimulatedNoise(5)) for _ in range(2)]
    np.testing.assert_array_equal(*found)
    assert np.all((found[0] >= 0) & (found[0] <= 60))


class Recorded(SimulatedNoise):
    """Keeps what is asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.scales, self.sds = [], []

    def choose(self, cost, weight, start, scale, runs=1):
        self.scales.append(scale)
        return super().choose(cost, weight, start, scale, runs)

    def discrete_gaussian(self, sd):
        self.sds.append(sd)
        return super().discrete_gaussian(sd)


@pytest.mark.parametrize("mechanism", PLANS, ids=lambda m: m.name)
@pytest.mark.parametrize("rho", [5.0, 40.0])
def test_what_is_drawn_costs_every_vehicle_what_it_is_charged(mechanism, rho, city_of):
    """A quantile of scale 2/eps is eps^2/8-zCDP; the sum moves by 2 * 2^30 steps where C is short."""
    samples, noise = city_of(1), Recorded(2)
    samples = Samples(samples.counts, samples.value // 100 + 300, samples.vehicle, samples.bound)
    mechanism.estimate(samples, MEAN, rho, noise)
    counts = samples.counts
    *of_bins, of_length = noise.scales
    assert len(of_bins) == (2 if mechanism.scaling is Scaling.PRIVATE else 1)
    cost = np.zeros(counts.users)
    for scale in of_bins:
        np.add.at(cost, counts.user_index, (1 / (2 * scale**2))[counts.bin_index])
    (of_sum,) = noise.sds
    assert len(np.unique(of_sum)) == 1
    cost += 1 / (2 * of_length[0] ** 2) + (2 * 2.0**LATTICE_BITS) ** 2 / (2 * of_sum[0] ** 2)
    charged = mechanism.event(counts, samples.bound, MEAN, rho).loss_per_user / 1e12
    here = counts.bins_per_user > 0
    assert np.all(cost[here] <= charged[here])
    # whole 10^-12 are charged
    np.testing.assert_allclose(cost[here], charged[here], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mechanism", PLANS, ids=lambda m: m.name)
@pytest.mark.parametrize("clip", [0.02, 0.2, 1.0])
def test_no_vehicle_moves_the_noisy_sum_by_more_than_its_noise_covers(mechanism, clip, city_of, monkeypatch):
    """Centre, spread and length held fixed: |difference|_2 <= sd sqrt(2 rho_3), in lattice steps."""
    rho, random = 0.7, np.random.default_rng(1)
    monkeypatch.setattr(
        plan_module,
        "exponential_quantile",
        lambda values, start, low, high, rank, scale, noise: (clip * high).astype(np.int64),
    )
    worst = 0.0
    samples = city_of(4, users=8, bins=4)
    counts = samples.counts
    centre, weight = random.uniform(20, 40, counts.bins), random.uniform(0.2, 2, counts.bins)
    limit = plan_module.largest_lengths(counts, weight, 60.0).max()
    unit = (
        (np.floor(clip * 2.0**plan_module.QUANTILE_BITS) + 1)
        / 2.0**plan_module.QUANTILE_BITS
        * limit
        * 2.0**-LATTICE_BITS
    )
    for user in range(counts.users):
        mine = counts.user_index == user
        for _ in range(12):
            ends = []
            total = samples.contributions().total * 0.1
            for _ in range(2):
                total = np.where(mine, counts.count * 60.0 * random.integers(0, 2, len(mine)), total)
                noise = Quiet(1)
                shift = mechanism._shift(samples, centre, weight, total, rho, noise)
                ends.append(shift * weight * counts.users / unit)
            moved = np.linalg.norm(ends[1] - ends[0])
            assert moved <= noise.sd[0] * np.sqrt(2 * rho * mechanism.budget.noise)
            worst = max(worst, moved / (noise.sd[0] * np.sqrt(2 * rho * mechanism.budget.noise)))
    assert worst > 0.3


def test_unequal_bins_profit_from_scaling(counts_of, bound_of):
    random = np.random.default_rng(3)
    users, bins = 2_000, 24
    counts, bound = counts_of(np.ones((bins, users), dtype=np.int64)), bound_of(600, "1/10")
    width = np.where(np.arange(bins) < 2, 100.0, 2.0)[:, None]
    speeds = np.clip(300 + random.normal(0, 1, (bins, users)) * width, 0, 600)
    samples = Samples(counts, np.rint(speeds * 10).astype(np.int64).ravel(), np.arange(users), bound)
    truth, error = means(samples), {}
    for mechanism in (Plan(power=1), Plan(Scaling.NONE)):
        found = [mechanism.estimate(samples, MEAN, 0.5, SimulatedNoise(s)) for s in range(12)]
        error[mechanism.name] = np.mean([np.abs(f - truth).sum() for f in found])
    assert error["plan_l1"] < 0.8 * error["plan_without_scaling"]


@pytest.mark.parametrize("factor", [2.0, np.sqrt(2)])
def test_clipped_vectors_are_never_too_long_for_their_noise(factor):
    random = np.random.default_rng(4)
    rho, length, ends = 0.3, 2.5, []
    y = random.normal(0, 5, (20, 6))
    y = np.abs(y) if factor < 2 else y
    for _ in range(2):
        noise = Quiet(1)
        ends.append(noisy_sum(y, length, rho, noise, factor=factor))
        y = y.copy()
        y[0] = np.eye(6)[1] * 9 if factor < 2 else -y[0]
    unit = length / 2.0**LATTICE_BITS
    assert np.linalg.norm(ends[1] - ends[0]) / unit <= noise.sd[0] * np.sqrt(2 * rho)
    np.testing.assert_allclose(np.linalg.norm(clip_to_length(y, 1e-3), axis=1), 1e-3)
    assert noisy_sum(y, 0.0, rho, noise).tolist() == [0] * 6


def test_a_rotation_keeps_lengths_and_comes_back():
    random = np.random.default_rng(1)
    x, signs = random.normal(size=(5, 8)), np.sign(random.normal(size=(3, 8)))
    turned = rotate(x, signs)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(x, axis=1))
    np.testing.assert_allclose(rotate_back(turned, signs), x, atol=1e-12)
    np.testing.assert_allclose(hadamard(np.eye(2)), np.array([[1, 1], [1, -1]]) / np.sqrt(2))
    assert hadamard(np.ones((1, 1))).tolist() == [[1.0]]


def test_pairs_use_every_row_once_and_average_in_groups():
    x = np.random.default_rng(1).normal(0, 3, (4_001, 2))
    for group in (1, 4):
        pairs = pair_variances(x, group, SimulatedNoise(2))
        assert pairs.shape == (4_001 // (2 * group), 2)
        np.testing.assert_allclose(pairs.mean(axis=0), [9, 9], rtol=0.15)


@pytest.mark.parametrize("group", [1, 4])
def test_private_variances_are_near_the_true_ones_over_orders_of_magnitude(group):
    sd = np.array([1e-3, 1.0, 40.0, 700.0])
    x = np.random.default_rng(1).normal(0, 1, (20_000, 4)) * sd
    found = private_variances(x, 5_000.0, 0.05, SimulatedNoise(2), group=group)
    np.testing.assert_allclose(np.sqrt(found), sd, rtol=0.1)


def test_vectors_with_ample_privacy_loss_are_estimated_well():
    x = np.random.default_rng(1).normal(7, 2, (4_000, 5))
    noise = SimulatedNoise(3)
    for found in (
        plan_mean(x, 100, 50.0, noise),
        plan_mean(x, 100, 50.0, noise, scaled=False),
        iome_mean(x, 100, 50.0, noise),
    ):
        np.testing.assert_allclose(found, x.mean(axis=0), atol=0.15)
    with pytest.raises(UsageError, match="PLAN needs"):
        plan_mean(x[:2], 100, 1.0, noise)


@pytest.mark.parametrize("scaled", [True, False])
def test_binary_vectors_are_estimated_well(scaled):
    random = np.random.default_rng(2)
    p = np.r_[np.full(8, 0.5), np.full(24, 0.01)]
    x = random.random((4_096, 32)) < p
    found = plan_binary_mean(x, 2.0, SimulatedNoise(1), scaled=scaled)
    assert np.abs(found - x.mean(axis=0)).max() < 0.05
