"""A command may die at any instant: neither privacy nor budget is lost, and the next command finishes it.

The deaths and the examinations afterwards are in driver.py, a program of its own that forks.
"""

from collections import Counter

import pytest

pytestmark = pytest.mark.xdist_group("crashes")
LIMITS = (0, 300, 5000, 40_000, 100_000, 2_000_000)
"""Largest sizes of a file, in bytes: from nothing at all to more than the small city needs."""
BETWEEN = (3, 4, 5, 6, 7, 8)
"""Renames of a release that put one more file into its new folder: neither the first nor the last."""


@pytest.fixture(scope="session")
def findings_of(started, tmp_path_factory):
    """``findings_of(task, ...)``: what the driver, which starts once, says of a task; all of it is sound.

    It does without what only an extra needs: a package that cannot be imported is in the way.
    """
    folder = tmp_path_factory.mktemp("crashes")
    missing = folder / "missing" / "weasyprint"
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise OSError('no Pango')\n", encoding="utf-8")
    ask = started("driver.py", folder, before=[str(missing.parent)])

    def findings_of(*task):
        findings, said = ask(*task)
        unsound = [each["name"] for each in findings if not each["sound"]]
        assert not unsound, f"{unsound}\n{said[-6000:]}"
        return findings

    return findings_of


@pytest.mark.slow
@pytest.mark.parametrize(
    "everywhere", [(), pytest.param(("all",), marks=pytest.mark.prove)], ids=["first", "all"]
)
def test_a_death_at_every_named_boundary_is_mended_by_the_next_command(findings_of, everywhere):
    findings = findings_of("boundaries", *everywhere)
    assert len(findings) == 13
    assert all(each["killed"] for each in findings)
    stages = Counter(each["stage"] for each in findings)
    assert stages["charged, no values"] == 3
    assert stages["values committed, not published"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "passed_over", [BETWEEN, pytest.param((), marks=pytest.mark.prove)], ids=["all but alike", "all"]
)
def test_a_death_before_every_rename_is_mended_by_the_next_command(findings_of, passed_over):
    findings = findings_of("renames", *passed_over)
    assert sum(each["killed"] for each in findings) == 15 - len(passed_over)
    assert [each["name"].split(":")[0] for each in findings if not each["killed"]] == ["release", "withdraw"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(100, marks=pytest.mark.prove(minutes=4))])
def test_a_death_at_a_random_instant_is_mended_by_the_next_command(findings_of, count):
    findings = findings_of("random", count, 20260303)
    print("deaths by stage:", dict(Counter(each["stage"] for each in findings if each["killed"])))
    assert sum(each["killed"] for each in findings) == count


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [LIMITS[1::2], pytest.param(LIMITS, marks=pytest.mark.prove)], ids=["three", "six"]
)
def test_files_that_may_not_grow_cost_nothing_or_are_mended(findings_of, sizes):
    findings = findings_of("limits", *sizes)
    for each in findings:
        assert each["code"] in (0, 6), each
        if each["code"] == 6:
            assert each["lines"] == 1, each
            assert "the disk is full" in each["says"] or "no space left" in each["says"], each
        if each["command"] == "ingest":
            assert each["unchanged"] == (each["code"] == 6), each
        if each["command"] == "release" and not each["charged"]:
            assert each["unchanged"], each
    codes = Counter((each["command"], each["code"]) for each in findings)
    assert all(codes[command, code] >= 1 for command in ("ingest", "release", "withdraw") for code in (0, 6))
    # a disk that fills up after the charge: the next command finished the release
    assert sum(each["charged"] and each["code"] == 6 for each in findings) >= len(sizes) // 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "instants", [(0.1,), pytest.param((0.02, 0.05, 0.1, 0.2, 0.4), marks=pytest.mark.prove)]
)
def test_a_vehicle_is_forgotten_whole_or_not_at_all_wherever_the_command_dies(findings_of, instants):
    findings = findings_of("forgetting", *instants)
    assert all(each["killed"] for each in findings)
    gone = {each["name"]: each["gone"] for each in findings}
    # the vault's rename decides, the head's only remembers
    assert not gone["vault rewritten"]
    assert not gone["before rename 1"]
    assert gone["vault swapped"]
    assert gone["before rename 2"]
