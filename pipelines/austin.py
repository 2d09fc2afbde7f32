"""Austin's buses as a private map: planned, released, verified.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/austin.py --store DIR

FOLDER holds ``capmetro/2016-11-24.csv.gz`` to ``2016-11-27.csv.gz``: CapMetro open data, archived by
scascketta/CapMetrics (MIT). Every run makes one release and spends epsilon 4 of each vehicle's 8; the third
run on the same store ends with exit code 3.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import trafficdp
from capmetro import CONFIG, DAYS, files_of
from trafficdp.errors import TrafficdpError, VerificationError


def run(store: Path) -> None:
    """Ingest, plan, release, verify."""
    files = files_of(DAYS)
    city = trafficdp.open(CONFIG, store=store, create=True)
    city.ingest(files)
    for statistic, skill in city.plan().allocation.skill.items():
        print(f"the {statistic.value}: {skill.in_words()}")
    released = city.release(again=True)
    failed = [check.name for check in city.verify(released.id) if not check.passed]
    if failed:
        raise VerificationError(f"release {released.id} does not verify", got="; ".join(failed))
    status = city.status()
    statuses = list(released.to_frame()["status"])
    withheld = statuses.count("withheld")
    print(f"released and verified {released.id}: {len(statuses) - withheld} hexagons, {withheld} withheld")
    print(f"the busiest vehicle has spent epsilon {status.largest_spent} of {status.budget}")
    for path in sorted(released.folder.iterdir()):
        print(f"  {path}")


def main() -> int:
    """Read the command line, run, and return the exit code that `trafficdp` would give."""
    parser = argparse.ArgumentParser(description="Austin's buses as a private map.")
    parser.add_argument("--store", type=Path, required=True, help="folder of the store; made if need be")
    try:
        run(parser.parse_args().store)
    except TrafficdpError as error:
        print(f"austin: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
