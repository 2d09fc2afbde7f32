"""Golden transcripts: what every mechanism, accounting, plan, stream and SQL answer did is what it does."""

import importlib.util
import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "transcripts"
SHOWN = 20
"""How many fields that differ are named."""


def _harness():
    spec = importlib.util.spec_from_file_location("golden_transcripts", HERE / "write.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


harness = _harness()


@pytest.fixture(scope="session")
def cities(tmp_path_factory):
    return harness.Cities(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def written():
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.json"))}


@pytest.mark.parametrize(
    ("file", "case"),
    [
        pytest.param(file, case, marks=pytest.mark.real if file == harness.AUSTIN_FILE else ())
        for file, cases in harness.CASES.items()
        for case in cases
    ],
)
def test_a_transcript_is_what_was_written(file, case, cities, written):
    if file == harness.AUSTIN_FILE and not harness.austin_there():
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    found = json.loads(harness.text_of(harness.plain(harness.CASES[file][case](cities))))
    told = list(harness.differences(written[file][case], found))
    more = [f"... and {len(told) - SHOWN} fields more"] if len(told) > SHOWN else []
    assert not told, "\n".join([f"{file}, {case}:", *told[:SHOWN], *more])


def test_every_case_is_written_and_every_transcript_is_run(written):
    assert {file: sorted(cases) for file, cases in written.items()} == {
        file: sorted(cases) for file, cases in harness.CASES.items()
    }
    assert sum(path.stat().st_size for path in HERE.glob("*.json")) < 300_000


def test_a_difference_is_told_with_its_field_and_its_size():
    before = {"laws": {"charges": [{"1": 10**13, "2": 7}]}, "draws": {"mean": [1.0, None, "released"]}}
    assert list(harness.differences(before, before)) == []
    after = {"laws": {"charges": [{"1": 10**13 + 1}]}, "draws": {"mean": [1 + 1e-11, 2.0, "withheld"]}}
    assert list(harness.differences(before, after)) == [
        "draws / mean [0]: 1.0 became 1.00000000001, by +1e-11, 1 times",
        "draws / mean [1]: None became 2.0",
        "draws / mean [2]: 'released' became 'withheld'",
        "laws / charges [0] / 1: 10000000000000 became 10000000000001, by +1, 1 times",
        "laws / charges [0] / 2: is missing",
    ]
    assert list(harness.differences([1.0, 0.0], [1 + 1e-13, 0.0])) == []
