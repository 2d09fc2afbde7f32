"""A file that is cleaned in parts gives what it gives in one."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.ingest import clean as cleaning
from trafficdp.ingest import vehicle_key as module
from trafficdp.ingest.clean import UnitCheck, clean
from trafficdp.ingest.read import Reading, read_file
from trafficdp.ingest.times import Records, text_to_times
from trafficdp.ingest.vehicle_key import VehicleParts
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod
from trafficdp.sensitive import fixes_schema

ROW = st.tuples(
    st.sampled_from(["A", "a ", "B", "b-", "", "NA", "007", "C1", "C2", "C3"]),
    st.sampled_from(["2020-11-28T06:00:00Z", "2020-11-28T06:00:30Z", "2020-11-28T06:01:10Z", "never"]),
    st.sampled_from(["21.2", "21.201", "0", "", "95"]),
    st.sampled_from(["72.8", "72.801", ""]),
    st.sampled_from(["1", "0", "-3", "255", "", "word"]),
)


def records_of(rows, malformed=0):
    vehicle, time, *numbers = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return Records.from_text(vehicle, text_to_times(time, "iso8601", None), *numbers, malformed=malformed)


def parts_of(blocks, scratch):
    """Return the parts that are read of ``blocks``."""
    with VehicleParts(scratch) as parts:
        for block in blocks:
            parts.append(block)
        return list(parts.read())


def cleaned(parts, source, area, key):
    """Return kept rows as sorted tuples, rejected rows by rule, derived speeds and what the check says."""
    check, rows, rejected, derived = UnitCheck(), [], {}, 0
    for part in parts:
        found = clean(part, source, area, key, check)
        rows += list(
            zip(*(found.fixes.table.column(n).to_pylist() for n in fixes_schema().names), strict=True)
        )
        derived += sum(each.derived for each in found.files)
        for rule, count in found.rejected.items():
            rejected[rule] = rejected.get(rule, 0) + count
    return sorted(rows), rejected, derived, check.findings()


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(
    rows=st.lists(ROW, min_size=1, max_size=40),
    at_once=st.integers(0, 10),
    block=st.integers(1, 12),
    missing_speed=st.sampled_from(["reject", "derive"]),
)
def test_parts_are_cleaned_to_what_the_whole_is(
    tmp_path_factory, area, key, rows, at_once, block, missing_speed
):
    units = (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
    source = SourceDeclaration("city", "csv", ("*",), units, sentinels=(Decimal(255),))
    source = replace(source, missing_speed=missing_speed)
    blocks = [records_of(rows[start : start + block], malformed=1) for start in range(0, len(rows), block)]
    expected = cleaned([Records.concatenate(blocks)], source, area, key)
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_AT_ONCE", at_once)
        parts = parts_of(blocks, folder)
    assert len(parts) == (module.PARTS if len(rows) > at_once else 1)
    assert cleaned(parts, source, area, key) == expected
    assert list(folder.iterdir()) == []


def test_a_vehicle_is_in_one_part_and_its_rows_in_the_order_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 10)
    rows = [(f"v{n % 50}", "2020-11-28T06:00:00Z", "21.2", "72.8", str(n)) for n in range(400)]
    met = {}
    for number, part in enumerate(parts_of([records_of(rows[:7]), records_of(rows[7:])], tmp_path)):
        for name, speed in zip(part.vehicle.to_pylist(), part.speed.tolist(), strict=True):
            met.setdefault(name, []).append((number, speed))
    assert len(met) == 50
    for name, places in met.items():
        assert len({number for number, _ in places}) == 1
        assert [speed for _, speed in places] == [float(n) for n in range(400) if name == f"V{n % 50}"]
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_rows_all_are_one_part(monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 0)
    (part,) = parts_of([records_of([("A", "never", "1", "1", "1")])] * 3, None)
    assert len(part) == 3


def test_a_report_is_there_once_the_file_was_read_to_its_end(
    reader, area, key, source, tmp_path, monkeypatch
):
    path = reader.write(
        "plate,when,lat,lng,v\n" + "".join(f"A{n},2020-11-28T06:00:00Z,21.2,72.8,30\n" for n in range(99))
    )
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 10)
    reading = Reading(path, source, area, key)
    parts = reading.parts(tmp_path / "scratch")
    next(parts)
    with pytest.raises(ValueError, match="to its end"):
        _ = reading.report
    assert sum(len(fixes) for fixes in parts) > 0
    assert reading.report == read_file(path, source, area, key).report


def test_a_large_file_is_judged_by_the_vehicles_that_were_looked_at(monkeypatch):
    monkeypatch.setattr(cleaning, "MOST_PAIRS", 50)
    check, time_us = UnitCheck(), np.arange(41, dtype=np.int64) * 10_000_000
    still = np.full(41, 72.8)
    for _ in range(4):
        check.add(
            SpeedUnit.METRES_PER_SECOND, np.zeros(41, np.int64), time_us, 21 + time_us / 1e12, still, still
        )
    (finding,) = check.findings()
    assert finding.pairs == 80
