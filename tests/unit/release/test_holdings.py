"""What a store holds, asked without one: who answered the same question, what a fleet is taken for."""

from dataclasses import replace
from datetime import UTC, date, datetime
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
import shapely

from trafficdp.errors import DataError, UsageError
from trafficdp.model import (
    EVERYTHING,
    Grid,
    NeighbouringRelation,
    Period,
    Selection,
    SlotKind,
    Statistic,
    StudyArea,
    Zones,
)
from trafficdp.release import knowledge, planning, results
from trafficdp.store import vault_fixes


def given(monkeypatch, *names):
    """A vault whose index finds the releases ``names``, the newest first."""
    monkeypatch.setattr(knowledge.vault_releases, "find_published", lambda *_: iter(names[::-1]))
    monkeypatch.setattr(knowledge, "numbers_digest", lambda *_: "same")


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"numbers_sha256": "other"},
        {"data_version": "i2"},
    ],
)
def test_what_the_index_finds_answers_only_the_same_question_on_the_same_data(monkeypatch, other):
    specification = SimpleNamespace(**{"data_version": "i1", "numbers_sha256": "same"} | other)
    given(monkeypatch, "r1", "r2")
    curator = SimpleNamespace(vault=None, specification_of=lambda _: specification)
    asked = SimpleNamespace(
        request=SimpleNamespace(map_request=None),
        counts=SimpleNamespace(cell=None, slot=None),
        calibrated=SimpleNamespace(to_facts=dict),
    )
    found = knowledge.earlier_release(curator, SimpleNamespace(name="i1"), None, asked)
    assert found == (None if other else "r2")


@pytest.mark.parametrize(("noisy", "fleet"), [(-3.0, 1), (1.4, 1), (2.6, 3)])
def test_a_released_fleet_is_a_whole_number_of_at_least_one(monkeypatch, noisy, fleet):
    given(monkeypatch, "r1")
    mean = SimpleNamespace(noise={"city_vehicles": np.array([noisy])})
    grid = SimpleNamespace(selection=EVERYTHING)
    curator = SimpleNamespace(
        vault=None, load=lambda name: SimpleNamespace(id=name, estimates={Statistic.MEAN: mean}, grid=grid)
    )
    assert knowledge.fleet_released(curator) == ("r1", fleet)


def test_half_of_the_hours_of_a_week_see_nearly_a_whole_fleet():
    period = Period(date(2026, 3, 2), date(2026, 3, 3), "Europe/Vienna")
    whole = Grid(7, SlotKind.WHOLE_PERIOD, StudyArea.from_bbox(16, 48, 16.2, 48.2), period)
    part = replace(whole, selection=Selection(hours_of_week=tuple(range(84))))
    assert results.expected_share_of_fleet(part) == pytest.approx(1 - 0.5**8)
    assert results.expected_share_of_fleet(whole) == 1
    # a tenth of the area is in a zone; one that lies beside it is none of it
    shapes = shapely.box(16, 48, 16.02, 48.2), shapely.box(16.3, 48, 16.4, 48.2)
    zones = Zones("districts.gpkg", "0" * 64, ("West", "Beside"), shapes)
    zoned = replace(whole, resolution=None, zones=zones)
    assert results.expected_share_of_fleet(zoned) == pytest.approx(1 - 0.9**8)
    part = replace(zoned, selection=Selection(hours_of_week=tuple(range(84))))
    assert results.expected_share_of_fleet(part) == pytest.approx(1 - 0.95**8)


def test_a_plan_pins_no_study_area_and_wants_that_of_the_first_file(monkeypatch):
    facts = {}
    database = duckdb.connect()
    database.execute("CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR)")
    vault = SimpleNamespace(facts=facts, run=database.execute)
    files = [1]
    monkeypatch.setattr(vault_fixes, "data_version", lambda _: None)
    monkeypatch.setattr(vault_fixes, "number_of_files", lambda _: files[-1])
    grid = SimpleNamespace(area=SimpleNamespace(hash="a"), slot_kind=SlotKind.WHOLE_PERIOD)
    config = SimpleNamespace(grid=grid, measured_grid=grid, context=())
    monkeypatch.setattr(planning, "replace", lambda config, **_: config)
    curator = SimpleNamespace(vault=vault)
    planning.Planning(curator, config)
    assert facts == {}
    vault_fixes.pin_area(vault, "b", dry_run=False)
    assert facts == {"area_hash": "b"}
    with pytest.raises(DataError):
        planning.Planning(curator, config)
    files.append(0)
    with pytest.raises(UsageError, match="empty"):
        planning.Planning(curator, config)
    # the files of another area were all undone
    vault_fixes.pin_area(vault, "a", dry_run=False)
    assert facts == {"area_hash": "a"}
    assert database.execute("FROM meta").fetchall() == [*facts.items()]


def test_a_release_is_made_at_a_whole_second(monkeypatch):
    nothing = SimpleNamespace(speed_provenance=lambda *_: {}, declarations=lambda *_: [])
    monkeypatch.setattr(results, "vault_fixes", nothing)
    monkeypatch.setattr(results, "replace", lambda grid, **_: grid)
    monkeypatch.setattr(results, "read_context", lambda *_: None)
    monkeypatch.setattr(results, "ReleaseContext", SimpleNamespace)
    monkeypatch.setattr(results, "vault_ledger", SimpleNamespace(promise_changes=lambda vault: ()))
    config = SimpleNamespace(
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        city=SimpleNamespace(publisher="p", name="n"),
        context=None,
        policy=None,
        catalogue=None,
    )
    at = datetime(2026, 3, 5, 12, 0, 1, 999_999, tzinfo=UTC)
    grid = SimpleNamespace(area=SimpleNamespace(hash="a"), selection=SimpleNamespace(everything=False))
    found = results.context_of(config, None, SimpleNamespace(ingest_id=1), grid, at)
    assert found.created_at == datetime(2026, 3, 5, 12, 0, 1, tzinfo=UTC)
