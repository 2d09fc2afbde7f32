"""Children that are forked to die, and waiting for them. Used by both drivers."""

import ast
import gc
import importlib
import os
import pkgutil
import re
import signal
import sys
import time
import tomllib
import traceback
from pathlib import Path

import trafficdp

ROOT = Path(trafficdp.__path__[0])
LATE = re.compile(r"(?m)^ +(?:from [\w.]+ )?import ")


def extras():
    """Return the packages that only an extra of the package asks for: a machine may do without them."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project["optional-dependencies"]
    return {re.match(r"[\w-]+", each)[0] for name in groups if name != "dev" for each in groups[name]}


def import_everything():
    """Import the package and all that its functions import late: children then die at work, not before it.

    What only an extra needs is left alone.
    """
    optional = extras()
    for module in pkgutil.walk_packages(trafficdp.__path__, "trafficdp."):
        if not module.name.endswith(("__main__", "spark_job")):
            importlib.import_module(module.name)
    # few files have any, and to parse all takes seconds
    texts = (path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py"))
    for text in filter(LATE.search, texts):
        functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
        for late in (each for function in functions for each in ast.walk(function)):
            names = [alias.name for alias in late.names] if isinstance(late, ast.Import) else []
            if isinstance(late, ast.ImportFrom):
                names = [str(late.module)]
            for name in names:
                if name.partition(".")[0] not in optional:
                    importlib.import_module(name)


def forked(work):
    """Run ``work()`` in a child that ends with 0, or with 1 after an error; return its process id."""
    # what is there already is no garbage: a child that looked for it would copy all of it
    gc.freeze()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - told to the parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def die_in(seconds):
    """Kill this process: at once, or in the middle of whatever it does by then.

    No handler runs at an alarm's default action either.
    """
    if not seconds:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def was_killed(status):
    """Whether ``status`` is that of a child that died by ``die_in``."""
    return status in (-signal.SIGKILL, -signal.SIGALRM)


def wait_for(child, seconds=600):
    """Return the exit status of ``child``, negative after a signal; "hung" once it was killed for that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def outcome_of(work):
    """Run ``work()`` in a child and return its exit status."""
    return wait_for(forked(work))
