"""Faults are put where they are meant to be, and a thousand of them cost a city nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_city

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "pipelines"
WORK = """
import errno, json, os, sys
from pathlib import Path
sys.path.insert(0, {pipelines!r})
from system_calls import SYNCS, Kill, PowerCut, watched, why_not

folder = Path({folder!r})
if why_not():
    print(json.dumps(why_not()))
    sys.exit()

def work():
    try:
        with open(folder / "new", "wb", buffering=0) as file:
            file.write(b"abcdef")
            os.fsync(file.fileno())
            file.write(b"ghijkl")
        os.replace(folder / "new", folder / "old")
        (folder / "gone").unlink()
        open("/dev/null", "wb").write(b"not in the folder")
    except OSError as error:
        return error.errno
    return 0

def case(place, answer, cut=False):
    for name in ("old", "gone"):
        (folder / name).write_bytes(b"before")
    (folder / "new").unlink(missing_ok=True)
    spare = folder.with_name("spare")
    spare.mkdir(exist_ok=True)
    power, seen = PowerCut(folder, spare), []
    def decide(call):
        seen.append(call.name)
        if len(seen) == place:
            return answer(call)
        return power.note(call) if cut else 0
    code = watched(work, folder, decide)
    if cut:
        power.happen(names_last=False)
    there = {{name: (folder / name).read_text() for name in sorted(os.listdir(folder))}}
    return [code, seen, there]

def kill(call):
    raise Kill

def half(call):
    call.half_done()
    raise Kill

print(json.dumps([
    case(0, kill),
    case(5, kill),
    case(4, half),
    case(4, lambda call: errno.ENOSPC),
    case(5, lambda call: errno.EROFS),
    case(7, kill, cut=True),
]))
"""


def test_a_fault_meets_the_call_that_is_meant(tmp_path):
    folder = tmp_path / "watched"
    folder.mkdir()
    text = WORK.format(pipelines=str(PIPELINES), folder=str(folder))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if isinstance(found, str):
        pytest.skip(found)
    untouched, killed, torn, full, read_only, power = found
    everything = ["openat", "write", "fsync", "write", "rename", "unlink"]
    assert untouched == [0, everything, {"old": "abcdefghijkl"}]
    before = {"gone": "before", "old": "before"}
    assert killed == [-9, everything[:5], {**before, "new": "abcdefghijkl"}]
    assert torn == [-9, everything[:4], {**before, "new": "abcdefghi"}]
    assert full == [28, everything[:4], {**before, "new": "abcdef"}]
    assert read_only == [30, everything[:5], {**before, "new": "abcdefghijkl"}]
    # written but not synced; renamed and removed, but the folder was not synced
    assert power == [0, everything, {**before, "new": "abcdef"}]


def test_the_guide_shows_the_table_and_every_fault_was_sound():
    table = (ROOT / "data" / "faults" / "table.md").read_text(encoding="utf-8")
    assert table in (ROOT / "docs" / "guides" / "store.md").read_text(encoding="utf-8")
    rows = [
        row.replace(",", "").split(" | ")[1:]
        for row in table.replace("cut, names", "cut names").splitlines()[2:]
    ]
    numbers = [[int(each.rstrip(" |")) for each in row] for row in rows]
    assert sum(row[0] for row in numbers) >= 1_000
    for faults, untouched, refused, killed, sound in numbers:
        assert faults == sound == untouched + refused + killed


@pytest.mark.slow
@pytest.mark.prove(minutes=25, cheap="test_a_fault_meets_the_call_that_is_meant")
def test_a_thousand_faults_leave_a_city_sound(tmp_path):
    city = []
    if not os.environ.get("TRAFFICDP_REAL_DATA"):
        # else it is Austin
        city = ["--city", str(small_city.City(tmp_path / "small", budget=16).folder)]
    done = subprocess.run(
        [
            *(sys.executable, str(PIPELINES / "faults.py"), *city),
            *("--every", "8", "--into", str(tmp_path / "cases")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert len((tmp_path / "cases" / "cases.jsonl").read_text().splitlines()) >= 1_000
