"""Vehicle identifiers at the door: normalised, then replaced by a keyed HMAC.

The key lies outside the store. Whoever holds the store alone cannot try plates against the pseudonyms,
and two spellings of one plate ("gj-05 bx 3983", "GJ05BX3983") become one privacy unit, not two.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trafficdp._durable import open_regular
from trafficdp.errors import DataError, StoreKeyError

MISSING_IDENTIFIERS = ("", "NA", "<NA>", "NAN", "NULL", "NONE", "INF", "INFINITY")
"""What a normalised identifier must not be: such rows name no vehicle and are never grouped into one."""

PSEUDONYM_BYTES = 32
_HEADER = "trafficdp-key-1"
_VEHICLE_DOMAIN = b"trafficdp/vehicle/1"
_FINGERPRINT_DOMAIN = b"trafficdp/fingerprint/1"
_FILE_DOMAIN = b"trafficdp/file/1"
_DROPPED = r"[\s\p{Z}\p{Pd}\p{C}]+"
_PASSES = 16
_WHOLE = r"^([0-9]+)\.0*$"
_FRACTION = r"^[0-9]*\.[0-9]*[1-9][0-9]*$"
_LARGE = r"^[0-9](?:\.[0-9]+)?E(?:\+[0-9]{2,3}|1[5-8])$"
"""How floating-point numbers of more than 15 digits are written, some without "+"."""


def identifiers_to_text(ids: pa.Array, *, where: str) -> pa.Array:
    """Return identifiers of any column type as text (pa.string), nulls kept; a dictionary stays one.

    ``normalise`` reads the numerals. Raises DataError, naming ``where`` the column stood, for types that
    cannot be identifiers.
    """
    if pa.types.is_dictionary(ids.type):
        distinct = identifiers_to_text(ids.dictionary, where=where)
        return pa.DictionaryArray.from_arrays(pc.cast(ids.indices, pa.int32()), distinct)
    if pa.types.is_floating(ids.type):
        numbers = pc.cast(ids, pa.float64())
        # a small one would have an exponent whose sign is dropped as hyphens are
        ids = pc.cast(_whole(numbers), pa.string())
    kind = ids.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if not (text or number or pa.types.is_null(kind)):
        raise DataError(
            f"{where} cannot hold vehicle identifiers",
            got=f"a column of type {kind}",
            expected="text or whole numbers",
        )
    return pc.cast(ids, pa.string())


def normalise(ids: pa.Array | Sequence[str | None]) -> pa.Array:
    """Return identifiers in upper case, without spaces, hyphens and invisible characters.

    ``ids`` is a column of text, Arrow's or any other; the result is a pa.string array of its length.
    Unicode compatibility forms are folded too (full-width digits, dashes of all kinds). A whole number is
    its digits, however it is written: 123, 123.0, 1.23e+18. Null where the identifier is missing: null, one
    of MISSING_IDENTIFIERS, a fraction, or from 2^63 written with an exponent. Applying it twice changes
    nothing. The work is done once for each distinct identifier.
    """
    text = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.string())
    encoded = pc.dictionary_encode(pc.cast(text, pa.string()))
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    distinct = encoded.dictionary
    for _ in range(_PASSES):
        before = distinct
        distinct = pc.utf8_normalize(pc.replace_substring_regex(distinct, _DROPPED, ""), form="NFKC")
        distinct = pc.utf8_upper(distinct)
        if distinct.equals(before):
            break
    distinct = _digits_of_large(pc.replace_substring_regex(distinct, _WHOLE, r"\1"))
    fraction = pc.match_substring_regex(distinct, _FRACTION)
    missing = pc.or_(fraction, pc.is_in(distinct, value_set=pa.array(MISSING_IDENTIFIERS)))
    distinct = pc.if_else(missing, pa.scalar(None, pa.string()), distinct)
    return distinct.take(encoded.indices)


def _whole(numbers: pa.Array) -> pa.Array:
    """Return ``numbers`` with null for each that no 64 bits hold as a whole number."""
    whole = pc.and_(pc.less(pc.abs(numbers), 2.0**63), pc.equal(pc.floor(numbers), numbers))
    return pc.if_else(whole, numbers, pa.scalar(None, pa.float64()))


def _digits_of_large(distinct: pa.Array) -> pa.Array:
    large = pc.match_substring_regex(distinct, _LARGE)
    if not pc.any(large).as_py():
        return distinct
    numbers = pc.cast(pc.if_else(large, distinct, pa.scalar(None, pa.string())), pa.float64())
    return pc.if_else(large, pc.cast(pc.cast(_whole(numbers), pa.int64()), pa.string()), distinct)


class VehicleKey:
    """The secret (32 bytes) that turns identifiers into pseudonyms. Its repr shows nothing of it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != PSEUDONYM_BYTES:
            raise StoreKeyError("a vehicle key has the wrong length", expected=f"{PSEUDONYM_BYTES} bytes")
        self._secret = bytes(secret)

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
            )
        return cls(bytes.fromhex(found.group(1).decode("ascii")))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of an HMAC under the key, 64 hexadecimal digits: tells keys apart, gives nothing away."""
        return hashlib.sha256(hmac.digest(self._secret, _FINGERPRINT_DOMAIN, "sha256")).hexdigest()

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
        encoded = pc.dictionary_encode(normalise(ids))
        prefix = b"\x00".join((_VEHICLE_DOMAIN, namespace.encode(), b""))
        digests = [
            hmac.digest(self._secret, prefix + name.encode(), "sha256")
            for name in encoded.dictionary.to_pylist()
        ]
        return pa.array(digests, pa.binary(PSEUDONYM_BYTES)).take(encoded.indices)
