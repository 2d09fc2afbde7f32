"""Options and arguments that several commands take, with their help."""

from __future__ import annotations

from typing import Annotated

import typer

EpsilonOption = Annotated[
    str | None, typer.Option(metavar="<number>", help="Total epsilon instead of the configured one.")
]
RhoOption = Annotated[
    str | None,
    typer.Option(
        metavar="<number>", help="Total rho instead of the configured one, in a store that counts in rho."
    ),
]
WithinBudgetOption = Annotated[
    bool, typer.Option("--within-budget", help="Take the largest epsilon that all vehicles can pay.")
]
ReleaseArgument = Annotated[str, typer.Argument(help="Name of the release, such as r0001.")]
