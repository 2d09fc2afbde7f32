from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.errors import DataError, StoreKeyError
from trafficdp.ingest.vehicle_key import (
    VehicleKey,
    identifiers_to_text,
    normalise_identifiers,
    qualified_by_operator,
)


def test_spellings_of_one_plate_become_one_identifier():
    spellings = pa.array(["gj-05 bx 3983", " GJ05BX3983\t", "GJ‑05–BX 3983", "ＧＪ０５ＢＸ３９８３"])
    assert normalise_identifiers(spellings).to_pylist() == ["GJ05BX3983"] * 4


@pytest.mark.parametrize("text", [None, "", "  ", "-", "NA", "nan", "NaN", "null", "None", " n a ", "​"])
def test_an_identifier_that_says_it_is_missing_is_missing(text):
    assert normalise_identifiers(pa.array([text], pa.string())).to_pylist() == [None]


def test_columns_of_pandas_are_normalised_too():
    assert normalise_identifiers(pd.Series(["a 1", None])).to_pylist() == ["A1", None]
    assert normalise_identifiers(pa.chunked_array([["a 1"], ["a-1"]])).to_pylist() == ["A1", "A1"]


def test_leading_zeros_are_kept():
    assert normalise_identifiers(pa.array(["007", "7"])).to_pylist() == ["007", "7"]


@pytest.mark.slow
@given(st.lists(st.text()))
def test_normalising_twice_changes_nothing(texts):
    once = normalise_identifiers(pa.array(texts, pa.string()))
    assert normalise_identifiers(once).to_pylist() == once.to_pylist()


NUMERALS = [
    (["123", "123.0", "123.", "123.00", " 123.0 ", "１２３．０", "12 3.0"], "123"),
    (["0", "0.0", "-0.0"], "0"),
    (["007", "007.0"], "007"),
    (["1234567890123456.0", "1.234567890123456e+15", "1.234567890123456E15"], "1234567890123456"),
    (["1000000000000000000", "1e+18", "1e18", "1.0E+18", "1000000000000000000.0"], "1000000000000000000"),
    (["12345678901234567891", "12345678901234567891.0"], "12345678901234567891"),
    (
        ["1.5", "0.5", ".5", "123.4000", "9.9e+18", "1e+300", "1.5E+00", "inf", "-Infinity", "nan", "<NA>"],
        None,
    ),
    (["1.0.0"], "1.0.0"),
    (["12E5"], "12E5"),
    (["A1.0"], "A1.0"),
    (["."], "."),
]


@pytest.mark.parametrize(("texts", "identifier"), NUMERALS)
def test_a_numeral_is_its_digits_however_it_is_written(texts, identifier):
    assert normalise_identifiers(texts).to_pylist() == [identifier] * len(texts)
    assert normalise_identifiers(normalise_identifiers(texts)).to_pylist() == [identifier] * len(texts)


WHOLE = [0, 1, 7, 123, 2**31, 10**15, 10**15 + 1, 2**53, 10**16, 123 * 10**16, 2**62]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64(), pa.float32(), pa.decimal128(30, 3)])
def test_a_column_of_any_type_of_number_names_the_same_vehicles(kind):
    fit = [number for number in WHOLE if not pa.types.is_float32(kind) or number < 2**24]
    column = pa.array(fit, pa.int64()).cast(kind, safe=False)
    assert normalise_identifiers(identifiers_to_text(column, where="x")).to_pylist() == [
        str(number) for number in fit
    ]
    if pa.types.is_floating(kind):
        assert normalise_identifiers([repr(float(number)) for number in fit]).to_pylist() == [
            str(n) for n in fit
        ]
        odd = pa.array([2010.5, float("inf"), -1e30, 1e-5, 0.5, float("nan"), None, 3.0], kind)
        assert normalise_identifiers(identifiers_to_text(odd, where="x")).to_pylist() == [None] * 7 + ["3"]


PARTS = st.text(st.sampled_from("A1.0/\\\\ "))


@given(st.lists(st.tuples(PARTS, PARTS), min_size=2))
def test_no_two_numbers_of_operators_share_an_identifier(pairs):
    operators, vehicles = (pa.array(each) for each in zip(*pairs, strict=True))
    identifiers, _ = qualified_by_operator(operators, vehicles)
    assert normalise_identifiers(identifiers).equals(identifiers)
    parts = zip(
        normalise_identifiers(operators).to_pylist(), normalise_identifiers(vehicles).to_pylist(), strict=True
    )
    whole = {each for each in parts if None not in each}
    assert len(whole) == len(identifiers.drop_null().unique())


@pytest.mark.parametrize(
    ("operator", "vehicle", "told"),
    [
        ("RUT", "123", "rut/123.0"),
        ("18.0", "1.23e+18", "18/1230000000000000000.0"),
        ("18", 123, "18.0/123"),
        ("A/B", "C", "A\\/B/C"),
        ("A", "B/C", "A/B/C"),
    ],
)
def test_an_operators_vehicle_is_known_by_both(operator, vehicle, told):
    identifiers, _ = qualified_by_operator(pa.array([operator]), pa.array([str(vehicle)]))
    assert normalise_identifiers([told]).equals(identifiers)


def test_what_holds_no_numbers_cannot_hold_identifiers():
    with pytest.raises(DataError, match="cannot hold vehicle identifiers"):
        identifiers_to_text(pa.array([True]), where="x")


def test_pseudonyms_are_the_keyed_hmac_of_namespace_and_normalised_identifier():
    key = VehicleKey(bytes(range(32)))
    expected = hmac.new(
        bytes(range(32)), b"trafficdp/vehicle/1\x00north\x00GJ05BX3983", hashlib.sha256
    ).digest()
    found = key.pseudonyms(pa.array(["gj05bx-3983", None, "GJ05BX3983"]), "north")
    assert found.type == pa.binary(32)
    assert found.to_pylist() == [expected, None, expected]


def test_namespaces_and_keys_keep_equal_identifiers_apart():
    ids = pa.array(["1"])
    one, other = VehicleKey(b"1" * 32), VehicleKey(b"2" * 32)
    pseudonyms = {key.pseudonyms(ids, name).to_pylist()[0] for key in (one, other) for name in ("a", "b")}
    assert len(pseudonyms) == 4


def test_a_created_key_is_private_and_loads_again(tmp_path: Path):
    path = tmp_path / "vehicle.key"
    previous = os.umask(0)
    try:
        key = VehicleKey.create(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert VehicleKey.load(path).fingerprint == key.fingerprint


def test_two_created_keys_differ(tmp_path: Path):
    prints = {VehicleKey.create(tmp_path / name).fingerprint for name in "ab"}
    assert len(prints) == 2


def test_a_key_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "vehicle.key"
    fingerprint = VehicleKey.create(path).fingerprint
    with pytest.raises(StoreKeyError, match=r"key at .* already"):
        VehicleKey.create(path)
    assert VehicleKey.load(path).fingerprint == fingerprint


def test_a_key_that_cannot_be_written_is_a_key_error(tmp_path: Path):
    with pytest.raises(StoreKeyError, match="cannot write"):
        VehicleKey.create(tmp_path / "nowhere" / "vehicle.key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o601])
def test_a_key_open_to_others_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "vehicle.key"
    VehicleKey.create(path)
    path.chmod(mode)
    with pytest.raises(StoreKeyError, match="chmod 600") as caught:
        VehicleKey.load(path)
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 32, b"trafficdp-key-1 00\n", b"trafficdp-key-2 " + b"0" * 64]
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "vehicle.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StoreKeyError, match=r"is not a key.*; put back the key"):
        VehicleKey.load(path)


def test_a_missing_key_and_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(StoreKeyError, match="there is no key"):
        VehicleKey.load(tmp_path / "vehicle.key")
    with pytest.raises(StoreKeyError):
        VehicleKey.load(tmp_path)


def test_neither_repr_nor_fingerprint_show_the_secret():
    secret = bytes(range(32))
    key = VehicleKey(secret)
    assert repr(key) == str(key) == "<VehicleKey: redacted>"
    assert key.fingerprint not in (secret.hex(), hashlib.sha256(secret).hexdigest())
    assert len(key.fingerprint) == 64


def test_a_secret_of_another_length_is_refused():
    with pytest.raises(StoreKeyError):
        VehicleKey(b"short")
