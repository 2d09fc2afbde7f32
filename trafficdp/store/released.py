"""`released.duckdb`: what analysts open. Built in a new file from Release objects and swapped in.

Dropped rows survive in a DuckDB file's pages, so nothing is ever deleted or altered here, and nothing is
copied from the vault: the only way in is a Release.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa

from trafficdp._durable import sync_folder
from trafficdp.errors import StoreDamagedError
from trafficdp.model import OF_MAPS, QUANTILES, SpeedUnit, Statistic, as_json
from trafficdp.privacy.estimate import POSTERIOR_ENDS, POSTERIOR_SHARES, POSTERIOR_SPEEDS
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.release import Release, published_frame, quantiles_frame
from trafficdp.store import store_files

STORAGE_VERSION = "v1.2.0"
"""Format of the file: DuckDB clients from 1.2 on open it."""

_PLAIN = ("hex_id", "place", "resolution", "slot", "slot_kind", "slot_label", "status", "vehicles", "records")
_empty: dict[tuple[SpeedUnit, ...], bytes] = {}
"""The files without a row that this process made, by the units of their columns."""
_PARTS = ("", "_low", "_high", "_noise_scale", "_expected_error")


@dataclass(frozen=True)
class Publication:
    """One publication of a stream: the map as it stood at ``as_of``; ``sequence`` is its ledger entry."""

    number: int
    as_of: datetime
    sequence: int
    release: Release


def build_released(
    folder: Path,
    releases: Sequence[tuple[Release, bool]],
    publications: Sequence[Publication] = (),
) -> None:
    """Write `released.duckdb` in ``folder`` anew, in one move.

    ``releases`` are (release, whether it is withdrawn), ``publications`` those of all streams, in order.
    Raises StoreDamagedError when the result fails its audits (and leaves the old file in place).
    """
    shown = [*(each for each, *_ in releases), *(each.release for each in publications)]
    units = tuple(sorted({each.request.display_unit for each in shown}))
    with _swapped(folder) as path:
        if units in _empty:
            path.write_bytes(_empty[units])
        else:
            made = f"STORAGE_VERSION '{STORAGE_VERSION}'"
            with store_files.attached(path, "released", made, threads="1") as connection:
                connection.begin()
                connection.execute(store_files.script("tables/released"))
                for unit in units:
                    connection.execute(_in(unit, "tables/speeds"))
                connection.execute(store_files.script("views/released"))
                connection.commit()
                # all of it into the one file, not into a log beside it
                connection.execute("CHECKPOINT released")
            _empty[units] = path.read_bytes()
        with store_files.attached(path, "released", "READ_WRITE", threads="1") as connection:
            connection.begin()
            for release, withdrawn in releases:
                _insert(connection, release, {} if withdrawn else _tables(release), withdrawn)
            for publication in publications:
                _insert_publication(connection, publication)
            _finish(connection, units)


def append_publications(folder: Path, publications: Sequence[Publication]) -> bool:
    """Add publications to a copy of `released.duckdb` and swap it in; False where that cannot be done.

    That is when there is no such file, another version wrote it, or the publications do not follow those that
    it holds: then call ``build_released``. What is in the file stays as it is, apart from the stream's newest
    words.
    """
    if not publications:
        return True
    stream = publications[0].release
    with suppress(_NotToBeExtended), _extension(folder, stream, _tables(stream)) as connection:
        held = "SELECT coalesce(max(number), 0) FROM publications WHERE release_id = ?"
        ((newest,),) = connection.execute(held, [stream.id]).fetchall()
        if publications[0].number != newest + 1:
            raise _NotToBeExtended
        for publication in publications:
            _insert_publication(connection, publication)
        return True
    return False


def append_release(folder: Path, release: Release, before: Mapping[str, bool]) -> bool:
    """Add a release to a copy of `released.duckdb` and swap it in; False where that cannot be done.

    That is when there is no such file, another version wrote it, or its releases are not just those of
    ``before`` (names, and whether they are withdrawn) and streams: then call ``build_released``. What is in
    the file stays as it is, and only the new release is audited.
    """
    tables = _tables(release)
    with suppress(_NotToBeExtended), _extension(folder, release, tables) as connection:
        held = (
            "SELECT release_id, status = 'withdrawn' FROM releases "
            "WHERE release_id NOT IN (SELECT release_id FROM publications)"
        )
        if dict(connection.execute(held).fetchall()) != before:
            raise _NotToBeExtended
        _insert(connection, release, tables)
        return True
    return False


class _NotToBeExtended(Exception):
    pass


@contextmanager
def _swapped(folder: Path) -> Iterator[Path]:
    """Give the block a path to write a database to, then let it replace `released.duckdb` in one move.

    ``folder`` holds `released.duckdb`. After an error the old file stays.
    """
    half_made = folder / store_files.HALF_RELEASED
    with store_files.store_failures("writing released.duckdb", store_files.RELEASED_NAME):
        store_files.remove_leftovers(folder)
        try:
            yield half_made
            with open(half_made, "rb") as file:
                os.fsync(file.fileno())
            os.replace(half_made, folder / store_files.RELEASED_NAME)
        except BaseException:
            with suppress(OSError):
                store_files.remove_leftovers(folder)
            raise
        sync_folder(folder)


@contextmanager
def _extension(
    folder: Path, release: Release, tables: Mapping[str, pa.Table]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Context manager: let the block write to a copy of `released.duckdb`, then swap the copy in.

    ``tables`` are the rows of ``release`` to be written. Raises _NotToBeExtended where there is no file, or
    it lacks a column of them; the block may raise it too.
    """
    needed = {f"{table}.{name}" for table, own in tables.items() for name in own.column_names}
    if not (folder / store_files.RELEASED_NAME).exists():
        raise _NotToBeExtended
    with _swapped(folder) as path:
        shutil.copyfile(folder / store_files.RELEASED_NAME, path)
        with store_files.attached(path, "released", "READ_WRITE", threads="1") as connection:
            columns = "SELECT table_name || '.' || column_name FROM duckdb_columns()"
            there = {str(name) for (name,) in connection.execute(columns).fetchall()}
            if not {"cells.publication", *needed} <= there:
                raise _NotToBeExtended
            connection.begin()
            yield connection
            units = [unit for unit in SpeedUnit if f"quantiles.speed_{unit.value}" in there]
            _finish(connection, units, release.id)


def _finish(
    connection: duckdb.DuckDBPyConnection, units: Sequence[SpeedUnit], release_id: str | None = None
) -> None:
    """Commit; raise StoreDamagedError when the file, with speeds in ``units``, fails its audits.

    With ``release_id`` only that release is audited.
    """
    connection.commit()
    # all of it into the one file: a log beside it would not be swapped in
    connection.execute("CHECKPOINT released")
    problems = [
        problem
        for audit in (store_files.script("audits/released"), *(_in(unit, "audits/speeds") for unit in units))
        for problem in connection.execute(audit, {"release_id": release_id}).fetchall()
    ]
    if problems:
        raise StoreDamagedError(
            "released.duckdb fails its audits", got="; ".join(str(problem[0]) for problem in problems)
        )


def _in(unit: SpeedUnit, name: str) -> str:
    """Return the SQL script ``name``, which is written for km/h, changed to speeds in ``unit``."""
    return store_files.script(name).replace(SpeedUnit.KILOMETRES_PER_HOUR.value, unit.value)


def _insert_publication(connection: duckdb.DuckDBPyConnection, publication: Publication) -> None:
    """Write one publication of a stream, and its rows.

    The first adds the stream to the table of releases; every later one renews its disclosure there.
    """
    release = publication.release
    if publication.number > 1:
        renewed = [canonical(as_json(release.disclosure)), release.id]
        connection.execute("UPDATE releases SET disclosure = ? WHERE release_id = ?", renewed)
    row = [release.id, publication.number, publication.as_of, publication.sequence]
    connection.execute("INSERT INTO publications VALUES (?, ?, ?, ?)", row)
    _insert(connection, release, _tables(release), publication=publication.number)


def _insert(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    tables: Mapping[str, pa.Table],
    withdrawn: bool = False,
    publication: int | None = None,
) -> None:
    """Write the row of a release, which the first of its publications does for all, and its ``tables``."""
    if publication is None or publication == 1:
        row = _release_row(release, withdrawn)
        connection.execute(f"INSERT INTO releases VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    for table, rows in tables.items():
        if table == "cells":
            rows = rows.append_column("publication", pa.array([publication] * len(rows), pa.int64()))
        if len(rows):
            with store_files.registered(connection, "incoming", rows):
                connection.execute(f"INSERT INTO {table} BY NAME FROM incoming")


def _release_row(release: Release, withdrawn: bool) -> list[object]:
    factor = float(release.request.bound.unit.factor_to(release.request.display_unit))
    return [
        release.id,
        release.created_at,
        "withdrawn" if withdrawn else "published",
        Decimal(release.disclosure.guarantee.epsilon),
        release.disclosure.unit.neighbouring_relation,
        release.grid.resolution,
        release.grid.slot_kind.value,
        release.grid.period.first,
        release.grid.period.last,
        release.grid.period.time_zone,
        release.request.display_unit.value,
        float(release.request.bound.upper) * factor,
        release.request.interval_level,
        release.request.min_vehicles,
        release.ledger.sequence,
        release.ledger.head_hash,
        canonical(as_json(release.disclosure)),
    ]


def _columns_of(statistic: Statistic, unit: SpeedUnit) -> list[str]:
    name, stem = statistic.column(unit), statistic.stem
    # what only a posterior says
    spread = statistic is Statistic.VARIANCE
    speeds = [f"{name}_{each}" for each in (POSTERIOR_ENDS if spread else POSTERIOR_SPEEDS)]
    shares = [] if spread else [f"{stem}_{each}" for each in POSTERIOR_SHARES]
    numbers = [f"{name}{part}" for part in _PARTS]
    return [*numbers, *speeds, *shares, f"{stem}_status", f"{stem}_interval_kind"]


def _tables(release: Release) -> dict[str, pa.Table]:
    """What the tables of the database hold of ``release``, by their names; none of no rows."""
    import pandas as pd

    published = published_frame(release)
    present = [statistic for statistic in OF_MAPS if statistic in release.estimates]
    names = [name for statistic in present for name in _columns_of(statistic, release.request.display_unit)]
    # NaN means null here: withheld numbers are absent, not not-a-numbers
    there = [*_PLAIN, *(name for name in names if name in published)]
    rows = pa.Table.from_pandas(published[there], preserve_index=False)
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    columns |= {name: pa.nulls(len(rows)) for name in names if name not in published}
    columns["release_id"] = pa.repeat(release.id, len(rows))
    columns["cell"] = pa.array(release.cell)
    for name in ("slot_start", "slot_end"):
        columns[name] = pa.array(pd.to_datetime(published[name], utc=True))
    nothing = pa.nulls(len(rows))
    for statistic in OF_MAPS:
        estimate = release.estimates.get(statistic)
        if estimate is None:
            columns |= dict.fromkeys(_columns_of(statistic, release.request.display_unit), nothing)
        epsilon = None if estimate is None else estimate.noise.get("epsilon")
        known = nothing if epsilon is None else pa.array(epsilon, from_pandas=True)
        columns[f"{statistic.stem}_epsilon"] = known
    found = {"cells": pa.table(columns)}
    if QUANTILES.keys() & release.estimates.keys():
        quantiles = quantiles_frame(release)
        quantiles = quantiles.rename(columns={"speed": f"speed_{release.request.display_unit.value}"})
        quantiles.insert(0, "release_id", release.id)
        table = pa.Table.from_pandas(quantiles, preserve_index=False)
        found["quantiles"] = table.replace_schema_metadata(None)
    return found


def differing_release(folder: Path, releases: Iterable[Release]) -> str | None:
    """Return the name of the first of ``releases`` that `released.duckdb` states otherwise; None if none is.

    Compared are its row in releases, and its rows in cells and quantiles.
    """
    stored = {
        "cells": "SELECT * FROM cells WHERE release_id = ? ORDER BY cell, slot",
        "quantiles": "SELECT * FROM quantiles WHERE release_id = ? ORDER BY cell, slot, quantile",
    }
    with _opened(folder) as connection:
        for release in releases:
            expected = _tables(release)
            if not _is_listed(connection, release):
                return release.id
            for table, asked in stored.items():
                rows = connection.sql(asked, params=[release.id]).to_arrow_table()
                if not (_holds(rows, expected[table]) if table in expected else not len(rows)):
                    return release.id
    return None


@contextmanager
def _opened(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Context manager: open `released.duckdb` of ``folder`` for reading."""
    path = folder / store_files.RELEASED_NAME
    with (
        store_files.store_failures("reading released.duckdb", store_files.RELEASED_NAME),
        store_files.attached(path, "released", "READ_ONLY", threads="1") as connection,
    ):
        yield connection


def publications_match(folder: Path, publications: Sequence[Publication]) -> bool:
    """Return whether `released.duckdb` holds exactly these publications of one stream, number by number."""
    newest = publications[-1]
    name = newest.release.id
    with _opened(folder) as connection:
        listed = connection.execute(
            "SELECT number, epoch_us(as_of), ledger_sequence FROM publications "
            "WHERE release_id = ? ORDER BY number",
            [name],
        ).fetchall()
        expected = [
            (each.number, store_files.microseconds(each.as_of), each.sequence) for each in publications
        ]
        numbers = "SELECT DISTINCT publication FROM cells WHERE release_id = ?"
        return (
            listed == expected
            and {number for (number,) in connection.execute(numbers, [name]).fetchall()}
            <= {each.number for each in publications}
            and _is_listed(connection, newest.release)
            and all(_publication_matches(connection, each) for each in publications)
        )


def _is_listed(connection: duckdb.DuckDBPyConnection, release: Release) -> bool:
    """Whether the row in releases says what it must of a ``release`` that is not withdrawn."""
    asked = "SELECT * REPLACE (epoch_us(created_at) AS created_at) FROM releases WHERE release_id = ?"
    row = _release_row(release, withdrawn=False)
    row[1] = store_files.microseconds(release.created_at)
    return [list(found) for found in connection.execute(asked, [release.id]).fetchall()] == [row]


def _publication_matches(connection: duckdb.DuckDBPyConnection, publication: Publication) -> bool:
    asked = "SELECT * FROM cells WHERE release_id = ? AND publication = ? ORDER BY cell, slot"
    of = [publication.release.id, publication.number]
    stored = connection.sql(asked, params=of).to_arrow_table()
    return _holds(stored, _tables(publication.release)["cells"], publication.number)


def _holds(stored: pa.Table, expected: pa.Table, publication: int | None = None) -> bool:
    """Whether ``stored`` has the rows of ``expected``, and beside them nothing but the ``publication``."""
    if stored.num_rows != expected.num_rows:
        return False
    for name in stored.column_names:
        column = stored.column(name)
        if name == "publication":
            same = set(column.to_pylist()) <= {publication}
        elif name not in expected.column_names:
            same = column.null_count == len(column)
        else:
            same = column.equals(expected.column(name).cast(column.type))
        if not same:
            return False
    return True
