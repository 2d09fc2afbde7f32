"""Commands on what is released, from `release` to `site`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli import options
from trafficdp.cli.plan_words import one_slot_sentence
from trafficdp.errors import VerificationError
from trafficdp.export.write import FORMATS, GUARANTEED, format_of
from trafficdp.ingest.report import FileReport
from trafficdp.release import intake, publication, recomputation, results


@options.with_options
def release(
    context: typer.Context,
    map_options: options.MapOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Release a map that is refused as too inaccurate.")
    ] = False,
    plan: Annotated[
        str | None, typer.Option(metavar="<name>", help="Draw exactly the noise of this saved plan.")
    ] = None,
    allow_idealised_noise: Annotated[
        str | None,
        typer.Option(
            metavar="<mechanism>",
            help="Release by a mechanism whose noise has no exact sampler; the manifest records it.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Make the same map again: charge again, draw new noise."),
    ] = False,
    yes: options.YesOption = False,
) -> None:
    """Charge every vehicle its loss, draw the noise and publish the map.

    On a terminal it asks first; elsewhere it needs --yes. The same release again costs nothing.
    """
    settings: options.Settings = context.obj
    workspace = settings.workspace(map_options=map_options)
    loss = options.loss_from_options(map_options.epsilon, map_options.rho)

    def questions() -> Iterator[str]:
        noisy = workspace
        if allow_idealised_noise is not None:
            noisy = workspace.with_idealised_noise(allow_idealised_noise)
        with settings.output.spinner("planning"):
            planned = noisy.plan(loss, suggestions=False, within_budget=map_options.within_budget, saved=plan)
        refused = planned.affordable.short or (planned.verdict.refused and not force)
        # what is refused anyway, or free, needs no answer
        if not refused and (again or not planned.earlier_release):
            yield _price(planned)
            little = workspace.reports_with_few_rows_kept()
            if little:
                yield _doubt(little)

    settings.output.confirm(yes=yes, questions=questions, if_declined="Nothing was charged.")
    with settings.output.spinner("releasing"):
        done = workspace.release(
            loss,
            force=force,
            within_budget=map_options.within_budget,
            plan=plan,
            allow_idealised_noise=allow_idealised_noise,
            again=again,
        )
    guarantee = done.release.disclosure.guarantee
    files = sorted(path.name for path in done.folder.iterdir())
    there = done.release.disclosure.coverage.bins
    bins = f"{there.total - there.withheld} bins with numbers, {there.withheld} withheld"
    if done.is_reused:
        settings.output.say(
            f"release {done.id} is this same map of the same data, so nothing was charged: {bins}"
        )
        settings.output.say("  (--again charges every vehicle once more and draws new noise)")
    else:
        settings.output.say(f"released {done.id} for {guarantee.in_short}: {bins}")
    if done.left is not None:
        hidden = workspace.config.relation.hides_presence
        has = "the budget that all vehicles share has" if hidden else "every vehicle on this map has at least"
        settings.output.say(f"  {has} {done.left.kind.quantity} {done.left} left")
    config = workspace.config
    if config.measured_grid.slot_kind is not config.grid.slot_kind:
        settings.output.say(f"  {one_slot_sentence(config.grid.slot_kind, done.release.grid.noun)}")
    if there.uninformative:
        settings.output.say(
            f"  {there.uninformative} of the numbers are marked as uninformative: the noise is too large"
        )
    for name in files:
        settings.output.say(f"  {options.relative_path(done.folder / name)}")
    settings.output.result(
        {
            "release": done.id,
            "epsilon": guarantee.epsilon,
            **guarantee.concentrated,
            "charged": not done.is_reused,
            "left": None if done.left is None else str(done.left),
            "folder": str(done.folder),
            "files": files,
        }
    )


def _doubt(little: Sequence[FileReport]) -> str:
    """Return what is asked besides: only on a terminal, for it tells of records."""
    more = f", and little of {len(little) - 3} more" if len(little) > 3 else ""
    said = ", ".join(
        f"{report.rows_kept:,} of {report.rows_in:,} rows of {report.file}" for report in little[:3]
    )
    return (
        f"For your eyes only, outside the privacy guarantee: ingest kept {said}{more}. The price is the same "
        "for a map that says nothing. Release all the same?"
    )


def _price(planned: results.Plan) -> str:
    quantity, paying = planned.loss.kind.quantity, planned.affordable.paying
    cost, left = f"{quantity} {planned.loss}", f"{quantity} {planned.left_after}"
    if planned.allocation.request.relation.hides_presence:
        price = f"This takes {cost} from the budget that all vehicles share. It then has {left} left."
    elif paying == 1:
        price = f"This charges 1 vehicle at most {cost}. It then has at least {left} left."
    else:
        price = (
            f"This charges {paying} vehicles, each at most {cost}. Every one then has at least {left} left."
        )
    asked = planned.slot_not_measured
    times = "" if asked is None else f"{one_slot_sentence(asked, planned.grid.noun)} "
    return f"{times}{price} What is spent never comes back. Release?"


def releases(context: typer.Context) -> None:
    """List the releases, withdrawn ones included."""
    settings: options.Settings = context.obj
    workspace = settings.workspace()
    found, quantity = workspace.releases(), workspace.config.policy.kind.quantity
    zone = workspace.config.grid.period.time_zone
    settings.output.table(
        "Releases",
        ["release", "status", quantity, f"charged ({zone})"],
        [
            [each.id, each.status, str(each.loss), options.minute_in_words(each.created_at, zone)]
            for each in found
        ],
    )
    published = [each.folder for each in found if each.status == "published"]
    if published:
        settings.output.say(f"Their files: {options.relative_path(published[0].parent)}/RELEASE/")
    settings.output.result(
        {
            "releases": [
                {
                    "release": each.id,
                    "status": each.status,
                    quantity: str(each.loss),
                    "ledger_sequence": each.sequence,
                    "created_at": options.with_local_offset(each.created_at, zone),
                    "folder": str(each.folder),
                }
                for each in found
            ]
        }
    )


def withdraw(
    context: typer.Context,
    release: options.ReleaseArgument,
    yes: options.YesOption = False,
) -> None:
    """Remove a release's files and rows. Its budget is not given back: what was seen stays seen.

    On a terminal it asks first; elsewhere it needs --yes.
    """
    settings: options.Settings = context.obj
    workspace = settings.workspace()
    settings.output.confirm(
        yes=yes,
        questions=lambda: [
            f"This removes the files and rows of {release} for good. What it cost stays spent, and whoever "
            "has a copy keeps it. Withdraw?"
        ],
        if_declined="Nothing was withdrawn.",
    )
    workspace.withdraw(release)
    settings.output.say(f"withdrew {release}; its budget stays spent")
    settings.output.result({"release": release, "status": "withdrawn", "budget_given_back": False})


def verify(
    context: typer.Context,
    release: Annotated[str, typer.Argument(help="Name of the release (r0001) or stream (s0001).")],
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="Recompute the numbers from the published files alone: <release> may be their folder.",
        ),
    ] = False,
    zones: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>",
            help="With --public, for a map of zones: the city's file, to check that no zone is missing.",
        ),
    ] = None,
) -> None:
    """Recompute every vehicle's loss, every hash and the ledger entry; fail on any difference."""
    settings: options.Settings = context.obj
    with settings.output.spinner("verifying"):
        if public:
            named = Path(release)
            # where it is no folder, the one in the store; no store is opened
            folder = named if named.is_dir() else publication.folder_of(settings.workspace().store, release)
            checks = recomputation.verify_public(folder, zones)
        else:
            checks = settings.workspace().verify(release)
    for check in checks:
        settings.output.say(
            f"{'ok    ' if check.passed else 'FAILED'} {check.name}"
            + (f": {check.found}" if check.found else "")
        )
    failed = [check for check in checks if not check.passed]
    settings.output.result(
        {
            "release": release,
            "verified": not failed,
            "checks": [
                {"check": check.name, "passed": check.passed, "found": check.found} for check in checks
            ],
        }
    )
    causes: dict[str, list[str]] = {}
    for check in failed:
        causes.setdefault(check.found or "", []).append(check.name)
    if failed and all(found.startswith(intake.FORGOTTEN) for found in causes):
        raise VerificationError(
            f"release {release} can no longer be recomputed from the records",
            got="; ".join(causes),
            todo="every other check holds; its files are still those that were published",
        )
    if failed:
        raise VerificationError(
            f"release {release} does not verify",
            got="; ".join(f"{', '.join(names)}: {found}" for found, names in causes.items()),
            todo="do not use it; restore its files from what was published, or withdraw it",
        )


def export(
    context: typer.Context,
    release: options.ReleaseArgument,
    out: Annotated[Path, typer.Argument(metavar="file", help="File to write.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="<format>",
            help=" | ".join((*FORMATS, GUARANTEED)) + "; without it, the ending of the file's name decides.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a release as one file. What was released is free to use: this costs no budget."""
    settings: options.Settings = context.obj
    to = to or format_of(out)
    settings.workspace().export(release, to, out)
    settings.output.say(f"wrote {options.relative_path(out)}")
    settings.output.result({"release": release, "format": to, "file": str(out), "bytes": out.stat().st_size})


def report(
    context: typer.Context,
    release: options.ReleaseArgument,
    out: Annotated[Path, typer.Argument(metavar="file", help="File to write: .html or .pdf.")],
    against: Annotated[
        str | None, typer.Option("--against", metavar="<release>", help="Earlier release to compare with.")
    ] = None,
) -> None:
    """Write a report on a release: map, slowest and fastest areas, what changed. This costs no budget.

    It calls an area slower, faster or changed only where the intervals show it. PDF
    needs pip install 'trafficdp[report]' and the library Pango.
    """
    settings: options.Settings = context.obj
    settings.workspace().city_report(release, out, against=against)
    settings.output.say(f"wrote {options.relative_path(out)}")
    settings.output.result(
        {"release": release, "against": against, "file": str(out), "bytes": out.stat().st_size}
    )


LISTED = 10
"""Lines of either kind on a terminal; a file has all."""


def changes(
    context: typer.Context,
    earlier: Annotated[str, typer.Argument(metavar="earlier", help="Name of the earlier release.")],
    release: Annotated[str, typer.Argument(metavar="later", help="Name of the later release.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="<file>", help="Page (.html), or .csv, .geojson, .parquet, .json."),
    ] = None,
) -> None:
    """Show what became slower or faster between two releases, with its chance. This costs no budget.

    A change is what both maps make likely: part of their difference is noise.
    """
    from trafficdp.export.report.change_files import LIKELY
    from trafficdp.mechanisms.several_maps import CHANGED

    settings: options.Settings = context.obj
    found = settings.workspace().changes(earlier, release)
    by, unit = f"{100 * CHANGED:g} %", found.release.request.display_unit
    if output is not None:
        found.write(output)
    for word, rows in (("slower", found.slower), ("faster", found.faster)):
        if len(rows):
            first = rows[:LISTED]
            more = "" if len(first) == len(rows) else f": the first {LISTED} of {len(rows)}"
            columns = ["where", "when"][: 1 + found.has_several_slots]
            columns += ["before", "after", f"change, {unit.label}", "80 % interval", "chance"]
            title = f"Likely {word} by {by} or more{more}"
            settings.output.table(title, columns, found.lines(first, word), prose=("where",))
    settings.output.say(
        f"Of {len(found.table)} numbers in both, {len(found.slower)} are likely slower by {by} or more and "
        f"{len(found.faster)} faster: with a chance of at least {100 * LIKELY:g} %. The rest may be noise."
    )
    if output is not None:
        settings.output.say(f"wrote {options.relative_path(output)}")
    settings.output.result(
        {
            "earlier": earlier,
            "release": release,
            "unit": unit.label,
            "changed_by": CHANGED,
            "slower": len(found.slower),
            "faster": len(found.faster),
            "file": None if output is None else str(output),
            "changes": found.to_json(),
        }
    )


def pool(
    context: typer.Context,
    releases: Annotated[
        list[str], typer.Argument(metavar="releases", help="Names of two releases or more, such as r0001.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="<file>", help="File: .html, .csv, .geojson, .parquet, .json."),
    ] = None,
) -> None:
    """Make one map of several releases: a month from days, for example. This costs no budget.

    It has the mean speed over all their periods, with intervals of its own.
    """
    from trafficdp.export.files.query_result import json_rows
    from trafficdp.export.report.change_files import to_arrow

    settings: options.Settings = context.obj
    found = settings.workspace().pool(releases)
    if output is not None:
        found.write(output)
    last = found.releases[-1]
    unit, first = last.request.display_unit, found.releases[0].grid.period.first
    settings.output.say(
        f"The mean speed over {len(found.releases)} releases from {first} to {last.grid.period.last}, "
        f"weighted by {found.weighted_by}: {len(found.table)} numbers, on average off by about "
        f"{found.expected_error:.2g} {unit.label}."
    )
    if output is not None:
        settings.output.say(f"wrote {options.relative_path(output)}")
    settings.output.result(
        {
            "releases": [each.id for each in found.releases],
            "unit": unit.label,
            "weighted_by": found.weighted_by,
            "expected_error": found.expected_error,
            "file": None if output is None else str(output),
            "bins": json_rows(to_arrow(found.table)),
        }
    )


def site(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder to write; that of an earlier call is brought up.")],
    answers: Annotated[
        bool, typer.Option("--answers", help="Also the answers to analysts' questions.")
    ] = False,
) -> None:
    """Write a web site of all releases: maps, reports, files, promises and a catalogue for portals.

    Any web server shows the folder, and a browser without one. Called again, it writes only what is new;
    withdrawn releases go, and their addresses say so. This costs no budget.
    """
    settings: options.Settings = context.obj
    with settings.output.spinner("writing the site"):
        changed = settings.workspace().site(folder, answers=answers)
    settings.output.say(f"{len(changed)} files changed; open {options.relative_path(folder / 'index.html')}")
    settings.output.result({"folder": str(folder), "changed": changed})
