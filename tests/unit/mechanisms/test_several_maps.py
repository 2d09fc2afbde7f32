"""Changes between two maps: right where the prior is, nearer to 0 where there is noise, alike in any unit."""

import numpy as np
import pytest

from trafficdp.mechanisms.pooling.posterior import lambda_of, speed_of
from trafficdp.mechanisms.several_maps import CHANGE_SD, CHANGED, OF_SLOTS, difference

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
    found = difference(*(ends_of(each, noise) for each in maps), UPPER, slots=slots)
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
    found = difference(*(ends_of(lambda_of(each, UPPER), sd) for each in (before, after)), UPPER, slots=False)
    assert found.value[0] == pytest.approx(-2.0, abs=1e-3)
    assert found.slower[0] == pytest.approx(1.0)
    assert -0.1 < found.value[1] < 0
    assert found.slower[1] < 0.45


def test_exchanging_the_maps_turns_the_sign_and_units_do_not_matter():
    draw = np.random.default_rng(3)
    before, after = (np.sort(draw.uniform(3, 20, (2, 50)), axis=0) for _ in range(2))
    there = difference(tuple(before), tuple(after), UPPER, slots=True)
    back = difference(tuple(after), tuple(before), UPPER, slots=True)
    assert there.value == pytest.approx(-back.value)
    assert there.ends[0.8][0] == pytest.approx(-back.ends[0.8][1])
    in_kmh = difference(tuple(3.6 * before), tuple(3.6 * after), 3.6 * UPPER, slots=True)
    assert in_kmh.value == pytest.approx(3.6 * there.value)
    assert in_kmh.slower == pytest.approx(there.slower)
    assert np.all((there.ends[0.95][0] <= there.ends[0.8][0]) & (there.ends[0.8][0] <= there.value))
