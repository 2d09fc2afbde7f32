"""Options and arguments that several commands take, with their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, get_type_hints

import typer

from trafficdp.errors import UsageError
from trafficdp.model import SlotKind
from trafficdp.privacy.loss import ZCDP, Loss, PureDP
from trafficdp.workspace import Workspace

EpsilonOption = Annotated[
    str | None, typer.Option(metavar="<number>", help="Total epsilon instead of the configured one.")
]
RhoOption = Annotated[
    str | None,
    typer.Option(
        metavar="<number>", help="Total rho instead of the configured one, in a store that counts in rho."
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

    @property
    def loss(self) -> Loss | None:
        """The loss that is asked for, None for the configured one."""
        return loss_asked(self.epsilon, self.rho)

    def of(self, workspace: Workspace) -> Workspace:
        """Return ``workspace`` with this map."""
        return workspace.with_map(
            resolution=self.resolution, slot_kind=self.slot, min_vehicles=self.min_vehicles
        )


def with_map_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command of (context, options, ...) take the fields of MapOptions as options of its own."""
    hints = get_type_hints(MapOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )
        for each in fields(MapOptions)
    ]
    context, _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @wraps(command)
    def spread(context: typer.Context, **given: object) -> None:
        options = MapOptions(**{each.name: given.pop(each.name) for each in shared})  # type: ignore[arg-type]
        command(context, options, **given)

    taken = [context, *shared, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)]
    spread.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    spread.__annotations__ = {each.name: each.annotation for each in taken}
    return spread
