"""The pages that follow from the code are committed as they follow from it."""

import re
from pathlib import Path

import pytest

import reference as script
from trafficdp.cli.main import COMMANDS, run

BY_TYPER = {"--help", "--install-completion", "--show-completion"}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", script.PAGES)
def test_the_committed_page_is_the_one_that_make_docs_writes(name):
    assert (ROOT / name).read_text(encoding="utf-8") == script.PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_page_has_the_options_that_the_help_tells(command, capsys):
    assert run([*command.split(), "--help"]) == 0
    told = set(re.findall(r"(?m)^ +(--[a-z][a-z-]*)", capsys.readouterr().out)) - BY_TYPER
    title = f"`trafficdp {command}" if command else "Before or after the command"
    section = re.search(rf"(?ms)^## {title}\b.*?(?=^## |\Z)", script.command_line()).group(0)
    assert set(re.findall(r"(?m)^\| `(--[a-z][a-z-]*)", section)) == told


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[map]\n", "[map]\n# Wishful.\n# wishful = 1\n", "wishful"),
        ("\n# min_vehicles = 5\n", "\n", "min_vehicles"),
        (
            "# Whether the numbers of records and vehicles in each hexagon are published as well. "
            "With add_or_remove_user\n# they are noisy and take 30 % of the loss.\n",
            "",
            "does not say",
        ),
    ],
)
def test_a_template_that_the_reader_does_not_read_so_makes_no_page(monkeypatch, old, new, complaint):
    text = script.template()
    assert old in text
    monkeypatch.setattr(script, "template", lambda: text.replace(old, new, 1))
    with pytest.raises(SystemExit, match=complaint):
        script.configuration()
