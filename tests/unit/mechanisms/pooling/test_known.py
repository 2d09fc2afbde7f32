"""Speeds that are known before: where they move a map's start, by place and by source."""

import numpy as np
import pytest

from trafficdp.mechanisms.pooling.posterior import known_centre, lambda_of
from trafficdp.model import Knowledge, KnowledgeKind, KnownSpeeds, PlaceSpeeds, as_json, from_json

U = 30.0


def source(share, name="r0001"):
    return Knowledge(kind=KnowledgeKind.RELEASE, name=name, sha256="0" * 64, share=share)


def known(speed, share=0.6):
    return KnownSpeeds((source(share),), np.atleast_2d(np.asarray(speed, dtype=np.float64)))


def test_a_share_of_the_way_is_gone_in_lambda_whatever_the_unit():
    centre, weight, place = np.array([4.0, 8.0, 6.0]), np.array([1.0, 2.0, 5.0]), np.arange(3)
    speed = np.array([6.0, 6.0, np.nan])
    found = known_centre(known(speed, 0.25), centre, weight, place, U)
    # both are as fast as their centres are on average, by weight
    own = (4 + 2 * 8) / 3
    way = 0.75 * lambda_of(centre[:2], U) + 0.25 * lambda_of(np.array(own), U)
    np.testing.assert_allclose(lambda_of(found[:2], U), way, rtol=1e-12)
    assert found[2] == pytest.approx(6.0)
    in_miles = known_centre(known(speed * 2.237, 0.25), centre, weight, place, U)
    np.testing.assert_allclose(in_miles, found, rtol=1e-12)
    np.testing.assert_array_equal(known_centre(None, centre, weight, place, U), centre)
    nothing = known([np.nan] * 3)
    np.testing.assert_array_equal(known_centre(nothing, centre, weight, place, U), centre)


def test_slots_of_a_place_move_together_and_none_leaves_the_range():
    centre, weight = np.array([4.0, 12.0, 6.0, 29.0]), np.ones(4)
    place = np.array([0, 0, 1, 1])
    found = known_centre(known([3.0, 9.0, 9.0, 40.0], 0.5), centre, weight, place, U)
    moved = lambda_of(found, U) - lambda_of(centre, U)
    assert moved[0] == pytest.approx(moved[1])
    assert moved[2] > 0 > moved[0]
    extreme = known_centre(known([1e-9, 1e9, 1e-9, 1e-9], 1.0), centre, weight, np.arange(4), U)
    assert np.all((extreme >= centre / 3 - 1e-12) & (extreme <= np.minimum(3 * centre, U)))


def test_sources_follow_one_another():
    centre, weight, place = np.array([4.0, 8.0]), np.ones(2), np.arange(2)
    first, second = known([1.0, 2.0], 0.5), known([3.0, 1.0], 0.5)
    both = KnownSpeeds(first.sources + second.sources, np.concatenate([first.speed, second.speed]))
    once = known_centre(first, centre, weight, place, U)
    np.testing.assert_array_equal(
        known_centre(both, centre, weight, place, U), known_centre(second, once, weight, place, U)
    )


def test_a_source_is_found_by_place_and_slot():
    cell, slot = np.array([5, 5, 9], dtype=np.uint64), np.array([0, 1, 0])
    whole = PlaceSpeeds(source(0.5), np.array([9, 5], dtype=np.uint64), None, np.array([7.0, 3.0]))
    np.testing.assert_array_equal(whole.speeds_of_bins(cell, slot), [3.0, 3.0, 7.0])
    # zeros say nothing
    hourly = PlaceSpeeds(source(0.5), cell[:2], slot[:2], np.array([4.0, 0.0]))
    np.testing.assert_array_equal(hourly.speeds_of_bins(cell, slot), [4.0, np.nan, np.nan])
    assert KnownSpeeds.of((), cell, slot) is None
    again = from_json(KnownSpeeds, as_json(KnownSpeeds.of((whole, hourly), cell, slot)))
    np.testing.assert_array_equal(again.speed, [[3.0, 3.0, 7.0], [4.0, np.nan, np.nan]])
    assert again.sources == (source(0.5), source(0.5))
