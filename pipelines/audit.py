"""The audit of every mechanism, and of those that are wrong on purpose, as a table: data/audit/table.md.

    python pipelines/audit.py [--draws N] [--into FILE]

Needs no data: simulated neighbours, seeded draws, so that the same version writes the same table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "data" / "audit" / "table.md"
CONFIDENCE = 0.999
HEAD = """# Claimed epsilon, and what draws prove it to be at least

Written by `make audit`, every row from the same seed, whatever the others are. Two simulated data sets that
differ in one vehicle are drawn from as often as the table says: {draws:,} times, four times as often what
chooses in pure epsilon, for what tells most is seldom chosen, and at most 4,000 times PLAN, which runs whole
for every draw. The bound holds with a confidence of {confidence:g} (Clopper and Pearson). A bound above the
claim refutes it, one below it proves nothing: the proofs are in the mechanisms' files. zCDP mechanisms are
given the rho that epsilon 1 implies, and are held to the epsilon at delta that follows from it.

Mechanisms and releases are attacked by the likelihood ratio of all that they measure, with the exact
probabilities of noise and of choices; no event tells two data sets apart better. Of a mechanism's pairs of
data sets those two are drawn from that promise most, by draws of their own. A bound stays below a sharp claim
where what would show it is rare, and a variance is no vehicle's worst case for both of its moments at once.
Huber is drawn from on two data sets more, of so many vehicles that a bin is released as Huber. That half of
the noise of any single step is refuted is a test of its own: `tests/audit/test_mechanisms.py`.
`release_...` are whole releases, by every accounting, with a mechanism a statistic in epsilon and in rho, of
a stream, of a declared grid of which nothing is public (`release_hidden_...`: there the vehicle is in the
data or not), and of a quantile over vehicles (`release_by_rank_...`); what they claim is what the vehicle is
charged.

| mechanism | statistic | claimed | delta | at least | draws | verdict |
|---|---|---:|---:|---:|---:|---|
"""


def findings(draws: int) -> list[dict[str, Any]]:
    """Return what `trafficdp audit --all` finds."""
    command = ["-m", "trafficdp", "--json", "audit", "--all", "--draws", str(draws)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def line(finding: dict[str, Any]) -> str:
    """Return one row of the table."""
    cells = [
        finding["name"],
        finding["statistic"] or "",
        f"{finding['claim']:.4g}",
        f"{finding['delta']:g}",
        f"{finding['lower_bound']:.3f}",
        f"{finding['draws']:,}",
        "**caught**" if finding["verdict"] == "caught" else finding["verdict"].replace("_", " "),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=50_000)
    parser.add_argument("--into", type=Path, default=TABLE, help="file to write")
    given = parser.parse_args()
    rows = [line(each) for each in findings(given.draws)]
    head = HEAD.format(draws=given.draws, confidence=CONFIDENCE)
    given.into.parent.mkdir(parents=True, exist_ok=True)
    given.into.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    print(f"wrote {given.into}: {len(rows)} audits")


if __name__ == "__main__":
    main()
