"""An answer as the table that DuckDB arranges, and EXPLAIN: what it would cost and say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from trafficdp.arrays import FloatArray
from trafficdp.binning.places import slot_facts
from trafficdp.config.settings import Config
from trafficdp.context.read import place_names
from trafficdp.errors import UsageError
from trafficdp.export.files.query_result import result_bytes
from trafficdp.model import Counts, Grid, Place, SpeedUnit, Zones
from trafficdp.privacy.loss import Loss
from trafficdp.privacy.release import DECIMALS, Release, published_frame
from trafficdp.query.conditions import DAY_NAMES, zones_of
from trafficdp.query.dialect import SLOTS_BY_CLOCK, AnswerColumn, End, Kind
from trafficdp.query.question import Question
from trafficdp.release.results import Plan
from trafficdp.store.analyst import AnalystSession
from trafficdp.store.store_files import RELEASED_NAME

COUNTED = "counted"
"""Status of a bin in an answer that holds counts alone."""
_TEXTS = (Kind.PLACE, Kind.SLOT_LABEL, Kind.SLOT_START, Kind.SLOT_END, Kind.STATUS)


@dataclass(frozen=True)
class Answered:
    """The answer to a SQL query: its ``rows`` as a table, and what was charged for it.

    ``releases`` hold the noisy numbers, empty where there are none. ``charged`` is the largest privacy loss
    of any vehicle, 0 when nothing was charged. ``notes`` are sentences for the reader. ``zones`` are those
    of the configured map, None where it has hexagons.
    """

    rows: pa.Table
    releases: tuple[Release, ...]
    charged: Loss
    notes: tuple[str, ...]
    zones: Zones | None = None

    @property
    def is_reused(self) -> bool:
        """Whether releases made before hold the whole answer, so that nothing was charged."""
        return bool(self.releases) and not self.charged.pico

    @property
    def release(self) -> Release | None:
        """The release that holds the noisy numbers, the first of several; None without any."""
        return self.releases[0] if self.releases else None

    @property
    def release_id(self) -> str | None:
        """Name of ``release``, None without one."""
        return None if self.release is None else self.release.id

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a data frame."""
        frame: pd.DataFrame = self.rows.to_pandas()
        return frame

    def to_geodataframe(self) -> Any:  # noqa: ANN401 - geopandas carries no types
        """Return the rows with the hexagons of their column hex_id (or h3, cell) as geometry, in WGS84.

        Raises UsageError where no column holds hexagons.
        """
        # it takes longer to import than most commands to run
        import geopandas

        return geopandas.read_file(BytesIO(result_bytes(self.rows, "geojson", self.zones)))


def query_released_maps(
    store: Path, text: str, nothing: Loss, zones: Zones | None, files: Sequence[Path] = ()
) -> Answered:
    """Run ``text``, any SQL, on the released maps of ``store`` and on ``files``, at no privacy loss.

    ``nothing`` is a loss of 0, which the answer states as its charge. Raises as ``AnalystSession``.
    """
    with AnalystSession(store / RELEASED_NAME, files=files) as session:
        return Answered(session.run(text), (), nothing, ("asked of what is released: free",), zones)


def names_of_places(config: Config, store: Path) -> Mapping[str, int | Place]:
    """Return the zone, or the H3 cell, of every named place, by its name (letter case removed).

    Only the configuration and released maps are read, so names are public. Raises UsageError where an area
    of the configuration has the name of a zone.
    """
    if config.grid.zones is not None:
        places = {place.name.casefold(): place for place in zones_of(config.grid)}
        twice = sorted(name for name in config.areas if name.casefold() in places)
        if twice:
            raise UsageError(
                "an area and a zone have one name",
                got=twice[0],
                todo="give the area of [[areas]] another name",
            )
        return places
    if not (store / RELEASED_NAME).exists():
        return {}
    with AnalystSession(store / RELEASED_NAME) as session:
        rows = session.run("SELECT DISTINCT place, cell FROM latest_cells WHERE resolution IS NOT NULL")
    columns = rows.column("place").to_pylist(), rows.column("cell").to_pylist()
    return {place.casefold(): int(cell) for place, cell in zip(*columns, strict=True)}


def answer_columns(question: Question) -> tuple[AnswerColumn, ...]:
    """Return the columns of the answer's table before it is arranged.

    Places, times and status come first, then every number asked for with both ends of its interval.
    """
    clock = SLOTS_BY_CLOCK.get(question.slot_kind, set()) if question.by_slot else set()
    plain = [
        kind
        for kind in Kind
        if kind is Kind.STATUS
        or (kind.of_place and question.by_cell)
        or (kind in clock if kind.of_clock else kind.of_slot and question.by_slot)
    ]
    numbers = [AnswerColumn(kind, end) for kind in question.kinds for end in (End.VALUE, *kind.ends)]
    return (*(AnswerColumn(kind) for kind in plain), *numbers)


def made_up_rows(question: Question, rows: int) -> pa.RecordBatch:
    """Return a made-up answer of ``rows`` rows, all numbers 1 and all else null, to try an arrangement on."""
    columns = answer_columns(question)
    arrays = [_typed(rows * [1 if column.kind.measured else None], column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def answer_rows(
    question: Question, grid: Grid, counts: Counts, release: Release | None, unit: SpeedUnit
) -> pa.RecordBatch:
    """Return the answer to ``question`` before it is arranged: one row a bin, speeds in ``unit``.

    Numbers are those of ``release`` or, if it is None, the exact ``counts``. Both have the bins of ``grid``,
    in one order.
    """
    if release is None:
        frame = _counted(grid, counts)
    else:
        noise = next(iter(release.estimates.values())).noise
        # noisy counts as whole numbers: values to nearest, ends of intervals outward
        rounding = {"": np.rint, "_low": np.floor, "_high": np.ceil}
        noisy = {
            name + end: towards(noise[name + end]).astype(np.int64)
            for name in ("vehicles", "records")
            if name in noise
            for end, towards in rounding.items()
        }
        frame = published_frame(release).drop(columns=["vehicles", "records"]).assign(**noisy)
    columns = answer_columns(question)
    arrays = [_typed(_values(column, frame, counts, unit), column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _typed(values: Any, column: AnswerColumn) -> pa.Array:  # noqa: ANN401 - a list or an array
    """Return ``values`` as the type that ``column`` has; weekdays know the order of the calendar."""
    kind = column.kind
    if kind is Kind.WEEKDAY:
        places = pa.array([None if each is None else DAY_NAMES.index(each) for each in values], pa.uint8())
        return pa.DictionaryArray.from_arrays(places, pa.array(DAY_NAMES))
    if kind in (Kind.SLOT, Kind.HOUR) or kind.counts or column.end.of_rank:
        return pa.array(values, pa.int64(), from_pandas=True)
    return pa.array(values, pa.float64() if kind.measured else pa.string(), from_pandas=True)


def _counted(grid: Grid, counts: Counts) -> pd.DataFrame:
    """Return place, slot and status of every bin, one row each, under the names of the published table."""
    facts = slot_facts(counts.slot, grid.slot_kind, grid.period, grid.day_parts)
    labels = [facts[slot] for slot in counts.slot.tolist()]
    return pd.DataFrame(
        {
            "hex_id": pd.Series(grid.spelled(counts.cell), dtype="str"),
            "place": pd.Series(place_names(counts.cell, grid.context, grid.zones), dtype="str"),
            "slot": counts.slot,
            "slot_label": pd.Series([each.label for each in labels], dtype="str"),
            "slot_start": pd.Series([each.start for each in labels], dtype="str"),
            "slot_end": pd.Series([each.end for each in labels], dtype="str"),
            "status": pd.Series([COUNTED] * counts.bins, dtype="str"),
        }
    )


def _values(column: AnswerColumn, frame: pd.DataFrame, counts: Counts, unit: SpeedUnit) -> Any:  # noqa: ANN401
    """Return the values of ``column``, one a bin, from the published table ``frame`` or from ``counts``."""
    kind, end = column
    if kind is Kind.CELL or kind in _TEXTS:
        texts = frame["hex_id" if kind is Kind.CELL else kind.value]
        return [None if pd.isna(text) else str(text) for text in texts]
    if kind.of_clock:
        # the local time in a label such as "2026-03-02 07:00 +01:00" or "07:00-08:00"
        labels = frame["slot_label"].tolist()
        if kind is Kind.HOUR:
            return [int(label[11:13] if label[4] == "-" else label[:2]) for label in labels]
        return [label[:10] if kind is Kind.DATE else label.lower() for label in labels]
    if kind is Kind.SLOT:
        return frame["slot"].to_numpy(dtype=np.int64)
    if kind.counts:
        name = "records" if kind is Kind.RECORDS else "vehicles"
        if name + end.value in frame:
            return frame[name + end.value].to_numpy(dtype=np.int64)
        return counts.samples_per_bin if kind is Kind.RECORDS else counts.users_per_bin
    stem = "" if kind.statistic is None else kind.statistic.column(unit)
    if end.of_rank:
        return frame[stem + end.value]
    numbers = frame[stem + end.value].to_numpy(dtype=np.float64)
    return _root(numbers, end) if kind is Kind.STDDEV else numbers


def _root(variance: FloatArray, end: End) -> FloatArray:
    """Return square roots with DECIMALS decimals: values rounded to nearest, ends of intervals outward."""
    scale = 10.0**DECIMALS
    root = np.sqrt(np.maximum(variance, 0.0)) * scale
    if end is End.VALUE:
        return np.round(root) / scale
    # a hair outward first: the root of a square may come out just past it
    return (np.floor(root * (1 - 1e-15)) if end is End.LOW else np.ceil(root * (1 + 1e-15))) / scale


# EXPLAIN: what questions would cost and say. From public counts and accounts; nothing is spent.


Line = tuple[str, str, str | None]
"""What, how much, and in which unit (None: no unit)."""


@dataclass(frozen=True)
class PricedPlan:
    """One question with its price: free for ``plan`` None, and where ``earlier_release`` answers it."""

    question: str
    selection: str
    counts: Counts
    plan: Plan | None
    earlier_release: str | None


@dataclass(frozen=True)
class Explanation:
    """The price of one or more questions. ``rows`` has the columns what, value and unit."""

    rows: pa.Table
    plans: tuple[PricedPlan, ...]

    @property
    def plan(self) -> Plan | None:
        """The plan of the first question; None where public counts answer it, at no charge."""
        return self.plans[0].plan

    @property
    def earlier_release(self) -> str | None:
        """Name of the release that already answers the first question, at no charge; None without one."""
        return self.plans[0].earlier_release


def explanation_of(
    plans: Sequence[PricedPlan], together: Loss | None, analyst_left: Loss | None
) -> Explanation:
    """Return the price and the expected errors of the questions of ``plans`` as a table.

    ``together`` is what several questions cost in all. ``analyst_left`` is what the analyst may still spend
    on the vehicle that the analyst's questions have charged most. Each is None where there is nothing to say.
    """
    lines: list[Line] = []
    for each in plans:
        plan = each.plan
        known = plan is None or plan.allocation.calibrated.public.public_counts is not None
        lines += [("question", each.question, None), ("counts" if known else "records", each.selection, None)]
        if plan is None:
            lines += [("bins", str(each.counts.bins), None), ("cost", "0", "epsilon")]
            lines.append(("why", "counts are public by assumption (counts_public)", None))
        else:
            lines += _priced(plan, each.earlier_release)
    if together is not None:
        lines.append(("cost of all questions together", str(together), together.kind.quantity))
    if analyst_left is not None:
        lines.append(("left for the analyst", str(analyst_left), analyst_left.kind.quantity))
    names = ("what", "value", "unit")
    columns = [pa.array([line[place] for line in lines], pa.string()) for place in range(3)]
    return Explanation(pa.table(columns, names=names), tuple(plans))


def _priced(plan: Plan, earlier: str | None) -> Iterator[Line]:
    allocation = plan.allocation
    request = allocation.request
    yield "bins with numbers", str(allocation.counts.bins), None
    quantity = request.loss.kind.quantity
    if allocation.calibrated.public.public_counts is None:
        yield "loss of every possible vehicle", str(allocation.loss), quantity
    else:
        yield "bins withheld", str(int((~allocation.keep).sum())), None
        yield "vehicles charged", str(int(np.count_nonzero(allocation.event.loss_per_user))), None
        yield "largest loss of a vehicle", str(allocation.loss), quantity
    yield "cost", "0" if earlier else str(allocation.loss), quantity
    if plan.in_epsilon is not None:
        yield f"that is, at delta {plan.in_epsilon.delta}", str(plan.in_epsilon.epsilon), "epsilon"
    if earlier:
        yield "answered before", earlier, None
    yield from _accountings(plan)
    yield from _by_rank(plan) if allocation.rank_widths else _in_speeds(plan)
    for name, error in allocation.count_errors.items():
        yield f"noise of the number of {name}", f"{error:.3g}", name
    shared = request.relation.hides_presence
    left = "left in the budget that all vehicles share" if shared else "left for every vehicle"
    yield left, str(plan.budget_left), quantity
    yield "verdict", "too inaccurate: refused" if plan.verdict.refused else "may be answered", None
    if plan.suggestions is not None:
        yield "would pass", plan.suggestions.in_words().replace("--force", "force = TRUE"), None


def _in_speeds(plan: Plan) -> Iterator[Line]:
    allocation, request = plan.allocation, plan.allocation.request
    widths, errors = allocation.half_widths(), allocation.errors()
    for statistic in allocation.calibrated.statistics:
        factor = request.factor(statistic)
        # an interval that is published lies within the range
        half = np.minimum(widths[statistic], statistic.largest(request.bound.upper) / 2)
        unit, name = statistic.unit(plan.display_unit), statistic.words
        for what, numbers in (("expected error", errors[statistic]), ("half width", half)):
            yield f"median {what} of the {name}", f"{float(np.median(numbers)) * factor:.4g}", unit
            yield f"worst {what} of the {name}", f"{float(np.max(numbers)) * factor:.4g}", unit


def _by_rank(plan: Plan) -> Iterator[Line]:
    for statistic, spanned in plan.allocation.rank_widths.items():
        for what, share in (("in the median bin", np.median(spanned)), ("in the worst bin", np.max(spanned))):
            name = f"interval of the {statistic.words}, {what}"
            yield name, f"{100 * float(share):.3g}", "% of its vehicles"


def _accountings(plan: Plan) -> Iterator[Line]:
    """Yield, for every method of accounting, the epsilon that would give the noise of the chosen method."""
    allocation = plan.allocation
    request = allocation.request
    if request.main not in request.tolerance or not allocation.accountings:
        return
    scale = allocation.chosen_accounting.worst_relative_scale(float(request.loss.exact), request.tolerance)
    for accounting in allocation.accountings:
        chosen = " (chosen)" if accounting.name == allocation.chosen_accounting.name else ""
        yield (
            f"by accounting {accounting.name}{chosen}",
            f"{accounting.epsilon_at(scale, request.tolerance):.4g}",
            "epsilon",
        )
