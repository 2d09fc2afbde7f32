"""How far continual means are from the truth over time: paper 002's algorithms, and past them.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/continual.py [--into data/continual]

FOLDER holds ``capmetro/2017-03-21.csv.gz``: CapMetro open data, archived by scascketta/CapMetrics (MIT), a
day of Austin's buses that is replayed in the order of its times as one stream for the whole city. The other
streams are simulated: samples are independent, x y/U of two uniform speeds x and y. Values are looked at to
know the truth: the figures evaluate algorithms and are not a private release. Noise is simulated with fixed
seeds.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capmetro import CONFIG, files_of
from trafficdp.config.file import load_config
from trafficdp.errors import TrafficdpError
from trafficdp.ingest.read import read_file
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.george_2022.arrivals import (
    ArrivalOrder,
    Arrivals,
    arrival_order,
    best_plan,
    paper_plan,
    prior_plan,
)
from trafficdp.research.george_2022.better_means import (
    SlidingWindow,
    best_window,
    levelled_moments,
    numbered_by_arrival,
)
from trafficdp.research.george_2022.comparison import (
    Method,
    better_methods,
    errors_over_time,
    lower_bound_curve,
    paper_methods,
)
from trafficdp.research.george_2022.paper_means import activations
from trafficdp.stream.tree import Tree, best_tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
DAY = "2017-03-21"
STEPS = 3_000
FAILURE = 0.05
DELTA = "0.000001"
RUNS = 40
TIMES = 300
SEED = 20170321
SMALL = (1_000, 64, 1.0)
LARGE = (1_000, 1_024, 8.0)
HEADER = f"""# Error over time of continual means

Made by `make continual`. One stream for the whole city, values in [0, U]. The error is the released mean less
the exact mean of all samples so far, without its sign, in % of U: at the end of the stream / averaged over
time ({TIMES} moments), mean of {RUNS} runs. One epsilon for one vehicle and the whole stream; arrivals are
public. Pure epsilon, or (epsilon, {DELTA}) from zCDP. Noise is simulated. Outputs are clipped to [0, U]: near
50 % means that they lie at its ends, whatever is true.

- "prior given": the paper's assumption that the mean is known to within U/sqrt(m), for nothing.
- "medians and budgets chosen": medians only where truncation pays, arrays aligned, eps_l by W_l^(2/3).
- "best tree": the tree of least error for the declared numbers (signed digits), not the binary mechanism.
- "from a quarter": a quarter of the vehicles and of the samples is declared, and passed.
- "matrix factor": square root factor, discrete Gaussian noise; "in little memory": binned.

"""


VARIANCES = """Algorithm 5 without a prior, best split and best tree. Jointly: the second moment's noise is U
times the first's, which costs nothing; half: what either has when each gets half of epsilon. Means in % of U,
variances in % of U^2/4.
"""
WINDOWS = """Fresh budget every so many minutes; mean absolute error of the mean over all minutes, in % of U.
Last column: what a bus loses over the whole day with the best tree.
"""


def simulated(order: ArrivalOrder, users: int, samples: int, seed: int) -> Arrivals:
    """Return a stream of independent samples."""
    source = SimulatedNoise(seed)
    user = arrival_order(order, users, samples, source)
    any_speed = np.full(len(user), STEPS + 1)
    value = source.uniform_below(any_speed) * source.uniform_below(any_speed) // STEPS
    return Arrivals(user, value, users, samples, STEPS)


def austin() -> tuple[Arrivals, IntArray]:
    """Return the day's records in the order of their times, and the minute of each, 1, 2, ...

    The numbers of vehicles and samples are declared as found.
    """
    (path,) = files_of([DAY])
    config = load_config(CONFIG)
    with tempfile.TemporaryDirectory() as scratch:
        key = VehicleKey.create(Path(scratch) / "key")
        table = read_file(path, config.sources[0], config.grid.area, key).fixes.table
    time = table["time_us"].to_numpy()
    order = np.argsort(time, kind="stable")
    # the file is in metres per second: centimetres are hundredths of U = 30 m/s
    value = np.clip(table["speed_centi"].to_numpy()[order], 0, STEPS).astype(np.int64)
    vehicle = table["vehicle"].combine_chunks().dictionary_encode().indices.to_numpy()[order]
    minute = (time[order] - time.min()) // 60_000_000 + 1
    return numbered_by_arrival(vehicle.astype(np.int64), value, STEPS), minute.astype(np.int64)


def moments(arrivals: Arrivals) -> IntArray:
    """Return TIMES moments, evenly over the stream, the last its end."""
    return np.unique(np.linspace(1, len(arrivals), TIMES).round().astype(np.int64))


def curves(arrivals: Arrivals, epsilon: float, seed: int) -> Iterator[tuple[Method, FloatArray]]:
    """Yield every method with its errors over time."""
    methods = paper_methods(arrivals, epsilon, FAILURE) + better_methods(arrivals, epsilon, FAILURE, DELTA)
    for number, method in enumerate(methods):
        source = SimulatedNoise(seed + number)
        yield method, errors_over_time(arrivals, method, source, RUNS, moments(arrivals))


def table(streams: dict[str, Arrivals], epsilon: float, curve_rows: list[list[str]]) -> list[str]:
    """Return the lines of a table; add every curve to ``curve_rows``."""
    cells: dict[tuple[str, str], list[str]] = {}
    for place, (name, arrivals) in enumerate(streams.items()):
        at = moments(arrivals)
        for method, error in curves(arrivals, epsilon, SEED + 100 * place):
            row = cells.setdefault((method.name, method.guarantee), [""] * len(streams))
            row[place] = f"{100 * error[-1]:.2f} / {100 * error.mean():.2f}"
            curve_rows += [
                [name, method.name, method.guarantee, str(t), f"{e:.5f}"]
                for t, e in list(zip(at.tolist(), error, strict=True))[9::10]
            ]
        bound = lower_bound_curve(arrivals, epsilon, at)
        row = cells.setdefault(("rate of the single-release bound", "-"), [""] * len(streams))
        row[place] = f"{100 * bound[-1]:.2f} / {100 * bound.mean():.2f}"
    lines = ["| algorithm | epsilon | " + " | ".join(streams) + " |", "|" + "---|" * (len(streams) + 2)]
    return lines + [f"| {name} | {kind} | " + " | ".join(row) + " |" for (name, kind), row in cells.items()]


def activation_table(arrivals: Arrivals, epsilon: float) -> list[str]:
    """Return after how many samples each level of the paper's plan and of ours is active."""
    plans = {
        "A6": paper_plan(arrivals.users, arrivals.samples, arrivals.upper_steps, epsilon, FAILURE),
        "chosen": best_plan(arrivals.users, arrivals.samples, arrivals.upper_steps, epsilon, FAILURE),
    }
    levels = len(plans["A6"].width)
    lines = ["| level | " + " | ".join(map(str, range(levels))) + " |", "|" + "---|" * (levels + 1)]
    for name, plan in plans.items():
        active = activations(arrivals, plan)
        when = ["never" if t > len(arrivals) else f"{t:,}" for t in active.tolist()]
        lines.append(f"| {name}: samples until active | " + " | ".join(when) + " |")
        lines.append(f"| {name}: arrays k | " + " | ".join(map(str, plan.arrays.tolist())) + " |")
        share = plan.width / (plan.upper_steps * plan.size)
        lines.append(f"| {name}: W / (U B) | " + " | ".join(f"{each:.2f}" for each in share) + " |")
    return lines


def variance_table(streams: dict[str, Arrivals], epsilon: float) -> list[str]:
    """Return means and variances together, priced jointly, beside half of epsilon for each."""
    lines = ["| stream | epsilon | mean, jointly | variance, jointly | mean, half | variance, half |"]
    lines.append("|" + "---|" * 6)
    for name, arrivals in streams.items():
        at, u = moments(arrivals), arrivals.upper_steps
        tree = best_tree(arrivals.users)
        mean = arrivals.running_mean()[at - 1]
        square = (np.cumsum(arrivals.value.astype(np.float64) ** 2) / np.arange(1, len(arrivals) + 1))[at - 1]
        cells = []
        for part in (epsilon, epsilon / 2):
            plan = prior_plan(
                arrivals.users, arrivals.samples, u, part, FAILURE, prior=False, best_split=True
            )
            released = levelled_moments(arrivals, plan, SimulatedNoise(SEED), RUNS, at, tree)
            for found, truth, largest in zip(released, (mean, square - mean**2), (u, u**2 / 4), strict=True):
                error = np.abs(found - truth).mean(axis=0) / largest
                cells.append(f"{100 * error[-1]:.2f} / {100 * error.mean():.2f}")
        lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    return lines


def window_table(arrivals: Arrivals, minute: IntArray) -> list[str]:
    """Return the error of the mean of the last R minutes, for budgets of epsilon 1 and 4 every R minutes."""
    lines = ["| last | epsilon a block | binary tree | one draw a minute | best tree | most / mean loss |"]
    lines.append("|" + "---|" * 6)
    length = int(minute.max())
    total, count = (np.bincount(minute, weight, length + 1)[1:] for weight in (arrivals.value, None))
    for size, epsilon in product((15, 60, 240), (1.0, 4.0)):
        block = (minute - 1) // size
        fixes = int(np.unique(np.stack([arrivals.user, block]), axis=1, return_counts=True)[1].max())
        inside = np.cumsum(count)
        inside[size:] -= np.cumsum(count)[:-size]
        exact = np.cumsum(total)
        exact[size:] -= np.cumsum(total)[:-size]
        there = inside > 0
        cells = []
        for window in (SlidingWindow(size, Tree()), SlidingWindow(size, Tree(size + 1)), best_window(size)):
            scale = window.scale(fixes, arrivals.upper_steps, epsilon)
            sums = window.sums(total.astype(np.int64), scale, SimulatedNoise(SEED), RUNS)
            means = np.clip(sums[:, there] / inside[there], 0, arrivals.upper_steps)
            error = np.abs(means - exact[there] / inside[there]).mean() / arrivals.upper_steps
            cells.append(f"{100 * error:.2f}")
            pico = window.loss_per_vehicle(arrivals.user, minute, arrivals.upper_steps, scale, arrivals.users)
        lines.append(
            f"| {size} minutes | {epsilon:g} | "
            + " | ".join(cells)
            + f" | {pico.max() / 1e12:.2f} / {pico.mean() / 1e12:.2f} |"
        )
    return lines


def run(into: Path) -> None:
    """Write ``errors.md`` and ``curves.csv``."""
    real, minute = austin()
    into.mkdir(parents=True, exist_ok=True)
    curve_rows: list[list[str]] = []
    users, samples, epsilon = SMALL
    lines = [f"## {users:,} vehicles of {samples} samples, epsilon {epsilon:g}", ""]
    streams = {order.value: simulated(order, users, samples, SEED) for order in ArrivalOrder}
    lines += table(streams, epsilon, curve_rows)
    day = f"Austin, {DAY}"
    lines += ["", f"## {day}: {len(real):,} records of {real.users} buses, at most {real.samples} a bus", ""]
    for each in (1.0, 4.0):
        lines += [*table({f"{day}, epsilon {each:g}": real}, each, curve_rows), ""]
    users, samples, epsilon = LARGE
    lines += [
        f"## {users:,} vehicles of {samples:,} samples, epsilon {epsilon:g}: where truncation pays",
        "",
    ]
    large = simulated(ArrivalOrder.RANDOM, users, samples, SEED)
    lines += [*table({f"random, {users * samples:,} samples": large}, epsilon, curve_rows), ""]
    lines += activation_table(large, epsilon)
    lines += ["", "## Variance beside the mean", "", VARIANCES]
    lines += variance_table({"random order, 64,000 samples": streams["random"], day: real}, 4.0)
    lines += ["", f"## The last minutes: {day}, whole city", "", WINDOWS, *window_table(real, minute)]
    (into / "errors.md").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    with (into / "curves.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["stream", "algorithm", "epsilon", "samples", "error"])
        writer.writerows(curve_rows)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = Path(__file__).resolve().parents[1] / "data" / "continual"
    parser.add_argument("--into", type=Path, default=default)
    arguments = parser.parse_args()
    try:
        run(arguments.into)
    except TrafficdpError as error:
        print(f"continual: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
