"""Several processes read what one would: the same records, reports and errors, and none is left."""

import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from trafficdp.errors import DataError
from trafficdp.ingest import input_file, read
from trafficdp.ingest.read import Reading, parts_of_files
from trafficdp.model import SpeedUnit, UnitPeriod

ACTIVITY = (
    "<VehicleActivity><RecordedAtTime>2020-11-28T12:00:{:02}Z</RecordedAtTime><MonitoredVehicleJourney>"
    "<OperatorRef>OP</OperatorRef><VehicleLocation><Longitude>72.8</Longitude><Latitude>21.2{:03}</Latitude>"
    "</VehicleLocation><VehicleRef>{}</VehicleRef></MonitoredVehicleJourney></VehicleActivity>"
)


def delivery(number, vehicles=5):
    rows = "".join(ACTIVITY.format(10 * number % 60, number, v) for v in range(vehicles))
    around = ("Siri", "ServiceDelivery", "VehicleMonitoringDelivery")
    return "".join(f"<{name}>" for name in around) + rows + "".join(f"</{name}>" for name in around[::-1])


LOT = 20
"""Files of an archive that are read together, here."""
DELIVERIES = {f"{n:03}.xml": delivery(n, n % 4) for n in range(2 * LOT + 9)}
"""Three lots."""
FEW = dict([*DELIVERIES.items()][:9])
"""One lot."""


@pytest.fixture(autouse=True)
def _small_lots(monkeypatch):
    """Here and in the processes that are started."""
    monkeypatch.setattr(input_file, "LOT_FILES", LOT)
    smaller = f"from trafficdp.ingest import input_file; input_file.LOT_FILES = {LOT}; "
    monkeypatch.setattr(read, "_START", smaller + read._START)


@pytest.fixture
def siri(source):
    metres = (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
    return replace(source, format="siri", columns={}, sentinels=(), units=metres, missing_speed="derive")


@pytest.fixture
def started(monkeypatch):
    """Let every archive be read by two processes, and list those that were started."""
    found = []

    class Started(subprocess.Popen):
        def __init__(self, *told, **kept):
            super().__init__(*told, **kept)
            found.append(self)

    monkeypatch.setattr(read.subprocess, "Popen", Started)
    monkeypatch.setattr(read, "process_count", lambda: 2)
    monkeypatch.setattr(read, "LARGE", dict.fromkeys(read.LARGE, 1))
    return found


def alone(monkeypatch):
    monkeypatch.setattr(read, "process_count", lambda: 1)


def archive(folder, members, name="day.zip"):
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as opened:
        for member, content in members.items():
            opened.writestr(member, content)
    return folder / name


@pytest.fixture
def outcome(siri, area, key, tmp_path):
    def all_of(*paths):
        """Return fixes, reports and progress, or what is raised."""
        steps = []
        try:
            readings = [Reading(path, siri, area, key, progress=steps.append) for path in paths]
            parts = [(fixes.table, file.tolist()) for fixes, file in parts_of_files(readings, tmp_path / "x")]
        except DataError as error:
            return str(error)
        return (
            parts,
            [each.report for each in readings],
            [repr(each.extents) for each in readings],
            sum(steps),
        )

    return all_of


@pytest.mark.parametrize(
    ("files", "broken"),
    [
        pytest.param(DELIVERIES, None, id="three lots"),
        pytest.param(DELIVERIES, "026.xml", id="three lots, the second broken"),
        pytest.param(FEW, "003.xml", id="one lot, broken"),
        pytest.param(DELIVERIES, "046.xml", id="three lots, the last broken", marks=pytest.mark.prove),
    ],
)
def test_several_processes_read_what_one_does(outcome, started, monkeypatch, tmp_path, files, broken):
    path = archive(tmp_path, {n: t[: 400 if n == broken else None] for n, t in files.items()})
    by_two = outcome(path)
    assert len(started) == 2
    alone(monkeypatch)
    assert outcome(path) == by_two
    assert isinstance(by_two, str) == (broken is not None)
    assert len(started) == 2


def test_small_files_of_an_archive_are_read_in_lots(siri, area, key, tmp_path):
    reading = Reading(archive(tmp_path, DELIVERIES), siri, area, key)
    with read.Readers() as here:
        rows = [
            len(block) for lot in reading.file.file_groups() for block in here.read_blocks(lot, reading.read)
        ]
    deliveries = [n % 4 for n in range(len(DELIVERIES))]
    lots = [deliveries[at : at + LOT] for at in range(0, len(deliveries), LOT)]
    assert rows == [*map(sum, lots)]


def test_so_do_many_files(outcome, started, monkeypatch, tmp_path):
    paths = [tmp_path / name for name in FEW]
    for path in paths:
        path.write_text(FEW[path.name])
    paths.append(archive(tmp_path, {f"b{name}": text for name, text in FEW.items()}))
    by_two = outcome(*paths)
    assert len(started) == 2
    alone(monkeypatch)
    assert outcome(*paths) == by_two
    assert not isinstance(by_two, str)


def test_a_file_alone_and_few_bytes_are_read_here(outcome, started, monkeypatch, tmp_path):
    outcome(archive(tmp_path, {"000.xml": delivery(1)}))
    monkeypatch.setattr(read, "LARGE", dict.fromkeys(read.LARGE, 1 << 20))
    outcome(archive(tmp_path, FEW))
    assert started == []


@pytest.mark.parametrize("dies", ["import os; os._exit(1)", "print('no pickle'); raise SystemExit"])
def test_a_process_that_dies_is_replaced_by_this_one(outcome, started, monkeypatch, tmp_path, dies):
    path = archive(tmp_path, FEW)
    by_two = outcome(path)
    monkeypatch.setattr(read, "_START", dies)
    assert outcome(path) == by_two
    assert len(started) == 4


AFTER_TWO_BLOCKS = """
import os, pickle
from trafficdp.ingest import read
dump, left = pickle.dump, [1, 2]
def counted(found, out, **kept):
    dump(found, out, **kept)
    out.flush()
    left.pop()
    if not left:
        os._exit(1)
pickle.dump, read._ROWS = counted, 3
read.read_in_process()
"""


def test_what_a_process_read_before_it_died_is_not_read_twice(outcome, started, monkeypatch, tmp_path):
    path = archive(tmp_path, {name: DELIVERIES[name] for name in [*DELIVERIES][:9]})
    by_two = outcome(path)
    monkeypatch.setattr(read, "_ROWS", 3)
    monkeypatch.setattr(read, "_START", AFTER_TWO_BLOCKS)
    assert outcome(path) == by_two
    assert len(started) == 4


def test_what_unpacks_to_too_much_in_all_is_refused(outcome, started, monkeypatch, tmp_path):
    monkeypatch.setattr(input_file, "FREE_BYTES", 1 << 10)
    monkeypatch.setattr(input_file, "LARGEST_RATIO", 1)
    path = archive(tmp_path, FEW)
    by_two = outcome(path)
    alone(monkeypatch)
    assert outcome(path) == by_two
    assert "unpacks to more than records can" in by_two
    assert len(started) == 2


def test_no_process_is_left_after_an_interruption(siri, area, key, started, tmp_path):
    def press(_):
        raise KeyboardInterrupt

    path = archive(tmp_path, FEW)
    with pytest.raises(KeyboardInterrupt):
        list(Reading(path, siri, area, key, progress=press).parts(tmp_path / "x"))
    assert [process.poll() is not None for process in started] == [True, True]


def test_a_process_loads_no_command_line():
    code = (
        "import sys, trafficdp.ingest.read; sys.exit(any(n.startswith('trafficdp.cli') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
