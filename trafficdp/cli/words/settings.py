"""The global options, and the workspace they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trafficdp.cli.words.output import Output, plain
from trafficdp.errors import UsageError

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
