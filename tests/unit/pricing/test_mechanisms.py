"""Mechanisms of the registry have a second price: charges that hold pass, and any that is less is caught."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import AllocationError
from trafficdp.mechanisms.arrays.array_means import Grouping
from trafficdp.mechanisms.arrays.projected import Levy, Quantile
from trafficdp.mechanisms.clipping.akmv import AKMV
from trafficdp.mechanisms.clipping.worst_case_clipping import WorstCaseClipping
from trafficdp.mechanisms.registry import mechanisms_of
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately, Part
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.check import check_calibrated
from trafficdp.pricing.exact import Losses, require_covered
from trafficdp.pricing.mechanisms import pure_losses
from trafficdp.privacy.loss import CHARGE_STEP
from trafficdp.privacy.loss_kind import LossKind

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


@pytest.fixture
def city_of(counts_of):
    def build(seed, bins=7, users=24, most=60):
        random = np.random.default_rng(seed)
        counts = random.geometric(1 / most, (bins, users)) * (random.random((bins, users)) < 0.5)
        counts[0, 0] = 9 * most
        return counts_of(counts)

    return build


def all_calibrated(counts, seed):
    """Every mechanism for everything that it knows, at epsilons of all sizes."""
    random = np.random.default_rng(seed)
    for mechanism in mechanisms_of(LossKind.PURE):
        amount = np.exp(random.uniform(-3, 2.5, (len(mechanism.statistics), counts.bins)))
        parts = zip(mechanism.statistics, amount, strict=True)
        yield CalibratedSeparately({statistic: Part(mechanism.name, epsilon) for statistic, epsilon in parts})


@pytest.mark.parametrize("seed", range(3))
def test_every_mechanism_s_charge_passes_and_a_step_less_of_the_worst_does_not(seed, city_of, bound_of):
    counts, bound = city_of(seed, most=(3, 60, 400)[seed]), bound_of(60, "1/10")
    for calibrated in all_calibrated(counts, seed):
        charged = calibrated.event(counts, bound).loss_per_user
        check_calibrated(calibrated, counts, bound, charged)
        less = charged.copy()
        # a pair's loss is rounded up by two units at most, that of either moment to the step; the change of
        # a clipped variance by less than one of its many steps
        room = 2 * int(counts.bins_per_user.max()) + CHARGE_STEP
        less[charged.argmax()] -= 2 * len(calibrated.statistics) * room + int(charged.max()) // 10**7
        with pytest.raises(AllocationError, match="1 vehicles would lose more"):
            check_calibrated(calibrated, counts, bound, less)


@pytest.mark.parametrize("mechanism", mechanisms_of(LossKind.PURE), ids=lambda each: each.name)
def test_an_epsilon_that_was_raised_is_caught(mechanism, city_of, bound_of):
    counts, bound, statistic = city_of(5), bound_of(60, "1/10"), mechanism.statistics[0]
    epsilon = np.full(counts.bins, 0.5)
    charged = CalibratedSeparately({statistic: Part(mechanism.name, epsilon)}).event(counts, bound)
    raised = np.where(np.arange(counts.bins) == 2, epsilon * 1.01, epsilon)
    with pytest.raises(AllocationError, match="would lose more"):
        check_calibrated(
            CalibratedSeparately({statistic: Part(mechanism.name, raised)}),
            counts,
            bound,
            charged.loss_per_user,
        )


def test_a_mechanism_without_a_price_of_its_own_is_held_to_epsilon_for_every_visitor(city_of, bound_of):
    class Unknown:
        """Not priced by any theorem here."""

    counts, bound, epsilon = city_of(6), bound_of(60), np.full(7, 0.25)
    losses = pure_losses(Unknown(), counts, bound, MEAN, epsilon)
    visits = counts.bins_per_user * (10**12 // 4)
    require_covered(lambda: losses, visits)
    visits[3] -= 1
    with pytest.raises(AllocationError, match="1 vehicles would lose more"):
        require_covered(lambda: losses, visits)


def test_thousands_of_different_epsilons_are_charged_as_they_are_drawn(counts_of, bound_of):
    """Scales of many bins are rounded up together, those of some intervals alone are not."""
    bins = 5_200
    counts, bound = counts_of(np.tile([[9, 7, 5]], (bins, 1))), bound_of(60)
    epsilon = np.linspace(0.5, 0.9, bins)
    for mechanism in (Levy(Grouping.BEST_FIT), Quantile()):
        charged = mechanism.event(counts, bound, MEAN, epsilon).loss_per_user
        losses = pure_losses(mechanism, counts, bound, MEAN, epsilon)
        require_covered(lambda losses=losses: losses, charged)


def test_without_an_epsilon_or_noise_nothing_is_priced(city_of, bound_of):
    counts, bound = city_of(1), bound_of(60)
    for wrong in (0.0, np.nan, np.inf, -1.0):
        epsilon = np.where(np.arange(counts.bins) == 1, wrong, 1.0)
        with pytest.raises(AllocationError, match="without an epsilon"):
            pure_losses(AKMV(), counts, bound, MEAN, epsilon)
    with pytest.raises(AllocationError, match="without an epsilon"):
        pure_losses(WorstCaseClipping(), counts, bound, MEAN, np.ones(2))


def test_sums_are_compared_to_the_last_fraction():
    third = Losses(
        np.zeros(3, dtype=np.int64), np.array([1] * 3, dtype=object), np.array([3] * 3, dtype=object)
    )
    require_covered(lambda: [third], np.array([10**12]))
    with pytest.raises(AllocationError):
        require_covered(lambda: [third], np.array([10**12 - 1]))
    more = third.times(Fraction(10**15 + 1, 10**15))
    with pytest.raises(AllocationError):
        require_covered(lambda: [more], np.array([10**12]))
    require_covered(lambda: [more], np.array([10**12 + 1]))
