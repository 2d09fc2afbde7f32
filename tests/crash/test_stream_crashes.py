"""Streams killed at any instant say what they would have said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("stream_driver.py")


def findings_of(folder, *arguments):
    command = [sys.executable, "-W", "error", str(DRIVER), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    findings = json.loads(done.stdout)
    print({name: findings[name] for name in ("deaths", "streams", "stages")})
    return findings, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "count"), [(4, 8), pytest.param(14, 200, marks=pytest.mark.prove(minutes=16))]
)
def test_a_stream_killed_at_random_instants_publishes_what_it_would_have(tmp_path, files, count):
    findings, said = findings_of(tmp_path, str(files), str(count), "20260303")
    assert findings["problems"] == [], said[-2000:]
    assert findings["deaths"] == count
    # of the few publications that there are: deaths before the first, and after some
    assert findings["publications"] >= 2
    assert len(findings["stages"]) >= min(max(count // 5, 2), findings["publications"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "times", "stages"),
    [
        ("4", ("1",), {"before the first": 3, "after 1 publications": 2}),
        pytest.param(
            "14",
            ("1", "2", "5"),
            {
                "before the first": 7,
                "after 1 publications": 2,
                "after 2 publications": 2,
                "after 5 publications": 2,
            },
            marks=pytest.mark.prove(minutes=2),
        ),
    ],
)
def test_a_stream_that_dies_at_a_boundary_goes_on(tmp_path, files, times, stages):
    findings, said = findings_of(tmp_path, files, "boundaries", *times)
    assert findings["problems"] == [], said[-2000:]
    # every boundary as often as it is asked for, but "charged", which comes once
    assert findings["stages"] == stages
