"""Files of a stream arrive whole and once; a replay runs at its speed from when it is first asked."""

import pytest

from trafficdp.errors import UsageError
from trafficdp.release.feeds import WatchedFolder, file_stamp, pace


def test_whole_files_arrive_once_by_name_and_again_when_they_are_replaced(tmp_path):
    folder = WatchedFolder(tmp_path)
    for name in ("b.csv", "a.csv", ".hidden", "c.csv.part"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    first = folder.arrived()
    assert [path.name for path in first] == ["a.csv", "b.csv"]
    # not settled: they are still to be done
    assert folder.arrived() == first
    for path in first:
        folder.mark_done(path, file_stamp(path))
    assert folder.arrived() == []
    (tmp_path / "a.csv").write_text("longer than before", encoding="utf-8")
    assert [path.name for path in folder.arrived()] == ["a.csv"]


def test_what_is_gone_is_no_file_and_settles_nothing(tmp_path):
    folder, path = WatchedFolder(tmp_path), tmp_path / "a.csv"
    assert file_stamp(path) is None
    folder.mark_done(path, file_stamp(path))
    path.write_text("a", encoding="utf-8")
    assert folder.arrived() == [path]


def test_an_instant_is_due_when_its_share_of_the_time_has_passed():
    now = [100.0]
    due_us = pace(60, lambda: now[0])
    assert due_us(5_000_000) == 5_000_000
    now[0] += 2.5
    assert due_us(5_000_000) == 155_000_000


def test_without_a_speed_all_is_due_and_backwards_nothing_runs():
    assert pace(0)(7) is None
    for speed in (-1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="cannot run at this speed"):
            pace(speed)
