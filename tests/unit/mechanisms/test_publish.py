"""Clamp, interval and status, each decided in one place for every family of mechanisms."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.mechanisms import publish
from trafficdp.mechanisms.laplace.calibrated import calibrated_for
from trafficdp.mechanisms.per_statistic_map import PerStatisticMechanism, StatisticMechanism
from trafficdp.mechanisms.protocol import PublicFacts, StatisticRequest
from trafficdp.mechanisms.publish import NumberLaw
from trafficdp.model import OF_MAPS, Statistic

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN


def published(statistic, values, half_width, bound, mean=None):
    ones = np.ones(len(values))
    law = NumberLaw(ones, ones, ones, ones * half_width)
    return publish.publish_estimate(statistic, np.array(values, dtype=float), law, {}, bound, mean)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (0.0, "constant"),
        (1e-9, "released"),
        (7.5, "released"),
        (7.5001, "uninformative"),
        (60.0, "uninformative"),
    ],
)
def test_a_status_follows_from_the_expected_error_alone(bound_of, error, status):
    rounding = publish.rounding_bias(MEAN, bound_of(60))
    found = publish.status_of(np.array([error + rounding if error else 0.0]), MEAN, bound_of(60))
    assert found.tolist() == [status]


def test_the_limit_of_a_variance_is_a_share_of_its_own_range(bound_of):
    most = 112.5 + publish.rounding_bias(VARIANCE, bound_of(60))
    found = publish.status_of(np.array([most, most + 0.5]), VARIANCE, bound_of(60))
    assert found.tolist() == ["released", "uninformative"]


def test_numbers_are_clamped_to_their_range(bound_of):
    for statistic, reach in ((MEAN, 60.0), (VEHICLE_MEAN, 60.0), (VARIANCE, 900.0)):
        found = published(statistic, [-5.0, 30.0, 2000.0], 10.0, bound_of(60))
        assert found.value.tolist() == [0.0, 30.0, reach]
        # around the clamped number, and clamped again
        assert found.low.tolist() == [0.0, 20.0, reach - 10]
        assert found.high.tolist() == [10.0, 40.0, reach]


def test_a_variance_beside_a_mean_is_at_most_what_that_mean_allows(bound_of):
    bound = bound_of(60)
    mean = published(MEAN, [0.0, 10.0, 30.0], 1.0, bound)
    found = published(VARIANCE, [100.0, 600.0, 600.0], 50.0, bound, mean)
    assert found.value.tolist() == [0.0, 500.0, 600.0]
    # the lower end follows the number, the upper end does not: the mean is noisy too
    assert found.low.tolist() == [0.0, 500.0, 550.0]
    assert found.high.tolist() == [150.0, 650.0, 650.0]


@pytest.mark.parametrize(("epsilon", "status"), [(0.7857, "released"), (0.726, "uninformative")])
def test_the_same_noise_has_the_same_status_in_every_kind_of_calibrated(counts_of, bound_of, epsilon, status):
    """10 vehicles, 3 records each: off by 7.50 of 60 or by 8.05, where an eighth and rounding are 8.02."""
    city, bound = counts_of([[3] * 10]), bound_of(60)
    epsilons = np.array([epsilon])
    laplace = calibrated_for(StatisticRequest(city, bound, MEAN, epsilons))
    separate = PerStatisticMechanism(
        PublicFacts(city, bound), {MEAN: StatisticMechanism("baseline", epsilons)}
    )
    for calibrated in (laplace, separate):
        error = calibrated.expected_errors()[MEAN]
        assert publish.status_of(error, MEAN, bound).tolist() == [status]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["2", "1/50"])
@pytest.mark.parametrize("statistic", OF_MAPS)
def test_rounding_moves_a_statistic_by_at_most_its_stated_bias(statistic, step, bound_of):
    """Speeds in m/s are rounded to hundredths, then in km/h to the step: either can be the coarser."""
    random = np.random.default_rng(4)
    bound, width = bound_of(10, step), float(Fraction(step))
    bias, worst = publish.rounding_bias(statistic, bound), 0.0
    for _ in range(3_000):
        sizes = random.integers(1, 4, 2)
        ends = np.concatenate([np.linspace(0, 0.3, 97), np.linspace(2.5, 2.8, 97)])
        reported = [random.choice(ends, size) for size in sizes]
        values = [np.clip(v * 3.6, 0, 10) for v in reported]
        hundredths = [np.clip(np.rint(v * 100) * 0.036, 0, 10) for v in reported]
        rounded = [np.floor(v / width + 0.5) * width for v in hundredths]
        if statistic is VEHICLE_MEAN:
            whole = [np.floor(r.mean() / width + 0.5) * width for r in rounded]
            moved = np.mean(whole) - np.mean([v.mean() for v in values])
        else:
            measure = np.mean if statistic is MEAN else np.var
            moved = measure(np.concatenate(rounded)) - measure(np.concatenate(values))
        worst = max(worst, abs(moved))
    assert bias / 2 < worst <= bias * (1 + 1e-12)
