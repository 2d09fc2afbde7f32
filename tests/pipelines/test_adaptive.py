"""The table of several resolutions: what the guide copies of it, and what is recomputed from real counts."""

import importlib.util
import os
import runpy
import sys
from pathlib import Path

import pytest

import trafficdp
from trafficdp.model import SlotKind

ROOT = Path(trafficdp.__file__).parents[1]
TABLE = ROOT / "data" / "adaptive" / "austin.md"


def _script():
    spec = importlib.util.spec_from_file_location("adaptive_pipeline", ROOT / "pipelines" / "adaptive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _lines(text):
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_without_the_real_data_it_says_what_to_set_and_makes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRAFFICDP_REAL_DATA", "")
    monkeypatch.setattr(sys, "argv", ["adaptive.py", "--into", str(tmp_path / "into")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "pipelines" / "adaptive.py"), run_name="__main__")
    assert ended.value.code == 2
    assert "TRAFFICDP_REAL_DATA is not set" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_committed_table_has_a_line_for_every_choice():
    script = _script()
    lines = _lines(TABLE.read_text(encoding="utf-8"))
    assert len(lines) == len(set(lines)) == len(list(script.choices()))


def test_the_guide_copies_its_lines_from_the_committed_table(pages):
    copied = _lines(pages.guide("small-hexagons"))
    assert len(copied) >= 5
    assert set(copied) <= set(_lines(TABLE.read_text(encoding="utf-8")))


@pytest.mark.real
def test_the_committed_lines_are_what_the_counts_give(tmp_path):
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    script = _script()
    city = trafficdp.open(script.CONFIG, store=tmp_path / "store", create=True)
    city.ingest([Path(folder) / "capmetro" / f"{day}.csv.gz" for day in script.DAYS])
    committed = set(_lines(TABLE.read_text(encoding="utf-8")))
    for width, resolutions in ((5, (7,)), (5, (8, 7, 6)), (10, (7,)), (10, (8, 7, 6, 5))):
        assert script.line(city, SlotKind.WHOLE_PERIOD, width, resolutions, 0.1) in committed
