"""`trafficdp sql`: any query on what is released. It needs neither vault nor key, and costs nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from trafficdp._validate import one_of
from trafficdp.cli.output import Output, shorten
from trafficdp.cli.settings import Settings
from trafficdp.cli.shell import run_script, run_shell
from trafficdp.config import read_places
from trafficdp.errors import UsageError
from trafficdp.export.query_result import FORMATS, cell_texts, json_rows, result_bytes, write_result
from trafficdp.store.analyst import COLUMNS, DEFAULT_TIMEOUT, TABLES, AnalystSession
from trafficdp.store.released import RELEASED_NAME
from trafficdp.store_setup import store_path

TABLE = "table"
MOST_SHOWN = 1000
"""Rows that a table on the screen has."""
PROSE = 40
"""A column with a longer text than this may be folded on a narrow terminal."""


def sql(
    context: typer.Context,
    query: Annotated[
        str | None, typer.Argument(help="One statement; without it, a shell.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Argument(help="File to write the rows to.", show_default=False)] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help=" | ".join((TABLE, *FORMATS)), metavar="<format>", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="A released.duckdb, instead of the store's.", metavar="<file>", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="<seconds>", help="How long a query may take.")
    ] = DEFAULT_TIMEOUT,
) -> None:
    """Ask the released maps anything in SQL. It is free, and reads nothing else.

    Without a query it is a shell (\\q leaves, \\d lists what there is) or, fed from a pipe, runs what
    comes until an error.
    """
    settings: Settings = context.obj
    form = _format(to, out, settings.output)
    path = _released(settings) if file is None else file
    with AnalystSession.open(path, timeout=timeout) as session:
        asked = _Asked(session, settings.output, form, out)
        if query is not None:
            asked.run(query)
        elif sys.stdin is not None and sys.stdin.isatty():
            run_shell(asked.run, asked.describe, settings.output)
        else:
            run_script(_piped(), asked.run)


def _format(to: str | None, out: Path | None, output: Output) -> str:
    """Return the format that is asked for, or that the name of the file says."""
    named = (out.suffix[1:].lower() if out.suffix[1:].lower() in FORMATS else "") if out else TABLE
    form = to or named
    if not form:
        raise UsageError(
            "the file's name does not say its format",
            got=str(out),
            expected="one that ends in ." + ", .".join(FORMATS),
            todo="add --to",
        )
    one_of((TABLE, *FORMATS), to=form)
    if out is not None and form == TABLE:
        raise UsageError("a table is for the screen", got=f"the file {out}", expected=", ".join(FORMATS))
    if output.as_json and out is None and form != TABLE:
        raise UsageError("--json and --to are two formats", todo="leave one out, or name a file")
    return form


def _released(settings: Settings) -> Path:
    configured = None
    if settings.store is None and settings.config.exists():
        configured = read_places(settings.config)[0]
    return store_path(settings.config, settings.store, configured) / RELEASED_NAME


def _piped() -> str:
    return "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What becomes of a statement: it is run, and its rows go where they should."""

    session: AnalystSession
    output: Output
    form: str
    out: Path | None

    def run(self, query: str) -> None:
        rows = self.session.run(query)
        if self.out is not None:
            self._write(rows, self.out)
        elif self.form != TABLE:
            typer.echo(self._bytes(rows), nl=False)
        else:
            self._show(rows)

    def _bytes(self, rows: pa.Table) -> bytes:
        if self.form == "parquet" and sys.stdout.isatty():
            raise UsageError("Parquet is not for the screen", todo="name a file, or pipe it into a program")
        return result_bytes(rows, self.form)

    def _write(self, rows: pa.Table, path: Path) -> None:
        if path.exists() and path.samefile(self.session.path):
            raise UsageError("this would overwrite the released database", got=str(path))
        size = write_result(rows, self.form, path)
        self.output.say(f"wrote {shorten(path)}: {rows.num_rows:,} rows")
        self.output.result({"file": str(path), "format": self.form, "rows": rows.num_rows, "bytes": size})

    def _show(self, rows: pa.Table) -> None:
        if self.output.as_json:
            named = [{"name": field.name, "type": str(field.type)} for field in rows.schema]
            self.output.result({"columns": named, "rows": json_rows(rows)})
            return
        shown = rows.slice(0, MOST_SHOWN)
        columns = [cell_texts(shown, name) for name in shown.column_names]
        prose = [
            name for name, texts in zip(shown.column_names, columns, strict=True) if _longest(texts) > PROSE
        ]
        self.output.table("", shown.column_names, list(zip(*columns, strict=True)), prose=prose)
        self.output.say("1 row" if rows.num_rows == 1 else f"{rows.num_rows:,} rows")
        if rows.num_rows > MOST_SHOWN:
            self.output.warn(
                f"these are the first {MOST_SHOWN:,} of {rows.num_rows:,} rows; --to csv has them all"
            )

    def describe(self, name: str) -> None:
        """Show what there is to read, or the columns of ``name``."""
        rows = self.session.run(COLUMNS if name else TABLES)
        if name:
            kept = [position for position, each in enumerate(rows["name"].to_pylist()) if each == name]
            if not kept:
                raise UsageError("there is no such table or view", got=name, todo="\\d lists them")
            rows = rows.take(kept).drop_columns(["name"])
        columns = [cell_texts(rows, column) for column in rows.column_names]
        self.output.table(name, rows.column_names, list(zip(*columns, strict=True)), prose=("comment",))


def _longest(texts: list[str]) -> int:
    return max(map(len, texts), default=0)
