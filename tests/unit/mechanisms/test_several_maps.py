"""What several maps say: right where the prior is; changes nearer to 0 where there is noise; any unit."""

import numpy as np
import pytest

from trafficdp.mechanisms.pooling.posterior import lambda_of, speed_of
from trafficdp.mechanisms.several_maps import (
    CHANGE_SD,
    CHANGED,
    OF_SLOTS,
    MapOfPeriod,
    _Normal,
    change_between_maps,
    change_variance,
    pool,
)

UPPER, REACH, BINS = 30.0, 1.2815515655446004, 60_000


def ends_of(middle, sd):
    return tuple(speed_of(middle + sign * REACH * sd, UPPER) for sign in (-1, 1))


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_intervals_and_chances_are_right_where_places_change_as_expected(slots, noise):
    # records say nothing of where a place lies before: the two maps are their answers alone
    draw = np.random.default_rng(1)
    before = lambda_of(draw.uniform(5, 12, BINS), UPPER)
    told = draw.normal(0, np.hypot(CHANGE_SD, OF_SLOTS * slots), BINS)
    after = before + told + slots * draw.normal(0, OF_SLOTS, BINS)
    maps = [each + draw.normal(0, noise, BINS) for each in (before, before + told)]
    found = change_between_maps(*(ends_of(each, noise) for each in maps), UPPER, slots=slots)
    first, last = (speed_of(each, UPPER) for each in (before, after))
    for level, (low, high) in found.ends.items():
        held = np.mean((low <= last - first) & (last - first <= high))
        assert held == pytest.approx(level, abs=0.03)
    for chance, true in (
        (found.slower, last < (1 - CHANGED) * first),
        (found.faster, last > (1 + CHANGED) * first),
    ):
        tenth = (chance * 10).astype(int)
        for each in range(1, 9):
            there = tenth == each
            if there.sum() > 1_000:
                assert true[there].mean() == pytest.approx(chance[there].mean(), abs=0.05)


def test_noise_is_no_change_and_certainty_is_all_of_it():
    before, after = (np.full(2, speed) for speed in (10.0, 8.0))
    sd = np.array([1e-9, 1.0])
    found = change_between_maps(
        *(ends_of(lambda_of(each, UPPER), sd) for each in (before, after)), UPPER, slots=False
    )
    assert found.value[0] == pytest.approx(-2.0, abs=1e-3)
    assert found.slower[0] == pytest.approx(1.0)
    assert -0.1 < found.value[1] < 0
    assert found.slower[1] < 0.45


def test_exchanging_the_maps_turns_the_sign_and_units_do_not_matter():
    draw = np.random.default_rng(3)
    before, after = (np.sort(draw.uniform(3, 20, (2, 50)), axis=0) for _ in range(2))
    there = change_between_maps(tuple(before), tuple(after), UPPER, slots=True)
    back = change_between_maps(tuple(after), tuple(before), UPPER, slots=True)
    assert there.value == pytest.approx(-back.value)
    assert there.ends[0.8][0] == pytest.approx(-back.ends[0.8][1])
    in_kmh = change_between_maps(tuple(3.6 * before), tuple(3.6 * after), 3.6 * UPPER, slots=True)
    assert in_kmh.value == pytest.approx(3.6 * there.value)
    assert in_kmh.slower == pytest.approx(there.slower)
    assert np.all((there.ends[0.95][0] <= there.ends[0.8][0]) & (there.ends[0.8][0] <= there.value))


def test_a_change_between_seasons_may_be_larger_and_ends_growing():
    before, after = (ends_of(lambda_of(np.array([speed]), UPPER), 0.1) for speed in (10.0, 8.0))
    found = [change_between_maps(before, after, UPPER, slots=False, days=days) for days in (1, 120, 700)]
    assert found[0].value > found[1].value
    assert found[1].value == pytest.approx(found[2].value, abs=0.02)
    assert found[1].ends[0.95][0] < found[0].ends[0.95][0]


SPREAD, AROUND, OWN, SHARE = 0.3, 0.2, 0.0112, 0.6


def maps_of_a_city(noises, *, started=False, shrunk=True, missing=0.0):
    """Maps of a city as `pool` expects it, of records with such variances, and the true weighed means."""
    draw = np.random.default_rng(5)
    bins, many = 3_000, len(noises)
    expected = lambda_of(np.array(6.0), UPPER) + AROUND * draw.normal(size=bins)
    always = np.sqrt(SPREAD**2 - OWN) * draw.normal(size=bins)
    places = expected + always + np.sqrt(OWN) * draw.normal(size=(many, bins))
    weight, maps, before = draw.uniform(0.2, 2, (many, bins)), [], None
    for number, noise in enumerate(noises):
        said = places[number] + np.sqrt(noise) * draw.normal(size=bins)
        kept = SPREAD**2 / (SPREAD**2 + noise) if shrunk else 1.0
        start = SHARE * before + (1 - SHARE) * expected if started and number else expected
        middle, sd = start + kept * (said - start), np.sqrt(kept * noise)
        value = np.where(draw.random(bins) < missing * (number > 0), np.nan, speed_of(middle, UPPER))
        from_before = ((number - 1, SHARE),) if started and number else ()
        maps.append(MapOfPeriod(value, ends_of(middle, sd), weight[number], shrunk, from_before))
        before = middle
    weight = weight * [~np.isnan(each.value) for each in maps]
    return maps, speed_of((weight * places).sum(axis=0) / weight.sum(axis=0), UPPER)


def pooled(maps):
    return pool(maps, np.arange(len(maps[0].value)), UPPER, 2 * OWN)


@pytest.mark.parametrize(
    ("noises", "kind"),
    [
        ((0.04, 0.04), {}),
        ((0.2,) * 10, {}),
        ((0.5, 0.1) * 6, {}),
        ((0.01,) * 8, {}),
        ((0.2,) * 6, {"started": True}),
        ((0.03,) * 5, {"shrunk": False}),
        ((0.05,) * 6, {"missing": 0.3}),
    ],
)
def test_intervals_of_the_mean_over_periods_hold_as_often_as_they_say(noises, kind):
    maps, truth = maps_of_a_city(noises, **kind)
    found = pooled(maps)
    for level, (low, high) in found.ends.items():
        assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(level, abs=0.03)
    off = np.abs(found.value - truth).mean()
    assert found.error.mean() == pytest.approx(off, rel=0.1)
    alone = [np.nanmean(np.abs(each.value - truth)) for each in maps]
    weight = np.array([each.weight * ~np.isnan(each.value) for each in maps])
    average = (weight * np.nan_to_num([each.value for each in maps])).sum(axis=0) / weight.sum(axis=0)
    assert off < min(alone)
    assert off < np.abs(average - truth).mean()


def test_the_normal_is_that_of_its_whole_covariance():
    draw = np.random.default_rng(7)
    told, precision, with_mean, *roots = draw.uniform(0.2, 2, (5, 4, 3))
    precision[1] = 0
    found = _Normal(told, precision, tuple(roots), with_mean, np.full(3, 100.0))
    for each in range(3):
        of = [0, 2, 3]
        low_rank = sum(np.outer(root[of, each], root[of, each]) for root in roots)
        whole = low_rank + np.diag(1 / precision[of, each])
        y, c = told[of, each], with_mean[of, each]
        likelihood = -(np.linalg.slogdet(whole)[1] + y @ np.linalg.solve(whole, y)) / 2
        assert found.log_likelihood[each] == pytest.approx(likelihood)
        assert found.mean[each] == pytest.approx(c @ np.linalg.solve(whole, y))
        assert found.variance[each] == pytest.approx(100 - c @ np.linalg.solve(whole, c))


def test_what_all_maps_expected_counts_once():
    # precisions added up, as if every map were an answer of its own, make intervals far too narrow
    maps, truth = maps_of_a_city((0.5,) * 10)
    middle, sd = np.array([lambda_of(each.value, UPPER) for each in maps]), np.sqrt(0.5 * 0.09 / 0.59)
    naive = np.abs(middle.mean(axis=0) - lambda_of(truth, UPPER)) <= 1.96 * sd / np.sqrt(10)
    assert naive.mean() < 0.7
    low, high = pooled(maps).ends[0.95]
    assert np.mean((low <= truth) & (truth <= high)) > 0.92


def test_a_map_that_others_started_from_and_that_is_no_part_counts_for_nothing_of_its_own():
    maps, _ = maps_of_a_city((0.05, 0.05, 0.05), started=True)
    none = np.zeros(len(maps[0].value))
    outside = MapOfPeriod(maps[0].value, maps[0].ends, none)
    found = pool([outside, *maps[1:]], np.arange(len(none)), UPPER, 2 * OWN)
    alone = pool(
        [MapOfPeriod(each.value, each.ends, each.weight) for each in maps[1:]],
        np.arange(len(none)),
        UPPER,
        2 * OWN,
    )
    assert np.corrcoef(found.value, alone.value)[0, 1] > 0.95


def test_a_mean_over_periods_does_not_depend_on_the_unit():
    maps, _ = maps_of_a_city((0.05, 0.1))
    in_kmh = [
        MapOfPeriod(3.6 * each.value, tuple(3.6 * end for end in each.ends), each.weight) for each in maps
    ]
    place = np.arange(len(maps[0].value))
    there, own = pool(in_kmh, place, 3.6 * UPPER, 2 * OWN), pooled(maps)
    assert there.value == pytest.approx(3.6 * own.value)
    assert there.error == pytest.approx(3.6 * own.error)
    assert np.array_equal(there.informed, own.informed)


def test_slots_and_seasons_move_further():
    near, far = ([0.0, days] for days in (0.0, 400.0))
    assert change_variance(near, slots=False) == pytest.approx(CHANGE_SD**2)
    assert change_variance(near, slots=False) < change_variance(far, slots=False)
    assert change_variance(near, slots=True) == pytest.approx(CHANGE_SD**2 + 2 * OF_SLOTS**2)
