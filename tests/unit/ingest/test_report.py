from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import DataError
from trafficdp.ingest.report import RULES, FileReport, LintFinding, LintVerdict
from trafficdp.model import SpeedUnit

findings = st.builds(
    LintFinding,
    st.sampled_from(SpeedUnit),
    st.integers(0, 10**9),
    st.none() | st.floats(0, 100),
    st.sampled_from(LintVerdict),
)


@given(
    st.dictionaries(st.sampled_from(sorted(RULES)), st.integers(1, 10**9)),
    st.integers(0, 10**9),
    st.lists(findings, max_size=3),
)
def test_a_report_survives_its_json(rejected, kept, lint):
    report = FileReport(
        "a.csv", "city", kept + sum(rejected.values()), kept, rejected, min(kept, 3), tuple(lint)
    )
    assert FileReport.from_json(report.to_json()) == report


def test_counts_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="rows in"):
        FileReport("a.csv", "city", 3, 1, {"missing_vehicle": 1})


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match="unknown rules"):
        FileReport("a.csv", "city", 1, 0, {"too_fast": 1})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lint": [{}]}', "null", '{"lint": []}'])
def test_what_is_no_report_is_a_data_error(text):
    with pytest.raises(DataError, match="not an ingest report"):
        FileReport.from_json(text)


def test_every_rule_says_what_it_is_in_one_line():
    for description in RULES.values():
        assert 20 < len(description) < 100
        assert "\n" not in description


def test_the_docstring_says_that_reports_lie_outside_the_guarantee():
    assert "Outside the privacy guarantee" in (FileReport.__doc__ or "")
