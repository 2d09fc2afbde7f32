from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.linf_block import LinfBlock, one_block_a_bin, one_block_a_cell
from trafficdp.mechanisms.laplace.lattice import exact_integer
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive.samples import Samples

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
HOURS, PAIR = LinfBlock(), LinfBlock(one_block_a_bin)


@pytest.fixture
def samples_of(contributions_of):
    def build(values, bound, cells):
        city = contributions_of(values, bound)
        flat = [v for of_bin in values for of_user in of_bin for v in of_user]
        counts = replace(
            city.counts, cell=np.array(cells, dtype=np.uint64), slot=np.arange(len(cells), dtype=np.int64)
        )
        return Samples(counts, np.array(flat, dtype=np.int64), city.vehicle, bound)

    return build


def test_the_hours_of_a_cell_share_a_block(counts_of):
    counts = replace(counts_of([[1], [1], [1]]), cell=np.array([9, 4, 9], dtype=np.uint64))
    assert one_block_a_cell(counts).tolist() == [1, 0, 1]
    assert one_block_a_bin(counts).tolist() == [0, 1, 2]


@pytest.mark.parametrize("statistic", [MEAN, VARIANCE])
def test_a_vehicle_pays_for_its_cell_once(statistic, counts_of, bound_of):
    counts = replace(counts_of([[4, 4]] * 5), cell=np.array([1, 1, 1, 1, 2], dtype=np.uint64))
    event = HOURS.event(counts, bound_of(30), statistic, np.full(5, 0.5))
    # two blocks, of 4 and of 1
    assert event.loss.pico == pytest.approx(1.0e12, rel=1e-9)
    assert event.loss.pico <= 10**12
    separate = PAIR.event(counts, bound_of(30), statistic, np.full(5, 0.5))
    assert separate.loss.pico == pytest.approx(2.5e12, rel=1e-9)


def test_other_vehicles_pay_in_proportion_to_their_samples(counts_of, bound_of):
    counts = counts_of([[8, 4, 1]])
    loss = HOURS.event(counts, bound_of(30), MEAN, np.array([1.0])).loss_per_user / 1e12
    np.testing.assert_allclose(loss, [1, 0.5, 0.125], rtol=1e-3)
    assert np.all(loss >= [1 - 1e-9, 0.5, 0.125])


def test_epsilons_of_a_block_may_differ(counts_of, bound_of):
    counts = replace(counts_of([[4, 0], [4, 4]]), cell=np.array([1, 1], dtype=np.uint64))
    loss = HOURS.event(counts, bound_of(30), MEAN, np.array([3.0, 0.25])).loss_per_user / 1e12
    np.testing.assert_allclose(loss, [3.0, 0.25], rtol=1e-3)
    assert np.all(loss <= [3.0, 0.25])


@pytest.mark.parametrize("mechanism", [HOURS, PAIR])
@pytest.mark.parametrize("statistics", [(MEAN,), (VARIANCE,), (MEAN, VARIANCE)])
def test_the_lattice_distance_of_any_change_of_values_is_paid_for(
    mechanism, statistics, samples_of, bound_of
):
    """Every value of vehicle 0 in two bins, the others at the ends: ceil(|dV|/a) of each block over s."""
    bound, epsilon = bound_of(2), np.array([0.7, 1.3])
    own = list(product(range(3), repeat=3))
    paid = None
    for rest in product((0, 2), repeat=2):
        lattice = []
        for mine in own:
            values = [[list(mine[:2]), [rest[0]]], [[mine[2]], [rest[1], 0]]]
            samples = samples_of(values, bound, [7, 7])
            plan = mechanism.plan(samples.counts, bound, statistics, epsilon)
            exact = np.concatenate([exact_integer(s, samples.contributions()) for s in statistics])
            up, down = np.maximum(plan.shift, 0), np.maximum(-plan.shift, 0)
            lattice.append([(int(v) << int(u)) >> int(d) for v, u, d in zip(exact, up, down, strict=True)])
        v = np.array(lattice, dtype=float)
        steps = np.ceil(np.abs(v[:, None] - v[None, :]) / plan.half_width)
        cost = sum(steps[:, :, plan.block == b].max(axis=2) / s for b, s in enumerate(plan.scale))
        paid = mechanism.event_together(samples.counts, bound, statistics, epsilon).loss_per_user[0] / 1e12
        assert cost.max() <= paid * (1 + 1e-9)
    if statistics == (MEAN,):
        assert cost.max() == pytest.approx(paid, rel=1e-3)


def test_mean_and_variance_cost_one_and_a_half_times_one_of_them(counts_of, bound_of):
    counts, bound = counts_of([[3] * 40]), bound_of(65)
    single = PAIR.expected_error(counts, bound, MEAN, np.array([50.0]))[0]
    plan = PAIR.plan(counts, bound, (MEAN, VARIANCE), np.array([50.0]))
    both = PAIR.errors(counts, bound, (MEAN, VARIANCE), plan)
    # PAIR.errors are those of the noise; the expected error has the rounding of speeds besides
    assert both[0, 0] / (single - rounding_bias(MEAN, bound)) == pytest.approx(1.5, rel=0.01)
    event = PAIR.event_together(counts, bound, (MEAN, VARIANCE), np.array([50.0]))
    assert event.loss.pico <= 50 * 10**12
    assert event.statistics == (MEAN, VARIANCE)
    assert set(event.sensitivity) == {MEAN, VARIANCE}


@pytest.mark.parametrize("d", [1, 4])
def test_four_equal_bins_reach_the_golden_error_per_epsilon(d, counts_of, bound_of):
    # U m*/N = 13 in each of d bins: eps * E is 13 d separately and 13 (d + 1)/2 in a block (52 -> 32.5)
    counts = replace(counts_of([[2] * 10] * d), cell=np.ones(d, dtype=np.uint64))
    bound, epsilon = bound_of(130), np.full(d, 40.0)
    error = HOURS.expected_error(counts, bound, MEAN, epsilon) - rounding_bias(MEAN, bound)
    loss = HOURS.event(counts, bound, MEAN, epsilon).loss.epsilon
    np.testing.assert_allclose(error * float(loss), 13 * (d + 1) / 2, rtol=0.01)


@pytest.mark.parametrize("statistic", [MEAN, VARIANCE])
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_errors_and_intervals_are_as_promised(statistic, epsilon, samples_of, bound_of):
    bound, hours, runs = bound_of(30), 3, 1_500
    values = [[[10, 20, 30], [0, 5], [17]]] * hours
    samples = samples_of(values * runs, bound, np.repeat(np.arange(runs), hours))
    counts, each = samples.counts, np.full(hours * runs, epsilon)
    plan = HOURS.plan(counts, bound, (statistic,), each)
    found = HOURS.estimate(samples, statistic, each, SimulatedNoise(2))
    truth = [np.mean, np.var][statistic is VARIANCE]([10, 20, 30, 0, 5, 17])
    error = np.abs(found - truth)
    expected = HOURS.expected_error(counts, bound, statistic, each)[0]
    assert error.mean() <= expected + 4 * error.std() / np.sqrt(runs)
    half = HOURS.half_widths(counts, bound, (statistic,), plan, 0.8)[0, 0]
    reach = statistic.largest(30)
    inside = (np.clip(found - half, 0, reach) <= truth) & (truth <= np.clip(found + half, 0, reach))
    assert inside.mean() >= 0.8 - 4 * 0.4 / np.sqrt(runs)


def test_infinite_epsilon_adds_no_noise_and_tiny_ones_still_draw(samples_of, bound_of):
    samples = samples_of([[[1, 2], [30]], [[7], [9]]], bound_of(30), [1, 1])
    together = HOURS.estimate_together(samples, (MEAN, VARIANCE), np.full(2, np.inf), SimulatedNoise(1))
    np.testing.assert_allclose(together[0], [11, 8])
    np.testing.assert_allclose(together[1], [np.var([1, 2, 30]), 1])
    tiny = HOURS.estimate(samples, MEAN, np.full(2, 1e-6), SimulatedNoise(1))
    assert np.all((tiny >= 0) & (tiny <= 30))
    mixed = HOURS.estimate(samples, MEAN, np.array([np.inf, 1e-3]), SimulatedNoise(1))
    assert mixed[0] == 11


def test_a_variance_that_cannot_vary_is_exact_and_free(samples_of, bound_of):
    samples = samples_of([[[4]], [[7, 7]]], bound_of(30), [1, 1])
    found = HOURS.estimate(samples, VARIANCE, np.ones(2), SimulatedNoise(1))
    assert found[0] == 0
    alone = HOURS.event(replace(samples.counts), bound_of(30), VARIANCE, np.ones(2))
    assert alone.loss.pico == pytest.approx(1e12, rel=1e-9)


def test_large_statistics_are_floored_to_multiples(samples_of, bound_of):
    bound = bound_of(130, "1/1000")
    values = [[[65_000 + i for i in range(30)], [129_999] * 20]]
    samples = samples_of(values, bound, [1])
    plan = HOURS.plan(samples.counts, bound, (VARIANCE,), np.array([1e4]))
    assert plan.shift[0] < 0
    found = HOURS.estimate(samples, VARIANCE, np.array([1e4]), SimulatedNoise(1))[0]
    truth = np.var(np.concatenate([np.array(v) for v in values[0]])) * 1e-6
    assert found == pytest.approx(truth, rel=0.02)


def test_losses_without_noise_are_refused(counts_of, bound_of):
    with pytest.raises(UsageError, match="too large"):
        HOURS.event(counts_of([[1, 1]]), bound_of(30), MEAN, np.array([np.inf]))
    with pytest.raises(UsageError, match="cannot estimate"):
        HOURS.event(counts_of([[1, 1]]), bound_of(30), Statistic.VEHICLE_MEAN, np.ones(1))
