"""Earlier releases are found by an index, which is never believed without the release itself."""

from collections import Counter

import pytest

from trafficdp.release.specification import Specification

pytestmark = pytest.mark.usefixtures("two_cities", "tables_alone")


def test_the_same_release_is_found_until_it_is_withdrawn(released):
    workspace = released.open()
    second = workspace.release(4, force=True)
    assert workspace.plan(4).earlier_release == second.id == "r0002"
    assert workspace.release(4, force=True).is_reused
    assert workspace.release(force=True).id == "r0001"
    assert second.release.disclosure.catalogue.previous == "r0001"
    workspace.withdraw("r0002")
    assert workspace.plan(4).earlier_release is None


def test_what_the_index_says_is_compared_with_the_release_itself(released):
    workspace = released.open()
    workspace.release(4, force=True)
    digests = dict(released.sql("SELECT release_id, numbers_sha256 FROM release_index"))
    assert workspace.plan(4).earlier_release == "r0002"
    (second,) = released.sql("SELECT numbers_sha256 FROM release_index WHERE release_id = 'r0002'")
    assert digests["r0001"] != second[0]
    released.sql(f"UPDATE release_index SET numbers_sha256 = '{second[0]}'")
    released.sql("UPDATE release_index SET release_id = 'r0003' WHERE release_id = 'r0002'")
    # r0001 is said to answer it, and does not
    assert workspace.plan(4).earlier_release is None


def test_a_later_release_reads_no_more_specifications(released, monkeypatch):
    read = Counter()
    sound = Specification.from_json

    def counting(text):
        read[len(releases)] += 1
        return sound(text)

    monkeypatch.setattr(Specification, "from_json", counting)
    workspace, releases = released.open(budget=100), []
    for _ in range(5):
        releases.append(workspace.release(force=True, again=True).id)
    assert len({read[number] for number in (1, 2, 3, 4)}) == 1, read


def test_the_index_is_kept_when_vehicles_are_forgotten(released):
    workspace = released.open()
    assert workspace.plan().earlier_release == "r0001"
    before = released.sql("FROM release_index")
    workspace.forget(["no such vehicle"])
    assert released.sql("FROM release_index") == before != []
