"""What SECURITY.md names is there: files, commands, options, the relation; and the README leads to it."""

import re
from pathlib import Path

import pytest

import trafficdp
from trafficdp.cli.main import COMMANDS
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, mechanisms_of
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.loss import LossKind

ROOT = Path(trafficdp.__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([^`]+)`", TEXT)) - {"[[analysts]]", ".head", "trafficdp"})
OPTIONS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "trafficdp" / "cli").rglob("*.py"))
TARGETS = re.findall(r"(?m)^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
KNOWN = {*COMMANDS, *(f"make {each}" for each in TARGETS), *(each.value for each in NeighbouringRelation)}


@pytest.mark.parametrize("name", NAMED)
def test_every_name_is_one_of_this_project(name, released):
    if name.startswith("--"):
        assert name[2:].replace("-", "_") in OPTIONS
    elif name in KNOWN or (ROOT / name).exists():
        return
    else:
        assert list(released.folder.rglob(name))


def test_the_key_is_for_its_owner_alone(released):
    assert released.key.stat().st_mode & 0o077 == 0


def test_what_is_drawn_without_an_exact_sampler_is_named():
    idealised = {each.name for each in (*MECHANISMS, *mechanisms_of(LossKind.ZCDP)) if each.idealised}
    assert all("huber" in name for name in idealised)
    assert "Huber's is not" in TEXT


def test_the_readme_leads_here_and_it_stays_one_page():
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(TEXT.split()) < 1_100
