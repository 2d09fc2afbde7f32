"""`trafficdp report`: a page from a release, and against an earlier one."""

import re

import pytest


def test_a_report_is_written_and_named(twice, command, tmp_path):
    result = command("report", "r0002", str(tmp_path / "page.html"), "--against", "r0001")
    assert result.code == 0
    assert "page.html" in result.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Traffic speeds in Small City" in page
    assert "release r0001 of 2 to 3 March 2026" in page
    assert not re.search("clearly (rose|fell)", page)


def test_the_same_as_json(released, command, tmp_path):
    out = tmp_path / "page.html"
    facts = command("--json", "report", "r0001", str(out)).json
    assert facts == {"release": "r0001", "against": None, "file": str(out), "bytes": out.stat().st_size}


def test_a_report_costs_nothing(released, command, tmp_path):
    before = command("--json", "ledger").json
    command("report", "r0001", str(tmp_path / "page.html"))
    assert command("--json", "ledger").json == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("r0009", "page.html"), "r0009"),
        (("r0001", "page.doc"), "html, pdf"),
        (("r0001", "page.html", "--against", "r0001"), "itself"),
        (("r0001", "nowhere/page.html"), "folder that does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(released, command, tmp_path, arguments, said):
    name, *rest = arguments[1:]
    result = command("report", arguments[0], str(tmp_path / name), *rest)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1
    assert list(tmp_path.glob("page*")) == []
