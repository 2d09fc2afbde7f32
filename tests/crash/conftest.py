"""Programs that kill their children are started once, and asked one task after another."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """``started(program, folder, ..., before=())`` returns a function: what the program says of a task.

    And what it has written to its standard error so far. ``before`` are paths to import from first.
    """
    with ExitStack() as running:

        def start(program, folder, *arguments, before=()):
            said = running.enter_context((folder / "said").open("w+", encoding="utf-8"))
            driver = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "error",
                    str(Path(__file__).with_name(program)),
                    str(folder),
                    *arguments,
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([*before, *sys.path])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
            for closed in (driver.wait, driver.stdout.close, driver.stdin.close):
                running.callback(closed)

            def ask(*task):
                print(*task, file=driver.stdin, flush=True)
                told = driver.stdout.readline()
                said.seek(0)
                text = said.read()
                assert told, text[-4000:]
                return json.loads(told), text

            return ask

        yield start
