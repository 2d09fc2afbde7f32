"""The real example, as a stranger would run it: a script and a folder of real files."""

import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
import small_city

import trafficdp
from trafficdp.config.file import load_config
from trafficdp.ingest.report import LintVerdict
from trafficdp.model import SlotKind

PIPELINES = Path(trafficdp.__file__).parents[1] / "pipelines"
TEN_DAYS = {
    "2015-03-07.csv.gz": (44_564, {"duplicate_in_file": 139}),
    "2015-03-08.csv.gz": (12_354, {"duplicate_in_file": 6}),
    "2015-03-18.csv.gz": (19_690, {"zero_position": 53}),
    "2015-03-19.csv.gz": (18_131, {}),
    "2016-11-24.csv.gz": (24_490, {}),
    "2016-11-25.csv.gz": (32_038, {}),
    "2016-11-26.csv.gz": (33_140, {}),
    "2016-11-27.csv.gz": (25_420, {}),
    "2017-03-16.csv.gz": (36_271, {"zero_position": 2, "sentinel_speed": 8}),
    "2017-03-21.csv.gz": (45_386, {"zero_position": 3, "sentinel_speed": 5, "duplicate_in_file": 1}),
}


@dataclass(frozen=True)
class Run:
    """What one run of the script printed, and its exit code."""

    code: int
    out: str
    err: str


def _run(store, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PIPELINES / "austin.py"), "--store", str(store)],
        capture_output=True,
        text=True,
        cwd=store.parent,
        env={**os.environ, **environment},
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def _run_again(store, name):
    """The same in a process that need not import what this one has."""

    def again():
        sys.argv = ["austin.py", "--store", str(store)]
        try:
            runpy.run_path(str(PIPELINES / "austin.py"), run_name="__main__")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    out, err = (store.with_name(f"{name}.{stream}") for stream in ("out", "err"))
    code = small_city.ended(small_city.forked(again, stdout=out, stderr=err))
    return Run(code, *(path.read_text(encoding="utf-8") for path in (out, err)))


@pytest.fixture(scope="module")
def real_data():
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="module")
def three_runs(real_data, tmp_path_factory):
    store = tmp_path_factory.mktemp("austin") / "store"
    first = _run(store, TRAFFICDP_REAL_DATA=str(real_data))
    return store, [first, _run_again(store, "second"), _run_again(store, "third")]


def test_the_configuration_is_what_the_readme_says():
    config = load_config(PIPELINES / "austin.toml")
    assert config.grid.resolution == 7
    assert config.grid.slot_kind is SlotKind.WHOLE_PERIOD
    assert (config.grid.period.first, config.grid.period.last) == (date(2016, 11, 24), date(2016, 11, 27))
    assert config.grid.period.time_zone == "America/Chicago"
    assert (config.map.bound.upper, config.map.bound.unit.label) == (Fraction(30), "m/s")
    assert str(config.loss) == "4"
    assert str(config.policy.total) == "8"


def test_without_the_real_data_the_script_says_what_to_set_and_makes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRAFFICDP_REAL_DATA", "")
    monkeypatch.setattr(sys, "argv", ["austin.py", "--store", str(tmp_path / "store")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PIPELINES / "austin.py"), run_name="__main__")
    assert ended.value.code == 2
    assert "TRAFFICDP_REAL_DATA is not set" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
@pytest.mark.xdist_group("austin")
def test_austin_is_released_at_resolution_7_by_what_auto_chooses(three_runs):
    store, (first, _, _) = three_runs
    assert first.code == 0, first.err
    promised = int(re.search(r"the mean: expected to be (\d+) % smaller", first.out).group(1))
    assert first.out.index("the mean:") < first.out.index("released and verified")
    manifest = json.loads((store / "releases" / "r0001" / "manifest.json").read_text())
    assert manifest["coverage"]["resolution"] == 7
    assert manifest["guarantee"]["epsilon"] == "4"
    (mean,) = manifest["mechanisms"]
    assert mean["mechanism"] == "partial_pooling"
    assert mean["interval_kind"] == "calibrated"
    assert round(100 * mean["skill"]["skill"]) == promised > 50
    assert manifest["honesty"]["forced"] is False
    refusal = manifest["honesty"]["refusal"]
    assert refusal["value"] <= refusal["threshold"]


@pytest.mark.real
@pytest.mark.xdist_group("austin")
def test_every_file_that_the_script_names_is_there(three_runs):
    _, (first, _, _) = three_runs
    named = [Path(line.strip()) for line in first.out.splitlines() if line.startswith("  ")]
    assert {path.name for path in named} == {
        "map.geojson",
        "cells.csv",
        "cells.parquet",
        "mechanism.parquet",
        "manifest.json",
        "datapackage.json",
        "dataset.jsonld",
        "map.html",
    }
    assert all(path.is_file() for path in named)


@pytest.mark.real
@pytest.mark.xdist_group("austin")
def test_a_second_release_uses_the_budget_up_and_a_third_is_refused(three_runs):
    store, (_, second, third) = three_runs
    assert second.code == 0, second.err
    assert "spent epsilon 8 of 8" in second.out
    assert third.code == 3
    assert "privacy budget exceeded" in third.err
    assert "Traceback" not in third.err
    city = trafficdp.open(PIPELINES / "austin.toml", store=store)
    assert [each.status for each in city.releases()] == ["published", "published"]
    assert str(city.status().largest_spent) == "8"
    assert all(check.passed for each in ("r0001", "r0002") for check in city.verify(each))


@pytest.mark.real
def test_one_configuration_reads_all_ten_files_as_they_lie_there(real_data, tmp_path):
    config = tmp_path / "austin.toml"
    four_days = 'from = "2016-11-24", to = "2016-11-27"'
    text = (PIPELINES / "austin.toml").read_text(encoding="utf-8")
    assert four_days in text
    config.write_text(text.replace(four_days, 'from = "2015-03-07", to = "2017-03-21"'), encoding="utf-8")
    city = trafficdp.open(config, store=tmp_path / "store", create=True)
    reports = [each.report for each in city.ingest([real_data / "capmetro" / name for name in TEN_DAYS])]
    found = {each.file: (each.rows_in, dict(each.rejected)) for each in reports}
    assert found == TEN_DAYS
    assert {finding.unit.label for finding in reports[0].lint} == {"mph"}
    assert {finding.unit.label for finding in reports[-1].lint} == {"m/s"}
    assert all(finding.verdict is not LintVerdict.WRONG for each in reports for finding in each.lint)
    assert sum(rows for rows, _ in TEN_DAYS.values()) == 291_484
