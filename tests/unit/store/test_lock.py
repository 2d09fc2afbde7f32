"""One at a time, and whoever waits is told for whom."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from trafficdp.errors import StoreBusyError, StoreUnavailableError
from trafficdp.store.store_files import store_lock

HOLDER = """
import sys
from pathlib import Path
from trafficdp.store.store_files import store_lock
with store_lock(Path(sys.argv[1]), purpose="ingest", wait=5):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(filled):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(filled.store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_busy_store_names_its_holder_and_exits_6(filled, holder):
    done = subprocess.run(
        [sys.executable, "-m", "trafficdp", "--config", str(filled.config), "--wait", "0.2", "status"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6
    assert len(done.stderr.splitlines()) == 1
    assert f"held by process {holder.pid} (trafficdp ingest)" in done.stderr


def test_the_lock_of_a_killed_holder_is_free(filled, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert filled.open(wait=0.0).status().files == 1


def test_waiting_gets_the_lock_when_it_is_freed(filled, holder):
    threading.Timer(0.3, holder.kill).start()
    started = time.monotonic()
    assert filled.open(wait=30.0).status().files == 1
    assert time.monotonic() - started < 25


def test_two_threads_of_a_process_exclude_each_other_too(filled):
    with store_lock(filled.store, purpose="release", wait=0):
        with pytest.raises(StoreBusyError, match=f"process {os.getpid()}"):
            filled.open(wait=0.0).status()


def test_a_clock_that_goes_backwards_does_not_prolong_the_wait(filled, holder, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with pytest.raises(StoreBusyError):
        filled.open(wait=0.1).status()


def test_a_holder_that_left_no_name_is_another_process(filled, holder):
    (filled.store / ".lock").write_bytes(b"\xff{")
    with pytest.raises(StoreBusyError, match="held by another process"):
        filled.open(wait=0.0).status()


def test_there_is_nothing_to_lock_without_a_folder(tmp_path):
    with (
        pytest.raises(StoreUnavailableError, match="no store here"),
        store_lock(tmp_path / "nowhere", purpose="status", wait=0),
    ):
        pass
