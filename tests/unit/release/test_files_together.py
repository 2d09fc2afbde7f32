"""Files of one `ingest` give what their archive gives: speeds across snapshots, in any order of the files."""

import random
import zipfile

import pytest

from trafficdp.errors import DataError
from trafficdp.ingest import vehicle_key
from trafficdp.ingest.report import FileReport, with_few_rows_kept
from trafficdp.store import vault
from trafficdp.store.vault import Vault

# pseudonyms differ from city to city, and so do the numbers of vehicles: places do not
FIXES = "SELECT time_us, latitude, longitude, speed_centi, derived FROM fixes ORDER BY ALL"
HEAD = "plate,at,latitude,longitude,speed\n"
STEP = 20


def row(number, second, speed=""):
    """Bus ``number`` drives north at as many m/s; so its latitude tells who it is."""
    latitude = 21.11 + second * number / 111_195.08
    return f"V{number},2026-03-03T08:{second // 60:02}:{second % 60:02}+05:30,{latitude:.9f},72.8,{speed}\n"


def snapshots(folder, count=9):
    """Files of one moment each, in the order of their names; half of the buses come again in the next one."""
    paths = []
    for at in range(count):
        seen = [row(number, at * STEP) for number in range(1, 20)]
        seen += [row(number, max(at - 1, 0) * STEP) for number in range(1, 20, 2)]
        random.Random(at).shuffle(seen)
        paths.append(folder / f"s{at:03}.csv")
        paths[-1].write_text(HEAD + "".join(seen), encoding="utf-8")
    return paths


def archive(folder, paths):
    path = folder / "day.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for each in paths:
            opened.write(each, each.name)
    return path


@pytest.fixture
def deriving(small_city, tmp_path):
    """Return a new city whose source derives the speeds that are missing."""

    def make(name):
        city = small_city.City(tmp_path / name)
        text = city.config.read_text(encoding="utf-8")
        derives = 'files = ["*.csv", "*.zip"]\nmissing_speed = "derive"'
        city.config.write_text(text.replace('files = ["*.csv"]', derives), encoding="utf-8")
        return city

    return make


@pytest.mark.parametrize("at_once", [vehicle_key.ROWS_AT_ONCE, 30])
def test_files_give_what_their_archive_gives_in_any_order(deriving, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(vehicle_key, "ROWS_AT_ONCE", at_once)
    # some parts are cut a second time
    monkeypatch.setattr(vehicle_key, "LARGEST_PART", at_once // 15)
    paths = snapshots(tmp_path)
    one = deriving("one")
    one.open().ingest([archive(tmp_path, paths)])
    expected = one.sql(FIXES)
    assert len(expected) == 19 * (len(paths) - 1)
    assert all(derived for *_, derived in expected)
    reports = []
    for seed in range(3):
        given = random.Random(seed).sample(paths, len(paths))
        city = deriving(f"many{seed}")
        done = city.open().ingest(given)
        assert city.sql(FIXES) == expected
        assert [each.file for each in done] == [path.name for path in given]
        reports.append(sorted((each.file, each.added, each.report.to_json()) for each in done))
        with Vault.open(city.store) as opened:
            assert vault.problems(opened) == []
    assert reports[0] == reports[1] == reports[2]
    first, *others = (FileReport.from_json(report) for _, _, report in reports[0])
    assert (first.rows_in, first.rows_kept, first.derived) == (29, 0, 0)
    # what came in the file before is kept of each, as it is of a file alone, and new once
    assert {each.rejected.get("duplicate_in_file", 0) for each in others} == {0}
    assert sum(added for _, added, _ in reports[0]) == len(expected)


def test_a_file_alone_is_judged_with_the_others(deriving, tmp_path):
    paths = snapshots(tmp_path)
    city = deriving("one")
    with pytest.raises(DataError, match="ingest those of a day together"):
        city.open().ingest(paths[:1])
    far = [path.with_name(f"far{number}.csv") for number, path in enumerate(paths)]
    for path in far:
        path.write_text(HEAD + row(1, 0).replace("72.8", "12.8"), encoding="utf-8")
    with pytest.raises(DataError, match=r"no row of 9 files of source buses can be kept.*outside_area"):
        city.open().ingest(far)
    done = city.open().ingest([*paths, *far[:1]])
    assert done[-1].report.rows_kept == 0
    assert with_few_rows_kept(each.report for each in done) == []
    little = with_few_rows_kept(
        FileReport(f"{n}.csv", "buses", 9, n, {"outside_area": 9 - n}) for n in (4, 5)
    )
    assert [each.file for each in little] == ["4.csv"]


def test_a_record_in_two_files_is_counted_once_and_each_file_goes_alone(deriving, tmp_path):
    city = deriving("one")
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for path, seconds in zip(paths, ((0, 20), (20, 40), (40, 60)), strict=True):
        path.write_text(HEAD + "".join(row(5, second) for second in seconds), encoding="utf-8")
    workspace = city.open()
    done = workspace.ingest(paths[::-1])
    assert [(each.report.rows_kept, each.added) for each in done] == [(2, 1), (2, 1), (1, 1)]
    assert [each.read_before for each in workspace.ingest(paths)] == [True] * 3
    workspace.undo_ingest([path.name for path in paths])
    (gone,) = workspace.undo_ingest("b.csv")
    assert gone.records == 1
    assert gone.read_later == ("c.csv",)
    assert len(city.sql(FIXES)) == 2


def test_hours_that_come_twice_are_told_apart_within_a_file(deriving, tmp_path):
    """The order of files says nothing: their names need not be in that of time."""
    city = deriving("one")
    text = city.config.read_text(encoding="utf-8").replace("Asia/Kolkata", "Europe/Vienna")
    text = text.replace("2026-03-03", "2026-10-24").replace("2026-03-04", "2026-10-25")
    city.config.write_text(text + 'time_zone = "Europe/Vienna"\n', encoding="utf-8")
    before, after = tmp_path / "b.csv", tmp_path / "a.csv"
    for path in (before, after):
        rows = [row(3, second).replace("2026-03-03T08", "2026-10-25T02") for second in (0, 20, 40)]
        path.write_text(HEAD + "".join(rows).replace("+05:30", ""), encoding="utf-8")
    with pytest.raises(DataError, match="ambiguous_local_time"):
        city.open().ingest([before, after])
