"""The streets and the fleet: trips hang together, speeds agree with distances, every variation is seen."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from trafficdp.simulation.city import CityModel, variations
from trafficdp.simulation.traffic import (
    ARTERIAL,
    BLOCK,
    PLACE,
    Fleet,
    Streets,
    _one_after_another,
    records_of,
)

VEHICLES = 2_000
SEED = 11


@cache
def day_of(name):
    """A day of a city without flaws: streets, fleet, records, and the place of every record."""
    model = variations(CityModel(repeats=0, sentinels=0, missing=0, lost=0, late=0))[name]
    streets = Streets(model, SEED)
    fleet = Fleet.of(streets, VEHICLES, SEED)
    records = records_of(streets, fleet, slice(0, VEHICLES), 0, SEED)
    west, south, east, north = streets.bounds
    column = np.floor((records.longitude - west) / (east - west) * streets.places).astype(int)
    row = np.floor((records.latitude - south) / (north - south) * streets.places).astype(int)
    return streets, fleet, records, row * streets.places + column


def means_by_place(name):
    streets, _, records, place = day_of(name)
    count = np.bincount(place, minlength=streets.places**2)
    return np.bincount(place, records.centi, streets.places**2) / 100 / np.maximum(count, 1), count


def spread_of_places(name):
    mean, count = means_by_place(name)
    mean = mean[count > 100]
    return np.std(np.log(mean))


def test_a_way_leads_from_its_start_to_its_end_block_by_block():
    streets = Streets(CityModel(), SEED)
    random = np.random.default_rng(1)
    start, end = random.integers(0, streets.side + 1, (2, 500, 2))
    end[:5] = start[:5]
    turned = random.random(500) < 0.5
    ways = streets.trip_blocks(start, end, turned)
    at = np.stack([ways.east, ways.north], axis=1)
    step = np.stack([ways.step_east, ways.step_north], axis=1)
    assert (np.abs(step).sum(axis=1) == 1).all()
    first = np.flatnonzero(np.r_[True, ways.trip[1:] != ways.trip[:-1]])
    last = np.r_[first[1:] - 1, len(ways.trip) - 1]
    np.testing.assert_array_equal(at[first], start[ways.trip[first]])
    np.testing.assert_array_equal((at + step)[last], end[ways.trip[last]])
    inner = np.setdiff1d(np.arange(len(at) - 1), last)
    np.testing.assert_array_equal((at + step)[inner], at[inner + 1])
    assert not set(range(5)) & set(ways.trip)
    assert at.min() >= 0
    assert (at + step).max() <= streets.side


def test_a_long_trip_takes_an_arterial():
    streets = Streets(CityModel(), SEED)
    ways = streets.trip_blocks(np.array([[1, 2]]), np.array([[30, 4]]), np.array([False]))
    across = ways.step_east != 0
    assert across.sum() == 29
    assert (ways.north[across] % ARTERIAL == 0).all()


def test_trips_of_a_vehicle_follow_one_another():
    vehicle = np.array([3, 3, 3, 4, 4, 9])
    wish = np.array([100.0, 110.0, 500.0, 50.0, 90.0, 0.0])
    duration = np.array([60.0, 60.0, 5.0, 10.0, 10.0, 1.0])
    found = _one_after_another(vehicle, wish, duration)
    np.testing.assert_allclose(found, [100, 160, 500, 50, 90, 0], atol=1e-6)


@pytest.mark.slow
def test_the_same_day_is_the_same_and_another_day_is_another():
    streets, fleet, records, _ = day_of("usual")
    again = records_of(streets, fleet, slice(0, VEHICLES), 0, SEED)
    np.testing.assert_array_equal(again.latitude, records.latitude)
    other = records_of(streets, fleet, slice(0, VEHICLES), 1, SEED)
    at = [zip(each.vehicle, each.millisecond, each.latitude, strict=True) for each in (records, other)]
    assert not set(at[0]) & set(at[1])


def test_distance_over_time_agrees_with_speed():
    _, _, records, _ = day_of("usual")
    same = (records.vehicle[1:] == records.vehicle[:-1]) & (records.centi[1:] > 0) & (records.centi[:-1] > 0)
    seconds = np.diff(records.millisecond) / 1000
    same &= seconds < 60
    north = np.diff(records.latitude) * 111_195
    east = np.diff(records.longitude) * 111_195 * np.cos(np.radians(45))
    derived = np.hypot(north, east)[same] / seconds[same]
    sent = records.centi[1:][same] / 100
    assert same.sum() > 10_000
    # records scatter, vehicles turn, stops are short: what ingest warns of starts at 0.55 and 1.3
    assert 0.75 < np.median(sent / derived) < 1.15
    # a vehicle never jumps: 30 m/s and the error of two positions
    assert derived.max() < 31 + 60


def test_slow_places_hold_more_records_of_as_much_road():
    _, _, records, place = day_of("usual")
    mean, count = means_by_place("usual")
    visits = np.bincount(np.unique(place * VEHICLES + records.vehicle) // VEHICLES, minlength=len(count))
    chosen = visits > 50
    assert np.corrcoef(np.log(count[chosen] / visits[chosen]), np.log(mean[chosen]))[0, 1] < -0.3


def test_the_level_is_the_mean_of_the_records():
    for name, wanted in (("usual", 6.0), ("half_speeds", 3.0)):
        records = day_of(name)[2]
        assert records.centi.mean() / 100 == pytest.approx(wanted, rel=0.12)
    assert day_of("twice_speeds")[2].centi.mean() / day_of("usual")[2].centi.mean() > 1.7


def test_as_many_stand_as_asked():
    records = day_of("usual")[2]
    assert 0.18 < np.mean(records.centi == 0) < 0.3


def test_cells_spread_as_asked():
    found = [
        spread_of_places(name)
        for name in ("half_cell_spread", "usual", "twice_cell_spread", "four_times_cell_spread")
    ]
    assert all(second > 1.15 * first for first, second in pairwise(found))


def test_the_gradient_makes_the_edge_faster():
    def slope(name):
        streets = day_of(name)[0]
        middle = np.arange(streets.places) - (streets.places - 1) / 2
        away = np.hypot(middle[:, None], middle[None, :]).ravel()
        mean, count = means_by_place(name)
        chosen = (count > 100) & ~streets.fast.ravel()
        return np.polyfit(away[chosen], np.log(mean[chosen]), 1)[0]

    assert slope("usual") > slope("no_gradient") + 0.03


def test_fast_places_are_rare_and_fast():
    for name, share in (("usual", 0.02), ("fast_cells", 0.05)):
        streets, model = day_of(name)[0], variations()[name]
        assert streets.fast.sum() == round(share * streets.fast.size)
        assert (streets.moving[streets.fast] == model.fast_factor * model.level).all()
    streets, _, records, _ = day_of("fast_cells")
    row, column = np.nonzero(streets.fast)
    # records well inside one fast place
    west, south, _, _ = streets.bounds
    east = (records.longitude - west) * 111_195 * np.cos(np.radians(45)) / BLOCK - 0.5
    north = (records.latitude - south) * 111_195 / BLOCK - 0.5
    inside = np.zeros(len(east), dtype=bool)
    for r, c in zip(row, column, strict=True):
        inside |= (np.abs(east / PLACE - c - 0.5) < 0.4) & (np.abs(north / PLACE - r - 0.5) < 0.4)
    assert inside.sum() > 100
    assert records.centi[inside].mean() > 2 * records.centi[~inside].mean()


def test_hours_swing_as_asked():
    def rush_over_night(name):
        records = day_of(name)[2]
        hour = records.millisecond // 3_600_000
        return records.centi[hour == 8].mean() / records.centi[(hour >= 20) & (hour < 24)].mean()

    assert rush_over_night("hour_swing") < rush_over_night("usual") - 0.1
    trips = np.bincount(day_of("usual")[2].millisecond // 3_600_000, minlength=24)
    assert trips[8] > 1.5 * trips[11]
    assert trips[17] > 1.5 * trips[21]


def test_few_vehicles_send_most_where_asked():
    def share(name):
        count = np.sort(np.bincount(day_of(name)[2].vehicle, minlength=VEHICLES))[::-1]
        return count[: VEHICLES // 100].sum() / count.sum()

    assert 0.06 < share("usual") < 0.16
    assert 0.2 < share("few_busy_vehicles") < 0.4


def test_records_spread_as_asked():
    def spread(name):
        streets, _, records, place = day_of(name)
        moving = records.centi[(records.centi > 0) & ~streets.fast.ravel()[place]]
        return moving.std() / moving.mean()

    assert spread("twice_record_spread") > spread("usual") + 0.15
