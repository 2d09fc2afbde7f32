"""The pages that people read: README, docs, CONTRIBUTING. Tests read them through this file alone."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = "README.md"
GUIDES = "docs/guides"


@cache
def names():
    """Every page, relative to the repository."""
    written = [ROOT / name for name in (README, "CONTRIBUTING.md", "trafficdp/NOTATION.md")]
    found = [*(path for path in written if path.is_file()), *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(path.relative_to(ROOT).as_posix() for path in found)


@cache
def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def guide(name):
    return text(f"{GUIDES}/{name}.md")


def told(name):
    """A guide without its line breaks, to look for a sentence in."""
    return " ".join(guide(name).split())


def section(name, title):
    found = re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text(name))
    assert found is not None, f"{name} has no section {title}"
    return found.group(1)


def blocks(name, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text(name))


def rows(page):
    """The cells of every line of every table."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
