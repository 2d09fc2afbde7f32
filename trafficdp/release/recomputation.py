"""Anyone's check of a map of a declared grid: its numbers from its measurements, without the store.

Where nothing about a vehicle is public, all that is published follows from the noisy answers in
measurements.parquet and from what was declared. So every number can be recomputed from the files alone, and
so can what the noise costs. What files cannot show is that the answers were drawn as they say.
"""

from __future__ import annotations

import io
import json
from datetime import date
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp._durable import read_regular
from trafficdp.binning.declared import declared_bins
from trafficdp.errors import VerificationError
from trafficdp.export.files.manifest import Manifest, validate_manifest
from trafficdp.export.write import MANIFEST, MEASUREMENTS
from trafficdp.mechanisms.calibrated import Calibrated, PublicFacts, Recomputable
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.model import (
    DEFAULT_DAY_PARTS,
    ContributionBound,
    Counts,
    DayPart,
    Grid,
    NeighbouringRelation,
    Period,
    Place,
    Selection,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
    as_json,
    parse_speed_unit,
)
from trafficdp.privacy.coverage import MultiPolygon, Polygon, Selected
from trafficdp.privacy.published import statistic_columns
from trafficdp.release.examination import (
    Check,
    NamedChecks,
    differing,
    digests_of,
    names_differing,
    noise_columns,
    rows_are_of,
    run_checks,
)

if TYPE_CHECKING:
    import pandas as pd

CELLS = "cells.parquet"
CLOSE = 0.001 + 1e-9
"""How far a published number may lie from the recomputed one, in the display unit: the last digit."""


def verify_public(folder: Path) -> list[Check]:
    """Return what anyone can check of the release in ``folder``. Raises VerificationError without files."""
    if not (folder / MEASUREMENTS).is_file() or not (folder / MANIFEST).is_file():
        raise VerificationError(
            "these are not the files of a release that anyone can verify",
            got=str(folder),
            expected=f"{MANIFEST} and {MEASUREMENTS}: there where nothing about a vehicle is public",
            todo="verify it with its store: `trafficdp verify RELEASE`",
        )
    return run_checks(_Published(folder).checks())


def _area(shape: Polygon | MultiPolygon) -> StudyArea:
    return StudyArea.from_geojson(json.dumps(as_json(shape)), where="of the manifest")


def _selection(stated: Selected | None) -> Selection:
    if stated is None:
        return Selection()
    places = (tuple(Place(each.name, _area(each.area)) for each in clause) for clause in stated.places)
    cells = None if stated.cells is None else tuple(int(text, 16) for text in stated.cells)
    return Selection(stated.hours_of_week, tuple(places), cells)


class _Published:
    """The files of one release."""

    def __init__(self, folder: Path) -> None:
        # absolute: pandas takes a relative name with a colon for an address
        self._folder = folder.absolute()

    def checks(self) -> NamedChecks:
        """Yield names and checks."""
        yield "every file is the one that the manifest lists", self._files
        yield "hexagons and slots are all of the study area and period", self._bins
        yield "the noise costs what the manifest says", self._cost
        yield "what was asked about follows from the answers before", self._fed_back
        yield "every number follows from the measurements", self._numbers

    @cached_property
    def _manifest(self) -> Manifest:
        return validate_manifest(json.loads(read_regular(self._folder / MANIFEST).decode("utf-8")))

    @cached_property
    def _measurements(self) -> pd.DataFrame:
        return self._table(MEASUREMENTS)

    @cached_property
    def _cells(self) -> pd.DataFrame:
        return self._table(CELLS)

    def _table(self, name: str) -> pd.DataFrame:
        import pandas as pd

        return pd.read_parquet(io.BytesIO(read_regular(self._folder / name)))

    @cached_property
    def _grid(self) -> Grid:
        coverage = self._manifest.coverage
        period = coverage.period
        parts = tuple(DayPart(part.name, part.first_hour, part.end_hour) for part in coverage.day_parts)
        return Grid(
            coverage.resolution,
            SlotKind(coverage.slot_kind),
            _area(coverage.study_area),
            Period(date.fromisoformat(period.first), date.fromisoformat(period.last), period.time_zone),
            parts or DEFAULT_DAY_PARTS,
            selection=_selection(coverage.selection),
        )

    @cached_property
    def _bound(self) -> ContributionBound:
        bounds = self._manifest.bounds
        unit = parse_speed_unit(bounds.clip_unit, where="the manifest")
        return ContributionBound(Fraction(bounds.clip_high), Fraction(bounds.step), unit)

    @cached_property
    def _public(self) -> PublicFacts:
        anyone = Counts.of_anyone(*declared_bins(self._grid))
        return PublicFacts(anyone, self._bound, NeighbouringRelation.ADD_OR_REMOVE_USER)

    @cached_property
    def _calibrated(self) -> Calibrated:
        return calibrated_from_facts(as_json(self._manifest.noise), self._public)

    @cached_property
    def _recomputable(self) -> Recomputable:
        if not isinstance(self._calibrated, Recomputable):
            raise VerificationError("this map does not follow from its files", got=self._calibrated.kind)
        return self._calibrated

    @cached_property
    def _columns(self) -> dict[Statistic, dict[str, npt.NDArray[Any]]]:
        return noise_columns(self._measurements)

    def _painted(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``numbers`` of what was measured, in every bin that carries them."""
        return np.repeat(numbers, len(self._cells) // max(len(numbers), 1))

    def _files(self) -> str | None:
        listed = {each.name: each.sha256 for each in self._manifest.files}
        found = digests_of(self._folder)
        found.pop(MANIFEST)
        return names_differing(differing(listed, found))

    def _bins(self) -> str | None:
        tables = {MEASUREMENTS: self._measurements, CELLS: self._cells}
        wrong = {
            name for name, table in tables.items() if not rows_are_of(table, self._grid, self._public.counts)
        }
        if "slot" not in self._cells:
            wrong.add(CELLS)
        return f"other rows in {', '.join(sorted(wrong))}" if wrong else None

    def _cost(self) -> str | None:
        lost, stated = self._calibrated.event().loss, self._manifest.guarantee.loss
        return None if Fraction(stated) == lost.exact else f"{lost} where {stated} is stated"

    def _fed_back(self) -> str | None:
        follows = self._recomputable.fed_back(self._columns)
        return None if follows else "other maps, or another city"

    def _numbers(self) -> str | None:
        display = next(
            unit
            for unit in SpeedUnit
            if self._manifest.mechanisms[0].statistic == self._calibrated.statistics[0].column(unit)
        )
        published, wrong = self._cells, set()
        found = self._recomputable.recomputed(self._columns)
        noise = found[Statistic.MEAN].noise
        for name in noise.keys() & {"vehicles", "records"}:
            likely = self._painted(np.rint(noise[name]))
            wrong |= set() if np.allclose(published[name].to_numpy(np.float64), likely, atol=1) else {name}
        for estimate in found.values():
            for name, values in statistic_columns(estimate, self._bound.unit, display).items():
                there, values = published[name].to_numpy(), self._painted(np.asarray(values))
                if name.endswith("_status"):
                    same = np.array_equal(there.astype(str), values.astype(str))
                else:
                    same = np.allclose(there, values, rtol=1e-9, atol=CLOSE, equal_nan=True)
                wrong |= set() if same else {name}
        return f"other numbers in {', '.join(sorted(wrong))}" if wrong else None
