"""The command `sql`, and statements from a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from trafficdp.cli.options import GAP, Output, Settings, longest_word, relative_path, with_options
from trafficdp.config.document import read_places, store_and_key
from trafficdp.errors import TrafficdpError, UsageError, one_of
from trafficdp.export.files import query_result
from trafficdp.model import Zones
from trafficdp.query.recognise import is_priced
from trafficdp.store.analyst import COLUMNS, DEFAULT_TIMEOUT, TABLES, AnalystSession
from trafficdp.store.store_files import RELEASED_NAME

PROMPT = "trafficdp> "
CONTINUED = "      ...> "
HELP = (
    "\\d lists tables and views, \\d NAME the columns of one, \\x shows rows one below the other "
    "(again: as a table), \\q leaves; anything else is SQL up to a ;"
)
_QUOTES = {"'": "'", '"': '"', "--": "\n", "/*": "*/", "$$": "$$"}

Run = Callable[[str], None]


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements of ``text`` that end in ``;``, and what comes after the last.

    A ``;`` within quotes, ``$$`` or a comment ends nothing.
    """
    statements: list[str] = []
    start = position = 0
    while position < len(text):
        opener = next((each for each in _QUOTES if text.startswith(each, position)), None)
        if opener is not None:
            end = text.find(_QUOTES[opener], position + len(opener))
            if end < 0:
                break
            position = end + len(_QUOTES[opener])
        elif text[position] == ";":
            statements.append(text[start:position])
            position += 1
            start = position
        else:
            position += 1
    return [statement for statement in statements if statement.strip()], text[start:]


def run_script(text: str, run: Run) -> None:
    """Run every statement of ``text``; the first error ends it. The last needs no ``;``."""
    statements, rest = split_statements(text)
    if rest.strip():
        statements.append(rest)
    for statement in statements:
        run(statement)


def run_shell(run: Run, describe: Run, toggle_expanded: Callable[[], None], output: Output) -> None:
    """Read statements from the terminal and ``run`` them until ``\\q``; errors are shown and forgotten.

    ``describe`` answers ``\\d``: with nothing, or with the name of a table. ``toggle_expanded`` answers
    ``\\x``.
    """
    with suppress(ImportError):
        # the import alone gives input() a history
        import readline  # noqa: F401 - for its effect
    output.say(HELP)
    for statement in _typed(output):
        try:
            if statement.startswith("\\"):
                _command(statement, describe, toggle_expanded, output)
            else:
                run(statement)
        except TrafficdpError as error:
            output.error(str(error))
        except KeyboardInterrupt:
            output.warn("interrupted")


def _command(text: str, describe: Run, turn: Callable[[], None], output: Output) -> None:
    name, _, rest = text.partition(" ")
    if name == "\\?":
        output.say(HELP)
    elif name == "\\d":
        describe(rest.strip())
    elif name == "\\x":
        turn()
    else:
        raise UsageError(
            "there is no such command", got=f"{text:.40}", expected="\\d, \\d NAME, \\x, \\q or \\?"
        )


def _typed(output: Output) -> Iterator[str]:
    """Yield statements without their ``;`` and commands that start with a backslash, until the end."""
    pending = ""
    while True:
        try:
            line = input(CONTINUED if pending.strip() else PROMPT)
        except EOFError:
            output.say("")
            return
        except KeyboardInterrupt:
            pending = ""
            output.say("")
            continue
        command = line.strip().rstrip(";")
        if not pending.strip() and command.startswith("\\"):
            if command == "\\q":
                return
            yield command
            continue
        statements, pending = split_statements(f"{pending}{line}\n")
        yield from statements


TABLE = "table"
MOST_SHOWN = 1000
"""Rows that a table on the screen has."""
PROSE = 32
"""Only a column with a longer text than this is folded: names stay whole."""
WIDEST = 120
"""Letters of a line where there is no terminal."""
NAMES = 2
"""So many leading columns of texts say what a row is."""


@dataclass(frozen=True)
class QueryOptions:
    """Where a query goes, who asks it, and what becomes of the rows."""

    to: Annotated[
        str | None,
        typer.Option("--to", help=" | ".join(query_result.FORMATS), metavar="<format>", show_default=False),
    ] = None
    table: Annotated[
        bool, typer.Option("--table", help="A table, where there is no terminal too; otherwise it is CSV.")
    ] = False
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="A released.duckdb, instead of the store's.", metavar="<file>", show_default=False
        ),
    ] = None
    analyst: Annotated[
        str | None,
        typer.Option("--as", help="Who asks: a name of [[analysts]].", metavar="<name>", show_default=False),
    ] = None
    own: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="Your own CSV, Parquet or JSON: a table of its name.",
            metavar="<file>",
            show_default=False,
        ),
    ] = None
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="<seconds>", help="How long a query may take.")
    ] = DEFAULT_TIMEOUT


@with_options
def sql(
    context: typer.Context,
    *,
    query: Annotated[
        str | None, typer.Argument(help="One statement; without it, a shell.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Argument(help="File to write the rows to.", show_default=False)] = None,
    options: QueryOptions,
) -> None:
    """Ask the released maps anything in SQL, free. SELECT WITH DIFFERENTIAL_PRIVACY ... asks the records.

    A question to the records is charged like a release, to the vehicles and to the analyst (--as). EXPLAIN
    SELECT WITH DIFFERENTIAL_PRIVACY ... shows the price and the errors, free.

    Without a query it opens a shell (\\q leaves, \\d lists tables, \\x shows a wide row as a column). From a
    pipe it runs the statements one by one, and stops at an error.
    """
    settings: Settings = context.obj
    with closing(_Asked(settings, options, _format(options, out, settings.output), out)) as asked:
        if query is not None:
            asked.run(query)
        elif sys.stdin is not None and sys.stdin.isatty():
            # a shell without anything to read would help nobody
            asked.session()
            run_shell(asked.run, asked.describe, asked.toggle_expanded, settings.output)
        else:
            piped = b"" if sys.stdin is None else sys.stdin.buffer.read()
            run_script(piped.decode("utf-8", "replace"), asked.run)


def _format(options: QueryOptions, out: Path | None, output: Output) -> str:
    """Return the format that is asked for, or that the name of the file says; TABLE is for the screen."""
    to, table = options.to, options.table
    if to is None and out is None:
        return TABLE if table or output.columns or output.as_json or output.quiet else "csv"
    form = to or (out.suffix[1:].lower() if out is not None else "")
    if to is None and form not in query_result.FORMATS:
        raise UsageError(
            "the file's name does not say its format",
            got=str(out),
            expected="one that ends in ." + ", .".join(query_result.FORMATS),
            todo="add --to",
        )
    one_of(query_result.FORMATS, to=form)
    if table:
        raise UsageError("--table is for the screen", got=f"--to {to}" if to else f"the file {out}")
    if output.as_json and out is None:
        raise UsageError("--json and --to are two formats", todo="leave one out, or name a file")
    return form


@dataclass
class _Asked:
    """Runs statements, and prints their rows or writes them to ``out``."""

    settings: Settings
    options: QueryOptions
    form: str
    out: Path | None
    opened: AnalystSession | None = None
    turned: bool = False

    @property
    def output(self) -> Output:
        return self.settings.output

    @property
    def path(self) -> Path:
        """The file of the released database."""
        if self.options.file is not None:
            return self.options.file
        config, store = self.settings.config, self.settings.store
        configured = read_places(config)[0] if store is None and config.exists() else None
        return store_and_key(config, store, configured, None)[0] / RELEASED_NAME

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the asker's own that queries may read."""
        return tuple(self.options.own or ())

    def session(self) -> AnalystSession:
        """Return the session on the released database, opened when it is first needed."""
        if self.opened is None:
            self.opened = AnalystSession(self.path, timeout=self.options.timeout, files=self.files)
        return self.opened

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def run(self, query: str) -> None:
        facts: dict[str, object] = {}
        if is_priced(query):
            rows, facts = self._priced(query)
        else:
            rows = self.session().run(query)
        if self.out is not None:
            self._write(rows, self.out)
        elif self.form != TABLE:
            typer.echo(self._bytes(rows), nl=False)
        else:
            self._show(rows, facts)

    def _priced(self, query: str) -> tuple[pa.Table, dict[str, object]]:
        """Return the rows of a priced question, and the facts on its charge that JSON output adds."""
        if self.options.file is not None:
            raise UsageError(
                "a priced question is for the store, not for a file",
                got=f"--file {self.options.file}",
                todo="leave out --file, or ask the file something free",
            )
        with self.output.spinner("asking the records"):
            city = self.settings.workspace()
            found = city.ask(
                query, analyst=self.options.analyst, files=self.files, timeout=self.options.timeout
            )
        # loaded by now: a free question does not wait for it
        from trafficdp.query.answer import Explanation

        if isinstance(found, Explanation):
            return found.rows, {"charged": "0", "release": found.earlier_release}
        # what was released now is to be seen by the next query
        self.close()
        for note in found.notes:
            self.output.warn(note)
        return found.rows, {"charged": str(found.charged), "release": found.release_id}

    def _bytes(self, rows: pa.Table) -> bytes:
        if self.form == "parquet" and sys.stdout.isatty():
            raise UsageError("Parquet is not for the screen", todo="name a file, or pipe it into a program")
        return query_result.result_bytes(rows, self.form, self._zones())

    def _zones(self) -> Zones | None:
        """Return the zones that GeoJSON may have to draw."""
        if self.form != query_result.GEOJSON or not self.settings.config.exists():
            return None
        return self.settings.places()[0].grid.zones

    def _write(self, rows: pa.Table, path: Path) -> None:
        released = self.path
        if path.exists() and released.exists() and path.samefile(released):
            raise UsageError("this would overwrite the released database", got=str(path))
        size = query_result.write_result(rows, self.form, path, self._zones())
        self.output.say(f"wrote {relative_path(path)}: {rows.num_rows:,} rows")
        self.output.result({"file": str(path), "format": self.form, "rows": rows.num_rows, "bytes": size})

    def _show(self, rows: pa.Table, facts: dict[str, object]) -> None:
        if self.output.as_json:
            named = [{"name": each.name, "type": str(each.type)} for each in rows.schema]
            self.output.result({"columns": named, "rows": query_result.json_rows(rows), **facts})
            return
        shown = rows.slice(0, MOST_SHOWN)
        columns = {name: query_result.cell_texts(shown, name) for name in shown.column_names}
        fitting = self._fitting(shown, columns)
        hidden = len(columns) - len(fitting)
        if self.turned or (hidden and rows.num_rows == 1):
            hidden = 0
            for number, row in enumerate(zip(*columns.values(), strict=True), 1):
                below = list(zip(columns, row, strict=True))
                self.output.table(f"row {number}", ["column", "value"], below, prose=("value",))
        else:
            self._table(columns, fitting)
        rows_there = "1 row" if rows.num_rows == 1 else f"{rows.num_rows:,} rows"
        left_out = (
            f"; {hidden} of {len(columns)} columns do not fit: \\x in the shell, or name them in SELECT"
        )
        self.output.say(rows_there + (left_out if hidden else ""))
        if rows.num_rows > MOST_SHOWN:
            self.output.warn(
                f"these are the first {MOST_SHOWN:,} of {rows.num_rows:,} rows; --to csv has them all"
            )

    def _fitting(self, rows: pa.Table, columns: dict[str, list[str]]) -> list[str]:
        """Return the names of the columns that fit on the terminal, or on a line of WIDEST letters.

        The first NAMES columns of text are kept first, then measured numbers from the right, then all
        others.
        """
        names = list(columns)
        widths = {
            name: min(_longest([name, *texts]), max(PROSE, longest_word([name, *texts])))
            for name, texts in columns.items()
        }
        room = self.output.columns or WIDEST
        if sum(widths.values()) + GAP * len(names) <= room:
            return names
        texts = list(takewhile(lambda name: not _numeric(rows, name), names))
        numbers = [name for name in reversed(names) if _numeric(rows, name)]
        room -= 1 + GAP
        kept: set[str] = set()
        for name in dict.fromkeys([*texts[:NAMES], *numbers, *names]):
            if not kept or widths[name] + GAP <= room:
                kept.add(name)
                room -= widths[name] + GAP
        return [name for name in names if name in kept]

    def _table(self, columns: dict[str, list[str]], shown: list[str]) -> None:
        """Show the columns that are named, and dots for the first that is left out."""
        left_out = [name for name in columns if name not in shown]
        if left_out:
            columns = {**columns, left_out[0]: ["\u2026"] * len(columns[left_out[0]])}
        names = [name for name in columns if name in shown or name in left_out[:1]]
        rows = list(zip(*(columns[name] for name in names), strict=True))
        titles = ["\u2026" if name in left_out else name for name in names]
        prose = [name for name in shown if _longest(columns[name]) > PROSE]
        self.output.table("", titles, rows, prose=prose)

    def toggle_expanded(self) -> None:
        """Show rows one below the other from now on, or as a table again."""
        self.turned = not self.turned
        self.output.say("rows one below the other" if self.turned else "rows as a table")

    def describe(self, name: str) -> None:
        """Show what there is to read, or the columns of ``name``."""
        rows = self.session().run(COLUMNS if name else TABLES)
        if name:
            kept = [position for position, each in enumerate(rows["name"].to_pylist()) if each == name]
            if not kept:
                raise UsageError("there is no such table or view", got=name, todo="\\d lists them")
            rows = rows.take(kept).drop_columns(["name"])
        columns = [query_result.cell_texts(rows, column) for column in rows.column_names]
        self.output.table(name, rows.column_names, list(zip(*columns, strict=True)), prose=("comment",))


def _numeric(rows: pa.Table, name: str) -> bool:
    """Return whether column ``name`` holds floating-point numbers, not all of them null."""
    column = rows[name]
    return bool(pa.types.is_floating(column.type)) and column.null_count < len(column)


def _longest(texts: list[str]) -> int:
    return max(map(len, texts), default=0)
