"""Error over time: what the script computes, that the committed table is its own, and what it shows."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import trafficdp
from trafficdp.research.george_2022.arrivals import ArrivalOrder

ROOT = Path(trafficdp.__file__).parents[1]
SCRIPT = ROOT / "pipelines" / "continual.py"
DATA = ROOT / "data" / "continual"


@pytest.fixture(scope="module")
def continual():
    spec = importlib.util.spec_from_file_location("continual", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["continual"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["continual"]


def tables():
    """{section: {algorithm: [(end, average), ...]}} of the committed report."""
    found = {}
    for section in (DATA / "errors.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
        rows = [row for row in rows if len(row) > 2 and "/" in row[-1] and row[0] != "algorithm"]
        if not any(row[0] == "A2" for row in rows):
            continue
        epsilons = dict.fromkeys(row[1].strip("(").split(",")[0] for row in rows if row[1] != "-")
        for row in rows:
            if row[1] == "-":
                continue
            pairs = [tuple(float(each) for each in cell.split(" / ")) for cell in row[2:]]
            key = f"{title} @ {row[1].strip('(').split(',')[0]}" if len(epsilons) > 1 else title
            found.setdefault(key, {})[row[0]] = pairs
    return found


def test_every_algorithm_of_the_paper_is_in_every_table():
    everything = tables()
    assert len(everything) == 4
    for rows in everything.values():
        assert {name.split(",")[0] for name in rows} >= {"A2", "A3", "A4", "A5", "A6", "levels"}
        assert all(0 <= end <= 100 and 0 <= mean <= 100 for row in rows.values() for end, mean in row)


def test_what_goes_past_the_paper_halves_the_error_of_what_the_paper_can_do_without_a_prior():
    for title, rows in tables().items():
        for place in range(len(rows["A6"])):
            paper = [rows[name][place] for name in ("A2", "A4, no prior", "A5, no prior", "A6")]
            tree = ("A6, best tree as well", "A4, no prior, best tree", "A2, best tree")
            pure = [rows[name][place] for name in tree]
            least = min(end for end, _ in paper), min(mean for _, mean in paper)
            ours = min(end for end, _ in pure), min(mean for _, mean in pure)
            assert ours[0] < 0.65 * least[0], title
            if place < 3:
                assert ours[1] < 0.75 * least[1], title
            # at the same epsilon and delta 10^-6
            assert rows["levels, matrix factor"][place][1] < ours[1], title


def cells(section, width):
    """The rows of a section's table whose first cells are text and whose others hold numbers."""
    text = (
        (DATA / "errors.md").read_text(encoding="utf-8").partition(f"\n## {section}")[2].partition("\n## ")[0]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [row for row in rows if len(row) == width and row[1].replace(".", "").isdigit()]


def test_a_joint_price_halves_the_error_of_means_with_variances():
    rows = cells("Variance beside the mean", 6)
    assert len(rows) == 2
    for row in rows:
        mean, variance, half_mean, half_variance = (float(cell.split(" / ")[0]) for cell in row[2:])
        assert mean < 0.6 * half_mean
        assert variance < 0.7 * half_variance


def test_windows_are_best_with_the_best_tree():
    rows = cells("The last minutes", 6)
    assert len(rows) == 6
    for row in rows:
        binary, each_step, best = (float(cell) for cell in row[2:5])
        assert best <= each_step < binary


def test_simulated_streams_are_what_the_header_says(continual):
    for order in ArrivalOrder:
        arrivals = continual.simulated(order, 200, 50, 3)
        assert arrivals.value.mean() / continual.STEPS == pytest.approx(0.25, abs=0.02)
        at = continual.moments(arrivals)
        assert at[0] == 1
        assert at[-1] == len(arrivals)
        assert len(at) == continual.TIMES


def test_the_curves_are_those_of_the_table():
    lines = (DATA / "curves.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "stream,algorithm,epsilon,samples,error"
    last = [line for line in lines if line.startswith("random,A2,1,64000,")]
    (row,) = [rows["A2"] for title, rows in tables().items() if title.startswith("1,000 vehicles of 64")]
    assert float(last[0].rpartition(",")[2]) * 100 == pytest.approx(row[2][0], abs=0.006)


def test_without_the_feed_it_says_what_to_do(continual, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TRAFFICDP_REAL_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--into", str(tmp_path / "out")])
    assert continual.main() == 2
    assert capsys.readouterr().err.startswith("continual: TRAFFICDP_REAL_DATA is not set")
    assert not (tmp_path / "out").exists()


@pytest.mark.real
def test_the_replayed_day_is_austins(continual):
    if not os.environ.get("TRAFFICDP_REAL_DATA"):
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    arrivals, minute = continual.austin()
    assert len(minute) == len(arrivals)
    assert (np.diff(minute) >= 0).all()
    assert (minute.min(), minute.max()) == (1, 625)
    assert (len(arrivals), arrivals.users, arrivals.samples) == (45_377, 329, 350)
    np.testing.assert_array_equal(np.unique(arrivals.user), np.arange(329))


@pytest.mark.real
def test_the_committed_windows_are_those_of_the_day(continual):
    if not os.environ.get("TRAFFICDP_REAL_DATA"):
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    lines = continual.window_table(*continual.austin())
    assert "\n".join(lines) + "\n" in (DATA / "errors.md").read_text(encoding="utf-8")


@pytest.mark.real
@pytest.mark.prove(cheap="test_the_committed_windows_are_those_of_the_day")
def test_the_committed_report_is_what_the_script_writes(continual, tmp_path):
    if not os.environ.get("TRAFFICDP_REAL_DATA"):
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    continual.run(tmp_path)
    for name in ("errors.md", "curves.csv"):
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes(), name
