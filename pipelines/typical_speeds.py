"""How much nearer to the truth maps of Austin's buses are that start from typical speeds, right or wrong.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/typical_speeds.py [--into data/accuracy/typical_speeds.md]

FOLDER is that of pipelines/austin.py. No file of speed limits of those years is there, so hexagons' mean
speeds on other days of buses stand for a file of typical speeds, five classes of them for classes of road.
Speeds of records are looked at to know the truth: this evaluates maps and is no private release. Noise is
simulated, seeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capmetro import page, write_section
from presence import LEAST_VEHICLES, Days, austin
from timetables import COUNTS_PUBLIC, HELD_OUT, RELATIONS, RESOLUTION, TUNED
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import Knowledge, KnowledgeKind, KnownSpeeds, Statistic
from trafficdp.privacy.loss import LossKind

FloatArray = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
INTO, GUIDE = ROOT / "data" / "accuracy" / "typical_speeds.md", ROOT / "docs" / "guides" / "knowledge.md"
KIND, EPSILONS, DRAWS = KnowledgeKind.SPEEDS, (1, 4), 2
LIMITS, CLASS_SPEEDS = (0.2, 0.5, 0.75, 0.9), np.array([25.0, 30.0, 40.0, 60.0, 90.0])
"""Which shares of hexagons lie below a class, and how fast OpenStreetMap's classes are in km/h."""
KNOWN = ("typical", "classes", "shuffled", "mixed units", "constant", "opposite")


@dataclass(frozen=True)
class Measured:
    """Errors of one map over that without, by what it starts from; what 95 % intervals held, that first."""

    group: str
    name: str
    relation: str
    loss: str
    error: float
    change: dict[str, float]
    held: tuple[float, ...]


def wrong_and_right(speed: FloatArray, seed: int) -> dict[str, FloatArray]:
    """Return what is said of hexagons by name: ``speed``, NaN where nothing is known."""
    there, draw = ~np.isnan(speed), np.random.default_rng(seed)
    own = speed[there]
    # two in five hexagons are a class off: roads of a class differ
    rank = np.digitize(own, np.quantile(own, LIMITS)) + draw.choice((-1, 0, 0, 0, 1), len(own))
    said = {
        "typical": own,
        "classes": CLASS_SPEEDS[np.clip(rank, 0, len(CLASS_SPEEDS) - 1)],
        "shuffled": draw.permutation(own),
        "mixed units": own * draw.choice((1.0, 3.6), len(own)),
        "constant": np.full(len(own), 50.0),
        "opposite": 100.0 / np.maximum(own, 0.1),
    }
    found = {}
    for name, values in said.items():
        found[name] = np.full(len(speed), np.nan)
        found[name][there] = values
    return found


def measured(group: str, here: Days, other: Days) -> Iterator[Measured]:
    """Yield every map of ``here``, for which the speeds of ``other`` days are known."""
    counts = here.own.counts
    seen = counts.users_per_bin >= LEAST_VEHICLES
    truth = true_statistic(here.own, Statistic.MEAN)[seen]
    enough = other.own.counts.users_per_bin >= LEAST_VEHICLES
    typical = dict(
        zip(
            other.own.counts.cell[enough].tolist(),
            true_statistic(other.own, Statistic.MEAN)[enough].tolist(),
            strict=True,
        )
    )
    for relation, (said, drawing) in RELATIONS.items():
        cells = counts.cell[seen] if relation is COUNTS_PUBLIC else here.places
        speed = np.array([typical.get(each, np.nan) for each in cells.tolist()])
        source = Knowledge(kind=KIND, name="other days", sha256="0" * 64, share=KIND.share(relation))
        for kind in LossKind:
            for epsilon in EPSILONS:
                draw, off, held = drawing(here, kind, epsilon), [], []
                for seed in range(DRAWS):
                    known = wrong_and_right(speed, seed)
                    found = [draw(None, seed)]
                    found += [draw(KnownSpeeds((source,), known[each][None]), seed) for each in KNOWN]
                    off.append([np.abs(each.value - truth).mean() for each in found])
                    held.append([np.mean((each.low <= truth) & (truth <= each.high)) for each in found])
                error = np.mean(off, axis=0)
                change = dict(zip(KNOWN, (error[1:] / error[0] - 1).tolist(), strict=True))
                loss = f"{'pure' if kind is LossKind.PURE else 'zCDP'} {epsilon}"
                shares = tuple(np.mean(held, axis=0).tolist())
                yield Measured(group, here.name, said, loss, float(error[0]), change, shares)


def summary(found: list[Measured]) -> Iterator[str]:
    """Yield the lines of a table, one a mark and relation."""
    yield f"| marked | relation | maps | {' | '.join(KNOWN)} | worst map of any wrong one | 95 % hold |"
    yield f"|---|---|---:|{'---:|' * len(KNOWN)}---:|---|"
    for group in dict.fromkeys(each.group for each in found):
        for relation, _ in RELATIONS.values():
            own = [each for each in found if (each.group, each.relation) == (group, relation)]
            means = [f"{np.mean([each.change[name] for each in own]):+.1%}" for name in KNOWN]
            worst = max(each.change[name] for each in own for name in KNOWN[2:])
            held = np.mean([each.held for each in own], axis=0)
            yield (
                f"| {group} | {relation} | {len(own)} | {' | '.join(means)} | {worst:+.1%} | "
                f"{held[0]:.3f} without, {held[1:].min():.3f} to {held[1:].max():.3f} |"
            )


def report() -> Iterator[str]:
    """Yield the lines of the page; write the section."""
    found: list[Measured] = []
    for group, sets in (("tuned", TUNED), ("held out", HELD_OUT)):
        names = [days[0] if len(days) == 1 else f"{days[0]} to {days[-1][-2:]}" for days in sets]
        data = [austin(name, days, RESOLUTION) for name, days in zip(names, sets, strict=True)]
        for number, here in enumerate(data):
            print(group, here.name, file=sys.stderr, flush=True)
            found += measured(group, here, data[number - 1])
    table = [*summary(found)]
    write_section(GUIDE, "typical_speeds", table)
    yield "# Maps that start from typical speeds"
    yield ""
    yield (
        f"Written by `make accuracy`: Austin's buses, means of hexagons of resolution {RESOLUTION} that at "
        f"least {LEAST_VEHICLES} buses visit, whole period, {DRAWS} draws of simulated noise a map, delta "
        "10^-6 where noise is Gaussian (zCDP). Changes of the mean absolute error. *Typical*: mean speeds of "
        "the hexagons on other days of buses, which stand for a file of typical speeds. *Classes*: five "
        "classes of them, two in five hexagons a class off. *Shuffled*: in any other "
        "hexagon. *Mixed units*: half of the hexagons in km/h, half in m/s. *Opposite*: fast where it "
        "is slow."
    )
    yield ""
    yield from table
    yield ""
    yield f"| marked | days | relation | loss | error without, m/s | {' | '.join(KNOWN)} |"
    yield f"|---|---|---|---|---:|{'---:|' * len(KNOWN)}"
    for each in found:
        changes = " | ".join(f"{each.change[name]:+.0%}" for name in KNOWN)
        yield f"| {each.group} | {each.name} | {each.relation} | {each.loss} | {each.error:.2f} | {changes} |"


def main() -> int:
    """Measure and write."""
    return page("Maps that start from typical speeds.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
