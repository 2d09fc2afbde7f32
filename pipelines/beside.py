"""What maps look like beside the truth, and how far from it they are: two pictures, and the second's numbers.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/beside.py [--peers .venv-peers/bin/python]

writes docs/images/beside.png, docs/images/curves.png and data/accuracy/curves.csv. Speeds are looked at to
know the truth: this evaluates mechanisms and is no private release. Noise is simulated, seeded; PipelineDP
draws its own. Look at the pictures before they are committed.

``beside``: Austin's buses on 2016-11-24 to -27, days on which constants were chosen, resolution 7. Two maps
are made where nothing about a vehicle is public; PipelineDP has the best of nine bounds, by the truth.
``curves``: error by epsilon on 2015-06-07, which chose nothing, and by the size of simulated fleets.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h3
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from PIL import Image

import trafficdp
from capmetro import CONFIG, DAYS, config_of, files_of, samples_of
from presence import total_of
from trafficdp.binning.places import declared_bins
from trafficdp.errors import TrafficdpError
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Samples, SensitiveInputs

FloatArray = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
IMAGES, NUMBERS = ROOT / "docs" / "images", ROOT / "data" / "accuracy" / "curves.csv"
BENCH = ROOT / "tests" / "benchmarks" / "bench_peers.py"
CHECK_DAY = "2015-06-07"
NAMES = {
    "flat": "one number for the city",
    "baseline": "Laplace and block noise",
    "worst_case_clipping": "worst-case clipping\n(Rameshwar et al. 2025)",
    "partial_pooling": "partial pooling",
}
HIDDEN, PEER = "partial pooling,\nnothing public", "PipelineDP,\nnothing public"
EPSILONS, BY_EPSILON = (1, 4), (0.25, 0.5, 1, 2, 4, 8, 16)
FLEETS = (100, 1_000, 10_000, 100_000)
DRAWS, LEAST_VEHICLES, FASTEST = 12, 5, 20.0


@dataclass(frozen=True)
class City:
    """A city whose values may be looked at: its records in the bins of a map, and the declared hexagons."""

    workspace: trafficdp.Workspace
    samples: Samples
    places: npt.NDArray[np.uint64]

    @classmethod
    def read(cls, config: Path, scratch: Path, files: Sequence[Path]) -> City:
        """Return the city of ``files`` at resolution 7 over the whole period."""
        city = trafficdp.open(config, store=scratch / "store", create=True)
        city.ingest(list(files))
        here = city.with_map(resolution=7, slot_kind="whole_period")
        whole = samples_of(here)
        kept = whole.select(whole.counts.users_per_bin >= LEAST_VEHICLES)
        return cls(here, kept, np.unique(declared_bins(here.config.grid)[0]))

    @property
    def truth(self) -> FloatArray:
        """Mean speeds, shape (G,)."""
        return true_statistic(self.samples.contributions(), Statistic.MEAN)

    def maps(self, name: str, epsilon: float, draws: int) -> Iterator[FloatArray]:
        """Yield draws of the map by the mechanism ``name``, shape (G,) each."""
        named = self.workspace.with_map(mechanism=name)
        calibrated = named.plan(epsilon, suggestions=False).allocation.calibrated
        values = SensitiveInputs(self.samples.contributions(), lambda: self.samples)
        for seed in range(draws):
            found = calibrated.run(values, SimulatedNoise(seed), interval_level=0.95)
            yield found[Statistic.MEAN].value

    def hidden(self, epsilon: int, draws: int) -> Iterator[FloatArray]:
        """Yield draws of the map where nothing about a vehicle is public, in rho by delta 10^-6."""
        own = self.samples.contributions()
        design = AddRemoveDesign(
            self.places, own.bound, LossKind.ZCDP, total_of(LossKind.ZCDP, epsilon), variance=False
        )
        at = design.place_numbers(own.counts.cell, own.counts.slot)[0]
        for seed in range(draws):
            yield add_remove_map(design, measure_all(design, own, SimulatedNoise(seed))).mean.value[at]

    def error(self, maps: Iterator[FloatArray]) -> float:
        """Return the mean absolute error of ``maps``, m/s."""
        truth = self.truth
        return float(np.mean([np.abs(each - truth).mean() for each in maps]))

    def peer(self, python: str, scratch: Path, epsilon: int) -> FloatArray:
        """Return the map of PipelineDP with the best of nine bounds, shape (G,), clipped to speeds."""
        counts, found = self.samples.counts, []
        vehicle = np.repeat(counts.user_index, counts.count)
        bins = np.repeat(counts.bin_index, counts.count)
        for of_bins, of_records in itertools.product((0.5, 0.9, 1.0), (0.5, 0.75, 0.9)):
            np.savez(
                scratch / "binned.npz",
                vehicle=vehicle,
                bin=bins,
                speed=self.samples.value * float(self.samples.bound.step),
                cell=counts.cell,
                slot=counts.slot,
                kept=np.arange(counts.bins),
                epsilon=epsilon,
                most_bins=int(np.quantile(counts.bins_per_user[counts.bins_per_user > 0], of_bins)),
                most_records=int(np.quantile(counts.count, of_records)),
            )
            command = [python, str(BENCH), "--measure", "pipelinedp", str(scratch)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            mean = np.load(scratch / "pipelinedp.npz")["mean"]
            found.append(np.clip(mean, 0, float(self.samples.bound.upper)))
        return min(found, key=lambda mean: self.error(iter([mean])))


def beside(city: City, peers: str, scratch: Path) -> None:
    """Draw the truth and five maps of it, at two epsilons on one scale."""
    cells = [f"{cell:x}" for cell in city.samples.counts.cell]
    shapes = [[(lng, lat) for lat, lng in h3.cell_to_boundary(cell)] for cell in cells]
    figure, axes = plt.subplots(len(EPSILONS), 6, figsize=(15, 5.8), layout="constrained")
    drawn = PolyCollection([])
    for line, epsilon in zip(axes, EPSILONS, strict=True):
        panels = {"the truth": city.truth}
        for name in ("flat", "worst_case_clipping", "partial_pooling"):
            panels[NAMES[name]] = next(city.maps(name, epsilon, 1))
        panels[PEER] = city.peer(peers, scratch, epsilon)
        panels[HIDDEN] = next(city.hidden(epsilon, 1))
        for axis, (name, mean) in zip(line, panels.items(), strict=True):
            drawn = PolyCollection(shapes, array=mean, cmap="viridis", edgecolor="white", linewidth=0.4)
            drawn.set_clim(0, FASTEST)
            axis.add_collection(drawn)
            axis.autoscale()
            axis.set(aspect=1 / np.cos(np.radians(30.3)), xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            off = np.abs(mean - city.truth).mean()
            axis.set_title(name if epsilon == EPSILONS[0] else "", fontsize=10)
            axis.set_xlabel("mean speed" if name == "the truth" else f"off by {off:.1f} m/s", fontsize=9)
        line[0].set_ylabel(f"epsilon {epsilon}", fontsize=11)
    figure.colorbar(drawn, ax=axes, label="m/s", shrink=0.6, extend="max")
    _save(figure, "beside.png")


def by_epsilon(city: City) -> Iterator[tuple[str, float, str, float]]:
    """Yield (figure, epsilon, map, error) on a day that chose nothing."""
    for name in NAMES:
        for epsilon in BY_EPSILON:
            yield "epsilon", epsilon, name, city.error(city.maps(name, epsilon, DRAWS))


def by_fleet(scratch: Path) -> Iterator[tuple[str, float, str, float]]:
    """Yield (figure, vehicles, map, error at epsilon 1) in simulated cities of a day."""
    for vehicles in FLEETS:
        made = scratch / f"city{vehicles}"
        trafficdp.simulate(made, vehicles=vehicles, days=1, seed=1)
        city = City.read(made / "trafficdp.toml", made, sorted(made.glob("records-*.parquet")))
        for name in ("flat", "baseline", "partial_pooling"):
            yield "vehicles", vehicles, name, city.error(city.maps(name, 1, 4))
        yield "vehicles", vehicles, "hidden", city.error(city.hidden(1, 4))


def curves(rows: Sequence[tuple[str, float, str, float]]) -> None:
    """Draw the errors of ``rows``."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    titles: Mapping[str, tuple[Axes, str]] = {
        "epsilon": (axes[0], f"Austin's buses, {CHECK_DAY}, resolution 7"),
        "vehicles": (axes[1], "simulated cities of a day, resolution 7, epsilon 1"),
    }
    for name, colour in zip((*NAMES, "hidden"), ("black", "C1", "C2", "C0", "C3"), strict=True):
        for what, (axis, title) in titles.items():
            points = [(at, error) for figure_of, at, of, error in rows if (figure_of, of) == (what, name)]
            if points:
                label = NAMES.get(name, HIDDEN).replace("\n", " ")
                style = "--" if name == "flat" else "o-"
                axis.loglog(*zip(*points, strict=True), style, color=colour, label=label, ms=4)
            axis.set(xlabel=what, ylabel="mean absolute error of a hexagon's mean (m/s)", title=title)
    for axis in axes:
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.legend(frameon=False, fontsize=8)
        axis.grid(color="0.92")
    _save(figure, "curves.png")


def _save(figure: Figure, name: str) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100)
    plt.close(figure)
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(128, Image.Quantize.FASTOCTREE)
        few.save(IMAGES / name, optimize=True)


def main() -> int:
    """Read the command line, measure, write; return the exit code that `trafficdp` would give."""
    parser = argparse.ArgumentParser(description="Maps beside the truth, and curves of their errors.")
    parser.add_argument("--peers", default=str(ROOT / ".venv-peers" / "bin" / "python"))
    peers = parser.parse_args().peers
    try:
        with tempfile.TemporaryDirectory() as temporary:
            scratch = Path(temporary)
            beside(City.read(CONFIG, scratch / "four", files_of(DAYS)), peers, scratch)
            own = config_of((CHECK_DAY,), scratch)
            rows = [*by_epsilon(City.read(own, scratch / "day", files_of([CHECK_DAY]))), *by_fleet(scratch)]
    except TrafficdpError as error:
        print(f"beside: {error}", file=sys.stderr)
        return error.exit_code
    curves(rows)
    with NUMBERS.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["by", "at", "map", "error"])
        table.writerows([by, f"{at:g}", name, f"{error:.4f}"] for by, at, name, error in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
