"""The reference city: errors by size of fleet, near what days of Austin showed."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.binning.cells import cells_of, parents_of
from trafficdp.mechanisms import simulated_cities
from trafficdp.mechanisms.pooling.add_remove_calibrated import CalibratedAddRemove
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.protocol import JointRequest, PublicFacts
from trafficdp.mechanisms.simulated_cities import ALIKE, ReferenceCityShape, reference_skill
from trafficdp.model import ContributionBound, Counts, NeighbouringRelation, SpeedUnit, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import PICO, LossKind, PureDP
from trafficdp.simulation.city import CityModel, variations

BOUND = ContributionBound(Fraction(30), Fraction(1, 100), SpeedUnit.METRES_PER_SECOND)
AUSTIN = ReferenceCityShape(7, 1.2**18)
"""Some 140 hexagons of resolution 7."""


def skill(kind, loss, fleet, place=AUSTIN):
    return reference_skill(place, BOUND, kind, int(loss * PICO), int(loss * PICO), fleet)


@pytest.mark.parametrize(
    ("kind", "loss", "measured"),
    [
        (LossKind.ZCDP, 0.028014, 1.88),
        (LossKind.ZCDP, 0.351004, 1.09),
        (LossKind.PURE, 1, 2.11),
        (LossKind.PURE, 4, 1.54),
    ],
)
def test_errors_are_near_those_of_four_days_of_austin(kind, loss, measured):
    """Of its 247 buses, mean absolute error in m/s; of one number 2.62."""
    found = skill(kind, loss, 247)
    assert found.error.mean() == pytest.approx(measured, rel=0.3)
    assert found.flat.mean() == pytest.approx(2.62, rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(LossKind))
@pytest.mark.parametrize(
    ("fleets", "losses"),
    [
        ((100, 10_000), (0.3, 20)),
        pytest.param((300, 3_000, 100_000), (0.1, 1, 4), marks=pytest.mark.prove),
    ],
)
def test_larger_fleets_and_larger_losses_say_more(kind, fleets, losses):
    for row in (
        [skill(kind, 1, fleet).expected for fleet in fleets],
        [skill(kind, loss, 400).expected for loss in losses],
    ):
        assert np.all(np.diff(row) > 0)
    assert skill(kind, 1e-4, 100).expected < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(LossKind))
def test_as_many_hexagons_have_a_number_as_in_another_city(kind, monkeypatch):
    loss = 8 if kind is LossKind.PURE else 1
    expected = skill(kind, loss, 247).expected_numbers
    assert skill(kind, 1e-4, 247).expected_numbers < expected / 2
    monkeypatch.setattr(simulated_cities, "REFERENCE_SEED", 77)
    other = simulated_cities._cities.__wrapped__(AUSTIN, BOUND, 247)
    found = []
    for own in other:
        design = AddRemoveDesign(np.unique(own.counts.cell), BOUND, kind, loss * PICO, variance=False)
        made = add_remove_map(design, measure_all(design, own, SimulatedNoise(5))).mean
        found.append(np.count_nonzero(made.informed))
    assert 0 < expected < len(np.unique(other[0].counts.cell))
    assert expected == pytest.approx(np.mean(found), rel=0.25)


@pytest.mark.slow
def test_a_fleet_that_is_not_driven_whole_is_like_one_that_is(monkeypatch):
    short = skill(LossKind.PURE, 1, 1_000)
    monkeypatch.setattr("trafficdp.mechanisms.simulated_cities.MOST_VEHICLES", 1_000)
    reference_skill.cache_clear()
    whole = skill(LossKind.PURE, 1, 1_000)
    reference_skill.cache_clear()
    assert short.error.mean() == pytest.approx(whole.error.mean(), rel=0.25)


@pytest.mark.parametrize(("kind", "power"), [(LossKind.PURE, 1), (LossKind.ZCDP, 2)])
def test_twice_the_fleet_is_half_of_it_with_noise_of_half_the_size(kind, power, monkeypatch):
    # noise of half the size costs twice the epsilon, and four times the rho
    monkeypatch.setattr("trafficdp.mechanisms.simulated_cities.LEAST_VEHICLES", 1)
    reference_skill.cache_clear()
    place = ReferenceCityShape(6, 1.2**12)
    found, alike = skill(kind, 1, 1_000, place), skill(kind, 2**power, 500, place)
    reference_skill.cache_clear()
    assert found.error.tolist() == alike.error.tolist()
    assert found.flat.tolist() == alike.flat.tolist()


@pytest.mark.parametrize(("bins", "draws"), [(10**9, 2), (0, 1)])
def test_where_bins_are_many_every_other_city_is_drawn_once(bins, draws, monkeypatch):
    monkeypatch.setattr("trafficdp.mechanisms.simulated_cities.MANY_REFERENCE_BINS", bins)
    reference_skill.cache_clear()
    found = skill(LossKind.PURE, 1, 100, ReferenceCityShape(6, 1.2**12))
    reference_skill.cache_clear()
    simulated_cities = len(variations(CityModel())) - len(ALIKE)
    assert (
        len(found.error)
        == len(found.flat)
        == draws * (simulated_cities if draws == 2 else -(-simulated_cities // 2))
    )


def test_the_city_is_as_large_as_the_study_area():
    north, east = (each.ravel() for each in np.mgrid[30:30.2:80j, -98:-97.8:80j])
    fine = np.unique(cells_of(north, east, 8))
    place = ReferenceCityShape.of(fine)
    assert place.resolution == 8
    assert ReferenceCityShape.of(np.unique(parents_of(fine, 6))).resolution == 6
    assert place.side == pytest.approx(np.sqrt(0.737 * len(fine)), rel=0.12)


def test_slots_that_are_measured_apart_are_slots_of_the_reference_city():
    """The same loss for six times as many numbers: errors are more than half as large again."""
    bound = ContributionBound(Fraction(30), Fraction(1, 10), SpeedUnit.METRES_PER_SECOND)
    north, east = (each.ravel() for each in np.mgrid[30:30.05:12j, -98:-97.95:12j])
    cells, errors = np.unique(cells_of(north, east, 8)), []
    for slots in (1, 6):
        grid = np.repeat(cells, slots), np.tile(np.arange(slots), len(cells))
        facts = PublicFacts(Counts.for_declared_grid(*grid), bound, NeighbouringRelation.ADD_OR_REMOVE_USER)
        request = JointRequest((Statistic.MEAN,), 300, slots > 1, 0)
        errors.append(CalibratedAddRemove.calibrate(facts, PureDP.of(4), request).skill().error.mean())
    assert errors[1] > 1.5 * errors[0]
