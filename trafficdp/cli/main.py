"""`trafficdp`: the global options, the commands, and one exit code for every kind of error.

0 ok, 1 our bug, 2 usage, 3 budget, 4 bad data, 5 refused as too inaccurate, 6 store unavailable,
130 interrupted. An error is one line on standard error, with --json too: standard output then is empty
(or holds the findings of a failed `verify` or `doctor`).
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from typer.main import get_command

from trafficdp._durable import DEFAULT_WAIT, FULL, MACHINE, READ_ONLY, WRONG_PATH, from_os_error
from trafficdp.cli.options import Output, abandon_standard_output
from trafficdp.errors import TrafficdpError, UsageError

INTERRUPTED = 130
BUG = 1
_FLAGS, _VALUED = {"--json", "--quiet"}, {"--config", "--store", "--wait"}
_COMPLETING = "_TRAFFICDP_COMPLETE"
"""What a shell sets that asks how a half-typed line may go on."""

_WRONG_PATH = WRONG_PATH | {errno.EEXIST, errno.EINVAL}
_DISK = FULL | READ_ONLY | MACHINE
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
"""Options of glibc's mallopt: how many arrays are mapped by themselves, how many bytes are kept free."""
COMMANDS = {
    "init": ("init", "Write a commented configuration; make store and key."),
    "suggest": ("ingest", "Print a [[source]] for files that you have."),
    "ingest": ("ingest", "Read files into the store, all or none."),
    "status": ("store", "Show what the store holds and what is spent."),
    "plan": ("plan", "Show cost and errors of a release. It is free."),
    "compare": ("compare", "Show the errors of every mechanism. It is free."),
    "release": ("releases", "Charge every vehicle and publish the map."),
    "stream": ("stream", "Follow arriving files; one epsilon for all of it."),
    "releases": ("releases", "List the releases."),
    "withdraw": ("releases", "Delete a release; its budget stays spent."),
    "forget": ("store", "Delete all records of vehicles, for good."),
    "export": ("releases", "Write a release as one file. It is free."),
    "report": ("releases", "Write a report: slow and fast areas, changes."),
    "changes": ("releases", "Show what changed between two releases."),
    "pool": ("releases", "Make one map of several releases. It is free."),
    "site": ("releases", "Write a web site of all releases. It is free."),
    "sql": ("sql", "Ask the released maps anything in SQL. It is free."),
    "budget": ("store", "Show what the store promises, or change it."),
    "ledger": ("ledger", "Show what was charged, published and withdrawn."),
    "doctor": ("store", "Check the files of the store; change nothing."),
    "verify": ("releases", "Check a release: recompute losses and hashes."),
    "audit": ("audit", "Test a mechanism's epsilon by many draws."),
    "simulate": ("simulate", "Make records of a city, with the true means."),
    "demo": ("simulate", "Make a map from simulated buses, in seconds."),
}
"""By name, in the order of the help: the module of ``commands`` with a function of this name, and a line."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"trafficdp {version('trafficdp')}")
        raise typer.Exit


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
    # not at the top: whoever asks for help need not wait for what the commands need
    from trafficdp.cli.options import Settings, store_from_option

    folder = None if store is None else store_from_option(store)
    try:
        seconds = float(wait)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(
            "--wait is not a time", got=f"--wait {wait:.40}", expected="a number of seconds, 0 or more"
        )
    context.obj = Settings(config, folder, seconds, Output(as_json=as_json, quiet=quiet))


@cache
def _application(typed: frozenset[str]) -> Callable[..., int | None]:
    """Return the application; only commands that are ``typed`` are imported, for speed."""
    app = typer.Typer(
        name="trafficdp",
        help="Turn vehicle records into a private map of mean speed and its variance.",
        epilog=(
            "The usual order: init, fill in trafficdp.toml, ingest, plan, release, export. `trafficdp demo` "
            "shows it all on simulated buses. Exit codes: 0 ok, 1 our bug, 2 usage, 3 budget, 4 bad data, "
            "5 refused as too inaccurate, 6 store unavailable, 130 interrupted."
        ),
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(options)
    for name, (_, short_help) in COMMANDS.items():
        app.command(name, short_help=short_help)(command_function(name) if name in typed else _never_called)
    return get_command(app)


def _globals_first(arguments: list[str]) -> list[str]:
    """Return ``arguments`` with the global options before the command, wherever they were typed.

    No command has an option of these names. What follows ``--`` stays where it is.
    """
    first, rest = [], []
    left = iter(arguments)
    for each in left:
        name, _, value = each.partition("=")
        if each == "--":
            rest += [each, *left]
        elif each in _FLAGS or (name in _VALUED and value):
            first.append(each)
        elif each in _VALUED:
            first += [each, *islice(left, 1)]
        else:
            rest.append(each)
    return first + rest


def command_function(name: str) -> Callable[..., None]:
    """Return the function of the command ``name``, one of COMMANDS; its annotations are its options."""
    module, _ = COMMANDS[name]
    function: Callable[..., None] = getattr(import_module(f"trafficdp.cli.commands.{module}"), name)
    return function


def _never_called() -> None:
    """Stand for a command that was not named."""


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code. Nothing escapes, nothing sensitive is printed."""
    output = Output(as_json=False, quiet=False)
    if not arguments and _COMPLETING not in os.environ:
        # a newcomer wants the help, a script with an empty variable the exit code
        with redirect_stdout(sys.stderr):
            run(["--help"])
        return UsageError.exit_code
    pressed = threading.Event()

    def note(_signal: int, _frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, note) if main_thread else None
    try:
        completed = os.environ.get("COMP_WORDS", "").split() if _COMPLETING in os.environ else []
        application = _application(frozenset(COMMANDS.keys() & {*arguments, *completed}))
        code = application(_globals_first(arguments), prog_name="trafficdp", standalone_mode=False)
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
        return _interrupted(output) if pressed.is_set() else _failed(error, output)
    finally:
        if main_thread:
            signal.signal(signal.SIGINT, before)


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
    # with its package, as files of several packages may have one name
    file = "/".join(Path(place.filename).parts[-2:])
    output.error(
        f"this is a bug in trafficdp: {type(error).__name__} at {file}:{place.lineno}; "
        "please report it (TRAFFICDP_DEBUG=1 prints the traceback, which may show data)"
    )
    return BUG


def _in_our_words(error: Exception) -> TrafficdpError | None:
    """Return our error for a complaint of typer's or of the operating system, None for a bug of ours."""
    message = getattr(error, "format_message", None)
    if message is not None:
        path = getattr(getattr(error, "ctx", None), "command_path", "trafficdp")
        if path == "trafficdp" and hasattr(error, "option_name"):
            return UsageError(
                f"trafficdp itself has no option {error.option_name}",
                todo="options of a command come after its name, as in `trafficdp plan --epsilon 3`; "
                "see `trafficdp --help`",
            )
        command = getattr(getattr(error, "ctx", None), "command", None)
        needed = [each for each in getattr(command, "params", []) if each.param_type_name == "argument"]
        missing = type(error).__name__ == "MissingParameter" and needed
        form = f"`{' '.join((path, *((each.metavar or each.name).upper() for each in needed)))}`"
        return UsageError(
            str(message()).rstrip(". "), todo=f"{f'write {form}, or ' if missing else ''}see `{path} --help`"
        )
    if isinstance(error, OSError) and error.errno in _WRONG_PATH:
        return UsageError(
            "a path cannot be used", got=f"{error.filename} ({error.strerror})", todo="correct the path"
        )
    if isinstance(error, OSError) and error.errno in _DISK:
        return from_os_error(error, "reading or writing a file")
    return None


def reuse_freed_memory() -> None:
    """Let this process keep the memory it frees, and use it again. Without glibc it does nothing.

    Large arrays come and go all the time. To give their pages back, and have them cleared again, takes a
    third of the processor's time where millions of pairs are planned for. Call it before numpy is loaded.
    """
    # pages of 2 MB are dear where memory is in pieces, and of no use where it is touched once
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def main() -> None:
    """Entry point of the `trafficdp` command."""
    reuse_freed_memory()
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
