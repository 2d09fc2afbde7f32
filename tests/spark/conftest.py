"""One small Spark on this machine, whose files can be read: nothing is packed, and sorts spill at once.

Where Spark is not installed these tests are not there: `make spark` installs it in an environment of its own.
"""

import importlib.util
import os
import shutil
import sys

import pyarrow as pa
import pytest

HERE = importlib.util.find_spec("pyspark") is not None
collect_ignore_glob = [] if HERE else ["test_*.py"]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "3",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.shuffle.spill.numElementsForceSpillThreshold": "5000",
    "spark.unsafe.sorter.spill.read.ahead.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.logBlockUpdates.enabled": "true",
    "spark.rdd.compress": "false",
    # a file of some rows is read by several tasks
    "spark.sql.files.openCostInBytes": "1",
}


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """Where Spark keeps what it writes of its own: ``local`` (shuffles, spills) and ``events``."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "local").mkdir()
    (folder / "events").mkdir()
    return folder


@pytest.fixture(scope="session")
def spark(scratch):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(scratch / "local"))
    session = builder.config("spark.eventLog.dir", f"file://{scratch / 'events'}").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def twins(small_city, tmp_path):
    """``twins(config, folder)``: two workspaces of one key without a store yet, for files and for Spark."""
    import trafficdp

    def make(config):
        stores = [tmp_path / name for name in ("files.store", "cluster.store")]
        one = trafficdp.open(config, store=stores[0], create=True)
        shutil.copy(one.key_file, tmp_path / "cluster.store.key")
        return one, trafficdp.open(config, store=stores[1], create=True)

    return make


@pytest.fixture(scope="session")
def contributions_of():
    """``contributions_of(workspace)``: rows (pseudonym, cell, slot, fixes, total, squares), sorted."""
    from trafficdp.release.curator import Curator
    from trafficdp.store import vault_fixes
    from trafficdp.store.store_files import Head
    from trafficdp.store.vault import Vault

    def rows(city):
        with Vault.open(city.store) as vault:
            curator = Curator(city.store, vault, Head(city.key_file, vault.store_id))
            version = vault_fixes.data_version(vault)
            found = curator.contributions(city.config.grid, city.config.map.bound, version)
            hmac = dict(vault.run("SELECT vehicle_id, hmac FROM vehicles"))
        own = found.counts
        columns = {
            "hmac": [hmac[number] for number in found.vehicle[own.user_index].tolist()],
            "cell": own.cell[own.bin_index],
            "slot": own.slot[own.bin_index],
            "fixes": own.count,
            "total": found.total,
            "total_of_squares": found.total_of_squares,
        }
        return pa.table(columns).sort_by([(name, "ascending") for name in columns])

    return rows
