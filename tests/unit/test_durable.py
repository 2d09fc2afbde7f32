"""Pipes, devices, sockets and folders in the place of a file are refused at once, by every command."""

import os
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

import trafficdp
from trafficdp._durable import open_regular, read_regular, require_regular
from trafficdp.cli.main import run
from trafficdp.config.file import load_config
from trafficdp.errors import ConfigError, StoreDamagedError, StoreKeyError, StoreUnavailableError
from trafficdp.ingest.vehicle_key import VehicleKey


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def plug(path):
    # a name of 100 letters at most: sockets take no longer path
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


FOREIGN = {"pipe": pipe, "device": device, "socket": plug, "folder": lambda path: path.mkdir()}


@pytest.fixture(params=FOREIGN)
def foreign(request):
    """Put something that is no file in the place of a path."""

    def put(path):
        path.unlink(missing_ok=True)
        FOREIGN[request.param](path)

    return put


@contextmanager
def no_waiting():
    """Fail instead of hanging."""

    def late(_signal, _frame):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_only_files_are_opened(foreign, tmp_path):
    foreign(tmp_path / "it")
    with no_waiting():
        for call in (open_regular, read_regular, require_regular):
            with pytest.raises(OSError, match=r"not a plain file|Is a directory"):
                call(tmp_path / "it")
        with pytest.raises(OSError, match=r"not a plain file|Is a directory"):
            open_regular(tmp_path / "it", os.O_RDWR | os.O_CREAT)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        open_regular(tmp_path / "it")
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_are_read_to_the_length_asked_for(tmp_path):
    (tmp_path / "it").write_bytes(b"abcdef")
    assert read_regular(tmp_path / "it") == b"abcdef"
    assert read_regular(tmp_path / "it", 4) == b"abcd"
    require_regular(tmp_path / "nothing")


def test_a_key_a_head_and_a_configuration_are_files(released, foreign, capfd):
    places = {"key": released.key, "head": released.head(), "configuration": released.config}
    kept = {name: path.read_bytes() for name, path in places.items()}
    says = {
        "key": (StoreKeyError, lambda: VehicleKey.load(released.key)),
        "head": (StoreDamagedError, lambda: released.open().withdraw("r0001")),
        "configuration": (ConfigError, lambda: load_config(released.config)),
    }
    for name, (kind, call) in says.items():
        foreign(places[name])
        with no_waiting(), pytest.raises(kind) as caught:
            call()
        assert caught.value.exit_code == (2 if name == "configuration" else 6)
        if places[name].is_dir() and not places[name].is_symlink():
            places[name].rmdir()
        else:
            places[name].unlink()
        places[name].write_bytes(kept[name])
        places[name].chmod(0o600)


@pytest.mark.parametrize("name", ["vault.duckdb", "vault.duckdb.wal", ".lock"])
def test_the_databases_of_a_store_are_files(released, foreign, name):
    foreign(released.store / name)
    with no_waiting(), pytest.raises(StoreUnavailableError) as caught:
        released.open().status()
    assert caught.value.exit_code == 6
    assert name in str(caught.value)


def test_verify_and_doctor_wait_for_no_file(released, foreign, monkeypatch):
    monkeypatch.chdir(released.folder)
    for name in ("released.duckdb", "releases/r0001/manifest.json", "releases/r0001/cells.parquet"):
        foreign(released.store / name)
    with no_waiting():
        assert run(["--quiet", "verify", "r0001"]) in (4, 6)
        assert run(["--quiet", "doctor"]) == 6


def test_the_database_waits_for_the_disk_as_it_does_where_nobody_sets_it():
    # tests alone do without: see small_city.wait_for_no_disk
    sources = [path for kind in ("*.py", "*.sql") for path in Path(trafficdp.__path__[0]).rglob(kind)]
    assert len(sources) > 250
    assert [path for path in sources if "fsync_mode" in path.read_text(encoding="utf-8")] == []
