"""`ingest --undo`: what a file brought is taken back while no release has used it, alike whatever it was."""

import pytest

from trafficdp.errors import UsageError
from trafficdp.store import vault
from trafficdp.store.vault import Vault

FIXES = "SELECT * EXCLUDE (ingest_id, vehicle_id) FROM fixes ORDER BY ALL"


def names(city):
    return [row for (row,) in city.sql("SELECT data_version FROM ingests ORDER BY ingest_id")]


def test_what_the_file_brought_goes_and_the_data_gets_a_new_name(filled):
    workspace = filled.open()
    before, first = filled.sql(FIXES), names(filled)
    (read,) = workspace.ingest([filled.days[2]])
    workspace.plan(suggestions=False)
    second = names(filled)
    (done,) = workspace.undo_ingest(filled.days[2])
    assert (done.file, done.records, done.read_later) == (filled.days[2].name, read.added, ())
    assert filled.sql(FIXES) == before
    assert names(filled)[0] == first[0]
    assert names(filled)[1] not in second
    assert workspace.status().files == len(workspace.reports()) == 1
    # what is charged, published and verified afterwards is of what is left, and so is a cached plan
    release = workspace.release(force=True)
    assert all(each.passed for each in workspace.verify(release.id))
    with Vault.open(filled.store) as opened:
        assert vault.problems(opened) == []


def test_it_can_be_ingested_again_read_right(filled):
    """Also with another study area, where all files were undone."""
    workspace = filled.open()
    workspace.undo_ingest(filled.days[1].name)
    with pytest.raises(UsageError, match="the store is empty"):
        workspace.plan()
    assert workspace.status().records == 0
    (done,) = filled.open(area="[72.70, 21.10, 72.96, 21.28]").ingest([filled.days[1]])
    assert not done.read_before
    assert done.added > 0
    again = filled.open(unit="m/s", area="[72.70, 21.10, 72.96, 21.28]")
    again.undo_ingest(filled.days[1].name)
    again.ingest([filled.days[1]])
    assert {unit for (unit,) in filled.sql("SELECT DISTINCT speed_unit FROM fixes")} == {"ms"}


def test_a_file_of_which_nothing_was_kept_is_read_again(small_city, tmp_path):
    """Latitude and longitude in each other's place, where nothing about a vehicle is public."""
    city = small_city.City(tmp_path)
    small_city.write_hidden(city.folder)
    right = city.config.read_text(encoding="utf-8")
    swapped = right.replace('e = "latitude"', 'e = ""').replace('e = "longitude"', 'e = "latitude"')
    swapped = swapped.replace('e = ""', 'e = "longitude"')
    assert swapped != right
    city.config.write_text(swapped, encoding="utf-8")
    (done,) = city.open().ingest([city.days[1]])
    assert (done.report.rows_kept, done.added) == (0, 0)
    city.config.write_text(right, encoding="utf-8")
    (done,) = city.open().ingest([city.days[1]])
    assert done.added > 0
    assert (done.read_before, done.declared_otherwise) == (True, True)


def test_what_others_left_out_comes_back_when_they_are_read_again(filled):
    workspace = filled.open()
    copy = filled.folder / "copy.csv"
    copy.write_bytes(filled.days[1].read_bytes())
    before = filled.sql(FIXES)
    workspace.ingest([copy, filled.days[2]])
    (done,) = workspace.undo_ingest(filled.days[1].name)
    assert done.read_later == ("copy.csv", filled.days[2].name)
    (again,) = workspace.ingest([copy])
    assert again.added == done.records == len(before)


def test_the_newest_reading_goes_first_and_one_that_brought_nothing_renames_too(filled):
    workspace = filled.open()
    workspace.ingest([filled.days[1]])
    before, first = filled.sql(FIXES), names(filled)
    (done,) = workspace.undo_ingest(filled.days[1].name)
    assert done.records == 0
    assert filled.sql(FIXES) == before
    assert names(filled)[0] == first[0]
    assert names(filled)[1] != first[1]
    (done,) = workspace.undo_ingest(filled.days[1].name)
    assert done.records == len(before)
    with pytest.raises(UsageError, match="the store is empty"):
        workspace.undo_ingest(filled.days[1].name)


def test_what_a_release_was_made_of_stays(released):
    """Withdrawn or not, and also where a vehicle was forgotten since, so that the data has another name."""
    workspace = released.open()
    workspace.ingest([released.days[2]])
    workspace.withdraw("r0001")
    workspace.forget(["KA 99 X 1"])
    before = released.dump()
    for files in ("day1.csv", ["day2.csv", "day1.csv"]):
        with pytest.raises(UsageError, match=r"day1\.csv, in the data of r0001"):
            workspace.undo_ingest(files)
    with pytest.raises(UsageError, match=r"no file of this name .* one of day1\.csv, day2\.csv"):
        workspace.undo_ingest("day3.csv")
    assert released.dump() == before
    workspace.undo_ingest("day2.csv")


def test_a_plan_that_was_saved_before_is_refused(filled):
    workspace = filled.open()
    workspace.ingest([filled.days[1]])
    workspace.plan(save="spring")
    workspace.undo_ingest(filled.days[1].name)
    with pytest.raises(UsageError, match="the data is not what this plan was made from"):
        workspace.release(plan="spring", force=True)
