"""A file of a city: its bytes, checked and unpacked, with a count of how far reading got."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from trafficdp._durable import MACHINE, from_os_error
from trafficdp.errors import DataError, StoreUnavailableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_FOREIGN = {
    b"\xfd7zXZ": "packed with xz",
    b"BZh": "packed with bzip2",
}
_FORMS = {
    b"\x1f\x8b": ("gzip", ".gz"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst"),
    b"PK\x03\x04": ("zip", ".zip"),
    b"PK\x05\x06": ("zip", ".zip"),
    b"SQLite f": ("gpkg", ".gpkg"),
    b"PAR1": ("parquet", ".parquet"),
}
"""How a file begins, what it is then, and how its name ends where only that counts."""
_CHUNK = 1 << 20
_FIRST_LOOK = 32 << 10
"""A member is begun several times, to see what it is."""
LARGEST_RATIO = 128
"""A file that unpacks to more than this many times its size is a trap. Records of cities pack 7 to 17 times,
the same row over and over 340 times."""
_USUAL_RATIO = 10
FREE_BYTES = 16 << 20
"""What any file may unpack to, whatever the ratio."""
LARGEST_DOCUMENT = 64 << 20
"""JSON and protobuf are read whole, and objects in memory take many times their bytes."""


_ENCRYPTED = 1
MOST_MEMBERS = 100_000
"""Files of a zip archive."""
LOT_BYTES = 8 << 20
LOT_FILES = 256
"""Unpacked bytes, and files of an archive, that are read together: every block of rows has its own costs."""


class Named(Protocol):
    """Anything with a name for error messages: an input file or a data frame."""

    @property
    def name(self) -> str:
        """The name for messages; of a file, without its folder."""


class _Unpacked(io.RawIOBase):
    """Bytes of ``packed``, unpacked by ``source``; ``check`` is called with both counts as they grow."""

    def __init__(
        self, source: io.BufferedIOBase, packed: BinaryIO, check: Callable[[int, int], None]
    ) -> None:
        super().__init__()
        self._source, self._check, self._packed, self._count = source, check, packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._source.readinto(buffer)
        self._count += count
        self._check(self._count, self._packed.tell())
        return count


class _Zstd(io.BufferedIOBase):
    """The bytes of a file that is packed with zstd, unpacked by Arrow."""

    def __init__(self, raw: io.BufferedIOBase) -> None:
        import pyarrow as pa

        super().__init__()
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        try:
            read: bytes = self._stream.read(len(view))
        except (OSError, ValueError) as error:
            # of Arrow: what it reads here are no files
            raise EOFError(str(error)) from None
        view[: len(read)] = read
        return len(read)


class InputFile:
    """One file to read. Raises DataError at once when it is missing, a folder or unreadable.

    ``progress`` is called with the number of bytes of the file that were read since the last call. With
    ``held`` its bytes are in memory already, and ``path`` is only a name. With ``refuse_by_rows`` it may also
    be refused for its rows, such as for having none, or for how well they pack, and raises DataError at once
    when it is empty; else for its format only. Where the first bytes may be a record's (``form_by_name``),
    only the name says how the file is packed.
    """

    in_archive = False
    """Whether it is a member of a zip archive, so that no file lies beside it."""
    form = ""
    """Whether its bytes are "gzip", "zstd", "zip", "gpkg" (or another SQLite) or "parquet"; "" of others."""

    def __init__(
        self,
        path: Path,
        progress: Callable[[int], None] | None = None,
        *,
        held: bytes | None = None,
        refuse_by_rows: bool = True,
        form_by_name: bool = False,
    ) -> None:
        self.path, self.refuse_by_rows, self.form_by_name = path, refuse_by_rows, form_by_name
        self.name = path.name
        """What messages call it: without its folder, and where it is a vehicle's, something else."""
        self._progress = progress
        self._told = 0
        self._raw: BinaryIO | None = None
        self.held = held
        """Its bytes, where they are no file's that another process can open."""
        if held is not None:
            self.size, head = len(held), held[:8]
        else:
            try:
                if not path.exists():
                    raise DataError(f"there is no file {path}")
                if not path.is_file():
                    raise DataError(
                        f"{path} is not a file",
                        got="a folder" if path.is_dir() else None,
                        todo="name the files in it",
                    )
                self.size = path.stat().st_size
                with open(path, "rb") as file:
                    head = file.read(8)
            except (OSError, ValueError) as error:
                raise self.unreadable_error(error) from error
        self._recognise(head)

    def _recognise(self, head: bytes) -> None:
        """Note the form of what begins with ``head``; refuse what is empty, or packed in a rare way."""
        name = self.path.name.lower()
        for magic, (form, ending) in _FORMS.items():
            if head.startswith(magic) and (not self.form_by_name or name.endswith(ending)):
                self.form = form
        if self.size == 0 and self.refuse_by_rows:
            raise DataError(f"{self.name} is empty", got="0 bytes")
        if self.form == "zip" and self.in_archive:
            raise DataError(
                f"{self.name} cannot be unpacked", got="an archive within an archive", expected="one archive"
            )
        for magic, foreign in _FOREIGN.items():
            if head.startswith(magic) and not self.form_by_name:
                raise DataError(
                    f"{self.name} cannot be read",
                    got=foreign,
                    expected="text, Parquet or protobuf, as it is or in gzip, zstd or zip",
                    todo="convert it with its own tool",
                )
        for ending, form in ((".gz", "gzip"), (".zst", "zstd")):
            if name.endswith(ending) and self.form != form:
                raise DataError(f"{self.name} is not a {form} file, though its name ends with {ending}")

    @property
    def unpacked_name(self) -> str:
        """The file's name in small letters, without the ending of its compression such as ".gz"."""
        return self.path.name.lower().removesuffix(".gz").removesuffix(".zst")

    def file_groups(self, *, named_by_vehicle: bool = False) -> Iterator[list[InputFile]]:
        """Yield lists of files to read together: the members of a zip archive in order, else the file itself.

        Hidden members are left out. A list has at most LOT_FILES files and about LOT_BYTES unpacked bytes.
        With ``named_by_vehicle`` file names are vehicle identifiers, and no message repeats them. Raises
        DataError for an archive that is damaged, encrypted, too large unpacked or of too many files, or, with
        ``refuse_by_rows``, of none.
        """
        if self.form != "zip":
            yield [self]
            return
        with self._archive() as archive:
            infos = [info for info in archive.infolist() if not info.is_dir() and not _hidden(info.filename)]
            if len(infos) > MOST_MEMBERS:
                raise DataError(
                    f"{self.name} holds too many files",
                    got=len(infos),
                    expected=f"{MOST_MEMBERS} at most",
                    todo="split it into several archives",
                )
            if any(info.flag_bits & _ENCRYPTED for info in infos):
                raise DataError(f"{self.name} is encrypted", expected="an archive that needs no password")
            if not infos and self.refuse_by_rows:
                raise DataError(f"{self.name} holds no file", expected="files of records")
            if any(info.filename == "xl/workbook.xml" for info in infos):
                raise DataError(
                    f"{self.name} is an Excel workbook",
                    expected="text, Parquet or protobuf",
                    todo="save the sheet as CSV",
                )
            # of a file no more is unpacked than the archive says
            self.check_unpacked(sum(info.file_size for info in infos))
            lot: list[InputFile] = []
            unpacked = packed = 0
            for info in infos:
                lot.append(
                    _Member(self, archive, info, f"a file of {self.name}" if named_by_vehicle else None)
                )
                unpacked, packed = unpacked + info.file_size, packed + info.compress_size
                if unpacked >= LOT_BYTES or len(lot) == LOT_FILES or info is infos[-1]:
                    yield lot
                    self.tell_progress(min(packed, self.size))
                    lot, unpacked = [], 0

    def unpacked_sizes(self) -> list[int]:
        """Return the unpacked size in bytes of the file, or of each file in an archive.

        Of gzip and zstd it is a guess.
        """
        if self.form == "zip":
            with self._archive() as archive:
                return [info.file_size for info in archive.infolist()]
        return [self.size * (_USUAL_RATIO if self.form in ("gzip", "zstd") else 1)]

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with self._bytes() as raw, zipfile.ZipFile(raw) as archive:
                yield archive
        except (zipfile.BadZipFile, NotImplementedError, EOFError, UnicodeDecodeError) as error:
            raise self.damaged_archive_error() from error
        except OSError as error:
            raise self.unreadable_error(error) from error

    def damaged_archive_error(self) -> DataError:
        """Return (do not raise) the error for a zip archive that cannot be unpacked."""
        return DataError(
            f"{self.name} cannot be unpacked",
            got="a damaged or truncated zip archive, or one that is packed in a rare way",
            todo="fetch it again, or unpack it with another tool",
        )

    def check_unpacked(self, unpacked: int, packed: int | None = None) -> None:
        """Raise DataError when bytes unpack to more than their packed size makes plausible.

        Nothing is refused without ``refuse_by_rows``. ``unpacked`` and ``packed`` are numbers of bytes;
        ``packed`` None: the size of the whole file.
        """
        if self.refuse_by_rows and unpacked > FREE_BYTES + LARGEST_RATIO * (
            self.size if packed is None else packed
        ):
            raise DataError(
                f"{self.name} unpacks to more than records can",
                got=f"over {LARGEST_RATIO} times its size",
                expected=f"at most {LARGEST_RATIO} times its size, and {FREE_BYTES >> 20} MiB",
                todo="fetch it again; if it is right, unpack it with another tool and ingest what comes out",
            )

    def sha256(self) -> str:
        """Return the SHA-256 of the file's bytes, still packed, as hexadecimal digits."""
        try:
            with self._bytes() as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise self.unreadable_error(error) from error

    def _bytes(self) -> io.BufferedReader | io.BytesIO:
        return open(self.path, "rb") if self.held is None else io.BytesIO(self.held)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the unpacked bytes, checked as they come; damaged gzip or zstd becomes a DataError."""
        try:
            with self._bytes() as raw:
                self._raw = raw
                if self.form in ("gzip", "zstd"):
                    with gzip.GzipFile(fileobj=raw) if self.form == "gzip" else _Zstd(raw) as unpacked:
                        checked = _Unpacked(unpacked, raw, self.check_unpacked)
                        yield io.BufferedReader(checked, _CHUNK)
                else:
                    yield raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(
                f"{self.name} is a damaged or truncated {self.form} file",
                todo="fetch it again from its publisher",
            ) from error
        except OSError as error:
            raise self.unreadable_error(error) from error

    def content(self, largest: int = LARGEST_DOCUMENT) -> bytes:
        """Return all unpacked bytes; raise DataError when there are none, or more than ``largest``."""
        parts = io.BytesIO()
        with self.open() as stream:
            while chunk := stream.read(_CHUNK):
                parts.write(chunk)
                if parts.tell() > largest:
                    raise DataError(
                        f"{self.name} is too large to be read in one piece",
                        expected=f"{largest >> 20} MiB of text at most",
                        todo="split it into several files",
                    )
                self.tell_progress()
        if parts.tell() == 0:
            raise DataError(f"{self.name} is empty", got="0 bytes after unpacking")
        return parts.getvalue()

    def tell_progress(self, position: int | None = None) -> None:
        """Report that reading got to ``position`` (in bytes); None: to that of the open file."""
        if self._progress is None:
            return
        if position is None:
            position = self.size if self._raw is None or self._raw.closed else self._raw.tell()
        if position > self._told:
            self._progress(position - self._told)
            self._told = position

    def unreadable_error(self, error: Exception) -> DataError | StoreUnavailableError:
        """Return (do not raise) the error for a file that the operating system could not read.

        ``error`` is the OSError. A DataError, or StoreUnavailableError where the fault is the machine's (such
        as a disk error).
        """
        if isinstance(error, OSError) and error.errno in MACHINE:
            return from_os_error(error, f"reading {self.name}")
        return DataError(f"cannot read {self.name}", got=getattr(error, "strerror", None) or "an error")

    def encoding_error(self, encoding: str = "utf-8") -> DataError:
        """Return (do not raise) the error for bytes that are no text in ``encoding``."""
        other = "cp1252" if encoding == "utf-8" else "utf-8"
        return DataError(
            f"{self.name} is not text in {encoding.upper()}",
            todo=f'declare how it is written, such as encoding = "{other}", or its true format',
        )


class _Member(InputFile):
    """One file of a zip archive."""

    in_archive = True

    def __init__(
        self, of: InputFile, archive: zipfile.ZipFile, info: zipfile.ZipInfo, called: str | None
    ) -> None:
        self._of, self._zip, self._info = of, archive, info
        self.path, self.refuse_by_rows, self.size = Path(info.filename), of.refuse_by_rows, info.file_size
        self.form_by_name, self.name = of.form_by_name, called or self.path.name
        self._progress, self._told, self._raw, self.held = None, 0, None, None
        with self.open() as stream:
            head = stream.read(8)
        self._recognise(head)

    def _bytes(self) -> io.BufferedReader:
        # which reads as RawIOBase does
        return io.BufferedReader(cast("io.RawIOBase", self._zip.open(self._info)), _FIRST_LOOK)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the unpacked bytes; a damaged member becomes a DataError."""
        try:
            with super().open() as stream:
                yield stream
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise self._of.damaged_archive_error() from error


def _hidden(name: str) -> bool:
    return name.startswith("__MACOSX/") or Path(name).name.startswith(".")
