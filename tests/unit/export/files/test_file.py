from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from trafficdp._durable import disk_errors, replace_file
from trafficdp.errors import StoreFullError, StoreReadOnlyError, StoreUnavailableError, UsageError


def test_an_existing_file_is_replaced(tmp_path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    replace_file(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("number", "expected", "code"),
    [
        (errno.ENOSPC, StoreFullError, 6),
        (errno.EDQUOT, StoreFullError, 6),
        (errno.EFBIG, StoreFullError, 6),
        (errno.EROFS, StoreReadOnlyError, 6),
        (errno.EACCES, StoreReadOnlyError, 6),
        (errno.ENOENT, UsageError, 2),
        (errno.ENOTDIR, UsageError, 2),
        (errno.EIO, StoreUnavailableError, 6),
    ],
)
def test_errors_of_the_disk_carry_their_exit_code(number, expected, code):
    with pytest.raises(expected) as raised, disk_errors(Path("/somewhere/map.geojson")):
        raise OSError(number, os.strerror(number))
    assert type(raised.value) is expected
    assert raised.value.exit_code == code
    assert "map.geojson" in str(raised.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path, monkeypatch, number):
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def failing(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreUnavailableError):
        replace_file(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_interrupt_leaves_no_partial_file(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == []


def test_a_file_size_limit_is_a_full_disk(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreFullError):
            replace_file(tmp_path / "a", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="existing folder"):
        replace_file(tmp_path / "nowhere" / "a", b"")


def test_a_device_is_never_replaced():
    with pytest.raises(UsageError, match="not a file"):
        replace_file(Path("/dev/null"), b"x")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(UsageError, match="not a file"):
        replace_file(tmp_path, b"x")
