"""The evaluation on real data: what it computes, and that the committed report is what it writes."""

import csv
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import trafficdp
from trafficdp.mechanisms.simulated_cities import simulated_samples, true_statistic
from trafficdp.model import SlotKind, Statistic
from trafficdp.privacy.loss import LossKind

ROOT = Path(trafficdp.__file__).parents[1]
SCRIPT = ROOT / "pipelines" / "accuracy.py"
REPORT = ROOT / "data" / "accuracy" / "austin.md"
MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


@pytest.fixture(scope="module")
def accuracy():
    spec = importlib.util.spec_from_file_location("accuracy", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["accuracy"]


@pytest.fixture
def samples(counts_of, bound_of):
    table = np.random.default_rng(3).integers(0, 5, (12, 9))
    table[4, 4:] = 0
    return simulated_samples(counts_of(table), bound_of(64), 3)


def test_bins_of_few_vehicles_are_left_out_with_their_samples(accuracy, samples):
    found = accuracy.with_few_vehicles_withheld(samples)
    keep = samples.counts.users_per_bin >= 5
    assert 0 < found.counts.bins == keep.sum() < samples.counts.bins
    assert len(found.value) == found.counts.count.sum()
    np.testing.assert_array_equal(
        true_statistic(found.contributions(), MEAN), true_statistic(samples.contributions(), MEAN)[keep]
    )


def test_the_constants_are_the_middle_of_the_range_and_zero(accuracy, samples):
    row, zero, city = accuracy.trivial_rows(samples)
    assert zero.errors[MEAN, 1] == pytest.approx(true_statistic(samples.contributions(), MEAN).mean())
    assert zero.errors[VARIANCE, 1] == pytest.approx(true_statistic(samples.contributions(), VARIANCE).mean())
    flat = np.abs(true_statistic(samples.contributions(), MEAN) - samples.value.mean()).mean()
    assert flat - 2 < city.errors[MEAN, 16] < flat + 2
    assert row.errors[MEAN, 4] == pytest.approx(
        np.abs(true_statistic(samples.contributions(), MEAN) - 32).mean()
    )
    assert row.errors[VARIANCE, 1] == pytest.approx(
        np.abs(true_statistic(samples.contributions(), VARIANCE) - 512).mean()
    )


@pytest.mark.usefixtures("few_runs")
def test_every_mechanism_has_a_row_and_errors_fall_with_epsilon(accuracy, samples):
    rows = accuracy.pure_rows(samples) + accuracy.zcdp_rows(samples)
    pooled = [
        row for kind in LossKind for row in accuracy.whole_rows(samples, kind, accuracy.CalibratedPooling)
    ]
    assert [row.name for row in pooled] == ["partial_pooling", "partial_pooling"]
    for row in pooled:
        assert row.errors[MEAN, 16] < row.errors[MEAN, 1]
    expected = [
        m.name for m in (*accuracy.mechanisms_of(LossKind.PURE), *accuracy.mechanisms_of(LossKind.ZCDP))
    ]
    assert [row.name.removesuffix(" (idealised)") for row in rows] == expected
    for row in rows:
        assert row.runs >= 20
        if (MEAN, 16) in row.errors:
            assert row.errors[MEAN, 16] < row.errors[MEAN, 1]
    chosen = [key for row in rows for key in row.chosen]
    assert sorted(chosen) == sorted((s, e) for s in accuracy.STATISTICS for e in accuracy.EPSILONS)


def test_a_table_has_a_column_a_statistic_and_epsilon_and_skips_empty_rows(accuracy):
    row = accuracy.Row("one", {(MEAN, 4): 1.234}, runs=20, chosen={(MEAN, 4)})
    lines = accuracy.table("Title", [row, accuracy.Row("none")], mark=True)
    assert lines[0] == "**Title**"
    assert lines[2].startswith("| map | mean ε 1 | mean ε 4 | mean ε 16 | variance ε 1 |")
    assert lines[4] == "| one |  | **1.23** |  |  |  |  | 20 |"
    assert len(lines) == 6


def test_the_figures_of_other_tools_are_complete_and_name_their_relation(accuracy):
    with accuracy.PEERS.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["relation"] for line in lines} == {"add_or_remove_user", "replace_user_values"}
    for line in lines:
        assert float(line["value"]) > 0
        assert SlotKind(line["slot"])
        assert int(line["epsilon"]) in accuracy.EPSILONS
    shown = [row for slot in accuracy.SLOTS for rows in accuracy.peers(slot).values() for row in rows]
    assert sum(len(row.errors) for row in shown) == sum(line["metric"].startswith("mae") for line in lines)


def test_without_the_feeds_it_says_what_to_do(accuracy, tmp_path, monkeypatch, capsys):
    into = tmp_path / "report.md"
    monkeypatch.delenv("TRAFFICDP_REAL_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--into", str(into)])
    assert accuracy.main() == 2
    assert capsys.readouterr().err.startswith("accuracy: TRAFFICDP_REAL_DATA is not set")
    assert not into.exists()


def _figures(text):
    """{row: cells} of all tables, in order; a row of a name that comes again gets a number."""
    found = {}
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| map "):
            name, *cells, _ = [cell.strip() for cell in line.strip("|").split("|")]
            found[name, sum(known == name for known, _ in found)] = cells
    return found


def written_and_kept(accuracy, folder, resolution):
    """The figures of a section as the script writes it now, and as it is committed."""
    if not os.environ.get("TRAFFICDP_REAL_DATA"):
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    city = trafficdp.open(accuracy.CONFIG, store=folder / "store", create=True)
    city.ingest(accuracy.files_of(accuracy.DAYS))
    lines = list(accuracy.section(city, resolution, SlotKind.WHOLE_PERIOD))
    committed = REPORT.read_text(encoding="utf-8")
    assert lines[0] in committed
    section = committed.partition(lines[0])[2].partition("\n## ")[0]
    return _figures("\n".join(lines)), _figures(section)


def assert_near(written, kept):
    for name, cells in written.items():
        for new, old in zip(cells, kept[name], strict=True):
            # noise is simulated (20 runs), and a new key numbers the vehicles anew, which moves arrays
            if old:
                assert float(new.strip("*")) == pytest.approx(float(old.strip("*")), rel=0.4, abs=0.3), name


@pytest.mark.real
@pytest.mark.slow
def test_the_committed_report_is_what_the_script_writes_of_three_mechanisms(accuracy, tmp_path, monkeypatch):
    few = {"baseline", "pooled", "gaussian_twin"}
    real = accuracy.mechanisms_of

    def chosen(kind):
        return tuple(each for each in real(kind) if each.name in few)

    assert {each.name for kind in LossKind for each in chosen(kind)} == few
    monkeypatch.setattr(accuracy, "mechanisms_of", chosen)
    written, kept = written_and_kept(accuracy, tmp_path, accuracy.PEERS_RESOLUTION)
    assert few < {name for name, _ in written}
    assert_near(written, kept)


@pytest.mark.real
@pytest.mark.prove(cheap="test_the_committed_report_is_what_the_script_writes_of_three_mechanisms")
@pytest.mark.parametrize("resolution", [6, 7])
def test_the_committed_report_is_what_the_script_writes(accuracy, tmp_path, resolution):
    written, kept = written_and_kept(accuracy, tmp_path, resolution)
    assert list(written) == list(kept)
    assert_near(written, kept)
    # what `auto` takes is decided by counts and simulated cities: the same, or as good as the same
    for column, _ in enumerate(next(iter(kept.values()))):
        now, then = (
            [name for name, cells in each.items() if cells[column].startswith("**")]
            for each in (written, kept)
        )
        assert len(now) == len(then) <= 1
        if now:
            found = [float(written[name][column].strip("*")) for name in (*now, *then)]
            assert found[0] == pytest.approx(found[1], rel=0.4)
