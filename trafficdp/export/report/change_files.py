"""What changed between two releases, as a table, as files and as a page: post-processing, so it is free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trafficdp._durable import replace_file, require_folder_of
from trafficdp.arrays import IntArray
from trafficdp.errors import UsageError, one_of
from trafficdp.export.files import language, query_result, tables
from trafficdp.export.report.change import likely_changes
from trafficdp.export.report.maps import CHANGE_LEGEND, ReportMaps
from trafficdp.export.report.page import Figure
from trafficdp.mechanisms.several_maps import CHANGED
from trafficdp.model import SlotKind, Zones
from trafficdp.privacy.release import DECIMALS, Release, outward_down, outward_up

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FORMATS = ("html", "csv", "geojson", "parquet", "json")
"""What changes can be written as: the ending of a file's name."""
LIKELY = 0.6
"""A bin counts as slower, or faster, by CHANGED from this chance on. Means of hours, of few vehicles, change
so much that at 0.5 half of them would be coloured: on the tuning days 45 %, at 0.6 7 %."""
MOST_LISTED = 200


@dataclass(frozen=True, eq=False)
class ChangeTable:
    """All bins that have a number in both releases, a row each: ``rows`` says which of ``release``.

    ``table`` has ``hex_id``, ``place``, ``slot``, ``slot_label``, and of the mean speed in the display unit
    ``before_kmh``, ``after_kmh``, ``change_kmh`` and both ends of its intervals of 80 and 95 %, such as
    ``change_kmh_low_80``; then ``slower_chance`` and ``faster_chance``, by CHANGED.
    """

    release: Release
    earlier: Release
    rows: IntArray
    table: pd.DataFrame

    @classmethod
    def of(cls, release: Release, earlier: Release) -> ChangeTable:
        """Return the changes from the release ``earlier`` to ``release``.

        Raises UsageError for releases that cannot be compared.
        """
        import pandas as pd

        statistic = tables.published_statistics(release)[0]
        found = likely_changes(release, earlier, statistic)
        if found is None:
            raise UsageError(
                "the releases have no mean speeds that can be compared",
                got=f"{earlier.id} and {release.id}",
                expected="two maps with numbers for the same places, not marked as uninformative",
            )
        rows, old_rows, change = found
        unit, factor = release.request.display_unit.value, release.request.factor(statistic)
        speeds = {
            f"before_{unit}": np.round(earlier.estimates[statistic].value[old_rows] * factor, DECIMALS),
            f"after_{unit}": np.round(release.estimates[statistic].value[rows] * factor, DECIMALS),
            f"change_{unit}": np.round(change.value, DECIMALS),
        }
        for level in (0.8, 0.95):
            low, high = change.ends[level]
            for name, end in (("low", outward_down(low)), ("high", outward_up(high))):
                speeds[f"change_{unit}_{name}_{100 * level:.0f}"] = end
        columns: dict[str, object] = {
            "hex_id": release.grid.spelled(release.cell[rows]),
            "place": release.place[rows],
            "slot": release.slot[rows],
            "slot_label": [release.slots[int(each)].label for each in release.slot[rows]],
            **speeds,
            "slower_chance": np.round(change.slower, DECIMALS),
            "faster_chance": np.round(change.faster, DECIMALS),
        }
        return cls(release, earlier, rows, pd.DataFrame(columns))

    @property
    def has_several_slots(self) -> bool:
        """Whether there are several time slots."""
        return self.release.grid.slot_kind is not SlotKind.WHOLE_PERIOD

    @property
    def slower(self) -> IntArray:
        """Positions in ``table`` of the bins that likely became slower, the likeliest first."""
        return self._likely("slower_chance")

    @property
    def faster(self) -> IntArray:
        """Positions in ``table`` of the bins that likely became faster, the likeliest first."""
        return self._likely("faster_chance")

    def _likely(self, name: str) -> IntArray:
        chance = self.table[name].to_numpy()
        order = np.argsort(-chance, kind="stable")
        return np.asarray(order[chance[order] >= LIKELY])

    def lines(self, rows: IntArray, word: str) -> list[list[str]]:
        """Return the bins at the positions ``rows`` as texts for people, one list a bin.

        ``word`` is "slower" or "faster", as these bins became.
        """
        unit = self.release.request.display_unit.value
        numbers = [f"{name}_{unit}" for name in ("before", "after", "change")]
        ends = [f"change_{unit}_{end}_80" for end in ("low", "high")]
        return [
            [
                str(row["place"]),
                *([str(row["slot_label"])] if self.has_several_slots else []),
                *(f"{row[name]:.1f}" for name in numbers[:2]),
                f"{row[numbers[2]]:+.1f}",
                " to ".join(f"{row[name]:+.1f}" for name in ends),
                f"{100 * row[f'{word}_chance']:.0f} %",
            ]
            for row in self.table.iloc[rows].to_dict("records")
        ]

    def to_json(self) -> list[dict[str, object]]:
        """Return all rows of the table as JSON values."""
        return query_result.json_rows(to_arrow(self.table))

    def write(self, path: Path) -> None:
        """Write the table, or the HTML page, to ``path``; its ending says which format.

        Raises what ``write_table`` raises.
        """
        write_table(self.table, path, self.release.grid.zones, self.page)

    def page(self) -> bytes:
        """Return an HTML page with a map of what likely changed, and a list, in UTF-8."""
        release, maps = self.release, ReportMaps.of(self.release)
        fell, rose = self.slower, self.faster

        def drawn(slot: int) -> Figure:
            own = (self.rows, self.rows[fell], self.rows[rose])
            return maps.change_figure(*own, slot, small=self.has_several_slots)

        return language.fill_template(
            "changes.html",
            language.Language.of(release.disclosure.catalogue.language),
            release=release,
            earlier=self.earlier,
            figures=[drawn(slot) for slot in maps.shown_slots],
            lists=[
                (below, self.table.iloc[own[:MOST_LISTED]].to_dict("records"), len(own))
                for below, own in ((True, fell), (False, rose))
            ],
            many=len(self.rows),
            several=self.has_several_slots,
            share=CHANGED,
            likely=LIKELY,
            unit=release.request.display_unit,
            legend_lines=CHANGE_LEGEND,
        ).encode()


def to_arrow(table: pd.DataFrame) -> pa.Table:
    """Return ``table`` as the Arrow table that files are written from."""
    import pyarrow as pa

    return pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)


def write_table(table: pd.DataFrame, path: Path, zones: Zones | None, page: Callable[[], bytes]) -> None:
    """Write ``table`` to ``path`` in the format that its ending says; for .html write ``page()``.

    Raises UsageError for another ending, and what ``replace_file`` raises.
    """
    format = one_of(FORMATS, format=path.suffix.lower().removeprefix("."))
    require_folder_of(path)
    if format == FORMATS[0]:
        replace_file(path, page())
    else:
        query_result.write_result(to_arrow(table), format, path, zones)
