"""Numbers of a stream: right without noise, inside their intervals with it."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.mechanisms.running_sums import RunningSums
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.loss import PureDP
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import Allowance, ClosedStep

BOUND = ContributionBound(Fraction(30), Fraction(1), SpeedUnit.METRES_PER_SECOND)
BOTH = (Statistic.MEAN, Statistic.VARIANCE)


def sums(epsilon):
    allowance = Allowance(PureDP.of(epsilon), 30, 3, 2, 5, True)
    return RunningSums(BOTH, BOUND, Horizon(0, 1, 1, 0, 1), allowance, 0)


def closed(values, terms, noise=None):
    """One bin a row of ``values`` (G, N)."""
    values = np.asarray(values, dtype=np.int64)
    sums = np.stack([values.sum(axis=1), (values * (30 - values)).sum(axis=1)], axis=1)
    bins = len(values)
    whole = np.full(bins, values.shape[1])
    nothing = np.zeros(bins, dtype=np.int64)
    sums = sums if noise is None else sums + noise
    return ClosedStep(0, {}, np.arange(bins), nothing, whole, np.full(bins, 9), sums, np.full(bins, terms))


def estimated(subject, epsilon="1000000", level=0.9):
    return sums(epsilon).estimates(subject, interval_level=level)


def test_without_noise_they_are_mean_and_population_variance():
    values = [[3, 9, 30, 0], [7, 7, 7, 7], [0, 30, 30, 30]]
    found = estimated(closed(values, 1))
    assert found[Statistic.MEAN].value.tolist() == pytest.approx(np.mean(values, axis=1).tolist())
    assert found[Statistic.VARIANCE].value.tolist() == pytest.approx(np.var(values, axis=1).tolist())


def test_the_variance_of_one_fix_is_a_constant():
    found = estimated(closed([[9]], 1, noise=np.array([[400, 9000]])), "1")
    assert found[Statistic.VARIANCE].status.tolist() == [BinStatus.CONSTANT.value]
    assert (found[Statistic.VARIANCE].value, found[Statistic.VARIANCE].high) == (0, 0)


def test_useless_numbers_are_marked():
    useless = estimated(closed([[9, 8]], 1), "0.01")
    assert useless[Statistic.MEAN].status.tolist() == [BinStatus.UNINFORMATIVE.value]
    assert useless[Statistic.MEAN].expected_error.max() <= 15 + 0.5 + 0.5


@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize("truth", [[0] * 40, [15] * 40, [0] * 20 + [30] * 20, list(range(40))])
def test_intervals_hold_the_truth_as_often_as_they_say_and_errors_are_no_worse(terms, truth):
    runs, epsilon = 4000, "8"
    truth = np.minimum(truth, 30)
    subject = sums(epsilon).allowance
    source = SimulatedNoise(5)
    scales = np.tile([float(subject.mean_scale), float(subject.product_scale)], runs * terms)
    noise = source.discrete_laplace(scales).reshape(terms, runs, 2).sum(axis=0)
    found = estimated(closed(np.tile(truth, (runs, 1)), terms, noise), epsilon)
    for statistic, right in ((Statistic.MEAN, truth.mean()), (Statistic.VARIANCE, truth.var())):
        each = found[statistic]
        held = ((each.low <= right) & (right <= each.high)).mean()
        assert held >= 0.9 - 0.02
        assert np.abs(each.value - right).mean() <= each.expected_error[0] * 1.02
        assert ((each.low <= each.value) & (each.value <= each.high)).all()
