"""What `auto` chooses on Austin's buses: beside the best in hindsight, and beside what was promised.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/maps.py [--into data/accuracy/maps.md]

FOLDER holds days of CapMetro's open archive, ``YYYY-MM-DD.csv.gz``, in it or below it. Speeds are looked
at to know the truth: the figures evaluate maps and are not a private release. Noise is simulated.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import trafficdp
from capmetro import DAYS, config_of, files_of, page, samples_of
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.mechanisms.protocol import CalibratedMechanism
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import SlotKind, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.planner.allocation import Allocation
from trafficdp.sensitive import Samples, SensitiveInputs

FloatArray = npt.NDArray[np.float64]
INTO = Path(__file__).resolve().parents[1] / "data" / "accuracy" / "maps.md"
CHOOSING = (DAYS,)
CHECKING = (("2015-06-07",), ("2016-02-07",), ("2015-03-08",), ("2015-03-18",), ("2015-03-19",))
"""Days that chose constants, and days that none was chosen on."""
RESOLUTIONS, SLOTS, EPSILONS = (6, 7), (SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY), ("1", "4", "16")
RIVALS = ("baseline", "worst_case_clipping", "partial_pooling", "flat")
POOLED = (Statistic.MEAN, Statistic.VARIANCE)
DRAWS = 8
NEAR = 1.1
"""What `auto` takes is near the best in hindsight up to so many times its error."""


@dataclass(frozen=True)
class Setting:
    """One map: what was asked for, mean errors a mechanism, what `auto` took, promised and reached."""

    days: str
    grid: str
    epsilon: str
    errors: dict[str, float]
    taken: str
    promised: float
    sparse: float
    dense: float
    every: float
    variances: float
    over_vehicles: float
    vehicles_came_out: float

    @property
    def best(self) -> str:
        """The mechanism that came out nearest to the truth."""
        return min(self.errors, key=self.errors.__getitem__)

    @property
    def regret(self) -> float:
        """The error of what was taken, over that of the best."""
        return self.errors[self.taken] / self.errors[self.best]

    @property
    def came_out(self) -> float:
        """How much nearer than flat the map was."""
        return 1 - self.errors[self.taken] / self.errors["flat"]


def drawn(
    calibrated: CalibratedMechanism, samples: Samples, statistic: Statistic
) -> tuple[float, FloatArray]:
    """Return the mean absolute error, and the share of draws in which the interval of each bin holds."""
    data = samples.contributions()
    truth, values, found = true_statistic(data, statistic), SensitiveInputs(data, lambda: samples), []
    for seed in range(DRAWS):
        noise = SimulatedNoise(seed)
        found.append(calibrated.run(values, noise, interval_level=0.95))
    ends = [(each[statistic].low - 1e-9, each[statistic].high + 1e-9) for each in found]
    error = float(np.mean([np.abs(each[statistic].value - truth).mean() for each in found]))
    return error, np.mean([(low <= truth) & (truth <= high) for low, high in ends], axis=0)


def held_by_quarters(held: FloatArray, records: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """Return how often intervals hold in the quarter of bins with fewest records, with most, and in all."""
    order, quarter = np.argsort(records, kind="stable"), max(1, len(records) // 4)
    return float(held[order[:quarter]].mean()), float(held[order[-quarter:]].mean()), float(held.mean())


def taken_by(allocation: Allocation) -> str:
    """Return the name of what `auto` took."""
    return next(name for name, skill in allocation.considered.items() if skill is allocation.tried)


def settings(days: tuple[str, ...], files: Iterable[Path]) -> Iterator[Setting]:
    """Yield every map of ``days``."""
    with tempfile.TemporaryDirectory() as place:
        own = config_of(days, Path(place))
        city = trafficdp.open(own, store=Path(place) / "store", create=True)
        city.ingest(list(files))
        for resolution, slot in itertools.product(RESOLUTIONS, SLOTS):
            here = city.with_map(resolution=resolution, slot_kind=slot)
            whole = samples_of(here)
            named = days[0] if len(days) == 1 else f"{days[0]} to {days[-1][-2:]}"
            grid = f"{resolution}, {slot.value.replace('_', ' ')}"
            for epsilon in EPSILONS:
                yield setting(here, whole, (named, grid, epsilon))


def setting(city: trafficdp.Workspace, whole: Samples, asked: tuple[str, str, str]) -> Setting:
    """Return one map, by `auto` and by each of its rivals."""
    allocation = city.plan(asked[2], suggestions=False).allocation
    data = whole.select(allocation.keep)
    errors = {}
    for name in RIVALS:
        rival = city.with_map(mechanism=name).plan(asked[2], suggestions=False).allocation
        errors[name], _ = drawn(rival.calibrated, data, Statistic.MEAN)
    taken, skill = taken_by(allocation), allocation.skill[Statistic.MEAN]
    errors[taken], held = drawn(allocation.calibrated, data, Statistic.MEAN)
    public = allocation.calibrated.public
    both = CalibratedPooling(public, POOLED, allocation.loss.kind, allocation.request.loss.pico)
    variances = float(drawn(both, data, Statistic.VARIANCE)[1].mean())
    vehicles, error = (Statistic.VEHICLE_MEAN,), {}
    for make in (CalibratedPooling, CalibratedCityWide):
        own = make(public, vehicles, allocation.loss.kind, allocation.request.loss.pico)
        error[make.kind], held_of = drawn(own, data, *vehicles)
        if make is CalibratedPooling:
            over_vehicles = float(held_of.mean())
    nearer = 1 - error[CalibratedPooling.kind] / error[CalibratedCityWide.kind]
    quarters = held_by_quarters(held, data.counts.samples_per_bin)
    return Setting(*asked, errors, taken, skill.expected, *quarters, variances, over_vehicles, nearer)


def table(found: list[Setting]) -> Iterator[str]:
    """Yield the lines of a table of ``found``."""
    yield (
        "| days | resolution, slot | ε | " + " | ".join(RIVALS) + " | over the best | promised | came out |"
    )
    yield "|---|---|---:|" + "---:|" * (len(RIVALS) + 3)
    for each in found:
        errors = [
            f"**{each.errors[name]:.2f}**" if name == each.taken else f"{each.errors[name]:.2f}"
            for name in RIVALS
        ]
        cells = [each.days, each.grid, each.epsilon, *errors, f"{each.regret:.2f}"]
        yield f"| {' | '.join(cells)} | {each.promised:.0%} | {each.came_out:.0%} |"
    yield ""


def intervals(found: list[Setting]) -> Iterator[str]:
    """Yield a table of how often intervals hold: of all maps of one grid and epsilon, the least and all."""
    heads = ["fewest records", "most records", "means", "worst map", "variances", "worst map"]
    heads += ["over vehicles", "worst map", "nearer than flat"]
    yield f"| resolution, slot | ε | {' | '.join(heads)} |"
    yield "|---|---:|" + "---:|" * len(heads)
    groups: dict[tuple[str, str], list[Setting]] = {}
    for each in found:
        groups.setdefault((each.grid, each.epsilon), []).append(each)
    for (grid, epsilon), own in groups.items():
        numbers = [
            np.mean([each.sparse for each in own]),
            np.mean([each.dense for each in own]),
            np.mean([each.every for each in own]),
            min(each.every for each in own),
            np.mean([each.variances for each in own]),
            min(each.variances for each in own),
            np.mean([each.over_vehicles for each in own]),
            min(each.over_vehicles for each in own),
        ]
        nearer = np.mean([each.vehicles_came_out for each in own])
        yield (
            f"| {grid} | {epsilon} | "
            + " | ".join(f"{number:.3f}" for number in numbers)
            + f" | {nearer:.0%} |"
        )
    yield ""


def in_short(found: list[Setting]) -> str:
    """Return one sentence on the choices of ``found``."""
    near = np.mean([each.regret <= NEAR for each in found])
    worst = max(each.regret for each in found)
    off = [round(100 * each.came_out) - round(100 * each.promised) for each in found]
    kept = np.mean([each >= -10 for each in off])
    return (
        f"Within 10 % of the best in hindsight in {near:.0%} of {len(found)} settings, {worst:.2f} times it "
        f"at worst. The skill that came out lay {np.mean(off):+.0f} points from the promise on average "
        f"({min(off):+d} to {max(off):+d}), and at most ten points below it in {kept:.0%} of settings."
    )


def report() -> Iterator[str]:
    """Yield the lines of the report."""
    yield "# What `auto` chooses, on days of Austin's buses"
    yield ""
    yield (
        "Written by `make accuracy`. Mean absolute error of bin means, m/s, over the bins of at least 5 "
        f"vehicles, {DRAWS} draws of simulated noise a map; speeds clipped to 30 m/s. **Bold**: what `auto` "
        "takes, by public counts and simulated cities. *Over the best*: its error over that of the best of "
        "the four in hindsight. *Promised* and *came out*: how much nearer to the truth than `flat`."
    )
    yield ""
    for title, sets in (
        ("Days that chose constants of partial pooling and of its intervals", CHOOSING),
        ("Days that chose nothing", CHECKING),
    ):
        yield f"## {title}"
        yield ""
        found = []
        for days in sets:
            for each in settings(days, files_of(days)):
                print(each, file=sys.stderr, flush=True)
                found.append(each)
        yield in_short(found)
        yield ""
        yield from table(found)
        yield (
            "How often the intervals hold, over bins and draws: in the quarter of the bins with fewest "
            "records, in that with most, in all, and in all of the worst map; then of the variances of "
            "partial pooling in a map of both statistics, and of its means over vehicles in a map of these "
            "alone, with how much nearer than flat they came out."
        )
        yield ""
        yield from intervals(found)


def main() -> int:
    """Measure and write."""
    return page("What auto chooses on Austin's buses.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
