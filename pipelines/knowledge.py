"""What it brings that maps start from the map before: chains of days in Austin, and in San Francisco.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/knowledge.py

writes data/accuracy/knowledge.md (every map) and a section of docs/guides/knowledge.md. FOLDER is that of
pipelines/austin.py and pipelines/cities.py. Speeds are looked at to know the truth: this evaluates maps and
is no private release. Noise is simulated.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

import trafficdp
from capmetro import DAYS, config_of, files_of, page, samples_of, write_section
from cities import SAN_FRANCISCO, WARSAW
from presence import austin, read, total_of
from trafficdp.binning.places import declared_bins
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.pooling.calibrated import CalibratedPooling
from trafficdp.mechanisms.pooling.design import Design
from trafficdp.mechanisms.pooling.estimates import pooled_estimates
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import (
    Counts,
    Knowledge,
    KnowledgeKind,
    KnownSpeeds,
    NeighbouringRelation,
    PlaceSpeeds,
    SlotKind,
    Statistic,
)
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind, PureDP
from trafficdp.sensitive import Contributions, Samples, SensitiveInputs

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.uint64]
ROOT = Path(__file__).resolve().parents[1]
INTO, GUIDE = ROOT / "data" / "accuracy" / "knowledge.md", ROOT / "docs" / "guides" / "knowledge.md"
AUSTIN = (
    (
        ("2015-03-07",),
        ("2015-03-08",),
        ("2015-03-18",),
        ("2015-03-19",),
        ("2015-06-07",),
    ),
    (("2016-02-07",), DAYS, ("2017-03-16",), ("2017-03-21",)),
)
TAXI_DAYS = ("2008-05-27", "2008-05-28", "2008-05-29", "2008-05-30")
MARKED = {"Austin": "tuned", "San Francisco": "other city"}
RELATIONS = ("counts public", "nothing public")
SLOTS = SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY
EPSILONS, RESOLUTIONS, LEAST_VEHICLES, DRAWS = (1, 4), (7, 8), 5, 2
LONG, LONG_DAYS = 30, (("2015-03-18",), DAYS, ("2017-03-16",))
KIND = KnowledgeKind.RELEASE
SOURCE = Knowledge(
    kind=KIND,
    name="the map before",
    sha256="0" * 64,
    share=KIND.share(NeighbouringRelation.REPLACE_USER_VALUES),
)


@dataclass(frozen=True)
class Drawn:
    """One map: mean absolute error, expected error over that, share of bins that 95 % intervals hold."""

    error: float
    said: float
    held: float


@dataclass(frozen=True)
class Measured:
    """The maps after the first of one chain: without knowledge, and each from the map before, on average."""

    place: str
    relation: str
    grid: str
    loss: str
    alone: Drawn
    after: Drawn


def with_public_counts(
    samples: Samples, known: KnownSpeeds | None, kind: LossKind, epsilon: int, seed: int
) -> tuple[Drawn, FloatArray]:
    """Return one map by partial pooling, and its speeds, of the bins of ``samples``."""
    data = samples.contributions()
    total = total_of(kind, epsilon, NeighbouringRelation.REPLACE_USER_VALUES)
    facts = PublicFacts(data.counts, data.bound, known=known)
    calibrated = CalibratedPooling(facts, (Statistic.MEAN,), kind, total)
    values = SensitiveInputs(data, lambda: samples)
    found = calibrated.run(values, SimulatedNoise(seed), interval_level=0.95)[Statistic.MEAN]
    ends = found.low, found.high
    return _drawn(found.value, found.expected_error, ends, true_statistic(data, Statistic.MEAN)), found.value


def with_nothing_public(
    samples: Samples, places: Places, known: KnownSpeeds | None, kind: LossKind, epsilon: int, seed: int
) -> tuple[Drawn, FloatArray]:
    """Return one map of all ``places``, and its speeds; errors are those of places that enough visit."""
    own = samples.contributions()
    design = AddRemoveDesign(places, own.bound, kind, total_of(kind, epsilon), variance=False)
    seen = own.counts.users_per_bin >= LEAST_VEHICLES
    at = design.place_numbers(own.counts.cell, own.counts.slot)[0][seen]
    found = add_remove_map(design, measure_all(design, own, SimulatedNoise(seed), known)).mean
    low, high = (end[at] for end in found.ends[0.95])
    truth = true_statistic(own, Statistic.MEAN)[seen]
    return _drawn(found.value[at], found.error[at], (low, high), truth), found.value


def _drawn(
    value: FloatArray, error: FloatArray, ends: tuple[FloatArray, FloatArray], truth: FloatArray
) -> Drawn:
    off = float(np.abs(value - truth).mean())
    held = (ends[0] <= truth + 1e-9) & (truth <= ends[1] + 1e-9)
    return Drawn(off, float(error.mean()) / off, float(held.mean()))


def chain(
    maps: Sequence[tuple[Samples, Places]], hidden: bool, kind: LossKind, epsilon: int, informed: bool
) -> Drawn:
    """Return the maps after the first, on average, each ``informed`` of the one before or not."""
    found: list[Drawn] = []
    for draw in range(DRAWS):
        before: PlaceSpeeds | None = None
        for number, (samples, places) in enumerate(maps):
            counts, seed = samples.counts, 100 * draw + number
            cell, slot = (
                (places, np.zeros(len(places), dtype=np.int64)) if hidden else (counts.cell, counts.slot)
            )
            known = KnownSpeeds.of([before] if before and informed else [], cell, slot)
            if hidden:
                one, speed = with_nothing_public(samples, places, known, kind, epsilon, seed)
            else:
                one, speed = with_public_counts(samples, known, kind, epsilon, seed)
            recurring = len(np.unique(slot)) > 1
            before = PlaceSpeeds(SOURCE, cell, slot if recurring else None, speed)
            found += [one] if number else []
    return Drawn(
        *(float(np.mean([getattr(each, name) for each in found])) for name in ("error", "said", "held"))
    )


def measured(place: str, cities: Sequence[trafficdp.Workspace]) -> Iterator[Measured]:
    """Yield every map of a chain of ``cities``, which are one on different days."""
    for resolution in RESOLUTIONS:
        for slot in SLOTS:
            here = [each.with_map(resolution=resolution, slot_kind=slot) for each in cities]
            whole = [samples_of(each) for each in here]
            places = [np.unique(declared_bins(each.config.grid)[0]) for each in here]
            kept = [each.select(each.counts.users_per_bin >= LEAST_VEHICLES) for each in whole]
            for hidden in (False, True)[: 1 + (slot is SlotKind.WHOLE_PERIOD)]:
                maps = list(zip(whole if hidden else kept, places, strict=True))
                for kind in LossKind:
                    for epsilon in EPSILONS:
                        alone, after = (chain(maps, hidden, kind, epsilon, each) for each in (False, True))
                        loss = f"{'pure' if kind is LossKind.PURE else 'zCDP'} {epsilon}"
                        grid = f"{resolution}, {slot.value.replace('_', ' ')}"
                        yield Measured(place, RELATIONS[hidden], grid, loss, alone, after)


def everything() -> Iterator[Measured]:
    """Yield every map of every chain."""
    with tempfile.TemporaryDirectory() as folder:
        for days in AUSTIN:
            configs = {each[0]: (config_of, files_of, each) for each in days}
            cities = []
            for name, (configured, files, own) in configs.items():
                place = Path(folder) / name
                place.mkdir()
                city = trafficdp.open(configured(own, place), store=place / "store", create=True)
                city.ingest(files(own))
                cities.append(city)
            yield from measured("Austin", cities)
        cities = []
        for day in TAXI_DAYS:
            place, taxis = Path(folder) / day, replace(SAN_FRANCISCO, day=day)
            place.mkdir()
            city = trafficdp.open(taxis.config(place), store=place / "store", create=True)
            city.ingest(taxis.files(place))
            cities.append(city)
        yield from measured("San Francisco", cities)


def with_other_vehicles(data: Contributions, draw: np.random.Generator) -> Contributions:
    """Return as many vehicles as ``data`` has, drawn with replacement, in bins that enough of them visit."""
    counts = data.counts
    by_user = np.argsort(counts.user_index, kind="stable")
    first = np.searchsorted(counts.user_index[by_user], np.arange(counts.users + 1))
    drawn = draw.integers(counts.users, size=counts.users)
    pair = np.concatenate([by_user[first[each] : first[each + 1]] for each in drawn])
    user = np.repeat(np.arange(counts.users), np.diff(first)[drawn])
    enough = np.bincount(counts.bin_index[pair], minlength=counts.bins) >= LEAST_VEHICLES
    kept = enough[counts.bin_index[pair]]
    pair, user = pair[kept], user[kept]
    order = np.lexsort((user, counts.bin_index[pair]))
    pair, user = pair[order], user[order]
    there, many = np.unique(counts.bin_index[pair], return_counts=True)
    own = Counts(counts.cell[there], counts.slot[there], many, user, counts.count[pair], counts.users)
    return replace(data, counts=own, total=data.total[pair], total_of_squares=data.total_of_squares[pair])


def resampled_chain(data: Contributions, epsilon: int, maps: int, seed: int) -> FloatArray:
    """True and expected errors of every map but the first, alone and from the one before, (maps - 1, 2, 2).

    Counts are public and epsilon is pure; every map is of other vehicles of ``data``.
    """
    draw, found = np.random.default_rng(seed), []
    before: PlaceSpeeds | None = None
    for number in range(maps):
        own = with_other_vehicles(data, draw)
        design = Design(own.counts, own.bound, LossKind.PURE, PureDP.of(epsilon).pico, (Statistic.MEAN,))
        truth = true_statistic(own, Statistic.MEAN)
        known = KnownSpeeds.of([before] if before else [], own.counts.cell, own.counts.slot)
        both = []
        for each in (None, known):
            mean = pooled_estimates(design, own, SimulatedNoise(1000 * seed + number), each).means[
                Statistic.MEAN
            ]
            both.append((np.abs(mean.value - truth).mean(), mean.error.mean()))
        found.append(both)
        before = PlaceSpeeds(SOURCE, own.counts.cell, None, mean.value)
    return np.array(found[1:])


def long_chains() -> Iterator[str]:
    """Yield the lines of a table of chains of LONG maps of resampled vehicles."""
    yield "| | epsilon | error alone, m/s | in the chain | said alone | in the chain | in its last ten |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    with tempfile.TemporaryDirectory() as scratch:
        cities = [
            read(f"{each.name} {each.day}", each.config, each.files(Path(scratch)), RESOLUTIONS[0])
            for each in (SAN_FRANCISCO, WARSAW)
        ]
    for days in (*(austin(f"Austin {each[0]}", each, RESOLUTIONS[0]) for each in LONG_DAYS), *cities):
        for epsilon in EPSILONS:
            found = np.mean([resampled_chain(days.own, epsilon, LONG, each) for each in range(DRAWS)], axis=0)
            (alone, alone_said), (error, said) = found.mean(axis=0)
            last, last_said = found[-10:, 1].mean(axis=0)
            yield (
                f"| {days.name} | {epsilon} | {alone:.2f} | {error:.2f} | {alone_said / alone:.2f} | "
                f"{said / error:.2f} | {last_said / last:.2f} |"
            )


def summary(found: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of a table, one a city, relation and kind of slot."""
    heads = "slots | maps | error alone, m/s | change | best map | worst map | error said | 95 % held"
    yield f"| | relation | {heads} |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for place, marked in MARKED.items():
        for relation in RELATIONS:
            for slot in ("whole period", "hour of day"):
                own = [
                    each
                    for each in found
                    if (each.place, each.relation) == (place, relation) and each.grid.endswith(slot)
                ]
                if own:
                    change = np.array([each.after.error / each.alone.error - 1 for each in own])
                    alone = np.mean([each.alone.error for each in own])
                    said, held = (
                        np.mean([getattr(each.after, name) for each in own]) for name in ("said", "held")
                    )
                    numbers = [f"{100 * each:+.1f} %" for each in (change.mean(), change.min(), change.max())]
                    yield (
                        f"| {place}, {marked} | {relation} | {slot} | {len(own)} | {alone:.2f} | "
                        f"{' | '.join(numbers)} | {said:.2f} | {held:.3f} |"
                    )


def report() -> Iterator[str]:
    """Yield the lines of the page of every map; write the section."""
    found = []
    for each in everything():
        print(each.place, each.relation, each.grid, each.loss, file=sys.stderr, flush=True)
        found.append(each)
    print("chains of", LONG, file=sys.stderr, flush=True)
    tables = [
        *summary(found),
        "",
        f"Chains of {LONG} maps of vehicles drawn with replacement, counts public, pure epsilon, resolution "
        f"{RESOLUTIONS[0]}, whole period. *Said*: the expected error over the true one.",
        "",
        *long_chains(),
    ]
    write_section(GUIDE, "knowledge", tables)
    yield "# What maps gain from the map before"
    yield ""
    yield (
        f"Written by `make accuracy`: means, {DRAWS} draws of simulated noise, hexagons of at least "
        f"{LEAST_VEHICLES} vehicles, delta 10^-6 where noise is Gaussian (zCDP). Each map starts "
        f"{SOURCE.share:g} of the way from the map before in its chain; the first does not count."
    )
    yield ""
    yield from tables
    yield ""
    yield "| | relation | resolution, slot | loss | error alone | error after | said | 95 % held |"
    yield "|---|---|---|---|---:|---:|---:|---:|"
    for each in found:
        yield (
            f"| {each.place} | {each.relation} | {each.grid} | {each.loss} | {each.alone.error:.3f} | "
            f"{each.after.error:.3f} | {each.after.said:.2f} | {each.after.held:.3f} |"
        )


def main() -> int:
    """Measure and write."""
    return page("What maps gain from the map before.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
