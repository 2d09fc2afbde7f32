"""Run work in a child process of which every system call on a file is first shown to this one.

Linux lets a process answer the calls of another (seccomp user notification): let it through, let it fail
with an error, or never answer and kill. So places are counted, not timed, and DuckDB's calls are seen like
Python's. Needs Linux 5.9 on x86-64; no compiler, no tracer, no rights.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import platform
import select
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WRITES = {1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 40: "sendfile", 326: "copy_file_range"}
READS = {0: "read", 17: "pread64"}
SIZES = {77: "ftruncate", 285: "fallocate"}
SYNCS = {74: "fsync", 75: "fdatasync"}
ON_DESCRIPTORS = {**WRITES, **READS, **SIZES, **SYNCS}
RENAMES = {82: "rename", 264: "renameat", 316: "renameat2"}
REMOVALS = {87: "unlink", 263: "unlinkat", 84: "rmdir"}
OPENS = {2: "open", 257: "openat", 85: "creat"}
FOLDERS = {83: "mkdir", 258: "mkdirat"}
NAMES = {**ON_DESCRIPTORS, **RENAMES, **REMOVALS, **OPENS, **FOLDERS}
"""Every call that is looked at, by its number on x86-64."""
DURABLE = {*WRITES, *SIZES, *SYNCS, *RENAMES, *REMOVALS, *FOLDERS}
"""Those that change what lies on the disk, or make it last."""

_SECCOMP, _NO_NEW_PRIVILEGES, _NEW_LISTENER = 317, 38, 1 << 3
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_QUESTION, _ANSWER = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
_RECEIVE = (3 << 30) | (_QUESTION.size << 16) | (ord("!") << 8)
_SEND = (3 << 30) | (_ANSWER.size << 16) | (ord("!") << 8) | 1
_CONTINUE = 1
_AT_CURRENT = 2**32 - 100
_HUNG = 300.0


@dataclass(frozen=True)
class Call:
    """A system call that waits for an answer: what it would do, to which file of the watched folder."""

    number: int
    path: Path
    target: Path | None
    """Where a rename goes."""
    flags: int
    process: int
    arguments: tuple[int, ...]

    @property
    def name(self) -> str:
        """What the manual calls it."""
        return NAMES[self.number]

    @property
    def makes(self) -> bool:
        """Whether a file is opened that may be made or emptied by that."""
        return self.number in OPENS and bool(self.flags & (os.O_CREAT | os.O_TRUNC))

    @property
    def lasting(self) -> bool:
        """Whether it changes what lies on the disk, or makes it last."""
        return self.number in DURABLE or self.makes

    def half_done(self) -> None:
        """Write the first half of what a write would write."""
        count = self.arguments[2] // 2
        with open(f"/proc/{self.process}/mem", "rb") as memory:
            memory.seek(self.arguments[1])
            content = memory.read(count)
        with open(f"/proc/{self.process}/fdinfo/{self.arguments[0]}", encoding="ascii") as facts:
            place = int(facts.readline().split()[1])
        file = os.open(f"/proc/{self.process}/fd/{self.arguments[0]}", os.O_WRONLY)
        try:
            os.pwrite(file, content, self.arguments[3] if self.name == "pwrite64" else place)
        finally:
            os.close(file)


class Kill(Exception):
    """Raised by a decision: the process dies before the call."""


Decision = Callable[[Call], int]
"""Asked of every call: 0 lets it through, an error number makes it fail, -1 lets it seem to succeed."""


def why_not() -> str | None:
    """Return why calls cannot be watched on this machine; None: they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "system calls are watched on Linux on x86-64 only"
    try:
        watched(lambda: 0, Path("/nowhere"), lambda _: 0)
    except OSError as error:
        return f"system calls cannot be watched here: {error}"
    return None


def watched(work: Callable[[], int], folder: Path, decide: Decision) -> int:
    """Run ``work`` in a child and return its exit code, negative after a signal.

    ``decide`` is asked of every call on a file of ``folder``, by the child, its threads and its own children.
    """
    ours, theirs = socket.socketpair()
    gc.freeze()
    child = os.fork()
    if child == 0:
        ours.close()
        _run_watched(work, theirs)
    theirs.close()
    with ours:
        answer, listeners, *_ = socket.recv_fds(ours, 16, 1)
        if not listeners:
            os.waitpid(child, 0)
            raise OSError(int(answer or b"1"), os.strerror(int(answer or b"1")))
        ours.send(b"go")
        try:
            return _answer_all(listeners[0], child, folder, decide)
        finally:
            os.close(listeners[0])


def _run_watched(work: Callable[[], int], theirs: socket.socket) -> None:
    code = 1
    try:
        listener = _watch_this_process(sorted(NAMES))
        if listener < 0:
            theirs.send(str(-listener).encode())
            os._exit(1)
        socket.send_fds(theirs, [b"ready"], [listener])
        os.close(listener)
        theirs.recv(2)
        code = work()
    except BaseException:  # noqa: BLE001 - told to the parent
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _watch_this_process(numbers: list[int]) -> int:
    """Return the descriptor that calls of these numbers are told to, or minus an error number."""
    program = [(0x20, 0, 0, 0)]
    program += [(0x15, len(numbers) - place, 0, each) for place, each in enumerate(numbers)]
    program += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return -ctypes.get_errno()
    listener = int(libc.syscall(_SECCOMP, 1, _NEW_LISTENER, head))
    return listener if listener >= 0 else -ctypes.get_errno()


def _answer_all(listener: int, child: int, folder: Path, decide: Decision) -> int:
    deadline = time.monotonic() + _HUNG
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError("the command hangs")
        ready, _, _ = select.select([listener], [], [], 0.02)
        if not ready:
            continue
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, question)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                continue
            raise
        notified, process, _, number, _, _, *arguments = _QUESTION.unpack(question)
        try:
            call = _seen(number, process, tuple(arguments), folder)
            verdict = 0 if call is None else decide(call)
        except Kill:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL
        result = (0, 0, _CONTINUE) if verdict == 0 else (0, 0, 0) if verdict < 0 else (0, -verdict, 0)
        with suppress(FileNotFoundError):
            fcntl.ioctl(listener, _SEND, bytearray(_ANSWER.pack(notified, *result)))


def _seen(number: int, process: int, arguments: tuple[int, ...], folder: Path) -> Call | None:
    """Return the call, None where it is not on a file of ``folder``."""
    target, flags = None, 0
    try:
        if number in ON_DESCRIPTORS:
            first = 1 if NAMES[number] == "copy_file_range" else 0
            path = Path(os.readlink(f"/proc/{process}/fd/{arguments[2 if first else 0]}"))
        else:
            at = NAMES[number].endswith(("at", "at2"))
            path = _named(process, arguments[0] if at else _AT_CURRENT, arguments[1 if at else 0])
            if number in RENAMES:
                target = _named(process, arguments[2] if at else _AT_CURRENT, arguments[3 if at else 1])
            if number in OPENS:
                flags = os.O_CREAT | os.O_TRUNC if NAMES[number] == "creat" else arguments[2 if at else 1]
    except (OSError, ValueError):
        return None
    inside = folder in path.parents or path == folder
    return Call(number, path, target, flags & 0xFFFFFFFF, process, arguments) if inside else None


def _named(process: int, descriptor: int, address: int) -> Path:
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        # a page may end behind the name
        name = os.fsdecode(memory.read(min(4096, 4096 - address % 4096 + 4096)).split(b"\0", 1)[0])
    base = "cwd" if descriptor & 0xFFFFFFFF == _AT_CURRENT else f"fd/{descriptor}"
    return Path(os.path.normpath(os.path.join(os.readlink(f"/proc/{process}/{base}"), name)))


@dataclass
class PowerCut:
    """What a disk still has after the power went: nothing that was not synced. Watch with ``note``.

    A write is lost unless its file was synced after it; a rename or removal unless its folder was.
    """

    folder: Path
    spare: Path
    """A folder on the same file system, for what is removed."""
    _before: dict[int, bytes] = field(default_factory=dict)
    _names: list[tuple[Path, Path | None, Path | None]] = field(default_factory=list)
    """Unsynced: (name that is gone, name that is new, where the file lies that the name stood for)."""
    _kept: int = 0

    def note(self, call: Call) -> int:
        """Note what ``call`` does; a sync seems to succeed."""
        if call.number in SYNCS:
            if call.path.is_dir():
                self._names = [each for each in self._names if call.path not in _folders(each)]
            else:
                self._before.pop(os.stat(call.path).st_ino, None)
            return -1
        if call.number in RENAMES and call.target is not None:
            self._names.append((call.path, call.target, self._keep(call.target)))
        elif call.number in REMOVALS and call.path.is_file():
            self._names.append((call.path, None, self._keep(call.path)))
        elif (call.number in (*WRITES, *SIZES) or call.makes) and call.path.is_file():
            self._before.setdefault(os.stat(call.path).st_ino, call.path.read_bytes())
        return 0

    def _keep(self, path: Path) -> Path | None:
        if not path.is_file():
            return None
        self._kept += 1
        link = self.spare / f"kept{self._kept}"
        os.link(path, link)
        return link

    def happen(self, *, names_last: bool) -> None:
        """Take back what was not synced; ``names_last``: but for renames and removals."""
        if not names_last:
            for gone, new, stood in reversed(self._names):
                gone.parent.mkdir(parents=True, exist_ok=True)
                if new is not None and new.exists():
                    os.replace(new, gone)
                    if stood is not None:
                        os.link(stood, new)
                elif stood is not None and not gone.exists():
                    os.link(stood, gone)
        for path in files_of(self.folder):
            before = self._before.get(path.stat().st_ino)
            if before is not None:
                path.write_bytes(before)
        shutil.rmtree(self.spare)


def _folders(name: tuple[Path, Path | None, Path | None]) -> set[Path]:
    return {each.parent for each in name[:2] if each is not None}


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the plain files of ``folder`` and the folders in it."""
    return (each for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink())
