"""One at a time, and whoever waits is told for whom."""

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from trafficdp.errors import StoreBusyError, StoreUnavailableError
from trafficdp.store.store_files import store_lock


@pytest.fixture
def holder(filled, small_city):
    """The id of a process that holds the store until it is killed."""

    def hold():
        with store_lock(filled.store, purpose="ingest", wait=5):
            os.write(1, b"held")
            signal.pause()

    reading, writing = os.pipe()
    child = small_city.forked(hold, stdout=writing)
    os.close(writing)
    held = os.read(reading, 4)
    os.close(reading)
    assert held == b"held"
    yield child
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
        small_city.ended(child)


def test_a_busy_store_names_its_holder_and_exits_6(filled, holder, small_city, tmp_path):
    said = tmp_path / "said"
    words = ["--config", filled.config, "--wait", "0.2", "status"]
    assert small_city.ended(small_city.forked(words, stderr=said)) == 6
    text = said.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1
    assert f"held by process {holder} (trafficdp ingest)" in text


def test_the_lock_of_a_killed_holder_is_free(filled, holder, small_city):
    os.kill(holder, signal.SIGKILL)
    assert small_city.ended(holder) == -signal.SIGKILL
    assert filled.open(wait=0.0).status().files == 1


def test_waiting_gets_the_lock_when_it_is_freed(filled, holder):
    threading.Timer(0.3, os.kill, (holder, signal.SIGKILL)).start()
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
