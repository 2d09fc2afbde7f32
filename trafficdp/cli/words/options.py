"""Options and arguments that several commands take, with their help."""

from __future__ import annotations

from typing import Annotated

import typer

from trafficdp.errors import UsageError
from trafficdp.model.slot import SlotKind
from trafficdp.privacy.loss import ZCDP, Loss, PureDP

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
    bool, typer.Option("--within-budget", help="Take the largest epsilon or rho that all vehicles can pay.")
]
ResolutionOption = Annotated[
    int | None,
    typer.Option("--resolution", metavar="<number>", help="H3 resolution instead of the configured one."),
]
SlotOption = Annotated[
    str | None,
    typer.Option("--slot", metavar="<kind>", help=" | ".join(kind.value for kind in SlotKind)),
]
MinVehiclesOption = Annotated[
    int | None,
    typer.Option(
        "--min-vehicles", metavar="<number>", help="Vehicles that a bin needs, instead of those configured."
    ),
]
ReleaseArgument = Annotated[str, typer.Argument(help="Name of the release, such as r0001.")]


def loss_asked(epsilon: str | None, rho: str | None) -> Loss | None:
    """Return what --epsilon or --rho asks for, None for neither; raise UsageError for both."""
    if epsilon is not None and rho is not None:
        raise UsageError("--epsilon and --rho are two kinds of loss", todo="give that of the store")
    if rho is not None:
        return ZCDP.of(rho)
    return None if epsilon is None else PureDP.of(epsilon)
