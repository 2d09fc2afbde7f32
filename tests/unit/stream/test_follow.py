"""A folder is looked at again and again: every whole file once, a replaced one again."""

from trafficdp.stream.horizon import WatchedFolder, stamp_of


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
        folder.settle(path, stamp_of(path))
    assert folder.arrived() == []
    (tmp_path / "a.csv").write_text("longer than before", encoding="utf-8")
    assert [path.name for path in folder.arrived()] == ["a.csv"]


def test_what_is_gone_is_no_file_and_settles_nothing(tmp_path):
    folder, path = WatchedFolder(tmp_path), tmp_path / "a.csv"
    assert stamp_of(path) is None
    folder.settle(path, stamp_of(path))
    path.write_text("a", encoding="utf-8")
    assert folder.arrived() == [path]
