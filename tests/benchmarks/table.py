"""The committed table of what was measured: `data/bench/table.md`, a section a benchmark."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

TABLE = Path(__file__).resolve().parents[2] / "data" / "bench" / "table.md"
ORDER = (
    "Records",
    "Records of vehicles that are everywhere",
    "Hexagons",
    "Hottest functions",
    "Planner",
    "Releases of one store",
    "Questions of one store",
    "Checks of the whole ledger",
    "Days of one store",
    "Peers",
    "Timetables",
    "SIRI",
    "First map on a telephone",
)
HEAD = f"""# What it costs

Written by `make bench` on a machine of {os.cpu_count()} cores. Seconds are of the processor, over all
threads, unless they are said to be of the clock; others may have used the machine beside it, which clocks
notice. Memory is the peak of a process of its own, everything that it imports included.
"""


def keep(section: str, said: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a section anew: what it is, and its table. The first column is text, the others are numbers."""
    sections = dict.fromkeys(ORDER, "")
    if TABLE.exists():
        for part in re.split(r"(?m)^## ", TABLE.read_text(encoding="utf-8"))[1:]:
            name, _, body = part.partition("\n")
            sections[name] = body.strip()
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    sections[section] = "\n".join([said, "", *("| " + " | ".join(line) + " |" for line in lines)])
    text = "\n\n".join(f"## {name}\n\n{body}" for name, body in sections.items() if body)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(f"{HEAD}\n{text}\n", encoding="utf-8")
