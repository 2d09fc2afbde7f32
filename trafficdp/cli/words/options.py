"""Options that several commands take, those before the command included, with their help."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from trafficdp.cli.words.output import Output, plain
from trafficdp.errors import UsageError
from trafficdp.model import SlotKind
from trafficdp.privacy.loss import ZCDP, Loss, PureDP

if TYPE_CHECKING:
    from rich.progress import Progress

    from trafficdp.config.file import Config
    from trafficdp.workspace import Workspace


@dataclass(frozen=True)
class Settings:
    """Options given before the command."""

    config: Path
    store: Path | None
    wait: float
    output: Output

    def workspace(self, bars: Progress | None = None) -> Workspace:
        """Return the workspace; with ``bars``, files are read under progress bars."""
        # it loads all that the commands need
        from trafficdp.workspace import open_workspace

        progress = None if bars is None else _bar_per_file(bars)
        workspace = open_workspace(self.config, store=self.store, wait=self.wait, progress=progress)
        check_name(workspace.store)
        return workspace

    def places(self) -> tuple[Config, Path, Path]:
        """Return the configuration, the folder of the store and its key file; nothing is opened."""
        from trafficdp.config.file import load_config
        from trafficdp.release.store_setup import places_of

        config = load_config(self.config)
        folder, key_file = places_of(config, self.config, self.store)
        check_name(folder)
        return config, folder, key_file


def store_given(text: str) -> Path:
    """Return the folder that --store names; raise UsageError when it can have no key beside it."""
    path = Path(text)
    if text and path.name in ("", ".."):
        # "." and ".." by their own names, so that the key can be called after them
        path = Path(os.path.abspath(path))
    if not text.strip() or not path.name:
        raise UsageError(
            "--store names no folder that a key could lie beside",
            got=f'--store "{text}"',
            expected="a folder such as city.store",
        )
    return path


def check_name(store: Path) -> None:
    """Raise UsageError unless DuckDB can take the path of the store: text that is UTF-8, without NUL."""
    try:
        usable = b"\0" not in os.path.abspath(store).encode("utf-8")
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise UsageError(
            "the path of the store cannot be used",
            got=str(store),
            expected="letters in UTF-8",
            todo="rename it",
        )


def _bar_per_file(bars: Progress) -> Callable[[Path], AbstractContextManager[Callable[[int], None]]]:
    @contextmanager
    def bar(path: Path) -> Iterator[Callable[[int], None]]:
        total = path.stat().st_size if path.is_file() else None
        task = bars.add_task(plain(path.name), total=total)
        yield lambda read: bars.advance(task, read)

    return bar


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
