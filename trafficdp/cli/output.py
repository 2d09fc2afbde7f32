"""What the command line prints: for people, for scripts (--json), or nothing (--quiet)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


class Output:
    """Prints results on standard output and everything else on standard error."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._console = Console(highlight=False, soft_wrap=True)
        self._errors = Console(stderr=True, highlight=False, soft_wrap=True)

    def result(self, facts: Mapping[str, object]) -> None:
        """Print ``facts`` as JSON when that was asked for."""
        if self.as_json:
            print(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not (self.as_json or self.quiet):
            self._console.print(text, markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table for people; numbers are aligned to the right."""
        if self.as_json or self.quiet:
            return
        table = Table(title=title, title_justify="left")
        for index, name in enumerate(columns):
            numeric = bool(rows) and all(isinstance(row[index], (int, float)) for row in rows)
            table.add_column(name, justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        self._console.print(table)

    def warn(self, text: str) -> None:
        """Print a line on standard error, even with --json, unless --quiet."""
        if not self.quiet:
            self._errors.print(text, markup=False)

    def error(self, text: str) -> None:
        """Print the one line of an error, always."""
        self._errors.print(f"trafficdp: {text}", markup=False)

    @contextmanager
    def bars(self) -> Iterator[Progress | None]:
        """Show progress bars on standard error while the block runs; None where nobody would see them."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._errors, transient=True) as progress:
            yield progress

    @contextmanager
    def spinner(self, text: str) -> Iterator[None]:
        """Show that something is going on while the block runs."""
        if self.quiet or not sys.stderr.isatty():
            yield
            return
        with self._errors.status(text):
            yield


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shorten(path: Path) -> str:
    """Return ``path`` as people would type it: relative to here when it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
