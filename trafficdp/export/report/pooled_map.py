"""One map of the mean speed over the periods of several releases: post-processing, so it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.export.files.language import Language, fill_template
from trafficdp.export.report.change import intervals_of_80_percent, refuse_different
from trafficdp.export.report.change_files import MOST_LISTED, write_table
from trafficdp.export.report.maps import ReportMaps, legend
from trafficdp.mechanisms.several_maps import MapOfPeriod, PooledMeans, change_variance, pool
from trafficdp.model import KnowledgeKind, SlotKind, Statistic
from trafficdp.privacy.estimate import BinStatus, Estimate
from trafficdp.privacy.release import Release, statistic_columns

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = BinStatus.RELEASED.value, BinStatus.UNINFORMATIVE.value


@dataclass(frozen=True, eq=False)
class PooledMap:
    """The mean speed over the periods of ``releases`` (by time), in every bin with a number in any of them.

    ``table`` has a row a bin: ``hex_id``, ``place``, ``slot``, ``slot_label``, ``periods`` (how many
    releases have a number there), and the columns that a release with a posterior has for the mean speed.
    ``weighted_by`` is "records", "vehicles" or "days". ``drawn`` is the last release with these numbers in
    place of its own.
    """

    releases: tuple[Release, ...]
    weighted_by: str
    table: pd.DataFrame
    drawn: Release

    @property
    def column(self) -> str:
        """Name of the column of ``table`` that holds the mean speed."""
        (statistic,) = self.drawn.estimates
        return statistic.column(self.drawn.request.display_unit)

    @classmethod
    def of(cls, releases: Sequence[Release], started_from: Sequence[Release] = ()) -> PooledMap:
        """Return the weighted mean over the periods of ``releases``, which must not overlap.

        ``started_from`` are further releases that one of them used as a public source of speeds. Bins are
        weighted by records (means over vehicles: by vehicles) where all releases publish them, else by the
        days of their period. Raises UsageError for releases that cannot be pooled.
        """
        import pandas as pd

        releases = _in_order(releases)
        last, means = releases[-1], (Statistic.MEAN, Statistic.VEHICLE_MEAN)
        statistic = next((each for each in means if each in last.estimates), None)
        if statistic is None:
            raise UsageError("the releases have no mean speeds", got=last.id, expected="maps of means")
        names = [each.id for each in releases]
        every = (*releases, *(each for each in started_from if each.id not in names))
        rows = [_numbered(each, statistic) for each in every]
        keys = [
            pd.MultiIndex.from_arrays([each.cell[own], each.slot[own]])
            for each, own in zip(every, rows, strict=True)
        ]
        bins = keys[0].append(keys[1 : len(releases)]).unique().sort_values()
        if not len(bins):
            raise UsageError("the releases have no mean speeds", got=", ".join(names))
        at = [each.get_indexer(bins) for each in keys]
        weighted_by, weights = _weights(releases, statistic)
        weights += [np.zeros(each.bins, dtype=np.int64) for each in every[len(releases) :]]
        position = {each.id: number for number, each in enumerate(every)}
        maps = [
            _map_of_period(each, last, statistic, (own, found, weight), position)
            for each, own, found, weight in zip(every, rows, at, weights, strict=True)
        ]
        slots = last.grid.slot_kind is not SlotKind.WHOLE_PERIOD
        days = [float(each.grid.period.first.toordinal()) for each in releases]
        place = pd.factorize(bins.get_level_values(0))[0].astype(np.int64)
        upper = float(last.request.bound.upper) * last.request.factor(statistic)
        pooled = pool(maps, place, upper, change_variance(days, slots))
        estimate = _estimate(pooled, last, statistic)
        columns = statistic_columns(estimate, last.request)
        cell, slot = (bins.get_level_values(level).to_numpy() for level in (0, 1))
        named = pd.Series(
            np.concatenate([each.place for each in releases]),
            index=np.concatenate([each.cell for each in releases]),
        )
        names_of_places = named[~named.index.duplicated()].reindex(cell).to_numpy()
        facts = {number: own for each in releases for number, own in each.slots.items()}
        table: dict[str, object] = {
            "hex_id": last.grid.spelled(cell),
            "place": names_of_places,
            "slot": slot,
            "slot_label": pd.Series(slot).map({number: own.label for number, own in facts.items()}),
            "periods": np.sum([each >= 0 for each in at[: len(releases)]], axis=0),
            **{name: own for name, own in columns.items() if not name.endswith("_noise_scale")},
        }
        drawn = replace(
            last,
            cell=cell,
            slot=slot,
            place=names_of_places,
            status=estimate.status,
            vehicles=None,
            records=None,
            estimates={statistic: estimate},
            slots=facts,
        )
        return cls(releases, weighted_by, pd.DataFrame(table), drawn)

    @property
    def expected_error(self) -> float:
        """The expected error of the mean speed, averaged over the bins, in the display unit."""
        return float(self.table[f"{self.column}_expected_error"].mean())

    def write(self, path: Path) -> None:
        """Write the table, or the HTML page, to ``path``; its ending says which format.

        Raises what ``write_table`` raises.
        """
        write_table(self.table, path, self.drawn.grid.zones, self.page)

    def page(self) -> bytes:
        """Return the HTML page: maps of the pooled numbers, and a list of the slowest bins."""
        maps, (statistic,) = ReportMaps.of(self.drawn), self.drawn.estimates
        order = np.argsort(self.table[self.column].to_numpy(), kind="stable")
        return fill_template(
            "pooled.html",
            Language.of(self.drawn.disclosure.catalogue.language),
            pooled=self,
            release=self.drawn,
            statistic=statistic,
            figures=[
                maps.figure(statistic, slot, {}, small=maps.has_several_slots) for slot in maps.shown_slots
            ],
            rows=self.table.iloc[order[:MOST_LISTED]].to_dict("records"),
            several=maps.has_several_slots,
            legend_lines=legend(self.drawn, statistic, maps.has_several_slots),
        ).encode()


def _in_order(releases: Sequence[Release]) -> tuple[Release, ...]:
    """Return the releases by time.

    Raises UsageError unless they measure the same thing in periods that do not overlap.
    """
    if len(releases) < 2:
        raise UsageError("one map of several needs two releases or more", got=f"{len(releases)}")
    found = tuple(sorted(releases, key=lambda each: (each.grid.period.first, each.id)))
    for earlier, later in pairwise(found):
        refuse_different(later, earlier)
        if later.grid.period.first <= earlier.grid.period.last:
            raise UsageError(
                "releases of overlapping periods would count the same records twice",
                got=f"{earlier.id} up to {earlier.grid.period.last}, {later.id} from "
                f"{later.grid.period.first} on",
                expected="releases of periods that do not overlap",
                todo="leave one of the two out",
            )
    return found


def _numbered(release: Release, statistic: Statistic) -> IntArray:
    """Return the positions of the bins that have a number. Raises UsageError without the statistic."""
    if statistic not in release.estimates:
        raise UsageError(f"a release has no {statistic.value.replace('_', ' ')}", got=release.id)
    return np.flatnonzero(np.isin(release.estimates[statistic].status, _NUMBERS))


def _weights(releases: Sequence[Release], statistic: Statistic) -> tuple[str, list[IntArray]]:
    name = "vehicles" if statistic is Statistic.VEHICLE_MEAN else "records"
    counts = [getattr(each, name) for each in releases]
    if all(each is not None for each in counts):
        return name, counts
    days = [(each.grid.period.last - each.grid.period.first).days + 1 for each in releases]
    return "days", [np.full(each.bins, day) for each, day in zip(releases, days, strict=True)]


def _map_of_period(
    release: Release,
    last: Release,
    statistic: Statistic,
    bins: tuple[IntArray, IntArray, IntArray],
    position: dict[str, int],
) -> MapOfPeriod:
    """Return the numbers of ``release`` at the pooled bins, in the display unit of ``last``.

    ``bins`` are the positions of its bins with a number, the place of every pooled bin among these (-1: it
    has none), and the weights of its bins.
    """
    rows, at, weight = bins
    ends = intervals_of_80_percent(release, statistic, rows)
    if ends is None:
        raise UsageError(
            "a release has no intervals that can be pooled",
            got=f"{release.id}, which does not say how its noise is distributed",
            expected="releases with a posterior, or with a noise whose law is published",
        )
    estimate, unit = release.estimates[statistic], last.request.display_unit
    value = estimate.value[rows] * release.request.factor(statistic)
    factor = statistic.factor(release.request.display_unit, unit)
    low, high, middle = (_taken(each * factor, at) for each in (*ends, value))
    return MapOfPeriod(
        value=middle,
        ends=(low, high),
        weight=np.nan_to_num(_taken(weight[rows].astype(np.float64), at)),
        shrunk=bool(estimate.posterior),
        starts_from=tuple(
            (position[name], share) for name, share in started_from(release) if name in position
        ),
    )


def _estimate(pooled: PooledMeans, last: Release, statistic: Statistic) -> Estimate:
    """Return ``pooled`` (display unit) as the estimates of a release, in the unit of the release ``last``."""
    factor = last.request.factor(statistic)
    low, high = pooled.widest
    return Estimate(
        statistic=statistic,
        value=pooled.value / factor,
        low=low / factor,
        high=high / factor,
        noise_scale=np.full(len(low), np.nan),
        expected_error=pooled.error / factor,
        status=np.where(pooled.informed, *_NUMBERS).astype(object),
        noise={},
        posterior={name: end / factor for name, end in pooled.inner.items()},
    )


def _taken(numbers: FloatArray, at: IntArray) -> FloatArray:
    """Return ``numbers`` at the indices ``at``, NaN where the index is -1."""
    return np.where(at >= 0, np.append(numbers, np.nan)[at], np.nan)


def started_from(release: Release) -> list[tuple[str, float]]:
    """Return (name, share) of each earlier release that ``release`` used as a public source of speeds."""
    known = release.disclosure.noise.known or ()
    return [(each.name, each.share) for each in known if each.kind is KnowledgeKind.RELEASE]
