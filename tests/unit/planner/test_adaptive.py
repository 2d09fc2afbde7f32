"""Adaptive maps: always a partition, never wider than asked, and the best there is in tiny cities."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples
from small_city import plan_request

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.planner.adaptive import PricedBins, largest_scale
from trafficdp.planner.request import DETAIL, AdaptiveSettings
from trafficdp.privacy.loss import PureDP

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
BOUND = ContributionBound(Fraction(60), Fraction(1), SpeedUnit.KILOMETRES_PER_HOUR)


def asked(bound=BOUND, *, epsilon=4.0, half_width=40.0, detail=DETAIL, tolerance=None, least=1, level=0.95):
    """What is asked of a map of several resolutions."""
    settings = AdaptiveSettings((8,), Fraction(half_width), Fraction(0), detail)
    tolerance = {MEAN: 1.0} if tolerance is None else tolerance
    return plan_request(bound, PureDP.of(epsilon), tolerance, least, level, adaptive=settings)


def adapt(fine, coarser, request):
    """The partition that is worth most at the loss that is asked for."""
    priced = PricedBins.of(fine, coarser, request, request.adaptive)
    return priced.partition(float(request.loss.exact))


def city(seed, counts_of, bins=8, users=5):
    """Eight finest cells, in pairs in four cells, in two cells of the coarsest level."""
    random = np.random.default_rng(seed)
    table = random.integers(0, 6, (bins, users)) * (random.random((bins, users)) < 0.7)
    table[:, 0] += table.sum(axis=1) == 0
    fine = counts_of(table)
    number = np.arange(bins)
    return fine, [
        (1000 + number.astype(np.uint64) // 2, fine.slot),
        (2000 + number.astype(np.uint64) // 4, fine.slot),
    ]


def merged(fine, bin_of):
    return fine.merged(bin_of.astype(np.uint64), np.zeros(fine.bins, dtype=np.int64)).counts


def all_choices(fine, coarser):
    """Every set of disjoint bins of any levels, as tuples of (level, finest bins)."""
    levels = [(fine.cell, fine.slot), *coarser]
    bins = {
        (level, tuple(np.flatnonzero(cell == each)))
        for level, (cell, _) in enumerate(levels)
        for each in np.unique(cell)
    }

    def extend(chosen, left):
        yield chosen
        for at, candidate in enumerate(left):
            inside = set(candidate[1])
            rest = [other for other in left[at + 1 :] if not inside & set(other[1])]
            yield from extend([*chosen, candidate], rest)

    yield from extend([], sorted(bins))


def value_of_the_best(fine, coarser, wish):
    """By looking at every choice and pricing it on its own merged counts."""
    best = 0.0
    scale = largest_scale(wish, wish.adaptive.unrounded_half_width)
    for chosen in all_choices(fine, coarser):
        if not chosen:
            continue
        bin_of = np.full(fine.bins, len(chosen))
        for at, (_, inside) in enumerate(chosen):
            bin_of[list(inside)] = at
        counts = merged(fine, bin_of)
        counts = counts.select(counts.cell < len(chosen))
        if counts.users_per_bin.min() < wish.min_vehicles:
            continue
        loss = LaplaceNoise.cheapest_within(counts, wish.bound, {MEAN: scale}).loss()
        if loss.max() * (1 + 2e-7) <= wish.loss.exact:
            worth = [1 + wish.adaptive.detail * (len(coarser) - level) for level, _ in chosen]
            best = max(best, float(np.dot(worth, counts.samples_per_bin)))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("cities", [2, pytest.param(15, marks=pytest.mark.prove(minutes=2))])
def test_tiny_cities_get_nearly_the_best_partition_there_is(counts_of, cities):
    shares = []
    for seed in range(cities):
        for width in (25.0, 60.0):
            fine, coarser = city(seed, counts_of)
            wish = asked(half_width=width)
            found, best = adapt(fine, coarser, wish), value_of_the_best(fine, coarser, wish)
            assert found.value <= best * (1 + 1e-12)
            assert found.bound >= best * (1 - 1e-12)
            shares.append(found.value / best if best else 1.0)
    assert min(shares) >= 0.8
    assert np.mean(shares) >= 0.98
    assert np.mean(np.array(shares) > 1 - 1e-12) >= 0.8


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), width=st.floats(5, 200), least=st.integers(1, 4))
@settings(max_examples=examples(15))
def test_every_finest_bin_lies_in_exactly_one_bin(seed, width, least, counts_of, bound_of):
    fine, coarser = city(seed, counts_of)
    found = adapt(fine, coarser, asked(bound_of(60), half_width=width, least=least))
    assert found.bin_of.shape == (fine.bins,)
    assert np.array_equal(np.unique(found.bin_of), np.arange(len(found.cell)))
    assert found.records.sum() == fine.count.sum()
    levels = [(fine.cell, fine.slot), *coarser]
    for finest, into in enumerate(found.bin_of):
        cell, slot = levels[found.level[into]]
        assert (cell[finest], slot[finest]) == (found.cell[into], found.slot[into])
    # a bin holds all finest bins of its cell on its level: so no two bins overlap
    for number, (cell, level) in enumerate(zip(found.cell, found.level, strict=True)):
        assert np.array_equal(
            np.flatnonzero(levels[level][0] == cell), np.flatnonzero(found.bin_of == number)
        )
    counts = merged(fine, found.bin_of)
    assert np.all(counts.users_per_bin[found.published] >= least)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), width=st.floats(2, 100), level=st.sampled_from([0.5, 0.9, 0.95, 0.999]))
@settings(max_examples=examples(15))
def test_published_intervals_are_no_wider_than_asked(seed, width, level, counts_of, bound_of):
    fine, coarser = city(seed, counts_of)
    bound, both = bound_of(60), {MEAN: 1.0, VARIANCE: 60.0}
    wish = asked(bound, epsilon=50.0, half_width=width, tolerance=both, level=level)
    found = adapt(fine, coarser, wish)
    counts = merged(fine, found.bin_of).select(found.published)
    if not counts.bins:
        return
    # the noise that spends all of epsilon on these bins
    noise = LaplaceNoise.cheapest_within(counts, bound, both)
    drawn = CalibratedLaplace.of(noise.scaled(noise.loss().max() / 50.0))
    assert np.all(drawn.half_widths(level)[MEAN] <= width)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(4))
def test_numbering_of_vehicles_and_names_of_cells_change_nothing(seed, counts_of, bound_of):
    fine, coarser = city(seed, counts_of)
    wish = asked(bound_of(60))
    found = adapt(fine, coarser, wish)
    random = np.random.default_rng(seed)
    user, place = random.permutation(fine.users), random.permutation(fine.bins)
    table = np.zeros((fine.bins, fine.users), dtype=np.int64)
    table[place[fine.bin_index], user[fine.user_index]] = fine.count
    moved = counts_of(table)
    back = np.argsort(place)
    names = [(cell[back], slot[back]) for cell, slot in coarser]
    other = adapt(moved, names, wish)
    assert other.value == pytest.approx(found.value, rel=1e-12)
    assert other.bound == pytest.approx(found.bound, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("cities", [2, pytest.param(25, marks=pytest.mark.prove)])
def test_more_epsilon_is_worth_no_less_in_tiny_cities(counts_of, bound_of, cities):
    for seed in range(cities):
        check_worth(seed, counts_of, bound_of)


def check_worth(seed, counts_of, bound_of):
    fine, coarser = city(seed, counts_of)
    wishes = [asked(bound_of(60), epsilon=epsilon) for epsilon in (1.0, 2.0, 4.0, 9.0)]
    values = [adapt(fine, coarser, wish).value for wish in wishes]
    assert values == sorted(values)


def test_a_vehicle_without_records_changes_nothing(counts_of):
    fine, coarser = city(5, counts_of)
    more = replace(fine, users=fine.users + 3)
    one, other = adapt(fine, coarser, asked()), adapt(more, coarser, asked())
    assert np.array_equal(one.bin_of, other.bin_of)
    assert np.array_equal(one.published, other.published)


def test_detail_buys_finer_bins_where_there_is_budget(counts_of):
    fine, coarser = city(3, counts_of)
    assert adapt(fine, coarser, asked(epsilon=1000.0)).bins_per_level(3).tolist() == [8, 0, 0]
    # without a wish for detail all that counts is how many records are covered
    assert adapt(fine, coarser, asked(epsilon=1000.0, detail=0.0)).coverage == 1.0


def test_slots_may_be_levels_as_well(counts_of):
    """Two cells, two hours each: by the hour, by the cell, or one of each."""
    table = [[3, 3, 3], [3, 3, 3], [1, 0, 9], [1, 1, 0]]
    fine = counts_of(table)
    fine = Counts(
        np.array([1, 1, 2, 2], dtype=np.uint64),
        np.array([8, 9, 8, 9]),
        fine.users_per_bin,
        fine.user_index,
        fine.count,
        fine.users,
    )
    whole = (fine.cell, np.zeros(4, dtype=np.int64))
    found = adapt(fine, [whole], asked(half_width=120.0, epsilon=2.2, detail=1.0))
    assert found.bins_per_level(2).tolist() == [2, 1]
    assert list(product([1], [8, 9])) == list(
        zip(found.cell[found.level == 0].tolist(), found.slot[found.level == 0].tolist(), strict=True)
    )


def test_levels_that_cut_one_another_are_refused(counts_of):
    fine, coarser = city(1, counts_of)
    crossed = (np.roll(coarser[1][0], 1), fine.slot)
    with pytest.raises(UsageError, match="not nested"):
        adapt(fine, [coarser[0], crossed], asked())
    with pytest.raises(UsageError, match="does not fit"):
        adapt(fine, [(coarser[0][0][:3], fine.slot[:3])], asked())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"half_width": 0.5}, "too small for the speed step"),
        ({"half_width": -1.0}, "not positive"),
        ({"detail": -0.1}, "detail is negative"),
        ({"tolerance": {VARIANCE: 1.0}}, "needs the mean"),
        ({"least": 0}, "out of range"),
        ({"level": 1.0}, "out of range"),
    ],
)
def test_a_wish_out_of_range_is_refused(counts_of, change, message):
    fine, coarser = city(1, counts_of)
    with pytest.raises(UsageError, match=message):
        adapt(fine, coarser, asked(**change))


def test_a_partition_needs_a_positive_loss(counts_of):
    fine, coarser = city(1, counts_of)
    wish = asked()
    with pytest.raises(UsageError, match="not positive"):
        PricedBins.of(fine, coarser, wish, wish.adaptive).partition(0.0)
