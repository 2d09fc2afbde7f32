"""How often intervals of maps hold, and chances come true: where they were tuned, held out, in other cities.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/reliability.py

writes data/accuracy/reliability.md (every map), docs/images/reliability.png and the section of
docs/guides/limits.md between its two marks. FOLDER is that of pipelines/austin.py and pipelines/cities.py.
Speeds are looked at to know the truth: this evaluates maps and is no private release. Noise is simulated.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from PIL import Image

import trafficdp
from capmetro import DAYS, config_of, files_of, page, samples_of, write_section
from cities import OTHER_CITIES
from presence import total_of
from trafficdp.binning.places import declared_bins
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.mechanisms.pooling.posterior import APART, LEVELS
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import NeighbouringRelation, SlotKind, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Samples, SensitiveInputs

FloatArray = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
INTO = ROOT / "data" / "accuracy" / "reliability.md"
GUIDE, PICTURE = ROOT / "docs" / "guides" / "limits.md", ROOT / "docs" / "images" / "reliability.png"
TUNED = (DAYS, ("2015-03-07",), ("2017-03-16",), ("2017-03-21",))
HELD_OUT = (("2015-03-08",), ("2015-03-18",), ("2015-03-19",), ("2015-06-07",), ("2016-02-07",))
GROUPS = ("tuned", "held out", "other city")
RELATIONS = ("counts public", "nothing public")
VARIANCES = ("variance, counts public", "variance, nothing public")
FLAT = ("flat, counts public", "flat variance, counts public")
OF_STATISTICS = {Statistic.MEAN: (*RELATIONS, FLAT[0]), Statistic.VARIANCE: (*VARIANCES, FLAT[1])}
EPSILONS, RESOLUTIONS, LEAST_VEHICLES, DRAWS = (1, 4), (7, 8), 5, 4
CHANCES = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True)
class Said:
    """What one draw of a map says of G hexagons: value, error, ``ends`` of LEVELS (3, 2, G), chances."""

    value: FloatArray
    error: FloatArray
    ends: FloatArray
    slower: FloatArray
    city: float


@dataclass(frozen=True)
class Measured:
    """One map over its draws: shares that LEVELS held, width over the best constant, said over true error.

    ``chance`` is (chances said in tenths, hexagons, how many of them were slower), shape (10, 3).
    """

    group: str
    place: str
    relation: str
    grid: str
    loss: str
    held: tuple[float, ...]
    width: float
    said: float
    chance: FloatArray


def measured(named: tuple[str, str, str, str, str], truth: FloatArray, draws: Sequence[Said]) -> Measured:
    """Return what ``draws`` of one map say beside the ``truth`` (G,)."""
    low, high = np.stack([each.ends for each in draws], axis=2).swapaxes(0, 1)
    held = ((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean(axis=(1, 2))
    off = np.abs(np.stack([each.value for each in draws]) - truth)
    # the narrowest half width that is the same everywhere and holds as often as it should
    best = float(np.quantile(off, LEVELS[-1]))
    width = float(np.median(high[-1] - low[-1])) / 2 / best
    said = float(np.mean([each.error.mean() for each in draws]) / off.mean())
    chance = np.stack([each.slower for each in draws])
    slower = np.stack([truth < (1 - APART) * each.city for each in draws])
    tenth = np.clip(np.digitize(chance, CHANCES) - 1, 0, 9)
    sums = [np.bincount(tenth.ravel(), each.ravel(), 10) for each in (chance, np.ones_like(chance), slower)]
    return Measured(*named, tuple(held.tolist()), width, said, np.stack(sums, axis=1))


def with_public_counts(
    samples: Samples,
    kind: LossKind,
    epsilon: int,
    statistic: Statistic,
    make: type[CalibratedPooling | CalibratedCityWide] = CalibratedPooling,
) -> tuple[FloatArray, list[Said]]:
    """Return the truth of the hexagons, and draws of the map that ``make`` gives."""
    data = samples.contributions()
    total = total_of(kind, epsilon, NeighbouringRelation.REPLACE_USER_VALUES)
    calibrated = make(PublicFacts(data.counts, data.bound), _beside(statistic), kind, total)
    values, draws = SensitiveInputs(data, lambda: samples), []
    for seed in range(DRAWS):
        found = calibrated.run(values, SimulatedNoise(seed), interval_level=LEVELS[-1])[statistic]
        own = found.posterior
        pairs = (("low_50", "high_50"), ("low_80", "high_80"))
        ends = [(own[low], own[high]) for low, high in pairs] + [(found.low, found.high)]
        city = float(own.get("city", [0.0])[0])
        slower = own.get("slower_chance", np.zeros(len(found.value)))
        draws.append(Said(found.value, found.expected_error, np.array(ends), slower, city))
    return true_statistic(data, statistic), draws


def _beside(statistic: Statistic) -> tuple[Statistic, ...]:
    """``statistic`` and, before it, the mean that its map leans on."""
    return tuple(dict.fromkeys((Statistic.MEAN, statistic)))


def with_nothing_public(
    samples: Samples, places: npt.NDArray[np.uint64], kind: LossKind, epsilon: int, statistic: Statistic
) -> tuple[FloatArray, list[Said]]:
    """Return the truth of the hexagons that enough vehicles visit, and draws of the map of all ``places``."""
    own, draws = samples.contributions(), []
    design = AddRemoveDesign(
        places, own.bound, kind, total_of(kind, epsilon), statistic is Statistic.VARIANCE
    )
    seen = own.counts.users_per_bin >= LEAST_VEHICLES
    at = design.place_numbers(own.counts.cell, own.counts.slot)[0][seen]
    for seed in range(DRAWS):
        drawn = add_remove_map(design, measure_all(design, own, SimulatedNoise(seed)))
        found, mean = drawn.variance or drawn.mean, drawn.mean
        ends = np.array([[end[at] for end in found.ends[level]] for level in LEVELS])
        draws.append(Said(found.value[at], found.error[at], ends, mean.slower[at], mean.city))
    return true_statistic(own, statistic)[seen], draws


def maps_of(group: str, name: str, city: trafficdp.Workspace) -> Iterator[Measured]:
    """Yield every map of one city or day, of means and of variances, by both relations, and of one number."""
    for resolution in RESOLUTIONS:
        for slot in (SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY):
            here = city.with_map(resolution=resolution, slot_kind=slot)
            whole = samples_of(here)
            kept = whole.select(whole.counts.users_per_bin >= LEAST_VEHICLES)
            grid = f"{resolution}, {slot.value.replace('_', ' ')}"
            places = np.unique(declared_bins(here.config.grid)[0])
            for kind, epsilon in product(LossKind, EPSILONS):
                loss = f"{'pure' if kind is LossKind.PURE else 'zCDP'} {epsilon}"
                for statistic, names in OF_STATISTICS.items():
                    asked = kind, epsilon, statistic
                    for relation, make in ((names[0], CalibratedPooling), (names[2], CalibratedCityWide)):
                        own = with_public_counts(kept, *asked, make)
                        yield measured((group, name, relation, grid, loss), *own)
                    if slot is SlotKind.WHOLE_PERIOD:
                        found = with_nothing_public(whole, places, *asked)
                        yield measured((group, name, names[1], grid, loss), *found)


def everything() -> Iterator[Measured]:
    """Yield every map of every set."""
    for group, sets in zip(GROUPS[:2], (TUNED, HELD_OUT), strict=True):
        for days in sets:
            with tempfile.TemporaryDirectory() as place:
                city = trafficdp.open(config_of(days, Path(place)), store=Path(place) / "store", create=True)
                city.ingest(files_of(days))
                name = days[0] if len(days) == 1 else f"{days[0]} to {days[-1][-2:]}"
                yield from maps_of(group, f"Austin {name}", city)
    for other in OTHER_CITIES:
        with tempfile.TemporaryDirectory() as place:
            city = trafficdp.open(other.config(Path(place)), store=Path(place) / "store", create=True)
            city.ingest(other.files(Path(place)))
            yield from maps_of(GROUPS[2], f"{other.name} {other.day}", city)


HEADS = ("marked", "relation", "set", "maps", "50 %", "80 %", "95 %", "least 95 %", "width", "error said")


def summary(found: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of a table, one a set and relation, then one for all sets of a mark."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---|---|---|" + "---:|" * (len(HEADS) - 3)
    for relation in (*RELATIONS, *VARIANCES, *FLAT):
        for group in GROUPS:
            own = [each for each in found if (each.group, each.relation) == (group, relation)]
            for place in dict.fromkeys(each.place for each in own):
                yield _line(group, relation, place, [each for each in own if each.place == place])
            yield _line(f"**{group}**", relation, "all", own)


def _line(group: str, relation: str, place: str, own: Sequence[Measured]) -> str:
    held = np.array([each.held for each in own])
    said = [each.said for each in own]
    cells = [group, relation, place, f"{len(own)}", *(f"{each:.3f}" for each in held.mean(axis=0))]
    cells += [f"{held[:, -1].min():.3f}", f"{np.mean([each.width for each in own]):.2f}"]
    cells.append(f"{np.mean(said):.2f} ({min(said):.2f} to {max(said):.2f})")
    return f"| {' | '.join(cells)} |"


GOALS = {
    "held out": (
        ("50 %", (0.44, 0.56), True),
        ("80 %", (0.74, 0.86), True),
        ("95 %", (0.92, 0.985), True),
        ("95 %", (0.94, 0.97), False),
        ("width", (0.0, 1.15), True),
        ("error said", (0.7, 1.3), True),
        ("error said", (0.9, 1.1), False),
    ),
    "other city": (
        ("95 %", (0.9, 1.0), True),
        ("95 %", (0.93, 0.98), False),
        ("error said", (0.7, 1.3), False),
    ),
}
"""What was aimed at by mark: one of HEADS, from where to where, and whether on every set or on average."""


def goals(table: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table of GOALS, from those of ``summary``: what was reached, and where missed."""
    rows = [dict(zip(HEADS, map(str.strip, line.split("|")[1:-1]), strict=True)) for line in table[2:]]
    yield "| marked | relation | goal | from | to | reached | missed |"
    yield "|---|---|---|---:|---:|---:|---|"
    for relation, (group, own) in product((*RELATIONS, *VARIANCES, *FLAT), GOALS.items()):
        for name, (low, high), on_every in own:
            mark = group if on_every else f"**{group}**"
            at = [each for each in rows if (each["marked"], each["relation"]) == (mark, relation)]
            reached = {each["set"]: float(each[name].split()[0]) for each in at}
            missed = [f"{place} {each:g}" for place, each in reached.items() if not low <= each <= high]
            ends = " to ".join(f"{each:g}" for each in sorted({min(reached.values()), max(reached.values())}))
            goal = f"{name}, {'every set' if on_every else 'average'}"
            cells = [group, relation, goal, f"{low:g}", f"{high:g}", ends, ", ".join(missed) or "nowhere"]
            yield f"| {' | '.join(cells)} |"


def every_map(found: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of a table of every map of means."""
    heads = ("marked", "set", "relation", "resolution, slot", "loss", "50 %", "80 %", "95 %", "width", "said")
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|---|" + "---:|" * 5
    for each in (each for each in found if each.relation in RELATIONS):
        numbers = [*(f"{share:.3f}" for share in each.held), f"{each.width:.2f}", f"{each.said:.2f}"]
        cells = [each.group, each.place, each.relation, each.grid, each.loss, *numbers]
        yield f"| {' | '.join(cells)} |"


def diagram(found: Sequence[Measured]) -> None:
    """Draw how often intervals held, and how often chances came true, by mark and relation."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
    styles = zip(GROUPS, ("C0", "C2", "C3"), ("o", "s", "^"), strict=True)
    for group, colour, sign in styles:
        for relation, line in zip(RELATIONS, ("-", "--"), strict=True):
            own = [each for each in found if (each.group, each.relation) == (group, relation)]
            label, style = f"{group}, {relation}", {"color": colour, "marker": sign, "linestyle": line}
            axes[0].plot(LEVELS, np.mean([each.held for each in own], axis=0), label=label, **style)
            chance, many, slower = np.sum([each.chance for each in own], axis=0).T
            there = many >= 30
            axes[1].plot(chance[there] / many[there], slower[there] / many[there], label=label, **style)
    texts = (
        ("chance that intervals state", "share of hexagons that they held"),
        ("stated chance to be slower than the city by a fifth", "share of hexagons that were"),
    )
    for axis, (below, beside) in zip(axes, texts, strict=True):
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel=below, ylabel=beside, aspect="equal")
        axis.grid(color="0.92")
    axes[0].legend(frameon=False, fontsize=8)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100)
    plt.close(figure)
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(64, Image.Quantize.FASTOCTREE)
        few.save(PICTURE, optimize=True)


def report() -> Iterator[str]:
    """Yield the lines of the page of every map; write picture and section."""
    found = []
    for each in everything():
        print(each.group, each.place, each.relation, each.grid, each.loss, file=sys.stderr, flush=True)
        found.append(each)
    diagram(found)
    table = list(summary(found))
    write_section(GUIDE, "reliability", table)
    yield "# How often intervals hold"
    yield ""
    yield (
        f"Written by `make accuracy`: means and variances, {DRAWS} draws of simulated noise a map, hexagons "
        f"of at least {LEAST_VEHICLES} vehicles, delta 10^-6 where noise is Gaussian (zCDP). *Width*: the "
        "median half width of 95 % intervals over that of the narrowest interval that is the same everywhere "
        "and holds 95 %. *Said*: the expected error that is published, over the true one. San Francisco was "
        "looked at when it was chosen what clipping leaves of vehicles' answers in pure epsilon with nothing "
        "public: there it is no test. All sets but Warsaw had been looked at when variances got today's "
        "constants; Warsaw was looked at once, when everything was chosen."
    )
    yield ""
    yield from table
    yield ""
    yield "## Goals"
    yield ""
    yield from goals(table)
    yield ""
    yield "Why goals are missed, and what was tried, is told in docs/guides/limits.md."
    yield ""
    yield "## Every map of means"
    yield ""
    yield from every_map(found)


def main() -> int:
    """Measure and write."""
    return page("How often intervals hold.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
