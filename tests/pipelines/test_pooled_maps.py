"""How far off pooled maps are: what the script counts, and that the guide has its committed table."""

import numpy as np

import changes
import pooled_maps
from trafficdp.mechanisms.pooling.posterior import lambda_of, speed_of

BINS, UPPER = 400, 30.0


def test_bins_on_all_days_are_counted_against_the_truth_over_all_of_them(contributions_of, bound_of):
    own = contributions_of([[[1]] * changes.LEAST_VEHICLES] * BINS, bound_of("30"))
    cities = [changes.City(own, own.counts.cell)] * 2
    draw = np.random.default_rng(2)
    place = lambda_of(np.array(6.0), UPPER) + draw.normal(0, 0.3, BINS)

    def said(noise):
        found = place + draw.normal(0, noise, BINS)
        ends = np.array([speed_of(found + sign * 1.28155 * noise, UPPER) for sign in (-1, 1)])
        cell, slot = own.counts.cell, own.counts.slot
        known = np.ones(BINS, dtype=np.bool_)
        return changes.Map(cell, slot, speed_of(place, UPPER), speed_of(found, UPPER), ends, known)

    found = pooled_maps.beside(
        ("2016-11-24", "2016-11-25"), cities, [said(0.1), said(0.1)], said(0.01), (True, False, False)
    )
    assert found["numbers"] == BINS
    assert found["once"] < found["pooled"] < found["best"]


def test_no_day_is_tuned_and_held_out():
    days = [{day for each in sets for day in each} for sets in pooled_maps.GROUPS.values()]
    assert not days[0] & days[1]


def test_the_guide_has_the_committed_table(pages):
    page = pooled_maps.INTO.read_text(encoding="utf-8")
    table = pages.guide("changes").split(pooled_maps.MARKS[0])[1].split(pooled_maps.MARKS[1])[0]
    assert table in page
    rows = pages.rows(table)
    assert rows[0] == list(pooled_maps.HEADS)
    assert {row[1] for row in rows[2:]} == {*pooled_maps.GROUPS}
