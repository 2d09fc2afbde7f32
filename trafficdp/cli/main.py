"""`trafficdp`: the global options, the commands, and one exit code for every kind of error.

0 ok, 1 our bug, 2 usage, 3 budget, 4 bad data, 5 refused as uninformative, 6 store unavailable,
130 interrupted. An error is one line on standard error, with --json too: standard output then is empty
(or holds the findings of a failed `verify`).
"""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from typer.main import get_command

from trafficdp.cli import (
    audit,
    compare,
    demo,
    export,
    ingest,
    init,
    ledger,
    plan,
    release,
    releases,
    report,
    sql,
    status,
    stream,
    verify,
    withdraw,
)
from trafficdp.cli.output import Output, abandon_standard_output
from trafficdp.cli.settings import Settings, store_given
from trafficdp.errors import TrafficdpError, UsageError
from trafficdp.store.failures import from_os_error
from trafficdp.store_setup import DEFAULT_WAIT

INTERRUPTED = 130
BUG = 1

_WRONG_PATH = {
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EINVAL,
}
_DISK = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}

app = typer.Typer(
    name="trafficdp",
    help="Turn vehicle records into a private map of mean speed and its variance.",
    epilog=(
        "The usual order: init, fill in trafficdp.toml, ingest, plan, release, export. `trafficdp demo` "
        "shows it all on made-up buses. Exit codes: 0 ok, 1 our bug, 2 usage, 3 budget, 4 bad data, "
        "5 refused as uninformative, 6 store unavailable, 130 interrupted."
    ),
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"trafficdp {version('trafficdp')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[Path, typer.Option(help="Configuration file.")] = Path("trafficdp.toml"),
    store: Annotated[
        str | None,
        typer.Option(metavar="<folder>", help="Folder of the store; overrides the configuration."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON; errors stay one line on stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    wait: Annotated[
        str, typer.Option(metavar="<seconds>", help="How long to wait for another process.")
    ] = f"{DEFAULT_WAIT:g}",
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn vehicle records into a private map of mean speed and its variance."""
    folder = None if store is None else store_given(store)
    context.obj = Settings(config, folder, _seconds(wait), Output(as_json=as_json, quiet=quiet))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(
            "--wait is not a time", got=f"--wait {text:.40}", expected="a number of seconds, 0 or more"
        )
    return seconds


app.command("init", short_help="Write a commented configuration; make store and key.")(init.init)
app.command("ingest", short_help="Read files into the store, all or none.")(ingest.ingest)
app.command("status", short_help="Show what the store holds and what is spent.")(status.status)
app.command("plan", short_help="Show what a release would cost and say. It is free.")(plan.plan)
app.command("compare", short_help="Show how far each mechanism may be off. It is free.")(compare.compare)
app.command("release", short_help="Charge every vehicle and publish the map.")(release.release)
app.command("stream", short_help="Follow arriving files; one epsilon for all of it.")(stream.stream)
app.command("releases", short_help="List the releases.")(releases.releases)
app.command("withdraw", short_help="Take a release back; its budget stays spent.")(withdraw.withdraw)
app.command("export", short_help="Write a release as one file. It is free.")(export.export)
app.command("report", short_help="Write a page on a release: what can be told apart.")(report.report)
app.command("sql", short_help="Ask the released maps anything in SQL. It is free.")(sql.sql)
app.command("ledger", short_help="Show what was charged, published and withdrawn.")(ledger.ledger)
app.command("verify", short_help="Recompute a release's losses, hashes and charge.")(verify.verify)
app.command("audit", short_help="Bound a mechanism's epsilon from below by draws.")(audit.audit)
app.command("demo", short_help="Make a map from made-up buses, in seconds.")(demo.demo)


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code. Nothing escapes, nothing sensitive is printed."""
    output = Output(as_json=False, quiet=False)
    if not arguments:
        # a newcomer wants the help, a script with an empty variable the exit code
        with redirect_stdout(sys.stderr):
            run(["--help"])
        return UsageError.exit_code
    with _interrupts() as interrupted:
        try:
            code = get_command(app)(arguments, prog_name="trafficdp", standalone_mode=False)
            _flush()
            # typer turns Ctrl-C into an exit code of its own
            return _interrupted(output) if code == INTERRUPTED else int(code or 0)
        except (KeyboardInterrupt, typer.Abort):
            return _interrupted(output)
        except (BrokenPipeError, SystemExit):
            # whoever read our help has gone; leave quietly, with nothing left to flush
            abandon_standard_output()
            return 0
        except Exception as error:  # noqa: BLE001 - the last line of defence
            # DuckDB and Arrow turn Ctrl-C into errors of theirs
            return _interrupted(output) if interrupted() else _failed(error, output)


def _flush() -> None:
    # there is no standard output when it was closed before we began
    if sys.stdout is not None:
        sys.stdout.flush()


def _interrupted(output: Output) -> int:
    output.error(
        "interrupted; what was not finished is not kept, except a release that was charged already: "
        "the next command finishes it"
    )
    return INTERRUPTED


def _failed(error: Exception, output: Output) -> int:
    ours = error if isinstance(error, TrafficdpError) else _in_our_words(error)
    if ours is not None:
        output.error(str(ours))
        return ours.exit_code
    if os.environ.get("TRAFFICDP_DEBUG"):
        traceback.print_exception(error)
    # the text of a foreign exception may quote a value, so only its place is named
    place = traceback.extract_tb(error.__traceback__)[-1]
    output.error(
        f"this is a bug in trafficdp: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; "
        "please report it (TRAFFICDP_DEBUG=1 prints the traceback, which may show data)"
    )
    return BUG


def _in_our_words(error: Exception) -> TrafficdpError | None:
    """Return our error for a complaint of typer's or of the operating system, None for a bug of ours."""
    message = getattr(error, "format_message", None)
    if message is not None:
        path = getattr(getattr(error, "ctx", None), "command_path", "trafficdp")
        return UsageError(str(message()).rstrip(". "), todo=f"see `{path} --help`")
    if isinstance(error, OSError) and error.errno in _WRONG_PATH:
        return UsageError(
            "a path cannot be used", got=f"{error.filename} ({error.strerror})", todo="correct the path"
        )
    if isinstance(error, OSError) and error.errno in _DISK:
        return from_os_error(error, "reading or writing a file")
    return None


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Note whether Ctrl-C was pressed while the block runs."""
    pressed = threading.Event()

    def note(_signal: int, _frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def main() -> None:
    """Entry point of the `trafficdp` command."""
    for descriptor in (0, 1, 2):
        # a standard stream that was closed must not become a file of the store
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for each in (sys.stdout, sys.stderr):
        # a name that the locale cannot print is printed with escapes
        reconfigure = getattr(each, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        _flush()
    except OSError:
        abandon_standard_output()
    if code:
        # after an error Arrow may still be reading ahead in the background; waiting for it would hang
        os._exit(code)
    sys.exit(code)
