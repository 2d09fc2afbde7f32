"""Places under one H3 parent are alike: the map is the posterior mean that a dense solve finds."""

import h3
import numpy as np
import pytest

from trafficdp.mechanisms.pooling import add_remove_map as maps
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import FleetEstimate
from trafficdp.privacy.loss import PICO, LossKind


def cells(resolution, rings=2):
    there = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, resolution), rings)
    return np.sort(np.array([h3.str_to_int(each) for each in there], dtype=np.uint64))


def design_of(places, bound, kind=LossKind.ZCDP, slots=()):
    separate = np.array(slots, dtype=np.int64)
    return AddRemoveDesign(places, bound, kind, PICO // 10, False, separate_slots=separate)


@pytest.mark.parametrize("slots", [(), (3, 9)])
def test_a_family_is_an_h3_parent_in_one_slot(bound_of, slots):
    places = cells(7)
    parent = [h3.cell_to_parent(h3.int_to_str(int(each)), 6) for each in places]
    where = [(name, slot) for name in parent for slot in slots or (None,)]
    family = design_of(places, bound_of(30), slots=slots).parent_number
    assert family.shape == (len(where),)
    assert 1 < len(set(parent)) < len(places)
    pairs = set(zip(where, family.tolist(), strict=True))
    assert len(pairs) == len(set(where)) == len(set(family.tolist()))


def test_places_without_a_parent_are_families_of_their_own(bound_of):
    places = np.sort(np.array([h3.str_to_int(each) for each in h3.get_res0_cells()], dtype=np.uint64))
    assert design_of(places, bound_of(30)).parent_number.tolist() == list(range(len(places)))


@pytest.mark.parametrize(("rounds", "seed", "follows_less"), [(1, 3, False), (1, 5, True), (4, 3, True)])
def test_the_map_is_the_posterior_mean_of_alike_places(bound_of, rounds, seed, follows_less):
    design = design_of(cells(7), bound_of(30))
    rng, size = np.random.default_rng(seed), design.size
    city = FleetEstimate(vehicles=200.0, centre=8.0, clip_bound=3.3, power=0.3)
    weight = (rng.gamma(0.7, 15.0, size) * maps.GRAINS).astype(np.int64)
    residual = (rng.normal(0, 20, (rounds, size)) * maps.GRAINS).astype(np.int64)
    asked = rng.uniform(6, 10, (rounds, size))
    none = np.zeros(0, dtype=np.int64)
    answers = maps.Answers(np.array([1, 1]), city, weight, residual, asked, none, none)
    heard = maps.summarise_all_rounds(design, answers)
    y, k, sd, lifted = heard.y, heard.k, heard.sd, heard.places.lifted

    parent = np.array([h3.cell_to_parent(h3.int_to_str(int(each)), 6) for each in design.places])
    alike = parent[:, None] == parent[None, :]
    prior = 2.5**2 * (0.3 * alike + 0.7 * np.eye(size))
    # what was known before moved places by this much, rightly but for a share of N(0, 1/4), never too little
    moved = asked[0] - heard.places.start
    inverse = np.linalg.inv(np.diag(lifted) @ prior @ np.diag(lifted) + sd**2 * np.eye(size))
    said, by = y + lifted * (k - asked[0]), lifted * moved
    slope = (by @ inverse @ said) / (by @ inverse @ by + 4)
    assert (slope < 0) == follows_less
    slope = min(slope, 0.0)
    gain = prior @ np.diag(lifted) @ inverse
    exact = asked[0] + slope * moved + gain @ (said - slope * by)

    found = maps.next_map(design, heard)
    np.testing.assert_allclose(found, exact.clip(0, 30), rtol=1e-9)
    assert ((found > 0) & (found < 30)).sum() > size / 2


def test_in_pure_epsilon_no_place_leans_on_another(bound_of):
    design = design_of(cells(7), bound_of(30), LossKind.PURE)
    rng, size = np.random.default_rng(3), design.size
    city = FleetEstimate(vehicles=200.0, centre=8.0, clip_bound=2.5, power=0.3)
    weight, residual = (
        (rng.gamma(0.7, 150.0, shape) * maps.GRAINS).astype(np.int64) for shape in (size, (1, size))
    )
    around, none = maps.estimate_weights(design, city, weight).centre[None], np.zeros(0, dtype=np.int64)
    before = maps.final_map(
        design,
        maps.summarise_all_rounds(
            design, maps.Answers(np.array([1, 1]), city, weight, residual, around, none, none)
        ),
    )
    residual[0, 0] *= -1
    after = maps.final_map(
        design,
        maps.summarise_all_rounds(
            design, maps.Answers(np.array([1, 1]), city, weight, residual, around, none, none)
        ),
    )
    assert after[0] != before[0]
    np.testing.assert_array_equal(after[1:], before[1:])
