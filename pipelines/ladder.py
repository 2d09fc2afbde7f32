"""The composition ladder on Austin's buses: what the same worst-case error costs under every accounting.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/ladder.py [--into data/ladder] [--day DAY ...]

FOLDER holds ``capmetro/YYYY-MM-DD.csv.gz``: CapMetro open data, archived by scascketta/CapMetrics (MIT).
For every day and the four days around Thanksgiving 2016, at resolutions 6 to 8, whole period and hour of
day, 0.1 to 2 epsilon a bin: one line each of ``austin.md`` and ``austin.csv``. Public counts only: nothing is
released and nothing spent; the vault is thrown away.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from datetime import date
from pathlib import Path

import trafficdp
from trafficdp.errors import TrafficdpError, UsageError
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.slot import SlotKind
from trafficdp.planner.blocks import best_blocks
from trafficdp.planner.full_ladder import MEANS, FullLadder, Limits, full_ladder
from trafficdp.workspace import Workspace

CONFIG = Path(__file__).with_name("austin.toml")
FOUR_DAYS = (date(2016, 11, 24), date(2016, 11, 27))
RESOLUTIONS = (6, 7, 8)
SLOTS = (SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY)
EPSILONS = (0.1, 0.5, 1.0, 2.0)
LIMITS = Limits(relaxation_seconds=15.0, milp_seconds=0.5, joint_steps=5, effort=10_000)
HEADER = """# What the same error costs on Austin's buses

Made by `make ladder` from public counts (no speed is read for it, nothing is spent). Means of all bins
with at least {least} vehicles, speeds in [0, {upper:g}] m/s. Every line compares total epsilons at one and
the same worst-case error E (m/s): that of the paper's noise at "eps a bin".

G: bins. G1: most bins of a vehicle. K: most bins of a vehicle after Clip-User | after our best suppression
| proved least of any suppression. Then epsilons: grid count G1 eps | Clip-User K eps | best K eps | exact
loss of the same noise | the same after suppression | equal scales | blocks | proved least of any blocks |
ranges and scales together | the Gaussian twin of equal scales (delta 1e-6). A dash: not computed in the time
given, or, for ranges and scales, E is not below U/2 = {half:g}: from there on a constant is as good,
saturating errors say nothing, and the line only compares accountings. Epsilon times E is the same on all
four lines of a map where noise alone decides (equal scales, blocks).

"""


def run(into: Path, days: list[str] | None) -> None:
    """Ingest, count, compute every line, write the table and the CSV file."""
    files = _files(days)
    into.mkdir(parents=True, exist_ok=True)
    lines: list[tuple[str, int, str, FullLadder]] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        city = trafficdp.open(CONFIG, store=Path(scratch) / "store", create=True)
        city.ingest(files)
        for name, resolution, slot, occupancy in _occupancies(city, [file.name[:10] for file in files]):
            blocks = best_blocks(occupancy, city.config.bound, MEANS, effort=LIMITS.effort)
            lines += [
                (
                    name,
                    resolution,
                    slot,
                    full_ladder(occupancy, city.config.bound, epsilon, limits=LIMITS, blocks=blocks),
                )
                for epsilon in EPSILONS
            ]
            spent = time.monotonic() - started
            print(f"{spent:6.0f} s  {name} resolution {resolution} {slot}: {occupancy.pairs} pairs")
        upper = float(city.config.bound.upper)
        header = HEADER.format(least=city.config.map.min_vehicles, upper=upper, half=upper / 2)
    (into / "austin.md").write_text(header + _table(lines), encoding="utf-8")
    _write_csv(into / "austin.csv", lines)


def _files(days: list[str] | None) -> list[Path]:
    folder = os.environ.get("TRAFFICDP_REAL_DATA")
    if not folder:
        raise UsageError(
            "TRAFFICDP_REAL_DATA is not set",
            expected="the folder that holds capmetro/YYYY-MM-DD.csv.gz",
            todo="get the files from scascketta/CapMetrics and set the variable",
        )
    every = sorted((Path(folder) / "capmetro").glob("*.csv.gz"))
    chosen = [file for file in every if days is None or file.name[:10] in days]
    if not chosen:
        raise UsageError("there is no such day", got=", ".join(days or []), expected="days of the folder")
    return chosen


def _occupancies(city: Workspace, days: list[str]) -> Iterator[tuple[str, int, str, Occupancy]]:
    """Public counts of every period, resolution and slot."""
    periods = [(day, date.fromisoformat(day), date.fromisoformat(day)) for day in days]
    if {day.isoformat() for day in FOUR_DAYS} <= set(days):
        periods.append(("four days", *FOUR_DAYS))
    grid, least = city.config.grid, city.config.map.min_vehicles
    for name, first, last in periods:
        for resolution in RESOLUTIONS:
            for slot in SLOTS:
                period = replace(grid.period, first=first, last=last)
                occupancy = city.occupancy(
                    replace(grid, period=period, resolution=resolution, slot_kind=slot)
                )
                kept = occupancy.select(occupancy.users_per_bin >= least)
                if kept.bins:
                    yield name, resolution, slot.value, kept


def _table(lines: list[tuple[str, int, str, FullLadder]]) -> str:
    rows = [
        "| period | res | slot | eps a bin | E | G | G1 | K | grid count | Clip-User | best K | exact | "
        "suppressed | equal | blocks | blocks >= | joint | Gaussian |",
        "|" + "---|" * 18,
    ]
    for name, resolution, slot, each in lines:
        counts = f"{each.clip_user_bins} \\| {each.best_bins} \\| {_or_dash(each.least_bins, 'd')}"
        epsilons = (
            each.grid_count,
            each.clip_user,
            each.suppression,
            each.exact,
            each.suppressed,
            each.equal,
            each.blocks,
            each.blocks_bound,
            each.joint,
            each.gaussian,
        )
        cells = [name, resolution, slot.replace("_", " "), f"{each.epsilon_per_bin:g}", f"{each.error:.3g}"]
        cells += [each.bins, each.bins_per_user, counts, *(_or_dash(value, ".3g") for value in epsilons)]
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _write_csv(path: Path, lines: list[tuple[str, int, str, FullLadder]]) -> None:
    names = ["period", "resolution", "slot", *(field.name for field in fields(FullLadder))]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for name, resolution, slot, each in lines:
            values = [f"{v:.6g}" if isinstance(v, float) else v for v in asdict(each).values()]
            writer.writerow([name, resolution, slot, *values])


def main() -> int:
    """Read the command line, run, and return the exit code that `trafficdp` would give."""
    parser = argparse.ArgumentParser(description="The composition ladder on Austin's buses.")
    parser.add_argument("--into", type=Path, default=Path("data/ladder"), help="folder for the tables")
    parser.add_argument("--day", action="append", help="only this day (may be repeated)")
    chosen = parser.parse_args()
    try:
        run(chosen.into, chosen.day)
    except TrafficdpError as error:
        print(f"ladder: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
