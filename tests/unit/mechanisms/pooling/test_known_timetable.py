"""Files of speeds move a map's start as far as they agree with where traffic is slow, and no further."""

import numpy as np
import pytest

from trafficdp.mechanisms.pooling.posterior import (
    BELIEVED,
    USUAL_SPREAD,
    SlowTraffic,
    known_centre,
    lambda_of,
)
from trafficdp.model import Knowledge, KnowledgeKind, KnownSpeeds

U, MANY = 30.0, 60
ALIKE = np.full(MANY, 6.0)
SIGN = np.linspace(-1.0, 1.0, MANY)
BENT = np.random.default_rng(0).normal(0.0, 0.4, MANY)
SPEED = 6 * np.exp(-0.2 * SIGN + BENT / 2)
"""Slower where the sign says so, and by more than that besides: they correlate by about 0.5."""


def moved(speed, sign=SIGN, used=False, share=1.0, place=None, tells=None, centre=ALIKE):
    """How far the start moves in lambda."""
    source = Knowledge(
        kind=KnowledgeKind.TIMETABLE, name="gtfs.zip", licence="CC0", sha256="0" * 64, share=share
    )
    slow = SlowTraffic(sign, np.ones(len(sign), dtype=bool) if tells is None else tells, used)
    known = KnownSpeeds((source,), np.asarray(speed, dtype=np.float64)[None])
    places = np.arange(len(sign)) if place is None else place
    found = known_centre(known, centre, np.ones(len(sign)), places, U, slow)
    return lambda_of(found, U) - lambda_of(centre, U)


def test_one_that_agrees_is_followed_in_any_unit():
    own = lambda_of(SPEED * 6 / SPEED.mean(), U)
    np.testing.assert_allclose(moved(SPEED), own - own.mean(), atol=0.03)
    np.testing.assert_allclose(moved(SPEED, share=0.5), moved(SPEED) / 2, atol=1e-12)
    np.testing.assert_allclose(moved(3.6 * SPEED), moved(SPEED), atol=1e-12)
    there = SPEED.copy()
    there[::7] = np.nan
    assert np.all(moved(there)[::7] == 0)
    assert np.all(moved(there)[1::7] != 0)


def test_one_that_spreads_too_far_is_followed_less():
    """Half of its hexagons are in another unit: of so wide a spread most is error."""
    own = lambda_of(SPEED * np.where(np.arange(MANY) % 2, 1.0, 3.6), U)
    found = moved(SPEED * np.where(np.arange(MANY) % 2, 1.0, 3.6))
    assert found.std() < 0.5 * own.std()
    assert found.std() <= USUAL_SPREAD


def test_one_that_says_the_opposite_is_not_followed():
    assert np.abs(moved(36 / SPEED)).max() < 0.02


def test_shuffled_speeds_hardly_move_anything():
    far = [np.abs(moved(np.random.default_rng(seed).permutation(SPEED))).mean() for seed in range(200)]
    assert np.mean(far) < 0.25 * np.abs(moved(SPEED)).mean()


def test_where_centres_use_the_sign_only_the_rest_is_followed():
    rest = moved(SPEED, used=True)
    assert abs(np.corrcoef(rest, SIGN)[0, 1]) < 1e-9
    assert np.corrcoef(rest, BENT)[0, 1] > 0.95
    assert np.abs(np.corrcoef(moved(SPEED), SIGN)[0, 1]) > 0.4


@pytest.mark.parametrize(
    ("speed", "sign", "tells"),
    [
        (SPEED[:9], SIGN[:9], None),
        (np.full(MANY, 5.0), SIGN, None),
        (SPEED, np.zeros(MANY), None),
        (SPEED, SIGN, np.arange(MANY) < 9),
        (np.full(MANY, np.nan), SIGN, None),
    ],
)
def test_what_tells_too_little_moves_nothing(speed, sign, tells):
    centre = ALIKE[: len(sign)]
    np.testing.assert_allclose(moved(speed, sign, tells=tells, centre=centre), 0, atol=1e-12)


def test_hours_of_one_place_are_no_further_evidence():
    # ten places in six hours each, of which every place is alike in all hours: as sure as ten
    place = np.repeat(np.arange(10), 6)
    speed, sign = SPEED[:10][place], SIGN[::6][place]
    alone = moved(speed[::6], sign[::6], centre=ALIKE[:10])
    np.testing.assert_allclose(moved(speed, sign, place=place), alone[place], atol=1e-9)


def test_before_anything_is_seen_it_is_believed_as_stated():
    """At r where both laws are equally dense, the move is BELIEVED of the whole."""
    draw = np.random.default_rng(1)
    shares = []
    for _ in range(300):
        speed = np.exp(0.05 * draw.normal(size=10))
        whole = lambda_of(6 * speed / speed.mean(), U)
        shares.append(
            np.abs(moved(speed, draw.normal(size=10), centre=ALIKE[:10])).sum()
            / np.abs(whole - whole.mean()).sum()
        )
    # of ten places, r tells little: half of all shares lie around what was believed before
    assert 0.3 < np.median(shares) < BELIEVED
    assert max(shares) <= 1 + 1e-9
