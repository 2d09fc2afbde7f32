"""What a job asks of Spark itself: a session, the key in its executors, its errors, its file systems."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trafficdp.engine.reduced import SAID, SourceFile
from trafficdp.errors import DataError, UsageError
from trafficdp.ingest.vehicle_key import VehicleKey

ENCRYPTED = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
"""What must be true of a session before a key is broadcast."""


@dataclass(frozen=True)
class KeyLocation:
    """Where executors find the key, and what it is: ``mount`` is its path on every one; None: broadcast."""

    key: VehicleKey = field(repr=False)
    mount: Path | None = None


def session_of(given: SparkSession | None) -> SparkSession:
    """Return the session that is given, or active, or a new one as Spark is configured on this machine.

    Raises UsageError where there is no Java, and for a session of Spark Connect.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = given or SparkSession.builder.appName("trafficdp").getOrCreate()
    except (PySparkException, OSError) as error:
        raise UsageError(
            "Spark does not start",
            got=type(error).__name__,
            expected="Java 17 or 21, as `java` or under JAVA_HOME",
            todo="install one, such as the package openjdk-17-jre-headless",
        ) from None
    if not hasattr(session, "sparkContext"):
        raise UsageError(
            "Spark Connect can neither send a key to executors nor show a plan",
            expected="a session of the cluster itself",
            todo="take compute of one user, or spark-submit",
        )
    return session


def is_local(session: SparkSession) -> bool:
    """Return whether executors run on this machine."""
    return str(session.sparkContext.master).startswith("local")


def key_in_executors(
    session: SparkSession, place: KeyLocation
) -> tuple[Callable[[], VehicleKey], Callable[[], None]]:
    """Return what gives executors the key, and what takes it back."""
    if place.mount is not None:
        # a secret mount is a link to a file that changes
        return partial(_mounted, str(place.mount), place.key.fingerprint), lambda: None
    settings = session.sparkContext.getConf()
    off = [name for name in ENCRYPTED if settings.get(name, "false") != "true"]
    if off:
        raise UsageError(
            "the key would travel, and lie on disks, in the clear",
            expected=", ".join(f"{name}=true" for name in off),
            todo="or mount it as a secret on every executor and name its path",
        )
    sent = session.sparkContext.broadcast(place.key)
    return partial(_sent, sent), sent.destroy


def _mounted(path: str, fingerprint: str) -> VehicleKey:
    key = VehicleKey.load(Path(os.path.realpath(path)))
    if key.fingerprint != fingerprint:
        raise UsageError("the key that is mounted is not the key of this city", got=f"{key.fingerprint[:12]}")
    return key


def _sent(broadcast: Broadcast[VehicleKey]) -> VehicleKey:
    key: VehicleKey = broadcast.value
    return key


@contextmanager
def set_for_now(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change ``settings`` of the session while the block lasts."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


@contextmanager
def failures() -> Iterator[None]:
    """Turn Spark's errors into ours: theirs may quote values."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = re.search(re.escape(SAID) + r'("(?:[^"\\\\]|\\\\.)*")', str(error))
        if said is not None:
            raise DataError(json.loads(said.group(1))) from None
        raise DataError(
            "the job failed on the cluster", got=type(error).__name__, todo="see the log of its driver"
        ) from None


class Folder:
    """A folder of any file system that Spark knows, for its owner only."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._hadoop: Any = session.sparkContext._jvm.org.apache.hadoop.fs
        self._path = self._hadoop.Path(path)
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()
        self._system = self._path.getFileSystem(self._configuration)

    def path(self, name: str | None = None) -> str:
        """Return the address of the folder or of what is in it."""
        path = self._system.makeQualified(self._path).toString()
        return str(path if name is None else f"{path}/{name}")

    def make(self) -> None:
        """Make the folder."""
        self._system.mkdirs(self._path)
        self._system.setPermission(self._path, self._hadoop.permission.FsPermission("700"))

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._system.delete(self._path, True)

    def write(self, name: str, text: str) -> None:
        """Write a file under its name in one move."""
        half = self._hadoop.Path(self._path, f".{name}.new")
        stream = self._system.create(half, True)
        stream.write(text.encode())
        stream.close()
        self._system.rename(half, self._hadoop.Path(self._path, name))

    def read_all(self, name: str) -> list[str]:
        """Return the texts of NAME in every folder of this one."""
        found = self._system.globStatus(self._hadoop.Path(self._path, f"*/{name}")) or []
        return [self._text(each.getPath()) for each in found]

    def files(self, uris: Sequence[str]) -> dict[str, SourceFile]:
        """Return the files that ``uris`` name, in order; raise DataError for a name without one."""
        files: dict[str, SourceFile] = {}
        for uri in uris:
            pattern = self._hadoop.Path(uri)
            found = pattern.getFileSystem(self._configuration).globStatus(pattern) or []
            if not len(found):
                raise DataError(f"there is no file {uri}", todo="correct its name")
            for each in sorted(found, key=lambda status: str(status.getPath().toString())):
                path = each.getPath()
                if each.isDirectory():
                    raise DataError(f"{uri} is a folder", expected="files", todo="name the files in it: /*")
                files[path.toString()] = SourceFile(
                    path.toString(), each.getLen(), each.getModificationTime()
                )
        return files

    def _text(self, path: object) -> str:
        stream = self._system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
