"""Calibrated mechanisms of a zCDP release: exact prices, intervals that hold, one question read back."""

import numpy as np
import pytest
from small_city import plan_request

from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic_map import PerStatisticMechanism, StatisticMechanism, mechanisms_of
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.registry import calibrated_from_facts, require_releasable
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.planner.allocate import allocate
from trafficdp.pricing import check_steps
from trafficdp.privacy.loss import ZCDP, LossKind
from trafficdp.sensitive import Samples, SensitiveInputs

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
OTHERS = [each.name for each in mechanisms_of(LossKind.ZCDP) if each.name != "gaussian_twin"]


def calibrated_of(name, rhos, counts, bound):
    parts = {statistic: StatisticMechanism(name, np.array(rho)) for statistic, rho in rhos.items()}
    return PerStatisticMechanism(PublicFacts(counts, bound), parts, LossKind.ZCDP)


def both_of(values):
    """Mean and variance by Gaussian noise, on the counts of ``values``."""
    known = values.contributions
    return calibrated_of("gaussian_twin", {MEAN: 0.5, VARIANCE: 0.25}, known.counts, known.bound)


SPEEDS = [
    [[0, 65, 65], [65, 0], [65], [0, 0]],
    [[30, 31], [29], [], [33, 28, 30]],
    [[65], [65], [65, 65], []],
    [[12]],
]


@pytest.fixture
def values_of(contributions_of, bound_of):
    def build(speeds, bound):
        width = max(len(each) for each in speeds)
        padded = [[*each, *[[]] * (width - len(each))] for each in speeds]
        city = contributions_of(padded, bound)
        flat = [v for of_bin in padded for of_user in of_bin for v in of_user]
        samples = Samples(city.counts, np.array(flat, dtype=np.int64), city.vehicle, bound)
        return SensitiveInputs(city, lambda: samples)

    return build


def drawn(values, calibrated, seed, level=0.9):
    noise = SimulatedNoise(np.random.default_rng(seed))
    return calibrated.run(values, noise, interval_level=level)


def test_losses_of_the_parts_add_up_vehicle_by_vehicle(values_of, bound_of):
    values = values_of(SPEEDS, bound_of(65))
    calibrated = both_of(values)
    both = calibrated.event().loss_per_user
    alone = [
        PerStatisticMechanism(calibrated.public, {s: part}, LossKind.ZCDP).event().loss_per_user
        for s, part in calibrated.parts.items()
    ]
    np.testing.assert_array_equal(both, alone[0] + alone[1])
    assert 0.74 < both.max() / 1e12 <= 0.75


@pytest.mark.slow
@pytest.mark.parametrize("runs", [300, pytest.param(1_500, marks=pytest.mark.prove)])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_gaussian_intervals_hold_the_statistic_in_every_bin(level, runs, values_of, bound_of):
    values = values_of(SPEEDS, bound_of(65))
    samples = values.read_samples()
    bins = np.repeat(samples.counts.bin_index, samples.counts.count)
    truth = {
        MEAN: np.array([samples.value[bins == g].mean() for g in range(samples.counts.bins)]),
        VARIANCE: np.array([samples.value[bins == g].var() for g in range(samples.counts.bins)]),
    }
    both = both_of(values)
    held = {statistic: np.zeros(samples.counts.bins) for statistic in truth}
    for seed in range(runs):
        for statistic, estimate in drawn(values, both, seed, level).items():
            inside = (estimate.low <= truth[statistic] + 1e-9) & (truth[statistic] <= estimate.high + 1e-9)
            held[statistic] += inside
    # four standard deviations of the share that holds
    slack = 4 * np.sqrt(level * (1 - level) / runs)
    for statistic in truth:
        assert np.all(held[statistic] / runs >= level - slack)


def test_what_is_published_prices_the_same(values_of, bound_of):
    values = values_of(SPEEDS, bound_of(65))
    both = both_of(values)
    columns = {statistic: each.noise for statistic, each in drawn(values, both, 1).items()}
    published, frozen = both.manifest_facts(), both.to_facts()
    again = calibrated_from_facts(published, both.public, columns)
    assert again.to_facts() == frozen == calibrated_from_facts(frozen, both.public).to_facts()
    np.testing.assert_array_equal(again.event().loss_per_user, both.event().loss_per_user)
    columns[MEAN] = {"rho": columns[MEAN]["rho"] * np.linspace(1, 2, both.public.counts.bins)}
    with pytest.raises(UsageError, match="one rho"):
        calibrated_from_facts(published, both.public, columns)


def test_errors_and_widths_are_known_before_the_noise(values_of, bound_of):
    values = values_of(SPEEDS, bound_of(65))
    both = both_of(values)
    foreseen = both.expected_errors()
    for statistic, estimate in drawn(values, both, 3).items():
        np.testing.assert_array_equal(estimate.expected_error, foreseen[statistic])
    assert foreseen[VARIANCE][-1] == 0
    assert both.half_widths(0.9)[VARIANCE][-1] == 0


@pytest.mark.parametrize("rho", [0.0, 1e-7, float("inf"), float("nan")])
def test_a_rho_out_of_range_is_never_priced(rho, counts_of, bound_of):
    with pytest.raises(UsageError, match="rho"):
        calibrated_of("gaussian_twin", {MEAN: rho}, counts_of([[1, 2]]), bound_of(65)).event()


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("rho", [1e-6, 0.3, 4e5])
def test_plan_draws_at_every_rho_that_is_priced_whatever_the_values(name, rho, values_of, bound_of):
    silent = [[[0] * len(each) for each in of_bin] for of_bin in SPEEDS]
    for speeds in (SPEEDS, silent):
        values = values_of(speeds, bound_of(65))
        rhos = {MEAN: rho, VARIANCE: rho}
        calibrated = calibrated_of(name, rhos, values.contributions.counts, bound_of(65))
        calibrated.event()
        mean, variance = drawn(values, calibrated, 5).values()
        assert np.all((mean.low == 0) & (mean.high == 65))
        # the variance of a single record is 0, and known to be
        alone = values.contributions.counts.samples_per_bin == 1
        assert np.all((variance.low == 0) & (variance.high == np.where(alone, 0, 65**2 / 4)))


# the first vehicle loses most by means, where it drives nearly alone, the second by variances
UNLIKE = [[9, 1, 0], [9, 1, 1], [0, 3, 3], [1, 3, 3], [0, 4, 5]]


@pytest.mark.parametrize("table", [[[3, 1, 0], [0, 2, 2], [1, 1, 4]], UNLIKE])
def test_an_allocation_costs_what_is_asked_and_never_more_and_treats_statistics_alike(
    table, counts_of, bound_of
):
    counts, bound = counts_of(table), bound_of(65)
    for text in ("0.000003", "0.7", "1", "12.345678901", "123456.789012345678"):
        request = plan_request(
            bound,
            ZCDP.of(text),
            {MEAN: 1.0, VARIANCE: 65.0},
            min_vehicles=2,
            mechanism={MEAN: "gaussian_twin", VARIANCE: "gaussian_twin"},
        )
        found = allocate(counts, request)
        assert found.loss <= request.loss
        # up to a part in 10^9, and 10^-12 a bin and statistic
        assert found.loss.pico >= request.loss.pico * (1 - 1e-9) - 4 * counts.bins
        assert len({float(part.loss) for part in found.calibrated.parts.values()}) == 1
        check_steps(found.calibrated.steps(), found.event.loss_per_user)


def test_a_statistic_that_a_mechanism_does_not_know_is_refused():
    for name in OTHERS:
        require_releasable(name, VARIANCE, LossKind.ZCDP)
        with pytest.raises(UsageError, match="vehicle mean"):
            require_releasable(name, Statistic.VEHICLE_MEAN, LossKind.ZCDP)


def test_the_sensitivity_that_is_stated_is_the_largest_of_the_bins(contributions_of, bound_of):
    """Two vehicles of 100 and 300 records below 2 km/h: the second moves the mean by 3/4 of 2."""
    city = contributions_of([[[1] * 100, [1] * 300]], bound_of(2))
    public = PublicFacts(city.counts, city.bound)
    found = PerStatisticMechanism(
        public, {MEAN: StatisticMechanism("baseline", np.full(1, 1.0))}, LossKind.PURE
    )
    assert "; 1.5 km/h at most" in found.statement(MEAN).sensitivity
    city = contributions_of([[[0] * 9] * 20], bound_of(2))
    public = PublicFacts(city.counts, city.bound)
    found = PerStatisticMechanism(
        public, {MEAN: StatisticMechanism("baseline", np.full(1, 1.0))}, LossKind.PURE
    )
    assert "; 0.1 km/h at most" in found.statement(MEAN).sensitivity
