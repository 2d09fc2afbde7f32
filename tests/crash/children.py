"""Children that are forked to die, and waiting for them. Used by both drivers."""

import os
import signal
import sys
import time
import traceback


def forked(work):
    """Run ``work()`` in a child that ends with 0, or with 1 after an error; return its process id."""
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


def wait_for(child, seconds=120):
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
