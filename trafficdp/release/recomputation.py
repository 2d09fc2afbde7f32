"""How a release is checked, and anyone's check of a map of a declared grid, without the store.

The checks of releases and streams (``release.verification``, ``stream_verification``) share how a check runs,
and how files and rows are compared.

Where nothing about a vehicle is public, all that is published follows from the noisy answers in
measurements.parquet and from what was declared. So every number can be recomputed from the files alone, and
so can what the noise costs. What files cannot show is that the answers were drawn as they say.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from trafficdp import model
from trafficdp._durable import read_regular
from trafficdp.arrays import IntArray
from trafficdp.binning.cells import shapes_of
from trafficdp.binning.places import declared_bins, slot_facts_of
from trafficdp.context.read import read_zones
from trafficdp.errors import TrafficdpError, UsageError, VerificationError
from trafficdp.export.files.catalogue import CATALOGUE_FILES, stated_files
from trafficdp.export.files.manifest import Manifest, validate_manifest
from trafficdp.export.files.tables import INSTANTS, csv_of, features_of, rounded_shapes
from trafficdp.export.map.html_map import number_columns, unpack
from trafficdp.export.write import MANIFEST, MEASUREMENTS
from trafficdp.mechanisms import protocol, publish, registry
from trafficdp.privacy.disclosure import CityZones, MultiPolygon, Polygon, Selected
from trafficdp.privacy.estimate import NOISE_COLUMNS, Estimate
from trafficdp.privacy.release import DECIMALS, outward_down, outward_up, statistic_columns

if TYPE_CHECKING:
    import pandas as pd

NamedChecks = Iterator[tuple[str, Callable[[], str | None]]]
"""What is checked, and the check: it returns what is wrong, or None."""
PORTALS = "datapackage.json and dataset.jsonld list the files of the manifest"
UNREADABLE = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    pa.ArrowException,
)
"""What reading a file raises that may hold anything at all."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked: what, whether it holds, and what was found when it does not."""

    name: str
    passed: bool
    found: str


def run_checks(checks: NamedChecks) -> list[Check]:
    """Run the named checks; return what each found. An error that a check raises is a finding, too."""
    found = []
    for name, check in checks:
        try:
            wrong = check()
        except TrafficdpError as error:
            wrong = str(error)
        except UNREADABLE as error:
            # a tampered file may be anything at all
            wrong = f"the file cannot be read ({type(error).__name__})"
        found.append(Check(name, wrong is None, wrong or ""))
    return found


def differing_files(
    folder: Path, listed: Mapping[str, str], *others: Mapping[str, str], unlisted: str = ""
) -> str | None:
    """Return in words which files of ``folder`` are changed, missing or unlisted; None when none are.

    ``listed`` and each of ``others`` map file names to the SHA-256 that they must have. Files whose names
    match the pattern ``unlisted`` need not be listed.
    """
    there = folder.iterdir() if folder.is_dir() else ()
    found = {path.name: hashlib.sha256(read_regular(path)).hexdigest() for path in there}
    wrong = {name for name in found.keys() - listed.keys() if not fnmatchcase(name, unlisted)}
    for each in (listed, *others):
        wrong |= {name for name, digest in each.items() if found.get(name) != digest}
    return "changed, missing or foreign: " + ", ".join(sorted(wrong)) if wrong else None


def differing_portal_files(folder: Path) -> str | None:
    """Return in words which of the files for portals state other files than the manifest; None if none do."""
    manifest = json.loads(read_regular(folder / MANIFEST).decode("utf-8"))
    files = {each["name"]: (each["bytes"], each["sha256"]) for each in manifest["files"]}
    described = {name: facts for name, facts in files.items() if name not in CATALOGUE_FILES}
    wrong = [
        name
        for name in CATALOGUE_FILES
        if name in files
        and stated_files(json.loads(read_regular(folder / name).decode("utf-8"))) != described
    ]
    return f"other files in {', '.join(wrong)}" if wrong else None


def rows_match_counts(published: pd.DataFrame, grid: model.Grid, counts: model.Counts) -> bool:
    """Return whether the table ``published`` has one row for each bin of ``counts``, in the same order."""
    cells = grid.read_spelled(published["hex_id"])
    slots = published["slot"].to_numpy(dtype=np.int64)
    return np.array_equal(cells, counts.cell) and np.array_equal(slots, counts.slot)


def noise_columns(published: pd.DataFrame) -> dict[model.Statistic, dict[str, npt.NDArray[Any]]]:
    """Return the noise columns of every statistic with a number, over all rows."""
    return {
        statistic: {
            name: published[f"{statistic.stem}_{name}"].to_numpy(
                dtype=np.float64 if column.withheld is None else np.int64
            )
            for name, column in NOISE_COLUMNS.items()
            if f"{statistic.stem}_{name}" in published
        }
        for statistic in model.Statistic
        if f"{statistic.stem}_status" in published
    }


CELLS = "cells.parquet"
CSV, GEOJSON, PAGE = "cells.csv", "map.geojson", "map.html"
_OF_BINS = ("hex_id", "resolution", "slot", "slot_kind", "slot_label", "slot_start", "slot_end", "geometry")
_CLOSE_DEGREES = 1e-9
CLOSE = 0.001 + 1e-9
"""How far a published number may lie from the recomputed one, in the display unit: the last digit."""
COUNTED = ("vehicles", "records")
ROWS_AT_ONCE = 1 << 20
"""Rows of the published table that are compared together."""


def verify_public(folder: Path, zones: Path | None = None) -> list[Check]:
    """Return what anyone can check of the release in ``folder``. Raises VerificationError without files.

    ``zones`` is the city's own file of zones, where the map has them: only it tells that none is left out.
    Without it every zone that is listed must lie in the study area.
    """
    if not _recomputes(folder):
        raise VerificationError(
            "these are not the files of a release that anyone can verify",
            got=str(folder),
            expected=f"{MANIFEST} and {MEASUREMENTS}: there where nothing about a vehicle is public",
            todo="verify it with its store: `trafficdp verify RELEASE`",
        )
    return run_checks(_Published(folder, zones).checks())


def guaranteed_csv(folder: Path) -> bytes:
    """Return the guaranteed sets of the release in ``folder``, for reviewers, as CSV in its display unit.

    Columns: ``hex_id``, ``slot``, and of the mean ``_guaranteed_low`` and ``_guaranteed_high``, rounded
    outwards to three decimals: with the release's interval level they hold, bin by bin, the map that the
    mechanism would give without noise. All of it follows from published files. Raises UsageError for a
    release with public counts.
    """
    if not _recomputes(folder):
        raise UsageError(
            "this release has no guaranteed sets beside its intervals",
            got="public counts",
            expected="a release of relation add_or_remove_user",
            todo="read interval_kind in its files: a guaranteed interval is marked there",
        )
    return _Published(folder, None).guaranteed_csv()


def _recomputes(folder: Path) -> bool:
    return (folder / MEASUREMENTS).is_file() and (folder / MANIFEST).is_file()


def _area(shape: Polygon | MultiPolygon) -> model.StudyArea:
    return model.StudyArea.from_geojson(json.dumps(model.as_json(shape)), where="of the manifest")


def _selection(stated: Selected | None) -> model.Selection:
    if stated is None:
        return model.Selection()
    places = (tuple(model.Place(each.name, _area(each.area)) for each in clause) for clause in stated.places)
    cells = None if stated.cells is None else tuple(int(text, 16) for text in stated.cells)
    return model.Selection(stated.hours_of_week, tuple(places), cells)


class _Published:
    """The files of one release."""

    def __init__(self, folder: Path, zones: Path | None) -> None:
        # absolute: pandas takes a relative name with a colon for an address
        self._folder = folder.absolute()
        self._zones_file = zones

    def checks(self) -> NamedChecks:
        """Yield (what is checked, function that checks it) for the files of the release."""
        yield "every file is the one that the manifest lists", self._files
        yield PORTALS, partial(differing_portal_files, self._folder)
        yield "hexagons, or the listed zones, and slots are all of the study area and period", self._bins
        yield "the noise costs what the manifest says", self._cost
        yield "what was asked about follows from the answers before", self._fed_back
        yield "every number follows from the measurements", self._numbers
        yield f"{CSV}, {GEOJSON} and {PAGE} say what {CELLS} says", self._texts

    @cached_property
    def _manifest(self) -> Manifest:
        return validate_manifest(json.loads(read_regular(self._folder / MANIFEST).decode("utf-8")))

    @cached_property
    def _measurements(self) -> pd.DataFrame:
        import pandas as pd

        return pd.read_parquet(io.BytesIO(read_regular(self._folder / MEASUREMENTS)))

    @cached_property
    def _cells(self) -> pq.ParquetFile:
        return pq.ParquetFile(io.BytesIO(read_regular(self._folder / CELLS)))

    def _parts(self, *columns: str) -> Iterator[tuple[slice, pd.DataFrame]]:
        """The published table, never all of it in memory: which rows a part has, and ``columns`` of it."""
        start = 0
        for batch in self._cells.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
            yield slice(start, start + batch.num_rows), batch.to_pandas()
            start += batch.num_rows

    @cached_property
    def _grid(self) -> model.Grid:
        coverage = self._manifest.coverage
        return model.Grid(
            coverage.resolution,
            model.SlotKind(coverage.slot_kind),
            _area(coverage.study_area),
            coverage.period,
            coverage.day_parts or model.DEFAULT_DAY_PARTS,
            selection=_selection(coverage.selection),
            zones=None if coverage.zones is None else self._zones(coverage.zones),
        )

    def _zones(self, stated: CityZones) -> model.Zones:
        """The zones of the city's file, or those that the table lists: what it does not list has no shape."""
        if self._zones_file is not None:
            found = read_zones(self._zones_file, None)
            if found.sha256 != stated.sha256:
                raise VerificationError(
                    "these are not the zones of the map", got=found.sha256, expected=stated.sha256
                )
            return found
        table = self._cells.read(["hex_id", "geometry"])
        number = table.column("hex_id").to_numpy().astype(np.int64)
        if not len(number) or int(number.min()) < 1 or int(number.max()) > stated.zones:
            raise VerificationError("not all of these are numbers of zones", expected=f"1 to {stated.zones}")
        shapes = np.full(stated.zones, shapely.Polygon(), dtype=object)
        shapes[number - 1] = shapely.from_wkb(table.column("geometry").to_numpy())
        names = tuple(map(str, range(1, stated.zones + 1)))
        return model.Zones(stated.file, stated.sha256, names, tuple(shapes))

    @cached_property
    def _request(self) -> model.MapRequest:
        manifest, bounds = self._manifest, self._manifest.bounds
        unit = model.parse_speed_unit(bounds.clip_unit, where="the manifest")
        return model.MapRequest(
            model.ContributionBound(Fraction(bounds.clip_high), Fraction(bounds.step), unit),
            manifest.coverage.min_vehicles,
            manifest.uncertainty.interval_level,
            next(
                each
                for each in model.SpeedUnit
                if manifest.mechanisms[0].statistic == model.Statistic.MEAN.column(each)
            ),
            manifest.honesty.publish_counts,
        )

    @cached_property
    def _public(self) -> protocol.PublicFacts:
        anyone = model.Counts.for_declared_grid(*declared_bins(self._grid))
        return protocol.PublicFacts(
            anyone, self._request.bound, model.NeighbouringRelation.ADD_OR_REMOVE_USER
        )

    @cached_property
    def _calibrated(self) -> protocol.CalibratedMechanism:
        return registry.calibrated_from_facts(
            model.as_json(self._manifest.noise), self._public, self._columns
        )

    @cached_property
    def _recomputable(self) -> protocol.Recomputable:
        if not isinstance(self._calibrated, protocol.Recomputable):
            raise VerificationError("this map does not follow from its files", got=self._calibrated.kind)
        return self._calibrated

    @cached_property
    def _columns(self) -> dict[model.Statistic, dict[str, npt.NDArray[Any]]]:
        return noise_columns(self._measurements)

    def _files(self) -> str | None:
        listed = {each.name: each.sha256 for each in self._manifest.files}
        return differing_files(self._folder, listed, unlisted=MANIFEST)

    def _bins(self) -> str | None:
        counts = self._public.counts
        wrong = set() if rows_match_counts(self._measurements, self._grid, counts) else {MEASUREMENTS}
        listed = self._cells.metadata.num_rows == counts.bins and {*_OF_BINS} <= {
            *self._cells.schema_arrow.names
        }
        if not listed or not all(self._are_of(rows, part) for rows, part in self._parts(*_OF_BINS)):
            wrong.add(CELLS)
        if self._manifest.coverage.study_area_sha256 != self._grid.area.hash:
            wrong.add(MANIFEST)
        return f"other rows in {', '.join(sorted(wrong))}" if wrong else None

    def _are_of(self, rows: slice, part: pd.DataFrame) -> bool:
        """Whether place and time of a part of the table are those of the bins ``rows``."""
        grid, counts = self._grid, self._public.counts
        cell, slot = counts.cell[rows], counts.slot[rows]
        cells = grid.read_spelled(part["hex_id"])
        if not np.array_equal(cells, cell) or not np.array_equal(part["slot"], slot):
            return False
        said, kind = self._slots_said(slot), grid.slot_kind.value
        shapes = shapely.from_wkb(part["geometry"].to_numpy())
        zones = grid.zones is not None
        return (
            bool(np.all(part["slot_kind"] == kind) and np.all(part["slot_label"] == said["slot_label"]))
            and all(np.array_equal(_us(part[name]), _us(said[name])) for name in INSTANTS)
            and bool(np.all(part["resolution"].isna() if zones else part["resolution"] == grid.resolution))
            and bool(np.all(shapely.equals_exact(shapes, shapes_of(cell, grid.zones), _CLOSE_DEGREES)))
        )

    def _slots_said(self, slot: IntArray) -> pd.DataFrame:
        """What the published table says of slots beside their kind, as text."""
        import pandas as pd

        different, place = np.unique(slot, return_inverse=True)
        facts = slot_facts_of(self._grid, different)
        said = {
            f"slot_{name}": pd.Series(
                [getattr(facts[each], name) for each in different.tolist()], dtype="str"
            )
            for name in ("label", "start", "end")
        }
        return pd.DataFrame(said).take(place).reset_index(drop=True)

    def _cost(self) -> str | None:
        lost, stated = self._calibrated.event().loss, self._manifest.guarantee.loss
        return None if Fraction(stated) == lost.exact else f"{lost} where {stated} is stated"

    def _fed_back(self) -> str | None:
        follows = self._recomputable.steps_follow_answers(self._columns)
        return None if follows else "other maps, or another city"

    def guaranteed_csv(self) -> bytes:
        """Return ``guaranteed_csv`` of these files."""
        table = self._measurements[["hex_id", "slot"]].copy()
        request = self._request
        guaranteed = self._recomputable.proved_intervals(self._columns, request.interval_level)
        for statistic, (low, high) in guaranteed.items():
            name, factor = statistic.column(request.display_unit), request.factor(statistic)
            table[f"{name}_guaranteed_low"] = outward_down(low * factor)
            table[f"{name}_guaranteed_high"] = outward_up(high * factor)
        text: str = table.to_csv(index=False, lineterminator="\n", float_format=f"%.{DECIMALS}f")
        return text.encode()

    def _numbers(self) -> str | None:
        found = self._recomputable.recompute_estimates(self._columns)
        noise = found[model.Statistic.MEAN].noise
        likely = {name: np.rint(noise[name]) for name in noise.keys() & {*COUNTED}}
        every = np.ones(self._public.counts.bins, dtype=np.bool_)
        likely["status"] = publish.bin_status(every, [estimate.status for estimate in found.values()])
        kinds = {each.statistic: each.interval_kind for each in self._manifest.mechanisms}
        for statistic, estimate in found.items():
            columns = statistic_columns(estimate, self._request)
            likely |= {name: np.asarray(values) for name, values in columns.items()}
            likely[f"{statistic.stem}_interval_kind"] = np.full(
                len(every), kinds[statistic.column(self._request.display_unit)]
            )
        wrong = {
            name
            for rows, part in self._parts(*likely)
            for name, values in likely.items()
            if not _same(name, part[name], values[rows])
        }
        wrong |= {f"{name} of {MEASUREMENTS}" for name in self._measured_otherwise(found)}
        return f"other numbers in {', '.join(sorted(wrong))}" if wrong else None

    def _measured_otherwise(self, found: Mapping[model.Statistic, Estimate]) -> Iterator[str]:
        """Yield the columns of measurements that are not read alike: an answer stands in every row of it."""
        for statistic, estimate in found.items():
            status = self._measurements[f"{statistic.stem}_status"].to_numpy().astype(str)
            if not np.array_equal(status, estimate.status.astype(str)):
                yield f"{statistic.stem}_status"
            for name, values in self._columns[statistic].items():
                # what is not known of a place is NaN
                again = estimate.noise.get(name)
                if again is not None and not np.allclose(values, again, rtol=1e-9, equal_nan=True):
                    yield f"{statistic.stem}_{name}"

    def _texts(self) -> str | None:
        """Compare the published table with what is written of it as text, where there is any."""
        listed = {each.name for each in self._manifest.files}
        if not {CSV, GEOJSON, PAGE} & listed:
            return None
        table = self._cells.read().to_pandas().drop(columns=["geometry", "bbox"])
        table[[*INSTANTS]] = self._slots_said(self._public.counts.slot)[[*INSTANTS]]
        same = {
            CSV: read_regular(self._folder / CSV) == csv_of(table),
            GEOJSON: self._is_geojson_of(table),
            PAGE: self._is_page_of(table),
        }
        wrong = [name for name, found in same.items() if not found]
        return f"other numbers in {', '.join(wrong)}" if wrong else None

    def _is_geojson_of(self, table: pd.DataFrame) -> bool:
        head, *lines = read_regular(self._folder / GEOJSON).decode("utf-8").split("\n")
        names = json.loads(lines[0].removesuffix(","))["properties"]
        numbers = {name for name in table if table[name].dtype == np.float64}
        if not numbers <= {*names} | {*COUNTED}:
            return False
        table["reason"] = table["status"].map(json.loads(head + "]}")["trafficdp"]["reasons"])
        cells, position = np.unique(self._public.counts.cell, return_inverse=True)
        rounded = rounded_shapes(shapes_of(cells, self._grid.zones))
        features = features_of(table[[*names]], self._grid, rounded, position)
        return lines == [*",\n".join(features).split("\n"), "]}", ""]

    def _is_page_of(self, table: pd.DataFrame) -> bool:
        """Whether the page shows the numbers of ``table``; not what it says beside them."""
        counts, unit = self._public.counts, self._request.display_unit
        cells, position = np.unique(counts.cell, return_inverse=True)
        statistics = [each for each in model.Statistic if each in self._calibrated.statistics]
        slots = number_columns(table, counts.slot, position, statistics, unit)
        likely = {name: column for columns in slots for name, column in columns.items()}
        likely |= {"h3_high": ("u4", cells >> np.uint64(32)), "h3_low": ("u4", cells & np.uint64(2**32 - 1))}
        there = unpack(read_regular(self._folder / PAGE))
        return all(
            name in there and np.array_equal(there[name], values, equal_nan=kind == "f8")
            for name, (kind, values) in likely.items()
        )


def _us(instants: pd.Series) -> IntArray:
    """Return microseconds since 1970 UTC, of what is missing the least number."""
    import pandas as pd

    us = pd.to_datetime(instants, utc=True).dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return np.asarray(us.astype(np.int64))


def _same(name: str, there: pd.Series, likely: npt.NDArray[Any]) -> bool:
    """Whether what is published in column ``name`` is ``likely``, but for last digits."""
    if name in COUNTED:
        return np.allclose(there.to_numpy(np.float64), likely, atol=1)
    if name.endswith(("status", "_interval_kind")):
        return np.array_equal(there.to_numpy().astype(str), likely.astype(str))
    return np.allclose(there.to_numpy(), likely, rtol=1e-9, atol=CLOSE, equal_nan=True)
