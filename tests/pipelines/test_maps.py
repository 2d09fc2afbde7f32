"""The report on what `auto` chooses: its sentences follow from its tables."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import trafficdp

ROOT = Path(trafficdp.__file__).parents[1]


@pytest.fixture(scope="module")
def maps():
    spec = importlib.util.spec_from_file_location("maps", ROOT / "pipelines" / "maps.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["maps"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["maps"]


def _settings(maps, section):
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.match(r"20\d\d-", cells[0]):
            continue
        errors = dict(zip(maps.RIVALS, (float(each.strip("*")) for each in cells[3:7]), strict=True))
        (taken,) = (name for name, each in zip(maps.RIVALS, cells[3:7], strict=True) if each.startswith("**"))
        promised = float(cells[8].strip("%")) / 100
        yield maps.Setting(*cells[:3], errors, taken, promised, 1, 1, 1, 1, 1, 1), cells


def test_the_committed_report_says_of_its_tables_what_they_hold(maps):
    text = maps.INTO.read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    assert [len(list(_settings(maps, each))) for each in sections] == [12, 60]
    for section in sections:
        found = list(_settings(maps, section))
        for each, cells in found:
            assert each.regret == pytest.approx(float(cells[7]), abs=0.02)
            assert each.came_out == pytest.approx(float(cells[9].strip("%")) / 100, abs=0.02)
        near = np.mean([float(cells[7]) <= maps.NEAR for _, cells in found])
        assert f"in {near:.0%} of {len(found)} settings" in section
        assert near >= 0.9


def test_bins_are_told_by_quarters_of_their_records(maps):
    held, records = np.array([0.0, 1.0, 0.5, 0.25] * 2), np.array([1, 9, 5, 6, 2, 8, 7, 4])
    assert maps.held_by_quarters(held, records) == (0.0, 1.0, held.mean())
