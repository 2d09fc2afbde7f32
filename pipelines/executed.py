"""Which test executes which line of the package, and for how long: a plugin of pytest for `make mutants`.

    python pipelines/executed.py RECORD [pytest's arguments]

Appends one line of JSON a test to RECORD, and one for every fixture that outlives a test: what a session's
city executed belongs to every test that looks at it. Lines that an import executes belong to no test.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[1]


class Executed:
    """Writes what each test executed to ``record`` when it is over."""

    def __init__(self, record: Path) -> None:
        self._record, self._context = record, ""
        self._fresh()

    def _fresh(self) -> None:
        self._cov = coverage.Coverage(data_file=None, source=[str(ROOT / "trafficdp")], config_file=False)
        # a test that executes nothing of the package
        self._cov.set_option("run:disable_warnings", ["no-data-collected"])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record a test, and what its fixtures were if they outlive it."""
        self._fresh()
        began = time.process_time()
        self._cov.start()
        self._switch(item.nodeid)
        try:
            return (yield)
        finally:
            self._cov.stop()
            self._write(item, time.process_time() - began)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        """What is made once belongs to all that use it."""
        if fixturedef.scope == "function":
            return (yield)
        outer = self._context
        self._switch(_name(fixturedef))
        try:
            return (yield)
        finally:
            self._switch(outer)

    def _switch(self, context: str) -> None:
        self._context = context
        self._cov.switch_context(context)

    def _write(self, item: pytest.Item, seconds: float) -> None:
        data = self._cov.get_data()
        lines: dict[str, dict[str, list[int]]] = {item.nodeid: {}}
        for file in data.measured_files():
            name = Path(file).relative_to(ROOT).as_posix()
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in filter(None, contexts):
                    lines.setdefault(context, {}).setdefault(name, []).append(line)
        uses = [_name(each[-1]) for each in item._fixtureinfo.name2fixturedefs.values() if each]  # type: ignore[attr-defined]
        with self._record.open("a", encoding="utf-8") as stream:
            for name, files in lines.items():
                said: dict[str, Any] = {"name": name, "lines": files}
                if name == item.nodeid:
                    said |= {"seconds": round(seconds, 3), "fixtures": uses}
                stream.write(json.dumps(said) + "\n")


def _name(fixture: pytest.FixtureDef[Any]) -> str:
    return f"fixture {fixture.argname} of {fixture.baseid}"


if __name__ == "__main__":
    raise SystemExit(pytest.main(sys.argv[2:], plugins=[Executed(Path(sys.argv[1]))]))
