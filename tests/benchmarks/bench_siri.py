"""What it costs to ingest deliveries of SIRI Vehicle Monitoring, by their activities.

    python tests/benchmarks/bench_siri.py [--into FOLDER]

An archive of deliveries of 1,000 activities each, half a minute apart, with what operators of Great Britain
write into one. Beside it the floor: Python unpacks the archive, and xml2arrow reads the same columns of it.
A fresh process each.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from table import keep

ACTIVITIES = (1_000_000, 10_000_000)
VEHICLES, SECONDS = 1_000, 30
BEGIN = datetime(2026, 3, 3, tzinfo=UTC)
CONFIG = """
[city]
name = "City"
publisher = "City"
time_zone = "Europe/London"
study_area = { bbox = [-4.2, 52.2, -0.3, 54.7] }
period = { from = "2026-03-02", to = "2026-03-08" }
[privacy]
relation = "replace_user_values"
epsilon = 6
[budget]
epsilon_per_vehicle = 12
[map]
resolution = 8
slot = "whole_period"
speed_bound = 90
speed_unit = "km/h"
speed_step = 0.01
display_unit = "km/h"
min_vehicles = 5
statistics = ["mean"]
[[source]]
name = "buses"
format = "siri"
files = ["*.zip"]
time_format = "iso8601"
"""
AROUND = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<Siri xmlns="http://www.siri.org.uk/siri" '
    'version="2.0"><ServiceDelivery><ResponseTimestamp>{now}</ResponseTimestamp><ProducerRef>P</ProducerRef>'
    "<VehicleMonitoringDelivery><ResponseTimestamp>{now}</ResponseTimestamp><ValidUntil>{now}</ValidUntil>"
    "{activities}</VehicleMonitoringDelivery></ServiceDelivery></Siri>"
)
ACTIVITY = (
    "<VehicleActivity><RecordedAtTime>{at}</RecordedAtTime><ItemIdentifier>2c5e4b9a-9d4e-{n:012x}"
    "</ItemIdentifier><ValidUntilTime>{at}</ValidUntilTime><VehicleMonitoringRef>{n}</VehicleMonitoringRef>"
    "<MonitoredVehicleJourney><LineRef>{line}</LineRef><DirectionRef>outbound</DirectionRef>"
    "<FramedVehicleJourneyRef><DataFrameRef>2026-03-03</DataFrameRef><DatedVehicleJourneyRef>{n}"
    "</DatedVehicleJourneyRef></FramedVehicleJourneyRef><PublishedLineName>{line}</PublishedLineName>"
    "<OperatorRef>OP{operator}</OperatorRef><OriginRef>1800SB{n:06}</OriginRef><OriginName>Market_Street"
    "</OriginName><DestinationRef>1800SB{line:06}</DestinationRef><DestinationName>Bus_Station"
    "</DestinationName><OriginAimedDepartureTime>{at}</OriginAimedDepartureTime><Monitored>true</Monitored>"
    "<VehicleLocation><Longitude>{longitude:.6f}</Longitude><Latitude>{latitude:.6f}</Latitude>"
    "</VehicleLocation><Bearing>{bearing}</Bearing><Velocity>{speed}</Velocity><BlockRef>{line}</BlockRef>"
    "<VehicleRef>OP{operator}-{n}</VehicleRef></MonitoredVehicleJourney><Extensions><VehicleJourney>"
    "<Operational><TicketMachine><TicketMachineServiceCode>{line}</TicketMachineServiceCode><JourneyCode>{n}"
    "</JourneyCode></TicketMachine></Operational><VehicleUniqueId>{n}</VehicleUniqueId></VehicleJourney>"
    "</Extensions></VehicleActivity>"
)


def write(path: Path, many: int) -> float:
    """Write so ``many`` activities; return the megabytes that they unpack to."""
    draw = np.random.default_rng(0)
    place = np.array([[53.45], [-2.25]]) + draw.uniform(-0.08, 0.08, (2, VEHICLES))
    heading = draw.uniform(0, 2 * np.pi, VEHICLES)
    north, east = np.cos(heading), np.sin(heading) / np.cos(np.radians(53.45))
    size = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(many // VEHICLES):
            now = BEGIN + timedelta(seconds=number * SECONDS)
            # there and back again, so that the speeds are those of the places
            way = 1 if number // 40 % 2 else -1
            speeds = draw.integers(0, 20, VEHICLES)
            place += way * speeds * SECONDS / 111_200 * np.stack([north, east])
            values = zip(*place.tolist(), speeds.tolist(), strict=True)
            activities = "".join(
                ACTIVITY.format(
                    at=now.isoformat(),
                    n=n,
                    line=n % 90,
                    operator=n % 4,
                    latitude=latitude,
                    longitude=longitude,
                    bearing=n % 360,
                    speed=speed,
                )
                for n, (latitude, longitude, speed) in enumerate(values)
            )
            text = AROUND.format(now=now.isoformat(), activities=activities)
            size += len(text)
            archive.writestr(f"{number:06}.xml", text)
    return size / 1e6


def floor(folder: Path) -> int:
    """Unpack and parse; return the activities found."""
    from trafficdp.ingest.formats.siri import _PATHS
    from trafficdp.ingest.formats.xml_files import _parser

    within = ("Siri", "ServiceDelivery", "VehicleMonitoringDelivery")
    parser = _parser(within, "VehicleActivity", _PATHS)
    found = 0
    with zipfile.ZipFile(folder / "day.zip") as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                for table, batch in parser.parse_batches(member):
                    found += len(batch) if table == "records" else 0
    return found


def ingest(folder: Path) -> int:
    """Ingest the archive into a new store; return the new records."""
    import trafficdp

    (folder / "trafficdp.toml").write_text(CONFIG, encoding="utf-8")
    workspace = trafficdp.open(folder / "trafficdp.toml", store=folder / "store", create=True)
    return sum(each.added for each in workspace.ingest([folder / "day.zip"]))


def measure(step: str, folder: Path) -> None:
    """Take a step, and print records, seconds of the processor and of the clock, and peak memory in MB."""
    begin = time.monotonic()
    records = {"floor": floor, "ingest": ingest}[step](folder)
    clock = time.monotonic() - begin
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    # of one process: those that read have ended when their parent needs most
    print(records, seconds, clock, max(each.ru_maxrss for each in used) / 1000)


def main() -> int:
    """Measure and write."""
    options = argparse.ArgumentParser()
    options.add_argument("--into", type=Path, help="a folder with room for 700 MB; else the system's")
    options.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.step:
        measure(given.step[0], Path(given.step[1]))
        return 0
    rows = []
    for many in ACTIVITIES:
        with tempfile.TemporaryDirectory(dir=given.into) as folder:
            size = write(Path(folder) / "day.zip", many)
            found = {}
            for step in ("floor", "ingest"):
                ran = [sys.executable, __file__, "--step", step, folder]
                text = subprocess.run(ran, capture_output=True, text=True, check=True).stdout
                found[step] = list(map(float, text.split()))
            (read, cheapest, *_), (added, seconds, clock, memory) = found["floor"], found["ingest"]
            if (read, added) != (many, many):
                raise AssertionError(f"read {read}, added {added}, expected {many}")
            numbers = (size, cheapest, seconds, clock, memory)
            ratio = f"{seconds / cheapest:.2f}"
            rows.append([f"{many:,}", *(f"{each:,.0f}" for each in numbers), ratio])
            print(rows[-1], flush=True)
    keep(
        "SIRI",
        "Ingesting an archive of SIRI Vehicle Monitoring (XML), deliveries of 1,000 activities. The floor is "
        "to unpack and parse them only.",
        ["activities", "XML (MB)", "floor", "ingest", "ingest, clock", "MB", "ratio"],
        rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
