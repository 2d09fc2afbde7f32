"""Maps that start from an earlier release: which one it is, what says so, and what verify finds."""

import json

import numpy as np
import pandas as pd
import pytest

from trafficdp.errors import UsageError
from trafficdp.model import Statistic

pytestmark = pytest.mark.store


def know(city, release):
    """Let ``city`` start from ``release``."""
    text = city.config.read_text(encoding="utf-8").partition("\n[[knowledge]]")[0]
    city.config.write_text(f'{text}\n[[knowledge]]\nrelease = "{release}"\n', encoding="utf-8")
    return city.open()


@pytest.fixture(scope="module", params=["counts public", "nothing public"])
def months(request, small_city, tmp_path_factory):
    """A city with two releases, each of newer records, the second from the first."""
    with pytest.MonkeyPatch.context() as patched:
        small_city.try_maps_once(patched.setattr)
        city = small_city.City(tmp_path_factory.mktemp("months"))
        if request.param == "nothing public":
            small_city.write_hidden(city.folder)
        else:
            text = city.config.read_text(encoding="utf-8")
            pooled = text.replace("min_vehicles = 3\n", 'min_vehicles = 3\nmechanism = "partial_pooling"\n')
            city.config.write_text(pooled, encoding="utf-8")
        workspace = know(city, "newest")
        workspace.ingest([city.days[1]])
        city.first = workspace.release(2, force=True)
        workspace.ingest([city.days[2]])
        city.second = workspace.release(2, force=True)
        city.workspace = workspace
        yield city


def test_the_second_map_starts_from_the_first_and_says_so(months, tmp_path):
    first, second = (each.release.disclosure.noise.known for each in (months.first, months.second))
    assert not first
    assert [each.name for each in second] == ["r0001"]
    manifest = json.loads((months.second.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["noise"]["known"][0]["name"] == "r0001"
    noise, earlier = (each.release.estimates[Statistic.MEAN] for each in (months.second, months.first))
    here, there = (
        pd.MultiIndex.from_arrays([each.release.cell, each.release.slot])
        for each in (months.second, months.first)
    )
    found = pd.Series(earlier.value, there).reindex(here).to_numpy()
    np.testing.assert_array_equal(noise.noise["known_1"], found)
    page = (months.second.folder / "map.html").read_text(encoding="utf-8")
    assert "the earlier release r0001" in page
    assert "the earlier release" not in (months.first.folder / "map.html").read_text(encoding="utf-8")
    months.workspace.city_report("r0002", tmp_path / "report.html")
    assert "the earlier release r0001" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_it_costs_nothing_and_the_same_question_stays_free(months):
    losses = {each.release.disclosure.guarantee.epsilon for each in (months.first, months.second)}
    assert losses == {"2"}
    assert months.workspace.release(2, force=True).id == "r0002"
    planned = months.workspace.plan(2)
    assert planned.earlier_release == "r0002"
    assert [each.name for each in planned.allocation.known] == ["r0001"]


def test_everything_is_verified(months):
    assert not [each for each in months.workspace.verify("r0002") if not each.passed]
    names = [each.name for each in months.workspace.verify("r0002")]
    assert any("known before" in each for each in names)
    assert not any("known before" in each.name for each in months.workspace.verify("r0001"))


def test_verify_finds_speeds_that_are_not_those_of_the_source(months, monkeypatch):
    from trafficdp.release import knowledge

    honest = knowledge.speeds_of

    def other(curator, release):
        found = honest(curator, release)
        return type(found)(found.source, found.cell, found.slot, found.speed * 1.01)

    monkeypatch.setattr(knowledge, "speeds_of", other)
    wrong = [each for each in months.workspace.verify("r0002") if not each.passed]
    assert [each.found for each in wrong] == ["other speeds than release r0001 has"]


def test_a_release_that_cannot_be_known_is_named(months):
    for release, said in (("r0009", "r0009"), ("r0001", None)):
        workspace = know(months, release)
        if said:
            with pytest.raises(UsageError, match=said):
                workspace.plan(2, suggestions=False)
        else:
            assert workspace.plan(2, suggestions=False).allocation.known[0].name == release
    other = know(months, "r0001").with_map(resolution=8)
    with pytest.raises(UsageError, match="another resolution or zones"):
        other.plan(2, suggestions=False)
    # "newest" passes over what is of other hexagons
    assert know(months, "newest").with_map(resolution=8).plan(2, suggestions=False).allocation.known == ()
