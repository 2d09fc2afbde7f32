"""NOTATION.md names files and names that exist."""

import re
from pathlib import Path

import pytest

import trafficdp

PACKAGE = Path(trafficdp.__file__).parent
HEADER = ["symbol", "name in code", "meaning", "paper", "file"]


def _rows():
    for line in (PACKAGE / "NOTATION.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if cells != HEADER and not set("".join(cells)) <= {"-"}:
                yield cells


ROWS = list(_rows())


def test_the_tables_are_read():
    assert len(ROWS) > 30
    assert {row[0] for row in ROWS} >= {
        "U",
        "m[g,l]",
        "m*_g",
        "N_g",
        "D^mu[g,l]",
        "D^Var[g,l]",
        "b*",
        "K_eff",
    }


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_symbol_leads_to_a_name_that_is_in_its_file(row):
    assert len(row) == len(HEADER)
    _, name, meaning, paper, file = row
    assert meaning
    assert paper in {"000", "001", "002", "003", "004", "here"}
    path = PACKAGE / file.strip("`")
    assert path.is_file()
    assert re.search(rf"\b{re.escape(name.strip('`'))}\b", path.read_text(encoding="utf-8"))


def test_every_public_name_of_the_sensitivities_is_in_the_tables():
    source = (PACKAGE / "bounding" / "worst_case.py").read_text(encoding="utf-8")
    functions = set(re.findall(r"(?m)^def ([a-z]\w*_sensitivity)", source))
    assert functions <= {row[1].strip("`") for row in ROWS}
