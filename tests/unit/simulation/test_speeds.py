"""Speeds on public counts: sums of whole records, the spreads that are asked, many cities at once."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from trafficdp.binning.cells import cells_of, centres_of
from trafficdp.errors import UsageError
from trafficdp.model import ContributionBound, Counts, SpeedUnit
from trafficdp.simulation import city
from trafficdp.simulation.city import (
    MOST_DRAWN,
    CityModel,
    batches_of_size,
    draws_per_pair,
    simulated_records,
    simulated_truths,
    variations,
)

BOUND = ContributionBound(Fraction(30), Fraction(1, 100), SpeedUnit.METRES_PER_SECOND)
CITIES = 40


def counts_of(slots=1, vehicles=120, seed=3):
    random = np.random.default_rng(seed)
    latitude, longitude = np.meshgrid(np.linspace(45, 45.3, 12), np.linspace(-30, -29.6, 12))
    cell = np.unique(cells_of(latitude.ravel(), longitude.ravel(), 7))
    bins = len(cell) * slots
    key = np.unique(random.integers(0, bins, 40 * bins) * vehicles + random.integers(0, vehicles, 40 * bins))
    bin_index, user = np.divmod(key, vehicles)
    # a record for some, very many for others; and cells differ in records a visit
    dwell = np.repeat(random.uniform(0.005, 0.5, len(cell)), slots)[bin_index]
    return Counts(
        np.repeat(cell, slots), np.tile(np.arange(slots), len(cell)), np.bincount(bin_index), user,
        random.geometric(dwell), vehicles,
    )  # fmt: skip


COUNTS = counts_of()


def truths(name="usual", counts=COUNTS, **changes):
    given = {"seed": 1, "cities": CITIES, **changes}
    return simulated_truths(counts, BOUND, variations()[name], **given)


def test_sums_are_the_same_without_their_squares():
    found = truths(cities=2, squares=False)
    np.testing.assert_array_equal(found.total, truths(cities=2).total)
    assert not found.total_of_squares.any()


def test_sums_are_those_of_as_many_whole_records_as_counted():
    found = truths(cities=3)
    assert found.total.shape == found.total_of_squares.shape == (3, COUNTS.pairs)
    assert COUNTS.count.max() > 2 * MOST_DRAWN
    assert draws_per_pair(COUNTS)[0] == MOST_DRAWN
    assert found.total.min() >= 0
    assert (found.total <= COUNTS.count * BOUND.upper_steps).all()
    # Cauchy and Schwarz, and a square of a value in [0, U] is at most U times it
    assert (found.total_of_squares * COUNTS.count >= found.total**2).all()
    assert (found.total_of_squares <= found.total * BOUND.upper_steps).all()
    one = COUNTS.count == 1
    np.testing.assert_array_equal(found.total_of_squares[:, one], found.total[:, one] ** 2)


@pytest.mark.parametrize(("at_once", "at_all"), [(1 << 21, 3_000_000), (500, 3_000_000), (500, 1)])
def test_the_truth_of_a_bin_is_that_of_its_records(at_once, at_all, monkeypatch):
    monkeypatch.setattr(city, "_AT_ONCE", at_once)
    monkeypatch.setattr(city, "MOST_AT_ALL", at_all)
    found = truths(cities=1)
    value = simulated_records(COUNTS, BOUND, variations()["usual"], seed=1) * 0.01
    of = np.repeat(COUNTS.bin_index, COUNTS.count)
    assert len(value) == COUNTS.count.sum()
    # the same city, also where not every record of a pair is drawn
    mean = np.bincount(of, value) / COUNTS.samples_per_bin
    np.testing.assert_allclose(found.means()[0], mean, rtol=1e-12)
    variance = np.bincount(of, value**2) / COUNTS.samples_per_bin - mean**2
    np.testing.assert_allclose(found.variances()[0], variance, atol=1e-9)


def test_of_more_records_fewer_are_drawn_of_every_pair_and_cells_stay_as_they_are(monkeypatch):
    every = truths()
    all_drawn = np.minimum(COUNTS.count, MOST_DRAWN).sum()
    for at_all, most in ((all_drawn, 64), (all_drawn - 1, 32), (1, 4)):
        monkeypatch.setattr(city, "MOST_AT_ALL", at_all)
        assert draws_per_pair(COUNTS) == (most, np.minimum(COUNTS.count, most).sum())
    few = truths()
    assert (few.total != every.total).any()
    assert few.means().mean() == pytest.approx(every.means().mean(), rel=0.01)
    # a bin of forty vehicles is more of a chance where four stand for hundreds
    assert few.means().std(axis=1).mean() == pytest.approx(every.means().std(axis=1).mean(), rel=0.05)
    assert few.variances().mean() == pytest.approx(every.variances().mean(), rel=0.05)


def test_a_city_depends_on_its_number_and_seed_alone():
    many, few = truths(cities=5), truths(cities=2)
    np.testing.assert_array_equal(many.total[:2], few.total)
    np.testing.assert_array_equal(many.total_of_squares[:2], few.total_of_squares)
    assert (many.total[0] != many.total[1]).any()
    assert (truths(cities=1, seed=2).total != few.total[:1]).any()


@pytest.mark.parametrize("at_once", [1 << 21, 500])
def test_a_city_does_not_depend_on_how_vehicles_are_numbered(at_once, monkeypatch):
    monkeypatch.setattr(city, "_AT_ONCE", at_once)
    number = np.random.default_rng(4).permutation(COUNTS.users)
    pair = np.lexsort((number[COUNTS.user_index], COUNTS.bin_index))
    others = replace(COUNTS, user_index=number[COUNTS.user_index][pair], count=COUNTS.count[pair])
    assert (others.count != COUNTS.count).any()
    one, other = truths(cities=2), truths(cities=2, counts=others)
    np.testing.assert_array_equal(other.total, one.total[:, pair])
    np.testing.assert_array_equal(other.total_of_squares, one.total_of_squares[:, pair])
    records, of_others = (
        np.split(
            simulated_records(counts, BOUND, CityModel(), seed=1, hour=counts.slot), np.cumsum(counts.count)
        )
        for counts in (COUNTS, others)
    )
    for position, sent in enumerate(pair):
        np.testing.assert_array_equal(of_others[position], records[sent])


def test_the_level_is_the_mean_of_all_records():
    for name, wanted in (("usual", 6.0), ("half_speeds", 3.0)):
        mean = np.average(truths(name).means(), weights=COUNTS.samples_per_bin, axis=1)
        assert mean.mean() == pytest.approx(wanted, rel=0.05)


def test_another_unit_is_the_same_city():
    kmh = ContributionBound(Fraction(108), Fraction(1, 100), SpeedUnit.KILOMETRES_PER_HOUR)
    other = simulated_truths(COUNTS, kmh, variations()["usual"], seed=1, cities=1)
    np.testing.assert_allclose(other.means() / 3.6, truths(cities=1).means(), atol=0.01)


def test_cells_spread_as_asked():
    found = [
        truths(name).means().std(axis=1).mean()
        for name in ("half_cell_spread", "usual", "twice_cell_spread", "four_times_cell_spread")
    ]
    assert all(second > 1.15 * first for first, second in pairwise(found))


def test_many_records_a_vehicle_mean_slow_traffic():
    dwell = np.log(COUNTS.samples_per_bin / COUNTS.users_per_bin)
    for mean in truths("no_gradient", cities=5).means():
        assert np.corrcoef(dwell, mean)[0, 1] < -0.2


def test_the_gradient_makes_the_edge_faster():
    latitude, longitude = centres_of(COUNTS.cell)
    middle = [np.average(each, weights=COUNTS.samples_per_bin) for each in (latitude, longitude)]
    away = np.hypot(latitude - middle[0], (longitude - middle[1]) * np.cos(np.radians(45)))

    def slope(name):
        return np.polyfit(away, truths(name).means().mean(axis=0), 1)[0] * away.max()

    assert slope("usual") > slope("no_gradient") + 1


@pytest.mark.slow
def test_fast_cells_are_as_rare_as_asked():
    still = CityModel(cell_spread=0, gradient=0, vehicle_spread=0)
    for share in (0.02, 0.05):
        model = CityModel(**{**vars_of(still), "fast_share": share})
        mean = simulated_truths(COUNTS, BOUND, model, seed=1, cities=200).means()
        fast = (mean > 2 * model.level).mean()
        assert abs(fast - share) < 6 * np.sqrt(share / mean.size)


def vars_of(model):
    return {name: getattr(model, name) for name in model.__slots__}


@pytest.mark.slow
def test_hours_swing_as_asked():
    counts = counts_of(slots=24)

    def rush_over_night(name, hour):
        mean = truths(name, counts=counts, hour=hour, cities=5).means().mean(axis=0)
        return mean[counts.slot == 8].mean() / mean[counts.slot == 2].mean()

    assert rush_over_night("usual", counts.slot) == pytest.approx(0.8 / 1.2, rel=0.1)
    assert rush_over_night("hour_swing", counts.slot) == pytest.approx(0.6 / 1.4, rel=0.1)
    assert rush_over_night("hour_swing", None) == pytest.approx(1, rel=0.1)


def test_records_spread_as_asked():
    # less than in the law, because speeds are cut at the bound
    assert truths("twice_record_spread").variances().mean() > 1.2 * truths().variances().mean()


def test_stretches_cover_everything_once():
    size = np.array([3, 1, 9, 1, 1, 1, 20, 1])
    found = list(batches_of_size(size, 4))
    assert [index for part in found for index in range(part.start, part.stop)] == list(range(len(size)))
    assert len(found) > 2
    assert list(batches_of_size(size[:0], 4)) == []


def test_no_counts_are_no_city_and_no_error():
    empty = COUNTS.select(np.zeros(COUNTS.bins, dtype=bool))
    found = truths(counts=empty, cities=2)
    assert found.total.shape == (2, 0)
    assert found.means().shape == (2, 0)


@pytest.mark.parametrize("wrong", [{"cities": 0}, {"seed": -1}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError):
        truths(**wrong)


def test_places_that_are_no_hexagons_have_no_gradient():
    zones = Counts(
        np.arange(1, COUNTS.bins + 1, dtype=np.uint64), COUNTS.slot, COUNTS.users_per_bin, COUNTS.user_index,
        COUNTS.count, COUNTS.users,
    )  # fmt: skip
    usual, level = (truths(name, counts=zones, cities=2) for name in ("usual", "no_gradient"))
    np.testing.assert_array_equal(usual.total, level.total)
