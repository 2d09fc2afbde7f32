"""`trafficdp stream`: a map that follows the records as they arrive."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from trafficdp.cli.options import Settings, minute_in_words, relative_path, with_local_offset
from trafficdp.errors import UsageError
from trafficdp.release.streaming import Progress, follow_folder, follow_lines, replay_files, source_of_lines


def stream(
    context: typer.Context,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="A folder in which files arrive, - for lines of CSV, or files to --replay."),
    ] = None,
    replay: Annotated[
        float | None,
        typer.Option(metavar="<speed>", help="Play an archive, so many times as fast; 0: at once."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take the files that are there, then stop.")] = False,
    end: Annotated[bool, typer.Option("--end", help="Publish what is open and end the stream.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Begin another stream, charged again, if the same one is over.")
    ] = False,
) -> None:
    """Publish the map every few minutes of stream time; one epsilon covers all of it."""
    settings: Settings = context.obj
    output, workspace = settings.output, settings.workspace()
    live, zone = workspace.live(again=again), workspace.config.grid.period.time_zone
    shown = 0
    newest: list[Progress] = []

    def tell(progress: Progress) -> None:
        nonlocal shown
        newest[:] = [progress]
        if progress.publications > shown:
            until = "the beginning"
            if progress.as_of:
                until = f"{minute_in_words(progress.as_of.isoformat(), zone)} ({zone})"
            output.say(
                f"{progress.release_id}: publication {progress.publications}, records up to {until}; "
                f"{progress.fates['accepted']:,} counted so far"
            )
        shown = progress.publications

    if end and not source:
        tell(live.end())
    elif source:
        lines = None
        # what is called wrongly is refused before it is charged
        if replay is None and len(source) != 1:
            raise UsageError("a stream follows one folder", got=f"{len(source)}", todo="or give --replay")
        if replay is None and str(source[0]) == "-":
            lines = source_of_lines(workspace.config.sources)
        tell(live.begin())
        with _stopping() as stopped:
            if replay is not None:
                replay_files(live, source, replay, tell=tell, warn=output.warn)
            elif lines is not None:
                follow_lines(
                    live, sys.stdin.fileno(), lines, stop=stopped.is_set, tell=tell, warn=output.warn
                )
            else:
                follow_folder(live, source[0], once=once, stop=stopped.is_set, tell=tell, warn=output.warn)
        if end:
            tell(live.end())
    else:
        raise UsageError("nothing to follow", todo="name a folder, -, or files with --replay SPEED")
    (progress,) = newest
    output.say(f"  {relative_path(progress.folder / 'live.geojson')}")
    output.result(
        {
            "stream": progress.release_id,
            "publications": progress.publications,
            "as_of": None if progress.as_of is None else with_local_offset(progress.as_of.isoformat(), zone),
            "records": progress.fates,
            "ended": progress.ended,
            "folder": str(progress.folder),
            "outside_the_guarantee": ["records"],
        }
    )


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Let SIGTERM stop the stream after the batch at hand; nothing would be lost without."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, before)
