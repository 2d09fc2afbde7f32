"""The commands `suggest` and `ingest`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.options import Output, Settings
from trafficdp.engine.reduced import Spark
from trafficdp.errors import DataError, UsageError
from trafficdp.ingest import report as ingest_report
from trafficdp.ingest import suggest as declarations
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import wrong_unit
from trafficdp.model import Grid, SourceDeclaration
from trafficdp.release.results import IngestedFile, UndoneFile

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files to look at; nothing is written.")]


def suggest(context: typer.Context, files: Files) -> None:
    """Print what to write into the configuration for these files; CHOOSE stands where only you know."""
    settings: Settings = context.obj
    found: dict[str, dict[str, object]] = {}
    printed: set[str] = set()
    for path in files:
        file = InputFile(path)
        name = path.name.split(".")[0].strip() or "source"
        pattern = "*" + path.name[len(path.name.split(".")[0]) :]
        suggestion = declarations.suggest_source(file)
        text = declarations.source_table_in_toml(suggestion, name, pattern)
        # files of one kind are one source, whatever they are called
        kind = declarations.source_table_in_toml(suggestion, "", pattern)
        if kind in printed:
            continue
        printed.add(kind)
        found[str(path)] = {**asdict(suggestion), "toml": text}
        for line in (*text.splitlines(), ""):
            settings.output.say(line)
    settings.output.result({"sources": found})


def ingest(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(help="Files that a [[source]] of the configuration declares.", show_default=False),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check columns, units and rejected rows; write nothing.")
    ] = False,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Remove the records of these files, if no release has used them yet."),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            metavar="<name>",
            help="duckdb; spark, files may be addresses; reduced, a folder of a cluster's jobs.",
        ),
    ] = "duckdb",
    into: Annotated[
        str | None,
        typer.Option(metavar="<folder>", help="Where Spark writes; without it, beside the store."),
    ] = None,
    key_mount: Annotated[
        Path | None, typer.Option(metavar="<file>", help="Where Spark's executors find the key, a secret.")
    ] = None,
) -> None:
    """Read files into the store: all of them, or none if one fails.

    After every ingest the data counts as new, whatever the files hold, so the next release is charged. A
    record whose vehicle and time are in the store already is left out.
    """
    settings: Settings = context.obj
    output = settings.output
    if undo:
        if dry_run or engine != "duckdb":
            raise UsageError("--undo removes the records of files, and has no other option")
        _show_undone(output, settings.workspace().undo_ingest(files))
        return
    with output.bars() as bars:
        workspace = settings.workspace(bars)
        asked: str | Spark = Spark(into, key_mount) if engine == "spark" else engine
        if engine == "duckdb":
            for file in files:
                # before anyone wonders which source it belongs to
                if Path(file).is_dir():
                    raise DataError(f"{file} is a folder", expected="files", todo="name the files in it")
                if not Path(file).exists():
                    raise DataError(f"there is no file {file}", todo="correct its name")
        given = files[0] if engine == "reduced" and len(files) == 1 else files
        done = workspace.ingest(given, dry_run=dry_run, engine=asked)
    if dry_run:
        _show_sources(settings, workspace.config.sources)
    output.table(
        "Rows (for the curator's eyes: outside the privacy guarantee)",
        ["file", "source", "rows in", "kept", "rejected", "new"],
        [
            [
                report.file,
                report.source,
                report.rows_in,
                report.rows_kept,
                report.rows_in - report.rows_kept,
                sum(each.added for each in files),
            ]
            for report, files in _in_short(done)
        ],
        prose=("file", "source"),
    )
    rejected = {rule: sum(each.report.rejected.get(rule, 0) for each in done) for rule in ingest_report.RULES}
    if any(rejected.values()):
        output.table(
            "Why rows were rejected (by file: --json)",
            ["rule", "rows", "meaning"],
            [[rule, rows, ingest_report.RULES[rule]] for rule, rows in rejected.items() if rows],
            prose=("meaning",),
        )
    _show_extents(output, workspace.config.grid, done)
    _warn_of_little_and_units(output, done)
    for otherwise in (False, True):
        before = [each for each in done if each.read_before and each.declared_otherwise == otherwise]
        for report, _ in _in_short(before):
            how = ", under another declaration of its source" if otherwise else ""
            output.say(f"{report.file}: read before{how}; the records of then stay as they are")
    for source in workspace.config.sources:
        _warn_of_oddities(output, done, source)
    if dry_run:
        output.say("dry run: nothing was written; next: the same without --dry-run")
    else:
        output.say("next: `trafficdp plan`")
    time_zone = workspace.config.grid.period.time_zone
    output.result(
        {
            "dry_run": dry_run,
            "outside_the_guarantee": True,
            "files": [
                {
                    "file": each.file,
                    "source": each.report.source,
                    "rows_in": each.report.rows_in,
                    "rows_kept": each.report.rows_kept,
                    "rejected": dict(each.report.rejected),
                    "derived": each.report.derived,
                    "rows_in_extent": ingest_report.extent_in_words(each.extents.readable, time_zone),
                    "rows_kept_extent": ingest_report.extent_in_words(each.extents.kept, time_zone),
                    "days_kept": len(each.extents.days),
                    "exchanged": each.extents.exchanged,
                    "noted": dict(each.extents.noted),
                    "new": each.added,
                    "read_before": each.read_before,
                    "declared_otherwise": each.declared_otherwise,
                    "units": [asdict(finding) for finding in each.report.lint],
                }
                for each in done
            ],
        }
    )


def _in_short(done: Sequence[IngestedFile]) -> list[tuple[ingest_report.FileReport, list[IngestedFile]]]:
    """Return reports with their files: where many were read together, one on all that are ``done``."""
    rows: dict[object, list[IngestedFile]] = {}
    for number, each in enumerate(done):
        rows.setdefault(each.report.source if each.report.files > FEW else number, []).append(each)
    return [
        (ingest_report.FileReport.together([each.report for each in files]), files) for files in rows.values()
    ]


def _show_extents(output: Output, grid: Grid, done: Sequence[IngestedFile]) -> None:
    """Show how far the rows of all files reach, beside what the configuration declares."""
    found = ingest_report.Extents()
    for each in done:
        found |= each.extents
    west, south, east, north = grid.area.geometry.bounds
    period = grid.period
    days = (period.last - period.first).days + 1
    rows_in = ingest_report.extent_in_words(found.readable, period.time_zone)
    kept = ingest_report.extent_in_words(found.kept, period.time_zone)
    output.table(
        "How far they reach (for the curator's eyes: outside the privacy guarantee)",
        ["", "declared", "rows in", "kept"],
        [
            ["longitude", ingest_report.range_in_words(west, east), rows_in["longitude"], kept["longitude"]],
            ["latitude", ingest_report.range_in_words(south, north), rows_in["latitude"], kept["latitude"]],
            [
                "from day to day",
                ingest_report.range_in_words(period.first, period.last),
                rows_in["days"],
                kept["days"],
            ],
            ["number of days", f"{days:,}", "", f"{len(found.days):,}"],
        ],
    )


def _warn_of_little_and_units(output: Output, done: Sequence[IngestedFile]) -> None:
    """Say it loudly where little of a file, or of a source, fits what is declared, and where units do not."""
    exchanged = {id(each.report): each.extents.exchanged for each in done}
    for report in ingest_report.with_few_rows_kept(each.report for each in done):
        reason = report.commonest_reason
        said = f"WARNING: only {report.rows_kept:,} of {report.rows_in:,} rows of {report.file} were kept"
        if reason:
            said += f", most often {reason}: {ingest_report.RULES[reason]}"
        if exchanged.get(id(report)):
            said += (
                f"; {exchanged[id(report)]:,} would lie in the study area with latitude and longitude "
                "exchanged"
            )
        output.warn(
            f"{said}; a map would be charged all the same (for the curator's eyes, outside the guarantee)"
        )
    # once of files of a source that were judged together
    judged: dict[tuple[str, ingest_report.LintFinding], list[ingest_report.FileReport]] = {}
    for report in (each.report for each in done):
        for finding in report.lint:
            of = report.source if report.files > 1 else report.file, finding
            judged.setdefault(of, []).append(report)
    for (_, finding), same in judged.items():
        name = ingest_report.FileReport.together(same).file
        undo, what = (same[0].file, "the file") if len(same) == 1 else ("FILE...", "files")
        if finding.verdict is ingest_report.LintVerdict.WRONG:
            told = wrong_unit(name, same[0].source, finding)
            output.warn(f"{told}; `trafficdp ingest --undo {undo}` takes {what} back")
        if finding.verdict is ingest_report.LintVerdict.UNSURE:
            output.warn(
                f"{name}: too few consecutive records to check whether speeds are really in "
                f"{finding.unit.label} ({finding.pairs} pairs; {ingest_report.ENOUGH_PAIRS} are needed)"
            )


FEW = 20
"""Reported speeds, and rows, of which nothing can be said together."""


def _warn_of_oddities(output: Output, done: Sequence[IngestedFile], source: SourceDeclaration) -> None:
    """Say what looks wrong with identifiers, times and speeds of a source's files: nothing depends on it."""
    files = [each for each in done if each.report.source == source.name]
    if not files:
        return
    name = files[0].file if len(files) == 1 else f"{len(files):,} files of source {source.name}"
    extents = [each.extents for each in files]
    eyes = "(for the curator's eyes, outside the guarantee)"
    count = Counter[str]()
    for each in extents:
        count.update(each.noted)
    speeds, tiny = count["speed"], count["speed_tiny"]
    rows = sum(each.report.rows_in for each in files)
    missing = sum(each.report.rejected.get("missing_speed", 0) for each in files)
    if missing and source.missing_speed == "reject":
        output.warn(
            f'{name}: {missing:,} rows state no speed; missing_speed = "derive" in source {source.name} '
            f"works it out from positions {eyes}"
        )
    if count["repeated_hour"]:
        output.say(
            f"{name}: {count['repeated_hour']:,} times of an hour that the clock shows twice were "
            f"told apart by the order of the vehicle's records {eyes}"
        )
    if count["header_time"]:
        output.say(f"{name}: {count['header_time']:,} rows have the time of the header {eyes}")
    reach = [(each.report.rows_kept, extent.kept) for each, extent in zip(files, extents, strict=True)]
    at_once = sum(kept >= FEW and ends is not None and ends.first_us == ends.last_us for kept, ends in reach)
    if at_once and not count["header_time"]:
        output.warn(
            f"{name}: all rows of {at_once:,} file{'s'[: at_once != 1]} have one time, which may be that of "
            f"the message and not of the position {eyes}"
        )
    if 100 * count["two_places"] >= max(rows, 100):
        output.warn(
            f"{name}: {count['two_places']:,} rows are over 1 km from where their vehicle was 10 s "
            "before; if one identifier is several vehicles, of different operators, name the operator: "
            f"columns.operator {eyes}"
        )
    if speeds >= FEW and count["speed_zero"] == speeds:
        output.warn(f"{name}: every reported speed is 0: these are no speeds {eyes}")
    if speeds >= FEW and tiny and tiny + count["speed_zero"] == speeds:
        output.warn(
            f"{name}: every reported speed is under a thousandth of its unit: the unit is wrong {eyes}"
        )
    for sentinel, what in ((65535, "speed_65535"), (-1, "speed_minus_1")):
        if count[what]:
            output.warn(
                f"{name}: {count[what]:,} reported speeds are {sentinel}; if that means none, "
                f"write sentinels = [{sentinel}] into source {source.name} {eyes}"
            )


def _show_undone(output: Output, done: Sequence[UndoneFile]) -> None:
    for each in done:
        output.say(f"{each.file}: taken back; the data has a new name")
        output.say(
            "for the curator's eyes, outside the privacy guarantee: it had brought "
            f"{each.records:,} record{'s'[: each.records != 1]}"
        )
        if each.read_later:
            output.say(
                f"read after it: {', '.join(each.read_later)}; records that are in {each.file} too were left "
                "out of these, and come back when you ingest these again"
            )
    output.result({"outside_the_guarantee": True, "undone": [asdict(each) for each in done]})


def _show_sources(settings: Settings, sources: Sequence[SourceDeclaration]) -> None:
    rows = [
        [
            source.name,
            source.format,
            ", ".join(f"{ours} <- {theirs}" for ours, theirs in source.columns.items())
            or "by its specification",
            ", ".join(period.unit.label for period in source.units),
        ]
        for source in sources
    ]
    settings.output.table(
        "Declared sources",
        ["source", "format", "columns", "speed unit"],
        rows,
        prose=("source", "columns", "speed unit"),
    )
