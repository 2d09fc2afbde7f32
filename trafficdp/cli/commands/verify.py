"""`trafficdp verify`: does a release stand?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import Settings
from trafficdp.errors import VerificationError
from trafficdp.release.publication import folder_of
from trafficdp.release.recomputation import verify_public


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
            help="With --public, of a map of zones: the city's file, to see that none is missing.",
        ),
    ] = None,
) -> None:
    """Recompute every vehicle's loss, every hash and the ledger entry; fail on any difference."""
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    with settings.output.spinner("verifying"):
        checks = (
            verify_public(_folder(settings, release), zones)
            if public
            else open_workspace(**settings.opening()).verify(release)
        )
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
    if failed:
        raise VerificationError(
            f"release {release} does not verify",
            got="; ".join(f"{check.name}: {check.found}" for check in failed),
            todo="do not use it; restore its files from what was published, or withdraw it",
        )


def _folder(settings: Settings, release: str) -> Path:
    """Return the folder that ``release`` names, or that it has in the store; no store is opened."""
    from trafficdp.workspace import open_workspace

    named = Path(release)
    return named if named.is_dir() else folder_of(open_workspace(**settings.opening()).store, release)
