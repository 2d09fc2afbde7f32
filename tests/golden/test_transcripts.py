"""Golden transcripts: what every mechanism, accounting, plan, stream and SQL answer did is what it does."""

import json
from pathlib import Path

import pytest
from recording import Cities, differences, plain, text_of
from write import AUSTIN_FILE, CASES, SUGGESTIONS, austin_there

HERE = Path(__file__).parent / "transcripts"
SHOWN = 20
"""How many fields that differ are named."""


@pytest.fixture(scope="session")
def cities(tmp_path_factory):
    return Cities(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def written():
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.json"))}


def _marks(file, case):
    """Cases that another one nearly tells are long proofs: of a mean whose variance is told with it, say."""
    alike = (
        case == SUGGESTIONS
        or (file == "mechanisms.json" and case.endswith("_wrap_around: variance"))
        or (file == "accountings.json" and case.endswith(": mean") and f"{case}, variance" in CASES[file])
    )
    return [*([pytest.mark.real] if file == AUSTIN_FILE else []), *([pytest.mark.prove] if alike else [])]


@pytest.mark.slow
@pytest.mark.usefixtures("tables_alone")
@pytest.mark.parametrize(
    ("file", "case"),
    [pytest.param(file, case, marks=_marks(file, case)) for file, cases in CASES.items() for case in cases],
)
def test_a_transcript_is_what_was_written(file, case, cities, written):
    if file == AUSTIN_FILE and not austin_there():
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    found = json.loads(text_of(plain(CASES[file][case](cities))))
    told = list(differences(written[file][case], found))
    more = [f"... and {len(told) - SHOWN} fields more"] if len(told) > SHOWN else []
    assert not told, "\n".join([f"{file}, {case}:", *told[:SHOWN], *more])


def test_every_case_is_written_and_every_transcript_is_run(written):
    assert {file: sorted(cases) for file, cases in written.items()} == {
        file: sorted(cases) for file, cases in CASES.items()
    }
    assert sum(path.stat().st_size for path in HERE.glob("*.json")) < 300_000


def test_a_difference_is_told_with_its_field_and_its_size():
    before = {"laws": {"charges": [{"1": 10**13, "2": 7}]}, "draws": {"mean": [1.0, None, "released"]}}
    assert list(differences(before, before)) == []
    after = {"laws": {"charges": [{"1": 10**13 + 1}]}, "draws": {"mean": [1 + 1e-11, 2.0, "withheld"]}}
    assert list(differences(before, after)) == [
        "draws / mean [0]: 1.0 became 1.00000000001, by +1e-11, 1 times",
        "draws / mean [1]: None became 2.0",
        "draws / mean [2]: 'released' became 'withheld'",
        "laws / charges [0] / 1: 10000000000000 became 10000000000001, by +1, 1 times",
        "laws / charges [0] / 2: is missing",
    ]
    assert list(differences([1.0, 0.0], [1 + 1e-13, 0.0])) == []
