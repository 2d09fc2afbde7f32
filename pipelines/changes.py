"""How often changes between two maps are what they are said to be: pairs of days in Austin, and of no change.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/changes.py

writes data/accuracy/changes.md and a section of docs/guides/changes.md. FOLDER is that of
pipelines/austin.py. Speeds are looked at to know the truth: this evaluates maps and is no private release.
Noise is simulated. Three kinds of pairs: other days; one day whose vehicles are drawn again, with
replacement, for either map; and the very same records, of which nothing has changed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

import trafficdp
from capmetro import config_of, files_of, page, samples_of
from knowledge import SOURCE
from presence import total_of
from trafficdp.binning.places import declared_bins
from trafficdp.export.report.change_files import LIKELY
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.pooling.design import Design
from trafficdp.mechanisms.pooling.estimates import pooled_estimates
from trafficdp.mechanisms.pooling.posterior import LEVELS
from trafficdp.mechanisms.several_maps import CHANGED, change_between_maps
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import KnownSpeeds, NeighbouringRelation, PlaceSpeeds, SlotKind, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Contributions

FloatArray = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
INTO, GUIDE = ROOT / "data" / "accuracy" / "changes.md", ROOT / "docs" / "guides" / "changes.md"
MARKS = "<!-- written by pipelines/changes.py -->\n", "<!-- up to here -->\n"
OTHER_DAYS, DRAWN_AGAIN, SAME = "other days", "vehicles drawn again", "same records"
TUNED = (
    ("2016-11-24", "2016-11-25"),
    ("2016-11-25", "2016-11-26"),
    ("2017-03-16", "2017-03-21"),
    ("2015-03-07", "2015-03-08"),
    ("2015-03-18", "2015-03-19"),
    ("2015-03-08", "2015-03-19"),
)
TUNED_ALONE = ("2015-03-18", "2016-11-25", "2017-03-21")
HELD_OUT = (("2015-06-07", "2016-02-07"),)
HELD_OUT_ALONE = ("2015-06-07", "2016-02-07")
GROUPS = ("tuned", "held out")
COUNTS_PUBLIC = NeighbouringRelation.REPLACE_USER_VALUES
SLOTS = SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY
EPSILONS, RESOLUTIONS, LEAST_VEHICLES, DRAWS = (1, 4), (7, 8), 5, 2
CHANCES = (0.0, 0.25, 0.5, 0.6, 0.7, 1.0)
"""Between these chances claims are counted."""


@dataclass(frozen=True)
class Map:
    """What one map says of the bins that enough vehicles visit: ``ends`` (2, G) of 80 % intervals."""

    cell: npt.NDArray[np.uint64]
    slot: npt.NDArray[np.int64]
    truth: FloatArray
    value: FloatArray
    ends: FloatArray
    informed: npt.NDArray[np.bool_]

    def at(self, rows: npt.NDArray[np.int64]) -> Map:
        """Return it of some bins."""
        return Map(*(getattr(self, each.name)[..., rows] for each in fields(self)))


@dataclass(frozen=True)
class City:
    """One day: what vehicles contribute to the bins of a grid, and the declared places."""

    own: Contributions
    places: npt.NDArray[np.uint64]

    def drawn_again(self, seed: int) -> City:
        """Return it with as many vehicles, drawn with replacement."""
        counts, order = self.own.counts, np.argsort(self.own.counts.user_index, kind="stable")
        many = np.bincount(counts.user_index, minlength=counts.users)
        who = np.random.default_rng(seed).integers(counts.users, size=counts.users)
        taken = many[who]
        inside = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
        pair = order[np.repeat((np.cumsum(many) - many)[who], taken) + inside]
        vehicle = np.repeat(np.arange(counts.users), taken)
        sort = np.lexsort((vehicle, counts.bin_index[pair]))
        pair, vehicle = pair[sort], vehicle[sort]
        own = Contributions.from_rows(
            cell=counts.cell[counts.bin_index[pair]],
            slot=counts.slot[counts.bin_index[pair]],
            vehicle=vehicle,
            count=counts.count[pair],
            total=self.own.total[pair],
            total_of_squares=self.own.total_of_squares[pair],
            bound=self.own.bound,
        )
        return City(own, self.places)

    def map(
        self,
        hidden: bool,
        kind: LossKind,
        epsilon: int,
        seed: int,
        before: PlaceSpeeds | None = None,
        times: int = 1,
    ) -> tuple[Map, PlaceSpeeds]:
        """Return one map, and its speeds as knowledge; nothing about a vehicle is public where ``hidden``.

        ``times`` as much as ``epsilon`` says is spent.
        """
        counts, noise = self.own.counts, SimulatedNoise(seed)
        seen = counts.users_per_bin >= LEAST_VEHICLES
        kept = self.own.select(seen)
        cell, slot = kept.counts.cell, kept.counts.slot
        if hidden:
            cell, slot = self.places, np.zeros(len(self.places), dtype=np.int64)
        known = KnownSpeeds.of([before] if before else [], cell, slot)
        if hidden:
            total = times * total_of(kind, epsilon)
            design = AddRemoveDesign(self.places, self.own.bound, kind, total, variance=False)
            found = add_remove_map(design, measure_all(design, self.own, noise, known)).mean
            at = design.place_numbers(counts.cell, counts.slot)[0][seen]
        else:
            total = times * total_of(kind, epsilon, COUNTS_PUBLIC)
            asked = Design(kept.counts, kept.bound, kind, total, (Statistic.MEAN,))
            found, at = (
                pooled_estimates(asked, kept, noise, known).means[Statistic.MEAN],
                np.arange(int(seen.sum())),
            )
        recurring = len(np.unique(slot)) > 1
        said = Map(
            counts.cell[seen],
            counts.slot[seen],
            true_statistic(self.own, Statistic.MEAN)[seen],
            found.value[at],
            np.array(found.ends[0.8])[:, at],
            found.informed[at],
        )
        return said, PlaceSpeeds(SOURCE, cell, slot if recurring else None, found.value)


@cache
def city_of(*days: str) -> dict[tuple[int, SlotKind], City]:
    """Return one day, or several together, on every grid."""
    with tempfile.TemporaryDirectory() as place:
        city = trafficdp.open(config_of(days, Path(place)), store=Path(place) / "store", create=True)
        city.ingest(files_of(days))
        found = {}
        for resolution in RESOLUTIONS:
            for slot in SLOTS:
                here = city.with_map(resolution=resolution, slot_kind=slot)
                places = np.unique(declared_bins(here.config.grid)[0])
                found[resolution, slot] = City(samples_of(here).contributions(), places)
        return found


def compared(before: Map, after: Map, upper: float, slots: bool, days: float = 0.0) -> pd.DataFrame:
    """Return what is said of the change of every bin that both maps know something of, beside the truth."""
    first, last = (pd.MultiIndex.from_arrays([each.cell, each.slot]) for each in (before, after))
    rows = first.get_indexer(last)
    before, after = before.at(rows[rows >= 0]), after.at(np.flatnonzero(rows >= 0))
    both = np.flatnonzero(before.informed & after.informed)
    before, after = before.at(both), after.at(both)
    found = change_between_maps(tuple(before.ends), tuple(after.ends), upper, slots=slots, days=days)
    truth, share = after.truth - before.truth, after.truth / np.maximum(before.truth, 1e-9) - 1
    held = {
        f"held_{100 * level:.0f}": (low - 1e-9 <= truth) & (truth <= high + 1e-9)
        for level, (low, high) in found.ends.items()
    }
    low, high = found.ends[LEVELS[-1]]
    clear = (low > 0) | (high < 0)
    return pd.DataFrame(
        {
            **held,
            "off": np.abs(found.value - truth),
            "off_of_maps": np.abs(after.value - before.value - truth),
            "off_of_nothing": np.abs(truth),
            "slower": found.slower,
            "faster": found.faster,
            "was_slower": share < -CHANGED,
            "was_faster": share > CHANGED,
            "clear": clear,
            "wrong": clear & (np.sign(found.value) != np.sign(truth)),
        }
    )


def measured(
    group: str,
    kind: str,
    before: dict[tuple[int, SlotKind], City],
    after: dict[tuple[int, SlotKind], City],
    days: float = 0.0,
) -> Iterator[pd.DataFrame]:
    """Yield what is said of all pairs of maps of two days, so many ``days`` apart."""
    for (resolution, slot), city in before.items():
        slots, upper = slot is not SlotKind.WHOLE_PERIOD, float(city.own.bound.upper)
        for hidden in (False, True)[: 2 - slots]:
            for loss in LossKind:
                for epsilon in EPSILONS:
                    for draw in range(DRAWS):
                        first, known = city.map(hidden, loss, epsilon, 10 + draw)
                        for memory in (False, True):
                            later = after[resolution, slot]
                            last, _ = later.map(hidden, loss, epsilon, 50 + draw, known if memory else None)
                            yield compared(first, last, upper, slots, days).assign(
                                group=group,
                                pair=kind,
                                relation="nothing public" if hidden else "counts public",
                                slots=slot.value.replace("_", " "),
                                start="the map before" if memory else "nothing",
                            )


def everything() -> Iterator[pd.DataFrame]:
    """Yield what is said of all pairs."""
    for group, pairs, alone in zip(GROUPS, (TUNED, HELD_OUT), (TUNED_ALONE, HELD_OUT_ALONE), strict=True):
        for before, after in pairs:
            print(group, before, after, file=sys.stderr, flush=True)
            apart = date.fromisoformat(after) - date.fromisoformat(before)
            yield from measured(group, OTHER_DAYS, city_of(before), city_of(after), apart.days)
        for day in alone:
            print(group, day, file=sys.stderr, flush=True)
            again = [{key: each.drawn_again(seed) for key, each in city_of(day).items()} for seed in (1, 2)]
            yield from measured(group, DRAWN_AGAIN, again[0], again[1])
            yield from measured(group, SAME, city_of(day), city_of(day))


HEADS = (
    *("pairs", "marked", "relation", "slots", "starts from", "numbers", "80 %", "95 %"),
    *("off by", "difference of maps", "saying no change"),
)


def summary(found: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of a table of intervals, one a kind of pairs."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---|---|---|---|---|" + "---:|" * 6
    for names, own in found.groupby(["pair", "group", "relation", "slots", "start"], sort=False):
        held = [f"{own[f'held_{level}'].mean():.3f}" for level in (80, 95)]
        off = [f"{own[name].mean():.2f}" for name in ("off", "off_of_maps", "off_of_nothing")]
        yield f"| {' | '.join([*map(str, names), f'{len(own):,}', *held, *off])} |"


def claims(found: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of a table of chances to be slower, or faster, by CHANGED: said, and come true."""
    between = [f"{low:g} to {high:g}" for low, high in pairwise(CHANCES)]
    yield f"| pairs | marked | relation | slots | {' | '.join(between)} | coloured | clear, wrong |"
    yield "|---|---|---|---|" + "---:|" * (len(between) + 2)
    for names, own in found.groupby(["pair", "group", "relation", "slots"], sort=False):
        said, true = (
            np.concatenate([own[f"{start}{word}"] for word in ("slower", "faster")]) for start in ("", "was_")
        )
        cells = []
        for low, high in pairwise(CHANCES):
            there = (said >= low) & (said < high)
            many = int(there.sum())
            cells.append(f"{said[there].mean():.2f}: {true[there].mean():.2f} ({many:,})" if many else "-")
        share = f"{100 * np.mean((own['slower'] >= LIKELY) | (own['faster'] >= LIKELY)):.1f} %"
        wrong = f"{own['clear'].sum()}, {own['wrong'].sum()}"
        yield f"| {' | '.join([*map(str, names), *cells, share, wrong])} |"


def report() -> Iterator[str]:
    """Yield the lines of the page; write the section."""
    found = pd.concat(list(everything()), ignore_index=True)
    tables: Sequence[str] = [*summary(found), "", *claims(found)]
    text = GUIDE.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    GUIDE.write_text(before + MARKS[0] + "\n".join(tables) + "\n" + MARKS[1] + after, encoding="utf-8")
    yield "# How often changes are what they are said to be"
    yield ""
    yield (
        f"Written by `make accuracy`: means, {DRAWS} draws of simulated noise, resolutions 7 and 8, epsilon "
        f"1 and 4, pure and Gaussian noise (delta 10^-6), hexagons of at least {LEAST_VEHICLES} vehicles "
        "that are informative in both maps; m/s. The later map starts from nothing, or from the earlier map. "
        f"*Said: true (number)*: the mean chance to be slower, or faster, by {100 * CHANGED:g} % or "
        f"more, and how often it was so. *Coloured*: how many have such a chance of {LIKELY} or more. "
        "*Clear*: 95 % intervals without 0, and how many of these had the wrong sign."
    )
    yield ""
    yield from tables


def main() -> int:
    """Measure and write."""
    return page("How often changes are what they are said to be.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
