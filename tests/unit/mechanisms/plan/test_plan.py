import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.plan import PlanMechanism, Scaling
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import Samples

MEAN = Statistic.MEAN
PLANS = [PlanMechanism(), PlanMechanism(power=1), PlanMechanism(Scaling.PUBLIC), PlanMechanism(Scaling.NONE)]


@pytest.fixture
def city_of(counts_of, bound_of):
    def build(seed, users=30, bins=6, busy=0.5):
        random = np.random.default_rng(seed)
        numbers = random.geometric(0.3, (bins, users)) * (random.random((bins, users)) < busy)
        numbers[:, 0] = 1
        numbers[0] = np.maximum(numbers[0], 1)
        counts, bound = counts_of(numbers), bound_of(60, "1/10")
        value = random.integers(0, bound.upper_steps + 1, int(counts.count.sum()))
        return Samples(counts, value, np.arange(users), bound)

    return build


def means(samples):
    total = samples.contributions().total * float(samples.bound.step)
    return np.bincount(samples.counts.bin_index, total) / samples.counts.samples_per_bin


def test_a_vehicle_in_few_bins_pays_less_for_centres(counts_of, bound_of):
    counts = counts_of([[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]])
    loss = (
        event_of(PlanMechanism(), StatisticRequest(counts, bound_of(60), MEAN, np.array(1.0))).loss_per_user
        / 1e12
    )
    np.testing.assert_allclose(loss, [1, 0.25 / 4 + 0.75, 0])


@pytest.mark.parametrize("mechanism", PLANS, ids=lambda m: m.name)
@pytest.mark.parametrize("rho", [1e-6, 0.5, 1e6])
def test_estimates_stay_in_range_and_repeat_with_their_seed(mechanism, rho, city_of):
    samples = city_of(3)
    found = [mechanism.estimate(samples, MEAN, np.array(rho), SimulatedNoise(5)) for _ in range(2)]
    np.testing.assert_array_equal(*found)
    assert np.all((found[0] >= 0) & (found[0] <= 60))


class Recorded(SimulatedNoise):
    """Keeps the steps, and answers quantiles with ``share`` of their range where it is given."""

    def __init__(self, seed, share=None):
        super().__init__(seed)
        self.share, self.taken = share, []

    def select(self, ranks, values):
        self.taken.append(ranks)
        if self.share is None:
            return super().select(ranks, values)
        return np.array(self.share * ranks.high, dtype=np.int64)

    def measure(self, step, values):
        self.taken.append(step)
        self.values = values
        return super().measure(step, values)


@pytest.mark.parametrize("mechanism", PLANS, ids=lambda m: m.name)
@pytest.mark.parametrize("share", [None, 0.02, 0.3, 1.0])
def test_what_is_drawn_costs_no_vehicle_more_than_it_is_charged(mechanism, share, city_of):
    samples, rho = city_of(1), np.array(5.0)
    measure = Recorded(2, share)
    mechanism.estimate(samples, MEAN, rho, measure)
    foreseen = mechanism.steps(StatisticRequest(samples.counts, samples.bound, MEAN, rho))
    assert len(foreseen) == len(measure.taken) == (4 if mechanism.scaling is Scaling.PRIVATE else 3)
    *choices, total = zip(foreseen, measure.taken, strict=True)
    for before, after in choices:
        np.testing.assert_array_equal(before.loss(), after.loss())
    before, after = (step.loss() for step in total)
    assert np.all(after <= before)
    # the dearest two vectors of the vehicle that moves furthest pay it all
    assert after.max() == pytest.approx(before.max(), rel=1e-9)


@pytest.mark.parametrize("mechanism", PLANS, ids=lambda m: m.name)
@pytest.mark.parametrize("rho", [1e-9, 1e-12, 0.0, np.nan])
def test_a_rho_that_cannot_be_shared_out_is_refused(mechanism, rho, city_of):
    samples = city_of(1, bins=600)
    with pytest.raises(UsageError, match="rho"):
        event_of(mechanism, StatisticRequest(samples.counts, samples.bound, MEAN, np.array(rho)))


def test_the_spread_is_that_of_the_visitors_whatever_the_centre_s_bins(counts_of, bound_of):
    """Noise of a bin goes by 1/s, s = spread^(-2/(p+2)): it is read from the weights of the sums."""
    random, users = np.random.default_rng(3), 4_000
    width = np.array([0.5, 2.0, 8.0])
    counts, bound = counts_of(np.ones((3, users), dtype=np.int64)), bound_of(600, "1/100")
    speeds = np.clip(300 + random.normal(0, 1, (3, users)) * width[:, None], 0, 600)
    samples = Samples(counts, np.rint(speeds * 100).astype(np.int64).ravel(), np.arange(users), bound)
    measure = Recorded(1)
    PlanMechanism().estimate(samples, MEAN, np.array(2.0), measure)
    ball = measure.taken[-1].of
    # vectors are s (x - c), L = N: their spreads are s times the widths
    spread = np.array([measure.values[ball.support.coordinate == g].std() for g in range(3)])
    weight = (width + width.mean()) ** -0.5
    np.testing.assert_allclose(spread / width, weight, rtol=0.15)


@pytest.mark.slow
def test_unequal_bins_profit_from_scaling(counts_of, bound_of):
    random = np.random.default_rng(3)
    users, bins = 2_000, 24
    counts, bound = counts_of(np.ones((bins, users), dtype=np.int64)), bound_of(600, "1/10")
    width = np.where(np.arange(bins) < 2, 100.0, 2.0)[:, None]
    speeds = np.clip(300 + random.normal(0, 1, (bins, users)) * width, 0, 600)
    samples = Samples(counts, np.rint(speeds * 10).astype(np.int64).ravel(), np.arange(users), bound)
    truth, error = means(samples), {}
    for mechanism in (PlanMechanism(power=1), PlanMechanism(Scaling.NONE)):
        found = [mechanism.estimate(samples, MEAN, np.array(0.5), SimulatedNoise(s)) for s in range(12)]
        error[mechanism.name] = np.mean([np.abs(f - truth).sum() for f in found])
    assert error["plan_l1"] < 0.8 * error["plan_without_scaling"]
