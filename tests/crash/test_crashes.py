"""A command may die at any instant: neither privacy nor budget is lost, and the next command finishes it.

The deaths and the examinations afterwards are in driver.py, a program of its own that forks.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("driver.py")


def findings_of(folder, *arguments, mode):
    done = subprocess.run(
        [sys.executable, str(DRIVER), mode, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    findings = json.loads(done.stdout)
    unsound = [each["name"] for each in findings if not each["sound"]]
    assert not unsound, f"{unsound}\n{done.stderr[-6000:]}"
    return findings


def test_children_do_without_what_only_an_extra_needs(tmp_path):
    missing = tmp_path / "weasyprint"
    missing.mkdir()
    (missing / "__init__.py").write_text("raise OSError('no Pango')\n", encoding="utf-8")
    folders = [str(tmp_path), str(DRIVER.parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", "import children; children.import_everything()"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_a_death_at_every_named_boundary_is_mended_by_the_next_command(tmp_path):
    findings = findings_of(tmp_path, mode="boundaries")
    assert len(findings) == 11
    assert all(each["killed"] for each in findings)
    stages = Counter(each["stage"] for each in findings)
    assert stages["charged, no values"] == 3
    assert stages["values committed, not published"] == 3


@pytest.mark.slow
def test_a_death_before_every_rename_is_mended_by_the_next_command(tmp_path):
    findings = findings_of(tmp_path, mode="renames")
    assert sum(each["killed"] for each in findings) >= 12
    assert [each["name"].split(":")[0] for each in findings if not each["killed"]] == ["release", "withdraw"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.prove(minutes=7))])
def test_a_death_at_a_random_instant_is_mended_by_the_next_command(tmp_path, count):
    findings = findings_of(tmp_path, str(count), "20260303", mode="random")
    print("deaths by stage:", dict(Counter(each["stage"] for each in findings if each["killed"])))
    assert sum(each["killed"] for each in findings) == count


@pytest.mark.slow
def test_files_that_may_not_grow_cost_nothing_or_are_mended(tmp_path):
    findings = findings_of(tmp_path, mode="limits")
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
    assert sum(each["charged"] and each["code"] == 6 for each in findings) >= 2


@pytest.mark.slow
def test_a_vehicle_is_forgotten_whole_or_not_at_all_wherever_the_command_dies(tmp_path):
    findings = findings_of(tmp_path, mode="forgetting")
    assert all(each["killed"] for each in findings)
    gone = {each["name"]: each["gone"] for each in findings}
    # the vault's rename decides, the head's only remembers
    assert not gone["vault rewritten"]
    assert not gone["before rename 1"]
    assert gone["vault swapped"]
    assert gone["before rename 2"]
