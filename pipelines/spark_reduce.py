"""The job for a cluster: records to contributions, with plates replaced where they are read.

    spark-submit pipelines/spark_reduce.py --config trafficdp.toml --key KEY --into FOLDER URI...

FOLDER, of any file system of the cluster, holds the jobs of one city; the curator copies it and imports it
with `trafficdp ingest --engine reduced`. What to set for YARN, Kubernetes and others: docs/guides/spark.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trafficdp.config.file import load_config
from trafficdp.engine.reduced import Spark
from trafficdp.errors import TrafficdpError
from trafficdp.release.intake import Cluster


def main() -> int:
    """Run the job; print the folder it wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True, help="the city's key, on the driver")
    parser.add_argument("--key-mount", type=Path, help="where every executor finds it; else it is broadcast")
    parser.add_argument("--into", required=True, help="folder of the city's jobs")
    parser.add_argument("--source", help="name of the [[source]]; else by the files' names")
    parser.add_argument("uris", nargs="+", metavar="URI")
    given = parser.parse_args()
    spark = Spark(given.into, given.key_mount)
    try:
        city = Cluster(load_config(given.config), given.key, given.config.parent)
        folder = city.reduce(given.uris, spark, given.source)
    except TrafficdpError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(folder or "nothing was new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
