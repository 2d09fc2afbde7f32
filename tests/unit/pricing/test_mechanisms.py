"""Mechanisms of the registry have a second price: charges that hold pass, and any that is less is caught."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from trafficdp.bounding.best_fit import best_fit
from trafficdp.bounding.count_cap import CountCap
from trafficdp.bounding.wrap_around import wrap_around
from trafficdp.errors import AllocationError
from trafficdp.mechanisms.arrays.array_means import Grouping
from trafficdp.mechanisms.arrays.levy import Levy
from trafficdp.mechanisms.arrays.quantile import Quantile
from trafficdp.mechanisms.clipping.akmv import AKMV
from trafficdp.mechanisms.clipping.worst_case_clipping import WorstCaseClipping
from trafficdp.mechanisms.registry import PURE_MECHANISMS, ZCDP_MECHANISMS
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately, Part
from trafficdp.mechanisms.separate.calibrated_zcdp import CalibratedZCDP, ZCDPPart
from trafficdp.model.statistic import Statistic
from trafficdp.pricing.arrays import best_fitted, caps, wrapped
from trafficdp.pricing.check import check_calibrated
from trafficdp.pricing.exact import Losses, require_covered
from trafficdp.pricing.mechanisms import pure_losses
from trafficdp.pricing.moves import clipped_change
from trafficdp.privacy.loss import CHARGE_STEP

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
    for mechanism in PURE_MECHANISMS:
        amount = np.exp(random.uniform(-3, 2.5, (len(mechanism.statistics), counts.bins)))
        parts = zip(mechanism.statistics, amount, strict=True)
        yield CalibratedSeparately({statistic: Part(mechanism.name, epsilon) for statistic, epsilon in parts})
    for mechanism in ZCDP_MECHANISMS:
        rho = float(np.exp(random.uniform(-3, 2)))
        yield CalibratedZCDP({each: ZCDPPart(mechanism.name, rho) for each in mechanism.statistics})


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


@pytest.mark.parametrize("mechanism", PURE_MECHANISMS, ids=lambda each: each.name)
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


@pytest.mark.parametrize("mechanism", ZCDP_MECHANISMS, ids=lambda each: each.name)
def test_a_rho_that_was_raised_is_caught(mechanism, city_of, bound_of):
    counts, bound = city_of(5), bound_of(60, "1/10")
    charged = CalibratedZCDP({MEAN: ZCDPPart(mechanism.name, 0.5)}).event(counts, bound).loss_per_user
    with pytest.raises(AllocationError, match="would lose more"):
        check_calibrated(CalibratedZCDP({MEAN: ZCDPPart(mechanism.name, 0.501)}), counts, bound, charged)


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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", list(CountCap))
def test_arrays_made_anew_are_those_that_are_drawn_with(seed, rule, city_of):
    counts = city_of(seed, bins=5, users=40, most=(2, 9, 50, 300)[seed])
    cap = caps(counts, rule.value)
    np.testing.assert_array_equal(cap, rule.of(counts))
    for again, made in ((wrapped, wrap_around), (best_fitted, best_fit)):
        mine, theirs = again(counts, cap), made(counts, cap)
        np.testing.assert_array_equal(mine.arrays, theirs.per_bin)
        fills = theirs.fill[theirs.piece_array]
        pieces = [
            sorted(zip(*each, strict=True))
            for each in (
                (mine.pair.tolist(), mine.take.tolist(), mine.fill.tolist()),
                (theirs.piece_pair.tolist(), theirs.piece_count.tolist(), fills.tolist()),
            )
        ]
        assert pieces[0] == pieces[1]


@pytest.mark.parametrize("numbers", [[3, 1], [2, 2, 1], [4], [5, 1, 1], [1, 1]])
@pytest.mark.parametrize("rank", [1, 2, 3, 9])
def test_the_change_of_a_clipped_variance_is_that_of_brute_force(numbers, rank, counts_of, bound_of):
    counts, steps = counts_of([numbers]), 4
    found = clipped_change(counts, bound_of(steps), np.array([rank]))
    threshold = sorted(numbers, reverse=True)[rank - 1] if rank <= len(numbers) else 0
    cuts = [min(-(-steps * max(m - threshold, 0) // (2 * m)), steps // 2) for m in numbers]
    values = [range(cut, steps - cut + 1) for cut, m in zip(cuts, numbers, strict=True) for _ in range(m)]
    size, begin = sum(numbers), np.concatenate([[0], np.cumsum(numbers)])
    for user in range(len(numbers)):
        mine = range(begin[user], begin[user + 1])
        spread: dict[tuple[int, ...], list[int]] = {}
        for speeds in product(*values):
            total, square = sum(speeds), sum(speed**2 for speed in speeds)
            others = tuple(speed for i, speed in enumerate(speeds) if i not in mine)
            spread.setdefault(others, []).append(size * square - total**2)
        most = max(max(each) - min(each) for each in spread.values())
        # the least is over real speeds in the proof, so the price may be a little above the lattice's
        assert most <= found[user] <= most + size**2 // 4


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
