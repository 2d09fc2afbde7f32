"""What all commands share: the options before the command and those of maps, and how they say things.

What is printed is for people, for scripts (--json), or nothing (--quiet). Results go to standard output,
everything else to standard error. Colours, progress bars and spinners appear on a terminal only. Numbers are
never cut, however narrow the terminal: tables fold their prose, rows of a query leave out columns, and what
still does not fit is wider than the terminal.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, get_type_hints
from zoneinfo import ZoneInfo

import typer
from rich.console import Console

from trafficdp._durable import from_os_error
from trafficdp.errors import TrafficdpError, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from trafficdp.config.settings import Config
    from trafficdp.model import SlotKind
    from trafficdp.privacy.loss import Loss
    from trafficdp.workspace import Workspace

KEYWORD = inspect.Parameter.KEYWORD_ONLY
GAP = 3
"""Letters between two columns of a table."""
WIDEST = 120
"""Letters that a line has at most, however wide the terminal is."""


class Output:
    """Prints results on standard output and everything else on standard error."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._console, self._errors = (
            _PlainConsole(
                stderr=to_errors,
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=True,
                force_terminal=stream is not None and stream.isatty(),
            )
            for to_errors, stream in ((False, sys.stdout), (True, sys.stderr))
        )

    def result(self, facts: Mapping[str, object]) -> None:
        """Print ``facts`` as JSON in ASCII if --json was given; else do nothing."""
        if self.as_json:
            with _nobody_may_read():
                print(json.dumps(facts, indent=2, allow_nan=False), flush=True)

    def say(self, text: str) -> None:
        """Print a line for people, unless --json or --quiet was given."""
        if not (self.as_json or self.quiet):
            self._console.print_words(text)

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        prose: Collection[str] = (),
    ) -> None:
        """Print a table for people; numbers are aligned to the right.

        Columns named in ``prose`` are folded on a narrow terminal, all others are printed whole.
        """
        if self.as_json or self.quiet:
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        cells = [[strip_control_characters(_cell(value)) for value in row] for row in rows]
        texts = [[name, *(row[index] for row in cells)] for index, name in enumerate(columns)]
        whole = [max(map(len, column)) for column in texts]
        least = [
            longest_word(column) if name in prose else width
            for name, column, width in zip(columns, texts, whole, strict=True)
        ]
        most = (
            whole
            if self.columns is None
            else fit_column_widths(whole, least, self.columns - GAP * len(columns))
        )
        numeric = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(columns))]
        for index, name in enumerate(columns):
            table.add_column(
                name,
                justify="right" if numeric[index] else "left",
                min_width=least[index],
                max_width=most[index],
                overflow="fold",
            )
        # rich takes a millisecond a row
        plain_rows = least == most and all(text.isascii() for column in texts for text in column)
        laid_out = 1 if plain_rows else len(cells)
        for row in cells[:laid_out]:
            table.add_row(*row)
        self._console.print_words(title)
        self._console.print_whole(table, [_line(row, least, numeric) for row in cells[laid_out:]])

    @property
    def columns(self) -> int | None:
        """How many letters a line may have on the terminal; None where there is no terminal."""
        return min(self._console.width, WIDEST) if self._console.is_terminal else None

    def warn(self, text: str) -> None:
        """Print a line on standard error, even with --json, unless --quiet."""
        if not self.quiet:
            self._errors.print_line(text)

    def error(self, text: str) -> None:
        """Print the one line of an error, always."""
        # there is nowhere left to say that standard error cannot be written to
        with suppress(OSError, TrafficdpError):
            self._errors.print_line(f"trafficdp: {text}")

    def confirm(self, *, yes: bool, questions: Callable[[], Iterable[str]], if_declined: str) -> None:
        """Ask on the terminal whether to go on; ``yes`` (--yes) answers all questions beforehand.

        ``questions`` returns the questions, and is called only on a terminal; without any, nothing is asked.
        Unless each is answered with yes, prints ``if_declined`` and ends the command. Raises UsageError where
        there is no terminal.
        """
        if yes:
            return
        if not is_interactive():
            raise UsageError(
                "this cannot be taken back, and there is no terminal to ask on",
                expected="--yes",
                todo="run the same command with --yes",
            )
        if not all(typer.confirm(asked, err=True) for asked in questions()):
            self.warn(if_declined)
            raise typer.Exit(UsageError.exit_code)

    @contextmanager
    def bars(self) -> Iterator[Progress | None]:
        """Context manager: give the block progress bars on standard error, or None where nobody sees them."""
        if self.quiet or not self._errors.is_terminal:
            yield None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._errors, transient=True) as progress:
            yield progress

    @contextmanager
    def progress_steps(self, text: str) -> Iterator[Callable[[str, int, int | None], None]]:
        """Context manager: show on a terminal what is going on while the block runs, and how far it is.

        Yields ``step(text, done, of)``, to be called when a step begins; without an end in sight ``of`` is
        None.
        """
        if self.quiet or not self._errors.is_terminal:
            yield lambda text, done, of: None
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._errors, transient=True) as progress:
            task = progress.add_task(strip_control_characters(text), total=None)
            yield lambda text, done, of: progress.update(
                task, description=strip_control_characters(text), completed=done, total=of
            )

    @contextmanager
    def spinner(self, text: str) -> Iterator[None]:
        """Context manager: show on a terminal that something is going on while the block runs."""
        if self.quiet or not self._errors.is_terminal:
            yield
            return
        with self._errors.status(text):
            yield


class _PlainConsole(Console):
    """A console that prints lines, and tables without cutting them."""

    def print_line(self, text: str) -> None:
        """Print one line, never wrapped."""
        with _nobody_may_read():
            self.print(strip_control_characters(text))

    def print_words(self, text: str) -> None:
        """Print one line; a terminal that is too narrow gets it wrapped between words."""
        with _nobody_may_read():
            width = min(self.width, WIDEST) if self.is_terminal else sys.maxsize
            for line in wrap(
                strip_control_characters(text), width, break_long_words=False, break_on_hyphens=False
            ) or [""]:
                self.print(line)

    def print_whole(self, table: Table, more: Sequence[str]) -> None:
        """Print a table and ``more`` rows of it without cutting, if need be wider than the terminal."""
        from rich.measure import Measurement

        needed = Measurement.get(self, self.options, table)
        wanted = min(self.width, WIDEST) if self.is_terminal else needed.maximum
        with _nobody_may_read():
            with self.capture() as captured:
                self.print(table, width=max(wanted, needed.minimum), soft_wrap=False, crop=False)
            *lines, last = captured.get().splitlines(keepends=True)
            self.out("".join((*lines, *more, last)), end="", highlight=False)

    def on_broken_pipe(self) -> None:
        """Raise the error to the caller, where rich would end the process with exit code 1."""
        raise BrokenPipeError


@contextmanager
def _nobody_may_read() -> Iterator[None]:
    """When whoever read our output has gone, go on without output: work is finished, not cut short."""
    try:
        yield
    except BrokenPipeError:
        abandon_standard_output()
    except OSError as error:
        raise from_os_error(error, "writing the output") from error


def abandon_standard_output() -> None:
    """Send all further standard output to the null device."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)


def strip_control_characters(text: str) -> str:
    """Return ``text`` with "?" for every character that does not print and could steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    """Return one row of a table as text, cells padded to ``widths``, numbers to the right."""
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return f" {(' ' * GAP).join(padded)} \n"


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value.replace(".", "", 1).isdecimal() or value == ""
    return isinstance(value, (int, float))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:#.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def minute_in_words(instant: str, time_zone: str) -> str:
    """Return ``instant`` (ISO 8601) as tables show it: "2026-03-05 10:30" by the clocks of ``time_zone``."""
    return f"{datetime.fromisoformat(with_local_offset(instant, time_zone)):%Y-%m-%d %H:%M}"


def with_local_offset(instant: str, time_zone: str) -> str:
    """Return ``instant`` (ISO 8601) in ISO 8601 with the offset from UTC of ``time_zone``."""
    return datetime.fromisoformat(instant).astimezone(ZoneInfo(time_zone)).isoformat()


def longest_word(texts: Sequence[str]) -> int:
    """Return the length of the longest word in ``texts``, in letters."""
    return max((len(word) for text in texts for word in text.split()), default=0)


def fit_column_widths(full: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths of a table's columns that add up to at most ``room`` letters, one a column.

    Each lies between ``least`` and ``full``, the width of its longest text; narrow columns get theirs first.
    """
    widths, spare = list(least), max(0, room - sum(least))
    for index in sorted(range(len(full)), key=full.__getitem__):
        more = min(full[index] - least[index], spare)
        widths[index] += more
        spare -= more
    return widths


def is_interactive() -> bool:
    """Return whether standard input and standard error are a terminal, so that a person can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def relative_path(path: Path) -> str:
    """Return ``path`` relative to the current folder if it lies below, else unchanged."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


@dataclass(frozen=True)
class Settings:
    """The options that stand before the command on the command line."""

    config: Path
    store: Path | None
    wait: float
    output: Output

    def workspace(self, bars: Progress | None = None, *, map_options: MapOptions | None = None) -> Workspace:
        """Return the opened workspace, with the map that ``map_options`` describe (None: the configured one).

        ``bars`` shows progress on files that are read.
        """
        # not at the top: whoever asks for help need not wait for it
        from trafficdp.workspace import open_workspace

        progress = None if bars is None else _bar_per_file(bars)
        city = open_workspace(self.config, store=self.store, wait=self.wait, progress=progress)
        if map_options is None:
            return city
        return city.with_map(
            resolution=map_options.resolution,
            slot_kind=map_options.slot,
            min_vehicles=map_options.min_vehicles,
        )

    def places(self) -> tuple[Config, Path, Path]:
        """Return the configuration, the folder of the store and its key file; nothing is opened."""
        from trafficdp.config.document import store_and_key
        from trafficdp.config.file import load_config

        config = load_config(self.config)
        return config, *store_and_key(self.config, self.store, config.store, config.key_file)


def store_from_option(text: str) -> Path:
    """Return the folder of the store that the option --store names.

    Raises UsageError for a text that is no folder with a name, as its key lies beside it under that name.
    """
    path = Path(text)
    if text and path.name in ("", ".."):
        # "." and ".." by their own names, so that the key can be called after them
        path = Path(os.path.abspath(path))
    if not text.strip() or not path.name:
        raise UsageError(
            "--store names no folder that a key could lie beside",
            got=f'--store "{text}"',
            expected="a folder such as city.store",
        )
    return path


def _bar_per_file(bars: Progress) -> Callable[[Path], AbstractContextManager[Callable[[int], None]]]:
    @contextmanager
    def bar(path: Path) -> Iterator[Callable[[int], None]]:
        total = path.stat().st_size if path.is_file() else None
        task = bars.add_task(strip_control_characters(path.name), total=total)
        yield lambda read: bars.advance(task, read)

    return bar


EpsilonOption = Annotated[
    str | None, typer.Option(metavar="<number>", help="Total epsilon instead of the configured one.")
]
RhoOption = Annotated[
    str | None,
    typer.Option(
        metavar="<number>", help="Total rho instead of the configured one, in a store that counts in rho."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask; needed where there is no terminal.")]
ReleaseArgument = Annotated[str, typer.Argument(help="Name of the release, such as r0001.")]


def loss_from_options(epsilon: str | None, rho: str | None) -> Loss | None:
    """Return the privacy loss that --epsilon or --rho gives, None for neither; raise UsageError for both."""
    if epsilon is not None and rho is not None:
        raise UsageError("--epsilon and --rho are two kinds of loss", todo="give that of the store")
    from trafficdp.privacy.loss import ZCDP, PureDP

    if rho is not None:
        return ZCDP.of(rho)
    return None if epsilon is None else PureDP.of(epsilon)


@dataclass(frozen=True)
class MapOptions:
    """Which map, for which loss: what `plan` and `release` both take. What is not given is as configured."""

    epsilon: EpsilonOption = None
    rho: RhoOption = None
    resolution: Annotated[
        int | None,
        typer.Option(metavar="<number>", help="H3 resolution instead of the configured one."),
    ] = None
    slot: Annotated[
        str | None, typer.Option(metavar="<kind>", help=" | ".join(kind.value for kind in SlotKind))
    ] = None
    min_vehicles: Annotated[
        int | None,
        typer.Option(metavar="<number>", help="Vehicles that a bin needs, instead of those configured."),
    ] = None
    within_budget: Annotated[
        bool,
        typer.Option("--within-budget", help="Take the largest epsilon or rho that all vehicles can pay."),
    ] = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with the fields of its dataclass parameter as separate command-line options."""
    # not at the top: help that is not of maps does without
    from trafficdp.model import SlotKind

    context, *own = inspect.signature(command, eval_str=True).parameters.values()
    options = next(each for each in own if is_dataclass(each.annotation))
    hints = get_type_hints(options.annotation, localns={"SlotKind": SlotKind}, include_extras=True)
    shared = [
        inspect.Parameter(each.name, KEYWORD, default=each.default, annotation=hints[each.name])
        for each in fields(options.annotation)
    ]

    @wraps(command)
    def spread(context: typer.Context, **given: object) -> None:
        named = {each.name: given.pop(each.name) for each in shared}
        command(context, **{options.name: options.annotation(**named)}, **given)

    taken = [context]
    for each in own:
        taken += shared if each is options else [each.replace(kind=KEYWORD)]
    spread.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    spread.__annotations__ = {each.name: each.annotation for each in taken}
    return spread
