"""The committed table of audits is whole, and says what audits find."""

import importlib.util
from pathlib import Path

import pytest

from trafficdp.audit.releases import audited_releases
from trafficdp.audit.wrong import mistakes
from trafficdp.cli.commands.audit import BOUND, DELTA, slug
from trafficdp.mechanisms.per_statistic_map import MECHANISMS
from trafficdp.privacy.loss import PureDP

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("audit_script", ROOT / "pipelines" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_mechanism_and_mistake_has_its_row(script):
    found = rows(script.TABLE.read_text(encoding="utf-8"))
    everyone = [(m.name, s.value) for m in MECHANISMS for s in m.statistics]
    everyone += [(slug(mistake.name), "") for mistake in mistakes(BOUND)]
    releases = audited_releases(BOUND, PureDP.of(1), DELTA)
    everyone += [(release.name, "") for release in releases]
    assert [(row[0], row[1]) for row in found] == everyone
    for name, statistic, claimed, _, least, _, verdict in found:
        right = bool(statistic) or name in {release.name for release in releases}
        assert verdict == ("keeps" if right else "**caught**"), name
        assert (float(least) <= float(claimed)) == right, name


FOUND = {
    "name": "pooled",
    "statistic": None,
    "claim": 1.0,
    "delta": 0,
    "lower_bound": 2.5,
    "draws": 1000,
    "verdict": "caught",
}


def test_a_finding_is_a_row(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "findings", lambda draws: [{**FOUND, "draws": draws}])
    monkeypatch.setattr("sys.argv", ["audit.py", "--draws", "70", "--into", str(tmp_path / "table.md")])
    script.main()
    (row,) = rows((tmp_path / "table.md").read_text(encoding="utf-8"))
    assert row == ["pooled", "", "1", "0", "2.500", "70", "**caught**"]


@pytest.mark.slow
@pytest.mark.prove(cheap="test_a_finding_is_a_row")
def test_the_script_writes_such_a_table(script, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["audit.py", "--draws", "100", "--into", str(tmp_path / "table.md")])
    script.main()
    committed = rows(script.TABLE.read_text(encoding="utf-8"))
    written = rows((tmp_path / "table.md").read_text(encoding="utf-8"))
    assert [row[:4] for row in written] == [row[:4] for row in committed]
