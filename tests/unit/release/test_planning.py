"""What a plan decides beside the planner: whose fleet, which search, what is said when no map fits."""

from dataclasses import dataclass, replace
from datetime import date
from types import SimpleNamespace

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.model import (
    Grid,
    NeighbouringRelation,
    Period,
    Selection,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
)
from trafficdp.planner import suggest
from trafficdp.planner.allocation import Allocation
from trafficdp.privacy.loss import PureDP
from trafficdp.release import planning
from trafficdp.release.planning import Planning
from trafficdp.release.results import Plan, PlanQuestion

PERIOD = Period(date(2026, 3, 2), date(2026, 3, 3), "Europe/Vienna")
GRID = Grid(7, SlotKind.HOUR_OF_DAY, StudyArea.from_bbox(16, 48, 16.2, 48.2), PERIOD)
PART = replace(GRID, selection=Selection(hours_of_week=tuple(range(84))))


ONE = PureDP.of(1)


@dataclass(frozen=True)
class Asked:
    """As much of a request as is looked at."""

    relation: NeighbouringRelation = NeighbouringRelation.ADD_OR_REMOVE_USER
    fleet: int = 256
    fleet_by: str = "as declared"
    zone_km2: float | None = None
    loss: PureDP = ONE
    min_vehicles: int = 5
    known: tuple = ()


def planning_of(grid=GRID, fleet=256, adaptive=None, **known):
    """A planning that knows nothing but its configuration and ``known``."""
    made = Planning.__new__(Planning)
    map_ = SimpleNamespace(fleet=fleet, adaptive=adaptive, bound=None)
    made._config = SimpleNamespace(
        loss=PureDP.of(1),
        map=map_,
        grid=grid,
        knowledge=(),
        request=lambda loss: Asked(),
        require_public_counts=lambda what, instead: None,
    )
    made._curator = made.version = made._known = None
    made._looked_at = lambda grid: None
    vars(made).update(known)
    return made


def test_a_fleet_is_that_declared_or_released_as_much_of_it_as_is_asked_about(monkeypatch):
    monkeypatch.setattr(planning, "fleet_released", lambda _: None)
    assert planning_of()._request(None, PlanQuestion()) == Asked()
    assert planning_of(PART)._request(None, PlanQuestion()).fleet == 255
    # never guessed
    with pytest.raises(UsageError, match=r"how many vehicles are expected.*write \[map\] fleet = NUMBER"):
        planning_of(fleet=None)._request(None, PlanQuestion())
    monkeypatch.setattr(planning, "fleet_released", lambda _: ("r0007", 40))
    assert planning_of()._request(None, PlanQuestion()) == Asked()
    found = planning_of(fleet=None)._request(None, PlanQuestion())
    assert (found.fleet, "r0007" in found.fleet_by) == (40, True)


def test_a_half_width_is_searched_for_but_on_adaptive_maps():
    known = {"_request": lambda *_: Asked(), "_least": lambda *_: "the least"}
    question = PlanQuestion(half_width=2.0)
    assert planning_of(**known).plan(None, question) == "the least"
    with pytest.raises(UsageError, match="adaptive"):
        planning_of(adaptive=object(), **known).plan(None, question)


@pytest.mark.parametrize(("widths", "said"), [((), "gather more vehicles"), ((3.0, 2.5), "narrowest is 2.5")])
def test_where_no_map_fits_the_narrowest_is_told_or_more_vehicles(monkeypatch, widths, said):
    monkeypatch.setattr(suggest, "nearest", lambda _: None)
    options = [SimpleNamespace(half_width=each, grid=GRID, min_vehicles=5) for each in widths]
    made = planning_of(_shown=lambda _, width: f"{width:g}")
    assert said in str(made._nothing_fits(Asked(), PlanQuestion(), 2.0, options))


def test_the_configured_map_is_told_how_far_it_would_have_to_grow(monkeypatch):
    coarse = replace(GRID, resolution=6)
    options = [
        SimpleNamespace(grid=GRID, fits=False, loss=PureDP.of(4), min_vehicles=5),
        SimpleNamespace(grid=coarse, fits=True, loss=PureDP.of(1), min_vehicles=5),
    ]
    monkeypatch.setattr(suggest, "try_maps", lambda *_: options)
    monkeypatch.setattr(suggest, "best_fitting_map", lambda _: options[1])
    monkeypatch.setattr(suggest, "data_needed", lambda grid, needed, there, _: (grid, needed, there))
    made = planning_of(
        _contributions=lambda _: None, _at=lambda grid, _request, _question, answer: (grid, answer)
    )
    grid, answer = made._finest_map(Asked(), PlanQuestion(), 2.0)
    assert grid == coarse
    assert answer.growth_of_configured == (GRID, PureDP.of(4), PureDP.of(1))


def test_counts_are_read_once_and_longer_slots_follow_from_them(counts_of):
    read, whole = [], replace(GRID, slot_kind=SlotKind.WHOLE_PERIOD)

    def counted(grid, *_):
        read.append(grid)
        return SimpleNamespace(counts=here)

    here = SimpleNamespace(
        bins=1,
        cell=np.array([1]),
        slot=np.array([3]),
        merged=lambda cell, slot: SimpleNamespace(counts=slot.tolist()),
    )
    made = planning_of(_curator=SimpleNamespace(counted=counted))
    assert made._counts(GRID) is made._counts(GRID) is here
    assert made._counts(whole) == [0]
    assert read == [GRID]
    assert made._counts(replace(whole, resolution=6)) is here
    assert len(read) == 2
    assert made._contributions(GRID).counts is here
    here.bins = 0
    with pytest.raises(UsageError, match="no record"):
        made._contributions(GRID)


@pytest.mark.parametrize(("statistic", "factor"), [(Statistic.MEAN, 0.5), (Statistic.VARIANCE, 0.25)])
def test_errors_are_shown_in_the_unit_of_the_map(statistic, factor):
    counts = SimpleNamespace(cell=np.array([1], dtype=np.uint64), slot=np.array([3]))
    allocation = SimpleNamespace(
        counts=counts,
        request=SimpleNamespace(
            main=Statistic.MEAN, factor=lambda statistic: 0.5**statistic.power, interval_level=0.9
        ),
        half_widths=lambda: {statistic: np.array([8.0])},
        errors=lambda: {statistic: np.array([4.0])},
    )
    plan = SimpleNamespace(allocation=allocation, grid=GRID, display_unit=SpeedUnit.MILES_PER_HOUR)
    plan.in_display_unit = lambda error, what=None: Plan.in_display_unit(plan, error, what)
    assert plan.in_display_unit(1.0, statistic) == factor
    name = statistic.column(plan.display_unit)
    row = Plan.to_frame(plan).iloc[0]
    assert (row["hex_id"], row["slot"]) == ("1", 3)
    assert (row[f"{name}_expected_error"], row[f"{name}_half_width"]) == (4 * factor, 8 * factor)


def test_how_losses_add_up_is_said_by_the_noise_or_by_the_accounting():
    def said(best):
        allocation = SimpleNamespace(calibrated=SimpleNamespace(composition="by blocks"), best=best)
        return Allocation.composition.fget(allocation)

    assert (said(SimpleNamespace(composition="equal noise")), said(None)) == ("equal noise", "by blocks")
