"""Vehicle identifiers: normalised, replaced by a keyed hash, and read in parts that memory holds."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp._durable import MACHINE, from_os_error, open_regular
from trafficdp.arrays import BoolArray, IntArray
from trafficdp.errors import DataError, StoreKeyError
from trafficdp.ingest.times import Records, Times
from trafficdp.store.store_files import Spill

# Vehicle identifiers as they are read: normalised, then replaced by a keyed HMAC.
#
# The key lies outside the store. Whoever holds the store alone cannot try plates against the pseudonyms,
# and two spellings of one plate ("gj-05 bx 3983", "GJ05BX3983") become one privacy unit, not two.


MISSING_IDENTIFIERS = ("", "NA", "<NA>", "NAN", "NULL", "NONE", "INF", "INFINITY")
"""What a normalised identifier must not be: such rows name no vehicle and are never grouped into one."""

PSEUDONYM_BYTES = 32
_HEADER = "trafficdp-key-1"
_VEHICLE_DOMAIN = b"trafficdp/vehicle/1"
_FINGERPRINT_DOMAIN = b"trafficdp/fingerprint/1"
_FILE_DOMAIN = b"trafficdp/file/1"
_DROPPED = r"[\s\p{Z}\p{Pd}\p{C}]+"
_DROPPED_OF_ASCII = r"[\x00-\x20\x7f-]+"
"""The same of ASCII; compiling the other takes longer than reading a small file."""
_PASSES = 16
_WHOLE = r"^([0-9]+)\.0*$"
_FRACTION = r"^[0-9]*\.[0-9]*[1-9][0-9]*$"
_LARGE = r"^[0-9](?:\.[0-9]+)?E(?:\+[0-9]{2,3}|1[5-8])$"
"""How floating-point numbers of more than 15 digits are written, some without "+"."""


def is_text(kind: pa.DataType) -> bool:
    """Return whether columns of the type ``kind`` hold text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def identifiers_to_text(ids: pa.Array, *, where: str) -> pa.Array:
    """Return identifiers of any column type as text (pa.string), nulls kept; a dictionary stays one.

    ``normalise_identifiers`` reads the numerals. Raises DataError, naming ``where`` the column stood, for
    types that cannot be identifiers.
    """
    if pa.types.is_dictionary(ids.type):
        distinct = identifiers_to_text(ids.dictionary, where=where)
        return pa.DictionaryArray.from_arrays(pc.cast(ids.indices, pa.int32()), distinct)
    if pa.types.is_floating(ids.type):
        numbers = pc.cast(ids, pa.float64())
        # a small one would have an exponent whose sign is dropped as hyphens are
        ids = pc.cast(_whole(numbers), pa.string())
    kind = ids.type
    number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if not (is_text(kind) or number or pa.types.is_null(kind)):
        raise DataError(
            f"{where} cannot hold vehicle identifiers",
            got=f"a column of type {kind}",
            expected="text or whole numbers",
        )
    return pc.cast(ids, pa.string())


def normalise_identifiers(ids: pa.Array | Sequence[str | None]) -> pa.Array:
    """Return identifiers in upper case, without spaces, hyphens and invisible characters.

    ``ids`` is a column of text, Arrow's or any other; the result is a pa.string array of its length.
    Unicode compatibility forms are folded too (full-width digits, dashes of all kinds). A whole number is
    its digits, however it is written: 123, 123.0, 1.23e+18; so is one beside slashes. Null where the
    identifier is missing: null, one of MISSING_IDENTIFIERS, a fraction, or from 2^63 written with an
    exponent. Applying it twice changes nothing. The work is done once for each distinct identifier.
    """
    text = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.string())
    encoded = pc.dictionary_encode(pc.cast(text, pa.string()))
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    distinct = encoded.dictionary
    for _ in range(_PASSES):
        if pc.all(pc.string_is_ascii(distinct)).as_py():
            # nothing takes the place of what is dropped
            distinct = pc.ascii_upper(pc.replace_substring_regex(distinct, _DROPPED_OF_ASCII, ""))
            break
        before = distinct
        distinct = pc.utf8_normalize(pc.replace_substring_regex(distinct, _DROPPED, ""), form="NFKC")
        distinct = pc.utf8_upper(distinct)
        if distinct.equals(before):
            break
    distinct = _whole_numbers(distinct)
    if pc.any(pc.match_substring(distinct, "/")).as_py():
        parts = pc.split_pattern(pc.fill_null(distinct, ""), "/")
        part = parts.flatten()
        numbers = pa.ListArray.from_arrays(parts.offsets, pc.coalesce(_whole_numbers(part), part))
        distinct = pc.binary_join(numbers, "/")
    missing = pc.is_in(distinct, value_set=pa.array(MISSING_IDENTIFIERS))
    if pc.any(pc.match_substring(distinct, ".")).as_py():
        missing = pc.or_(missing, pc.match_substring_regex(distinct, _FRACTION))
    distinct = pc.if_else(missing, pa.scalar(None, pa.string()), distinct)
    return distinct.take(encoded.indices)


def qualified_by_operator(operators: pa.Array, vehicles: pa.Array) -> tuple[pa.Array, BoolArray]:
    """Return (identifiers, operator_missing) for vehicles that are numbered within their operator only.

    Both parameters and the identifiers are columns of text (n,). An identifier is the operator, a slash, the
    number; a slash of the operator's own is ``\\/``, a backslash two, so that no two pairs share one. It is
    null where either is missing; the second array is true where only the operator is.
    """
    encoded, vehicle = pc.dictionary_encode(operators), normalise_identifiers(vehicles)
    escaped = pc.replace_substring_regex(normalise_identifiers(encoded.dictionary), r"([\\/])", r"\\\1")
    operator = escaped.take(encoded.indices)
    no_operator = pc.and_(pc.is_valid(vehicle), pc.is_null(operator)).to_numpy(zero_copy_only=False)
    return pc.binary_join_element_wise(operator, vehicle, "/"), no_operator


def with_operator(records: Records, operators: pa.Array, separator: str = "") -> Records:
    """Return ``records`` with vehicle identifiers made of operator and vehicle (``qualified_by_operator``).

    ``operators`` is a column of text, shape (n,). With a ``separator`` the operator is the text before its
    first occurrence, and a text without it names no operator.
    """
    text = operators.dictionary_decode() if pa.types.is_dictionary(operators.type) else operators
    if separator:
        named = pc.match_substring(text, separator)
        text = pc.list_element(pc.split_pattern(pc.fill_null(text, ""), separator, max_splits=1), 0)
        text = pc.if_else(named, text, pa.scalar(None, pa.string()))
    identifiers, no_operator = qualified_by_operator(
        text, pc.cast(records.vehicle.dictionary_decode(), pa.string())
    )
    return replace(records, vehicle=pc.dictionary_encode(identifiers), no_operator=no_operator)


def _whole(numbers: pa.Array) -> pa.Array:
    """Return ``numbers`` with null for each that no 64 bits hold as a whole number."""
    whole = pc.and_(pc.less(pc.abs(numbers), 2.0**63), pc.equal(pc.floor(numbers), numbers))
    return pc.if_else(whole, numbers, pa.scalar(None, pa.float64()))


def _whole_numbers(distinct: pa.Array) -> pa.Array:
    """Return whole numbers as their digits, null for those that no 64 bits hold, other texts as they are."""
    if pc.any(pc.match_substring(distinct, ".")).as_py():
        distinct = pc.replace_substring_regex(distinct, _WHOLE, r"\1")
    large = pc.match_substring_regex(distinct, _LARGE)
    if not pc.any(large).as_py():
        return distinct
    numbers = pc.cast(pc.if_else(large, distinct, pa.scalar(None, pa.string())), pa.float64())
    return pc.if_else(large, pc.cast(pc.cast(_whole(numbers), pa.int64()), pa.string()), distinct)


class VehicleKey:
    """The secret (32 bytes) that turns identifiers into pseudonyms. Its repr shows nothing of it."""

    __slots__ = ("_secret", "fingerprint")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != PSEUDONYM_BYTES:
            raise StoreKeyError("a vehicle key has the wrong length", expected=f"{PSEUDONYM_BYTES} bytes")
        self._secret = bytes(secret)
        self.fingerprint = hashlib.sha256(hmac.digest(secret, _FINGERPRINT_DOMAIN, "sha256")).hexdigest()
        """SHA-256 of an HMAC under the key, 64 hexadecimal digits: tells keys apart, gives nothing away."""

    def __repr__(self) -> str:
        return "<VehicleKey: redacted>"

    @classmethod
    def create(cls, path: Path) -> VehicleKey:
        """Write a new key to ``path``, readable by its owner only, and return it.

        Raises StoreKeyError when there is a file already (a key is never overwritten: without it the
        store cannot recognise its vehicles) or when the file cannot be written.
        """
        secret = os.urandom(PSEUDONYM_BYTES)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            raise StoreKeyError(
                f"there is a key at {path} already",
                todo="use it, or name another file; keys are not replaced",
            ) from None
        except OSError as error:
            raise StoreKeyError(f"cannot write the key {path}", got=error.strerror) from error
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(f"{_HEADER} {secret.hex()}\n".encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                Path(path).unlink()
            raise StoreKeyError(f"cannot write the key {path}", got=error.strerror) from error
        return cls(secret)

    @classmethod
    def load(cls, path: Path) -> VehicleKey:
        """Read the key at ``path``.

        Raises StoreKeyError when it is missing, not a plain file, readable or writable by group or
        others, or not a key.
        """
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                status = os.fstat(file.fileno())
                content = file.read(256)
        except FileNotFoundError:
            raise StoreKeyError(
                f"there is no key at {path}",
                todo="put back the key the store was made with; without it new records cannot join old ones",
            ) from None
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EISDIR):
                raise StoreKeyError(
                    f"the key {path} is not a plain file", todo="put back the key the store was made with"
                ) from error
            if error.errno in MACHINE:
                raise from_os_error(error, "reading the key") from error
            raise StoreKeyError(
                f"cannot read the key {path}",
                got=error.strerror,
                todo="run as the user who made the store; the key is for that user alone",
            ) from error
        if status.st_mode & 0o077:
            raise StoreKeyError(
                f"the key {path} is open to other users",
                got=f"mode {stat.S_IMODE(status.st_mode):04o}",
                expected="mode 0600",
                todo=f"run: chmod 600 {path}",
            )
        found = re.fullmatch(rb"trafficdp-key-1 ([0-9a-f]{64})\n?", content)
        if found is None:
            raise StoreKeyError(
                f"{path} is not a key of trafficdp",
                expected=f'one line, "{_HEADER}" and 64 hexadecimal digits',
                todo="put back the key the store was made with",
            )
        return cls(bytes.fromhex(found.group(1).decode("ascii")))

    def digest(self, sha256: str) -> str:
        """Return HMAC-SHA256(key, domain 00 ``sha256``), 64 hexadecimal digits.

        It tells files apart by their SHA-256, and no guess of a content can be tried without the key.
        """
        return hmac.digest(self._secret, b"\x00".join((_FILE_DOMAIN, sha256.encode())), "sha256").hex()

    def pseudonyms(self, ids: pa.Array | Sequence[str | None], namespace: str) -> pa.Array:
        """Return HMAC-SHA256(key, domain 00 namespace 00 normalised id) of ``ids``, pa.binary(32).

        Null where the identifier is missing. Computed once for each distinct identifier. Normalised
        identifiers hold no NUL, so no two (namespace, id) pairs share a message.
        """
        encoded = pc.dictionary_encode(normalise_identifiers(ids))
        prefix = b"\x00".join((_VEHICLE_DOMAIN, namespace.encode(), b""))
        digests = [
            hmac.digest(self._secret, prefix + name.encode(), "sha256")
            for name in encoded.dictionary.to_pylist()
        ]
        return pa.array(digests, pa.binary(PSEUDONYM_BYTES)).take(encoded.indices)


# Records in parts that memory holds, every vehicle whole in one of them, its rows in the order of the file.
#
# What cleaning asks of other rows, it asks of rows of the same vehicle. So parts may be cleaned one by one.


ROWS_AT_ONCE = 1 << 20
"""Rows of a file that are held in memory, with all that is read of them."""
_PART_BITS = 5
PARTS = 1 << _PART_BITS
"""Into how many parts a larger file is cut; a part of it is held in memory."""
LARGEST_PART = 2 * ROWS_AT_ONCE
"""Rows of a part; one with more is cut again, down to a single vehicle."""
_SPEED_UNREADABLE, _NO_OPERATOR = 1, 2
_OF_TIMES = {name: 4 << at for at, name in enumerate(Times._fields[1:])}
"""Bits of ``flags``, and of them those that say what a time is."""
_FLAG_BITS = 8
_ROW = np.dtype(
    [
        ("time_us", np.int64),
        ("latitude", np.float64),
        ("longitude", np.float64),
        ("speed", np.float64),
        ("vehicle", np.int32),
        # above the bits of flags, the number of the file
        ("flags", np.uint32),
    ],
    align=True,
)


class VehicleParts(ExitStack):
    """Rows that come in blocks, read in parts that memory holds; all rows of a vehicle are in one part.

    Up to ROWS_AT_ONCE rows, or without a folder ``scratch`` for more, there is one part, in the order of the
    blocks. What blocks say of malformed rows and header times is left out. A context manager, whose exit
    frees the disk. Raises OSError where the disk is full.
    """

    def __init__(self, scratch: Path | None) -> None:
        super().__init__()
        self._scratch, self._rows = scratch, 0
        self._held: list[Records] = []
        self._spills: list[Spill] = []
        # vehicles are numbered as they come: number n is vehicle n // PARTS of part n % PARTS
        self._number: dict[str, int] = {}
        self._of_spelling: dict[str | None, int] = {None: -1}

    def append(self, block: Records) -> None:
        """Hold the rows of ``block``; write all that is held to the disk where it is too much for memory."""
        self._held.append(block)
        self._rows += len(block)
        if self._scratch is None or self._rows <= ROWS_AT_ONCE:
            return
        self._spills = self._spills or _spills(self._scratch, self)
        while self._held:
            self._write(self._held.pop(0))

    def read(self) -> Iterator[Records]:
        """Yield all rows that were appended, part by part."""
        if self._scratch is not None and self._spills:
            yield from _parts(self._scratch, self._spills, list(self._number))
        else:
            yield Records.concatenate(self._held)

    def _write(self, block: Records) -> None:
        number_of = self._numbers(block.vehicle.dictionary)
        place = pc.fill_null(block.vehicle.indices, -1).to_numpy(zero_copy_only=False)
        number = np.append(number_of, -1)[place]
        flags = _SPEED_UNREADABLE * block.speed_unreadable.view(
            np.uint8
        ) | _NO_OPERATOR * block.no_operator.view(np.uint8)
        for name, bit in _OF_TIMES.items():
            flags |= bit * getattr(block.times, name).view(np.uint8)
        rows = np.empty(len(block), dtype=_ROW)
        rows["time_us"], rows["speed"] = block.times.time_us, block.speed
        rows["latitude"], rows["longitude"], rows["vehicle"] = block.latitude, block.longitude, number
        rows["flags"] = flags | block.file.astype(np.uint32) << _FLAG_BITS
        _deal(rows, self._spills)

    def _numbers(self, identifiers: pa.Array) -> IntArray:
        """Return the number of every identifier, however it is spelt, -1 where it is missing."""
        spelt = identifiers.to_pylist()
        new = [each for each in dict.fromkeys(spelt) if each not in self._of_spelling]
        for spelling, name in zip(new, normalise_identifiers(new).to_pylist(), strict=True):
            number = -1 if name is None else self._number.setdefault(name, len(self._number))
            self._of_spelling[spelling] = number
        return np.array([self._of_spelling[each] for each in spelt], dtype=np.int64)


def _parts(scratch: Path, spills: list[Spill], names: list[str]) -> Iterator[Records]:
    """Yield the rows of each of ``spills``, of vehicles with these ``names``; cut again what is too large."""
    for part, spill in enumerate(spills):
        own = names[part::PARTS]
        if len(spill) <= LARGEST_PART or len(own) <= 1:
            yield _records(spill.read(0, len(spill)), own)
            continue
        with ExitStack() as opened:
            smaller = _spills(scratch, opened)
            for start in range(0, len(spill), ROWS_AT_ONCE):
                _deal(spill.read(start, ROWS_AT_ONCE), smaller)
            yield from _parts(scratch, smaller, own)


def _spills(scratch: Path, opened: ExitStack) -> list[Spill]:
    return [opened.enter_context(Spill(scratch, _ROW)) for _ in range(PARTS)]


def _deal(rows: npt.NDArray[np.void], spills: list[Spill]) -> None:
    """Write rows to the parts of their vehicles, which have the numbers within a part from there on."""
    part = (rows["vehicle"] & (PARTS - 1)).astype(np.uint8)
    rows = rows[np.argsort(part, kind="stable")]
    rows["vehicle"] >>= _PART_BITS
    end = np.cumsum(np.bincount(part, minlength=PARTS))
    for spill, mine in zip(spills, np.split(rows, end[:-1]), strict=True):
        spill.append(mine)


def _records(rows: npt.NDArray[np.void], names: list[str]) -> Records:
    vehicle, flags = rows["vehicle"], rows["flags"]
    return Records(
        vehicle=pa.DictionaryArray.from_arrays(
            pa.array(np.maximum(vehicle, 0), mask=vehicle < 0), pa.array(names, pa.string())
        ),
        times=Times(
            np.ascontiguousarray(rows["time_us"]),
            *((flags & bit).astype(np.bool_) for bit in _OF_TIMES.values()),
        ),
        latitude=np.ascontiguousarray(rows["latitude"]),
        longitude=np.ascontiguousarray(rows["longitude"]),
        speed=np.ascontiguousarray(rows["speed"]),
        speed_unreadable=(flags & _SPEED_UNREADABLE).astype(np.bool_),
        no_operator=(flags & _NO_OPERATOR).astype(np.bool_),
        file=(flags >> _FLAG_BITS).astype(np.int32),
    )
