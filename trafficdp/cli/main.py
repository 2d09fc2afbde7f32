"""`trafficdp`: the global options, the commands, and one exit code for every kind of error.

0 ok, 1 our bug, 2 usage, 3 budget, 4 bad data, 5 refused as uninformative, 6 store unavailable,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from trafficdp._validate import finite
from trafficdp.cli import (
    demo,
    export,
    ingest,
    init,
    ledger,
    plan,
    release,
    releases,
    status,
    verify,
    withdraw,
)
from trafficdp.cli.output import Output
from trafficdp.cli.settings import Settings
from trafficdp.errors import TrafficdpError, UsageError
from trafficdp.workspace import DEFAULT_WAIT

INTERRUPTED = 130
BUG = 1

app = typer.Typer(
    name="trafficdp",
    help="Turn vehicle records into a private map of mean speed and its variance.",
    no_args_is_help=True,
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
        Path | None, typer.Option(help="Folder of the store; overrides the configuration.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for another process.")] = DEFAULT_WAIT,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn vehicle records into a private map of mean speed and its variance."""
    if finite(wait=wait) < 0:
        raise UsageError("wait is negative", got=f"wait={wait:g}", expected="0 or more seconds")
    context.obj = Settings(config, store, wait, Output(as_json=as_json, quiet=quiet))


app.command("init")(init.init)
app.command("ingest")(ingest.ingest)
app.command("status")(status.status)
app.command("plan")(plan.plan)
app.command("release")(release.release)
app.command("releases")(releases.releases)
app.command("withdraw")(withdraw.withdraw)
app.command("export")(export.export)
app.command("ledger")(ledger.ledger)
app.command("verify")(verify.verify)
app.command("demo")(demo.demo)


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code. Nothing escapes, nothing sensitive is printed."""
    output = Output(as_json=False, quiet=False)
    try:
        code = get_command(app)(arguments, prog_name="trafficdp", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except TrafficdpError as error:
        output.error(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        output.error("interrupted; what was charged is finished by the next command")
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has gone; leave quietly, with nothing left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of defence: our bug
        return _unexpected(error, output)


def _unexpected(error: Exception, output: Output) -> int:
    message = getattr(error, "format_message", None)
    if message is not None:
        # typer's own complaints about the command line
        output.error(f"{' '.join(str(message()).split())} Try `trafficdp --help`.")
        return UsageError.exit_code
    if os.environ.get("TRAFFICDP_DEBUG"):
        traceback.print_exc()
    # the text of a foreign exception may quote a value, so only its place is named
    place = traceback.extract_tb(error.__traceback__)[-1]
    output.error(
        f"this is a bug in trafficdp: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; "
        "please report it (TRAFFICDP_DEBUG=1 prints the traceback, which may show data)"
    )
    return BUG


def main() -> None:
    """Entry point of the `trafficdp` command."""
    sys.exit(run(sys.argv[1:]))
