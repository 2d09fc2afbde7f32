"""The accountings on Austin's buses: what the same worst-case error costs under every accounting.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/accountings.py [--into data/accountings] [--day DAY ...]
    [--errors-only]

FOLDER holds ``capmetro/YYYY-MM-DD.csv.gz``: CapMetro open data, archived by scascketta/CapMetrics (MIT).
For every day and the four days around Thanksgiving 2016, at resolutions 6 to 8, whole period and hour of
day, 0.1 to 2 epsilon a bin: one line each of ``austin.md`` and ``austin.csv``, from public counts only. Then,
at 1, 4 and 16 epsilon in all (``errors.md``, ``errors.csv``): the error that counts promise at worst, and the
one that simulated noise makes. For that alone speeds are looked at, to know the truth: an evaluation, not a
private release. Nothing is released and nothing spent; the vault is thrown away.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path

import numpy as np

import trafficdp
from capmetro import CONFIG, DAYS, folder
from trafficdp.errors import TrafficdpError, UsageError
from trafficdp.mechanisms.blocks.blocks import best_blocks
from trafficdp.mechanisms.clip_user import SuppressionAccounting
from trafficdp.mechanisms.registry import all_accountings
from trafficdp.model import SlotKind, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import PureDP
from trafficdp.research.full_comparison import MEANS, FullComparison, Limits, full_comparison
from trafficdp.sensitive import Contributions, Samples, SensitiveInputs
from trafficdp.store.vault_fixes import data_version
from trafficdp.workspace import Workspace

RESOLUTIONS = (6, 7, 8)
SLOTS = (SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY)
EPSILONS = (0.1, 0.5, 1.0, 2.0)
TOTALS = ("1", "4", "16")
COMPARED = ("grid_count", "clip_user", "exact", "equal", "blocks")
RUNS = 20
SEED = 20161124
LIMITS = Limits(relaxation_seconds=15.0, milp_seconds=0.5, joint_steps=5, effort=10_000)
HEADER = """# What the same error costs on Austin's buses

Made by `make accountings` from public counts (no speed is read for it, nothing is spent). Means of all bins
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
ERRORS_HEADER = """# How far maps of Austin's buses are off at one total epsilon

Made by `make accountings`: means of all bins with at least {least} vehicles, speeds in [0, {upper:g}] m/s;
every column spends the same total epsilon, by no vehicle more. Mean absolute errors over the bins, m/s. First
what public counts promise in the worst case over all speeds (`promised`), then what simulated noise really
does to the true means ({runs} draws; speeds are looked at for this evaluation alone). `constant`: the middle
of the range, said everywhere; a map that is not well below it says nothing. `clip user` leaves vehicles out
of bins and counts them as the middle of the range: its bias is part of both errors. `exact` gives crowded
bins less noise and lonely ones more: often less on average, never less in the worst bin, which is what
releases make least.

"""


@dataclass(frozen=True, slots=True)
class Errors:
    """One map at one total epsilon: mean errors over its bins, m/s, an accounting of COMPARED."""

    epsilon: str
    bins: int
    constant: float
    promised: tuple[float, ...]
    realised: tuple[float, ...]


def run(into: Path, days: list[str] | None, *, errors_only: bool = False) -> None:
    """Ingest, count, compute every line, write the tables and the CSV files.

    ``errors_only`` leaves the table of accountings as it is: with its solvers it takes most of the time.
    """
    files = _files(days)
    into.mkdir(parents=True, exist_ok=True)
    lines: list[tuple[str, int, str, FullComparison]] = []
    errors: list[tuple[str, int, str, Errors]] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        city = trafficdp.open(CONFIG, store=Path(scratch) / "store", create=True)
        city.ingest(files)
        for name, resolution, slot, city_map in _maps(city, [file.name[:10] for file in files]):
            counts = city_map.counts
            errors += [(name, resolution, slot, each) for each in errors_of(city_map)]
            if not errors_only:
                found = _accountings(city_map)
                lines += [(name, resolution, slot, each) for each in found]
            spent = time.monotonic() - started
            print(f"{spent:6.0f} s  {name} resolution {resolution} {slot}: {counts.pairs} pairs")
        upper = float(city.config.map.bound.upper)
        header = HEADER.format(least=city.config.map.min_vehicles, upper=upper, half=upper / 2)
    if not errors_only:
        (into / "austin.md").write_text(header + _table(lines), encoding="utf-8")
        _write_csv(into / "austin.csv", lines)
    header = ERRORS_HEADER.format(least=city.config.map.min_vehicles, upper=upper, runs=RUNS)
    (into / "errors.md").write_text(header + _errors_table(errors), encoding="utf-8")
    _write_errors(into / "errors.csv", errors)


def _accountings(city_map: Contributions) -> list[FullComparison]:
    """Every accounting at every epsilon a bin, from the counts of ``city_map``."""
    counts, bound = city_map.counts, city_map.bound
    blocks = best_blocks(counts, bound, MEANS, effort=LIMITS.effort)
    return [full_comparison(counts, bound, each, limits=LIMITS, blocks=blocks) for each in EPSILONS]


def errors_of(city_map: Contributions) -> list[Errors]:
    """Return what counts promise and what simulated noise does, at every total epsilon."""
    counts, bound = city_map.counts, city_map.bound
    sums = np.zeros(counts.bins)
    np.add.at(sums, counts.bin_index, city_map.total)
    truth = sums / counts.samples_per_bin * float(bound.step)
    values = SensitiveInputs(city_map, _no_samples)
    constant = float(np.abs(truth - float(bound.upper) / 2).mean())
    every = (*all_accountings(counts, bound, MEANS), SuppressionAccounting(counts, bound, MEANS))
    accountings = {accounting.name: accounting for accounting in every}
    found = []
    for total in TOTALS:
        promised, realised = [], []
        for name in COMPARED:
            calibrated = accountings[name].calibrate(PureDP.of(total))
            noise, off, worst = SimulatedNoise(SEED), [], 0.0
            for _ in range(RUNS):
                estimate = calibrated.run(values, noise, interval_level=0.95)[Statistic.MEAN]
                off.append(float(np.abs(estimate.value - truth).mean()))
                worst = float(estimate.expected_error.mean())
            promised.append(worst)
            realised.append(float(np.mean(off)))
        found.append(Errors(total, counts.bins, constant, tuple(promised), tuple(realised)))
    return found


def _no_samples() -> Samples:
    raise UsageError("the accountings need no single values")


def _files(days: list[str] | None) -> list[Path]:
    chosen = [file for file in sorted(folder().glob("*.csv.gz")) if days is None or file.name[:10] in days]
    if not chosen:
        raise UsageError("there is no such day", got=", ".join(days or []), expected="days of the folder")
    return chosen


def _maps(city: Workspace, days: list[str]) -> Iterator[tuple[str, int, str, Contributions]]:
    """Sums and public counts of every period, resolution and slot, bins with few vehicles left out."""
    periods = [(day, date.fromisoformat(day), date.fromisoformat(day)) for day in days]
    if {DAYS[0], DAYS[-1]} <= set(days):
        periods.append(("four days", date.fromisoformat(DAYS[0]), date.fromisoformat(DAYS[-1])))
    grid, least = city.config.grid, city.config.map.min_vehicles
    for name, first, last in periods:
        for resolution in RESOLUTIONS:
            for slot in SLOTS:
                period = replace(grid.period, first=first, last=last)
                here = replace(grid, period=period, resolution=resolution, slot_kind=slot)
                # values are for the evaluation only: nothing else outside the curator may look at them
                with city._curator("accountings") as curator:
                    version = data_version(curator.vault)
                    everything = curator.contributions(here, city.config.map.bound, version)
                kept = everything.select(everything.counts.users_per_bin >= least)
                if kept.counts.bins:
                    yield name, resolution, slot.value, kept


def _table(lines: list[tuple[str, int, str, FullComparison]]) -> str:
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


def _errors_table(lines: list[tuple[str, int, str, Errors]]) -> str:
    names = [name.replace("_", " ") for name in COMPARED]
    columns = [*(f"promised: {name}" for name in names), *(f"realised: {name}" for name in names)]
    rows = [
        "| period | res | slot | epsilon | G | constant | " + " | ".join(columns) + " |",
        "|" + "---|" * (6 + len(columns)),
    ]
    for name, resolution, slot, each in lines:
        cells = [name, resolution, slot.replace("_", " "), each.epsilon, each.bins, f"{each.constant:.3g}"]
        cells += [f"{error:.3g}" for error in (*each.promised, *each.realised)]
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _write_errors(path: Path, lines: list[tuple[str, int, str, Errors]]) -> None:
    columns = [f"{kind}_{name}" for kind in ("promised", "realised") for name in COMPARED]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["period", "resolution", "slot", "epsilon", "bins", "constant", *columns])
        for name, resolution, slot, each in lines:
            numbers = [f"{error:.6g}" for error in (each.constant, *each.promised, *each.realised)]
            writer.writerow([name, resolution, slot, each.epsilon, each.bins, *numbers])


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _write_csv(path: Path, lines: list[tuple[str, int, str, FullComparison]]) -> None:
    names = ["period", "resolution", "slot", *(field.name for field in fields(FullComparison))]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for name, resolution, slot, each in lines:
            values = [f"{v:.6g}" if isinstance(v, float) else v for v in asdict(each).values()]
            writer.writerow([name, resolution, slot, *values])


def main() -> int:
    """Read the command line, run, and return the exit code that `trafficdp` would give."""
    parser = argparse.ArgumentParser(description="The accountings on Austin's buses.")
    parser.add_argument("--into", type=Path, default=Path("data/accountings"), help="folder for the tables")
    parser.add_argument("--day", action="append", help="only this day (may be repeated)")
    parser.add_argument("--errors-only", action="store_true", help="leave the slow table as it is")
    chosen = parser.parse_args()
    try:
        run(chosen.into, chosen.day, errors_only=chosen.errors_only)
    except TrafficdpError as error:
        print(f"accountings: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
