"""How far off one map of several days is, and how often its intervals hold: days in Austin.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/pooled_maps.py

writes data/accuracy/pooled_maps.md and a section of docs/guides/changes.md. FOLDER is that of
pipelines/austin.py. Speeds are looked at to know the truth: this evaluates maps and is no private release.
Noise is simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd

from capmetro import page
from changes import EPSILONS, GUIDE, HELD_OUT, LEAST_VEHICLES, City, Map, city_of
from knowledge import SOURCE
from trafficdp.mechanisms.several_maps import MapOfPeriod, change_variance, pool
from trafficdp.model import PlaceSpeeds, SlotKind
from trafficdp.privacy.loss import LossKind

INTO = Path(__file__).resolve().parents[1] / "data" / "accuracy" / "pooled_maps.md"
MARKS = "<!-- written by pipelines/pooled_maps.py -->\n", "<!-- up to here, of pooled maps -->\n"
TUNED = (
    ("2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27"),
    ("2017-03-16", "2017-03-21"),
    ("2015-03-07", "2015-03-08", "2015-03-18", "2015-03-19"),
)
GROUPS = {"tuned": TUNED, "held out": HELD_OUT}
RELATIONS = {False: "counts public", True: "nothing public"}


def measured(days: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """Yield what is said by all maps of ``days`` together, beside the truth over all of them."""
    for (resolution, slot), whole in city_of(*days).items():
        slots = slot is not SlotKind.WHOLE_PERIOD
        cities = [city_of(day)[resolution, slot] for day in days]
        for hidden in (False, True)[: 2 - slots]:
            for loss in LossKind:
                for epsilon in EPSILONS:
                    once, _ = whole.map(hidden, loss, epsilon, 90, times=len(days))
                    for memory in (False, True):
                        maps: list[Map] = []
                        before: PlaceSpeeds | None = None
                        for day, city in zip(days, cities, strict=True):
                            seed = int(day.replace("-", ""))
                            found, before = city.map(hidden, loss, epsilon, seed, before if memory else None)
                            maps.append(found)
                        found_on_all = beside(days, cities, maps, once, (hidden, memory, slots))
                        if found_on_all:
                            yield {
                                "relation": RELATIONS[hidden],
                                "slots": slot.value.replace("_", " "),
                                "start": "the day before" if memory else "nothing",
                                **found_on_all,
                            }


def beside(
    days: tuple[str, ...], cities: list[City], maps: list[Map], once: Map, kind: tuple[bool, bool, bool]
) -> dict[str, object]:
    """Return errors, and how many bins intervals hold, of bins that have a number on all ``days``.

    Nothing without such a bin.
    """
    hidden, memory, slots = kind
    keys = [pd.MultiIndex.from_arrays([each.cell, each.slot]) for each in (*maps, once)]
    bins = reduce(lambda one, other: one.intersection(other), keys)
    if not len(bins):
        return {}
    at = [each.get_indexer(bins) for each in keys]
    truth, upper = once.truth[at[-1]], float(cities[0].own.bound.upper)
    said = []
    for number, (each, city, own) in enumerate(zip(maps, cities, at[:-1], strict=True)):
        counts = city.own.counts
        records = np.bincount(counts.bin_index, counts.count)[counts.users_per_bin >= LEAST_VEHICLES]
        said.append(
            MapOfPeriod(
                each.value[own],
                (each.ends[0][own], each.ends[1][own]),
                np.ones(len(own)) if hidden else records[own].astype(np.float64),
                starts_from=((number - 1, SOURCE.share),) if memory and number else (),
            )
        )
    when = [float(date.fromisoformat(day).toordinal()) for day in days]
    place = pd.factorize(bins.get_level_values(0))[0].astype(np.int64)
    found = pool(said, place, upper, change_variance(when, slots))
    weight = np.array([each.weight for each in said])
    average = (weight * [each.value for each in said]).sum(axis=0) / weight.sum(axis=0)
    held = {
        f"held_{100 * level:.0f}": np.mean((low - 1e-9 <= truth) & (truth <= high + 1e-9))
        for level, (low, high) in found.ends.items()
    }
    off = {
        "best": min(np.abs(each.value - truth).mean() for each in said),
        "average": np.abs(average - truth).mean(),
        "once": np.abs(once.value[at[-1]] - truth).mean(),
        "pooled": np.abs(found.value - truth).mean(),
    }
    return {"numbers": len(bins), **off, "said": found.error.mean(), **held}


HEADS = (
    *("days", "marked", "relation", "slots", "each map starts from", "numbers"),
    *("best single map", "average of maps", "one map of all days", "pooled", "error said"),
    *("50 %", "80 %", "95 %"),
)


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---|---|---|---|---|" + "---:|" * (len(HEADS) - 5)
    for group, sets in GROUPS.items():
        for days in sets:
            print(group, *days, file=sys.stderr, flush=True)
            found = pd.DataFrame(list(measured(days)))
            for names, own in found.groupby(["relation", "slots", "start"], sort=False):
                share = (own.numbers / own.numbers.sum()).to_numpy(dtype=np.float64)
                numbers = own.drop(columns=["relation", "slots", "start"]).astype(np.float64)
                average = dict(zip(numbers.columns, numbers.to_numpy().mean(axis=0).tolist(), strict=True))
                off = [f"{average[name]:.2f}" for name in ("best", "average", "once", "pooled")]
                held = [f"{share @ numbers[f'held_{level}'].to_numpy():.2f}" for level in (50, 80, 95)]
                said = f"{average['said'] / average['pooled']:.2f}"
                first = f"{len(days)} from {days[0]}", group
                many = int(own.numbers.sum())
                cells = [*first, *map(str, names), f"{many:,}", *off, said, *held]
                yield f"| {' | '.join(cells)} |"


def report() -> Iterator[str]:
    """Yield the lines of the page; write the section."""
    lines = list(table())
    before, rest = GUIDE.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    GUIDE.write_text(before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + after, encoding="utf-8")
    yield "# How far off one map of several days is"
    yield ""
    yield (
        "Written by `make accuracy`: means, simulated noise, resolutions 7 and 8, epsilon 1 and 4 a day, pure"
        f" and Gaussian noise, bins with at least {LEAST_VEHICLES} vehicles on every day; mean absolute "
        "errors in m/s against the mean over all records of all days, on average over 8 maps. *One map "
        "of all days* spends as much as all days together. *Error said*: expected error over the true one."
    )
    yield ""
    yield from lines


def main() -> int:
    """Measure and write."""
    return page("How far off one map of several days is.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
