"""Maps that start from a timetable: the manifest names it, pages say so, and anybody can recompute them."""

import hashlib
import json
import shutil
import zipfile

import numpy as np
import pytest

from trafficdp.binning.cells import cell_text
from trafficdp.errors import ConfigError
from trafficdp.model import Statistic
from trafficdp.privacy.release import published_frame
from trafficdp.release.recomputation import verify_public

pytestmark = pytest.mark.store
KNOWLEDGE = (
    '\n[[knowledge]]\nkind = "timetable"\npath = "gtfs.zip"\nlicence = "CC-BY-4.0"\ndate = "2026-02-28"\n'
)


def write_timetable(folder, cells):
    """A line that calls at every cell's middle and 200 m beside it, every two minutes of the way."""
    stops, times = (
        "stop_id,stop_lat,stop_lon\n",
        "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n",
    )
    for number, (latitude, longitude) in enumerate(cells):
        stops += f"a{number},{latitude},{longitude}\nb{number},{latitude + 0.002},{longitude}\n"
        then = f"8:0{number + 1}:00"
        times += f"t{number},8:00:00,8:00:00,a{number},1\nt{number},{then},{then},b{number},2\n"
    with zipfile.ZipFile(folder / "gtfs.zip", "w") as archive:
        archive.writestr("stops.txt", stops)
        archive.writestr("stop_times.txt", times)
        archive.writestr(
            "trips.txt", "trip_id,service_id\n" + "".join(f"t{n},s\n" for n in range(len(cells)))
        )
        archive.writestr(
            "calendar.txt",
            "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,start_date,end_date\n"
            "s,1,1,1,1,1,1,1,20260101,20261231\n",
        )
    return folder / "gtfs.zip"


@pytest.fixture(scope="module", params=["counts public", "nothing public"])
def city(request, small_city, tmp_path_factory):
    """A city whose map starts from a timetable of its four cells."""
    with pytest.MonkeyPatch.context() as patched:
        small_city.try_maps_once(patched.setattr)
        city = small_city.City(tmp_path_factory.mktemp("lines"))
        city.file = write_timetable(city.folder, small_city.CELLS)
        if request.param == "nothing public":
            small_city.write_hidden(city.folder)
            text = city.config.read_text(encoding="utf-8")
        else:
            text = city.config.read_text(encoding="utf-8")
            text = text.replace("min_vehicles = 3\n", 'min_vehicles = 3\nmechanism = "partial_pooling"\n')
        city.config.write_text(text + KNOWLEDGE, encoding="utf-8")
        city.workspace = city.open()
        city.workspace.ingest([city.days[1]])
        city.released = city.workspace.release(2, force=True)
        yield city


def test_the_manifest_names_the_file(city):
    manifest = json.loads((city.released.folder / "manifest.json").read_text(encoding="utf-8"))
    (source,) = manifest["noise"]["known"]
    assert source.pop("share") in (0.6, 1.0)
    assert source == {
        "kind": "timetable",
        "name": "gtfs.zip",
        "licence": "CC-BY-4.0",
        "date": "2026-02-28",
        "sha256": hashlib.sha256(city.file.read_bytes()).hexdigest(),
    }


def test_its_speeds_are_published(city):
    speed = city.released.release.estimates[Statistic.MEAN].noise["known_1"]
    # 0.002 degrees in one to four minutes
    expected = np.round(0.002 * np.pi / 180 * 6_371_008.8 / (60 * np.arange(1, 5)), 2)
    assert set(expected) <= set(speed[~np.isnan(speed)])
    assert len(set(speed[~np.isnan(speed)])) == 4


def test_pages_and_plan_say_so(city, tmp_path):
    said = "the timetable gtfs.zip (2026-02-28, CC-BY-4.0)"
    assert said in (city.released.folder / "map.html").read_text(encoding="utf-8")
    city.workspace.city_report(city.released.id, tmp_path / "report.html")
    assert said in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [each.in_words for each in city.workspace.plan(2).allocation.known] == [said]


def test_means_are_compared_with_scheduled_speeds(city, tmp_path):
    frame = published_frame(city.released.release)
    scheduled = next(frame[each] for each in frame if each.endswith("_scheduled") and "_of_" not in each)
    mean = frame[scheduled.name.removesuffix("_scheduled")]
    there = scheduled.notna() & mean.notna()
    assert there.sum() >= 4
    for end in ("", "_low", "_high"):
        share = frame[f"speed_mean_of_scheduled{end}"]
        np.testing.assert_allclose(share[there], (frame[f"{mean.name}{end}"] / scheduled)[there], atol=0.01)
        assert share[~there].isna().all()
    found = city.workspace.ask(
        "SELECT speed_mean_of_scheduled AS share FROM latest_cells ORDER BY cell, slot"
    )
    np.testing.assert_allclose(found.to_frame()["share"], frame["speed_mean_of_scheduled"], equal_nan=True)
    city.workspace.city_report(city.released.id, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Against the timetable" in text
    assert "with a scheduled speed" in text


def test_it_is_verified_with_and_without_the_store(city, tmp_path):
    assert not [each for each in city.workspace.verify(city.released.id) if not each.passed]
    if not city.workspace.config.relation.hides_presence:
        return
    away = shutil.copytree(city.released.folder, tmp_path / "away")
    assert not [each for each in verify_public(away) if not each.passed]


def test_typical_speeds_are_known_in_the_same_way(city):
    before = city.config.read_text(encoding="utf-8")
    cells = np.unique(city.released.release.cell)
    rows = "".join(f"{cell},{10 + number}\n" for number, cell in enumerate(cell_text(cells)))
    (city.folder / "limits.csv").write_text(f"hex_id,limit\n{rows}", encoding="utf-8")
    table = KNOWLEDGE.replace("timetable", "speeds").replace("gtfs.zip", "limits.csv")
    text = before.replace(KNOWLEDGE, f'{table}column = "limit"\nspeed_unit = "km/h"\n')
    city.config.write_text(text, encoding="utf-8")
    allocation = city.open().plan(2).allocation
    city.config.write_text(before, encoding="utf-8")
    assert [each.in_words for each in allocation.known] == [
        "the typical speeds of limits.csv (2026-02-28, CC-BY-4.0)"
    ]
    own = allocation.counts.cell
    expected = np.round((10 + np.searchsorted(cells, own)) / 3.6, 2)
    np.testing.assert_allclose(allocation.calibrated.public.known.speed[0], expected)


def test_the_same_question_stays_free_and_a_file_that_is_gone_is_named(city):
    assert city.workspace.release(2, force=True).id == city.released.id
    away = city.file.rename(city.folder / "elsewhere.zip")
    with pytest.raises(ConfigError, match=r"gtfs\.zip does not exist"):
        city.workspace.plan(3)
    away.rename(city.file)
