"""The long proofs leave no claim behind: what `make test` passes over, it tests in a cheaper form."""

from types import SimpleNamespace

import pytest


def without_a_cheap_form(items):
    """Tests marked prove of which their file has no other case, and no test that they name in their stead."""
    stay = {(item.path, item.originalname) for item in items if not item.get_closest_marker("prove")}
    proofs = [(item, item.get_closest_marker("prove")) for item in items]
    return [
        item.nodeid
        for item, mark in proofs
        if mark and (item.path, mark.kwargs.get("cheap", item.originalname)) not in stay
    ]


def test_every_proof_has_a_cheap_form_in_its_file(collected):
    assert without_a_cheap_form(collected) == []


def item(name, mark=None, path="test_a.py", case="", asks=()):
    added = []
    return SimpleNamespace(
        fixturenames=asks,
        added=added,
        add_marker=added.append,
        path=path,
        originalname=name,
        nodeid=f"{path}::{name}{case}",
        get_closest_marker={"prove": mark}.get,
    )


def test_a_proof_without_a_cheap_form_is_seen():
    long = pytest.mark.prove
    assert without_a_cheap_form([item("test_a", long.mark, case="[9]"), item("test_a", case="[1]")]) == []
    assert without_a_cheap_form([item("test_a", long(cheap="test_b").mark), item("test_b")]) == []
    assert without_a_cheap_form([item("test_a", long.mark)]) == ["test_a.py::test_a"]
    assert without_a_cheap_form([item("test_a", long.mark), item("test_a", path="test_b.py")])
    assert without_a_cheap_form([item("test_a", long(cheap="test_c").mark), item("test_b")])


def after_collection(request, items, **options):
    """What the suite's own plugin leaves of ``items``."""
    (plugin,) = (each for each in request.config.pluginmanager.get_plugins() if hasattr(each, "COLLECTED"))
    config = SimpleNamespace(
        stash={},
        getoption={"minutes": None, "pick": "", **options}.get,
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    left = list(items)
    plugin.pytest_collection_modifyitems(config, left)
    return left


@pytest.mark.slow
def test_so_many_minutes_of_proofs_are_picked_by_a_text(request):
    long = pytest.mark.prove(minutes=30).mark

    def picked(pick, minutes=20):
        items = [item(f"test_{n}", pytest.mark.prove.mark) for n in range(400)]
        items += [item("test_other"), item("test_long", long)]
        return {each.originalname for each in after_collection(request, items, minutes=minutes, pick=pick)}

    first, again, other = picked("a commit"), picked("a commit"), picked("another")
    assert first == again != other
    # ten seconds each
    assert len(first) == 20 * 6 + 1
    assert "test_other" in first & other
    assert {"test_long" in picked(f"commit {n}", 50) for n in range(30)} == {True, False}
    # what takes longer than there is time is never picked
    assert not any("test_long" in picked(f"commit {n}", 29) for n in range(30))
    few = [item(f"test_{n}", pytest.mark.prove.mark) for n in range(9)]
    assert len(after_collection(request, few, minutes=1)) == 6
    assert after_collection(request, few) == few


def test_tests_that_ask_for_a_store_are_marked(request):
    given = [("small_city", "tmp_path"), ("_templates",), ("small_city",), ("tmp_path",)]
    found = after_collection(request, [item(f"test_{n}", asks=each) for n, each in enumerate(given)])
    assert [each.added for each in found] == [["store"], ["store"], [], []]
