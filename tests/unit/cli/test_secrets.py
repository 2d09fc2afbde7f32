"""No message, result or file name carries a plate, its pseudonym, a place or a record's speed."""

import hashlib
import hmac
import re

import duckdb
import pytest

PLATE = "ZZ99SECRET"
LATITUDE, LONGITUDE, SPEED = "48.2345678", "16.3456789", "13.37"
SECRET = f"{PLATE},2026-03-02T06:07:08Z,{LATITUDE},{LONGITUDE},{SPEED}"
ODD = [
    SECRET,
    f"{PLATE},2026-03-02T06:07:08Z,{LATITUDE},{LONGITUDE},{SPEED}x",
    f"{PLATE},2026-03-02T06:07:08Z,95.{LATITUDE},{LONGITUDE},{SPEED}",
    f"{PLATE},never {PLATE},{LATITUDE},{LONGITUDE},{SPEED}",
    f"{PLATE},2026-03-02T06:07:18Z,{LATITUDE},2000,{SPEED}",
    f"{PLATE},{LATITUDE}",
    f'"{PLATE},2026-03-02T06:07:08Z,{LATITUDE},{LONGITUDE},{SPEED}',
]


@pytest.fixture
def forbidden(empty):
    """What no output may contain: the plate in any spelling, its pseudonym, place and speed."""
    secret = bytes.fromhex(re.search(r"[0-9a-f]{64}", (empty.folder / "city.store.key").read_text()).group())
    names = [PLATE, PLATE.lower(), "ZZ99", LATITUDE, LONGITUDE, LATITUDE[:6], LONGITUDE[:6], SPEED]
    names += [secret.hex(), hashlib.sha256(PLATE.encode()).hexdigest()]
    names += [hmac.digest(secret, PLATE.encode(), "sha256").hex()]
    return names


def test_nothing_that_fails_or_succeeds_tells_a_record(empty, feed, command, forbidden, monkeypatch):
    monkeypatch.delenv("TRAFFICDP_DEBUG", raising=False)
    rows = feed("2026-03-02")
    secret = [SECRET.replace("06:07:08", f"06:{m:02d}:08") for m in range(40)]
    files = {
        "good.csv": [*rows, *secret],
        "odd.csv": [*rows, *ODD[1:-1]],
        "only_odd.csv": [ODD[3], ODD[3]],
        "quote.csv": [ODD[-1], SECRET],
        "fast.csv": [row.rsplit(",", 1)[0] + "," + SPEED for row in rows] + [SECRET],
        "ragged.csv": [ODD[5]],
    }
    for name, content in files.items():
        empty.write(name, content)
    empty.write("headless.csv", "\n".join([SECRET, SECRET, ""]).encode())
    empty.write(
        "latin.csv", f"bus,at,lat,lng,v\n{PLATE}\xff,x,{LATITUDE},{LONGITUDE},{SPEED}\n".encode("latin-1")
    )
    empty.write("iudx.json", f'[{{"license_plate": "{PLATE}", "speed": {SPEED}, "location": '.encode())
    empty.change(
        "[[source]]",
        '[[source]]\nname = "itms"\nformat = "iudx"\nfiles = ["*.json"]\nspeed_unit = "km/h"\n\n[[source]]',
    )
    commands = [
        *(("ingest", flag, name) for name in files for flag in ("--dry-run", "--")),
        *(("ingest", name) for name in ("headless.csv", "latin.csv", "iudx.json")),
        ("ingest", "good.csv", "odd.csv"),
        ("status",),
        ("plan",),
        ("plan", "--epsilon", "0.001"),
        ("release", "--yes", "--epsilon", "0.001"),
        ("release", "--yes", "--epsilon", "100"),
        (
            "release",
            "--yes",
        ),
        ("releases",),
        ("ledger",),
        ("verify", "r0001"),
        ("verify", "r0002"),
        ("export", "r0001", "--to", "csv", "out.csv"),
        ("withdraw", "--yes", "r0002"),
    ]
    codes = set()
    for arguments in commands:
        for flags in ((),) if "--dry-run" in arguments else ((), ("--json",)):
            result = command(*flags, *arguments)
            codes.add(result.code)
            for name in forbidden:
                assert name not in result.out, (arguments, name)
                assert name not in result.err, (arguments, name)
    assert codes == {0, 2, 3, 4, 5}
    # the pseudonyms as they are, and not one of them in any other file or name
    with duckdb.connect(str(empty.store / "vault.duckdb"), read_only=True) as vault:
        pseudonyms = [row[0] for row in vault.execute("SELECT hmac FROM vehicles").fetchall()]
    assert pseudonyms
    given = {*files, "headless.csv", "latin.csv", "iudx.json", "city.store.key"}
    for path in empty.folder.rglob("*"):
        assert not any(name in str(path.relative_to(empty.folder)) for name in forbidden)
        if path.is_file() and path.name not in given and not path.name.startswith("vault.duckdb"):
            content = path.read_bytes()
            for name in (PLATE, PLATE.lower(), LATITUDE, LONGITUDE):
                assert name.encode() not in content, path.name
            assert not any(each in content or each.hex().encode() in content for each in pseudonyms)
