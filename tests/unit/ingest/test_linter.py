from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.ingest.clean import UnitCheck
from trafficdp.ingest.read import wrong_unit
from trafficdp.ingest.report import LintFinding, LintVerdict
from trafficdp.model import SpeedUnit, from_json

MS, KMH, MPH = SpeedUnit.METRES_PER_SECOND, SpeedUnit.KILOMETRES_PER_HOUR, SpeedUnit.MILES_PER_HOUR
DEGREE_M = 111_195.08


def drive(unit, said, *, count=31, true=10.0):
    """Lint one bus that drives north at ``true`` m/s, a fix every 10 s, and reports ``said``."""
    time_us = np.arange(count, dtype=np.int64) * 10_000_000
    latitude = 21 + np.arange(count) * 10 * true / DEGREE_M
    same = np.zeros(count, dtype=np.int64)
    check = UnitCheck()
    check.add(
        unit,
        same,
        time_us,
        latitude,
        np.full(count, 72.8),
        np.broadcast_to(np.asarray(said, np.float64), count),
    )
    (finding,) = check.findings()
    return finding


@pytest.mark.parametrize("true_unit", list(SpeedUnit))
@pytest.mark.parametrize("declared", list(SpeedUnit))
def test_a_wrong_unit_stops_and_names_the_true_one(true_unit, declared):
    finding = drive(declared, 10 / float(true_unit.metres_per_second))
    assert finding.median_ratio == pytest.approx(float(true_unit.factor_to(declared)), rel=1e-4)
    if declared is true_unit:
        assert finding.verdict is LintVerdict.PASS
    elif (true_unit, declared) != (KMH, MPH):
        assert finding.verdict is LintVerdict.WRONG
        assert finding.fitting_unit is true_unit


def test_kmh_declared_as_mph_is_too_near_to_be_told():
    assert drive(MPH, 36).median_ratio == pytest.approx(0.621, abs=0.001)
    assert drive(MPH, 36).verdict is LintVerdict.PASS


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(0.54, "wrong"), (0.56, "pass"), (1.29, "pass"), (1.31, "wrong")],
)
def test_the_limits_are_0_55_and_1_3(ratio, verdict):
    assert drive(MS, 10 / ratio).verdict == verdict


def test_thirty_pairs_are_enough_and_29_only_warn():
    assert (drive(MS, 22, count=31).pairs, drive(MS, 22, count=31).verdict) == (30, LintVerdict.WRONG)
    assert (drive(MS, 22, count=30).pairs, drive(MS, 22, count=30).verdict) == (29, LintVerdict.UNSURE)


def test_vehicles_that_say_they_stand_say_nothing_about_the_unit():
    finding = drive(MS, 0)
    assert finding == LintFinding(MS, 0, None, LintVerdict.UNSURE)
    assert finding.fitting_unit is None


def test_no_unit_is_proposed_when_none_fits():
    finding = drive(MS, 0.01)
    assert finding.verdict is LintVerdict.WRONG
    assert finding.fitting_unit is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=40))
def test_no_speed_breaks_the_linter(speeds):
    finding = drive(MPH, speeds, count=len(speeds))
    assert finding.median_ratio is None or 0 <= finding.median_ratio <= 1e6
    assert from_json(LintFinding, json.loads(json.dumps(asdict(finding)))) == finding


def test_a_finding_survives_json():
    finding = drive(KMH, 36)
    assert from_json(LintFinding, json.loads(json.dumps(asdict(finding)))) == finding


def test_a_wrong_unit_is_told_with_file_ratio_and_the_unit_that_fits(reader, stretch):
    found = reader.rows(*stretch(40, true=10, said=10))
    assert len(found.fixes) == 40
    message = wrong_unit("day.csv", "buses", found.report.lint[0])
    for part in ("day.csv", "km/h", "3.600", "39 pairs", "m/s would fit"):
        assert part in message


def test_read_file_reports_a_passing_unit(reader, stretch):
    (finding,) = reader.rows(*stretch(40, true=10, said=36)).report.lint
    assert (finding.unit, finding.pairs, finding.verdict) == (KMH, 39, LintVerdict.PASS)
