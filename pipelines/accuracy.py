"""How accurate every mechanism is on Austin's buses, beside trivial maps and other tools.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/accuracy.py [--into data/accuracy/austin.md]

FOLDER is that of pipelines/austin.py. Speeds are looked at to know the truth: the figures evaluate mechanisms
and are not a private release. Noise is simulated with fixed seeds; every run makes a key of its own, which
numbers the vehicles anew, so that a second run differs in the last digits.
"""

from __future__ import annotations

import csv
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

import trafficdp
from capmetro import CONFIG, DAYS, files_of, page, samples_of
from presence import DELTA, total_of
from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.per_statistic_map import mechanism_named, mechanisms_of
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.simulated_cities import SimulatedCities, absolute_errors, true_statistic
from trafficdp.model import NeighbouringRelation, SlotKind, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.planner.choose import best_of, offers
from trafficdp.privacy.loss import PICO, LossKind, PureDP
from trafficdp.sensitive import Samples, SensitiveInputs

FloatArray = npt.NDArray[np.float64]
Whole = type[CalibratedPooling] | type[CalibratedCityWide]
ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "data" / "accuracy" / "peers.csv"
RESOLUTIONS = (6, 7, 8)
SLOTS = (SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY)
EPSILONS = (1, 4, 16)
PUBLIC = NeighbouringRelation.REPLACE_USER_VALUES
STATISTICS = (Statistic.MEAN, Statistic.VARIANCE)
MIN_VEHICLES = 5
PEERS_RESOLUTION = 7
RUNS = 20
SEED = 20161124


@dataclass
class Row:
    """One map: mean absolute errors by (statistic, epsilon), the runs behind them, what `auto` took."""

    name: str
    errors: dict[tuple[Statistic, int], float] = field(default_factory=dict)
    runs: int = 0
    chosen: set[tuple[Statistic, int]] = field(default_factory=set)


def with_few_vehicles_withheld(samples: Samples) -> Samples:
    """Return the samples of the bins that at least MIN_VEHICLES vehicles visit."""
    counts = samples.counts
    keep = counts.users_per_bin >= MIN_VEHICLES
    of_sample = np.repeat(keep[counts.bin_index], counts.count)
    return Samples(counts.select(keep), samples.value[of_sample], samples.vehicle, samples.bound)


def constant(samples: Samples, share: float, name: str) -> Row:
    """The map that says ``share`` of the statistic's range everywhere."""
    row = Row(name)
    for statistic in STATISTICS:
        number = share * statistic.largest(samples.bound.upper)
        error = float(np.abs(true_statistic(samples.contributions(), statistic) - number).mean())
        row.errors.update({(statistic, epsilon): error for epsilon in EPSILONS})
    return row


def trivial_rows(samples: Samples) -> list[Row]:
    """What every real map must beat."""
    return [
        constant(samples, 0.5, "the middle of the range, no data"),
        constant(samples, 0.0, "zero, no data"),
        *whole_rows(samples, LossKind.PURE, CalibratedCityWide),
    ]


def whole_rows(samples: Samples, kind: LossKind, *makes: Whole) -> list[Row]:
    """Maps of one piece, each statistic with all of the loss."""
    rows, public = [], PublicFacts(samples.counts, samples.bound)
    own = samples.contributions()
    values, truths = (
        SensitiveInputs(own, lambda: samples),
        {each: true_statistic(own, each) for each in STATISTICS},
    )
    for make in makes:
        row = Row(make.kind, runs=RUNS)
        for statistic, epsilon in itertools.product(STATISTICS, EPSILONS):
            try:
                drawn = make(public, (statistic,), kind, total_of(kind, epsilon, PUBLIC))
                found = [drawn.run(values, SimulatedNoise(seed), interval_level=0.95) for seed in range(RUNS)]
            except UsageError:
                continue
            off = [np.abs(each[statistic].value - truths[statistic]).mean() for each in found]
            row.errors[statistic, epsilon] = float(np.mean(off))
        rows.append(row)
    return rows


def pure_rows(samples: Samples) -> list[Row]:
    """Every mechanism of the registry at its total epsilon, split among the bins as `compare` would."""
    rows = {
        mechanism.name: Row(_label(mechanism.name, mechanism.idealised))
        for mechanism in mechanisms_of(LossKind.PURE)
    }
    tries = SimulatedCities(samples.counts, samples.bound)
    for statistic in STATISTICS:
        for epsilon in EPSILONS:
            found = [
                offer
                for mechanism in mechanisms_of(LossKind.PURE)
                for offer in offers(
                    samples.counts,
                    samples.bound,
                    statistic,
                    PureDP.of(epsilon),
                    [mechanism],
                    # it takes long, and is never chosen
                    None if mechanism.idealised else tries,
                )
            ]
            chosen = best_of(found)
            for offer in found:
                row = rows[offer.mechanism]
                if offer.fit is None:
                    continue
                errors = absolute_errors(
                    mechanism_named(offer.mechanism, LossKind.PURE),
                    samples,
                    statistic,
                    offer.fit.given,
                    SimulatedNoise(SEED),
                    RUNS,
                )
                row.errors[statistic, epsilon], row.runs = float(errors.mean()), RUNS
                if offer is chosen:
                    row.chosen.add((statistic, epsilon))
    return list(rows.values())


def zcdp_rows(samples: Samples) -> list[Row]:
    """Every Gaussian mechanism at (epsilon, DELTA): a weaker promise than pure epsilon."""
    rows = []
    for mechanism in mechanisms_of(LossKind.ZCDP):
        row = Row(_label(mechanism.name, mechanism.idealised), runs=RUNS)
        for statistic in STATISTICS:
            if statistic not in mechanism.statistics:
                continue
            truth = true_statistic(samples.contributions(), statistic)
            for epsilon in EPSILONS:
                rho = np.array(total_of(LossKind.ZCDP, epsilon, PUBLIC) / PICO)
                noise = SimulatedNoise(SEED)
                try:
                    found = [
                        np.abs(mechanism.estimate(samples, statistic, rho, noise) - truth).mean()
                        for _ in range(RUNS)
                    ]
                except UsageError:
                    continue
                row.errors[statistic, epsilon] = float(np.mean(found))
        rows.append(row)
    return rows


def peers(slot: SlotKind) -> dict[str, list[Row]]:
    """The published figures of other tools for resolution 7, by relation."""
    found: dict[str, dict[str, Row]] = {}
    statistic_of = {"mae_mean": Statistic.MEAN, "mae_variance": Statistic.VARIANCE}
    with PEERS.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["slot"] == slot.value and line["metric"] in statistic_of:
                name = f"{line['peer']} ({line['setting']})"
                rows = found.setdefault(line["relation"], {})
                row = rows.setdefault(name, Row(name))
                row.errors[statistic_of[line["metric"]], int(line["epsilon"])] = float(line["value"])
    return {relation: list(rows.values()) for relation, rows in found.items()}


def grid_count_line(samples: Samples, slot: SlotKind) -> str:
    """Compare the largest noise of means, times epsilon, with the paper's way of accounting."""
    with PEERS.open(encoding="utf-8", newline="") as file:
        (paper,) = [
            float(line["value"])
            for line in csv.DictReader(file)
            if line["slot"] == slot.value and line["metric"] == "worst_error_times_epsilon"
        ]
    accountings = laplace_accountings(samples.counts, samples.bound, {Statistic.MEAN: 1.0})
    own = {
        accounting.name: accounting.worst_relative_scale(1.0, {Statistic.MEAN: 1.0})
        for accounting in accountings
    }
    return (
        f"Largest noise scale of a mean times epsilon, m/s: {paper:.4g} by the grid count of paper 003, "
        f"{own['exact']:.4g} by every vehicle's own loss, {own['equal']:.4g} with equal noise."
    )


def table(title: str, rows: list[Row], *, mark: bool = False) -> list[str]:
    """Return a Markdown table: means, then variances, at every epsilon."""
    heads = [f"{statistic.value} ε {epsilon}" for statistic in STATISTICS for epsilon in EPSILONS]
    lines = [
        f"**{title}**",
        "",
        "| map | " + " | ".join(heads) + " | runs |",
        "|---|" + "---:|" * (len(heads) + 1),
    ]
    for row in rows:
        if not row.errors:
            continue
        cells = []
        for statistic in STATISTICS:
            for epsilon in EPSILONS:
                error = row.errors.get((statistic, epsilon))
                text = "" if error is None else f"{error:.2f}"
                cells.append(f"**{text}**" if mark and (statistic, epsilon) in row.chosen else text)
        lines.append(f"| {row.name} | " + " | ".join(cells) + f" | {row.runs or ''} |")
    return [*lines, ""]


def section(city: trafficdp.Workspace, resolution: int, slot: SlotKind) -> Iterator[str]:
    """Yield the lines of the report on one grid."""
    samples = with_few_vehicles_withheld(samples_of(city.with_map(resolution=resolution, slot_kind=slot)))
    bins, records = samples.counts.bins, len(samples.value)
    yield f"## Resolution {resolution}, {slot.value.replace('_', ' ')}: {bins:,} bins, {records:,} records"
    yield ""
    yield from table("Trivial maps", trivial_rows(samples))
    pooled = {kind: whole_rows(samples, kind, CalibratedPooling) for kind in LossKind}
    pure = [*pure_rows(samples), *pooled[LossKind.PURE]]
    yield from table("Pure epsilon, counts public (replace_user_values)", pure, mark=True)
    yield from table(f"(epsilon, {DELTA}), counts public", [*zcdp_rows(samples), *pooled[LossKind.ZCDP]])
    if resolution != PEERS_RESOLUTION:
        return
    others = peers(slot)
    if "replace_user_values" in others:
        yield from table("Other tools, counts public", others["replace_user_values"])
    yield from table(
        "Other tools under add_or_remove_user: a stronger promise, not comparable",
        others["add_or_remove_user"],
    )
    yield grid_count_line(samples, slot)
    yield ""


def report() -> Iterator[str]:
    """Yield the lines of the report."""
    files = files_of(DAYS)
    with tempfile.TemporaryDirectory() as folder:
        city = trafficdp.open(CONFIG, store=Path(folder) / "store", create=True)
        city.ingest(files)
        yield from report_of(city)


def report_of(city: trafficdp.Workspace) -> Iterator[str]:
    """Yield them for a city that has its records."""
    yield "# Accuracy on Austin's buses"
    yield ""
    yield (
        "Written by `make accuracy`. Mean absolute error of bin means (m/s) and bin variances ((m/s)²) "
        "against the true ones of the clipped speeds, over the bins with at least "
        f"{MIN_VEHICLES} vehicles; four days, {DAYS[0]} to {DAYS[-1]}; speeds clipped to 30 m/s; noise "
        "simulated. Every figure spends its whole epsilon on the one statistic; no vehicle loses more, over "
        "all bins together. **Bold**: the one of those that draw on every bin for itself which simulated "
        "cities on the public counts prefer for the statistic alone; they are not told these errors. "
        "Constants of `partial_pooling` were chosen on these days. What `auto` takes of all, on days that "
        "chose nothing: `maps.md`."
    )
    yield ""
    for resolution in RESOLUTIONS:
        for slot in SLOTS:
            yield from section(city, resolution, slot)
    yield (
        "Other tools: their best bounds found, measured in November 2026 with Python 3.11 on the same "
        "bins; `data/accuracy/peers.csv`."
    )


def _label(name: str, idealised: bool) -> str:
    return f"{name} (idealised)" if idealised else name


def main() -> int:
    """Measure and write."""
    return page("Accuracy of every mechanism on Austin's buses.", PEERS.with_name("austin.md"), report)


if __name__ == "__main__":
    sys.exit(main())
