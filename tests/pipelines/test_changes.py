"""How often changes are right: what the script counts, and that the guide has its committed tables."""

import numpy as np
import pytest

import changes
from trafficdp.mechanisms.pooling.posterior import lambda_of, speed_of
from trafficdp.mechanisms.several_maps import CHANGE_SD

BINS, UPPER = 20_000, 30.0


def test_maps_that_are_right_hold_as_often_as_they_say():
    draw = np.random.default_rng(1)
    before = lambda_of(draw.uniform(5, 12, BINS), UPPER)
    maps = []
    for place in (before, before + draw.normal(0, CHANGE_SD, BINS)):
        found = place + draw.normal(0, 0.1, BINS)
        ends = np.array([speed_of(found + sign * 0.12815515655, UPPER) for sign in (-1, 1)])
        cell, slot = np.arange(BINS, dtype=np.uint64), np.zeros(BINS, dtype=np.int64)
        truth, value, known = speed_of(place, UPPER), speed_of(found, UPPER), np.ones(BINS, dtype=np.bool_)
        maps.append(changes.Map(cell, slot, truth, value, ends, known))
    found = changes.compared(*maps, UPPER, slots=False)
    assert len(found) == BINS
    assert found.held_80.mean() == pytest.approx(0.8, abs=0.02)
    assert found.held_95.mean() == pytest.approx(0.95, abs=0.01)
    assert found.off.mean() < found.off_of_maps.mean()
    assert found.wrong.sum() <= 0.03 * found.clear.sum()
    for word in ("slower", "faster"):
        assert found[f"was_{word}"].mean() == pytest.approx(found[word].mean(), abs=0.02)


def test_vehicles_drawn_again_are_as_many_with_their_own_records(contributions_of, bound_of):
    own = contributions_of([[[10], [20, 20], [30]], [[], [40], [50]]], bound_of("60"))
    city = changes.City(own, own.counts.cell).drawn_again(3).own
    assert city.counts.users <= 3
    speeds = {*zip(city.counts.count.tolist(), city.total.tolist(), strict=True)}
    assert speeds <= {*zip(own.counts.count.tolist(), own.total.tolist(), strict=True)}


def test_no_day_is_tuned_and_held_out():
    days = [{*np.array(pairs).ravel(), *alone} for pairs, alone in (
        (changes.TUNED, changes.TUNED_ALONE), (changes.HELD_OUT, changes.HELD_OUT_ALONE)
    )]  # fmt: skip
    assert not days[0] & days[1]


def test_the_guide_has_the_committed_tables(pages):
    page = changes.INTO.read_text(encoding="utf-8")
    tables = pages.guide("changes").split(changes.MARKS[0])[1].split(changes.MARKS[1])[0]
    assert tables in page
    rows = pages.rows(tables)
    assert rows[0] == list(changes.HEADS)
    assert {row[1] for row in rows if row[0] == changes.OTHER_DAYS} == {*changes.GROUPS}
