"""The published table of a release: one row a bin, display units, rounded outward.

Every file and `released.duckdb` are written from this table and nothing else, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.model import QUANTILES, Grid, SpeedUnit, Statistic, kinds_of, resolution_of
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.release import Release

if TYPE_CHECKING:
    import pandas as pd

DECIMALS = 3
"""Digits after the point of published values, in the display unit."""


def published_frame(release: Release) -> pd.DataFrame:
    """Return the table of ``release``: G rows, sorted by cell, then slot.

    Columns: ``h3`` (hexadecimal text; the number of a zone), ``place`` (its name), ``resolution`` (none of
    zones), ``slot``, ``slot_kind``, ``slot_label``, ``slot_start``, ``slot_end``, ``status``, ``vehicles``,
    ``records``, then for every statistic, with stem and unit as in ``speed_mean_kmh``: the value, ``_low``,
    ``_high``, ``_noise_scale``, ``_expected_error``, of a quantile ``_rank_low`` and ``_rank_high``; and by
    stem alone ``_status`` and ``_interval_kind``.

    Values are rounded to DECIMALS to the nearest, ``_low`` down and ``_high``, ``_noise_scale`` and
    ``_expected_error`` up, so that an interval is never narrowed. Withheld numbers are NaN.
    """
    import pandas as pd

    release = release.every_bin
    slots, slot = np.unique(release.slot, return_inverse=True)
    labels = [release.slots[int(each)] for each in slots]
    columns: dict[str, object] = {
        "h3": _spelled(release.grid, release.cell),
        "place": _repeating(release.place),
        "resolution": _resolutions(release),
        "slot": release.slot,
        "slot_kind": _slot_kinds(release),
        "slot_label": _texts([facts.label for facts in labels], slot),
        "slot_start": _texts([facts.start for facts in labels], slot),
        "slot_end": _texts([facts.end for facts in labels], slot),
        "status": _repeating(release.status),
        "vehicles": _counts(release.vehicles, release.bins),
        "records": _counts(release.records, release.bins),
    }
    for statistic in Statistic:
        if statistic in release.estimates:
            estimate = release.estimates[statistic]
            columns |= statistic_columns(estimate, release.bound.unit, release.display_unit)
            there = np.where(np.isnan(estimate.low), -1, 0)
            kind = _texts([release.interval_kind(statistic).value], there)
            columns[f"{statistic.stem}_interval_kind"] = kind
    return pd.DataFrame(columns)


def quantiles_frame(release: Release) -> pd.DataFrame:
    """Return the quantiles of ``release``: a row a bin and quantile, sorted by cell, slot and quantile.

    Columns: ``h3``, ``cell``, ``slot``, ``quantile``, ``speed``, ``rank_low``, ``rank_high``, ``status`` and
    ``epsilon``. Numbers as in ``published_frame``; no rows where there are no quantiles.
    """
    import pandas as pd

    release = release.every_bin
    own = sorted((each for each in QUANTILES if each in release.estimates), key=lambda each: QUANTILES[each])
    row = np.repeat(np.arange(release.bins), len(own))
    table: dict[str, object] = {}
    for each in own:
        table |= statistic_columns(release.estimates[each], release.bound.unit, release.display_unit)

    def beside(part: str, of: str, dtype: str) -> pd.Series:
        names = [f"{each.stem if of == 'stem' else each.column(release.display_unit)}{part}" for each in own]
        return pd.Series(pd.DataFrame(table)[names].to_numpy(dtype=object).ravel(), dtype=dtype)

    given = [release.estimates[each].noise.get("epsilon", np.full(release.bins, np.nan)) for each in own]
    return pd.DataFrame(
        {
            "h3": _spelled(release.grid, release.cell[row]),
            "cell": release.cell[row],
            "slot": release.slot[row],
            "quantile": np.tile([float(QUANTILES[each]) for each in own], release.bins),
            "speed": beside("", "column", "float64"),
            "rank_low": beside("_rank_low", "column", "Int64"),
            "rank_high": beside("_rank_high", "column", "Int64"),
            "status": beside("_status", "stem", "str"),
            "epsilon": np.array(given, dtype=np.float64).T.ravel(),
        }
    )


def slots_frame(release: Release) -> pd.DataFrame:
    """Return the slots that every row of a painted ``release`` stands for; no rows where it is not painted.

    Columns: ``slot``, ``slot_label``, and ``slot_start`` and ``slot_end`` as instants.
    """
    import pandas as pd

    own = sorted(release.slots.items()) if release.painted else []
    return pd.DataFrame(
        {
            "slot": np.array([slot for slot, _ in own], dtype=np.int64),
            "slot_label": pd.Series([facts.label for _, facts in own], dtype="str"),
            "slot_start": pd.to_datetime(pd.Series([facts.start for _, facts in own], dtype="str"), utc=True),
            "slot_end": pd.to_datetime(pd.Series([facts.end for _, facts in own], dtype="str"), utc=True),
        }
    )


def mechanism_frame(release: Release) -> pd.DataFrame:
    """Return how the noise of ``release`` was drawn, exactly: G rows as in ``published_frame``.

    A row a hexagon, without ``slot``, where slots are painted with their hexagon's numbers.
    Columns: ``h3``, ``slot``, and by every statistic's stem ``_status`` and the noise columns
    (``_lattice_scale`` and so on, NOISE_COLUMNS). Anyone with the counts can price the release from them;
    nobody needs them to read it.
    """
    import pandas as pd

    columns: dict[str, object] = {
        "h3": _spelled(release.grid, release.cell),
        **({} if release.painted else {"slot": release.slot}),
    }
    for statistic in Statistic:
        if statistic in release.estimates:
            estimate = release.estimates[statistic]
            columns[f"{statistic.stem}_status"] = _repeating(estimate.status)
            columns |= {f"{statistic.stem}_{name}": values for name, values in estimate.noise.items()}
    return pd.DataFrame(columns)


def _resolutions(release: Release) -> pd.Series:
    """The resolution of every hexagon, and none of zones."""
    import pandas as pd

    if release.grid.zones is not None:
        return pd.Series([None] * len(release.cell), dtype="Int64")
    if release.grid.mosaic is not None:
        return pd.Series(resolution_of(release.cell))
    return pd.Series(np.full(len(release.cell), release.grid.resolution, dtype=np.int64))


def _texts(different: Sequence[Any], place: npt.NDArray[np.int64]) -> pd.Series:
    """The texts ``different[place]``: a column of millions of rows says few of them."""
    import pandas as pd

    return pd.Series(pd.Series(different, dtype="str").array.take(place, allow_fill=True))


def _repeating(texts: npt.NDArray[np.object_]) -> pd.Series:
    import pandas as pd

    place, different = pd.factorize(texts)
    return _texts(different.tolist(), place)


def _spelled(grid: Grid, cell: npt.NDArray[np.uint64]) -> pd.Series:
    cells, place = np.unique(cell, return_inverse=True)
    return _texts(grid.spelled(cells), place)


def _slot_kinds(release: Release) -> pd.Series:
    if release.grid.mosaic is None:
        return _texts([release.grid.slot_kind.value], np.zeros(release.bins, dtype=np.int64))
    return _repeating(
        np.array([kind.value for kind in kinds_of(release.slot, release.grid.slot_kind)], dtype=object)
    )


def _counts(counts: npt.NDArray[np.int64] | None, bins: int) -> pd.Series:
    import pandas as pd

    if counts is None:
        return pd.Series([None] * bins, dtype="Int64")
    return pd.Series(counts, dtype="Int64")


def statistic_columns(estimate: Estimate, unit_of_bound: SpeedUnit, display: SpeedUnit) -> dict[str, object]:
    """Return the published columns of one statistic by name, G rows each, in the unit ``display``."""
    import pandas as pd

    factor = estimate.statistic.factor(unit_of_bound, display)
    name, stem = estimate.statistic.column(display), estimate.statistic.stem
    unit = 10.0**DECIMALS
    value = np.round(estimate.value * factor * unit) / unit
    there = ~np.isnan(estimate.value)
    ranks: dict[str, object] = {
        f"{name}_{end}": pd.Series(estimate.noise[end], dtype="Int64").where(there)
        for end in ("rank_low", "rank_high")
        if end in estimate.noise
    }
    return {
        name: value,
        # a value that rounding moved past its interval takes the interval's end with it
        f"{name}_low": np.minimum(np.floor(estimate.low * factor * unit) / unit, value),
        f"{name}_high": np.maximum(np.ceil(estimate.high * factor * unit) / unit, value),
        f"{name}_noise_scale": np.ceil(estimate.noise_scale * factor * unit) / unit,
        f"{name}_expected_error": np.ceil(estimate.expected_error * factor * unit) / unit,
        **ranks,
        f"{stem}_status": _repeating(estimate.status),
    }
